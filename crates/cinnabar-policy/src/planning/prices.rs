//! Prices as measured: how long operations of the SSD and of back ends take, interval by interval.
//!
//! Counted in whole numbers where operations end; an interval's mean moves the price by half, so that
//! one slow minute does not turn a plan over. With too few operations the price stays.

use crate::sizing::Prices;

/// An interval with fewer operations of a kind says nothing of it.
const OPERATIONS_MIN: u64 = 16;
/// What an interval's mean counts beside what was known.
const WEIGHT: f64 = 0.5;

/// Operations that have ended well, and how long they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Their latencies together, in nanoseconds.
    pub total_ns: u64,
    /// Their blocks together.
    pub blocks: u64,
}

/// Since the start, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Reads of the cache device.
    pub ssd_reads: Latency,
    /// Writes of the cache device.
    pub ssd_writes: Latency,
    /// Reads of back ends.
    pub backend_reads: Latency,
    /// Writes of back ends.
    pub backend_writes: Latency,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredPrices {
    before: Totals,
    /// In the order of [`Totals::each`], in microseconds.
    known: [Option<f64>; 4],
    /// What a block of a write of the cache device takes, in microseconds.
    written_block: Option<f64>,
}

impl Latency {
    /// One more has ended, of so many blocks.
    #[inline]
    pub const fn add(&mut self, ns: u64, blocks: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.blocks = self.blocks.saturating_add(blocks);
    }

    /// Those since then, and their mean in microseconds, if they are enough.
    fn mean_since(self, before: Self) -> Option<f64> {
        let count = self.count.checked_sub(before.count)?;
        let total = self.total_ns.checked_sub(before.total_ns)?;
        (count >= OPERATIONS_MIN).then(|| total as f64 / count as f64 / 1000.0)
    }

    /// The same for a block of them.
    fn block_mean_since(self, before: Self) -> Option<f64> {
        let (count, blocks) = (self.count - before.count, self.blocks - before.blocks);
        self.mean_since(before).map(|mean| mean * count as f64 / blocks.max(1) as f64)
    }
}

impl Totals {
    /// Reads and writes of the SSD, reads and writes of back ends.
    pub const fn each(&self) -> [Latency; 4] {
        [self.ssd_reads, self.ssd_writes, self.backend_reads, self.backend_writes]
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        let add = |to: &mut Latency, from: Latency| {
            to.count += from.count;
            to.total_ns = to.total_ns.saturating_add(from.total_ns);
            to.blocks = to.blocks.saturating_add(from.blocks);
        };
        add(&mut self.ssd_reads, other.ssd_reads);
        add(&mut self.ssd_writes, other.ssd_writes);
        add(&mut self.backend_reads, other.backend_reads);
        add(&mut self.backend_writes, other.backend_writes);
    }
}

impl MeasuredPrices {
    /// An interval has ended, and these are the totals so far.
    pub fn learn(&mut self, totals: Totals) {
        let each = totals.each().into_iter().zip(self.before.each()).zip(&mut self.known);
        for ((now, before), known) in each {
            move_towards(known, now.mean_since(before));
        }
        let block = totals.ssd_writes.block_mean_since(self.before.ssd_writes);
        move_towards(&mut self.written_block, block);
        self.before = totals;
    }

    /// The prices: as measured, and as told where nothing was. A written block costs its part of the
    /// write that it is in, for blocks are written by the chunk, unless another price of it is told.
    pub fn of(&self, told: &Prices) -> Prices {
        let [ssd_read, ssd_write, backend_read, backend_write] = self.known;
        let ssd_write_us = ssd_write.unwrap_or(told.ssd_write_us);
        let by_time = (told.lambda_us - told.ssd_write_us).abs() < f64::EPSILON;
        Prices {
            ssd_read_us: ssd_read.unwrap_or(told.ssd_read_us),
            ssd_write_us,
            backend_read_us: backend_read.unwrap_or(told.backend_read_us),
            backend_write_us: backend_write.unwrap_or(told.backend_write_us),
            lambda_us: if by_time {
                self.written_block.unwrap_or(told.lambda_us)
            } else {
                told.lambda_us
            },
            ..*told
        }
    }
}

fn move_towards(known: &mut Option<f64>, mean: Option<f64>) {
    if let Some(mean) = mean {
        *known = Some(known.map_or(mean, |known| known + (mean - known) * WEIGHT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_follow_what_was_measured_and_stay_where_nothing_was() {
        let told = Prices {
            ssd_read_us: 100.0,
            ssd_write_us: 50.0,
            backend_read_us: 5000.0,
            backend_write_us: 5000.0,
            omega: 0.0,
            lambda_us: 50.0,
            mu_us: 0.0,
        };
        let mut prices = MeasuredPrices::default();
        assert_eq!(prices.of(&told), told);
        let mut totals = Totals::default();
        (0..15).for_each(|_| totals.ssd_reads.add(1_000_000, 1));
        (0..20).for_each(|_| totals.ssd_writes.add(30_000, 10));
        (0..20).for_each(|_| totals.backend_reads.add(400_000, 1));
        prices.learn(totals);
        let found = prices.of(&told);
        assert_eq!((found.ssd_read_us, found.ssd_write_us), (100.0, 30.0), "15 are too few");
        assert_eq!((found.backend_read_us, found.backend_write_us), (400.0, 5000.0));
        assert_eq!(Some(found.lambda_us), Some(3.0), "a block costs its tenth of the write");
        (0..20).for_each(|_| totals.backend_reads.add(800_000, 1));
        prices.learn(totals);
        assert_eq!(Some(prices.of(&told).backend_read_us), Some(600.0), "half the way");
        prices.learn(totals);
        assert_eq!(Some(prices.of(&told).backend_read_us), Some(600.0), "nothing new");
    }
}
