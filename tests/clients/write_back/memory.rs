//! Writes acknowledged from memory: daemons killed under guests, a memory that is lost, and a rescue
//! after a kill.

use super::chain::{Chain, DISK};
use super::{SLOW, World, client, config, volume};
use anyhow::{Context, Result, ensure};
use e2e::output;
use e2e::rng::Rng;
use e2e::{Daemon, Site};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kills in CI.
const KILLS: u64 = 20;
const LOSSES: u64 = 3;
const RESCUES: u64 = 3;

/// A world of guests, and the memory that their writes are acknowledged from.
struct Kept {
    world: World,
    file: PathBuf,
    _folder: Site,
}

impl Kept {
    /// One guest flushes now and then, one hardly ever, and writes its blocks again meanwhile.
    fn new(seed: u64, lines: &[&str]) -> Result<Self> {
        let (site, folder) = (Site::new()?, Site::within(Path::new("/dev/shm"))?);
        let file = folder.path("log.memory");
        let mut config = config()
            .cache_key(&format!("write_memory = \"{}\"", file.display()))
            .cache_key("write_memory_size = \"8MiB\"");
        for line in lines {
            config = config.cache_key(line);
        }
        let mut chains = Vec::new();
        for (number, stride) in [(1, 5), (2, 997)] {
            let (name, raw) = (format!("vm{number}"), format!("vm{number}.raw"));
            let path = site.sparse(&raw, DISK)?;
            let volume = volume(&name, &format!("{SLOW}file:{raw}")).key("ack = \"memory\"");
            config = config.volume(volume);
            chains.push((name, path, Chain::new(number, stride)));
        }
        let world = World { site, config, chains, rng: Rng::new(seed) };
        Ok(Self { world, file, _folder: folder })
    }
}

/// Kills lose nothing that was answered.
pub(super) fn kills() -> Result<()> {
    kill(Kept::new(31, &[])?, KILLS)
}

pub(super) fn kills_with_threads() -> Result<()> {
    kill(Kept::new(32, &["shards = 4", "threads = 2"])?, KILLS / 2)
}

fn kill(mut kept: Kept, kills: u64) -> Result<()> {
    let (world, mut absorbed) = (&mut kept.world, 0);
    for round in 0..kills {
        let daemon = world.site.serve(&world.config)?;
        world.check_found().with_context(|| format!("round {round}; {}", daemon.running.log()))?;
        world.work(daemon, |daemon| {
            let log = daemon.glance()?.0["cache"]["write_log"].clone();
            absorbed += log["memory"]["absorbed_bytes"].as_u64().context("no memory")?;
            daemon.crash()
        })?;
        ensure!(kept.file.exists(), "the memory outlives the daemon");
        world.check_images().with_context(|| format!("round {round}"))?;
    }
    ensure!(absorbed > 0, "no block was written again in memory");
    let daemon = world.site.serve(&world.config)?;
    world.check_found()?;
    daemon.stop()?;
    ensure!(!kept.file.exists(), "a clean stop leaves nothing in memory");
    for (name, path, chain) in &world.chains {
        let reached = chain.check_image(&std::fs::read(path)?)?;
        ensure!(reached >= chain.flushed(), "{name}: the stop left {reached} at the back end");
    }
    Ok(())
}

/// The memory is gone, and the host was not started again: nothing is served before the operator says that
/// this may be, and then what was flushed is there.
pub(super) fn memory_is_lost() -> Result<()> {
    for round in 0..LOSSES {
        let mut kept = Kept::new(40 + round, &[])?;
        let world = &mut kept.world;
        let daemon = world.site.serve(&world.config)?;
        world.work(daemon, Daemon::crash)?;
        std::fs::remove_file(&kept.file)?;
        let daemon = world.site.launch(&world.config)?.ready()?;
        let reason = daemon.status()?.0["cache"]["write_log"]["reason"].to_string();
        ensure!(reason.contains("newest acknowledged writes are in"), "{reason}");
        for (name, ..) in &world.chains {
            ensure!(client(&world.site, name).is_err(), "{name} is served");
        }
        daemon.stop()?;
        std::fs::File::create(&kept.file)?;
        let daemon = world.site.serve(&world.config)?;
        for (name, _, chain) in &world.chains {
            let image = client(&world.site, name)?.read(0, DISK as usize)?;
            let reached = chain.check_image(&image).with_context(|| name.clone())?;
            let flushed = chain.flushed();
            ensure!(reached >= flushed, "{name}: {reached} is there, {flushed} was flushed");
        }
        daemon.stop()?;
    }
    Ok(())
}

/// The daemon is killed and never comes back: its writes are brought to the disks by hand, those in
/// memory, too.
pub(super) fn rescue() -> Result<()> {
    for round in 0..RESCUES {
        let mut kept = Kept::new(50 + round, &[])?;
        let world = &mut kept.world;
        let daemon = world.site.serve(&world.config)?;
        world.work(daemon, Daemon::crash)?;
        let log = world.site.path("writes.img").display().to_string();
        let run = |args: &[&str]| -> Result<String> {
            output(Command::new(e2e::binary::cinnabar()?).arg("cache").args(args))
        };
        let check = run(&["check", &log])?;
        ensure!(check.contains("write memory"), "{check}");
        let dump = run(&["dump", &log])?;
        ensure!(dump.contains("log.memory"), "{dump}");
        // It was moved.
        let moved = kept.file.with_extension("moved");
        std::fs::rename(&kept.file, &moved)?;
        let memory = moved.display().to_string();
        for (place, (name, path, chain)) in world.chains.iter().enumerate() {
            let to = format!("file:{}", path.display());
            let args = ["writeback", &log, "--volume", name, "--to", &to];
            // The first rescue brings what is in memory to the log, of all volumes.
            if round == 0 && place == 0 {
                let error = run(&args).err().context("a rescue without the memory")?;
                ensure!(format!("{error:#}").contains("--memory"), "{error:#}");
            }
            run(&[&args[..], &["--memory", &memory]].concat())?;
            let mut found = Chain::clone(chain);
            let image = std::fs::read(path)?;
            found.check_whole(&image).with_context(|| format!("{name}, round {round}"))?;
        }
    }
    Ok(())
}
