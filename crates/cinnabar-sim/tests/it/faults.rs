//! The engine under all faults: seeds without a broken promise, and what they must have met
//! together; seeds that once found a bug, replayed.
//!
//! `CINNABAR_SEEDS=first..end` runs others, with `CINNABAR_SINGLE=1` without shards and replays, and
//! `CINNABAR_LINES=n` shows more of one that fails.

use crate::mutants::known::SINGLE;
use cinnabar_sim::faults::{run_one, search};
use cinnabar_sim::{Counted, Failed, FaultOptions, Kind, Replay, Report};

/// Seeds of a quick look; `cargo xtask ci` runs many more.
const SEEDS: u64 = 200;

/// Seeds that must run into every bound of the engine together.
const BOUND_SEEDS: u64 = 100;

#[test]
fn every_bound_is_run_into_in_a_hundred_seeds() {
    let options = FaultOptions { regions: None, ..FaultOptions::default() };
    let summary = search(1000..1000 + BOUND_SEEDS, &options, |_| {});
    println!("{:#?}", summary.report.bounds);
    let missed: Vec<_> = summary.report.bounds.missing().map(Counted::name).collect();
    assert!(missed.is_empty(), "never run into: {missed:?}");
}

/// Seeds in which backend I/O waits for its turn.
const DOOR_SEEDS: u64 = 100;

#[test]
fn no_seed_breaks_a_promise_while_backend_io_waits_for_its_turn() {
    let options = FaultOptions { qos_queues: true, ..FaultOptions::default() };
    let summary = search(crate::engine::seeds_or(0..DOOR_SEEDS), &options, |_| {});
    if let Some(failed) = summary.failures.first() {
        panic!("{} of {} seeds failed, the first: {failed}", summary.failures.len(), summary.seeds);
    }
    let (parked, given_up) = (summary.report.parked, summary.report.given_up);
    println!("{parked} I/Os have waited, {given_up} of them were given up");
    assert!(parked > 100 * summary.seeds && given_up > summary.seeds / 10, "{parked}, {given_up}");
}

/// Seeds that once found a bug, of the engine or of the simulator.
const REGRESSIONS: &str = include_str!("../regressions.txt");

#[test]
fn no_seed_breaks_a_promise_and_every_fault_fires() {
    let seeds = crate::engine::seeds_or(0..SEEDS);
    let lines = crate::engine::lines();
    let mut options = FaultOptions { lines, regions: None, ..FaultOptions::default() };
    if std::env::var_os("CINNABAR_SINGLE").is_some() {
        options.features = SINGLE;
    }
    let summary = search(seeds.clone(), &options, |_| {});
    for failed in &summary.failures {
        println!("seed {}: {}", failed.seed, failed.violation);
    }
    if let Some(failed) = summary.failures.first() {
        panic!("{} of {} seeds failed, the first: {failed}", summary.failures.len(), summary.seeds);
    }
    println!("{:#?}", summary.report);
    println!(
        "{:.1} seeds/s, simulated over real {:.0}",
        summary.seeds_per_second(),
        summary.simulated_over_real()
    );
    if seeds != (0..SEEDS) {
        return;
    }
    assert!(summary.restarts_per_seed() >= 2.0, "{:.2} restarts", summary.restarts_per_seed());
    // So that cleaning and reuse of segments are met; failed flushes keep some volumes from filling.
    assert!(summary.log_wraps_per_seed() >= 1.5, "{:.2} wraps", summary.log_wraps_per_seed());
    assert!(summary.report.requests >= 1000 * SEEDS, "{} requests", summary.report.requests);
    let faults: Vec<_> = summary.report.faults.missing().map(Counted::name).collect();
    let paths: Vec<_> = summary.report.paths.missing().map(Counted::name).collect();
    // Both superblocks must rot for this one.
    assert!(faults.iter().all(|name| *name == "lost_superblock"), "never fired: {faults:?}");
    assert!(paths.is_empty(), "never taken: {paths:?}");
    // Each crash has been judged by itself; there must have been some to judge.
    let Report { crashes_warm, crash_blocks_settled, .. } = summary.report;
    assert!(crashes_warm >= 4, "{crashes_warm} crashes left something to be found again");
    assert!(crash_blocks_settled > 1000, "{crash_blocks_settled} blocks to be found again");
}

#[test]
fn regressions_stay_fixed() {
    for line in REGRESSIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (seed, options) = regression(line).unwrap_or_else(|| {
            panic!("`{line}` does not begin with SEED or SEED/REQUESTS, after single: perhaps")
        });
        if let Err(failed) = run_one(seed, &options) {
            panic!("{line}: {failed}");
        }
    }
}

/// The seed that a line begins with, and how to run it.
fn regression(line: &str) -> Option<(u64, FaultOptions)> {
    let run = line.split_whitespace().next()?;
    let mut usual = FaultOptions::default();
    let run = run.strip_prefix("single:").inspect(|_| usual.features = SINGLE).unwrap_or(run);
    let Some((seed, requests)) = run.split_once('/') else {
        return Some((run.parse().ok()?, usual));
    };
    Some((seed.parse().ok()?, FaultOptions { requests: requests.parse().ok()?, ..usual }))
}

#[test]
fn not_waiting_for_the_lock_is_found() {
    let options = FaultOptions { wait_for_lock: false, failures_max: 1, ..FaultOptions::default() };
    let summary = search(0..500, &options, |_| {});
    let failed = summary.failures.first().expect("late writes break promises");
    // `NotDurable`: one that lands over what came after it and had been flushed.
    let kinds = [Kind::Stale, Kind::Foreign, Kind::Warmth, Kind::NotDurable];
    assert!(kinds.contains(&failed.violation.kind), "{failed}");
}

/// A frontend that loses or doubles requests at a restart: what its guests see is found.
#[test]
fn frontends_that_replay_too_little_or_too_much_are_found() {
    for (replay, kind) in [(Replay::Skipped, Kind::NoReply), (Replay::Doubled, Kind::Stale)] {
        let options = FaultOptions { replay, ..FaultOptions::default() };
        let summary = search(0..500, &options, |_| {});
        let noticed = |failed: &&Failed| failed.violation.kind == kind;
        let failed = summary.failures.iter().find(noticed).expect("a guest must notice");
        println!("{replay:?}: seed {}, {}", failed.seed, failed.violation);
    }
}
