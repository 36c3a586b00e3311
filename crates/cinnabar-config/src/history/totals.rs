//! What a volume has done so far: counts that only grow, until it is attached again.

use crate::status::latency::{BOUNDS_US, LatencySummary};
use crate::status::raw::VolumeStatus;

/// Buckets of latencies, the one without a bound last.
const BUCKETS: usize = BOUNDS_US.len() + 1;

/// Counts of a volume, or what was added to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_blocks: u64,
    pub(crate) hit_blocks: u64,
    pub(crate) written_blocks: u64,
    pub(crate) backend_reads: u64,
    pub(crate) backend_writes: u64,
    /// Of the cache only.
    pub(crate) ssd_written_bytes: u64,
    pub(crate) read_times: Times,
    pub(crate) write_times: Times,
}

/// How long requests took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    count: u64,
    sum_ns: u64,
    buckets: [u64; BUCKETS],
}

impl Totals {
    /// Of a volume since its attach.
    pub(crate) fn of(volume: &VolumeStatus) -> Self {
        let counters = &volume.counters;
        Self {
            reads: counters.reads,
            writes: counters.writes,
            read_blocks: counters.blocks_read,
            hit_blocks: counters.read_hits,
            written_blocks: counters.blocks_written,
            backend_reads: counters.backend_reads,
            backend_writes: counters.backend_writes,
            ssd_written_bytes: 0,
            read_times: Times::of(&volume.latencies.read),
            write_times: Times::of(&volume.latencies.write),
        }
    }

    /// What was added since `before`. A count that fell began again: all of it was added.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let fell = self.pairs(before).into_iter().any(|(now, before)| now < before)
            || self.read_times.count < before.read_times.count
            || self.write_times.count < before.write_times.count;
        if fell {
            return *self;
        }
        self.with(before, u64::saturating_sub)
    }

    /// Both together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn pairs(&self, other: &Self) -> [(u64, u64); 8] {
        [
            (self.reads, other.reads),
            (self.writes, other.writes),
            (self.read_blocks, other.read_blocks),
            (self.hit_blocks, other.hit_blocks),
            (self.written_blocks, other.written_blocks),
            (self.backend_reads, other.backend_reads),
            (self.backend_writes, other.backend_writes),
            (self.ssd_written_bytes, other.ssd_written_bytes),
        ]
    }

    fn with(&self, other: &Self, sum: impl Fn(u64, u64) -> u64 + Copy) -> Self {
        let [
            reads,
            writes,
            read_blocks,
            hit_blocks,
            written_blocks,
            backend_reads,
            backend_writes,
            ssd_written_bytes,
        ] = self.pairs(other).map(|(one, other)| sum(one, other));
        Self {
            reads,
            writes,
            read_blocks,
            hit_blocks,
            written_blocks,
            backend_reads,
            backend_writes,
            ssd_written_bytes,
            read_times: self.read_times.with(&other.read_times, sum),
            write_times: self.write_times.with(&other.write_times, sum),
        }
    }
}

impl Times {
    fn of(summary: &LatencySummary) -> Self {
        Self { count: summary.count, sum_ns: summary.sum_ns, buckets: summary.buckets }
    }

    fn with(&self, other: &Self, sum: impl Fn(u64, u64) -> u64) -> Self {
        let mut buckets = self.buckets;
        for (one, other) in buckets.iter_mut().zip(other.buckets) {
            *one = sum(*one, other);
        }
        Self {
            count: sum(self.count, other.count),
            sum_ns: sum(self.sum_ns, other.sum_ns),
            buckets,
        }
    }

    /// The mean in us; 0 of nothing.
    pub(crate) fn mean_us(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0).div_ceil(1000)
    }

    /// About the time in us that 99 of 100 requests did not exceed: a straight line within the bucket
    /// that has it, the bucket's lower bound if it has no upper one; 0 of nothing.
    pub(crate) fn p99_us(&self) -> u64 {
        let all: u64 = self.buckets.iter().sum();
        let rank = (all * 99).div_ceil(100);
        let mut before = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            if *count > 0 && before + count >= rank {
                let low = if at == 0 { 0 } else { BOUNDS_US[at - 1] };
                let high = BOUNDS_US.get(at).copied().unwrap_or(low);
                return low + (high - low) * (rank - before) / count;
            }
            before += count;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(counts: &[(usize, u64)]) -> Times {
        let mut buckets = [0; BUCKETS];
        for (at, count) in counts {
            buckets[*at] = *count;
        }
        Times { count: buckets.iter().sum(), sum_ns: 0, buckets }
    }

    #[test]
    fn the_99th_percentile_lies_in_its_bucket() {
        assert_eq!(times(&[]).p99_us(), 0);
        // All between 50 and 100 us: 99 % of the way.
        assert_eq!(times(&[(3, 100)]).p99_us(), 99);
        assert_eq!(times(&[(0, 99), (10, 1)]).p99_us(), 10);
        // One of the slowest two of a hundred: half of the way from 1 to 2 ms.
        assert_eq!(times(&[(0, 98), (9, 2)]).p99_us(), 1500);
        assert_eq!(times(&[(BUCKETS - 1, 5)]).p99_us(), 10_000_000, "it has no upper bound");
    }

    #[test]
    fn counts_that_fell_began_again() {
        let some = |reads, writes| Totals { reads, writes, ..Totals::default() };
        assert_eq!(some(12, 7).since(&some(10, 7)), some(2, 0));
        assert_eq!(some(12, 3).since(&some(10, 7)), some(12, 3));
        assert_eq!(some(2, 3).plus(&some(1, 1)), some(3, 4));
    }
}
