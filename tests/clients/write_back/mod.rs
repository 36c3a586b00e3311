//! Volumes in write-back mode: daemons killed, servers that forget, a write log that is lost; and
//! guests that know what they were promised.

mod chain;
mod device;
mod memory;
mod mirror;

use crate::Case;
use crate::nbd_backend::loss::server::{ALL, Deed, FLUSH, Manner, SEND_FUA, Server};
use anyhow::{Context, Result, ensure};
use chain::{Chain, DISK};
use e2e::nbd::Client;
use e2e::rng::Rng;
use e2e::tools::FIO;
use e2e::{Config, Daemon, Fio, MIB, Site, Volume};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const CASES: [Case; 13] = [
    mirror::LOST,
    device::SILENCE,
    device::ERRORS,
    Case::new("write_back_kills", &[], kills).quick(),
    Case::new("write_back_kills_with_threads", &[], kills_with_threads).ci(),
    Case::new("write_back_kills_under_fio", &[FIO], kills_under_fio),
    Case::new("write_back_server_that_forgets", &[], server_that_forgets).ci(),
    Case::new("write_back_flushes_that_fail", &[], flushes_that_fail).ci(),
    Case::new("write_back_log_is_lost", &[], log_is_lost),
    Case::new("write_memory_kills", &[], memory::kills).ci(),
    Case::new("write_memory_kills_with_threads", &[], memory::kills_with_threads),
    Case::new("write_memory_is_lost", &[], memory::memory_is_lost),
    Case::new("write_memory_rescue", &[], memory::rescue),
];

const CACHE: u64 = 96 * MIB;
/// A back end that lags behind.
const SLOW: &str = "sim:network,write=2ms,flush=8ms:";
/// Kills of both cases together: half of the bar of 50; the rest are fio's and servers'.
const KILLS: u64 = 25;
const FIO_KILLS: u64 = 6;
const RESTARTS: u64 = 10;
const LOSSES: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(30);

fn config() -> Config {
    Config::new(CACHE)
        .cache_key("write_log = \"writes.img\"")
        .cache_key("write_log_size = \"16MiB\"")
}

fn volume(name: &str, backend: &str) -> Volume {
    Volume::new(name, backend).key("mode = \"write-back\"")
}

fn client(site: &Site, name: &str) -> Result<Client> {
    Client::connect(&site.path(&format!("{name}.sock")), name)
}

/// Two guests on files behind a slow device.
struct World {
    site: Site,
    config: Config,
    chains: Vec<(String, PathBuf, Chain)>,
    rng: Rng,
}

impl World {
    fn new(seed: u64, lines: &[&str]) -> Result<Self> {
        let site = Site::new()?;
        let mut config = config();
        for line in lines {
            config = config.cache_key(line);
        }
        let mut chains = Vec::new();
        for (number, stride) in [(1, 1), (2, 5)] {
            let (name, file) = (format!("vm{number}"), format!("vm{number}.raw"));
            let path = site.sparse(&file, DISK)?;
            config = config.volume(volume(&name, &format!("{SLOW}file:{file}")));
            chains.push((name, path, Chain::new(number, stride)));
        }
        Ok(Self { site, config, chains, rng: Rng::new(seed) })
    }

    /// Guests write for a moment, then `end` is done to the daemon under them.
    fn work(&mut self, daemon: Daemon, end: impl FnOnce(Daemon) -> Result<()>) -> Result<()> {
        let stop = AtomicBool::new(false);
        let time = Duration::from_millis(20 + self.rng.below(500));
        let mut clients = Vec::new();
        for (name, ..) in &self.chains {
            clients.push(client(&self.site, name)?);
        }
        thread::scope(|scope| {
            let pairs = self.chains.iter_mut().zip(clients);
            let guests: Vec<_> = pairs
                .map(|((_, _, chain), mut client)| {
                    let stop = &stop;
                    scope.spawn(move || chain.run(&mut client, stop))
                })
                .collect();
            thread::sleep(time);
            let ended = end(daemon);
            stop.store(true, Ordering::Relaxed);
            for guest in guests {
                // Its server is gone, or fails.
                let _ = guest.join().expect("the guest does not panic");
            }
            ended
        })
    }

    fn check_images(&self) -> Result<Vec<u64>> {
        let all = self.chains.iter().map(|(name, path, chain)| {
            chain.check_image(&std::fs::read(path)?).with_context(|| name.clone())
        });
        all.collect()
    }

    fn check_found(&mut self) -> Result<()> {
        for (name, _, chain) in &mut self.chains {
            let found = chain.check_found(&mut client(&self.site, name)?);
            found.with_context(|| name.clone())?;
        }
        Ok(())
    }
}

