//! Hybrid volumes on the cluster: data in both of its pools, moved by the OSDs.

use super::{CACHE, client, cluster, image, reason, refusals, started, volume};
use crate::hybrid::{BUDGET, DISK, kills, moves};
use anyhow::{Context, Result, ensure};
use e2e::ceph::{Cluster, FAST, HDD_OSDS, SLOW, SSD_OSDS};
use e2e::daemon::noise;
use e2e::nbd::Client;
use e2e::{Config, Daemon, Fio, MIB, Site};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ops::Range;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

/// Rounds so short, and copies so cheap, that extents move all the time.
const BUSY: &str = "hybrid,round_s=0.2,horizon_s=604800,copy_mib_s=1024";
const KILLS: u64 = 3;

/// Runs `cinnabar hybrid WHAT` on a volume.
fn command(cluster: &Cluster, name: &str, what: &[&str]) -> Result<Output> {
    let mut command = std::process::Command::new(e2e::binary::cinnabar()?);
    command.arg("hybrid").args(what).args(["--ceph", name, "--fast", FAST, "--slow", SLOW]);
    command.arg("--conf").arg(cluster.conf()).output().context("starting cinnabar hybrid")
}

/// The same; its JSON.
fn hybrid(cluster: &Cluster, name: &str, what: &[&str]) -> Result<Value> {
    let output = command(cluster, name, &[what, &["--json"]].concat())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cinnabar hybrid {what:?}: {stderr}");
    serde_json::from_slice(&output.stdout).context("its JSON")
}

/// Makes a volume with small extents.
pub(super) fn made(cluster: &Cluster, name: &str) -> Result<()> {
    let (size, budget) = (format!("{}MiB", DISK / MIB), format!("{}MiB", BUDGET / MIB));
    let size = ["create", "--size", &size, "--budget", &budget, "--extent", "64KiB"];
    hybrid(cluster, name, &[&size[..], &["--no-probe"]].concat()).map(drop)
}

pub(super) fn backend(cluster: &Cluster, name: &str) -> String {
    let conf = cluster.conf();
    format!("{BUSY}:ceph,fast={FAST},slow={SLOW},name={name},conf={}", conf.display())
}

fn config(cluster: &Cluster, name: &str) -> Config {
    Config::new(CACHE).volume(volume("vm1", &backend(cluster, name)))
}

/// Nothing is lost, and nothing is foreign.
pub(super) fn check_pools(cluster: &Cluster, name: &str) -> Result<()> {
    let found = hybrid(cluster, name, &["check"])?;
    ensure!(found["lost_count"] == 0 && found["foreign_count"] == 0, "{found}");
    Ok(())
}

/// Random writes, a part of them hot, all read back, while extents move and an OSD of each pool dies and comes back.
pub(super) fn osds_killed_under_fio() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    made(cluster, "load")?;
    let site = Site::new()?;
    let daemon = site.serve(&config(cluster, "load"))?;
    let job = || {
        Fio::nbd(&site.uri("vm1"))
            .arg("rw", "randwrite")
            .arg("iodepth", 16)
            .arg("randseed", 5)
            .arg("verify", "crc32c")
            .arg("verify_fatal", 1)
    };
    job().arg("size", DISK).arg("bsrange", "4k-64k").run()?;
    let hot = || {
        let hot = job().arg("offset", DISK / 4).arg("size", DISK / 8).arg("bs", "4k");
        hot.arg("random_distribution", "zipf:1.2").arg("loops", 6)
    };
    let fio = hot();
    let fio = thread::spawn(move || fio.run());
    thread::sleep(Duration::from_secs(1));
    for osd in [SSD_OSDS[0], HDD_OSDS[1]] {
        cluster.kill_osd(osd)?;
        thread::sleep(Duration::from_secs(2));
        cluster.start_osd(osd)?;
        cluster.wait_for(FAST)?;
        cluster.wait_for(SLOW)?;
    }
    fio.join().ok().context("fio's thread ended early")??;
    let (up, down) = moves(&daemon)?;
    let status = daemon.status()?;
    let own = &status.volume("vm1")?["hybrid"];
    println!("{up} moves up, {down} down: {own}");
    ensure!(up > 0, "nothing moved: {own}");
    let through_host = own["host_bytes"].as_u64().context("host_bytes")?;
    ensure!(through_host <= (up + down) * (64 << 10) / 10, "moved by the host: {own}");
    daemon.stop()?;
    check_pools(cluster, "load")?;
    // Again, by another daemon, of what fio wrote last.
    let daemon = site.serve(&config(cluster, "load"))?;
    hot().flag("verify_only").run()?;
    daemon.stop()
}

