//! How an engine is set up. Fixed for its life; what can change at run time is a [`Plan`](crate::plan::Plan).
//!
//! Called by drivers.

use crate::bounds::Bounds;
use crate::mutant::Mutants;

/// Which blocks earn flash, and which stay when room is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Probation in RAM, ghost, a hand that gives a block as many laps as it was used (the default).
    #[default]
    Probation,
    /// Every miss goes straight to flash; one use gives one lap.
    Clock,
}

impl Eviction {
    /// Uses of a block on flash that are told apart.
    pub(crate) const fn refs_max(self) -> u8 {
        match self {
            Self::Probation => 3,
            Self::Clock => 1,
        }
    }
}

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Eviction scheme.
    pub eviction: Eviction,
    /// Blocks of RAM for probation; `None`: min(1 % of the capacity, 256 MiB).
    pub probation_blocks: Option<u32>,
    /// Longest time a block waits in a partly filled chunk before that is written, in ns.
    pub chunk_age_ns_max: u64,
    /// Emit [`Action::Sample`](crate::Action::Sample) for each block access.
    pub sample: bool,
    /// Keep the device recoverable after a crash: marks, checkpoints, heartbeats. Without it a
    /// crash leaves the cache cold.
    pub crash_safe: bool,
    /// How often a volume that is being written has its backend flushed and its proof recorded,
    /// and the device what it was given, in ns. Design.md's "period".
    pub heartbeat_ns: u64,
    /// Sizes of steps, batches and tables.
    pub bounds: Bounds,
    /// Deliberate bugs, for tests.
    pub mutants: Mutants,
}

/// Bytes of RAM that probation takes at most by default.
const PROBATION_BYTES_MAX: u64 = 256 << 20;

impl Config {
    /// Blocks of RAM for probation of a cache of `capacity` blocks, unless somebody says otherwise.
    pub const fn probation_for(capacity: u64) -> u64 {
        let most = PROBATION_BYTES_MAX / crate::units::BLOCK_BYTES;
        if capacity / 100 < most { capacity / 100 } else { most }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            eviction: Eviction::default(),
            probation_blocks: None,
            chunk_age_ns_max: 1_000_000_000,
            sample: false,
            crash_safe: true,
            heartbeat_ns: 1_000_000_000,
            bounds: Bounds::default(),
            mutants: Mutants::default(),
        }
    }
}
