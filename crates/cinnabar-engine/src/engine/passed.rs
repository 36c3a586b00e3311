//! Blocks that were written while the index was not there to say which copies that invalidates.
//!
//! Loading takes them out of the index at its end. The set is bounded: beyond so many ranges they
//! are kept apart more coarsely, which costs warmth and nothing else.

use crate::limits::VOLUME_BLOCKS_MAX;
use std::collections::BTreeMap;

/// By how much ranges get coarser at a time.
const COARSER: u64 = 8;

/// Ranges of blocks, disjoint and not adjacent: volume and first block to the end.
#[derive(Debug)]
pub(super) struct Passed {
    ranges: BTreeMap<(u16, u64), u64>,
    /// Ranges that are kept apart.
    most: usize,
    /// Ranges begin and end at multiples of so many blocks.
    grain: u64,
}

impl Passed {
    pub(super) fn new(most: usize) -> Self {
        Self { ranges: BTreeMap::new(), most, grain: 1 }
    }

    /// Blocks `first..end` of a volume were written.
    pub(super) fn add(&mut self, volume: u16, first: u64, end: u64) {
        assert!(first < end && end <= VOLUME_BLOCKS_MAX, "a range of blocks");
        self.insert(volume, first, end);
        while self.ranges.len() > self.most && self.grain < VOLUME_BLOCKS_MAX {
            self.grain = (self.grain * COARSER).min(VOLUME_BLOCKS_MAX);
            for ((volume, first), end) in std::mem::take(&mut self.ranges) {
                self.insert(volume, first, end);
            }
        }
    }

    fn insert(&mut self, volume: u16, first: u64, end: u64) {
        let mut first = first / self.grain * self.grain;
        let mut end = end.next_multiple_of(self.grain);
        if let Some((&(_, start), &until)) =
            self.ranges.range((volume, 0)..=(volume, first)).next_back()
            && until >= first
        {
            first = start;
            end = end.max(until);
        }
        while let Some((&(_, start), &until)) =
            self.ranges.range((volume, first)..=(volume, end)).next()
        {
            self.ranges.remove(&(volume, start));
            end = end.max(until);
        }
        self.ranges.insert((volume, first), end);
        debug_assert!(self.contains(volume, first) && self.contains(volume, end - 1), "all of it");
    }

    /// Whether blocks that were not written are among them.
    pub(super) fn is_coarse(&self) -> bool {
        self.grain > 1
    }

    /// Whether this block is among them.
    pub(super) fn contains(&self, volume: u16, block: u64) -> bool {
        let before = self.ranges.range((volume, 0)..=(volume, block)).next_back();
        before.is_some_and(|(_, &end)| block < end)
    }

    /// The ranges of at most `blocks` blocks, taken out; what stays is longer.
    pub(super) fn take_short(&mut self, blocks: u64) -> Vec<(u16, u64, u64)> {
        let (short, long) = std::mem::take(&mut self.ranges)
            .into_iter()
            .partition(|((_, first), end)| end - first <= blocks);
        self.ranges = long;
        let short: BTreeMap<(u16, u64), u64> = short;
        short.into_iter().map(|((volume, first), end)| (volume, first, end)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(passed: &Passed) -> Vec<(u16, u64, u64)> {
        passed.ranges.iter().map(|(&(volume, first), &end)| (volume, first, end)).collect()
    }

    #[test]
    fn ranges_that_touch_become_one_and_others_stay_apart() {
        let mut passed = Passed::new(100);
        for (volume, first, end) in [(1, 5, 7), (1, 9, 10), (2, 7, 9), (1, 7, 8), (1, 20, 30)] {
            passed.add(volume, first, end);
        }
        assert_eq!(all(&passed), [(1, 5, 8), (1, 9, 10), (1, 20, 30), (2, 7, 9)]);
        passed.add(1, 8, 25);
        assert_eq!(all(&passed), [(1, 5, 30), (2, 7, 9)]);
        assert!(passed.contains(1, 29) && !passed.contains(1, 30) && !passed.contains(2, 6));
        assert!(!passed.is_coarse());
    }

    /// Loading may stall for as long as it likes, and a guest write every other block of its disk.
    #[test]
    fn however_many_are_written_only_so_many_are_told_apart_and_none_is_lost() {
        let mut passed = Passed::new(50);
        for block in 0..10_000 {
            passed.add(3, block * 977 % 100_000 * 2, block * 977 % 100_000 * 2 + 1);
            assert!(passed.ranges.len() <= 50);
        }
        assert!(passed.is_coarse());
        assert!((0..10_000).all(|block| passed.contains(3, block * 977 % 100_000 * 2)));
        // One range a volume is the least there is.
        let mut passed = Passed::new(2);
        (0..5).for_each(|volume| passed.add(volume, VOLUME_BLOCKS_MAX - 1, VOLUME_BLOCKS_MAX));
        assert_eq!(passed.ranges.len(), 5);
        assert!((0..5).all(|volume| passed.contains(volume, VOLUME_BLOCKS_MAX - 1)));
    }

    #[test]
    fn short_ranges_are_taken_out_and_long_ones_stay() {
        let mut passed = Passed::new(100);
        passed.add(1, 0, 10);
        passed.add(1, 20, 31);
        assert_eq!(passed.take_short(10), [(1, 0, 10)]);
        assert_eq!(all(&passed), [(1, 20, 31)]);
        assert!(!passed.is_empty());
    }
}
