//! What guests see when the SSD or a back end is away, hangs, is exchanged, or is written by others.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::nbd::{Client, is_gone};
use e2e::tools::FIO;
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, daemon::noise};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const CASES: [Case; 7] = [
    Case::new("degrade_ssd_missing_at_start", &[], missing_ssd).ci(),
    Case::new("degrade_ssd_replaced_under_fio", &[FIO], replaced_ssd).ci(),
    Case::new("degrade_ssd_given_up_under_fio", &[FIO], abandoned_ssd),
    Case::new("degrade_formatted_over_an_old_cache", &[], formatted_over),
    Case::new("degrade_invalidate_after_foreign_write", &[], invalidate),
    Case::new("degrade_backend_hangs", &[], hung_backend).ci(),
    Case::new("degrade_backend_fails", &[], failing_backend),
];

const DISK: u64 = 16 * MIB;
const BLOCKS: u64 = DISK / 4096;
const CACHE: u64 = 64 * MIB;
/// Far more than the bound on a hung back end that the test sets.
const HANG_LIMIT: Duration = Duration::from_secs(8);
/// What was written to flash this long ago must be there after a crash.
const IN_FLIGHT: Duration = Duration::from_secs(3);

/// Reading a disk from end to end must not count as a scan that bypasses the cache.
fn volume(name: &str, backend: &str) -> Volume {
    Volume::new(name, backend).key("bypass_sequential = \"0\"").key("bypass_large = \"0\"")
}

fn client(site: &Site, name: &str) -> Result<Client> {
    Client::connect(&site.path(&format!("{name}.sock")), name)
}

/// Reads a whole volume and compares it with its file.
fn read_all(site: &Site, name: &str) -> Result<()> {
    let expected = std::fs::read(site.path(&format!("{name}.raw")))?;
    let mut client = client(site, name)?;
    for (offset, expected) in (0..).step_by(MIB as usize).zip(expected.chunks(MIB as usize)) {
        let found = client.read(offset, expected.len())?;
        ensure!(found == expected, "{name} differs near byte {offset}");
    }
    Ok(())
}

/// Blocks of a volume that were hits while all of it was read and compared.
fn hits_of_all(site: &Site, daemon: &Daemon, name: &str) -> Result<u64> {
    let hits = || daemon.status()?.count(name, "read_hits");
    daemon.loaded()?;
    let before = hits()?;
    read_all(site, name)?;
    Ok(hits()? - before)
}

/// Reads a volume until all of it is cached: when reads are quick, some are not kept at first.
fn warm_up(site: &Site, daemon: &Daemon, name: &str) -> Result<()> {
    daemon.warm_up(name, BLOCKS, || read_all(site, name))
}

/// What the status says about the blocks of the earlier run.
fn warmth(daemon: &Daemon, name: &str) -> Result<String> {
    Ok(daemon.status()?.volume(name)?["warmth"].to_string())
}

/// Writes over a few blocks, most of them cached.
fn write_some(site: &Site, name: &str, seed: u64) -> Result<()> {
    let mut client = client(site, name)?;
    for step in 0..50 {
        let data = noise(8192, seed + step);
        client.write(step * 256 * 1024 + 2048, &data)?;
        ensure!(client.read(step * 256 * 1024 + 2048, data.len())? == data, "step {step}");
    }
    client.flush()
}

