//! fio writes, reads back and compares checksums.

use crate::Case;
use anyhow::{Result, ensure};
use e2e::{Config, Daemon, Fio, MIB, Running, Site, Volume, daemon::free_port, tools::FIO};
use std::path::Path;
use std::thread;
use std::time::Duration;

pub(crate) const CASES: [Case; 9] = [
    Case::new("fio_4k", &[FIO], whole_blocks).quick(),
    Case::new("fio_mixed_sizes", &[FIO], mixed_sizes).ci(),
    Case::new("fio_several_connections", &[FIO], several_connections),
    Case::new("fio_several_threads", &[FIO], several_threads).ci(),
    Case::new("fio_rereads_what_it_wrote", &[FIO], rereads),
    Case::new("fio_tcp_and_two_volumes", &[FIO], tcp_and_two_volumes),
    Case::new("fio_every_mode", &[FIO], every_mode),
    Case::new("fio_while_modes_and_shares_change", &[FIO], changes).ci(),
    Case::new("fio_while_the_cache_is_resized", &[FIO], resizes).ci(),
];

const DISK: u64 = 128 * MIB;
/// Much smaller than the disk.
const CACHE: u64 = 24 * MIB;

/// Writes the whole range once in random order, then reads it back.
fn write_and_verify(job: Fio) -> Fio {
    job.arg("rw", "randwrite")
        .arg("iodepth", 16)
        .arg("verify", "crc32c")
        .arg("verify_fatal", 1)
        .arg("do_verify", 1)
}

/// The same job, reading only, on the disk's file itself: write-through means that it is there.
fn verify_file(job: fn(Fio) -> Fio, disk: &Path) -> Result<()> {
    let file = Fio::engine("psync").arg("filename", disk.display());
    let outcome = job(file).flag("verify_only").run()?;
    ensure!(outcome.read.operations > 0 || outcome.write.operations > 0, "nothing was verified");
    Ok(())
}

fn one_volume() -> Result<(Site, Daemon)> {
    let site = Site::new()?;
    site.sparse("disk.raw", DISK)?;
    let daemon = site.serve(&Config::new(CACHE).volume(Volume::new("vm1", "file:disk.raw")))?;
    Ok((site, daemon))
}

/// fio at fault would verify nothing: the daemon's counters say that it did.
fn check_volume(daemon: &Daemon, blocks: u64) -> Result<()> {
    let status = daemon.status()?;
    let (read, written) =
        (status.count("vm1", "blocks_read")?, status.count("vm1", "blocks_written")?);
    ensure!(read >= blocks && written >= blocks, "{read} blocks read, {written} written");
    Ok(())
}

fn check_traffic(daemon: &Daemon, blocks: u64) -> Result<()> {
    check_volume(daemon, blocks)?;
    let status = daemon.status()?;
    let (cached, capacity) = (status.cache("cached_blocks")?, status.cache("capacity_blocks")?);
    ensure!(cached > 0, "nothing is cached: {}", status.0);
    ensure!(capacity * 4096 <= CACHE, "more blocks than the device holds: {capacity}");
    Ok(())
}

fn whole_blocks() -> Result<()> {
    let (site, daemon) = one_volume()?;
    let job = |job: Fio| write_and_verify(job).arg("size", DISK).arg("randseed", 1);
    job(Fio::nbd(&site.uri("vm1"))).run()?;
    check_traffic(&daemon, DISK / 4096)?;
    daemon.stop()?;
    verify_file(job, &site.path("disk.raw"))
}

fn mixed_sizes() -> Result<()> {
    let (site, daemon) = one_volume()?;
    let job = |job: Fio| {
        write_and_verify(job)
            .arg("size", DISK)
            .arg("randseed", 2)
            .arg("bsrange", "512-96k")
            .arg("blockalign", 512)
    };
    job(Fio::nbd(&site.uri("vm1"))).run()?;
    check_traffic(&daemon, DISK / 4096)?;
    daemon.stop()?;
    verify_file(job, &site.path("disk.raw"))
}

fn several_connections() -> Result<()> {
    const CONNECTIONS: u64 = 4;
    let (site, daemon) = one_volume()?;
    let job = |job: Fio| {
        write_and_verify(job)
            .arg("numjobs", CONNECTIONS)
            .arg("size", DISK / CONNECTIONS)
            .arg("offset_increment", DISK / CONNECTIONS)
            .arg("bsrange", "4k-32k")
            .arg("randseed", 3)
    };
    job(Fio::nbd(&site.uri("vm1"))).run()?;
    check_traffic(&daemon, DISK / 4096)?;
    daemon.stop()?;
    verify_file(job, &site.path("disk.raw"))
}

