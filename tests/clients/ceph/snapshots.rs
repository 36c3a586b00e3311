//! A snapshot as a golden image, and an image that grows under its guest.

use super::{CACHE, DISK, check, client, cluster, config, contents, image, started, volume};
use anyhow::{Context, Result, ensure};
use e2e::ceph::FAST;
use e2e::daemon::noise;
use e2e::{Config, MIB, Site};

pub(super) fn snapshots_and_growth() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/golden");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let settings = config(cluster, &name);
    let daemon = site.serve(&settings)?;
    let data = noise(DISK, 3);
    let mut guest = client(&site, "vm1")?;
    for (offset, piece) in (0..).step_by(MIB as usize).zip(data.chunks(MIB as usize)) {
        guest.write(offset, piece)?;
    }
    guest.flush()?;
    // Asked for elsewhere, and done by the daemon, which has the lock.
    let snap = format!("{name}@base");
    cluster.rbd(&["snap", "create", "--no-progress", &snap])?;
    guest.write(0, &noise(4096, 4))?;
    ensure!(contents(cluster, &snap)? == data, "the snapshot has what was written later");

    let golden = Site::new()?;
    let backend = cluster.backend(&snap);
    let read_only = volume("vm1", &backend).key("read_only = true");
    let config = Config::new(CACHE).volume(read_only);
    let reader = golden.serve(&config)?;
    check(&golden, "vm1", &data)?;
    reader.warm_up("vm1", DISK / 4096, || check(&golden, "vm1", &data))?;
    let refused = client(&golden, "vm1")?.write(0, &noise(4096, 5));
    ensure!(refused.is_err(), "a snapshot was written");
    reader.crash()?;
    let reader = golden.serve(&config)?;
    let before = reader.loaded()?.count("vm1", "read_hits")?;
    check(&golden, "vm1", &data)?;
    let hits = reader.status()?.count("vm1", "read_hits")? - before;
    ensure!(hits > DISK / 4096 / 2, "{hits} hits: a snapshot does not change");
    reader.stop()?;

    // Larger while it is served: what is beyond the old end can be used, nothing else changes.
    let larger = format!("{}B", 2 * DISK);
    cluster.rbd(&["resize", "--no-progress", &name, "--size", &larger])?;
    daemon.command(&["volume", "resize", "vm1"])?;
    let mut guest = client(&site, "vm1")?;
    ensure!(guest.size() == 2 * DISK, "{} bytes", guest.size());
    guest.write(2 * DISK - 4096, &noise(4096, 6))?;
    ensure!(guest.read(2 * DISK - 4096, 4096)? == noise(4096, 6), "beyond the old end");
    ensure!(guest.read(0, 4096)? == noise(4096, 4), "before it");
    daemon.crash()?;
    let daemon = site.serve(&settings).context("after a crash")?;
    let mut guest = client(&site, "vm1")?;
    ensure!(guest.read(2 * DISK - 4096, 4096)? == noise(4096, 6), "after a crash");
    daemon.stop()?;
    cluster.rbd(&["snap", "rm", "--no-progress", &snap])?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}
