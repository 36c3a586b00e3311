//! Zeroed and trimmed ranges of a volume that the back end does not have yet, as reads see them.

use crate::format::chunk::RangeKind;
use std::collections::BTreeMap;

/// A range that is to be destaged, in the order of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeRecord {
    /// Number of its chunk.
    pub(crate) number: u64,
    /// Entries of the chunk before it that have a page of data: where in the order it stands.
    pub(crate) behind: u32,
    pub(crate) block: u64,
    pub(crate) count: u32,
    pub(crate) kind: RangeKind,
}

/// Blocks that read as zeros: first block to (end, number of the chunk). They never overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZeroRanges(BTreeMap<u64, (u64, u64)>);

impl ZeroRanges {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a block reads as zeros, unless it was written since.
    pub(crate) fn holds(&self, block: u64) -> bool {
        self.number(block).is_some()
    }

    /// Number of the chunk that has it read as zeros.
    pub(crate) fn number(&self, block: u64) -> Option<u64> {
        let (_, (end, number)) = self.0.range(..=block).next_back()?;
        (*end > block).then_some(*number)
    }

    /// Takes blocks out: they were written.
    pub(crate) fn cut(&mut self, first: u64, end: u64) {
        if self.0.is_empty() {
            return;
        }
        let before = self.0.range(..first).next_back().map(|(start, range)| (*start, *range));
        if let Some((start, (range_end, number))) = before.filter(|(_, (e, _))| *e > first) {
            self.0.insert(start, (first, number));
            if range_end > end {
                self.0.insert(end, (range_end, number));
            }
        }
        while let Some((start, (range_end, number))) =
            self.0.range(first..end).next().map(|(start, range)| (*start, *range))
        {
            self.0.remove(&start);
            if range_end > end {
                self.0.insert(end, (range_end, number));
            }
        }
    }

    /// Blocks read as zeros from now on.
    pub(crate) fn add(&mut self, first: u64, end: u64, number: u64) {
        self.cut(first, end);
        self.0.insert(first, (end, number));
    }

    /// The back end has everything up to a chunk.
    pub(crate) fn retire(&mut self, number: u64) {
        self.0.retain(|_, range| range.1 > number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_a_list_of_blocks() {
        let mut ranges = ZeroRanges::default();
        let mut model = [0u64; 64];
        let mut seed = 1u64;
        for number in 1..3_000u64 {
            seed = cinnabar_engine::mix(seed, 7);
            let (first, len) = (seed % 60, 1 + (seed >> 8) % 12);
            let end = (first + len).min(64);
            match (seed >> 16) % 8 {
                0 => {
                    let retired = number.saturating_sub((seed >> 20) % 40);
                    ranges.retire(retired);
                    model.iter_mut().filter(|n| **n <= retired).for_each(|n| *n = 0);
                }
                1..=3 => {
                    ranges.cut(first, end);
                    model[first as usize..end as usize].fill(0);
                }
                _ => {
                    ranges.add(first, end, number);
                    model[first as usize..end as usize].fill(number);
                }
            }
            for (block, number) in model.iter().enumerate() {
                let expected = Some(*number).filter(|number| *number != 0);
                assert_eq!(ranges.number(block as u64), expected, "block {block}");
            }
        }
    }
}
