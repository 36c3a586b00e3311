//! Latency by the share of writes.

use super::{BASE_SETS_GIB, FLASH_GIB};
use crate::holland::{Across, Check, Experiment, Figure, Formula, Line, Quantity, Setup, Target};
use crate::timed::Config;

/// Shares of writes, in per cent.
const PERCENTS: [u32; 9] = [10, 20, 30, 40, 50, 60, 70, 80, 90];
/// Up to there the targets reach.
const TARGET_PERCENT_MAX: u32 = 70;
/// Read latency in microseconds by working set: it is flat.
const TARGETS_US: [(u64, f64, f64); 2] = [(60, 406.0, 413.0), (80, 512.0, 522.0)];

pub(super) fn experiment(setup: Setup) -> Experiment {
    let mut lines = Vec::new();
    for set in BASE_SETS_GIB {
        for flash in [FLASH_GIB, 0] {
            lines.push(line(setup, set, flash));
        }
    }
    let reads = Figure {
        slug: "read-by-write-share",
        title: "Read latency by write percentage".to_owned(),
        across: Across::Share("writes"),
        quantity: Quantity::ReadLatency,
        lines,
    };
    let writes = reads.showing(
        "write-by-write-share",
        "Write latency by write percentage",
        Quantity::WriteLatency,
    );
    Experiment {
        name: "write-share",
        title: "Latency by write percentage",
        published: "Reads take as long, however many of the others are writes.",
        claim: None,
        figures: vec![reads, writes],
        checks: BASE_SETS_GIB.map(|set| spread(setup, set)).to_vec(),
        targets: targets(setup),
    }
}

fn writing(setup: Setup, set_gib: u64, flash_gib: u64, percent: u32) -> Config {
    Config { write_share: f64::from(percent) / 100.0, ..setup.sized(set_gib, flash_gib) }
}

fn line(setup: Setup, set_gib: u64, flash_gib: u64) -> Line {
    let flash = if flash_gib == 0 { "no flash" } else { "64 GB flash" };
    let point = |percent: u32| {
        let config = writing(setup, set_gib, flash_gib, percent);
        (f64::from(percent) / 100.0, format!("{percent} %"), config)
    };
    Line::new(format!("{set_gib} GB, {flash}"), PERCENTS.map(point))
}

fn spread(setup: Setup, set_gib: u64) -> Check {
    let all = PERCENTS.map(|percent| writing(setup, set_gib, FLASH_GIB, percent));
    Check {
        what: format!("spread of mean read latency at {set_gib} GB over 10 to 90 % writes"),
        quantity: Quantity::ReadLatency,
        formula: Formula::Spread(all.to_vec()),
        bound: None,
    }
}

fn targets(setup: Setup) -> Vec<Target> {
    let mut targets = Vec::new();
    for (set, low, high) in TARGETS_US {
        for percent in PERCENTS.into_iter().filter(|percent| *percent <= TARGET_PERCENT_MAX) {
            let what = format!("{set} GB, {percent} % writes");
            let config = writing(setup, set, FLASH_GIB, percent);
            targets.push(Target::between(what, &config, Quantity::ReadLatency, low, high));
        }
    }
    targets
}
