//! The cluster fences the daemon off, as fail-over to another host does: nothing cached is served.

use super::{DISK, client, cluster, config, image, reason, started};
use anyhow::{Context, Result, ensure};
use e2e::Site;
use e2e::ceph::FAST;
use e2e::daemon::noise;
use e2e::nbd::is_gone;

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

    let lockers = cluster.rbd(&["lock", "ls", &name, "--format", "json"])?;
    let lockers: serde_json::Value = serde_json::from_str(&lockers)?;
    let text = |key: &str| lockers[0][key].as_str().with_context(|| format!("no {key} of a lock"));
    // Fences its holder off, too.
    cluster.rbd(&["lock", "rm", &name, text("id")?, text("locker")?])?;
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
