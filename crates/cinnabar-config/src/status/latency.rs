//! Latencies of one volume by operation: recorded by the data plane, summarised for the status.

use hdrhistogram::Histogram;

/// Upper bounds of the metrics buckets in us; a last bucket without a bound follows them.
/// From an SSD hit (tens of us) through a filer (ms) to a stall (seconds).
pub const BOUNDS_US: [u64; 20] = [
    10, 20, 50, 100, 200, 350, 500, 750, 1_000, 2_000, 3_500, 5_000, 7_500, 10_000, 20_000, 50_000,
    100_000, 500_000, 1_000_000, 10_000_000,
];

/// Longest latency told apart, in us: what is longer counts as this (100 s).
const LATENCY_US_MAX: u64 = 100_000_000;

/// What the data plane keeps for one operation of one volume (about 24 KiB).
pub struct LatencyRecorder {
    /// In us, two significant digits.
    histogram: Histogram<u64>,
    /// By [`BOUNDS_US`], the unbounded one last.
    buckets: [u64; BOUNDS_US.len() + 1],
    /// Exact sum in ns, for the mean.
    sum_ns: u64,
    bytes: u64,
}

/// Latencies of one operation since the volume was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencySummary {
    /// Operations.
    pub count: u64,
    /// Sum of all latencies in ns.
    pub sum_ns: u64,
    /// Bytes of data that they read or wrote.
    pub bytes: u64,
    /// Median in us, 0 without operations.
    pub p50_us: u64,
    /// 99th percentile in us, 0 without operations.
    pub p99_us: u64,
    /// Operations by [`BOUNDS_US`] (not cumulative), the unbounded bucket last.
    pub buckets: [u64; BOUNDS_US.len() + 1],
}

/// Latencies of one volume, from the arrival of a request to its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    pub read: LatencySummary,
    /// Writes, trims and zeroes.
    pub write: LatencySummary,
    /// Flushes.
    pub flush: LatencySummary,
}

impl LatencyRecorder {
    /// A recorder that has seen nothing.
    ///
    /// # Panics
    /// Never: the histogram's bounds are constants.
    #[must_use]
    pub fn new() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, LATENCY_US_MAX, 2).expect("constant bounds are valid");
        Self { histogram, buckets: [0; BOUNDS_US.len() + 1], sum_ns: 0, bytes: 0 }
    }

    /// Counts one operation that took `ns` nanoseconds.
    pub fn record_ns(&mut self, ns: u64) {
        let us = ns.div_ceil(1000);
        self.histogram.saturating_record(us.max(1));
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Counts one operation on so many bytes of data that took `ns` nanoseconds.
    pub fn record(&mut self, ns: u64, bytes: u64) {
        self.record_ns(ns);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// What it has seen so far. Takes some us: for the status, not for each request.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.histogram.len(),
            sum_ns: self.sum_ns,
            bytes: self.bytes,
            p50_us: self.histogram.value_at_quantile(0.5),
            p99_us: self.histogram.value_at_quantile(0.99),
            buckets: self.buckets,
        }
    }
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencySummary {
    /// Mean in us, 0 without operations.
    pub fn mean_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 / 1000.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_nothing_is_zero() {
        assert_eq!(LatencyRecorder::new().summary(), LatencySummary::default());
    }

    #[test]
    fn quantiles_mean_and_buckets_agree_with_what_was_recorded() {
        let mut recorder = LatencyRecorder::new();
        for us in 1..=1000 {
            recorder.record_ns(us * 1000);
        }
        recorder.record(u64::MAX / 2, 512);
        let summary = recorder.summary();
        assert_eq!((summary.count, summary.bytes), (1001, 512));
        assert_eq!(summary.buckets.iter().sum::<u64>(), 1001);
        assert_eq!(summary.buckets[0], 10);
        assert_eq!(summary.buckets[BOUNDS_US.len()], 1);
        assert!((495..=506).contains(&summary.p50_us), "{}", summary.p50_us);
        assert!((985..=1000).contains(&summary.p99_us), "{}", summary.p99_us);
    }
}
