//! Read latency by what a read from flash takes.

use super::{BASE_SETS_GIB, FLASH_GIB};
use crate::holland::{Across, Check, Experiment, Figure, Formula, Line, Quantity, Setup, Target};
use crate::timed::{Config, config::Timings};

/// What a read from flash takes, in microseconds, and mean read latency at 60 GB.
const TARGETS_US: [(u64, f64); 5] =
    [(22, 376.0), (44, 388.0), (88, 411.0), (176, 456.0), (352, 548.0)];

pub(super) fn experiment(setup: Setup) -> Experiment {
    let line = |set: u64| {
        let point =
            |(us, _): (u64, f64)| (us as f64 * 1e3, format!("{us} us"), timed(setup, set, us));
        Line::new(format!("{set} GB"), TARGETS_US.map(point))
    };
    Experiment {
        name: "flash-read-time",
        title: "Read latency by flash read time",
        published: "What a read from flash takes counts, but far less than it seems: most of the \
            time goes into what flash does not have.",
        claim: None,
        figures: vec![Figure {
            slug: "read-by-flash-read-time",
            title: "Read latency by flash read time".to_owned(),
            across: Across::Nanos("read from flash"),
            quantity: Quantity::ReadLatency,
            lines: BASE_SETS_GIB.map(line).to_vec(),
        }],
        checks: BASE_SETS_GIB.map(|set| four_times(setup, set)).to_vec(),
        targets: TARGETS_US
            .map(|(us, read_us)| {
                let what = format!("60 GB, reads from flash of {us} us");
                Target::read(what, &timed(setup, 60, us), read_us)
            })
            .to_vec(),
    }
}

fn timed(setup: Setup, set_gib: u64, flash_read_us: u64) -> Config {
    let config = setup.sized(set_gib, FLASH_GIB);
    Config { timings: Timings { flash_read_ns: flash_read_us * 1000, ..config.timings }, ..config }
}

fn four_times(setup: Setup, set_gib: u64) -> Check {
    Check {
        what: format!(
            "reads from flash of 352 us instead of 88 raise read latency at {set_gib} GB"
        ),
        quantity: Quantity::ReadLatency,
        formula: Formula::Rise { of: timed(setup, set_gib, 352), over: timed(setup, set_gib, 88) },
        bound: None,
    }
}
