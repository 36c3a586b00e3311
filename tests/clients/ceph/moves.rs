//! One image between two daemons: hand-over under load, fail-over, an owner that was frozen.

use super::{CACHE, DISK, check, client, cluster, contents, image, started, volume};
use crate::migration::{config, role, token};
use anyhow::{Context, Result, ensure};
use e2e::ceph::{Cluster, FAST};
use e2e::daemon::{free_port, noise};
use e2e::nbd::{Client, is_gone};
use e2e::stamps::{self, SECTOR};
use e2e::{Config, Daemon, MIB, Site};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Hand-overs of the case that counts them.
const HAND_OVERS: u64 = 8;
/// Blocks of each guest: few, so that most are read behind a write.
const HOT: u64 = 256;
/// Sectors of a block.
const BLOCK: u64 = 8;

/// Two sites with a daemon each, and one image.
struct Pair {
    sites: [Site; 2],
    configs: [Config; 2],
    daemons: [Option<Daemon>; 2],
    /// Holds the token.
    _shared: Site,
}

impl Pair {
    fn new(cluster: &Cluster, name: &str) -> Result<Self> {
        let shared = Site::new()?;
        let (token, a, b) = (token(&shared)?, free_port()?, free_port()?);
        let backend = cluster.backend(name);
        let with = |ports| config(CACHE, [volume("vm1", &backend)], ports, &token);
        let configs = [with((a, b)), with((b, a))];
        let sites = [Site::new()?, Site::new()?];
        let daemons = [Some(sites[0].serve(&configs[0])?), Some(sites[1].serve(&configs[1])?)];
        Ok(Self { sites, configs, daemons, _shared: shared })
    }

    fn daemon(&self, at: usize) -> Result<&Daemon> {
        self.daemons[at].as_ref().context("it runs")
    }

    fn client(&self, at: usize) -> Result<Client> {
        client(&self.sites[at], "vm1")
    }

    fn role(&self, at: usize) -> Result<String> {
        role(self.daemon(at)?, "vm1")
    }

    fn take(&self, at: usize, options: &[&str]) -> Result<String> {
        let args = [&["migrate", "in", "vm1", "--take"][..], options].concat();
        self.daemon(at)?.command(&args)
    }

    fn signal(&self, at: usize, signal: Signal) -> Result<()> {
        let pid = self.daemon(at)?.running.pid();
        Ok(kill_process(Pid::from_raw(pid.cast_signed()).context("a process")?, signal)?)
    }

    fn stop(self) -> Result<()> {
        self.daemons.into_iter().flatten().try_for_each(Daemon::stop)
    }
}

/// What a guest's disk must hold: the version of each block.
type Versions = Arc<Mutex<BTreeMap<u64, u64>>>;

/// Writes and reads back blocks of one half of the disk through one of the two daemons in turn, as a
/// guest that moves; what the other one reads meanwhile is checked, too.
fn load(
    pair: &Pair,
    half: u64,
    at: &Arc<AtomicU64>,
    ends: &Arc<AtomicBool>,
    known: &Versions,
) -> Result<thread::JoinHandle<Result<u64>>> {
    let mut clients = [pair.client(0)?, pair.client(1)?];
    let (at, ends, known) = (Arc::clone(at), Arc::clone(ends), Arc::clone(known));
    Ok(thread::spawn(move || {
        let (blocks, mut version, mut random) = (HOT, 0, half + 1);
        while !ends.load(Relaxed) {
            version += 1;
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = half * blocks + (random >> 33) % blocks;
            let own = at.load(Relaxed) as usize % 2;
            let old = known.lock().ok().context("a lock")?.get(&block).copied();
            if let Some(old) = old {
                // By whom does not matter: a standby shows all that was acknowledged before.
                let by = (random >> 20) as usize % 2;
                let data = clients[by].read(block * 4096, 4096)?;
                let found = stamps::version(&data[..SECTOR], 1, block * BLOCK)?;
                ensure!(
                    found == old,
                    "block {block}: {found}, not {old}, read at {by}, guest at {own}"
                );
            }
            let data = stamps::made(1, block * BLOCK, BLOCK, version);
            if version % 7 == 0 {
                clients[own].write_durably(block * 4096, &data)?;
            } else {
                clients[own].write(block * 4096, &data)?;
            }
            known.lock().ok().context("a lock")?.insert(block, version);
        }
        Ok(version)
    }))
}

fn verify(pair: &Pair, at: usize, known: &Versions) -> Result<()> {
    let mut client = pair.client(at)?;
    for (block, version) in known.lock().ok().context("a lock")?.iter() {
        let data = client.read(block * 4096, 4096)?;
        for (sector, bytes) in (block * BLOCK..).zip(data.chunks(SECTOR)) {
            let found = stamps::version(bytes, 1, sector)?;
            ensure!(found == *version, "sector {sector}: {found}, not {version}, at {at}");
        }
    }
    Ok(())
}

