//! Latencies of one kind of operation: an exact mean, and percentiles to three digits.

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
