//! What writes do to a simulated cache, and what is counted.

use std::fmt;
use std::str::FromStr;

/// What a write does to the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// The same as a read: what hit-ratio simulators do. Flash is written when a block comes in.
    #[default]
    AsReads,
    /// Write-through: the written block is cached, or refreshed, and written to the backend.
    Through,
    /// Write-around: the written block is dropped from the cache.
    Around,
    /// Write-back: the written block is cached, dirty, and written to the backend when it is evicted.
    Back,
}

impl Writes {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::AsReads, Self::Through, Self::Around, Self::Back];

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AsReads => "as-reads",
            Self::Through => "through",
            Self::Around => "around",
            Self::Back => "back",
        }
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No such way to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no way to write is called `{0}`: there are as-reads, through, around, back")]
pub struct UnknownWrites(String);

impl FromStr for Writes {
    type Err = UnknownWrites;

    fn from_str(name: &str) -> Result<Self, UnknownWrites> {
        let found = Self::ALL.into_iter().find(|writes| writes.name() == name);
        found.ok_or_else(|| UnknownWrites(name.to_owned()))
    }
}

/// What a simulation counted; blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of accesses.
    pub references: u64,
    /// Accesses whose block was not cached when they came; a write-around that drops a block is
    /// not one.
    pub misses: u64,
    /// Reads; all accesses if writes are as reads.
    pub read_references: u64,
    /// Reads whose block was not cached.
    pub read_misses: u64,
    /// Blocks written to flash: those that came in, and refreshed ones.
    pub flash_writes: u64,
    /// Blocks written to the backend, because they were written to or because they were evicted
    /// dirty.
    pub backend_writes: u64,
    /// Blocks still dirty at the end.
    pub dirty: u64,
}