pub(super) fn hand_over() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/moves");
    image(cluster, &name, DISK)?;
    let pair = Pair::new(cluster, &name)?;
    ensure!(pair.role(0)? == "standby" && pair.role(1)? == "standby", "nobody owns it yet");
    pair.client(0)?.write(0, &noise(4096, 1))?;
    ensure!(pair.role(0)? == "owner" && pair.role(1)? == "standby", "the first write takes it");
    ensure!(pair.client(1)?.read(0, 4096)? == noise(4096, 1), "a standby reads what was written");

    let (at, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let known = Versions::default();
    let guests = [load(&pair, 0, &at, &ends, &known)?, load(&pair, 1, &at, &ends, &known)?];
    let mut longest = 0.0_f64;
    for round in 1..=HAND_OVERS {
        thread::sleep(Duration::from_millis(400));
        if round % 4 == 0 {
            // The operator is quicker than the guest.
            pair.take(round as usize % 2, &[])?;
        }
        at.store(round, Relaxed);
        let begun = Instant::now();
        let (new, old) = (round as usize % 2, (round as usize + 1) % 2);
        while pair.role(new)? != "owner" || pair.role(old)? != "standby" {
            ensure!(
                begun.elapsed() < super::PATIENCE,
                "round {round}: {}",
                pair.daemon(new)?.running.log()
            );
            thread::sleep(Duration::from_millis(20));
        }
        let status = pair.daemon(new)?.status()?;
        let waited = status.volume("vm1")?["migration"]["last_take_s"].as_f64();
        longest = longest.max(waited.context("how long it took")?);
    }
    ends.store(true, Relaxed);
    let mut writes = 0;
    for guest in guests {
        writes += guest.join().ok().context("a guest's thread ended early")??;
    }
    println!("{HAND_OVERS} hand-overs, {writes} writes, the longest wait {longest:.3} s");
    verify(&pair, 0, &known).context("at the first host")?;
    verify(&pair, 1, &known).context("at the second host")?;
    let status = pair.daemon(0)?.status()?;
    let given = status.volume("vm1")?["migration"]["given"].as_u64();
    ensure!(given >= Some(HAND_OVERS / 2), "{}", status.volume("vm1")?);
    ensure!(status.count("vm1", "backend_errors")? == 0, "{}", status.volume("vm1")?);
    pair.stop()?;
    // Another client of the cluster sees the same.
    let seen = contents(cluster, &name)?;
    for (block, version) in known.lock().ok().context("a lock")?.iter() {
        let found = stamps::version(&seen[*block as usize * 4096..][..SECTOR], 1, block * BLOCK)?;
        ensure!(found == *version, "block {block}: {found}, not {version}, in the image");
    }
    cluster.rbd(&["rm", "--no-progress", &name]).map(drop)
}

/// The owner is killed while it writes: what it had acknowledged is there, whatever was flushed, and the other
/// host gets it without a word, for the cluster can tell that the process is gone, or by the word.
pub(super) fn fail_over() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/fails_over");
    image(cluster, &name, DISK)?;
    let mut pair = Pair::new(cluster, &name)?;
    let mut expected = vec![0; DISK as usize];
    for (round, options) in [&["--force"][..], &[], &["--force"]].into_iter().enumerate() {
        let (old, new) = (round % 2, (round + 1) % 2);
        let mut guest = pair.client(old)?;
        guest.write(0, &expected[..4096])?;
        ensure!(pair.role(old)? == "owner", "round {round}");
        // Most of it is flushed by nobody.
        let seed = round as u64 * 1_000_000;
        let writing = thread::spawn(move || {
            for write in 1.. {
                let block = (seed + write * 37) % (DISK / 4096);
                let data = noise(4096, seed + write);
                if guest.write(block * 4096, &data).is_err() {
                    return (write, block, data);
                }
            }
            unreachable!("the daemon dies before")
        });
        thread::sleep(Duration::from_secs(1));
        pair.daemons[old].take().context("it runs")?.crash()?;
        let (writes, hit, last) = writing.join().ok().context("the guest's thread ended early")?;
        ensure!(writes > 50, "{writes} writes only");
        for write in 1..writes {
            let block = (seed + write * 37) % (DISK / 4096);
            expected[block as usize * 4096..][..4096].copy_from_slice(&noise(4096, seed + write));
        }
        let begun = Instant::now();
        pair.take(new, options).with_context(|| format!("round {round}"))?;
        println!("round {round}: {writes} writes, taken after {:?}", begun.elapsed());
        // The one that was under way is there or not.
        let found = pair.client(new)?.read(hit * 4096, 4096)?;
        if found == last {
            expected[hit as usize * 4096..][..4096].copy_from_slice(&last);
        }
        check(&pair.sites[new], "vm1", &expected).with_context(|| format!("round {round}"))?;
        pair.client(new)?.write(MIB, &noise(4096, seed))?;
        expected[1 << 20..][..4096].copy_from_slice(&noise(4096, seed));
        let again = pair.sites[old].serve(&pair.configs[old])?;
        pair.daemons[old] = Some(again);
        ensure!(pair.role(old)? == "standby", "it does not know who had it since");
        check(&pair.sites[old], "vm1", &expected).context("back as a standby")?;
    }
    pair.stop()?;
    ensure!(contents(cluster, &name)? == expected, "the cluster has something else");
    // The image stays: what was killed counts as a watcher of it for a while.
    Ok(())
}

