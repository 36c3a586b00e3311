//! Clones of one snapshot: what they have in common is read from the cluster once, what each writes is its own.

use super::{CACHE, DISK, check, client, cluster, contents, image, started, volume};
use anyhow::{Context, Result, ensure};
use e2e::ceph::{Cluster, FAST};
use e2e::daemon::noise;
use e2e::rng::Rng;
use e2e::{Config, Daemon, MIB, Site, output, stamps};
use serde_json::Value;
use std::process::Command;
use std::thread;

const CLONES: [&str; 3] = ["vm1", "vm2", "vm3"];
/// Clones' objects: those of the parent, smaller and larger ones.
const LAYOUTS: [&[&str]; 3] = [
    &[],
    &["--object-size", "64K", "--stripe-unit", "64K", "--stripe-count", "1"],
    &["--object-size", "8M", "--stripe-unit", "8M", "--stripe-count", "1"],
];
const BLOCK: u64 = 4096;

fn clone_of(cluster: &Cluster, snap: &str, name: &str, options: &[&str]) -> Result<()> {
    let to = format!("{FAST}/{name}");
    cluster.rbd(&[&["clone", snap, &to], options].concat()).map(drop)
}

/// The parent volume and its clones.
fn config(cluster: &Cluster, snap: &str, clones: &[&str]) -> Config {
    let parent = volume("golden", &cluster.backend(snap)).key("read_only = true");
    let config = Config::new(CACHE).volume(parent);
    clones.iter().fold(config, |config, name| {
        let backend = cluster.backend(&format!("{FAST}/{name}"));
        config.volume(volume(name, &backend).key("parent = \"golden\""))
    })
}

/// The same, with `vm2` in write-back mode.
fn write_back(cluster: &Cluster, snap: &str) -> Config {
    let log = ["write_log = \"writes.img\"", "write_log_size = \"64MiB\""];
    let config = config(cluster, snap, &["vm1", "vm3"]);
    let config = log.iter().fold(config, |config, key| config.cache_key(key));
    let backend = cluster.backend(&format!("{FAST}/vm2"));
    let keys = ["parent = \"golden\"", "mode = \"write-back\""];
    config.volume(keys.iter().fold(volume("vm2", &backend), |volume, key| volume.key(key)))
}

fn parent(daemon: &Daemon, name: &str) -> Result<Value> {
    Ok(daemon.glance()?.volume(name)?["parent"].clone())
}

/// As a guest that boots: pieces of several sizes here and there, some of them twice, in all the whole disk.
fn boot(site: &Site, name: &str, seed: u64, expected: &[u8]) -> Result<()> {
    let mut rng = Rng::new(seed);
    let mut guest = client(site, name)?;
    for _ in 0..200 {
        let len = 512 << rng.below(8);
        let at = rng.below((DISK - len) / 512) * 512;
        let found = guest.read(at, len as usize)?;
        ensure!(found == expected[at as usize..][..len as usize], "{name} differs at {at}");
    }
    check(site, name, expected)
}

/// Boots, a crash and a restart: the parent's blocks are read from the cluster once.
fn boots(site: &Site, config: &Config, data: &[u8]) -> Result<()> {
    let all = DISK / BLOCK;
    let daemon = site.serve(config)?;
    for name in CLONES {
        let parent = parent(&daemon, name)?;
        ensure!(parent["reason"] == "" && parent["own_objects"] == 0, "{name}: {parent}");
    }
    daemon.warm_up("golden", all, || check(site, "vm1", data))?;
    let before = daemon.status()?;
    for (seed, name) in (1..).zip(CLONES) {
        boot(site, name, seed, data)?;
    }
    let after = daemon.status()?;
    let (reads, misses) = ("backend_reads", "misses");
    // A block that had not come from RAM to the SSD yet may be read again.
    let missed = after.count("golden", misses)? - before.count("golden", misses)?;
    ensure!(missed <= all / 100, "{missed} misses of what was cached: {}", after.0);
    for name in CLONES {
        ensure!(after.count(name, reads)? == 0, "{name} has read: {}", after.0);
        ensure!(after.count(name, "cached_blocks")? == 0, "cached twice: {}", after.0);
    }
    let bytes = after.count("golden", "backend_read_bytes")?;
    println!(
        "    {} boots of {} MiB each: {} MiB read from the cluster in {} requests",
        CLONES.len(),
        DISK / MIB,
        bytes / MIB,
        after.count("golden", reads)?
    );
    let begun = std::time::Instant::now();
    loop {
        let status = daemon.glance()?;
        if status.cache("cached_blocks")? - status.cache("ram_blocks")? >= all * 19 / 20 {
            break;
        }
        ensure!(begun.elapsed() < super::PATIENCE, "they stay in RAM: {}", status.0);
        thread::sleep(std::time::Duration::from_millis(100));
    }
    // For the newest chunks.
    thread::sleep(std::time::Duration::from_secs(3));
    daemon.crash()?;

    let daemon = site.serve(config)?;
    let before = daemon.loaded()?;
    boot(site, "vm2", 7, data)?;
    let status = daemon.status()?;
    let hits = status.count("golden", "read_hits")? - before.count("golden", "read_hits")?;
    let read = status.count("golden", "blocks_read")? - before.count("golden", "blocks_read")?;
    ensure!(hits >= read * 9 / 10, "{hits} of {read} are hits after a restart: {}", status.0);
    daemon.stop()
}