/// Connections that two data threads serve, while another volume comes and goes under load. The daemon
/// is killed, too: what is in the file is what was acknowledged.
fn several_threads() -> Result<()> {
    const CONNECTIONS: u64 = 4;
    const SHARDS: u64 = 3;
    let site = Site::new()?;
    site.sparse("disk.raw", DISK)?;
    site.sparse("other.raw", DISK)?;
    let config = Config::new(SHARDS * 24 * MIB)
        .cache_key(&format!("shards = {SHARDS}"))
        .cache_key("threads = 2")
        .volume(Volume::new("vm1", "file:disk.raw"));
    let daemon = site.serve(&config)?;
    let job = |job: Fio| {
        write_and_verify(job)
            .arg("numjobs", CONNECTIONS)
            .arg("size", DISK / CONNECTIONS)
            .arg("offset_increment", DISK / CONNECTIONS)
            .arg("bsrange", "4k-32k")
            .arg("randseed", 4)
    };
    let verified = job(Fio::nbd(&site.uri("vm1")));
    let fio = thread::spawn(move || verified.run());
    let load = |name: &str| {
        let job = Fio::nbd(&site.uri(name)).arg("rw", "randrw").arg("iodepth", 32);
        job.arg("size", DISK).flag("time_based").arg("runtime", 60).command()
    };
    let backend = format!("file:{}", site.path("other.raw").display());
    let socket = format!("unix:{}", site.path("vm2.sock").display());
    let mut detached = 0;
    while !fio.is_finished() || detached < 2 {
        daemon.command(&["volume", "add", "vm2", "--backend", &backend, "--nbd", &socket])?;
        let mut other = Running::start(&mut load("vm2"), &site.path("load.log"))?;
        thread::sleep(Duration::from_millis(400));
        daemon.command(&["volume", "remove", "vm2", "--force"])?;
        other.kill()?;
        detached += 1;
    }
    fio.join().expect("the job does not panic")?;
    check_volume(&daemon, DISK / 4096)?;
    let mut other = Running::start(&mut load("vm1"), &site.path("load.log"))?;
    thread::sleep(Duration::from_millis(300));
    daemon.crash()?;
    other.kill()?;
    let daemon = site.serve(&config)?;
    job(Fio::nbd(&site.uri("vm1"))).run()?;
    daemon.stop()?;
    verify_file(job, &site.path("disk.raw"))
}

/// Reads follow closely behind the writes, so that they meet what is still on its way to the SSD.
fn rereads() -> Result<()> {
    let (site, daemon) = one_volume()?;
    write_and_verify(Fio::nbd(&site.uri("vm1")))
        .arg("size", DISK)
        .arg("io_size", DISK * 2)
        .arg("verify_backlog", 64)
        .arg("verify_backlog_batch", 64)
        .run()?;
    let status = daemon.status()?;
    let hits = status.count("vm1", "read_hits")?;
    ensure!(hits > 0, "what was written just before was never read from the cache");
    ensure!(status.cache("evicted_blocks")? > 0, "the cache was never full");
    daemon.stop()
}

fn tcp_and_two_volumes() -> Result<()> {
    let site = Site::new()?;
    site.sparse("a.raw", DISK / 2)?;
    site.sparse("b.raw", DISK / 2)?;
    let port = free_port()?;
    let tcp = Volume::new("over-tcp", "file:a.raw").at(&format!("tcp:127.0.0.1:{port}"));
    let unix = Volume::new("over-unix", "file:b.raw");
    let daemon = site.serve(&Config::new(CACHE).volume(tcp).volume(unix))?;
    let uris = [format!("nbd://127.0.0.1:{port}/over-tcp"), site.uri("over-unix")];
    // Side by side, with different contents: what is mixed up fails the verification.
    thread::scope(|scope| -> Result<()> {
        let jobs = uris.map(|uri| {
            scope.spawn(move || write_and_verify(Fio::nbd(&uri)).arg("size", DISK / 2).run())
        });
        for job in jobs {
            job.join().expect("the job does not panic")?;
        }
        Ok(())
    })?;
    daemon.stop()
}

