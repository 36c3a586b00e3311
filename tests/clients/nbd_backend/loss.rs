//! A server that follows a script: it forgets, says nothing, changes.

use super::{CACHE, DISK, client, read_all, volume};
use anyhow::{Context, Result, ensure};
use e2e::daemon::noise;
use e2e::nbd::is_gone;
use e2e::{Config, MIB, Site};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../../crates/cinnabar-backend/tests/it/nbd/server.rs"]
#[expect(dead_code, reason = "shared with the tests of the back ends, which use all of it")]
pub(crate) mod server;

use server::{Deed, FLUSH, Manner, Server, WRITE};

const PATIENCE: Duration = Duration::from_secs(20);

/// What the server loses in its power cut is not in the cache either: neither at once, nor after a
/// crash of the daemon.
pub(super) fn unflushed() -> Result<()> {
    lose_unflushed(|config| config)
}

/// The same with shards that two threads run in turn.
pub(super) fn unflushed_with_threads() -> Result<()> {
    lose_unflushed(|config| config.cache_key("shards = 3").cache_key("threads = 2"))
}

fn lose_unflushed(with: impl Fn(Config) -> Config) -> Result<()> {
    let site = Site::new()?;
    let mut server = Server::start(&site.path("server"), Manner::of_size(DISK));
    let volume = volume("vm1", "nbd:unix:server").key("exclusive = true");
    let config = with(Config::new(CACHE.max(72 * MIB)).volume(volume));
    let daemon = site.serve(&config)?;
    let mut guest = client(&site, "vm1")?;
    for offset in (0..DISK).step_by(MIB as usize) {
        guest.write(offset, &noise(MIB, offset))?;
    }
    guest.flush()?;
    let before = server.durable();
    for round in 0..3_u64 {
        // From now on it gets no flush, or ignores it.
        server.script(|asked| if asked.kind == FLUSH { Deed::Ignore } else { Deed::Serve });
        for place in 0..40 {
            let offset = (place * 7 + round) % 128 * 131_072 + place * 512;
            let data = noise(6144, 1000 + place);
            guest.write(offset, &data)?;
            ensure!(guest.read(offset, data.len())? == data, "round {round}: a lost write");
        }
        ensure!(server.contents() != before, "nothing was written");
        let hits = || daemon.status()?.count("vm1", "read_hits");
        let hits_before = hits()?;
        for place in 0..40 {
            guest.read((place * 7 + round) % 128 * 131_072 + place * 512, 6144)?;
        }
        let gained = hits()? - hits_before;
        ensure!(
            gained >= 60,
            "{gained} hits: the cache holds nothing of it, this test shows little"
        );
        server.kill();
        server.script(|_| Deed::Serve);
        server.revive();
        ensure!(server.contents() == before, "the server has lost nothing");
        // The connection's end is noticed at once; the rest takes a moment.
        let begun = Instant::now();
        while let Err(error) = read_all(&site, "vm1", &before) {
            let late = begun.elapsed() > PATIENCE;
            ensure!(!late, "round {round}: {error:#}; {}", daemon.running.log());
            thread::sleep(Duration::from_millis(20));
        }
        read_all(&site, "vm1", &before).context("it came back")?;
    }
    let log = daemon.running.log();
    ensure!(log.contains("its server may have restarted"), "{log}");
    let hits = daemon.status()?.count("vm1", "read_hits")?;
    ensure!(hits > 0, "all was dropped, or nothing was ever cached");
    daemon.crash()?;
    let daemon = site.serve(&config)?;
    read_all(&site, "vm1", &before).context("after a crash of the daemon")?;
    daemon.stop()
}

/// A server that says nothing: guests get an error in time, and their data once it speaks again.
pub(super) fn hangs() -> Result<()> {
    let site = Site::new()?;
    let server = Server::start(&site.path("server"), Manner::of_size(DISK));
    let other = site.filled("vm2.raw", DISK, 5)?;
    let hung = volume("vm1", "nbd:unix:server").key("backend_timeout_s = 1");
    let config = Config::new(CACHE).volume(hung).volume(volume("vm2", "file:vm2.raw"));
    let daemon = site.serve(&config)?;
    server.script(|_| Deed::Ignore);
    let mut guest = client(&site, "vm1")?;
    let begun = Instant::now();
    let read = guest.read(0, 4096).err().context("a server that hangs was answered for")?;
    ensure!(!is_gone(&read), "the connection ended: {read:#}");
    let write = guest.write(MIB, &noise(4096, 1)).err().context("a hung write was acknowledged")?;
    ensure!(!is_gone(&write), "the connection ended: {write:#}");
    // Without the key it would be 60 s. A busy disk takes seconds for the mark in the cache's log.
    ensure!(begun.elapsed() < Duration::from_secs(30), "errors after {:?}", begun.elapsed());
    read_all(&site, "vm2", &std::fs::read(other)?).context("beside a hung volume")?;
    let status = daemon.status()?;
    ensure!(status.count("vm1", "backend_overdue")? == 2, "{}", status.volume("vm1")?);
    server.script(|_| Deed::Serve);
    server.hang_up();
    // What hung is asked again; what comes later waits for it.
    guest.write(MIB, &noise(4096, 2))?;
    ensure!(guest.read(MIB, 4096)? == noise(4096, 2), "an old write came later");
    ensure!(guest.read(0, 4096)? == [0; 4096], "not zeros");
    let wrote = |data: &[u8]| server.contents()[MIB as usize..][..4096] == *data;
    ensure!(wrote(&noise(4096, 2)), "the server has something else");
    let status = daemon.status()?;
    ensure!(status.count("vm1", "backend_overdue_now")? == 0, "{}", status.volume("vm1")?);
    daemon.stop()
}

/// A disk that was grown behind our back: errors with a reason, no waiting, and no harm.
pub(super) fn another_size() -> Result<()> {
    let site = Site::new()?;
    let server = Server::start(&site.path("server"), Manner::of_size(DISK));
    let daemon = site.serve(&Config::new(CACHE).volume(volume("vm1", "nbd:unix:server")))?;
    let mut guest = client(&site, "vm1")?;
    guest.write(0, &noise(4096, 1))?;
    server.change(|manner| manner.size = DISK / 2);
    server.hang_up();
    let begun = Instant::now();
    let refused = guest.write(MIB, &noise(4096, 2)).err().context("written to another disk")?;
    ensure!(!is_gone(&refused), "the connection ended: {refused:#}");
    ensure!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
    let log = daemon.running.log();
    ensure!(log.contains("bytes now and had"), "no reason: {log}");
    let asked = server.take_asked();
    let last = asked.iter().rfind(|asked| asked.kind == WRITE).map(|asked| asked.offset);
    ensure!(last == Some(0), "the other disk was written: {last:?}");
    server.change(|manner| manner.size = DISK);
    let begun = Instant::now();
    while guest.write(MIB, &noise(4096, 3)).is_err() {
        ensure!(begun.elapsed() < PATIENCE, "it does not come back: {}", daemon.running.log());
        thread::sleep(Duration::from_millis(50));
    }
    daemon.stop()
}
