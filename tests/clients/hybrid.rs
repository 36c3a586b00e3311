//! Volumes over two folders: fio's checks, and daemons that are killed while extents move.

use crate::Case;
use crate::crash::load::{Shared, read_all, run};
use anyhow::{Context, Result, ensure};
use e2e::books::Books;
use e2e::daemon::noise;
use e2e::nbd::Client;
use e2e::rng::Rng;
use e2e::stamps::ZEROS;
use e2e::tools::{FIO, QEMU_IMG};
use e2e::{Config, Daemon, Fio, MIB, Site, Volume};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const CASES: [Case; 5] = [
    Case::new("hybrid_fio_verify", &[FIO], fio_verify),
    Case::new("hybrid_kills_while_extents_move", &[], kills_while_extents_move).ci(),
    Case::new("hybrid_commands", &[], commands),
    Case::new("hybrid_life", &[FIO], life),
    Case::new("hybrid_import_export", &[QEMU_IMG], import_export),
];

pub(crate) const DISK: u64 = 64 * MIB;
pub(crate) const BUDGET: u64 = 8 * MIB;
/// Rounds so short, and copies so cheap, that extents move all the time.
const BACKEND: &str = "hybrid,round_s=0.2,horizon_s=604800,copy_mib_s=1024:fast=fast,slow=slow";
const CACHE: u64 = 24 * MIB;
const KILLS: u64 = 8;

fn config() -> Config {
    Config::new(CACHE).volume(Volume::new("vm1", BACKEND))
}

/// Runs `cinnabar hybrid WHAT` on the volume of a site; its JSON.
fn hybrid(site: &Site, what: &[&str]) -> Result<serde_json::Value> {
    let mut command = Command::new(e2e::binary::cinnabar()?);
    command.arg("hybrid").args(what).arg("--json");
    command.arg("--fast").arg(site.path("fast")).arg("--slow").arg(site.path("slow"));
    let output = command.output().context("starting cinnabar hybrid")?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "cinnabar hybrid {what:?}: {stderr}");
    serde_json::from_slice(&output.stdout).context("its JSON")
}

fn created() -> Result<Site> {
    let site = Site::new()?;
    let (size, budget) = (format!("{}MiB", DISK / MIB), format!("{}MiB", BUDGET / MIB));
    hybrid(&site, &["create", "--size", &size, "--budget", &budget, "--extent", "64KiB"])?;
    Ok(site)
}

/// Moves since the daemon was started, up and down.
pub(crate) fn moves(daemon: &Daemon) -> Result<(u64, u64)> {
    let status = daemon.status()?;
    let own = &status.volume("vm1")?["hybrid"];
    let count = |key: &str| own[key].as_u64().with_context(|| format!("{key} in {own}"));
    ensure!(count("fast_bytes")? <= BUDGET, "above the budget: {own}");
    Ok((count("moved_fast")?, count("moved_slow")?))
}

/// No object is lost, none is left, nothing is foreign, and the budget is kept.
fn check_pools(site: &Site) -> Result<()> {
    let found = hybrid(site, &["check"])?;
    ensure!(found["lost_count"] == 0 && found["foreign_count"] == 0, "{found}");
    let files = std::fs::read_dir(site.path("fast"))?.count() as u64;
    // The table and the mark are there as well.
    ensure!((files - 2) * (64 << 10) <= BUDGET, "{files} files in the fast pool");
    Ok(())
}

fn fio_verify() -> Result<()> {
    let site = created()?;
    let daemon = site.serve(&config())?;
    let job = |rw: &str| {
        Fio::nbd(&site.uri("vm1"))
            .arg("rw", rw)
            .arg("size", DISK)
            .arg("iodepth", 16)
            .arg("randseed", 5)
            .arg("verify", "crc32c")
            .arg("verify_fatal", 1)
    };
    job("randwrite").arg("bsrange", "4k-64k").arg("do_verify", 1).run()?;
    // The second quarter, and within it a part, is hot while it is written and verified.
    let hot = |job: Fio| {
        job.arg("offset", DISK / 4)
            .arg("size", DISK / 8)
            .arg("bs", "4k")
            .arg("random_distribution", "zipf:1.2")
            .arg("loops", 6)
    };
    hot(job("randwrite")).arg("do_verify", 1).run()?;
    let (up, _) = moves(&daemon)?;
    ensure!(up > 0, "nothing moved");
    daemon.stop()?;
    check_pools(&site)?;
    // Again, by another daemon, of what fio wrote last.
    let daemon = site.serve(&config())?;
    hot(job("randwrite")).flag("verify_only").run()?;
    daemon.stop()
}

fn kills_while_extents_move() -> Result<()> {
    let site = created()?;
    let (up, down) = kills(&site, &config(), KILLS)?;
    ensure!(up > 50, "only {up} moves up and {down} down");
    check_pools(&site)
}