/// Blocks that the case of the frozen owner overwrites.
const OLD: std::ops::Range<u64> = 256..280;

/// The owner is stopped, and its volume taken by the operator's word. When it goes on it serves nothing old
/// of its cache, what it still had to write is refused, and it becomes a standby.
pub(super) fn frozen_owner() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let name = format!("{FAST}/frozen");
    image(cluster, &name, DISK)?;
    let pair = Pair::new(cluster, &name)?;
    cache_all(&pair)?;
    let mut late: Vec<Client> = OLD.map(|_| pair.client(0)).collect::<Result<_>>()?;
    let mut late_writer = pair.client(0)?;

    pair.signal(0, Signal::STOP)?;
    let taken = take_from_frozen(&pair);
    // It has not served its cache since.
    let written = taken.and_then(|took| {
        let mut guest = pair.client(1)?;
        for block in OLD {
            guest.write(block * 4096, &noise(4096, block + 1000))?;
        }
        guest.flush().map(|()| took)
    });
    // Requests that the stopped process finds when it goes on.
    let readers: Vec<_> = OLD
        .zip(late.drain(..))
        .map(|(block, mut client)| {
            thread::spawn(move || (block, client.read(block * 4096, 4096), client))
        })
        .collect();
    let writer = thread::spawn(move || {
        let done = late_writer.write(OLD.start * 4096, &noise(4096, 7));
        (done, late_writer)
    });
    thread::sleep(Duration::from_millis(300));
    pair.signal(0, Signal::CONT)?;
    let took = written?;

    let mut fresh = connects_again(&pair)?;
    for block in OLD {
        let found = fresh.read(block * 4096, 4096)?;
        ensure!(found == noise(4096, block + 1000), "block {block} is old");
    }
    let mut refused = 0;
    let mut clients = Vec::new();
    for reader in readers {
        let (block, found, client) = reader.join().ok().context("a reader ended early")?;
        match found {
            Ok(found) => ensure!(found == noise(4096, block + 1000), "block {block} is old"),
            Err(error) => {
                ensure!(!is_gone(&error), "the connection ended: {error:#}");
                refused += 1;
            }
        }
        clients.push(client);
    }
    let (done, mut late_writer) = writer.join().ok().context("the writer ended early")?;
    ensure!(done.is_err(), "a late write was acknowledged");
    ensure!(pair.role(0)? == "standby" && pair.role(1)? == "owner", "who owns it");
    // A guest that has missed all that does not write over the other one's data, now or later.
    ensure!(late_writer.write(OLD.start * 4096, &noise(4096, 7)).is_err(), "a late guest wrote");
    ensure!(clients[0].read(0, 4096).is_err(), "a late guest reads");
    ensure!(pair.role(1)? == "owner", "a late guest has taken it");
    println!("taken after {took:?}; {refused} of {} late reads refused", clients.len());
    // One that is new may.
    fresh.write(0, &noise(4096, 8))?;
    ensure!(pair.role(0)? == "owner", "the old owner takes it again");
    for block in OLD {
        ensure!(
            fresh.read(block * 4096, 4096)? == noise(4096, block + 1000),
            "block {block} is old"
        );
    }
    ends_new(cluster, &name, pair)?;
    // The image stays: what was fenced off counts as a watcher of it for a while.
    Ok(())
}

/// What the image holds in the end is new.
fn ends_new(cluster: &Cluster, name: &str, pair: Pair) -> Result<()> {
    pair.stop()?;
    let seen = contents(cluster, name)?;
    for block in OLD {
        let found = &seen[block as usize * 4096..][..4096];
        ensure!(found == noise(4096, block + 1000), "block {block} is old in the image");
    }
    Ok(())
}

