//! Real daemons killed over and over, under guests that know what they wrote.
//!
//! The books of each volume stay here while daemons come and go: after each restart every sector
//! must read as the newest acknowledged version, or as a later one that was on its way, and then
//! stay what it was read as. Of the blocks that had reached the SSD all but 0.5 % and what was on
//! its way must be hits. A file system does not forget what it was given when a process is killed,
//! so nothing acknowledged may be lost; power cuts are the simulator's part.

pub(crate) mod load;
mod meddle;
mod world;

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::tools::FIO;
use e2e::{Fio, MIB, Status};
use meddle::Meddling;
use std::thread;
use std::time::{Duration, Instant};
use world::{Before, End, FIO_DISK, FIO_VOLUME, IN_FLIGHT, World};

pub(crate) const CASES: [Case; 4] = [
    Case::new("crash_kills_with_room_for_all", &[FIO], with_room),
    Case::new("crash_kills_with_threads", &[FIO], with_threads).quick(),
    Case::new("crash_kills_while_evicting", &[], while_evicting).ci(),
    Case::new("sigterm_loses_nothing_acknowledged", &[], sigterm).ci(),
];

/// Blocks in 1000 that a crash may cost.
const LOST_PER_MILLE: u64 = 5;
/// Kills of both cases together: the bar is 50, ten of them with a changed back end.
const ROUNDS_WITH_ROOM: u64 = 33;
const ROUNDS_WITH_THREADS: u64 = 9;
/// So many at least, and as many more as a slow machine needs to evict enough.
const ROUNDS_WHILE_EVICTING: u64 = 10;
const ROUNDS_WHILE_EVICTING_MAX: u64 = 60;
/// More than a sixth of the cache.
const EVICTED_BLOCKS_MIN: u64 = 1500;
/// Everything fits several times, so that what is missing after a crash was not evicted.
const CACHE_WITH_ROOM: u64 = 384 * MIB;
/// A third of what guests use.
const CACHE_WHILE_EVICTING: u64 = 32 * MIB;

/// What guests do until the daemon is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// They have stopped long enough for everything to be settled: the sharpest bound.
    AtRest,
    /// They go on, at a pace at which what is on its way is a small part.
    Calm,
    /// They go on as fast as they can.
    Busy,
}

/// What happened so far.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    meddled: u64,
    /// Blocks that had reached the SSD, all kills together, and those of them that were there again.
    resident: u64,
    found: u64,
    evicted: u64,
    /// The largest loss that nothing under way explains, in blocks, and what it was of.
    worst: (u64, String),
}

fn with_room() -> Result<()> {
    let mut world = World::new(CACHE_WITH_ROOM, 1)?;
    let tally = rounds_with_room(&mut world, ROUNDS_WITH_ROOM)?;
    ensure!(tally.meddled >= 10, "only {} kills with a changed back end", tally.meddled);
    tally.show("with room for all");
    world.stop()
}

/// The same with several shards, which two threads run in turn.
fn with_threads() -> Result<()> {
    let mut world = World::new(CACHE_WITH_ROOM, 3)?;
    world.set("shards = 4\nthreads = 2");
    let tally = rounds_with_room(&mut world, ROUNDS_WITH_THREADS)?;
    tally.show("with threads");
    world.stop()
}

fn rounds_with_room(world: &mut World, rounds: u64) -> Result<Tally> {
    let mut tally = Tally::default();
    world.start()?;
    for round in 0..rounds {
        let work = [Work::AtRest, Work::Busy, Work::Calm][(round % 3) as usize];
        let meddling = meddling_of(round);
        let seen = kill_once(world, &mut tally, round, work, meddling);
        seen.with_context(|| {
            let log = world.daemon().map(|daemon| daemon.running.log()).unwrap_or_default();
            format!("round {round}, {work:?}, {meddling:?}; {log}")
        })?;
    }
    Ok(tally)
}