/// The folder with the cache device goes away and comes back, as a drive would.
fn missing_ssd() -> Result<()> {
    let site = Site::new()?;
    std::fs::create_dir(site.path("ssd"))?;
    let config = Config::new(CACHE)
        .device("ssd/cache.img")
        .volume(volume("written", "file:written.raw"))
        .volume(volume("quiet", "file:quiet.raw"));
    for (seed, name) in [(1, "written"), (2, "quiet")] {
        site.filled(&format!("{name}.raw"), DISK, seed)?;
    }
    let daemon = site.serve(&config)?;
    for name in ["written", "quiet"] {
        warm_up(&site, &daemon, name)?;
    }
    daemon.stop()?;

    std::fs::rename(site.path("ssd"), site.path("away"))?;
    let daemon = site.serve(&config).context("without its SSD")?;
    let status = daemon.status()?;
    let health = &status.0["cache"]["health"];
    ensure!(health["state"] == "pass_through", "{health}");
    ensure!(status.0["cache"]["state"] == "degraded", "{}", status.0["cache"]);
    let reason = status.0["cache"]["reason"].as_str().unwrap_or_default();
    ensure!(!reason.is_empty(), "no reason: {}", status.0["cache"]);
    for name in ["written", "quiet"] {
        let hits = hits_of_all(&site, &daemon, name)?;
        ensure!(hits == 0, "{name}: {hits} hits without an SSD");
    }
    write_some(&site, "written", 100)?;
    let status = daemon.status()?;
    let bypassed = &status.volume("written")?["bypassed"]["no_device"];
    ensure!(bypassed.as_u64() > Some(0), "not counted: {bypassed}");
    daemon.stop()?;

    std::fs::rename(site.path("away"), site.path("ssd"))?;
    let daemon = site.serve(&config).context("with its SSD back")?;
    let told = warmth(&daemon, "written")?;
    ensure!(told.contains("dropped"), "written in a run without the SSD, and: {told}");
    let hits = hits_of_all(&site, &daemon, "written")?;
    ensure!(hits == 0, "{hits} hits of before");
    let told = warmth(&daemon, "quiet")?;
    ensure!(!told.contains("dropped"), "it was not written, and: {told}");
    let hits = hits_of_all(&site, &daemon, "quiet")?;
    ensure!(hits * 100 >= BLOCKS * 95, "only {hits} hits on what was not written");
    daemon.stop()
}

/// A fio job that reads back what it wrote, again and again, for some seconds.
fn verify_for(site: &Site, seconds: u64) -> Fio {
    Fio::nbd(&site.uri("vm1"))
        .arg("rw", "randwrite")
        .arg("bsrange", "512-16k")
        .arg("size", DISK)
        .arg("iodepth", 8)
        .arg("verify", "crc32c")
        .arg("verify_fatal", 1)
        .arg("verify_backlog", 256)
        .arg("runtime", seconds)
        .flag("time_based")
}

fn one_volume() -> Result<(Site, Config)> {
    let site = Site::new()?;
    site.filled("vm1.raw", DISK, 3)?;
    Ok((site, Config::new(CACHE).volume(volume("vm1", "file:vm1.raw"))))
}

fn replaced_ssd() -> Result<()> {
    let (site, config) = one_volume()?;
    let daemon = site.serve(&config)?;
    warm_up(&site, &daemon, "vm1")?;
    let job = verify_for(&site, 8);
    let fio = thread::spawn(move || job.run());
    let replace = |name: &str, args: &[&str]| {
        let device = site.path(name).display().to_string();
        daemon.command(&[&["cache", "replace", &device], args].concat())
    };
    let mut devices = 0;
    for name in ["second.img", "third.img", "fourth.img"] {
        thread::sleep(Duration::from_millis(1500));
        ensure!(!fio.is_finished(), "fio was too quick");
        replace(name, &["--size", "64MiB"]).with_context(|| format!("bringing in {name}"))?;
        let status = daemon.status()?;
        let device = status.0["cache"]["device"].as_str().unwrap_or_default();
        ensure!(device.ends_with(name), "the device is {device}");
        devices += 1;
    }
    fio.join().expect("the job does not panic").context("fio, while devices changed")?;
    ensure!(devices == 3, "{devices} devices");
    // What is no cache device is refused, and costs nothing.
    let before = daemon.status()?.cache("cached_blocks")?;
    ensure!(before > 0, "nothing is cached on the new device");
    ensure!(replace("vm1.raw", &[]).is_err(), "a volume's disk was taken for a cache device");
    ensure!(daemon.status()?.0["cache"]["health"]["state"] == "serving", "it cost the device");
    read_all(&site, "vm1")?;
    daemon.stop()?;

    // The first device is stale, and known to be; the last one is warm.
    let daemon = site.serve(&config)?;
    let told = warmth(&daemon, "vm1")?;
    ensure!(told.contains("dropped"), "the old device is believed: {told}");
    let hits = hits_of_all(&site, &daemon, "vm1")?;
    ensure!(hits == 0, "{hits} hits on the old device");
    daemon.stop()
}

