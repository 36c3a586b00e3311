//! Results of the engines other than hits and latencies.

/// Of all engines together, in the measured part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineReport {
    /// Of the blocks counted as hits in flash, those that the engines had in RAM of their own.
    pub ram_hits: u64,
    /// Blocks written of which the engine had a copy.
    pub write_hits: u64,
    /// Of the blocks written to flash, those of the index: pages of chunks, checkpoints, the journal.
    pub metadata_writes: u64,
    /// Writes that had to wait until a copy on flash was durably void.
    pub invalidation_waits: u64,
    /// Blocks cached at the end.
    pub cached_blocks: u64,
    /// Blocks that the engines' devices have room for.
    pub capacity_blocks: u64,
    /// The restart when measuring began, if there was one.
    pub restart: Option<Recovery>,
}

/// A restart of all engines; times are the longest of them, counts of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Blocks cached before, in RAM or on flash.
    pub before_blocks: u64,
    /// Blocks cached once the index was loaded.
    pub warm_blocks: u64,
    /// Metadata pages read for it.
    pub pages: u64,
    /// From the order to stop until the engine was stopped, in nanoseconds; 0 after a crash.
    pub stop_ns: u64,
    /// From there until guests were answered again.
    pub attach_ns: u64,
    /// From there until the index was loaded: until then requests pass through.
    pub load_ns: u64,
}

impl Recovery {
    /// Takes in another engine's.
    pub(super) fn add(&mut self, other: &Self) {
        self.before_blocks += other.before_blocks;
        self.warm_blocks += other.warm_blocks;
        self.pages += other.pages;
        self.stop_ns = self.stop_ns.max(other.stop_ns);
        self.attach_ns = self.attach_ns.max(other.attach_ns);
        self.load_ns = self.load_ns.max(other.load_ns);
    }
}
