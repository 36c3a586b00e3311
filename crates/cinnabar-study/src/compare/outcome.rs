//! What was counted under a contestant's plans, and what that means in time.
//!
//! Made by the models, shown by the command. All counts are of 4 KiB blocks: a request of several is
//! several. Latencies are a block's: a hit costs a read of the SSD (even if it was still in RAM), a
//! miss one of the backend, a write one of whatever acknowledges it.

use cinnabar_policy::sizing::Prices;

/// Counts of a volume, or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks read.
    pub reads: u64,
    /// Of those, found in the cache.
    pub read_hits: u64,
    /// Blocks written.
    pub writes: u64,
    /// Of those, kept dirty: the SSD acknowledges them.
    pub writes_back: u64,
    /// Blocks written to the backend, at once or when they left the cache; what is dirty at the end is
    /// counted, too.
    pub backend_writes: u64,
}

/// What came of a contestant's plans in a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub volumes: Vec<Counts>,
    /// Blocks written to the SSD; the engine's own count, with metadata.
    pub ssd_writes: u64,
    /// The same if every write that the plan wants written back went to the SSD at once, which
    /// write-back needs. At most so many: some of them the engine wrote anyway.
    pub ssd_writes_back: u64,
}

impl Outcome {
    /// Of all volumes together.
    pub fn total(&self) -> Counts {
        self.volumes.iter().fold(Counts::default(), Counts::plus)
    }
}

impl Counts {
    /// Of a volume without a cache.
    pub const fn without_cache([reads, writes]: [u64; 2]) -> Self {
        Self { reads, read_hits: 0, writes, writes_back: 0, backend_writes: writes }
    }

    /// Blocks read from the backend.
    pub const fn backend_reads(&self) -> u64 {
        self.reads - self.read_hits
    }

    /// The part of the reads that hit, from 0 to 1; `None` without reads.
    pub fn hit_ratio(&self) -> Option<f64> {
        mean(self.read_hits as f64, self.reads)
    }

    /// Mean latency of a read, in microseconds; `None` without reads.
    pub fn read_us(&self, prices: &Prices) -> Option<f64> {
        mean(self.reads_us(prices), self.reads)
    }

    /// Mean latency of a write, in microseconds; `None` without writes.
    pub fn write_us(&self, prices: &Prices) -> Option<f64> {
        mean(self.writes_us(prices), self.writes)
    }

    /// Mean latency of both, in microseconds, a write counting [`Prices::omega`] reads; `None` without any
    /// that counts.
    pub fn mean_us(&self, prices: &Prices) -> Option<f64> {
        let all = self.reads as f64 + prices.omega * self.writes as f64;
        let us = self.reads_us(prices) + prices.omega * self.writes_us(prices);
        (all > 0.0).then(|| us / all)
    }

    fn reads_us(&self, prices: &Prices) -> f64 {
        self.read_hits as f64 * prices.ssd_read_us
            + self.backend_reads() as f64 * prices.backend_read_us
    }

    fn writes_us(&self, prices: &Prices) -> f64 {
        self.writes_back as f64 * prices.ssd_write_us
            + (self.writes - self.writes_back) as f64 * prices.backend_write_us
    }

    const fn plus(self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_hits: self.read_hits + other.read_hits,
            writes: self.writes + other.writes,
            writes_back: self.writes_back + other.writes_back,
            backend_writes: self.backend_writes + other.backend_writes,
        }
    }
}

fn mean(sum: f64, of: u64) -> Option<f64> {
    (of > 0).then(|| sum / of as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_weighted_by_blocks() {
        let prices = Prices {
            ssd_read_us: 88.0,
            ssd_write_us: 21.0,
            backend_read_us: 927.0,
            backend_write_us: 141.0,
            omega: 1.0,
            lambda_us: 0.0,
            mu_us: 0.0,
        };
        let counts =
            Counts { reads: 4, read_hits: 3, writes: 6, writes_back: 2, backend_writes: 5 };
        let close = |found: Option<f64>, wanted: f64| {
            let found = found.expect("there are some");
            assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
        };
        close(counts.read_us(&prices), (3.0 * 88.0 + 927.0) / 4.0);
        close(counts.write_us(&prices), (2.0 * 21.0 + 4.0 * 141.0) / 6.0);
        close(counts.mean_us(&prices), (3.0 * 88.0 + 927.0 + 42.0 + 564.0) / 10.0);
        close(counts.hit_ratio(), 0.75);
        let half = Prices { omega: 0.5, ..prices };
        close(counts.mean_us(&half), (3.0 * 88.0 + 927.0 + 0.5 * (42.0 + 564.0)) / 7.0);
        let reads = Prices { omega: 0.0, ..prices };
        assert_eq!(counts.mean_us(&reads), counts.read_us(&prices));
        let none = Counts::without_cache([0, 7]);
        assert_eq!(none.mean_us(&reads), None, "its writes do not count");
        assert_eq!((none.read_us(&prices), none.hit_ratio()), (None, None));
        close(none.mean_us(&prices), 141.0);
        let outcome = Outcome { volumes: vec![counts, none], ..Outcome::default() };
        assert_eq!(outcome.total().writes, 13);
        assert_eq!(outcome.total().backend_writes, 12);
    }
}
