//! Latencies of many I/Os.
//!
//! An HDR histogram for the percentiles, an exact sum for the mean.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency told apart, in ns (1000 s); what is longer counts as this.
const NS_MAX: u64 = 1_000_000_000_000;
/// Shortest, in ns.
const NS_MIN: u64 = 100;

/// See the module.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(NS_MIN, NS_MAX, 3);
        Self { histogram: histogram.expect("bounds that make sense"), sum_ns: 0 }
    }
}

/// What is told of them, in ms. All 0 if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// Exact mean.
    pub mean_ms: f64,
    /// Half were shorter.
    pub p50_ms: f64,
    /// 90 in 100 were shorter.
    pub p90_ms: f64,
    /// 99 in 100.
    pub p99_ms: f64,
    /// 999 in 1000.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.clamp(NS_MIN, NS_MAX));
        self.sum_ns += ns;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Their mean in ms; 0 if there are none.
    pub fn mean_ms(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64 / 1e6
    }

    /// In a few numbers.
    pub fn summary(&self) -> LatencySummary {
        let at = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 1e6;
        if self.count() == 0 {
            return LatencySummary::default();
        }
        LatencySummary {
            count: self.count(),
            mean_ms: self.mean_ms(),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: self.histogram.max() as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_summed_up() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|us| latencies.record(us * 1000));
        let mut long = Latencies::default();
        long.record(2_000_000_000_000);
        let summary = latencies.summary();
        assert_eq!(summary.count, 1000);
        assert!((summary.mean_ms - 0.5005).abs() < 1e-9);
        for (value, expected) in
            [(summary.p50_ms, 0.5), (summary.p99_ms, 0.99), (summary.max_ms, 1.0)]
        {
            assert!((value / expected - 1.0).abs() < 0.002, "{value} for {expected}");
        }
        assert!((long.summary().max_ms - 1e6).abs() < 1e3, "longer than can be told apart");
        assert_eq!(Latencies::default().summary(), LatencySummary::default());
    }
}
