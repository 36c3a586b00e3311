//! Load: an OSD that dies and comes back under it, every operation, a cluster that says nothing.

use super::{
    CACHE, DISK, check, client, cluster, config, contents, image, reason, started, volume,
};
use anyhow::{Context, Result, ensure};
use e2e::ceph::{Cluster, FAST, SSD_OSDS};
use e2e::daemon::noise;
use e2e::nbd::is_gone;
use e2e::{Config, Daemon, Fio, MIB, Site};
use std::thread;
use std::time::{Duration, Instant};

/// An OSD is killed in the middle and started again.
pub(super) fn osd_killed_under_fio() -> Result<()> {
    under_fio(
        "load",
        |cluster| cluster.kill_osd(SSD_OSDS[0]),
        |cluster| cluster.start_osd(SSD_OSDS[0]),
    )
}

/// The only monitor is.
pub(super) fn monitor_restarted_under_fio() -> Result<()> {
    under_fio("monitor", Cluster::kill_mon, Cluster::start_mon)
}

/// Random writes of many sizes, all read back, while something of the cluster is away for a time.
fn under_fio(
    name: &str,
    away: impl FnOnce(&mut Cluster) -> Result<()>,
    back: impl FnOnce(&mut Cluster) -> Result<()>,
) -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/{name}");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let daemon = site.serve(&config(cluster, &name))?;
    let job = Fio::nbd(&site.uri("vm1"))
        .arg("rw", "randwrite")
        .arg("bsrange", "512-96k")
        .arg("blockalign", 512)
        .arg("iodepth", 16)
        .arg("size", DISK)
        .arg("loops", 4)
        // Long enough for what happens meanwhile.
        .arg("rate", "16m")
        .arg("verify", "crc32c")
        .arg("verify_fatal", 1);
    let fio = thread::spawn(move || job.run());
    thread::sleep(Duration::from_secs(1));
    ensure!(!fio.is_finished(), "the load is over before anything happens");
    away(cluster)?;
    thread::sleep(Duration::from_secs(3));
    ensure!(!fio.is_finished(), "the load is over before it was away for long");
    back(cluster)?;
    fio.join().ok().context("fio's thread ended early")??;
    let status = daemon.status()?;
    ensure!(status.count("vm1", "read_hits")? > 0, "nothing is cached: {}", status.0);
    ensure!(status.count("vm1", "backend_errors")? == 0, "{}", status.volume("vm1")?);
    let seen = contents(cluster, &name)?;
    check(&site, "vm1", &seen).context("the cluster has something else")?;
    daemon.stop()?;
    cluster.wait_for(FAST)?;
    ensure!(contents(cluster, &name)? == seen, "it changed at the stop");
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// What a guest can ask for does what it says, seen by another client of the cluster.
pub(super) fn every_operation() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/operations");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let daemon = site.serve(&config(cluster, &name))?;
    let mut expected = noise(DISK, 1);
    let mut guest = client(&site, "vm1")?;
    ensure!(guest.size() == DISK, "{} bytes", guest.size());
    for (offset, piece) in (0..).step_by(4 << 20).zip(expected.chunks(4 << 20)) {
        guest.write(offset, piece)?;
    }
    guest.flush()?;
    // Across the bounds of objects (4 MiB), and in parts of blocks.
    for (offset, len, seed) in [(4 * MIB - 512, 1024, 2), (8 * MIB - 9 * 512, 96 << 10, 3)] {
        let data = noise(len, seed);
        guest.write_durably(offset, &data)?;
        expected[offset as usize..][..data.len()].copy_from_slice(&data);
    }
    for (offset, len) in [(12 * MIB - 4096, 8192), (16 * MIB, 9 * MIB), (1024, 512)] {
        guest.write_zeroes(offset, len)?;
        expected[offset as usize..(offset + len) as usize].fill(0);
    }
    guest.flush()?;
    ensure!(contents(cluster, &name)? == expected, "the cluster has something else");
    check(&site, "vm1", &expected)?;
    // What is trimmed reads as zeros or as it was; a whole object reads as zeros.
    guest.trim(20 * MIB, 4 * MIB)?;
    expected[20 << 20..24 << 20].fill(0);
    check(&site, "vm1", &expected)?;
    let beyond = guest.write(DISK, &noise(512, 4)).err().context("written beyond the end")?;
    ensure!(!is_gone(&beyond), "the connection ended: {beyond:#}");
    daemon.stop()?;
    ensure!(contents(cluster, &name)? == expected, "it changed at the stop");
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// All OSDs stand still: guests get their errors in time, another volume is served, and all is well
/// again afterwards.
pub(super) fn silent_cluster() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/silent");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let other = site.filled("vm2.raw", DISK, 5)?;
    let hung = volume("vm1", &cluster.backend(&name)).key("backend_timeout_s = 1");
    let config = Config::new(CACHE).volume(hung).volume(volume("vm2", "file:vm2.raw"));
    let daemon = site.serve(&config)?;
    let mut guest = client(&site, "vm1")?;
    guest.write(0, &noise(4096, 1))?;
    cluster.freeze(true)?;
    let begun = Instant::now();
    let write = guest.write(MIB, &noise(4096, 2)).err().context("a hung write was acknowledged")?;
    ensure!(!is_gone(&write), "the connection ended: {write:#}");
    // Without the key it would be 30 s. A busy disk takes seconds for the mark in the cache's log.
    ensure!(begun.elapsed() < Duration::from_secs(20), "an error after {:?}", begun.elapsed());
    check(&site, "vm2", &std::fs::read(other)?).context("beside a hung volume")?;
    let said = reason(&daemon, "take over 1 s").and_then(|_| logged(&daemon, "does not answer"));
    cluster.freeze(false)?;
    said?;
    cluster.wait_for(FAST)?;
    let begun = Instant::now();
    // What hung has landed, or is landing: later writes of the same block come after it.
    while guest.write(MIB, &noise(4096, 3)).is_err() {
        ensure!(begun.elapsed() < super::PATIENCE, "no write passes:\n{}", daemon.running.log());
        thread::sleep(Duration::from_millis(100));
    }
    logged(&daemon, "the cluster answers again")?;
    ensure!(guest.read(MIB, 4096)? == noise(4096, 3), "an old write came later");
    ensure!(guest.read(0, 4096)? == noise(4096, 1), "it lost what it had");
    daemon.stop()?;
    let seen = contents(cluster, &name)?;
    ensure!(seen[1 << 20..][..4096] == noise(4096, 3), "the cluster has an old write");
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// Waits until the daemon's log has this.
fn logged(daemon: &Daemon, part: &str) -> Result<()> {
    let begun = Instant::now();
    while !daemon.running.log().contains(part) {
        ensure!(begun.elapsed() < super::PATIENCE, "no {part:?} in {}", daemon.running.log());
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