fn abandoned_ssd() -> Result<()> {
    let (site, config) = one_volume()?;
    let daemon = site.serve(&config)?;
    warm_up(&site, &daemon, "vm1")?;
    let job = verify_for(&site, 4);
    let fio = thread::spawn(move || job.run());
    thread::sleep(Duration::from_millis(1500));
    daemon.command(&["cache", "abandon"])?;
    ensure!(!fio.is_finished(), "fio was too quick");
    fio.join().expect("the job does not panic").context("fio, while the SSD was given up")?;
    let status = daemon.status()?;
    ensure!(status.0["cache"]["health"]["state"] == "pass_through", "{}", status.0["cache"]);
    ensure!(status.count("vm1", "cached_blocks")? == 0, "blocks of a device that was given up");
    let hits = hits_of_all(&site, &daemon, "vm1")?;
    ensure!(hits == 0, "{hits} hits without an SSD");
    daemon.stop()?;
    // It was written since.
    let daemon = site.serve(&config)?;
    let told = warmth(&daemon, "vm1")?;
    ensure!(told.contains("dropped"), "a device that was given up is believed: {told}");
    read_all(&site, "vm1")?;
    daemon.stop()
}

/// Blocks that a crash may not cost: on the SSD, and for longer than what is in flight. Blocks on
/// probation have no copy there.
fn settled(daemon: &Daemon) -> Result<u64> {
    let status = daemon.status()?;
    thread::sleep(IN_FLIGHT);
    Ok(status.cache("cached_blocks")? - status.cache("ram_blocks")?)
}

/// A device that was a cache before is formatted and brought in, and the daemon killed before the
/// first checkpoint of its new session: nothing of the old session is believed, or called damaged.
fn formatted_over() -> Result<()> {
    let (site, config) = one_volume()?;
    let daemon = site.serve(&config)?;
    let checkpoints = || daemon.status()?.cache("checkpoints");
    // Both places of checkpoints hold one, with numbers above any of the next session.
    while checkpoints()? < 4 {
        daemon.command(&["volume", "invalidate", "vm1"])?;
        warm_up(&site, &daemon, "vm1")?;
    }
    daemon.command(&["cache", "abandon"])?;
    write_some(&site, "vm1", 300)?;
    let device = site.path("cache.img").display().to_string();
    let hint = daemon.command(&["cache", "replace", &device]).err();
    ensure!(hint.is_some(), "a device that holds an old cache was taken without --format");
    let earlier = checkpoints()?;
    daemon.command(&["cache", "replace", &device, "--format"])?;
    client(&site, "vm1")?.read(0, 2 << 20)?;
    let settled = settled(&daemon)?;
    ensure!(settled > 0, "no block reached the device");
    ensure!(
        checkpoints()? == earlier,
        "a checkpoint of the new session covers those of the old one"
    );
    daemon.crash()?;

    let daemon = site.serve(&config).context("after the kill")?;
    let status = daemon.status()?;
    let loaded = &status.0["cache"]["loaded"];
    ensure!(loaded["start"] == "crashed" && loaded["damaged_pages"] == 0, "{loaded}");
    let told = warmth(&daemon, "vm1")?;
    ensure!(!told.contains("dropped"), "the formatted device is not believed: {told}; {loaded}");
    let hits = hits_of_all(&site, &daemon, "vm1")?;
    ensure!(hits * 1000 >= settled * 995, "only {hits} of {settled} blocks are there; {loaded}");
    daemon.stop()?;
    // It fails where anything is damaged.
    let mut check = Command::new(e2e::binary::cinnabar()?);
    e2e::output(check.args(["cache", "check", &device])).map(drop)
}

