//! The write log above the production engines: the router, one to three shards in a pool that several
//! threads run, each with a port of its own, a cache device, back ends whose servers restart, and volumes
//! that join the log and leave it while their guests go on. The oracle is that of the log's own simulation.
//!
//! What is simulated of the driver is what the daemon's data plane does between these parts.

mod backend;
mod engines;
mod guests;
mod log;
mod machine;
mod modes;
mod next;
mod restarts;
mod sessions;
mod settings;
mod volume;
mod world;

use settings::{Bug, JointSettings};
use world::{JointCounts, World};

/// What a run of some hundred seeds must have met.
const MUST_HAPPEN: &[&str] = &[
    "attached again",
    "back-end failures",
    "cache devices lost",
    "failed",
    "flushes",
    "joins",
    "kills",
    "leaves",
    "not joined",
    "power cuts",
    "reads",
    "restarts",
    "restarts past the log",
    "runs with blocks in the cache",
    "sectors lost past the log",
    "stops",
    "writes",
];

fn run(seed: u64, bug: Option<Bug>) -> Result<JointCounts, String> {
    let settings = JointSettings { bug, ..JointSettings::drawn(seed) };
    let run = move || {
        let mut world = World::new(seed, &settings);
        world.run().map(|()| world.counts)
    };
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err("an assert failed".to_owned()))
}

#[test]
fn no_seed_shows_the_whole_to_be_wrong() {
    let mut counts = JointCounts::default();
    let (seeds, mut wrong) = (crate::seeds(), Vec::new());
    let count = seeds.end - seeds.start;
    for seed in seeds {
        match run(seed, None) {
            Ok(of) => counts.add(&of),
            Err(what) => wrong.push(format!("seed {seed}: {what}")),
        }
        if wrong.len() == 8 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{counts:?}");
    for what in MUST_HAPPEN {
        assert!(count < 200 || counts.0.contains_key(what), "{what}: never: {counts:?}");
    }
}

/// The first seed that finds each bug. After a change of the simulation they are found again with
/// `CINNABAR_SEARCH=1`, or one of them with its name.
const FOUND_AT: &[(Bug, u64)] = &[
    (Bug::RestartNotPassedOn, 5),
    (Bug::RequestsReordered, 5),
    (Bug::EngineBeforeLog, 4),
    (Bug::CopyKept, 1),
    (Bug::FailedFlushRepeated, 12),
    (Bug::JoinedUnflushed, 2),
    (Bug::JoinedUnheld, 11),
    (Bug::LeftUnheld, 1),
    (Bug::LeftUndrained, 1),
    (Bug::FlushNotPassedOn, 2),
    (Bug::OpenedUnflushed, 51),
    (Bug::LostRangesKept, 14),
    (Bug::EarlyDropped, 19),
    (Bug::RestartPassedOnOnce, 1838),
];

#[test]
fn each_deliberate_bug_of_the_joints_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    if let Ok(name) = std::env::var("CINNABAR_SEARCH") {
        let wanted = |bug: &&Bug| name == "1" || format!("{bug:?}") == name;
        for bug in Bug::ALL.iter().filter(wanted) {
            let found = (0..10_000).find(|seed| run(*seed, Some(*bug)).is_err());
            let how = found.map(|seed| run(seed, Some(*bug)).err());
            println!("    (Bug::{bug:?}, {found:?}), {how:?}");
        }
        return;
    }
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        match FOUND_AT.iter().find(|(of, _)| of == bug) {
            None => missed.push(format!("no seed is known for {bug:?}")),
            Some((_, seed)) if run(*seed, Some(*bug)).is_ok() => {
                missed.push(format!("{bug:?} was not found at seed {seed}"));
            }
            Some((_, seed)) if run(*seed, None).is_err() => {
                missed.push(format!("seed {seed} is wrong without {bug:?}, too"));
            }
            Some(_) => {}
        }
    }
    // The hook above is silent.
    println!("{missed:?}");
    assert!(missed.is_empty(), "{missed:?}");
}
