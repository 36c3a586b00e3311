//! Result 2: the write-back policy does not matter; latency by policy of RAM and of flash.

use super::{BASE_SETS_GIB, FLASH_GIB};
use crate::holland::{Across, Bound, Check, Experiment, Figure, Formula, Line, Quantity};
use crate::holland::{Setup, Target};
use crate::timed::Config;
use crate::timed::config::WritePolicy::{self, Async, Never, Periodic, Sync};

/// Every policy, of RAM and of flash.
const POLICIES: [WritePolicy; 7] =
    [Sync, Async, Periodic(1), Periodic(5), Periodic(15), Periodic(30), Never];

pub(super) fn experiment(setup: Setup) -> Experiment {
    let figures = [
        (60, Quantity::ReadLatency, "read-by-policy-60", "Read latency by policy (60 GB)"),
        (80, Quantity::ReadLatency, "read-by-policy-80", "Read latency by policy (80 GB)"),
        (60, Quantity::WriteLatency, "write-by-policy-60", "Write latency by policy (60 GB)"),
        (80, Quantity::WriteLatency, "write-by-policy-80", "Write latency by policy (80 GB)"),
    ];
    Experiment {
        name: "policies",
        title: "The write-back policy does not matter",
        published: "Whether RAM and flash write through, in the background, or back every few \
            seconds makes next to no difference to reads. Writes are as quick as RAM, as long as \
            RAM does not write synchronously and something cleans it.",
        claim: Some(2),
        figures: figures
            .into_iter()
            .map(|(set, quantity, slug, title)| Figure {
                slug,
                title: title.to_owned(),
                across: Across::Names("flash"),
                quantity,
                lines: POLICIES.into_iter().map(|ram| line(setup, set, ram)).collect(),
            })
            .collect(),
        checks: BASE_SETS_GIB.into_iter().map(|set| check(setup, set)).collect(),
        targets: [targets_of(setup, &AT_60), targets_of(setup, &AT_80), one_write_at_a_time(setup)]
            .concat(),
    }
}

fn line(setup: Setup, set_gib: u64, ram: WritePolicy) -> Line {
    let point =
        |flash: WritePolicy| (0.0, format!("flash {flash}"), pair(setup, set_gib, ram, flash));
    Line::new(format!("RAM {ram}"), POLICIES.map(point))
}

fn pair(setup: Setup, set_gib: u64, ram: WritePolicy, flash: WritePolicy) -> Config {
    Config { ram_policy: ram, flash_policy: Some(flash), ..setup.sized(set_gib, FLASH_GIB) }
}

fn is_periodic(policy: WritePolicy) -> bool {
    matches!(policy, Periodic(_))
}

/// RAM `a` and all `pN`, by flash `a`, all `pN` and `n`.
fn check(setup: Setup, set_gib: u64) -> Check {
    let mut all = Vec::new();
    for ram in POLICIES.into_iter().filter(|ram| is_periodic(*ram) || *ram == Async) {
        for flash in POLICIES.into_iter().filter(|flash| *flash != Sync) {
            all.push(pair(setup, set_gib, ram, flash));
        }
    }
    Check {
        what: format!(
            "spread of mean read latency at {set_gib} GB over RAM a and pN by flash a, pN and n"
        ),
        quantity: Quantity::ReadLatency,
        formula: Formula::Spread(all),
        bound: Some(Bound::AtMost(0.02)),
    }
}

/// What was found at one size: read latency from, to, and write latency, in microseconds.
struct Found {
    set_gib: u64,
    /// RAM `a` and `pN`, by flash `a`, `pN` and `n`; and RAM `a` by flash `s`.
    relaxed: (f64, f64, f64),
    /// RAM `s`, by flash `a` and `pN`; by `n`; by `s`.
    sync: [(f64, f64); 3],
    /// RAM `n`, by the same.
    never: [(f64, f64); 3],
}

const AT_60: Found = Found {
    set_gib: 60,
    relaxed: (410.0, 411.0, 0.4),
    sync: [(411.0, 21.4), (410.0, 45.5), (411.0, 168.0)],
    never: [(410.0, 6.5), (417.0, 13.9), (453.0, 56.0)],
};
const AT_80: Found = Found {
    set_gib: 80,
    relaxed: (515.0, 516.0, 0.4),
    sync: [(516.0, 21.4), (516.0, 56.4), (516.0, 167.0)],
    never: [(513.0, 6.5), (524.0, 17.4), (556.0, 54.0)],
};

fn targets_of(setup: Setup, found: &Found) -> Vec<Target> {
    let mut targets = Vec::new();
    for ram in POLICIES {
        for flash in POLICIES {
            let by_flash = |row: [(f64, f64); 3]| match flash {
                Never => row[1],
                Sync => row[2],
                _ => row[0],
            };
            let (low, high, write) = match ram {
                // Known at 60 GB only; see below.
                Periodic(_) if flash == Sync => continue,
                Periodic(_) | Async => found.relaxed,
                Sync => both(by_flash(found.sync)),
                Never => both(by_flash(found.never)),
            };
            let config = pair(setup, found.set_gib, ram, flash);
            targets.extend(latencies(found.set_gib, &config, (low, high), (write, write)));
        }
    }
    targets
}

fn both((read, write): (f64, f64)) -> (f64, f64, f64) {
    (read, read, write)
}

/// RAM `pN` by flash `s`, with eight writes of a syncer at a time and with one.
fn one_write_at_a_time(setup: Setup) -> Vec<Target> {
    let mut targets = Vec::new();
    for ram in POLICIES.into_iter().filter(|ram| is_periodic(*ram)) {
        let eight = pair(setup, 60, ram, Sync);
        let one = Config { syncer_depth: 1, ..eight };
        targets.extend(latencies(60, &eight, (411.0, 411.0), (0.4, 0.4)));
        targets.extend(latencies(60, &one, (418.0, 421.0), (17.0, 20.0)));
    }
    targets
}

fn latencies(
    set_gib: u64,
    config: &Config,
    read_us: (f64, f64),
    write_us: (f64, f64),
) -> [Target; 2] {
    let depth = config.syncer_depth;
    let depth = if depth == 8 { String::new() } else { format!(", syncer depth {depth}") };
    let what =
        format!("{set_gib} GB, RAM {}, flash {}{depth}", config.ram_policy, config.flash_policy());
    let target = |quantity: Quantity, (low, high)| {
        Target::between(format!("{what}: {}", quantity.label()), config, quantity, low, high)
    };
    [target(Quantity::ReadLatency, read_us), target(Quantity::WriteLatency, write_us)]
}
