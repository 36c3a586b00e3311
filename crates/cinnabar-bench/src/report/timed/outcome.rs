//! What is told of a point: the contract of `--json`, of the CSV file, and of what is kept for a
//! resumption. Keys are only ever added.

use cinnabar_study::timed::{Latency, Outcome};
use serde::{Deserialize, Serialize};

/// What requests of a kind took.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

/// What is told of a point; of its measured part, but for the last two.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PointStats {
    pub(crate) reads: Times,
    pub(crate) writes: Times,
    pub(crate) ram_share: f64,
    pub(crate) flash_share: f64,
    pub(crate) miss_share: f64,
    pub(crate) invalidation_share: f64,
    pub(crate) filer_reads: u64,
    pub(crate) filer_writes: u64,
    pub(crate) flash_reads: u64,
    pub(crate) flash_writes: u64,
    pub(crate) prefetched: u64,
    pub(crate) dirty_evictions_ram: u64,
    pub(crate) dirty_evictions_flash: u64,
    pub(crate) simulated_s: f64,
    pub(crate) block_ios: u64,
    pub(crate) digest: String,
}

impl Times {
    fn new(latency: &Latency) -> Self {
        Self {
            count: latency.count(),
            mean_us: short(latency.mean_ns() / 1e3),
            p50_us: short(latency.percentile_ns(50.0) as f64 / 1e3),
            p99_us: short(latency.percentile_ns(99.0) as f64 / 1e3),
            max_us: short(latency.max_ns() as f64 / 1e3),
        }
    }
}

/// Nanoseconds of microseconds; what is written and read again stays the same then.
fn short(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn share(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

impl PointStats {
    /// What is told of an outcome, rounded as it is written.
    pub fn new(outcome: &Outcome) -> Self {
        Self {
            reads: Times::new(&outcome.reads),
            writes: Times::new(&outcome.writes),
            ram_share: share(outcome.ram_share()),
            flash_share: share(outcome.flash_share()),
            miss_share: share(outcome.miss_share()),
            invalidation_share: share(outcome.invalidation_share()),
            filer_reads: outcome.filer_reads,
            filer_writes: outcome.filer_writes,
            flash_reads: outcome.flash_reads,
            flash_writes: outcome.flash_writes,
            prefetched: outcome.prefetched,
            dirty_evictions_ram: outcome.dirty_evictions_ram,
            dirty_evictions_flash: outcome.dirty_evictions_flash,
            simulated_s: share(outcome.simulated_ns as f64 / 1e9),
            block_ios: outcome.block_ios,
            digest: format!("{:016x}", outcome.digest),
        }
    }

    /// The mean of all requests, in microseconds.
    pub(crate) fn mean_us(&self) -> f64 {
        let sum = |times: &Times| times.mean_us * times.count as f64;
        let count = self.reads.count + self.writes.count;
        if count == 0 { 0.0 } else { (sum(&self.reads) + sum(&self.writes)) / count as f64 }
    }

    /// The columns of the CSV file, by name.
    pub(crate) fn columns(&self) -> Vec<(&'static str, String)> {
        let times = |names: [&'static str; 5], times: &Times| {
            let Times { count, mean_us, p50_us, p99_us, max_us } = times;
            let values = [
                count.to_string(),
                mean_us.to_string(),
                p50_us.to_string(),
                p99_us.to_string(),
                max_us.to_string(),
            ];
            names.into_iter().zip(values).collect::<Vec<_>>()
        };
        let reads = ["reads", "read_mean_us", "read_p50_us", "read_p99_us", "read_max_us"];
        let writes = ["writes", "write_mean_us", "write_p50_us", "write_p99_us", "write_max_us"];
        let mut columns = times(reads, &self.reads);
        columns.extend(times(writes, &self.writes));
        columns.extend([
            ("ram_share", self.ram_share.to_string()),
            ("flash_share", self.flash_share.to_string()),
            ("miss_share", self.miss_share.to_string()),
            ("invalidation_share", self.invalidation_share.to_string()),
            ("filer_reads", self.filer_reads.to_string()),
            ("filer_writes", self.filer_writes.to_string()),
            ("flash_reads", self.flash_reads.to_string()),
            ("flash_writes", self.flash_writes.to_string()),
            ("prefetched", self.prefetched.to_string()),
            ("dirty_evictions_ram", self.dirty_evictions_ram.to_string()),
            ("dirty_evictions_flash", self.dirty_evictions_flash.to_string()),
            ("simulated_s", self.simulated_s.to_string()),
            ("block_ios", self.block_ios.to_string()),
            ("digest", self.digest.clone()),
        ]);
        columns
    }
}