/// The first host owns the image, and has cached all that is to be old.
fn cache_all(pair: &Pair) -> Result<()> {
    let mut guest = pair.client(0)?;
    for block in OLD {
        guest.write(block * 4096, &noise(4096, block))?;
    }
    guest.flush()?;
    let read_all =
        |guest: &mut Client| OLD.clone().try_for_each(|b| guest.read(b * 4096, 4096).map(drop));
    pair.daemon(0)?.warm_up("vm1", OLD.end - OLD.start, || read_all(&mut guest))?;
    let hits = pair.daemon(0)?.status()?.count("vm1", "read_hits")?;
    read_all(&mut guest)?;
    let hits = pair.daemon(0)?.status()?.count("vm1", "read_hits")? - hits;
    ensure!(hits == OLD.end - OLD.start, "{hits} hits: not all of it is cached");
    Ok(())
}

/// A guest that connects to the first host as soon as it can, and again after each error. What it reads
/// is never old.
fn connects_again(pair: &Pair) -> Result<Client> {
    let begun = Instant::now();
    loop {
        let mut guest = pair.client(0)?;
        match guest.read(OLD.start * 4096, 4096) {
            Ok(found) => {
                ensure!(found == noise(4096, OLD.start + 1000), "what is read at once is old");
                return Ok(guest);
            }
            Err(error) => ensure!(begun.elapsed() < super::PATIENCE, "no read passes: {error:#}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Takes the volume from the first host, which is stopped. Gives how long that took.
fn take_from_frozen(pair: &Pair) -> Result<Duration> {
    let plain = pair.take(1, &[]).err().context("a frozen owner gives nothing")?;
    ensure!(format!("{plain:#}").contains("in use by Cinnabar"), "{plain:#}");
    let begun = Instant::now();
    pair.take(1, &["--force"]).context("by the operator's word")?;
    let took = begun.elapsed();
    // As long as the other one may serve its cache.
    ensure!(took >= Duration::from_secs(10), "taken after {took:?}");
    ensure!(pair.role(1)? == "owner", "it was taken");
    Ok(took)
}

/// Of what stands in the image's header a standby learns, too: a clone is flattened, after which its parent
/// must not answer for what the owner has discarded; a snapshot is made, and the image gets larger.
pub(super) fn standby_of_a_clone() -> Result<()> {
    let mut guard = cluster()?;
    let cluster = started(&mut guard);
    let (parent, name) = (format!("{FAST}/parent"), format!("{FAST}/cloned"));
    let file = cluster.folder().join("parent.raw");
    std::fs::write(&file, noise(DISK, 3))?;
    let file = file.to_str().context("its path is text")?;
    cluster.rbd(&["import", "--no-progress", file, &parent])?;
    let snap = format!("{parent}@base");
    cluster.rbd(&["snap", "create", "--no-progress", &snap])?;
    cluster.rbd(&["snap", "protect", &snap])?;
    cluster.rbd(&["clone", &snap, &name])?;
    let mut expected = noise(DISK, 3);

    let pair = Pair::new(cluster, &name)?;
    let (mut owner, mut standby) = (pair.client(0)?, pair.client(1)?);
    owner.write(8 * MIB, &noise(4096, 4))?;
    expected[8 << 20..][..4096].copy_from_slice(&noise(4096, 4));
    check(&pair.sites[1], "vm1", &expected).context("before")?;
    cluster.rbd(&["snap", "create", "--no-progress", &format!("{name}@one")])?;
    owner.write(12 * MIB, &noise(4096, 5))?;
    ensure!(standby.read(12 * MIB, 4096)? == noise(4096, 5), "behind a snapshot");
    cluster.rbd(&["snap", "rm", "--no-progress", &format!("{name}@one")])?;
    expected[12 << 20..][..4096].copy_from_slice(&noise(4096, 5));
    cluster.rbd(&["flatten", "--no-progress", &name])?;
    // Whole objects: they are there no more.
    owner.write_zeroes(8 * MIB, 8 * MIB)?;
    expected[8 << 20..16 << 20].fill(0);
    ensure!(standby.read(8 * MIB, 4096)? == vec![0; 4096], "its parent has answered");
    check(&pair.sites[1], "vm1", &expected).context("behind the flattening")?;

    let larger = format!("{}B", 2 * DISK);
    cluster.rbd(&["resize", "--no-progress", &name, "--size", &larger])?;
    ensure!(standby.read(4096, 4096)? == expected[4096..8192], "behind the resize");
    standby.write(0, &noise(4096, 6))?;
    ensure!(pair.role(1)? == "owner", "a write takes it");
    let mut guest = pair.client(1)?;
    ensure!(guest.size() == 2 * DISK, "{} bytes", guest.size());
    guest.write(2 * DISK - 4096, &noise(4096, 7))?;
    ensure!(guest.read(2 * DISK - 4096, 4096)? == noise(4096, 7), "beyond the old end");
    pair.stop()?;
    // The image stays: its watchers are forgotten after a while.
    Ok(())
}
