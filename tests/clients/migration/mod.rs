//! A volume that moves between two daemons.

mod many;

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::tools::QEMU_IO;
use e2e::{Config, Daemon, MIB, Site, Volume, daemon::free_port, output};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const CASES: [Case; 3] = [
    Case::new("migration_frozen_and_killed", &[QEMU_IO], frozen_and_killed),
    Case::new("migration_warm", &[QEMU_IO], warm),
    Case::new("migration_hand_overs", &[], many::many).ci(),
];

const NAME: &str = "vm1";

/// A file that holds a token for changes over HTTP.
pub(crate) fn token(site: &Site) -> Result<PathBuf> {
    let path = site.path("token");
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600);
    options.open(&path)?.write_all(b"0123456789abcdef0123456789abcdef\n")?;
    Ok(path)
}

/// A daemon at a port with volumes on images that the daemon at the other port has, too.
pub(crate) fn config<const N: usize>(
    cache: u64,
    volumes: [Volume; N],
    (own, other): (u16, u16),
    token: &Path,
) -> Config {
    let config = Config::new(cache)
        .cache_key("lock_wait_s = 1")
        .control_key(&format!("peers = \"127.0.0.1:{own}\""))
        .control_key(&format!("peers_token_file = \"{}\"", token.display()));
    volumes.into_iter().fold(config, |config, volume| {
        let volume = volume
            .key(&format!("migrate_peer = \"http://127.0.0.1:{other}\""))
            .key(&format!("migrate_token_file = \"{}\"", token.display()));
        config.volume(volume)
    })
}

/// What a daemon is to the volume of this name.
pub(crate) fn role(daemon: &Daemon, name: &str) -> Result<String> {
    let status = daemon.status()?;
    let role = status.volume(name)?["migration"]["role"].as_str().context("no role")?;
    Ok(role.to_owned())
}

fn io(site: &Site, command: &str) -> Result<()> {
    let mut qemu_io = Command::new("qemu-io");
    if command.starts_with("read") {
        // Else it flushes when it closes the disk, and a flush takes the volume.
        qemu_io.arg("-r");
    }
    let text = output(qemu_io.args(["-f", "raw", "-c", command]).arg(site.uri(NAME)))?;
    ensure!(!text.contains("failed"), "{command}: {text}");
    Ok(())
}

/// Its owner is frozen, wakes, and is killed.
fn frozen_and_killed() -> Result<()> {
    let (shared, sites) = (Site::new()?, [Site::new()?, Site::new()?]);
    let image = shared.sparse("image.raw", 16 * MIB)?;
    let (token, a, b) = (token(&shared)?, free_port()?, free_port()?);
    let volume = || Volume::new(NAME, &format!("file:{}", image.display()));
    let configs = [
        config(32 * MIB, [volume()], (a, b), &token),
        config(32 * MIB, [volume()], (b, a), &token),
    ];
    let one = sites[0].serve(&configs[0])?;
    let two = sites[1].serve(&configs[1])?;
    for round in 1..=3_u8 {
        io(&sites[0], &format!("write -P {round} 0 1M"))?;
        io(&sites[1], &format!("read -P {round} 0 1M")).context("a standby")?;
        ensure!(role(&one, NAME)? == "owner", "round {round}");
        let pid = Pid::from_raw(one.running.pid().cast_signed()).context("a process")?;
        kill_process(pid, Signal::STOP)?;
        let plain = two.command(&["migrate", "in", NAME, "--take"]);
        let forced = two.command(&["migrate", "in", NAME, "--take", "--force"]);
        let read = io(&sites[1], &format!("read -P {round} 0 1M"));
        kill_process(pid, Signal::CONT)?;
        let plain = format!("{:#}", plain.err().context("a frozen owner gives nothing")?);
        ensure!(plain.contains("no answer within"), "{plain}");
        let forced = format!("{:#}", forced.err().context("it has the lock")?);
        ensure!(forced.contains("in use by process"), "{forced}");
        read.context("reads at the standby while the owner is frozen")?;
        // It wakes, and has been asked meanwhile: it lets go, or is asked once more.
        io(&sites[1], &format!("write -P {} 1M 1M", round + 100))?;
        io(&sites[0], &format!("read -P {} 1M 1M", round + 100)).context("the old owner")?;
        io(&sites[0], &format!("read -P {round} 0 1M")).context("the old owner, cached")?;
        ensure!(role(&one, NAME)? == "standby" && role(&two, NAME)? == "owner", "round {round}");
    }
    io(&sites[0], "write -P 77 2M 1M").context("back again")?;
    one.crash()?;
    let refused =
        format!("{:#}", two.command(&["migrate", "in", NAME, "--take"]).expect_err("dead"));
    ensure!(refused.contains("--force"), "{refused}");
    two.command(&["migrate", "in", NAME, "--take", "--force"])?;
    io(&sites[1], "read -P 77 2M 1M").context("what the dead owner had acknowledged")?;
    io(&sites[1], "write -P 78 2M 1M")?;
    let one = sites[0].serve(&configs[0])?;
    ensure!(role(&one, NAME)? == "standby", "it does not know who had it since");
    io(&sites[0], "read -P 78 2M 1M").context("back as a standby")?;
    io(&sites[0], "write -P 79 3M 1M")?;
    io(&sites[0], "read -P 78 2M 1M").context("back as the owner")?;
    println!("{}", one.command(&["migrate", "status"])?);
    one.stop()?;
    two.stop()
}

