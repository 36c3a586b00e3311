//! Result 3: the naive architecture is fine.

use super::{FLASH_GIB, SETS_GIB, over_sets, read_over_sets};
use crate::holland::{Bound, Check, Experiment, Formula, Quantity, Setup, Target};
use crate::timed::Config;
use crate::timed::config::Architecture::{self, Lookaside, Naive, Unified};

const ARCHITECTURES: [Architecture; 3] = [Naive, Lookaside, Unified];

/// Mean read latency in microseconds by working set: naive and lookaside, unified.
const TARGETS_US: [(u64, f64, f64); 5] = [
    (20, 304.0, 313.0),
    (40, 308.0, 311.0),
    (60, 411.0, 369.0),
    (80, 516.0, 469.0),
    (120, 636.0, 600.0),
];
/// Mean write latency of unified, at each of them.
const UNIFIED_WRITE_US: f64 = 18.7;

pub(super) fn experiment(setup: Setup) -> Experiment {
    let lines = ARCHITECTURES
        .map(|kind| over_sets(&kind.to_string(), &SETS_GIB, |set| built(setup, kind, set)))
        .to_vec();
    let reads = read_over_sets(
        "read-by-architecture",
        "Read latency by working-set size, architectures",
        lines,
    );
    let writes = reads.showing(
        "write-by-architecture",
        "Write latency by working-set size, architectures",
        Quantity::WriteLatency,
    );
    Experiment {
        name: "architectures",
        title: "The naive architecture is fine",
        published: "Flash as one more layer below RAM is nearly as good as one cache over both; a \
            unified cache has room for a little more, and pays for it with slower writes.",
        claim: Some(3),
        figures: vec![reads, writes],
        checks: vec![Check {
            what: "mean read latency at 60 GB, naive over unified".to_owned(),
            quantity: Quantity::ReadLatency,
            formula: Formula::Ratio { of: built(setup, Naive, 60), to: built(setup, Unified, 60) },
            bound: Some(Bound::AtMost(1.15)),
        }],
        targets: targets(setup),
    }
}

fn built(setup: Setup, architecture: Architecture, set_gib: u64) -> Config {
    Config { architecture, ..setup.sized(set_gib, FLASH_GIB) }
}

fn targets(setup: Setup) -> Vec<Target> {
    let mut targets = Vec::new();
    for (set, layered_us, unified_us) in TARGETS_US {
        for (kind, us) in [(Naive, layered_us), (Lookaside, layered_us), (Unified, unified_us)] {
            let what = format!("{set} GB, {kind}");
            targets.push(Target::read(what, &built(setup, kind, set), us));
        }
        let what = format!("{set} GB, unified: writes");
        targets.push(Target::write(what, &built(setup, Unified, set), UNIFIED_WRITE_US));
    }
    targets
}
