//! An image that others write while the daemon is away: with a snapshot that it has left, only what they have
//! changed is dropped; in all doubt, everything is.

use super::{CACHE, DISK, check, client, cluster, contents, image, started, volume};
use anyhow::{Context, Result, ensure};
use e2e::ceph::{Cluster, FAST};
use e2e::daemon::noise;
use e2e::{Config, Daemon, MIB, Site};
use std::process::Stdio;
use std::time::{Duration, Instant};

const BLOCKS: u64 = DISK / 4096;
/// How the names of what the daemon leaves begin.
const LEFT: &str = "cinnabar-return-";

fn config(cluster: &Cluster, image: &str) -> Config {
    let volume = volume("vm1", &cluster.backend(image)).key("return_snapshot = true");
    Config::new(CACHE).volume(volume)
}

/// Writes all of it and has all of it cached.
fn fill(site: &Site, daemon: &Daemon, data: &[u8]) -> Result<()> {
    let mut guest = client(site, "vm1")?;
    for (offset, piece) in (0..).step_by(MIB as usize).zip(data.chunks(MIB as usize)) {
        guest.write(offset, piece)?;
    }
    guest.flush()?;
    daemon.warm_up("vm1", BLOCKS, || check(site, "vm1", data))
}

/// The snapshots that daemons have left.
fn left(cluster: &Cluster, name: &str) -> Result<Vec<String>> {
    let snaps: serde_json::Value =
        serde_json::from_str(&cluster.rbd(&["snap", "ls", name, "--format", "json"])?)?;
    let names = snaps.as_array().context("a list")?.iter();
    let names = names.filter_map(|snap| snap["name"].as_str().map(str::to_owned));
    Ok(names.filter(|name| name.starts_with(LEFT)).collect())
}

