//! What a seed draws, and what all runs together must have met.

use cinnabar_placement::mutant::Mutants;
use cinnabar_placement::{Curve, Device, Devices, volume};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Longer than a run.
pub(crate) const NEVER_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) steps: u32,
    pub(crate) extents: u32,
    pub(crate) budget_extents: u64,
    pub(crate) volume: volume::Settings,
    /// Chances of each, a step or an operation.
    pub(crate) crash: f64,
    pub(crate) partition: f64,
    pub(crate) fails: f64,
    pub(crate) lost: f64,
    pub(crate) resize: f64,
    pub(crate) collect: f64,
    pub(crate) junk: f64,
    pub(crate) moves: f64,
    /// Requests of the guest at a time.
    pub(crate) depth: usize,
    pub(crate) reads: f64,
    /// Extents to which most requests go.
    pub(crate) hot: u32,
    /// Chance that a pool answers nothing for a while, a step.
    pub(crate) silent: f64,
    /// Chance that the fast pool has no room for an extent, or for any, a step.
    pub(crate) full: f64,
    /// A copy ends as changed when its source was written meanwhile.
    pub(crate) asserts: bool,
    /// A whole copy takes longer than patches.
    pub(crate) dear_copies: bool,
}

impl Settings {
    /// Whether each move comes to its end: nothing fails, or is silent.
    pub(crate) fn is_calm(&self) -> bool {
        self.fails == 0.0 && self.silent == 0.0 && self.volume.hold_max_ns == NEVER_NS
    }

    /// What the devices take: patches of some parts take less than a copy, or more.
    pub(crate) fn devices(&self) -> Devices {
        let curve = |ns| Curve::line(ns, 1e9).expect("times");
        let device = |ns, on| Device {
            read: curve(ns),
            write: curve(ns),
            read_on: curve(on),
            write_on: curve(on),
        };
        let on = if self.dear_copies { 3e7 } else { 1e5 };
        Devices::new(device(8e6, on), device(1e5, on)).expect("the fast one is faster")
    }

    pub(crate) fn drawn(seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x9e37_79b9);
        let chance = |rng: &mut Xoshiro256PlusPlus, max: f64| {
            let often: f64 = rng.random();
            if rng.random_bool(0.3) { 0.0 } else { often * often * max }
        };
        let [crash, partition, fails, resize, collect, junk] =
            [0.02, 0.02, 0.15, 0.03, 0.1, 0.05].map(|max| chance(&mut rng, max));
        let extents = rng.random_range(1..=6);
        let volume = volume::Settings {
            moves: rng.random_range(1..=4),
            copies: rng.random_range(1..=4),
            hold_ns: [0, 8_000_000, 20_000_000, 40_000_000][rng.random_range(0..4)],
            hold_max_ns: [2_000, 20_000, NEVER_NS][rng.random_range(0..3)],
            copy_bytes_per_s: if rng.random_bool(0.8) { u64::MAX >> 8 } else { 40_000_000_000 },
            mutants: Mutants::NONE,
        };
        let silent = chance(&mut rng, 0.01);
        let drawn = Self {
            steps: rng.random_range(200..900),
            extents,
            budget_extents: rng.random_range(0..=u64::from(extents)),
            volume,
            crash,
            partition,
            fails,
            lost: rng.random_range(0.0..0.6),
            resize,
            collect,
            junk,
            moves: rng.random_range(0.02..0.3),
            depth: rng.random_range(1..=8),
            reads: rng.random_range(0.1..0.7),
            hot: rng.random_range(1..=extents),
            silent,
            asserts: rng.random(),
            dear_copies: rng.random(),
            full: 0.0,
        };
        if rng.random_bool(0.75) {
            return drawn;
        }
        // Behind many owners that die, too: their late writes meet moves at once.
        Self { full: 0.05, crash: 0.02, lost: 0.1, ..drawn }
    }
}

/// What was met.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) crashes: u64,
    pub(crate) partitions: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) held: u64,
    pub(crate) copies: u64,
    pub(crate) patched: u64,
    pub(crate) promoted: u64,
    pub(crate) demoted: u64,
    pub(crate) given_up: u64,
    pub(crate) over_budget: u64,
    pub(crate) late: u64,
    pub(crate) kept_out: u64,
    pub(crate) grown: u64,
    pub(crate) shrunk: u64,
    pub(crate) collected: u64,
    pub(crate) fenced: u64,
    pub(crate) silences: u64,
    pub(crate) left: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, of: &Self) {
        let Self { crashes, partitions, reads, writes, held, copies, patched, promoted, .. } = of;
        self.crashes += crashes;
        self.partitions += partitions;
        self.reads += reads;
        self.writes += writes;
        self.held += held;
        self.copies += copies;
        self.patched += patched;
        self.promoted += promoted;
        let Self { demoted, given_up, over_budget, late, kept_out, .. } = of;
        self.demoted += demoted;
        self.given_up += given_up;
        self.over_budget += over_budget;
        self.late += late;
        self.kept_out += kept_out;
        let Self { grown, shrunk, collected, fenced, .. } = of;
        self.grown += grown;
        self.shrunk += shrunk;
        self.collected += collected;
        self.fenced += fenced;
        self.silences += of.silences;
        self.left += of.left;
    }

    /// A simulation that does not meet these proves nothing about them.
    pub(crate) fn check(&self) {
        let Self { crashes, partitions, reads, writes, held, copies, patched, promoted, .. } =
            *self;
        let Self { demoted, given_up, over_budget, late, kept_out, grown, shrunk, .. } = *self;
        for met in [crashes, partitions, reads, writes, held, copies, patched, promoted] {
            assert!(met > 100, "{self:?}");
        }
        for met in [demoted, given_up, over_budget, late, kept_out, grown, shrunk] {
            assert!(met > 100, "{self:?}");
        }
        for met in [self.collected, self.fenced, self.silences, self.left] {
            assert!(met > 100, "{self:?}");
        }
    }
}
