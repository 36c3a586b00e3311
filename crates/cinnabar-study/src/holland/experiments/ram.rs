//! Result 6: use your RAM for other things.

use super::FLASH_GIB;
use crate::holland::{Across, Bound, Check, Experiment, Figure, Formula, Line, Quantity};
use crate::holland::{Setup, Target};
use crate::timed::Config;

const BLOCKS_PER_MIB: u64 = 256;
/// Caches in RAM, in MiB.
const RAMS_MIB: [u64; 8] = [0, 64, 256, 512, 1024, 2048, 4096, 8192];
/// Working sets: the two that are looked at most, and a small one.
const SETS_GIB: [u64; 3] = [60, 80, 5];

/// Mean read latency in microseconds: working set and flash in GiB, RAM in MiB.
const TARGETS_US: [(u64, u64, u64, f64); 12] = [
    (5, FLASH_GIB, 8192, 250.0),
    (5, FLASH_GIB, 4096, 273.0),
    (5, FLASH_GIB, 1024, 303.0),
    (5, FLASH_GIB, 256, 311.0),
    (5, FLASH_GIB, 64, 317.0),
    (5, FLASH_GIB, 0, 314.0),
    (5, 0, 8192, 250.0),
    (5, 0, 4096, 502.0),
    (5, 0, 1024, 802.0),
    (5, 0, 256, 906.0),
    (60, FLASH_GIB, 8192, 411.0),
    (60, FLASH_GIB, 256, 418.0),
];

pub(super) fn experiment(setup: Setup) -> Experiment {
    let mut lines = Vec::new();
    for set in SETS_GIB {
        for flash in [FLASH_GIB, 0] {
            lines.push(line(setup, set, flash));
        }
    }
    let reads = Figure {
        slug: "read-by-ram",
        title: "Read latency by RAM size (60, 80 and 5 GB)".to_owned(),
        across: Across::Bytes("RAM"),
        quantity: Quantity::ReadLatency,
        lines,
    };
    let writes = reads.showing(
        "write-by-ram",
        "Write latency by RAM size (60, 80 and 5 GB)",
        Quantity::WriteLatency,
    );
    Experiment {
        name: "ram",
        title: "Use your RAM for other things, maybe even for small workloads",
        published: "Behind a large flash cache a file cache in RAM of a few hundred megabytes \
            does nearly what one of gigabytes does; it has to be there, for writes.",
        claim: Some(6),
        figures: vec![reads, writes],
        checks: [(60, 0.03), (5, 0.30)]
            .map(|(set, most)| Check {
                what: format!("256 MB of RAM instead of 8 GB raise mean read latency at {set} GB"),
                quantity: Quantity::ReadLatency,
                formula: Formula::Rise {
                    of: with_ram(setup, set, FLASH_GIB, 256),
                    over: with_ram(setup, set, FLASH_GIB, 8192),
                },
                bound: Some(Bound::AtMost(most)),
            })
            .to_vec(),
        targets: targets(setup),
    }
}

fn with_ram(setup: Setup, set_gib: u64, flash_gib: u64, ram_mib: u64) -> Config {
    Config { ram_blocks: ram_mib * BLOCKS_PER_MIB, ..setup.sized(set_gib, flash_gib) }
}

fn line(setup: Setup, set_gib: u64, flash_gib: u64) -> Line {
    let flash = if flash_gib == 0 { "no flash" } else { "64 GB flash" };
    let point = |ram: u64| {
        let config = with_ram(setup, set_gib, flash_gib, ram);
        ((ram << 20) as f64, size(ram), config)
    };
    Line::new(format!("{set_gib} GB, {flash}"), RAMS_MIB.map(point))
}

fn size(mib: u64) -> String {
    match mib {
        0 => "none".to_owned(),
        1..1024 => format!("{mib} MB"),
        _ => format!("{} GB", mib / 1024),
    }
}

fn targets(setup: Setup) -> Vec<Target> {
    let target = |(set, flash, ram, us)| {
        let with = if flash == 0 { "no flash" } else { "64 GB flash" };
        let what = format!("{set} GB, {with}, RAM {}", size(ram));
        Target::read(what, &with_ram(setup, set, flash, ram), us)
    };
    TARGETS_US.map(target).to_vec()
}
