//! What a simulation found.
//!
//! Everything but [`Outcome::digest`] and [`Outcome::events`] is of the measured part only.

use super::cinnabar::report::EngineReport;
pub use super::latency::Latency;

/// All results of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Reads, each a whole operation.
    pub reads: Latency,
    /// Writes, each a whole operation.
    pub writes: Latency,
    /// Blocks read that were in RAM, in flash, in neither.
    pub ram_hits: u64,
    /// See [`Outcome::ram_hits`].
    pub flash_hits: u64,
    /// See [`Outcome::ram_hits`].
    pub misses: u64,
    /// Blocks written.
    pub block_writes: u64,
    /// Blocks written of which another host had a copy.
    pub invalidating_writes: u64,
    /// Blocks that the file server read, those read ahead by a host among them.
    pub filer_reads: u64,
    /// Blocks that it wrote.
    pub filer_writes: u64,
    /// Blocks that hosts asked for behind a missed one.
    pub prefetched: u64,
    /// Blocks read from flash.
    pub flash_reads: u64,
    /// Blocks written to flash.
    pub flash_writes: u64,
    /// Dirty blocks evicted from RAM, and written back while a thread waited.
    pub dirty_evictions_ram: u64,
    /// Dirty blocks evicted from flash.
    pub dirty_evictions_flash: u64,
    /// What there is to tell of the production engine, where it is the flash cache.
    pub engine: Option<EngineReport>,
    /// Virtual time of the measured part, in nanoseconds.
    pub simulated_ns: u64,
    /// Blocks read and written from the start, the warm-up included.
    pub block_ios: u64,
    /// Events from the start, the warm-up included.
    pub events: u64,
    /// Folded from every event, its time and what it was about. Equal settings and seed give equal
    /// digests, on any machine.
    pub digest: u64,
}

impl Outcome {
    pub fn block_reads(&self) -> u64 {
        self.ram_hits + self.flash_hits + self.misses
    }

    /// Share of blocks read, 0 to 1, that were in RAM.
    pub fn ram_share(&self) -> f64 {
        ratio(self.ram_hits, self.block_reads())
    }

    /// Share of blocks read, 0 to 1, that were in flash and not in RAM.
    pub fn flash_share(&self) -> f64 {
        ratio(self.flash_hits, self.block_reads())
    }

    /// Share of blocks read, 0 to 1, that came from the file server's disks.
    pub fn miss_share(&self) -> f64 {
        ratio(self.misses, self.block_reads())
    }

    /// Share of blocks written, 0 to 1, of which another host had a copy.
    pub fn invalidation_share(&self) -> f64 {
        ratio(self.invalidating_writes, self.block_writes)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