fn invalidate() -> Result<()> {
    let (site, config) = one_volume()?;
    let daemon = site.serve(&config)?;
    warm_up(&site, &daemon, "vm1")?;
    let disk = File::options().write(true).open(site.path("vm1.raw"))?;
    let foreign = |offset: u64, seed: u64| -> Result<()> {
        disk.write_all_at(&noise(64 * 1024, seed), offset)?;
        disk.sync_all()?;
        Ok(())
    };
    foreign(MIB, 50)?;
    ensure!(read_all(&site, "vm1").is_err(), "nothing was cached, so this test shows nothing");
    // Not on the blocks' bounds: those at both ends count, too.
    let range = format!("{}+{}", MIB + 100, 64 * 1024 - 200);
    daemon.command(&["volume", "invalidate", "vm1", "--range", &range])?;
    let hits = hits_of_all(&site, &daemon, "vm1").context("after invalidating a range")?;
    ensure!(hits == BLOCKS - 16, "{hits} hits: more than the range was dropped, or less");
    foreign(3 * MIB, 51)?;
    foreign(9 * MIB, 52)?;
    daemon.command(&["volume", "invalidate", "vm1"])?;
    ensure!(hits_of_all(&site, &daemon, "vm1").context("after invalidating all")? == 0, "hits");
    ensure!(daemon.command(&["volume", "invalidate", "nobody"]).is_err(), "no such volume");
    // And durably: a crash brings nothing back.
    foreign(5 * MIB, 53)?;
    daemon.command(&["volume", "invalidate", "vm1"])?;
    daemon.crash()?;
    let daemon = site.serve(&config)?;
    read_all(&site, "vm1").context("after a crash")?;
    daemon.stop()
}

/// One back end says nothing; its guest gets an error in time, and other guests notice nothing.
fn hung_backend() -> Result<()> {
    let site = Site::new()?;
    site.filled("hung.raw", DISK, 6)?;
    site.filled("vm1.raw", DISK, 7)?;
    let hung =
        volume("hung", "sim:ssd,read=100s,write=100s:file:hung.raw").key("backend_timeout_s = 1");
    let config = Config::new(CACHE).volume(hung).volume(volume("vm1", "file:vm1.raw"));
    let daemon = site.serve(&config)?;
    let mut patient = client(&site, "hung")?;
    let begun = Instant::now();
    let read = patient.read(0, 4096).err().context("a hung back end was answered for")?;
    ensure!(!is_gone(&read), "the connection ended: {read:#}");
    let write =
        patient.write(MIB, &noise(4096, 1)).err().context("a hung write was acknowledged")?;
    ensure!(!is_gone(&write), "the connection ended: {write:#}");
    ensure!(begun.elapsed() < HANG_LIMIT, "errors after {:?}", begun.elapsed());
    read_all(&site, "vm1").context("beside a hung volume")?;
    let status = daemon.status()?;
    ensure!(status.count("hung", "backend_overdue")? == 2, "{}", status.volume("hung")?);
    ensure!(status.count("hung", "backend_overdue_now")? == 2, "{}", status.volume("hung")?);
    ensure!(status.count("vm1", "backend_overdue")? == 0, "{}", status.volume("vm1")?);
    daemon.crash()
}

/// A back end that fails now and then: the guest gets the errors, and never a wrong byte.
fn failing_backend() -> Result<()> {
    let site = Site::new()?;
    let disk = std::fs::read(site.filled("vm1.raw", DISK, 8)?)?;
    let volume = volume("vm1", "sim:ssd,seed=5,errors=0.2:file:vm1.raw");
    let daemon = site.serve(&Config::new(CACHE).volume(volume))?;
    let mut client = client(&site, "vm1")?;
    let (mut failed_reads, mut failed_writes) = (0, 0);
    for step in 0..600_u64 {
        let offset = step * 7919 % BLOCKS * 4096;
        let old = disk[offset as usize..][..4096].to_vec();
        match client.read(offset, 4096) {
            Ok(found) => ensure!(found == old, "step {step}"),
            Err(error) => {
                ensure!(!is_gone(&error), "{error:#}");
                failed_reads += 1;
            }
        }
        let new = noise(4096, step);
        let Err(error) = client.write(offset, &new) else { continue };
        ensure!(!is_gone(&error), "{error:#}");
        failed_writes += 1;
        // It may have happened or not; what is read next is what the disk has.
        let Ok(found) = client.read(offset, 4096) else { continue };
        ensure!(found == old || found == new, "step {step}: neither the old nor the new block");
        let mut on_disk = [0; 4096];
        File::open(site.path("vm1.raw"))?.read_exact_at(&mut on_disk, offset)?;
        ensure!(found == on_disk, "step {step}: a failed write is in the cache");
    }
    ensure!(failed_reads > 20 && failed_writes > 20, "{failed_reads}, {failed_writes} failures");
    let errors = daemon.status()?.count("vm1", "backend_errors")?;
    ensure!(errors >= failed_reads + failed_writes, "only {errors} are counted");
    daemon.crash()
}
