//! What a simulation found.
//!
//! Everything but [`Outcome::digest`] and [`Outcome::events`] is of the measured part only.

use super::cinnabar::report::EngineReport;
use hdrhistogram::Histogram;

/// Significant digits of a percentile; the mean is exact.
const DIGITS: u8 = 3;

/// Latencies of one kind of operation.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    sum_ns: u128,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new(DIGITS).expect("0 to 5 digits");
        Self { histogram, sum_ns: 0 }
    }
}

impl Latency {
    #[inline]
    pub(super) fn record(&mut self, ns: u64) {
        self.sum_ns += u128::from(ns);
        self.histogram.record(ns).expect("it grows by itself to whatever a u64 can say");
    }

    /// Operations measured.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Their mean in nanoseconds; 0 without any.
    pub fn mean_ns(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { self.sum_ns as f64 / self.count() as f64 }
    }

    /// So many percent, 0 to 100, took at most so many nanoseconds, to three digits; 0 without any.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.histogram.value_at_quantile(percent / 100.0)
    }

    /// The longest, in nanoseconds, to three digits.
    pub fn max_ns(&self) -> u64 {
        self.histogram.max()
    }
}

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
    /// Blocks read.
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