/// Daemons are killed while extents move: nothing is lost, what is cached is warm.
pub(super) fn kills_while_extents_move() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    made(cluster, "killed")?;
    let site = Site::new()?;
    let (up, down) = kills(&site, &config(cluster, "killed"), KILLS)?;
    ensure!(up > 5, "only {up} moves up and {down} down");
    check_pools(cluster, "killed")
}

/// Commands, mistakes, a volume in use: one line each.
pub(super) fn mistakes() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let created = hybrid(cluster, "vm1", &["create", "--size", "64MiB", "--extent", "1MiB"])?;
    ensure!(created["size_bytes"] == DISK && created["budget_bytes"] == DISK / 10, "{created}");
    let probed = hybrid(cluster, "vm1", &["probe"])?;
    for time in [&probed["fast"]["read_us"], &probed["slow"]["write_us"]] {
        ensure!(time.as_u64() > Some(0), "{probed}");
    }
    let twice = command(cluster, "vm1", &["create", "--size", "1MiB"])?;
    let said = String::from_utf8_lossy(&twice.stderr);
    ensure!(!twice.status.success() && said.contains("exists"), "made twice: {said}");
    let whole = backend(cluster, "vm1");
    // It may look, but not change.
    cluster.user("looker", &["mon", "allow r", "osd", "allow r"])?;
    for (from, to, part) in [
        ("name=vm1", "name=vm2", "there is no hybrid volume"),
        ("fast=ssd", "fast=nowhere", "there is no pool \"nowhere\""),
        ("fast=ssd,slow=hdd", "fast=hdd,slow=ssd,table=hdd", "lies in other pools"),
        ("name=vm1", "name=vm1,id=looker", "client.looker may not"),
        ("name=vm1", "name=vm1,id=nobody", "refuses user client.nobody"),
    ] {
        let wrong = whole.replace(from, to);
        refusals::refused(&wrong, part).with_context(|| wrong.clone())?;
    }
    let (one, two) = (Site::new()?, Site::new()?);
    let first = one.serve(&config(cluster, "vm1"))?;
    client(&one, "vm1")?.write(0, &noise(4096, 1))?;
    let said = command(cluster, "vm1", &["check"])?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.contains("in use by"), "it is served: {said}");
    let second = two.serve(&config(cluster, "vm1").cache_key("lock_wait_s = 1"))?;
    let said = reason(&second, "in use by Cinnabar, process")?;
    ensure!(said.contains(&first.running.pid().to_string()), "not the first one: {said}");
    first.stop()?;
    let begun = Instant::now();
    let mut guest = connected(&two, "vm1", &second)?;
    // A clean end leaves nothing to wait for but the next attempt.
    println!("served by the second one after {:?}", begun.elapsed());
    ensure!(guest.read(0, 4096)? == noise(4096, 1), "another block");
    guest.write(0, &noise(4096, 2))?;
    second.stop()?;
    check_pools(cluster, "vm1")
}

/// A guest of a volume that is served at last.
pub(super) fn connected(site: &Site, name: &str, daemon: &Daemon) -> Result<Client> {
    let begun = Instant::now();
    loop {
        // Of one that is not there reads fail.
        let guest = client(site, name).and_then(|mut guest| guest.read(0, 4096).map(|_| guest));
        if let Ok(guest) = guest {
            return Ok(guest);
        }
        ensure!(begun.elapsed() < 2 * super::PATIENCE, "not served:\n{}", daemon.running.log());
        thread::sleep(Duration::from_millis(100));
    }
}

