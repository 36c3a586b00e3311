//! Mistakes and images in use: one line each, and other volumes are served.

use super::{CACHE, DISK, client, cluster, config, image, reason, started, volume};
use anyhow::{Context, Result, ensure};
use e2e::ceph::{Cluster, FAST};
use e2e::daemon::noise;
use e2e::{Config, Site};

pub(super) fn mistakes() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/plain");
    let features = ["--image-feature", "layering"];
    cluster.rbd(&[&["create", &name, "--size", "32M"][..], &features].concat())?;
    cluster.rbd(&["snap", "create", "--no-progress", &format!("{name}@one")])?;
    cluster.rbd(&["create", "--size", "32M", &format!("{FAST}/good")])?;
    // It may read, but not write; and one that may do nothing with RBD.
    cluster.user("reader", &["mon", "profile rbd", "osd", "profile rbd-read-only pool=ssd"])?;
    cluster.user("stranger", &["mon", "allow r"])?;
    let conf = cluster.conf();
    let conf = conf.display();
    let with = |options: &str, image: &str| format!("rbd,conf={conf}{options}:{image}");
    for (backend, part) in [
        (with("", "nowhere/vm1"), "there is no pool \"nowhere\""),
        (with("", "ssd/nothing"), "there is no image ssd/nothing"),
        (with("", "ssd/plain"), "exclusive-lock is off"),
        (with("", "ssd/plain@one"), "it is a snapshot"),
        (with(",id=reader", "ssd/good"), "client.reader may not"),
        (with(",id=stranger", "ssd/good"), "client.stranger may not"),
        (with(",id=nobody", "ssd/good"), "refuses user client.nobody"),
        ("rbd,conf=/nowhere/ceph.conf:ssd/good".to_owned(), "/nowhere/ceph.conf"),
    ] {
        refused(&backend, part).with_context(|| backend.clone())?;
    }
    cluster.rbd(&["snap", "rm", "--no-progress", &format!("{name}@one")])?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// The daemon starts, says what is wrong with the one volume, and serves the other.
pub(super) fn refused(backend: &str, part: &str) -> Result<()> {
    let site = Site::new()?;
    site.filled("vm2.raw", DISK, 5)?;
    let bad = volume("vm1", backend);
    let daemon =
        site.serve(&Config::new(CACHE).volume(bad).volume(volume("vm2", "file:vm2.raw")))?;
    let said = reason(&daemon, part)?;
    ensure!(said.len() < 500, "{} bytes: {said}", said.len());
    client(&site, "vm2")?.read(0, 4096)?;
    daemon.stop()
}

/// An image whose own configuration has librbd acknowledge writes from a cache is refused.
pub(super) fn caches_of_librbd() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/cached");
    image(cluster, &name, DISK)?;
    for (option, value) in [("rbd_cache", "true"), ("rbd_persistent_cache_mode", "rwl")] {
        cluster.rbd(&["config", "image", "set", &name, option, value])?;
        refused(&cluster.backend(&name), &format!("its configuration has {option}"))?;
        cluster.rbd(&["config", "image", "remove", &name, option])?;
    }
    let site = Site::new()?;
    let daemon = site.serve(&config(cluster, &name))?;
    client(&site, "vm1")?.read(0, 4096)?;
    daemon.stop()?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// A second daemon is refused, and gets the image once the first one lets go of it.
pub(super) fn one_host_writes() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/owned");
    image(cluster, &name, DISK)?;
    let (one, two) = (Site::new()?, Site::new()?);
    let first = one.serve(&config(cluster, &name))?;
    client(&one, "vm1")?.write(0, &noise(4096, 1))?;
    let second = two.serve(&config(cluster, &name).cache_key("lock_wait_s = 1"))?;
    let said = reason(&second, "in use by Cinnabar, process")?;
    ensure!(said.contains(&first.running.pid().to_string()), "not the first one: {said}");
    // Nor does a client of another kind get it.
    ensure!(write_by_rbd(cluster, &name).is_err(), "rbd wrote an image that is in use");
    client(&one, "vm1")?.write(4096, &noise(4096, 2))?;
    first.stop()?;
    let begun = std::time::Instant::now();
    while client(&two, "vm1").and_then(|mut guest| guest.read(4096, 4096)).is_err() {
        ensure!(begun.elapsed() < super::PATIENCE, "it waits on:\n{}", second.running.log());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let mut guest = client(&two, "vm1")?;
    ensure!(guest.read(0, 4096)? == noise(4096, 1), "another block");
    ensure!(guest.read(4096, 4096)? == noise(4096, 2), "another block");
    guest.write(0, &noise(4096, 3))?;
    second.stop()?;
    write_by_rbd(cluster, &name).context("the lock is free again")?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

fn write_by_rbd(cluster: &Cluster, name: &str) -> Result<()> {
    let args = ["bench", name, "--io-type", "write", "--io-size", "4K", "--io-total", "4K"];
    cluster.rbd(&args).map(drop)
}