/// Kills daemons under load, again and again: what the volume holds is compared with a model, and what was cached is
/// kept. Gives the moves up and down.
pub(crate) fn kills(site: &Site, config: &Config, kills: u64) -> Result<(u64, u64)> {
    let books = Books::new(1, DISK / 512, ZEROS);
    let shared = Shared::default();
    let mut rng = Rng::new(77);
    let (mut up, mut down) = (0, 0);
    for round in 0..kills {
        let daemon = site.serve(config)?;
        if round > 0 {
            // Its own epoch is the proof, whatever moved.
            let warmth = daemon.loaded()?.volume("vm1")?["warmth"].to_string();
            ensure!(warmth.contains("kept"), "after kill {round}: {warmth}");
        }
        let connect = || Client::connect(&site.path("vm1.sock"), "vm1");
        read_all(&mut connect()?, &books).with_context(|| format!("after kill {round}"))?;
        let time = Duration::from_millis(1500 + rng.below(1500));
        let seeds = [rng.below(1 << 40), rng.below(1 << 40)];
        let clients = [connect()?, connect()?];
        let moved = thread::scope(|scope| -> Result<(u64, u64)> {
            let guests: Vec<_> = clients
                .into_iter()
                .zip(seeds)
                .map(|(client, seed)| {
                    let (books, shared) = (&books, &shared);
                    let rng = Rng::new(seed);
                    scope.spawn(move || run(client, books, shared, rng, Duration::ZERO))
                })
                .collect();
            let until = Instant::now() + time;
            while Instant::now() < until {
                thread::sleep(Duration::from_millis(50));
            }
            let moved = moves(&daemon)?;
            daemon.crash()?;
            for guest in guests {
                guest.join().expect("it does not panic")?;
            }
            Ok(moved)
        })?;
        (up, down) = (up + moved.0, down + moved.1);
    }
    let answered = shared.answered.load(Ordering::Relaxed);
    println!("{kills} kills, {answered} requests, {up} moves up, {down} down");
    let daemon = site.serve(config)?;
    read_all(&mut Client::connect(&site.path("vm1.sock"), "vm1")?, &books)?;
    daemon.stop()?;
    Ok((up, down))
}

fn commands() -> Result<()> {
    let site = created()?;
    let looked = hybrid(&site, &["status"])?;
    ensure!(looked["size_bytes"] == DISK && looked["budget_bytes"] == BUDGET, "{looked}");
    ensure!(looked["extents_written"] == 0, "{looked}");
    let twice = hybrid(&site, &["create", "--size", "1MiB"]);
    ensure!(format!("{:#}", twice.expect_err("it is there")).contains("exists"), "made twice");
    let daemon = site.serve(&config())?;
    Client::connect(&site.path("vm1.sock"), "vm1")?.write(MIB, &[7; 4096])?;
    ensure!(hybrid(&site, &["check"]).is_err(), "it is in use");
    ensure!(hybrid(&site, &["status"])?["extents_written"] == 1, "the write is in the table");
    let text = daemon.command(&["status"])?;
    ensure!(text.contains("extents in the fast pool"), "{text}");
    daemon.stop()?;
    check_pools(&site)?;
    remove_one(&site.path("slow"))?;
    let lost = hybrid(&site, &["check"]).expect_err("an object is lost");
    ensure!(format!("{lost:#}").contains("1 objects of the volume are lost"), "{lost:#}");
    Ok(())
}

