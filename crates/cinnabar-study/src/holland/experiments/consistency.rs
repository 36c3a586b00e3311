//! Result 5: consistency matters; two hosts that share a working set.

use super::{FLASH_GIB, over_sets, read_over_sets};
use crate::holland::{Across, Bound, Check, Experiment, Figure, Formula, Line, Quantity};
use crate::holland::{Setup, Target};
use crate::timed::Config;

/// By share of writes in per cent: invalidations without flash and with 64 GB, in per cent; read
/// latency with flash in microseconds.
const BY_WRITES: [(u32, f64, f64, f64); 5] = [
    (10, 8.7, 59.5, 423.0),
    (30, 8.7, 55.8, 453.0),
    (50, 8.7, 51.4, 493.0),
    (70, 8.6, 46.8, 533.0),
    (90, 8.6, 42.7, 574.0),
];
/// By working set in GiB: invalidations without flash and with 64 GB, in per cent.
const BY_SET: [(u64, f64, f64); 6] = [
    (5, 58.5, 58.5),
    (20, 24.6, 58.7),
    (40, 12.8, 59.4),
    (60, 8.7, 55.8),
    (80, 6.6, 46.8),
    (120, 4.5, 34.0),
];
/// Working sets of the figures.
const SETS_GIB: [u64; 7] = [5, 10, 20, 40, 60, 80, 120];

pub(super) fn experiment(setup: Setup) -> Experiment {
    let by_writes = Figure {
        slug: "invalidations-by-write-share",
        title: "Invalidations by write percentage (consistency)".to_owned(),
        across: Across::Share("writes"),
        quantity: Quantity::Invalidations,
        lines: [0, FLASH_GIB].map(|flash| over_writes(setup, flash)).to_vec(),
    };
    let lines = [0, FLASH_GIB]
        .map(|flash| over_sets(name(flash), &SETS_GIB, |set| shared(setup, set, flash, 30)));
    let by_set = read_over_sets(
        "read-by-working-set-shared",
        "Read latency by working-set size (consistency)",
        lines.to_vec(),
    );
    let reads_by_writes = by_writes.showing(
        "read-by-write-share-shared",
        "Read latency by write percentage (consistency)",
        Quantity::ReadLatency,
    );
    let invalidations = by_set.showing(
        "invalidations-by-working-set",
        "Invalidations by working-set size (consistency)",
        Quantity::Invalidations,
    );
    Experiment {
        name: "consistency",
        title: "Consistency matters",
        published: "Caches this large hold on to what other hosts write: with flash many times \
            as many writes have to invalidate another host's copy, so that a scheme for consistency \
            is used all the time.",
        claim: Some(5),
        figures: vec![by_writes, reads_by_writes, invalidations, by_set],
        checks: vec![Check {
            what: "share of writes that need an invalidation at 60 GB, flash over none".to_owned(),
            quantity: Quantity::Invalidations,
            formula: Formula::Ratio {
                of: shared(setup, 60, FLASH_GIB, 30),
                to: shared(setup, 60, 0, 30),
            },
            bound: Some(Bound::AtLeast(5.0)),
        }],
        targets: targets(setup),
    }
}

fn name(flash_gib: u64) -> &'static str {
    if flash_gib == 0 { "no flash" } else { "64 GB flash" }
}

/// Two hosts with one working set.
fn shared(setup: Setup, set_gib: u64, flash_gib: u64, writes_percent: u32) -> Config {
    Config {
        hosts: 2,
        shared_set: true,
        write_share: f64::from(writes_percent) / 100.0,
        ..setup.sized(set_gib, flash_gib)
    }
}

fn over_writes(setup: Setup, flash_gib: u64) -> Line {
    let point = |(writes, ..): (u32, f64, f64, f64)| {
        let config = shared(setup, 60, flash_gib, writes);
        (f64::from(writes) / 100.0, format!("{writes} %"), config)
    };
    Line::new(name(flash_gib), BY_WRITES.map(point))
}

fn targets(setup: Setup) -> Vec<Target> {
    let mut targets = Vec::new();
    for (writes, none, flash, us) in BY_WRITES {
        for (gib, percent) in [(0, none), (FLASH_GIB, flash)] {
            let what = format!("60 GB, {writes} % writes, {}: invalidations", name(gib));
            let config = shared(setup, 60, gib, writes);
            targets.push(Target::percent(what, &config, Quantity::Invalidations, percent));
        }
        let what = format!("60 GB, {writes} % writes, 64 GB flash: reads");
        targets.push(Target::read(what, &shared(setup, 60, FLASH_GIB, writes), us));
    }
    for (set, none, flash) in BY_SET {
        for (gib, percent) in [(0, none), (FLASH_GIB, flash)] {
            let what = format!("{set} GB, 30 % writes, {}: invalidations", name(gib));
            let config = shared(setup, set, gib, 30);
            targets.push(Target::percent(what, &config, Quantity::Invalidations, percent));
        }
    }
    targets
}
