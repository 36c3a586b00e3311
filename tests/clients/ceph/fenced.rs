//! The cluster fences the daemon off, as fail-over to another host does: nothing cached is served.

use super::{DISK, client, cluster, config, image, reason, started};
use anyhow::{Context, Result, ensure};
use e2e::ceph::{Cluster, FAST};
use e2e::daemon::noise;
use e2e::nbd::is_gone;
use e2e::{Config, Daemon, MIB, Site};
use std::time::{Duration, Instant};

pub(super) fn fenced_off() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/fenced");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let settings = config(cluster, &name);
    let daemon = site.serve(&settings)?;
    let mut guest = client(&site, "vm1")?;
    guest.write(0, &noise(4096, 1))?;
    daemon.warm_up("vm1", 1, || guest.read(0, 4096).map(drop))?;

    break_lock(cluster, &name, &[])?;
    let args = ["bench", &name, "--io-type", "write", "--io-size", "4K", "--io-total", "32M"];
    cluster.rbd(&args).context("another client has it now")?;

    reason(&daemon, "has taken the image's lock")?;
    let mut guest = client(&site, "vm1")?;
    let read = guest.read(0, 4096).err().context("a cached block was served")?;
    ensure!(!is_gone(&read), "the connection ended: {read:#}");
    ensure!(guest.write(0, &noise(4096, 2)).is_err(), "written without the lock");
    daemon.crash()?;
    let daemon = site.serve(&settings)?;
    let read = client(&site, "vm1")?.read(0, 4096)?;
    ensure!(read != noise(4096, 1) && read != noise(4096, 2), "what was cached was believed");
    daemon.stop()?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// How long the daemon may serve what is cached, once it is fenced off.
const SHOWS_WITHIN: Duration = Duration::from_secs(15);

/// `rbd lock rm`, which also fences the holder off unless `options` say otherwise.
fn break_lock(cluster: &Cluster, name: &str, options: &[&str]) -> Result<()> {
    let lockers = cluster.rbd(&["lock", "ls", name, "--format", "json"])?;
    let lockers: serde_json::Value = serde_json::from_str(&lockers)?;
    let text = |key: &str| lockers[0][key].as_str().with_context(|| format!("no {key} of a lock"));
    let args = ["lock", "rm", name, text("id")?, text("locker")?];
    cluster.rbd(&[&args[..], options].concat()).map(drop)
}

/// A daemon that was stopped and started again, so that all that is read of the first block is a
/// hit, and nothing was submitted for the image in its life. The image's first object does not exist:
/// reads of it would be answered without the cluster.
fn warm_again(site: &Site, settings: &Config, at: u64) -> Result<Daemon> {
    let daemon = site.serve(settings)?;
    let mut guest = client(site, "vm1")?;
    guest.write(at, &noise(4096, 1))?;
    guest.flush()?;
    daemon.warm_up("vm1", 1, || guest.read(at, 4096).map(drop))?;
    daemon.stop()?;
    let daemon = site.serve(settings)?;
    let before = daemon.loaded()?.count("vm1", "read_hits")?;
    ensure!(client(site, "vm1")?.read(at, 4096)? == noise(4096, 1), "another block");
    let hits = daemon.status()?.count("vm1", "read_hits")? - before;
    ensure!(hits == 1, "{hits} hits: it started cold");
    Ok(daemon)
}

/// Reads the cached block again and again until it is refused.
fn refused_in_time(site: &Site, daemon: &Daemon, at: u64) -> Result<()> {
    let begun = Instant::now();
    let mut guest = client(site, "vm1")?;
    loop {
        match guest.read(at, 4096) {
            Err(error) => {
                ensure!(!is_gone(&error), "the connection ended: {error:#}");
                break;
            }
            Ok(_) if begun.elapsed() > SHOWS_WITHIN => {
                anyhow::bail!("served after {SHOWS_WITHIN:?}:\n{}", daemon.running.log())
            }
            Ok(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    ensure!(guest.read(at, 4096).is_err(), "served again");
    reason(daemon, "has taken the image's lock").map(drop)
}

/// A guest that reads cached blocks only hears of it, too.
pub(super) fn with_hits_only() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/hits");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let settings = config(cluster, &name);
    let daemon = warm_again(&site, &settings, 8 * MIB)?;
    break_lock(cluster, &name, &[])?;
    refused_in_time(&site, &daemon, 8 * MIB)?;
    // The image stays: what was fenced off or killed counts as a watcher of it for a while.
    daemon.crash()
}

/// The lock is broken, and nobody is fenced off: all that is asked of the cluster still succeeds.
pub(super) fn lock_broken() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/broken");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let daemon = warm_again(&site, &config(cluster, &name), 8 * MIB)?;
    break_lock(cluster, &name, &["--rbd_blocklist_on_break_lock=false"])?;
    refused_in_time(&site, &daemon, 8 * MIB)?;
    // The image stays: what was fenced off or killed counts as a watcher of it for a while.
    daemon.crash()
}
