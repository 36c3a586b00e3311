//! An owner whose host has lost the network to the cluster, and lives: its guests go on asking it.
//!
//! The daemon has a group of its own, and the kernel drops what that group sends over the loopback (nftables, which needs
//! root and touches nobody else). The front ends are unix sockets, so guests and commands still reach it.

use super::hybrid::{OLD, VOLUMES, backend, check_pools, connected, made, taken_and_written};
use super::{CACHE, DISK, client, cluster, image, reason, started, volume};
use crate::unit::is_root;
use anyhow::{Context, Result, ensure};
use e2e::ceph::FAST;
use e2e::daemon::noise;
use e2e::nbd::Client;
use e2e::{Config, Site, output};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A group that no account has.
const GROUP: u32 = 48_213;
/// What another daemon writes is this much beyond the block's number.
const NEW: u64 = 1000;

/// The table of rules. One that a killed run has left is replaced.
const TABLE: &str = "inet cinnabar_test_cut_off";

/// What the group sends is dropped, until this is dropped.
struct Cut;

impl Cut {
    fn new() -> Result<Self> {
        let rules = format!(
            "add table {TABLE}\ndelete table {TABLE}\nadd table {TABLE}\n\
             add chain {TABLE} out {{ type filter hook output priority 0; }}\n\
             add rule {TABLE} out meta skgid {GROUP} drop\n"
        );
        output(Command::new("nft").arg(rules)).map(|_| Self)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        // There is none if it could not be made.
        let _none = Command::new("nft").arg(format!("delete table {TABLE}")).output();
    }
}

/// A read of an old owner's guest: when it began, of which block, and what came.
struct Read {
    begun: Instant,
    block: u64,
    found: Vec<u8>,
}

/// An image and a hybrid volume, neither of which has a peer. While their owner can't be heard another host takes both and
/// writes what the owner has cached: from then on the owner's guests see nothing old, and what they wrote late is lost
/// to them, not to the new owner.
pub(super) fn owner() -> Result<()> {
    if !is_root("ceph_cut_off_owner") {
        return Ok(());
    }
    // A container's root may not.
    if let Err(error) = Cut::new() {
        eprintln!("skipped: ceph_cut_off_owner needs nftables: {error:#}");
        return Ok(());
    }
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    made(cluster, "cut")?;
    let name = format!("{FAST}/cut_alone");
    image(cluster, &name, DISK)?;
    let config = Config::new(CACHE)
        .cache_key("lock_wait_s = 2")
        .volume(volume("vm1", &backend(cluster, "cut")).key("backend_timeout_s = 5"))
        .volume(volume("vm2", &cluster.backend(&name)).key("backend_timeout_s = 5"));
    let (one, two) = (Site::new()?, Site::new()?);
    let first = one.serve_under(&config, |command| {
        command.gid(GROUP);
        Ok(())
    })?;
    cache_all(&one)?;
    let writers: Vec<Client> =
        VOLUMES.map(|volume| client(&one, volume)).into_iter().collect::<Result<_>>()?;

    let (over, begun) = (AtomicBool::new(false), Instant::now());
    let cut = Cut::new()?;
    let ((second, written), reads, late) = thread::scope(|scope| {
        let late: Vec<_> = writers
            .into_iter()
            .map(|mut guest| scope.spawn(move || guest.write(OLD.start * 4096, &noise(4096, 7))))
            .collect();
        let readers = VOLUMES.map(|volume| scope.spawn(|| read_on(&one, volume, &over)));
        let second = taken_and_written(&two, &config, VOLUMES);
        // Cut off still, and asked for what is old now.
        thread::sleep(Duration::from_secs(3));
        drop(cut);
        thread::sleep(Duration::from_secs(3));
        over.store(true, Ordering::SeqCst);
        let reads = readers.map(|reader| reader.join().expect("it does not panic"));
        let late: Vec<_> =
            late.into_iter().map(|late| late.join().expect("it does not panic")).collect();
        second.map(|second| (second, reads, late))
    })?;
    judge(&reads, begun, &written)?;
    for late in late {
        let error = late.err().context("a late write was acknowledged")?;
        ensure!(error.downcast_ref::<std::io::Error>().is_none(), "no answer: {error:#}");
    }
    // It reaches the cluster again: what it had under way was sent again, and refused.
    reason(&first, "another host has taken")?;
    for volume in VOLUMES {
        for block in OLD {
            let found = client(&one, volume)?.read(block * 4096, 4096);
            ensure!(found.is_err(), "{volume}, which it has lost, is read there");
        }
    }
    first.stop()?;
    second.stop()?;
    check_back_ends(&config)?;
    check_pools(cluster, "cut")
}

/// The first host has cached all that is to be old.
fn cache_all(site: &Site) -> Result<()> {
    for volume in VOLUMES {
        let mut guest = client(site, volume)?;
        for block in OLD {
            guest.write(block * 4096, &noise(4096, block))?;
            ensure!(guest.read(block * 4096, 4096)? == noise(4096, block), "what was written");
        }
        guest.flush()?;
    }
    Ok(())
}

/// Another daemon, with an empty cache, finds what the new owner has written.
fn check_back_ends(config: &Config) -> Result<()> {
    let site = Site::new()?;
    let daemon = site.serve(config)?;
    for volume in VOLUMES {
        let mut guest = connected(&site, volume, &daemon)?;
        for block in OLD {
            let found = guest.read(block * 4096, 4096)?;
            ensure!(found == noise(4096, block + NEW), "block {block} of {volume} is old");
        }
    }
    daemon.stop()
}

/// What the cut at `begun` and the other daemon's writes, durable at the moments `written`, leave to the guests of
/// the old owner.
fn judge(reads: &[(Vec<Read>, usize); 2], begun: Instant, written: &[Instant]) -> Result<()> {
    for ((volume, (reads, refused)), written) in VOLUMES.into_iter().zip(reads).zip(written) {
        let last = reads.iter().rfind(|read| read.found == noise(4096, read.block));
        let last = last.context("nothing was read there")?;
        println!(
            "{volume}: {} reads served and {refused} refused, the last of what it had {:?} after the cut",
            reads.len(),
            last.begun - begun
        );
        for Read { begun, block, found } in reads {
            let (old, new) = (noise(4096, *block), noise(4096, block + NEW));
            ensure!(*found == old || *found == new, "block {block} of {volume} is neither");
            let is_old = *found == old && begun > written;
            ensure!(!is_old, "block {block} of {volume} is old, {:?} late", *begun - *written);
        }
        ensure!(*refused > 0, "{volume} was never refused");
    }
    Ok(())
}

/// A guest that asks for the same blocks all the time; its reads, and how many were refused.
fn read_on(site: &Site, volume: &str, over: &AtomicBool) -> (Vec<Read>, usize) {
    let (mut reads, mut refused, mut guest) = (Vec::new(), 0, None);
    // Reads of the first one wait for the late write.
    for block in (OLD.start + 1..OLD.end).cycle() {
        if over.load(Ordering::SeqCst) {
            break;
        }
        let begun = Instant::now();
        let found =
            guest.take().map_or_else(|| client(site, volume), Ok).and_then(|mut guest: Client| {
                guest.read(block * 4096, 4096).map(|found| (guest, found))
            });
        match found {
            Ok((same, found)) => {
                guest = Some(same);
                reads.push(Read { begun, block, found });
            }
            Err(_) => refused += 1,
        }
        thread::sleep(Duration::from_millis(20));
    }
    (reads, refused)
}
