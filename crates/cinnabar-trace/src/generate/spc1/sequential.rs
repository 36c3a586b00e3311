//! Sequential streams and the lengths of their I/Os.

use crate::generate::Chance;

/// Lengths in blocks, and the probability that one is at most that long.
const SMIX: [(u32, f64); 5] = [(1, 0.40), (2, 0.64), (4, 0.84), (8, 0.92), (16, 1.0)];
/// The longest of them.
pub(super) const BLOCKS_MAX: u64 = 16;

/// So many per cent of a number, rounded down.
pub(super) fn percent(of: u64, percent: u32) -> u64 {
    let percent = u64::from(percent);
    of / 100 * percent + of % 100 * percent / 100
}

/// A length in blocks; 3.6 in the mean.
pub(super) fn draw_length(chance: &mut Chance) -> u32 {
    let unit = chance.unit();
    SMIX.iter().find(|(_, up_to)| unit < *up_to).map_or(1, |(blocks, _)| *blocks)
}

/// Where runs may be, in blocks of the ASU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    from: u64,
    reach: u64,
    length: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    next: u64,
    end: u64,
}

impl Bounds {
    /// Of an ASU; all but the first in per cent of it.
    pub(super) fn new(asu_blocks: u64, from: u32, reach: u32, length: u32) -> Self {
        Self {
            from: percent(asu_blocks, from),
            reach: percent(asu_blocks, reach),
            length: percent(asu_blocks, length),
        }
    }

    /// The first block of the stream's next I/O, `blocks` long.
    pub(super) fn advance(self, run: &mut Option<Run>, blocks: u32, chance: &mut Chance) -> u64 {
        let blocks = u64::from(blocks);
        let under_way = run.take().filter(|run| run.next + blocks < run.end);
        let Run { next, end } = under_way.unwrap_or_else(|| {
            let start = self.from + chance.below(self.reach);
            Run { next: start, end: start + self.length }
        });
        *run = Some(Run { next: next + blocks, end });
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_unbroken_and_stay_in_their_bounds() {
        let bounds = Bounds::new(10_000, 20, 40, 10);
        let mut chance = Chance::new(1, 1);
        let (mut run, mut behind, mut starts) = (None, 0, 0);
        for _ in 0..10_000 {
            let blocks = draw_length(&mut chance);
            let block = bounds.advance(&mut run, blocks, &mut chance);
            assert!(block >= 2000 && block + u64::from(blocks) < 7000, "{block}");
            starts += u32::from(block != behind);
            behind = block + u64::from(blocks);
        }
        // Some 36,000 blocks in runs of 1000.
        assert!((32..42).contains(&starts), "{starts}");
    }

    #[test]
    fn percents_are_exact_for_any_size() {
        assert_eq!(percent(199, 15), 29);
        assert_eq!(percent(u64::MAX, 100), u64::MAX);
    }
}