fn every_mode() -> Result<()> {
    for mode in ["write-around", "pass-through"] {
        let site = Site::new()?;
        site.sparse("disk.raw", DISK / 4)?;
        let volume = Volume::new("vm1", "file:disk.raw").key(&format!("mode = \"{mode}\""));
        let daemon = site.serve(&Config::new(CACHE).volume(volume))?;
        write_and_verify(Fio::nbd(&site.uri("vm1"))).arg("size", DISK / 4).run()?;
        let status = daemon.status()?;
        ensure!(status.volume("vm1")?["mode"] == mode, "mode: {}", status.0);
        let hits = status.count("vm1", "read_hits")?;
        ensure!(mode != "pass-through" || hits == 0, "{hits} hits while passing through");
        daemon.stop()?;
    }
    Ok(())
}

/// Modes and shares change under a running verification, which must not notice.
fn changes() -> Result<()> {
    let (site, daemon) = one_volume()?;
    let job = write_and_verify(Fio::nbd(&site.uri("vm1")))
        .arg("bsrange", "512-16k")
        .arg("size", DISK / 2)
        .arg("verify_backlog", 256)
        .arg("loops", 2);
    let fio = thread::spawn(move || job.run());
    let settings = [
        ["--mode", "pass-through"],
        ["--share-max", "10%"],
        ["--mode", "write-around"],
        ["--mode", "write-through"],
        ["--share-max", "100%"],
    ];
    let mut changes = 0;
    for setting in settings.iter().cycle() {
        if fio.is_finished() {
            break;
        }
        daemon.command(&["volume", "set", "vm1", setting[0], setting[1]])?;
        changes += 1;
        thread::sleep(Duration::from_millis(50));
    }
    fio.join().expect("the job does not panic")?;
    ensure!(changes >= settings.len(), "fio was too quick: {changes} changes");
    check_traffic(&daemon, DISK / 2 / 4096)?;
    daemon.stop()
}

/// The cache gets larger and smaller under a running verification, which must not notice; what it has
/// room for stays cached, a crash in the middle of a resize included.
fn resizes() -> Result<()> {
    const SIZES: [u64; 6] = [48, 24, 96, 20, 64, 32];
    let site = Site::new()?;
    site.sparse("disk.raw", DISK)?;
    let config = Config::new(24 * MIB)
        .cache_key("size_max = \"96MiB\"")
        .volume(Volume::new("vm1", "file:disk.raw"));
    let daemon = site.serve(&config)?;
    let job = |job: Fio| {
        write_and_verify(job).arg("bsrange", "512-16k").arg("size", DISK / 2).arg("randseed", 5)
    };
    let verified = job(Fio::nbd(&site.uri("vm1"))).arg("verify_backlog", 256).arg("loops", 2);
    let fio = thread::spawn(move || verified.run());
    for (resizes, size) in SIZES.iter().cycle().enumerate() {
        if fio.is_finished() && resizes >= SIZES.len() {
            break;
        }
        daemon.command(&["cache", "resize", &format!("{size}MiB")])?;
        let held = held_bytes(&site.path("cache.img"))?;
        ensure!(held <= (size + 2) * MIB, "{held} bytes are held of {size} MiB");
        let capacity = daemon.status()?.cache("capacity_blocks")? * 4096;
        ensure!(capacity <= size * MIB && capacity + 5 * MIB > size * MIB, "{capacity} of {size}");
    }
    fio.join().expect("the job does not panic")?;
    check_volume(&daemon, DISK / 2 / 4096)?;
    daemon.command(&["cache", "resize", "96MiB"])?;
    // Twice, so that what was missed has earned its place.
    for _ in 0..2 {
        job(Fio::nbd(&site.uri("vm1"))).flag("verify_only").run()?;
    }
    daemon.command(&["cache", "resize", "24MiB", "--no-wait"])?;
    daemon.crash()?;
    let daemon = site.serve(&config)?;
    job(Fio::nbd(&site.uri("vm1"))).flag("verify_only").run()?;
    let cached = daemon.status()?.cache("cached_blocks")?;
    ensure!(cached * 4096 > 12 * MIB, "{cached} blocks are cached after the crash");
    daemon.stop()?;
    verify_file(job, &site.path("disk.raw"))
}

fn held_bytes(file: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(file)?.blocks() * 512)
}
