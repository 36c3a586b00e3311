//! The engine under the fault simulation: many seeds, and what they must have met together.
//!
//! `CINNABAR_SEEDS=first..end` runs others, for instance one that failed; `CINNABAR_LINES=n` shows
//! more of it.

use cinnabar_sim::{Options, Report, ShardedFactory, run};
use std::ops::Range;

const SEEDS: Range<u64> = 0..100;

fn options() -> Options {
    Options { lines: lines(), ..Options::default() }
}

/// Lines to show of a failed run.
pub(crate) fn lines() -> usize {
    let lines = std::env::var("CINNABAR_LINES").ok().and_then(|lines| lines.parse().ok());
    lines.unwrap_or(60)
}

/// The seeds to run: these, unless given.
pub(crate) fn seeds_or(usual: Range<u64>) -> Range<u64> {
    range_of("CINNABAR_SEEDS").unwrap_or(usual)
}

/// The range of numbers that this variable holds, if it is set.
pub(crate) fn range_of(variable: &str) -> Option<Range<u64>> {
    let text = std::env::var(variable).ok()?;
    let (first, end) = text.split_once("..").expect("the variable is first..end");
    Some(first.parse().expect("a number")..end.parse().expect("a number"))
}

#[test]
fn no_seed_breaks_a_promise() {
    let mut sum = Report::default();
    let mut failures = Vec::new();
    for seed in seeds_or(SEEDS) {
        match run(seed, &options(), &mut ShardedFactory) {
            Ok(report) => sum = sum.plus(report),
            Err(failed) => failures.push(failed),
        }
    }
    for failed in &failures {
        println!("seed {}: {}", failed.seed, failed.violation);
    }
    if let Some(first) = failures.first() {
        panic!("{} seeds failed, the first: {first}", failures.len());
    }
    println!("{sum:#?}");
    if seeds_or(SEEDS) == SEEDS {
        check_coverage(&sum);
    }
}

/// What never happened was not tested.
fn check_coverage(sum: &Report) {
    let met = [
        ("read hits", sum.read_hits),
        ("misses", sum.misses),
        ("partial hits", sum.partial_hits),
        ("incomplete blocks read", sum.partials_read),
        ("blocks completed by writes", sum.partials_completed),
        ("ghost hits", sum.ghost_hits),
        ("evictions", sum.evicted_blocks),
        ("reinserted blocks", sum.reinserted_blocks),
        ("rotten blocks read", sum.rotten_reads),
        ("checksum failures", sum.checksum_failures),
        ("backend errors", sum.backend_errors),
        ("cache errors", sum.cache_errors),
        ("failed requests", sum.failed),
        ("refused requests", sum.refused),
        ("plans", sum.plans),
        ("detaches", sum.detaches),
        ("stops", sum.stops),
        ("crashes", sum.crashes),
        ("foreign writes", sum.foreign_writes),
        ("blocks believed", sum.warm_blocks),
        ("blocks dropped", sum.dropped_blocks),
    ];
    for (what, count) in met {
        assert!(count >= 20, "{what}: only {count}; {sum:#?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_actions() {
    for seed in 0..5 {
        let digest = || run(seed, &options(), &mut ShardedFactory).map(|r| r.digest);
        let (one, other) = (digest(), digest());
        assert_eq!(one.map_err(|failed| failed.seed), other.map_err(|failed| failed.seed));
    }
}