/// Kills lose nothing that was answered, and leave each back end as a disk that lost power.
fn kill(mut world: World, kills: u64) -> Result<()> {
    let mut behind = 0;
    for round in 0..kills {
        let daemon = world.site.serve(&world.config)?;
        world.check_found().with_context(|| format!("round {round}; {}", daemon.running.log()))?;
        world.work(daemon, Daemon::crash)?;
        let reached = world.check_images().with_context(|| format!("round {round}"))?;
        let flushed = world.chains.iter().map(|(_, _, chain)| chain.flushed());
        behind += u64::from(flushed.zip(reached).any(|(flushed, reached)| flushed > reached));
    }
    ensure!(behind * 2 > kills, "only {behind} of {kills} kills left something in the log");
    let daemon = world.site.serve(&world.config)?;
    world.check_found()?;
    daemon.stop()?;
    for (name, path, chain) in &world.chains {
        let reached = chain.check_image(&std::fs::read(path)?)?;
        ensure!(reached >= chain.flushed(), "{name}: the stop left {reached} at the back end");
        ensure!(!claim_of(path).exists(), "{name}: the stop left a claim");
    }
    Ok(())
}

fn claim_of(path: &std::path::Path) -> PathBuf {
    PathBuf::from(format!("{}.cinnabar-claim", path.display()))
}

fn kills() -> Result<()> {
    kill(World::new(1, &[])?, KILLS)
}

fn kills_with_threads() -> Result<()> {
    kill(World::new(2, &["shards = 4", "threads = 2"])?, KILLS)
}

/// fio writes with an fsync now and then, through a log that it fills several times.
fn kills_under_fio() -> Result<()> {
    const SIZE: u64 = 64 * MIB;
    let site = Site::new()?;
    site.sparse("fio.raw", SIZE)?;
    let config = config().volume(volume("fio", "file:fio.raw"));
    for round in 0..FIO_KILLS {
        let daemon = site.serve(&config)?;
        let job = Fio::nbd(&site.uri("fio"))
            .arg("rw", "randwrite")
            .arg("bsrange", "512-64k")
            .arg("size", SIZE)
            .arg("iodepth", 16)
            .arg("fsync", 32)
            .arg("randseed", round)
            .arg("verify", "crc32c")
            .arg("verify_fatal", 1);
        job.clone().arg("do_verify", 0).run().context("fio writes")?;
        daemon.crash()?;
        let daemon = site.serve(&config)?;
        job.flag("verify_only")
            .run()
            .with_context(|| format!("fio verifies, round {round}; {}", daemon.running.log()))?;
        let volume = daemon.status()?.volume("fio")?.clone();
        ensure!(volume["write_back"]["damaged"] == false, "{volume}");
        daemon.stop()?;
    }
    Ok(())
}

/// A server that loses in each restart what was not flushed: epochs are sent again.
fn server_that_forgets() -> Result<()> {
    let site = Site::new()?;
    let mut server = Server::start(&site.path("server"), Manner::of_size(DISK));
    let backend = volume("vm1", "nbd:unix:server").key("exclusive = true");
    let config = config().cache_key("shards = 3").cache_key("threads = 2").volume(backend);
    let daemon = site.serve(&config)?;
    let (stop, mut chain) = (AtomicBool::new(false), Chain::new(1, 3));
    let mut rng = Rng::new(3);
    let mut guest = client(&site, "vm1").with_context(|| daemon.running.log())?;
    let chain = thread::scope(|scope| {
        let writes = &stop;
        let worker = scope.spawn(move || chain.run(&mut guest, writes).map(|()| chain));
        let mut images = Vec::new();
        for _ in 0..RESTARTS {
            thread::sleep(Duration::from_millis(20 + rng.below(150)));
            server.kill();
            images.push(server.durable());
            server.revive();
        }
        stop.store(true, Ordering::Relaxed);
        let chain = worker
            .join()
            .expect("the guest does not panic")
            .with_context(|| daemon.running.log())?;
        for (restart, image) in images.iter().enumerate() {
            chain.check_image(image).with_context(|| format!("restart {restart}"))?;
        }
        anyhow::Ok(chain)
    })?;
    ensure!(chain.flushed() > 100, "only {} writes", chain.flushed());
    daemon.command(&["volume", "flush", "vm1"])?;
    server.kill();
    let reached = chain.check_image(&server.durable())?;
    ensure!(reached >= chain.flushed(), "{reached} of {} are there", chain.flushed());
    server.revive();
    daemon.stop()
}

