//! What becomes of a volume's cached blocks when its image is cloned, rolled back, deleted, and made again.

use super::{DISK, check, client, cluster, config, contents, image, started};
use anyhow::{Context, Result, ensure};
use e2e::ceph::{Cluster, FAST};
use e2e::daemon::noise;
use e2e::{Config, Daemon, MIB, Site};

fn write(site: &Site, data: &[u8]) -> Result<()> {
    let mut guest = client(site, "vm1")?;
    for (offset, piece) in (0..).step_by(MIB as usize).zip(data.chunks(MIB as usize)) {
        guest.write(offset, piece)?;
    }
    guest.flush()
}

/// Writes all of it and has all of it cached.
fn fill(site: &Site, daemon: &Daemon, data: &[u8]) -> Result<()> {
    write(site, data)?;
    daemon.warm_up("vm1", DISK / 4096, || check(site, "vm1", data))
}

/// Serves the image again; it must hold this, and what becomes of the blocks of before is `warmth`.
fn again(site: &Site, config: &Config, warmth: &str, data: &[u8]) -> Result<Daemon> {
    let daemon = site.serve(config)?;
    let status = daemon.loaded()?;
    let found = &status.volume("vm1")?["warmth"]["state"];
    ensure!(found == warmth, "{found}, not {warmth}");
    check(site, "vm1", data)?;
    Ok(daemon)
}

pub(super) fn cloned_rolled_back_deleted() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/lives");
    image(cluster, &name, DISK)?;
    let site = Site::new()?;
    let settings = config(cluster, &name);
    let (old, new) = (noise(DISK, 11), noise(DISK, 12));
    let daemon = site.serve(&settings)?;
    fill(&site, &daemon, &old)?;
    let snap = format!("{name}@before");
    cluster.rbd(&["snap", "create", "--no-progress", &snap])?;
    fill(&site, &daemon, &new)?;

    // A clone is a volume of its own, and has what the snapshot has.
    let clone = format!("{FAST}/clone");
    cluster.rbd(&["clone", "--rbd-default-clone-format", "2", &snap, &clone])?;
    let elsewhere = Site::new()?;
    let other = elsewhere.serve(&config(cluster, &clone))?;
    check(&elsewhere, "vm1", &old).context("the clone")?;
    write(&elsewhere, &noise(DISK, 13)).context("the clone")?;
    other.stop()?;
    check(&site, "vm1", &new).context("the clone was written, its parent not")?;

    // While it is served nobody can delete it or roll it back.
    for refused in [&["rm", "--no-progress", &name][..], &["snap", "rollback", &snap]] {
        let refused = cluster.rbd(refused);
        ensure!(refused.is_err(), "{refused:?} while it is served");
    }
    check(&site, "vm1", &new).context("what was refused changes nothing")?;
    daemon.stop()?;
    let daemon = again(&site, &settings, "kept", &new).context("nothing has happened")?;
    daemon.stop()?;
    cluster.rbd(&["snap", "rollback", "--no-progress", &snap])?;
    ensure!(contents(cluster, &name)? == old, "it was rolled back");
    let daemon = again(&site, &settings, "dropped", &old).context("rolled back")?;
    fill(&site, &daemon, &new)?;
    daemon.stop()?;

    delete(cluster, &name, &clone)?;
    image(cluster, &name, DISK)?;
    let nothing = vec![0; DISK as usize];
    let daemon = again(&site, &settings, "dropped", &nothing).context("made again")?;
    daemon.stop()?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

fn delete(cluster: &Cluster, name: &str, clone: &str) -> Result<()> {
    cluster.rbd(&["rm", "--no-progress", clone])?;
    cluster.rbd(&["snap", "purge", "--no-progress", name])?;
    cluster.rbd(&["rm", "--no-progress", name]).map(drop)
}