/// Blocks that are cached by one daemon, and written by the next.
pub(super) const OLD: Range<u64> = 256..272;
pub(super) const VOLUMES: [&str; 2] = ["vm1", "vm2"];

/// An owner is frozen for so long that another host takes its volumes: an image and a hybrid volume, neither of which
/// has a peer. When it goes on it serves nothing old of its cache, and its late writes are refused.
pub(super) fn frozen_owner() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    made(cluster, "frozen")?;
    let name = format!("{FAST}/frozen_alone");
    image(cluster, &name, DISK)?;
    let volumes = VOLUMES;
    let config = Config::new(CACHE)
        .cache_key("lock_wait_s = 2")
        .volume(volume("vm1", &backend(cluster, "frozen")))
        .volume(volume("vm2", &cluster.backend(&name)));
    let (one, two) = (Site::new()?, Site::new()?);
    let first = one.serve(&config)?;
    for volume in volumes {
        let mut guest = client(&one, volume)?;
        for block in OLD {
            guest.write(block * 4096, &noise(4096, block))?;
            ensure!(guest.read(block * 4096, 4096)? == noise(4096, block), "what was written");
        }
        guest.flush()?;
    }
    let late: Vec<(&str, u64, Client)> = volumes
        .into_iter()
        .flat_map(|volume| OLD.map(move |block| (volume, block)))
        .map(|(volume, block)| Ok((volume, block, client(&one, volume)?)))
        .collect::<Result<_>>()?;
    let writers: Vec<_> =
        volumes.map(|volume| client(&one, volume)).into_iter().collect::<Result<_>>()?;
    signal(&first, Signal::STOP)?;
    let written = taken_and_written(&two, &config, volumes);
    // Requests that the stopped process finds when it goes on.
    let readers: Vec<_> = late
        .into_iter()
        .map(|(volume, block, mut guest)| {
            thread::spawn(move || (volume, block, guest.read(block * 4096, 4096)))
        })
        .collect();
    let writers: Vec<_> = writers
        .into_iter()
        .map(|mut guest| thread::spawn(move || guest.write(OLD.start * 4096, &noise(4096, 7))))
        .collect();
    thread::sleep(Duration::from_millis(300));
    signal(&first, Signal::CONT)?;
    let (second, _) = written?;
    for reader in readers {
        let (volume, block, found) = reader.join().ok().context("a reader ended early")?;
        if let Ok(found) = found {
            ensure!(found == noise(4096, block + 1000), "block {block} of {volume} is old");
        }
    }
    for writer in writers {
        let done = writer.join().ok().context("a writer ended early")?;
        ensure!(done.is_err(), "a late write was acknowledged");
    }
    for volume in volumes {
        for block in OLD {
            let found = client(&one, volume)?.read(block * 4096, 4096);
            ensure!(found.is_err(), "{volume}, which it has lost, is read there");
            let found = client(&two, volume)?.read(block * 4096, 4096)?;
            ensure!(found == noise(4096, block + 1000), "block {block} of {volume} is old");
        }
    }
    reason(&first, "another host has taken")?;
    second.stop()?;
    first.stop()?;
    check_pools(cluster, "frozen")
}

/// A second daemon takes both volumes, and writes what the first one has cached; when it was durable there.
pub(super) fn taken_and_written(
    site: &Site,
    config: &Config,
    volumes: [&str; 2],
) -> Result<(Daemon, Vec<Instant>)> {
    let (begun, mut written) = (Instant::now(), Vec::new());
    let daemon = site.serve(config)?;
    for volume in volumes {
        let mut guest = connected(site, volume, &daemon)?;
        println!("{volume} taken after {:?}", begun.elapsed());
        for block in OLD {
            guest.write(block * 4096, &noise(4096, block + 1000))?;
        }
        guest.flush()?;
        written.push(Instant::now());
    }
    Ok((daemon, written))
}

fn signal(daemon: &Daemon, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(daemon.running.pid().cast_signed()).context("a process")?;
    Ok(kill_process(pid, signal)?)
}