/// One guest's writes of stamps, trims and zeroes, each read at once and now and then again. Gives what its
/// disk must hold.
fn write_stamps(
    mut guest: e2e::nbd::Client,
    number: u64,
    from: u64,
    mut disk: Vec<u8>,
) -> Result<Vec<u8>> {
    let mut rng = Rng::new(from + number * 1000);
    for version in from..from + 150 {
        let sectors = 1 + rng.below(64);
        let sector = rng.below(DISK / 512 - sectors);
        let (at, len) = (sector * 512, sectors * 512);
        let data = match rng.below(8) {
            0 => {
                guest.write_zeroes(at, len)?;
                vec![0; len as usize]
            }
            // What a trim leaves is not defined, and the write log may show it as zeroes for a while.
            1 if number != 2 => {
                guest.trim(at, len)?;
                guest.read(at, len as usize)?
            }
            _ => {
                let data = stamps::made(number, sector, sectors, version);
                guest.write(at, &data)?;
                data
            }
        };
        disk[at as usize..][..len as usize].copy_from_slice(&data);
        for around in [at.saturating_sub(BLOCK), rng.below(DISK / BLOCK - 40) * BLOCK] {
            let len = (len + 2 * BLOCK).min(DISK - around) as usize;
            let found = guest.read(around, len)?;
            let wrong = found.iter().zip(&disk[around as usize..]).position(|(a, b)| a != b);
            ensure!(wrong.is_none(), "version {version}: {wrong:?} bytes behind {around}");
        }
    }
    guest.flush()?;
    Ok(disk)
}

/// All guests write side by side, from this version on.
fn write_all(site: &Site, from: u64, disks: &mut [Vec<u8>]) -> Result<()> {
    thread::scope(|scope| {
        let guests: Vec<_> = (1..)
            .zip(CLONES)
            .zip(disks.iter())
            .map(|((number, name), disk)| {
                let guest = client(site, name)?;
                let disk = disk.clone();
                Ok((name, scope.spawn(move || write_stamps(guest, number, from, disk))))
            })
            .collect::<Result<_>>()?;
        for (disk, (name, guest)) in disks.iter_mut().zip(guests) {
            let written = guest.join().expect("it does not panic");
            *disk = written.with_context(|| format!("the guest of {name}"))?;
        }
        Ok(())
    })
}

/// What the clones hold, as others see it.
fn compare(cluster: &Cluster, (site, daemon): (&Site, &Daemon), disks: &[Vec<u8>]) -> Result<()> {
    daemon.command(&["volume", "flush", "vm2"])?;
    for (name, disk) in CLONES.iter().zip(disks) {
        check(site, name, disk)?;
        ensure!(contents(cluster, &format!("{FAST}/{name}"))? == *disk, "{name} in the cluster");
        let export = cluster.folder().join("export");
        let mut compare = Command::new("qemu-img");
        compare.args(["compare", "-f", "raw", "-F", "raw", &site.uri(name)]).arg(&export);
        let said = output(&mut compare).with_context(|| format!("comparing {name}"))?;
        ensure!(said.contains("identical"), "{name}: {said}");
    }
    Ok(())
}