/// A server that fails a flush, and loses what it had not flushed: the log writes it again. One without
/// FUA has a flush behind each durable write.
fn flushes_that_fail() -> Result<()> {
    const FAILURES: usize = 3;
    for flags in [ALL, ALL & !SEND_FUA] {
        let site = Site::new()?;
        let manner = Manner { flags, ..Manner::of_size(DISK) };
        let server = Server::start(&site.path("server"), manner);
        let backend = volume("vm1", "nbd:unix:server").key("exclusive = true");
        let config = config().cache_key("shards = 3").cache_key("threads = 2").volume(backend);
        let daemon = site.serve(&config)?;
        let (stop, mut chain) = (AtomicBool::new(false), Chain::new(1, 3));
        let mut guest = client(&site, "vm1").with_context(|| daemon.running.log())?;
        let (chain, images) = thread::scope(|scope| {
            let writes = &stop;
            let worker = scope.spawn(move || chain.run(&mut guest, writes).map(|()| chain));
            let images: Result<Vec<_>> = in_the_log(&daemon)
                .and_then(|()| (0..FAILURES).map(|_| failed_flush(&server, &daemon)).collect());
            stop.store(true, Ordering::Relaxed);
            let chain = worker.join().expect("the guest does not panic");
            anyhow::Ok((chain.with_context(|| daemon.running.log())?, images?))
        })?;
        for (failure, image) in images.iter().enumerate() {
            chain.check_image(image).with_context(|| format!("failure {failure}"))?;
        }
        ensure!(chain.flushed() > 100, "only {} writes", chain.flushed());
        daemon.command(&["volume", "flush", "vm1"])?;
        let reached = chain.check_image(&server.durable())?;
        ensure!(reached >= chain.flushed(), "{reached} of {} are there", chain.flushed());
        let status = daemon.status()?;
        ensure!(status.volume("vm1")?["state"] == "serving", "{}", status.0);
        daemon.stop()?;
    }
    Ok(())
}

/// Waits until writes go into the log. A flush comes before that: if it failed, they never would.
fn in_the_log(daemon: &Daemon) -> Result<()> {
    let begun = Instant::now();
    loop {
        let status = daemon.status()?;
        let log = &status.volume("vm1")?["write_back"];
        if log["dirty_bytes"].as_u64() > Some(0) || log["destaged_bytes"].as_u64() > Some(0) {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "not in the log: {}", daemon.running.log());
        thread::sleep(Duration::from_millis(5));
    }
}

/// The server's next flush fails; waits for one that does not. Gives what was durable in between.
fn failed_flush(server: &Server, daemon: &Daemon) -> Result<Vec<u8>> {
    let (failed, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (fails, goes) = (Arc::clone(&failed), Arc::clone(&good));
    server.script(move |asked| {
        if asked.kind == FLUSH && !fails.swap(true, Ordering::Relaxed) {
            return Deed::FailAndForget(5);
        }
        if asked.kind == FLUSH {
            goes.store(true, Ordering::Relaxed);
        }
        Deed::Serve
    });
    let begun = Instant::now();
    let mut image = None;
    while !good.load(Ordering::Relaxed) {
        ensure!(begun.elapsed() < PATIENCE, "no flush any more: {}", daemon.running.log());
        if failed.load(Ordering::Relaxed) && image.is_none() {
            image = Some(server.durable());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(image.unwrap_or_else(|| server.durable()))
}

/// The log's data are gone under a running daemon. Guests get errors instead of the past, and the
/// back end is a disk that lost power.
fn log_is_lost() -> Result<()> {
    for round in 0..LOSSES {
        let mut world = World::new(10 + round, &[])?;
        let daemon = world.site.serve(&world.config)?;
        let log = world.site.path("writes.img");
        let config = world.config.clone();
        world.work(daemon, |daemon| {
            std::fs::OpenOptions::new().write(true).open(&log)?.set_len(0)?;
            let begun = Instant::now();
            while !daemon.status()?.0.to_string().contains("damaged\":true") {
                ensure!(begun.elapsed() < PATIENCE, "unnoticed: {}", daemon.running.log());
                thread::sleep(Duration::from_millis(20));
            }
            daemon.crash()
        })?;
        world.check_images().with_context(|| format!("round {round}"))?;
        // A new log at its place is not the one that the claims name.
        std::fs::remove_file(&log)?;
        let daemon = world.site.serve(&config)?;
        let status = daemon.status()?;
        for (name, path, _) in &world.chains {
            let reason = status.volume(name)?["reason"].as_str().unwrap_or_default().to_owned();
            ensure!(reason.contains("claimed by the write log"), "{name}: {reason:?}");
            std::fs::remove_file(claim_of(path))?;
        }
        daemon.stop()?;
        let daemon = world.site.serve(&config)?;
        for (name, path, chain) in &mut world.chains {
            chain.check_image(&std::fs::read(&*path)?)?;
            let found = client(&world.site, name).and_then(|mut it| it.read(0, DISK as usize));
            found.with_context(|| daemon.running.log())?;
        }
        daemon.stop()?;
    }
    Ok(())
}