/// Ten of the rounds, each with the work before that it needs.
fn meddling_of(round: u64) -> Option<Meddling> {
    match round {
        // Calm or busy: the heartbeat was a moment ago, its window has just begun.
        4 | 14 | 20 => Some(Meddling::SoonInTail),
        7 | 17 => Some(Meddling::Replaced),
        10 | 23 => Some(Meddling::Grown),
        5 | 12 | 19 | 25 => Some(Meddling::Late),
        _ => None,
    }
}

/// One kill and all that belongs to it: what is before, between, and after the restart.
fn kill_once(
    world: &mut World,
    tally: &mut Tally,
    round: u64,
    work: Work,
    meddling: Option<Meddling>,
) -> Result<()> {
    // fio's engine ends with its connection: it writes before the kill and verifies after it.
    let fio = (round % 4 == 1).then(|| fio_job(world, round));
    if let Some(job) = &fio {
        job.clone().arg("do_verify", 0).run().context("fio writes")?;
    }
    let before = before_kill(world, work)?;
    let killed = Instant::now();
    tally.kills += 1;
    let victim = (round % world.guests.len() as u64) as usize;
    if let Some(how) = meddling {
        tally.meddled += 1;
        let World { guests, shared, rng, .. } = &mut *world;
        let guest = &guests[victim];
        meddle::meddle(how, &guest.path, &guest.books, shared, rng, killed)?;
    } else if round.is_multiple_of(2) {
        // Killed again while it finds out what is there, once or twice.
        for _ in 0..=round % 4 / 2 {
            let later = Duration::from_millis(world.rng.below(60));
            world.start_and_kill(later)?;
            tally.kills += 1;
        }
    }
    world.start()?;
    let dropped = meddling.filter(|how| *how != Meddling::SoonInTail).map(|_| victim);
    if work == Work::Busy && meddling.is_none() {
        // At once, so that guests write while the index is being loaded.
        world.work(Duration::from_millis(200), Duration::ZERO, End::Stop)?;
        return Ok(());
    }
    let status = world.loaded()?;
    if let Some(how) = meddling {
        check_warmth(&status, &world.guests[victim].name, how)?;
    }
    check_hits(world, tally, &status, &before, dropped)?;
    fio.map_or(Ok(()), |job| job.flag("verify_only").run().map(drop).context("fio verifies"))
}

fn fio_job(world: &World, round: u64) -> Fio {
    Fio::nbd(&world.site.uri(FIO_VOLUME))
        .arg("rw", "randwrite")
        .arg("bsrange", "512-32k")
        .arg("size", FIO_DISK)
        .arg("iodepth", 16)
        .arg("randseed", round)
        .arg("verify", "crc32c")
        .arg("verify_fatal", 1)
}

/// Guests work; then the daemon is killed.
fn before_kill(world: &mut World, work: Work) -> Result<Before> {
    match work {
        Work::Busy => world.work(Duration::from_millis(600), Duration::ZERO, End::Kill),
        Work::Calm => world.work(IN_FLIGHT, Duration::from_millis(100), End::Kill),
        Work::AtRest => {
            world.work(Duration::from_millis(400), Duration::from_millis(1), End::Stop)?;
            thread::sleep(IN_FLIGHT + Duration::from_millis(200));
            let before = world.at_rest()?;
            world.kill()?;
            Ok(before)
        }
    }
}

/// Reads everything and counts the hits.
fn check_hits(
    world: &World,
    tally: &mut Tally,
    status: &Status,
    before: &Before,
    dropped: Option<usize>,
) -> Result<()> {
    let mut found = world.read_all_of_fio()?;
    for (index, guest) in world.guests.iter().enumerate() {
        if Some(index) == dropped {
            continue;
        }
        let hits = world.read_all(guest)?;
        let claimed = status.count(&guest.name, "cached_blocks")?;
        ensure!(hits >= claimed, "{}: {hits} hits on {claimed} blocks", guest.name);
        found += hits;
    }
    // A dropped volume comes last, for what it fills in could push others out.
    let Some(index) = dropped else {
        return tally.check(found, before.resident, before.in_flight);
    };
    let hits = world.read_all(&world.guests[index])?;
    ensure!(hits == 0, "{hits} hits on a volume that was written outside the daemon");
    let resident = before.resident.saturating_sub(before.cached[index]);
    tally.check(found, resident, before.in_flight)
}