pub(super) fn golden_clones() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/base");
    let snap = format!("{name}@base");
    let data = noise(DISK, 3);
    let file = cluster.folder().join("golden.raw");
    std::fs::write(&file, &data)?;
    cluster.rbd(&["import", "--no-progress", file.to_str().context("its path is text")?, &name])?;
    cluster.rbd(&["snap", "create", "--no-progress", &snap])?;
    cluster.rbd(&["snap", "protect", &snap])?;
    for (clone, layout) in CLONES.iter().zip(LAYOUTS) {
        clone_of(cluster, &snap, clone, layout)?;
    }
    let site = Site::new()?;
    boots(&site, &config(cluster, &snap, &CLONES), &data)?;

    // One of them keeps its writes in the write log for a while.
    let settings = write_back(cluster, &snap);
    let mut disks = vec![data.clone(); CLONES.len()];
    let daemon = site.serve(&settings)?;
    write_all(&site, 1, &mut disks)?;
    // An object that exists and holds nothing hides the parent's.
    let gone = (DISK - 8 * MIB) as usize;
    let mut guest = client(&site, "vm3")?;
    guest.write_zeroes(gone as u64, 8 * MIB)?;
    guest.flush()?;
    disks[2][gone..].fill(0);
    for name in CLONES {
        let parent = parent(&daemon, name)?;
        ensure!(parent["own_objects"].as_u64() > Some(0), "{name}: {parent}");
    }
    daemon.crash()?;
    let daemon = site.serve(&settings)?;
    let own: Vec<_> = CLONES.iter().map(|name| parent(&daemon, name)).collect::<Result<_>>()?;
    ensure!(own[2]["own_objects"].as_u64() > Some(0), "it has something itself: {own:?}");
    for (name, disk) in CLONES.iter().zip(&disks) {
        check(&site, name, disk).context("after a crash")?;
    }
    write_all(&site, 1001, &mut disks)?;
    compare(cluster, (&site, &daemon), &disks)?;

    // Flattened by another client, which asks this daemon for it.
    cluster.rbd(&["flatten", "--no-progress", &format!("{FAST}/vm1")])?;
    check(&site, "vm1", &disks[0]).context("flattened")?;
    // Nothing is read from the parent any more soon, for its snapshot may go.
    let begun = std::time::Instant::now();
    while !parent(&daemon, "vm1")?["reason"].to_string().contains("it was flattened") {
        ensure!(begun.elapsed() < super::PATIENCE, "the flatten was not noticed");
        thread::sleep(std::time::Duration::from_millis(100));
    }
    check(&site, "vm1", &disks[0]).context("flattened, and read by itself")?;
    write_all(&site, 2001, &mut disks)?;
    daemon.stop()?;
    let daemon = site.serve(&settings)?;
    let reason = parent(&daemon, "vm1")?;
    ensure!(reason["reason"] == "the image is no clone (any more)", "{reason}");
    compare(cluster, (&site, &daemon), &disks)?;
    daemon.stop()?;
    refused(cluster, &snap, &data)?;
    for clone in CLONES {
        cluster.rbd(&["rm", "--no-progress", &format!("{FAST}/{clone}")])?;
    }
    cluster.rbd(&["snap", "unprotect", &snap])?;
    cluster.rbd(&["snap", "purge", "--no-progress", &name])?;
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// A clone of another snapshot waits, with a line; one without an object map is served, and uses its parent from
/// the opening on at which it has one.
fn refused(cluster: &Cluster, snap: &str, data: &[u8]) -> Result<()> {
    let other = format!("{FAST}/other");
    image(cluster, &other, DISK)?;
    let another = format!("{other}@base");
    cluster.rbd(&["snap", "create", "--no-progress", &another])?;
    cluster.rbd(&["snap", "protect", &another])?;
    clone_of(cluster, &another, "stray", &[])?;
    let features = ["--image-feature", "layering", "--image-feature", "exclusive-lock"];
    clone_of(cluster, snap, "blind", &features)?;
    let site = Site::new()?;
    let daemon = site.serve(&config(cluster, snap, &["vm3", "stray", "blind"]))?;
    let status = daemon.status()?;
    let volume = status.volume("stray")?;
    ensure!(volume["state"] == "waiting", "it is served: {volume}");
    let stray = volume["reason"].as_str().unwrap_or_default();
    let line = format!("it is a clone of {another}, and volume \"golden\", its parent, is {snap}");
    ensure!(stray.ends_with(&line), "{stray}");
    client(&site, "vm3")?.read(0, BLOCK as usize)?;
    check(&site, "blind", data)?;
    let seen = parent(&daemon, "blind")?;
    let reason = seen["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("object-map and fast-diff are off") && seen["reads"] == 0, "{seen}");
    let mut disk = data.to_vec();
    disk[..BLOCK as usize].fill(7);
    let mut guest = client(&site, "blind")?;
    guest.write(0, &disk[..BLOCK as usize])?;
    guest.flush()?;
    drop(guest);
    daemon.stop()?;
    let blind = format!("{FAST}/blind");
    cluster.rbd(&["feature", "enable", &blind, "object-map", "fast-diff"])?;
    cluster.rbd(&["object-map", "rebuild", "--no-progress", &blind])?;
    let daemon = site.serve(&config(cluster, snap, &["blind"]))?;
    check(&site, "blind", &disk).context("with its parent")?;
    let seen = parent(&daemon, "blind")?;
    let used = seen["reads"].as_u64() > Some(0) && seen["own_objects"].as_u64() > Some(0);
    ensure!(seen["reason"] == "" && used, "{seen}");
    daemon.stop()?;
    for clone in ["stray", "blind"] {
        cluster.rbd(&["rm", "--no-progress", &format!("{FAST}/{clone}")])?;
    }
    cluster.rbd(&["snap", "unprotect", &another])?;
    cluster.rbd(&["snap", "purge", "--no-progress", &other])?;
    cluster.rbd(&["rm", "--no-progress", &other]).map(drop)
}
