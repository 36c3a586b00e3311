//! What writes do to a simulated cache, and what is counted.

use crate::named;

named! {
    "way to write":
    /// What a write does to the cache.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Writes {
        /// The same as a read: what hit-ratio simulators do. Flash is written when a block comes in.
        #[default]
        AsReads = "as-reads",
        /// Write-through: the written block is cached, or refreshed, and written to the backend.
        Through = "through",
        /// Write-around: the written block is dropped from the cache.
        Around = "around",
        /// Write-back: the written block is cached, dirty, and written to the backend when it is evicted.
        Back = "back",
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
