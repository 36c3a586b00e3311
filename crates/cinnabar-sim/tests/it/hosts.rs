//! Two hosts and one volume: seeds without a broken promise, what they must have met together, and deliberate
//! bugs that they find; seeds that once found a bug, replayed.
//!
//! `CINNABAR_SEEDS=first..end` runs others, and `CINNABAR_LINES=n` shows more of one that fails.

use crate::mutants::known::FOUND_AT_HOSTS;
use cinnabar_engine::mutant::Mutants;
use cinnabar_sim::hosts::{HostFault, HostOptions, run, search};
use std::ops::Range;

/// Seeds of a quick look; `cargo xtask ci` runs many more.
const SEEDS: Range<u64> = 0..400;

/// Seeds that a search for a deliberate bug may take.
const MUTANT_SEEDS: u64 = 2_000;

/// Seeds that once found a bug: of the rules, of the protocol, or of the simulation.
const REGRESSIONS: &[u64] = &[10, 65, 93, 803, 1292, 4976, 5861];

fn options() -> HostOptions {
    HostOptions { lines: crate::engine::lines(), ..HostOptions::default() }
}

#[test]
fn no_seed_of_two_hosts_breaks_a_promise_and_all_happens() {
    let seeds = crate::engine::seeds_or(SEEDS);
    let began = std::time::Instant::now();
    let (report, failures) = search(seeds.clone(), &options(), 10);
    for failed in &failures {
        println!("{failed}");
    }
    if let Some(first) = failures.first() {
        panic!("{} seeds failed, the first: {}: {}", failures.len(), first.seed, first.violation);
    }
    for fault in HostFault::ALL {
        println!("{fault:?}: {}", report.of(*fault));
    }
    println!("{report:?}, {:.1} s", began.elapsed().as_secs_f64());
    if seeds == SEEDS {
        assert_eq!(report.missing(), [], "never met");
        assert!(report.answered > 100 * report.seeds && report.read_hits > 10 * report.seeds);
    }
}

#[test]
fn each_mutant_of_two_hosts_is_found_and_only_the_mutant_is() {
    let mut lost = Vec::new();
    for &(mutant, seed) in FOUND_AT_HOSTS {
        let with = HostOptions { mutants: Mutants::only(mutant), ..options() };
        let found = match run(seed, &with) {
            Err(failed) => Some(*failed),
            // What a change has moved is slower to find, and not lost.
            Ok(_) => search(0..MUTANT_SEEDS, &with, 1).1.into_iter().next(),
        };
        let Some(found) = found else {
            lost.push(mutant);
            continue;
        };
        if found.seed != seed {
            println!("{mutant:?} is found at seed {} now, not at {seed}", found.seed);
        }
        println!("{mutant:?}, seed {}: {}", found.seed, found.violation);
        if let Err(failed) = run(found.seed, &options()) {
            panic!("{mutant:?} is found where there is none: {failed}");
        }
    }
    assert!(lost.is_empty(), "not found in {MUTANT_SEEDS} seeds: {lost:?}");
}

#[test]
fn the_same_seed_of_two_hosts_gives_the_same_run() {
    for seed in 0..5 {
        let digest = || run(seed, &options()).map(|report| report.digest);
        let (one, other) = (digest(), digest());
        assert_eq!(one.map_err(|failed| failed.seed), other.map_err(|failed| failed.seed));
    }
}

#[test]
fn regressions_of_two_hosts_stay_fixed() {
    for seed in REGRESSIONS {
        if let Err(failed) = run(*seed, &options()) {
            panic!("{failed}");
        }
    }
}