/// Out of the fast pool, larger, smaller, without garbage, without what is lost.
fn life() -> Result<()> {
    let site = created()?;
    let daemon = site.serve(&config())?;
    let hot = Fio::nbd(&site.uri("vm1")).arg("rw", "randwrite").arg("bs", "4k");
    hot.arg("size", DISK).arg("random_distribution", "zipf:1.2").arg("loops", 2).run()?;
    let connect = || Client::connect(&site.path("vm1.sock"), "vm1");
    connect()?.write(MIB, &noise(MIB, 3))?;
    let expected = connect()?.read(0, DISK as usize)?;
    says(hybrid(&site, &["evacuate"]), "in use")?;
    daemon.stop()?;
    ensure!(hybrid(&site, &["status"])?["extents_fast"].as_u64() > Some(0), "nothing moved");
    let out = hybrid(&site, &["evacuate"])?;
    ensure!(out["extents_fast"] == 0 && out["budget_bytes"] == 0, "{out}");
    let files = std::fs::read_dir(site.path("fast"))?.count();
    ensure!(files == 2, "{files} files in the fast folder: the table and the mark are two");
    let larger = hybrid(&site, &["resize", "--size", "96MiB"])?;
    ensure!(larger["size_bytes"] == 96 * MIB, "{larger}");
    says(hybrid(&site, &["resize", "--size", "32MiB"]), "--shrink")?;
    says(hybrid(&site, &["resize", "--size", "1EiB"]), "size")?;

    // What is cached is believed by the operator's word, but not what a command has cut off.
    let vouched = Config::new(CACHE).volume(Volume::new("vm1", BACKEND).key("exclusive = true"));
    let daemon = site.serve(&vouched)?;
    let mut guest = connect()?;
    ensure!(guest.size() == 96 * MIB, "{} bytes", guest.size());
    ensure!(guest.read(0, DISK as usize)? == expected, "it changed on the way");
    ensure!(guest.read(DISK, 4096)? == [0; 4096], "what is new reads as zeros");
    guest.write(95 * MIB, &noise(4096, 4))?;
    guest.flush()?;
    ensure!(guest.read(0, DISK as usize)? == expected, "cached or not");
    daemon.stop()?;

    hybrid(&site, &["resize", "--size", "32MiB", "--shrink"])?;
    hybrid(&site, &["resize", "--size", "96MiB"])?;
    // The first object of one that has moved.
    let names = || -> Result<Vec<String>> {
        let entries = std::fs::read_dir(site.path("slow"))?.filter_map(Result::ok);
        Ok(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    };
    let moved = |name: &String| name.len() == 17 && !name.ends_with(".00000001");
    let moved = names()?.into_iter().find(moved).context("an extent that has moved")?;
    let left = site.path("slow").join(format!("{}.00000001", &moved[..8]));
    std::fs::write(&left, vec![0; 64 << 10])?;
    ensure!(hybrid(&site, &["gc"])?["deleted"] == 1 && !left.exists(), "what is left goes");
    ensure!(hybrid(&site, &["repair"])?["lost_count"] == 0, "nothing is lost");
    let second = names()?.into_iter().find(|name| name.starts_with("00000001."));
    let second = site.path("slow").join(second.context("an object of the second extent")?);
    std::fs::remove_file(&second)?;
    says(hybrid(&site, &["repair"]), "1 objects of the volume are lost")?;
    // A later one shows that the table is older than the pools.
    let later = site.path("slow").join("00000001.00000099");
    std::fs::write(&later, vec![0; 64 << 10])?;
    says(hybrid(&site, &["repair", "--forget-lost"]), "the table may be an older copy")?;
    std::fs::remove_file(&later)?;
    std::fs::write(&second, [0; 4096])?;
    says(hybrid(&site, &["repair", "--forget-lost"]), "1 objects are too short")?;
    std::fs::remove_file(&second)?;
    let zeroed = hybrid(&site, &["repair", "--forget-lost"])?;
    ensure!(zeroed["zeroed"][0]["begin"] == 64 << 10, "{zeroed}");
    hybrid(&site, &["check"])?;

    let daemon = site.serve(&vouched)?;
    let found = connect()?.read(0, DISK as usize)?;
    let half = DISK as usize / 2;
    ensure!(found[..64 << 10] == expected[..64 << 10], "the first extent");
    ensure!(found[64 << 10..128 << 10].iter().all(|byte| *byte == 0), "the lost one");
    ensure!(found[128 << 10..half] == expected[128 << 10..half], "what is behind it");
    ensure!(found[half..].iter().all(|byte| *byte == 0), "what a smaller size has cut off");
    ensure!(connect()?.read(95 * MIB, 4096)? == [0; 4096], "what a smaller size has cut off");
    daemon.stop()?;
    check_pools(&site)
}

/// A command is refused, and says so.
fn says(done: Result<serde_json::Value>, part: &str) -> Result<()> {
    let error = done.err().with_context(|| format!("it is done; wanted: {part}"))?;
    let text = format!("{error:#}");
    ensure!(text.contains(part), "no {part:?} in {text}");
    Ok(())
}

/// What is written of an image, and read back into one, as the guide tells.
fn import_export() -> Result<()> {
    let site = created()?;
    let image = site.filled("from.raw", DISK / 4, 9)?;
    std::fs::File::options().write(true).open(&image)?.set_len(DISK)?;
    let (uri, back) = (site.uri("vm1"), site.path("back.raw"));
    let daemon = site.serve(&config())?;
    let convert = |from: &[&std::ffi::OsStr]| -> Result<()> {
        let mut command = Command::new("qemu-img");
        let done = command.arg("convert").args(from).output().context("starting qemu-img")?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    };
    let raw = ["-f", "raw", "-O", "raw"].map(std::ffi::OsStr::new);
    let [n, uri] = ["-n", &uri].map(std::ffi::OsStr::new);
    convert(&[&raw[..], &[n, image.as_os_str(), uri]].concat())?;
    let written = hybrid(&site, &["status"])?["extents_written"].as_u64();
    ensure!(written == Some(DISK / 4 / (64 << 10)), "zeros take room: {written:?} extents");
    convert(&[&raw[..], &[uri, back.as_os_str()]].concat())?;
    ensure!(std::fs::read(&image)? == std::fs::read(&back)?, "another image came back");
    daemon.stop()?;
    check_pools(&site)
}

/// Removes an object.
fn remove_one(pool: &Path) -> Result<()> {
    let object = pool.join("00000010.00000001");
    std::fs::remove_file(&object).with_context(|| object.display().to_string())
}
