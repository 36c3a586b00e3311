//! Result 1: a flash cache is a win; read latency by the size of the working set.

use super::{BASE_SETS_GIB, FLASH_GIB, SETS_GIB, over_sets, read_over_sets};
use crate::holland::{Bound, Check, Experiment, Formula, Quantity, Setup, Target};
use crate::timed::Config;

/// Working sets of the first figure, in GiB.
const ALL_SETS_GIB: [u64; 9] = [5, 10, 20, 40, 60, 80, 120, 160, 320];
/// Flash caches, in GiB; 0 is none.
const FLASHES_GIB: [u64; 4] = [0, 32, 64, 128];
/// Shares of reads that the file server has read ahead.
const FAST_SHARES: [f64; 3] = [0.8, 0.9, 0.95];

/// Mean read latency in microseconds, by working set and flash cache, in the order above.
const TARGETS_US: [[f64; 4]; 9] = [
    [250.0, 250.0, 250.0, 250.0],
    [497.0, 278.0, 278.0, 278.0],
    [702.0, 307.0, 304.0, 304.0],
    [805.0, 518.0, 308.0, 306.0],
    [841.0, 640.0, 411.0, 304.0],
    [864.0, 711.0, 516.0, 298.0],
    [890.0, 779.0, 636.0, 393.0],
    [898.0, 813.0, 698.0, 497.0],
    [914.0, 868.0, 807.0, 684.0],
];
/// The same at 60 GB by the share read ahead: without flash, with 64 GB of it.
const FAST_TARGETS_US: [[f64; 2]; 3] = [[1556.0, 716.0], [841.0, 411.0], [500.0, 261.0]];
/// Shares of blocks read at 60 GB with 64 GB of flash, in per cent.
const HIT_TARGETS: [(Quantity, f64); 3] =
    [(Quantity::RamHits, 8.7), (Quantity::FlashHits, 52.3), (Quantity::Misses, 39.0)];

pub(super) fn experiment(setup: Setup) -> Experiment {
    let by_flash = FLASHES_GIB
        .map(|flash| over_sets(&flash_name(flash), &ALL_SETS_GIB, |set| setup.sized(set, flash)));
    let mut by_share = Vec::new();
    for share in FAST_SHARES {
        for flash in [0, FLASH_GIB] {
            let name = format!("{:.0} % read ahead, {}", share * 100.0, flash_name(flash));
            by_share.push(over_sets(&name, &SETS_GIB, |set| fast(setup, set, flash, share)));
        }
    }
    Experiment {
        name: "working-set",
        title: "The flash cache is a win",
        published: "A flash cache of the client cuts the latency of reads for working sets that \
            are too large for its RAM, and up to beyond the size of the flash.",
        claim: Some(1),
        figures: vec![
            read_over_sets(
                "read-by-working-set",
                "Read latency by working-set size and flash size",
                by_flash.to_vec(),
            ),
            read_over_sets(
                "read-by-working-set-prefetch",
                "Read latency by working-set size, with prefetch by the file server",
                by_share,
            ),
        ],
        checks: checks(setup),
        targets: targets(setup),
    }
}

fn fast(setup: Setup, set_gib: u64, flash_gib: u64, fast_read_share: f64) -> Config {
    Config { fast_read_share, ..setup.sized(set_gib, flash_gib) }
}

fn flash_name(gib: u64) -> String {
    if gib == 0 { "no flash".to_owned() } else { format!("{gib} GB flash") }
}

fn checks(setup: Setup) -> Vec<Check> {
    let cut = |(set, least): (u64, f64)| Check {
        what: format!("64 GB of flash cut mean read latency at {set} GB"),
        quantity: Quantity::ReadLatency,
        formula: Formula::Cut { with: setup.sized(set, FLASH_GIB), without: setup.sized(set, 0) },
        bound: Some(Bound::AtLeast(least)),
    };
    BASE_SETS_GIB.into_iter().zip([0.40, 0.35]).map(cut).collect()
}

fn targets(setup: Setup) -> Vec<Target> {
    let mut targets = Vec::new();
    for (set, row) in ALL_SETS_GIB.into_iter().zip(TARGETS_US) {
        for (flash, us) in FLASHES_GIB.into_iter().zip(row) {
            let what = format!("{set} GB, {}", flash_name(flash));
            targets.push(Target::read(what, &setup.sized(set, flash), us));
        }
    }
    for (share, row) in FAST_SHARES.into_iter().zip(FAST_TARGETS_US) {
        for (flash, us) in [0, FLASH_GIB].into_iter().zip(row) {
            let what = format!("60 GB, {}, {:.0} % read ahead", flash_name(flash), share * 100.0);
            targets.push(Target::read(what, &fast(setup, 60, flash, share), us));
        }
    }
    for (quantity, percent) in HIT_TARGETS {
        let what = format!("60 GB, 64 GB flash: {}", quantity.label());
        targets.push(Target::percent(what, &setup.base(), quantity, percent));
    }
    targets
}
