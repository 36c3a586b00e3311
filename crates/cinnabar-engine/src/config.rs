//! How an engine is set up. Fixed while it runs; what can change at run time is a [`Plan`](crate::plan::Plan).

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
    /// Uses of a block on flash that are kept apart.
    pub(crate) const fn refs_max(self) -> u8 {
        match self {
            Self::Probation => 3,
            Self::Clock => 1,
        }
    }
}

/// How much of the SSD's endurance may be spent for hits: the price of a flash write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endurance {
    /// Flash writes hardly count: most of the room is used, and more is reinserted for that.
    Hits,
    /// Hits first, flash writes where they bring something (the default).
    #[default]
    Balanced,
    /// Flash writes are dear: written blocks have to be read soon, and little is reinserted.
    Save,
}

impl Endurance {
    /// Every one, by its price.
    pub const ALL: [Self; 3] = [Self::Hits, Self::Balanced, Self::Save];

    /// As in configurations and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hits => "hits",
            Self::Balanced => "balanced",
            Self::Save => "save",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|endurance| endurance.name() == name)
    }

    /// Flash writes that sparing one back-end read is worth. Where they hardly count it is no more:
    /// what is seldom read pushes out what is.
    pub(crate) const fn read_worth(self) -> u32 {
        match self {
            Self::Hits | Self::Balanced => 8,
            Self::Save => 2,
        }
    }

    /// Blocks reinserted for each slot of a segment emptied, in 256ths. Beyond that the log is given
    /// more air, below it less.
    pub(crate) const fn reinserted_256ths(self) -> u64 {
        match self {
            Self::Hits => 128,
            Self::Balanced => 77,
            Self::Save => 26,
        }
    }

    /// The least and the most of the capacity that is left for air, as divisors of it.
    pub(crate) const fn air_divisors(self) -> (u64, u64) {
        match self {
            Self::Hits => (64, 16),
            Self::Balanced => (32, 8),
            Self::Save => (16, 4),
        }
    }
}

/// How blocks are admitted while room is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// As thrifty, and a block that comes back has to wait in probation, too: a loop that does not fit
    /// can't push out the part of it that does.
    Closed,
    /// Through probation; written blocks only where their volume's history speaks for it.
    Thrifty,
    /// Through probation, reads and writes alike.
    Probation,
    /// Everything: also as long as nothing is known.
    #[default]
    Open,
}

impl Admission {
    /// Every one, the most thrifty first.
    pub const ALL: [Self; 4] = [Self::Closed, Self::Thrifty, Self::Probation, Self::Open];

    /// As in the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Thrifty => "thrifty",
            Self::Probation => "probation",
            Self::Open => "open",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|admission| admission.name() == name)
    }

    /// Whether written blocks need their volume's history to speak for them.
    pub(crate) const fn is_thrifty(self) -> bool {
        matches!(self, Self::Closed | Self::Thrifty)
    }
}

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Eviction scheme.
    pub eviction: Eviction,
    /// Price of a flash write. Of no effect with [`Eviction::Clock`].
    pub endurance: Endurance,
    /// How blocks are admitted while room is short, for comparisons; `None`: as small simulations beside
    /// the cache show to be best. Of no effect with [`Eviction::Clock`].
    pub admission: Option<Admission>,
    /// Blocks of RAM for probation; `None`: this shard's part of min(1 % of the device's capacity,
    /// 256 MiB).
    pub probation_blocks: Option<u32>,
    /// Longest time a block waits in a partly filled chunk before that is written, in ns.
    pub chunk_age_ns_max: u64,
    /// Keep the device recoverable after a crash: invalidation records, checkpoints, heartbeats. Without it a
    /// crash leaves the cache cold.
    pub crash_safe: bool,
    /// How often a volume that is being written has its backend flushed and its proof recorded,
    /// and the device what it was given, in ns. Design.md's "period".
    pub heartbeat_ns: u64,
    /// Each volume has a moment of the period of its own, by its name: hundreds of volumes that are
    /// attached at once are not all flushed at once, each period. The shards of a volume share it.
    pub heartbeats_apart: bool,
    /// Sizes of steps, batches and tables.
    pub bounds: Bounds,
    /// Deliberate bugs, for tests.
    pub mutants: Mutants,
}

/// Bytes of RAM that probation takes at most by default.
const PROBATION_BYTES_MAX: u64 = 256 << 20;

impl Config {
    /// Blocks of RAM for probation of each of so many shards with a capacity of so many blocks each,
    /// unless given. All shards share the most there is.
    pub(crate) const fn probation_for(capacity: u64, shards: u32) -> u64 {
        let most = PROBATION_BYTES_MAX / crate::units::BLOCK_BYTES / shards as u64;
        if capacity / 100 < most { capacity / 100 } else { most }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            eviction: Eviction::default(),
            endurance: Endurance::default(),
            admission: None,
            probation_blocks: None,
            chunk_age_ns_max: 1_000_000_000,
            crash_safe: true,
            heartbeat_ns: 1_000_000_000,
            heartbeats_apart: false,
            bounds: Bounds::default(),
            mutants: Mutants::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Config;

    #[test]
    fn shards_share_the_probation_of_a_device() {
        let blocks = |gib: u64| gib << 18;
        assert_eq!(Config::probation_for(blocks(10), 1), blocks(10) / 100);
        assert_eq!(Config::probation_for(blocks(100), 1), 256 << 8, "256 MiB at most");
        assert_eq!(Config::probation_for(blocks(100), 8), 256 << 5, "and no more with 8 shards");
        assert_eq!(Config::probation_for(blocks(1), 8), blocks(1) / 100);
    }
}
