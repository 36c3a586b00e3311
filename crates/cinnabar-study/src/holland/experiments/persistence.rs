//! Result 4: persistence is nice, not critical.

use super::{FLASH_GIB, SETS_GIB, over_sets, read_over_sets};
use crate::holland::{Bound, Check, Experiment, Figure, Formula, Quantity, Setup, Target};
use crate::timed::Config;
use crate::timed::config::{Architecture, Restart};

/// Mean read latency in microseconds by working set, warm and cold.
const TARGETS_US: [(u64, f64, f64); 5] = [
    (20, 304.0, 564.0),
    (40, 308.0, 573.0),
    (60, 411.0, 581.0),
    (80, 516.0, 611.0),
    (120, 636.0, 680.0),
];
/// Where flash makes a difference at all: smaller working sets than these fit into RAM.
const SETS_BEYOND_RAM_GIB: [u64; 7] = [10, 20, 40, 60, 80, 120, 160];
/// What keeping the cache's index on flash costs, at worst: a second write for each.
const INDEX_FACTOR: f64 = 2.0;

pub(super) fn experiment(setup: Setup) -> Experiment {
    let lines = vec![
        over_sets("no flash", &SETS_GIB, |set| setup.sized(set, 0)),
        over_sets("cold flash", &SETS_GIB, |set| cold(setup, set)),
        over_sets("warm flash", &SETS_GIB, |set| setup.sized(set, FLASH_GIB)),
        over_sets("warm flash, writes to it twice as slow", &SETS_GIB, |set| Config {
            flash_write_factor: INDEX_FACTOR,
            ..setup.sized(set, FLASH_GIB)
        }),
    ];
    Experiment {
        name: "persistence",
        title: "Persistence is nice, not critical",
        published: "A flash cache that is empty after a restart is better than none; one that \
            keeps what it had is better still, and what that costs at run time is not seen.",
        claim: Some(4),
        figures: vec![
            read_over_sets(
                "read-by-persistence",
                "Read latency by working-set size, with persistence",
                lines,
            ),
            index_cost(setup),
        ],
        checks: checks(setup),
        targets: targets(setup),
    }
}

/// Cold as after a crash of the host would be: but RAM is warm, as in the model of the targets.
fn cold(setup: Setup, set_gib: u64) -> Config {
    Config { restart: Restart::Cold { ram_too: false }, ..setup.sized(set_gib, FLASH_GIB) }
}

fn with_index(setup: Setup, architecture: Architecture, set_gib: u64, factor: f64) -> Config {
    let config = setup.sized(set_gib, FLASH_GIB);
    Config { architecture, flash_write_factor: factor, ..config }
}

fn index_cost(setup: Setup) -> Figure {
    let line = |kind: Architecture, factor: f64| {
        let name = format!("{kind}{}", if factor > 1.0 { ", index kept" } else { "" });
        over_sets(&name, &SETS_GIB, |set| with_index(setup, kind, set, factor))
    };
    let lines = vec![
        line(Architecture::Naive, 1.0),
        line(Architecture::Naive, INDEX_FACTOR),
        line(Architecture::Unified, 1.0),
        line(Architecture::Unified, INDEX_FACTOR),
    ];
    read_over_sets("", "", lines).showing(
        "write-by-persistence",
        "Write latency by working-set size, with persistence",
        Quantity::WriteLatency,
    )
}

fn checks(setup: Setup) -> Vec<Check> {
    let below = |what: String, of: Config, to: Config| Check {
        what,
        quantity: Quantity::ReadLatency,
        formula: Formula::Ratio { of, to },
        bound: Some(Bound::Below(1.0)),
    };
    let mut checks = Vec::new();
    for set in SETS_BEYOND_RAM_GIB {
        let cold = cold(setup, set);
        let what = format!("mean read latency at {set} GB, cold flash over none");
        checks.push(below(what, cold, setup.sized(set, 0)));
        let what = format!("mean read latency at {set} GB, warm flash over cold");
        checks.push(below(what, setup.sized(set, FLASH_GIB), cold));
    }
    checks
}

fn targets(setup: Setup) -> Vec<Target> {
    let mut targets = Vec::new();
    for (set, warm_us, cold_us) in TARGETS_US {
        let warm = setup.sized(set, FLASH_GIB);
        targets.push(Target::read(format!("{set} GB, warm"), &warm, warm_us));
        targets.push(Target::read(format!("{set} GB, cold"), &cold(setup, set), cold_us));
        let slow = with_index(setup, Architecture::Naive, set, INDEX_FACTOR);
        let what = format!("{set} GB, writes to flash of 42 us");
        targets.push(Target::read(what, &slow, warm_us));
    }
    for (factor, us) in [(1.0, 18.7), (INDEX_FACTOR, 37.4)] {
        let config = with_index(setup, Architecture::Unified, 60, factor);
        let what = format!("60 GB, unified, writes to flash of {:.0} us: writes", 21.0 * factor);
        targets.push(Target::write(what, &config, us));
    }
    targets
}
