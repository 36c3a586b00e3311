//! Crash-warm without the operator's word, and cold whenever another client had the image.

use super::{DISK, check, client, cluster, config, contents, image, started};
use anyhow::{Context, Result, ensure};
use e2e::ceph::{Cluster, FAST};
use e2e::daemon::noise;
use e2e::process::output;
use e2e::{Config, Daemon, MIB, Site};
use std::process::Command;
use std::time::{Duration, Instant};

/// Writes all of a volume, and reads it until all of it is cached.
fn fill(site: &Site, daemon: &Daemon, data: &[u8]) -> Result<()> {
    let mut guest = client(site, "vm1")?;
    for (offset, piece) in (0..).step_by(MIB as usize).zip(data.chunks(MIB as usize)) {
        guest.write(offset, piece)?;
    }
    guest.flush()?;
    daemon.warm_up("vm1", DISK / 4096, || check(site, "vm1", data))?;
    // For the newest chunks and the heartbeat's record.
    std::thread::sleep(Duration::from_secs(3));
    Ok(())
}

/// Reads all and says how many blocks of it were hits.
fn hits(site: &Site, daemon: &Daemon, data: &[u8]) -> Result<u64> {
    let before = daemon.loaded()?.count("vm1", "read_hits")?;
    check(site, "vm1", data)?;
    Ok(daemon.status()?.count("vm1", "read_hits")? - before)
}

/// After kill -9 the next daemon takes over the lock at once, and believes what is cached; so after
/// a clean stop.
pub(super) fn after_kill_and_stop() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/warm");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let config = config(cluster, &name);
    let data = noise(DISK, 7);
    let mut daemon = site.serve(&config)?;
    fill(&site, &daemon, &data)?;
    let all = DISK / 4096;
    for round in 0..3 {
        let fenced = fenced_for_days(cluster)?;
        daemon.crash()?;
        let begun = Instant::now();
        daemon = site.serve(&config)?;
        let took = begun.elapsed();
        ensure!(took < Duration::from_secs(10), "round {round}: it waited {took:?} for the lock");
        ensure!(fenced_for_days(cluster)? > fenced, "round {round}: its late writes land tomorrow");
        let found = hits(&site, &daemon, &data)?;
        ensure!(found >= all * 9 / 10, "round {round}: {found} of {all} are hits");
        // The proof is that of the newest opening from now on.
        client(&site, "vm1")?.write(0, &data[..4096])?;
    }
    for round in 0..2 {
        daemon.stop()?;
        daemon = site.serve(&config)?;
        let found = hits(&site, &daemon, &data)?;
        ensure!(found >= all * 9 / 10, "stop {round}: {found} of {all} are hits");
    }
    daemon.stop()?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// How many clients are fenced off for more than six days.
fn fenced_for_days(cluster: &Cluster) -> Result<usize> {
    let later = output(Command::new("date").args(["-d", "+6 days", "+%FT%T"]))?;
    let list = cluster.ceph(&["osd", "blocklist", "ls"])?;
    // ADDRESS UNTIL
    let until = list.lines().filter_map(|client| client.split(' ').nth(1));
    Ok(until.filter(|until| *until > later.trim()).count())
}

/// Another client writes the image between two lives of the daemon: nothing cached is believed.
pub(super) fn cold_after_another_writer() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/cold");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let config = config(cluster, &name);
    let mut data = noise(DISK, 8);
    for crashes in [false, true] {
        let daemon = site.serve(&config)?;
        fill(&site, &daemon, &data)?;
        if crashes {
            daemon.crash()?;
        } else {
            daemon.stop()?;
        }
        write_elsewhere(cluster, &name, crashes)?;
        let seen = contents(cluster, &name)?;
        ensure!(seen != data, "the other client wrote nothing");
        data = seen;
        serve_cold(&site, &config, &data).with_context(|| format!("crashes: {crashes}"))?;
    }
    // Who only looks costs nothing.
    let daemon = site.serve(&config)?;
    fill(&site, &daemon, &data)?;
    daemon.stop()?;
    contents(cluster, &name)?;
    cluster.rbd(&["info", &name])?;
    let daemon = site.serve(&config)?;
    let found = hits(&site, &daemon, &data)?;
    ensure!(found >= DISK / 4096 * 9 / 10, "{found} hits after another client looked");
    daemon.stop()?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

fn serve_cold(site: &Site, config: &Config, data: &[u8]) -> Result<()> {
    let daemon = site.serve(config)?;
    let status = daemon.loaded()?;
    let warmth = &status.volume("vm1")?["warmth"];
    ensure!(warmth["state"] == "dropped", "it believes: {warmth}");
    check(site, "vm1", data)?;
    daemon.stop()
}

/// 4 MiB by librbd's own benchmark. The lock of a daemon that was killed is broken first, as an
/// operator would who moves the guest: the cluster notices by itself only after a while.
fn write_elsewhere(cluster: &Cluster, name: &str, break_lock: bool) -> Result<()> {
    if break_lock {
        let lockers = cluster.rbd(&["lock", "ls", name, "--format", "json"])?;
        let lockers: serde_json::Value = serde_json::from_str(&lockers)?;
        let locker = &lockers[0];
        let (id, client) = (locker["id"].as_str(), locker["locker"].as_str());
        let (id, client) = (id.context("no lock")?, client.context("no lock")?);
        cluster.rbd(&["lock", "rm", name, id, client])?;
    }
    let args = ["bench", name, "--io-type", "write", "--io-size", "64K", "--io-total", "4M"];
    cluster.rbd(&[&args[..], &["--io-pattern", "rand", "--io-threads", "4"]].concat()).map(drop)
}
