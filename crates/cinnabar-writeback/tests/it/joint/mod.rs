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
    "clean restarts",
    "failed",
    "flushes",
    "joins",
    "kills",
    "leaves",
    "not joined",
    "power cuts",
    "reads",
    "restarts",
    "runs with blocks in the cache",
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
/// `CINNABAR_SEARCH=1`.
const FOUND_AT: &[(Bug, u64)] = &[
    (Bug::RestartNotPassedOn, 28),
    (Bug::RestartPassedOnOnce, 1361),
    (Bug::RequestsReordered, 5),
    (Bug::EngineBeforeLog, 3),
    (Bug::CopyKept, 0),
    (Bug::FailedFlushRepeated, 36),
    (Bug::JoinedUnflushed, 1),
    (Bug::JoinedUnheld, 3),
    (Bug::LeftUnheld, 1),
    (Bug::LeftUndrained, 1),
    (Bug::FlushNotPassedOn, 0),
    (Bug::OpenedUnflushed, 229),
    (Bug::EarlyDropped, 36),
];

#[test]
fn each_deliberate_bug_of_the_joints_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    if std::env::var_os("CINNABAR_SEARCH").is_some() {
        for bug in Bug::ALL {
            let found = (0..1_500).find(|seed| run(*seed, Some(*bug)).is_err());
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