/// What a daemon says of what came along with the volume, once that has ended.
fn arrived(daemon: &Daemon) -> Result<serde_json::Value> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let status = daemon.status()?;
        let migration = &status.volume(NAME)?["migration"];
        if migration["warm"]["ended"].is_string() {
            return Ok(migration["warm"].clone());
        }
        ensure!(Instant::now() < until, "it does not end: {migration}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn warm() -> Result<()> {
    let (shared, sites) = (Site::new()?, [Site::new()?, Site::new()?]);
    let image = shared.sparse("image.raw", 16 * MIB)?;
    let (token, a, b) = (token(&shared)?, free_port()?, free_port()?);
    let volume = || Volume::new(NAME, &format!("file:{}", image.display()));
    let one = sites[0].serve(&config(32 * MIB, [volume()], (a, b), &token))?;
    let two = sites[1].serve(&config(32 * MIB, [volume()], (b, a), &token))?;
    io(&sites[0], "write -P 5 0 8M")?;
    for part in 0..8 {
        io(&sites[0], &format!("read -P 5 {part}M 1M"))?;
    }
    io(&sites[1], "write -P 6 8M 64k").context("it is taken")?;
    let warm = arrived(&two)?;
    let bytes = warm["bytes"].as_u64().context("a number")?;
    ensure!(bytes >= 6 * MIB, "{warm}");
    let text = two.command(&["migrate", "status"])?;
    ensure!(text.contains(" came along ("), "{text}");
    let misses =
        || -> Result<u64> { two.status()?.volume(NAME)?["misses"].as_u64().context("no misses") };
    let before = misses()?;
    io(&sites[1], "read -P 5 0 8M").context("what came along")?;
    io(&sites[1], "read -P 6 8M 64k").context("what was written")?;
    let missed = (misses()? - before) * 4096;
    ensure!(missed <= 2 * MIB, "{missed} bytes were not there: {warm}");
    // To and fro: what was written meanwhile is what comes along.
    io(&sites[1], "write -P 7 1M 1M")?;
    io(&sites[1], "read -P 7 1M 1M")?;
    io(&sites[0], "write -P 8 9M 64k").context("it is taken back")?;
    arrived(&one)?;
    io(&sites[0], "read -P 7 1M 1M").context("back at the first host")?;
    io(&sites[0], "read -P 5 2M 6M").context("back at the first host")?;
    one.stop()?;
    two.stop()
}