/// What the status says of a volume whose file was changed meanwhile.
fn check_warmth(status: &Status, name: &str, how: Meddling) -> Result<()> {
    let warmth = &status.volume(name)?["warmth"];
    let reason = warmth["reason"].as_str().unwrap_or_default();
    match how {
        Meddling::SoonInTail => ensure!(warmth["state"] != "dropped", "{name}: {warmth}"),
        Meddling::Replaced | Meddling::Grown => {
            ensure!(warmth["state"] == "dropped", "{name}: {warmth}");
            ensure!(reason.contains("changed, replaced or resized"), "{name}: {warmth}");
        }
        Meddling::Late => {
            ensure!(warmth["state"] == "dropped" && !reason.is_empty(), "{name}: {warmth}");
        }
    }
    Ok(())
}

/// The log goes round and round; nothing but the status can tell what should be there.
fn while_evicting() -> Result<()> {
    let mut world = World::new(CACHE_WHILE_EVICTING, 2)?;
    let mut tally = Tally::default();
    world.start()?;
    for round in 0..ROUNDS_WHILE_EVICTING_MAX {
        if round >= ROUNDS_WHILE_EVICTING && tally.evicted > EVICTED_BLOCKS_MIN {
            break;
        }
        let work = [Work::Busy, Work::AtRest][(round % 2) as usize];
        let before = before_kill(&mut world, work).with_context(|| format!("round {round}"))?;
        tally.kills += 1;
        for _ in 0..round % 3 {
            let later = Duration::from_millis(world.rng.below(60));
            world.start_and_kill(later)?;
            tally.kills += 1;
        }
        world.start()?;
        let cached = world.loaded()?.cache("cached_blocks")?;
        tally.evicted += before.evicted;
        tally.check(cached, before.resident, before.in_flight)?;
        for guest in &world.guests {
            world.read_all(guest).with_context(|| format!("round {round}"))?;
        }
    }
    let enough = tally.evicted > EVICTED_BLOCKS_MIN;
    ensure!(enough, "only {} blocks were evicted", tally.evicted);
    tally.show("while evicting");
    world.stop()
}

/// A clean stop under load: nothing acknowledged is lost, and what is cached is kept.
fn sigterm() -> Result<()> {
    let mut world = World::new(CACHE_WITH_ROOM, 3)?;
    world.start()?;
    for _ in 0..2 {
        world.work(Duration::from_millis(600), Duration::ZERO, End::Ask)?;
        world.start()?;
        let status = world.loaded()?;
        for guest in &world.guests {
            let warmth = &status.volume(&guest.name)?["warmth"];
            ensure!(warmth["state"] == "kept" || warmth["state"] == "loading", "{warmth}");
            ensure!(world.read_all(guest)? > 0, "{}: no hits", guest.name);
        }
    }
    world.stop()
}

impl Tally {
    /// Checks that enough of the `resident` blocks are there after a crash.
    fn check(&mut self, found: u64, resident: u64, in_flight: u64) -> Result<()> {
        self.resident += resident;
        self.found += found.min(resident);
        let lost = resident.saturating_sub(found);
        let story = format!("{lost} of {resident} blocks, {in_flight} were in flight");
        let unexplained = lost.saturating_sub(in_flight);
        ensure!(unexplained * 1000 <= resident * LOST_PER_MILLE, "lost {story}");
        if unexplained > self.worst.0 {
            self.worst = (unexplained, story);
        }
        Ok(())
    }

    fn show(&self, name: &str) {
        let Self { kills, meddled, resident, found, evicted, worst: (_, worst) } = self;
        println!(
            "{name}: {kills} kills, {meddled} with a changed back end, {evicted} blocks evicted; \
             {found} of {resident} blocks that had reached the SSD were there again; worst loss \
             that nothing in flight explains: {}",
            if worst.is_empty() { "none" } else { worst }
        );
    }
}