fn swept(cluster: &Cluster, name: &str) -> Result<()> {
    let begun = Instant::now();
    while !left(cluster, name)?.is_empty() {
        ensure!(begun.elapsed() < Duration::from_secs(30), "what was left stays");
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Serves the image again. All of it must be as another client sees it, at least so many blocks of it by
/// hits, and at most so many.
fn again(site: &Site, cluster: &Cluster, name: &str, hits: [u64; 2]) -> Result<(Daemon, Vec<u8>)> {
    let data = contents(cluster, name)?;
    let daemon = site.serve(&config(cluster, name))?;
    let before = daemon.loaded()?.count("vm1", "read_hits")?;
    check(site, "vm1", &data)?;
    let found = daemon.status()?.count("vm1", "read_hits")? - before;
    let [least, most] = hits;
    ensure!(
        (least..=most).contains(&found),
        "{found} hits, not {least} to {most}\n{}",
        daemon.running.log()
    );
    swept(cluster, name)?;
    Ok((daemon, data))
}

/// Stops cleanly, which leaves a snapshot.
fn stop(daemon: Daemon, cluster: &Cluster, name: &str) -> Result<String> {
    daemon.stop()?;
    let mut all = left(cluster, name)?;
    ensure!(all.len() == 1, "it has left {all:?}");
    Ok(all.remove(0))
}

/// Another client of librbd's writes the first bytes of this image.
fn write_elsewhere(cluster: &Cluster, name: &str, total: &str) -> Result<()> {
    let args = ["bench", name, "--io-type", "write", "--io-size", "64K", "--io-total", total];
    cluster.rbd(&[&args[..], &["--io-pattern", "seq", "--io-threads", "1"]].concat()).map(drop)
}

/// What others have written, removed, or rolled back is new; the rest is still cached.
pub(super) fn only_changes_are_dropped() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/return");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let daemon = site.serve(&config(cluster, &name))?;
    fill(&site, &daemon, &noise(DISK, 21))?;
    // Some objects are written behind this one, and removed by others later: the daemon's own shows them.
    let before = format!("{name}@before");
    cluster.rbd(&["snap", "create", "--no-progress", &before])?;
    let mut data = noise(DISK, 21);
    data[9 * MIB as usize..10 * MIB as usize].copy_from_slice(&noise(MIB, 22));
    client(&site, "vm1")?.write(9 * MIB, &data[9 * MIB as usize..10 * MIB as usize])?;
    daemon.warm_up("vm1", BLOCKS, || check(&site, "vm1", &data))?;
    stop(daemon, cluster, &name)?;
    // Nobody wrote: all is believed.
    let (daemon, same) = again(&site, cluster, &name, [BLOCKS * 95 / 100, BLOCKS])?;
    ensure!(same == data, "nobody wrote");
    stop(daemon, cluster, &name)?;

    write_elsewhere(cluster, &name, "1M")?;
    let rest = BLOCKS - 256;
    let (daemon, data) = again(&site, cluster, &name, [rest * 9 / 10, rest]).context("written")?;
    daemon.warm_up("vm1", BLOCKS, || check(&site, "vm1", &data))?;
    stop(daemon, cluster, &name)?;

    // Objects are removed: cut off, and zeroes when it has grown back.
    let mib = |mib: u64| (mib * MIB).to_string() + "B";
    for size in [mib(26), mib(32)] {
        let args = ["resize", &name, "--size", &size, "--allow-shrink", "--no-progress"];
        cluster.rbd(&args)?;
    }
    let rest = BLOCKS - 6 * 256;
    let (daemon, data) = again(&site, cluster, &name, [rest * 9 / 10, rest]).context("cut off")?;
    ensure!(data[26 * MIB as usize..].iter().all(|byte| *byte == 0), "it was cut off");
    daemon.warm_up("vm1", BLOCKS, || check(&site, "vm1", &data))?;
    stop(daemon, cluster, &name)?;

    // Back to how it was before three changes: the object of 9 MiB, the first one, and the last two.
    cluster.rbd(&["snap", "rollback", "--no-progress", &before])?;
    let rest = BLOCKS - (1 + 1 + 6) * 256;
    let (daemon, data) = again(&site, cluster, &name, [BLOCKS / 4, rest]).context("rolled back")?;
    ensure!(data == noise(DISK, 21), "it was rolled back");
    daemon.warm_up("vm1", BLOCKS, || check(&site, "vm1", &data))?;
    stop(daemon, cluster, &name)?;
    // Removed for good: the snapshot stays until it is added again.
    cluster.rbd(&["snap", "purge", "--no-progress", &name])?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// Without the very snapshot nothing is believed; with an unneeded one all is.
pub(super) fn in_doubt_all_is_dropped() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/doubt");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let mut data = noise(DISK, 23);
    let mut daemon = site.serve(&config(cluster, &name))?;
    fill(&site, &daemon, &data)?;

    // The operator has removed it, and made another one by its name behind another client's writes.
    for made_again in [false, true] {
        let snap = format!("{name}@{}", stop(daemon, cluster, &name)?);
        write_elsewhere(cluster, &name, "2M")?;
        cluster.rbd(&["snap", "rm", "--no-progress", &snap])?;
        if made_again {
            cluster.rbd(&["snap", "create", "--no-progress", &snap])?;
        }
        let what = format!("removed, made again: {made_again}");
        (daemon, data) = again(&site, cluster, &name, [0, 0]).context(what)?;
        daemon.warm_up("vm1", BLOCKS, || check(&site, "vm1", &data))?;
    }

    // Crashed after it was served again: what the run before left counts no more.
    stop(daemon, cluster, &name)?;
    let daemon = site.serve(&config(cluster, &name))?;
    daemon.loaded()?;
    daemon.crash()?;
    // The next client that takes the lock is no daemon, which would know that the process is gone.
    break_lock(cluster, &name)?;
    write_elsewhere(cluster, &name, "3M")?;
    let (daemon, data) = again(&site, cluster, &name, [0, 0]).context("crashed")?;
    daemon.warm_up("vm1", BLOCKS, || check(&site, "vm1", &data))?;

    // Crashed after a return, when that was recorded: what is cached is known to be good.
    stop(daemon, cluster, &name)?;
    write_elsewhere(cluster, &name, "1M")?;
    let rest = BLOCKS - 256;
    let (daemon, data) = again(&site, cluster, &name, [rest * 9 / 10, rest])?;
    daemon.warm_up("vm1", BLOCKS, || check(&site, "vm1", &data))?;
    std::thread::sleep(Duration::from_secs(3));
    daemon.crash()?;
    let (daemon, _) = again(&site, cluster, &name, [BLOCKS * 9 / 10, BLOCKS])?;

    // Others' snapshots stay, whatever they are called like.
    let other = format!("{LEFT}{:032x}-{:016x}", 7, 7);
    cluster.rbd(&["snap", "create", "--no-progress", &format!("{name}@{other}")])?;
    daemon.stop()?;
    write_elsewhere(cluster, &name, "1M")?;
    let daemon = site.serve(&config(cluster, &name))?;
    let begun = Instant::now();
    while left(cluster, &name)? != [other.clone()] {
        ensure!(begun.elapsed() < Duration::from_secs(30), "{:?}", left(cluster, &name)?);
        std::thread::sleep(Duration::from_millis(200));
    }
    daemon.stop()?;
    cluster.rbd(&["snap", "purge", "--no-progress", &name])?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// A client that has the image open from before may write it without the snapshot: none is left.
pub(super) fn none_is_left_beside_another_client() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/beside");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let daemon = site.serve(&config(cluster, &name))?;
    client(&site, "vm1")?.write(0, &noise(4096, 24))?;
    let mut other = cluster.command("rbd", &["watch", &name]);
    // It ends with its input.
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let begun = Instant::now();
    while watchers(cluster, &name)? < 2 {
        ensure!(begun.elapsed() < Duration::from_secs(30), "the other client does not open it");
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.stop()?;
    let found = left(cluster, &name)?;
    drop(other.stdin.take());
    ensure!(other.wait()?.success(), "the other client failed");
    ensure!(found.is_empty(), "beside another client it has left {found:?}");
    // Without that one, one is left.
    stop(site.serve(&config(cluster, &name))?, cluster, &name)?;
    cluster.rbd(&["snap", "purge", "--no-progress", &name])?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// How many clients have the image open for writing.
fn watchers(cluster: &Cluster, name: &str) -> Result<usize> {
    let status = cluster.rbd(&["status", name, "--format", "json"])?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    let mut clients: Vec<u64> = status["watchers"]
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(|watcher| watcher["client"].as_u64())
        .collect();
    clients.sort_unstable();
    clients.dedup();
    Ok(clients.len())
}

fn break_lock(cluster: &Cluster, name: &str) -> Result<()> {
    let lockers = cluster.rbd(&["lock", "ls", name, "--format", "json"])?;
    let lockers: serde_json::Value = serde_json::from_str(&lockers)?;
    let locker = &lockers[0];
    let (id, client) = (locker["id"].as_str(), locker["locker"].as_str());
    let (id, client) = (id.context("no lock")?, client.context("no lock")?);
    cluster.rbd(&["lock", "rm", name, id, client]).map(drop)
}
