//! The hierarchical reuse random walk.
//!
//! A region is 5 % of its ASU; it is a tree of leaves of 8 blocks, and a step goes up a random
//! number of levels and down again to any leaf below.

use super::sequential::percent;
use crate::generate::Chance;

pub(super) const LEAF_BLOCKS: u64 = 8;
/// A region's part of its ASU, in per cent.
const REGION_PERCENT: u32 = 5;
/// Levels that every step goes up at least.
const LEVEL_MIN: u32 = 6;
/// Probability of each further level.
const UP: f64 = 0.44;
/// Leaves that a write's leaf is a multiple of.
const WRITE_ALIGN: u64 = 8;
/// A write goes to a random block of the leaf with this probability, else to the last one read.
const WRITE_ANYWHERE: f64 = 0.5;
/// With this probability the stream's next write repeats the block.
const REPEAT: f64 = 0.15;
/// Steps out of the region before a uniform draw.
const TRIES: u32 = 100;

/// A region and the states of its leaves, shared by the streams of a context.
#[derive(Clone, Debug)]
pub(super) struct Region {
    first_block: u64,
    levels: u32,
    /// By leaf: the block of it that the next read takes, 0 to 7.
    states: Vec<u8>,
}

/// A stream's place in its region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walker {
    /// The leaf of the block that it accessed last.
    leaf: u64,
    /// What its next write repeats.
    repeat: Option<u64>,
}

/// Leaves of each region of an ASU.
pub(super) fn leaves(asu_blocks: u64) -> u64 {
    percent(asu_blocks, REGION_PERCENT) / LEAF_BLOCKS
}

impl Region {
    /// The region that begins at so many per cent of an ASU.
    pub(super) fn new(asu_blocks: u64, at_percent: u32) -> Self {
        let leaves = leaves(asu_blocks);
        Self {
            first_block: percent(asu_blocks, at_percent),
            levels: leaves.next_power_of_two().trailing_zeros(),
            states: vec![0; leaves as usize],
        }
    }

    /// A stream begins anywhere.
    pub(super) fn enter(&self, chance: &mut Chance) -> Walker {
        Walker { leaf: chance.below(self.leaves()), repeat: None }
    }

    /// The block of the ASU that a stream accesses next.
    pub(super) fn access(&mut self, walker: &mut Walker, write: bool, chance: &mut Chance) -> u64 {
        let offset = if write { self.write(walker, chance) } else { self.read(walker, chance) };
        walker.leaf = offset / LEAF_BLOCKS;
        self.first_block + offset
    }

    fn read(&mut self, walker: &Walker, chance: &mut Chance) -> u64 {
        let leaf = self.step(walker.leaf, false, chance);
        let state = &mut self.states[leaf as usize];
        let block = u64::from(*state);
        *state = (*state + 1) % LEAF_BLOCKS as u8;
        leaf * LEAF_BLOCKS + block
    }

    fn write(&self, walker: &mut Walker, chance: &mut Chance) -> u64 {
        // A repetition is not repeated itself.
        if let Some(offset) = walker.repeat.take() {
            return offset;
        }
        let leaf = self.step(walker.leaf, true, chance);
        let block = if chance.with(WRITE_ANYWHERE) {
            chance.below(LEAF_BLOCKS)
        } else {
            (u64::from(self.states[leaf as usize]) + LEAF_BLOCKS - 1) % LEAF_BLOCKS
        };
        let offset = leaf * LEAF_BLOCKS + block;
        walker.repeat = chance.with(REPEAT).then_some(offset);
        offset
    }

    /// A leaf of the region, some way from `from`. One past the region's last is walked on from.
    fn step(&self, from: u64, write: bool, chance: &mut Chance) -> u64 {
        let mut leaf = from;
        for _ in 0..TRIES {
            let mut level = LEVEL_MIN;
            while level < self.levels && chance.with(UP) {
                level += 1;
            }
            leaf = ((leaf >> level) << level) + chance.below(1 << level);
            if write {
                leaf -= leaf % WRITE_ALIGN;
            }
            if leaf < self.leaves() {
                return leaf;
            }
        }
        chance.below(self.leaves())
    }

    fn leaves(&self) -> u64 {
        self.states.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_take_the_blocks_of_a_leaf_in_turn() {
        // One leaf only: every step ends there.
        let mut region = Region::new(160, 50);
        let mut chance = Chance::new(1, 1);
        let mut walker = region.enter(&mut chance);
        let reads: Vec<u64> =
            (0..10).map(|_| region.access(&mut walker, false, &mut chance)).collect();
        assert_eq!(reads, [80, 81, 82, 83, 84, 85, 86, 87, 80, 81]);
    }

    #[test]
    fn everything_stays_inside_and_every_leaf_is_met() {
        for asu_blocks in [160, 1000, 20_480, 123_457] {
            let mut region = Region::new(asu_blocks, 15);
            let first = region.first_block;
            let mut chance = Chance::new(2, 1);
            let mut walker = region.enter(&mut chance);
            let mut met = vec![false; region.leaves() as usize];
            for index in 0..400_000 {
                let block = region.access(&mut walker, index % 4 == 0, &mut chance);
                met[((block - first) / LEAF_BLOCKS) as usize] = true;
            }
            assert!(met.iter().all(|met| *met), "{asu_blocks} blocks");
        }
    }

    #[test]
    fn writes_repeat_as_often_as_they_should() {
        let mut region = Region::new(1 << 21, 15);
        let mut chance = Chance::new(3, 1);
        let mut walker = region.enter(&mut chance);
        let writes: Vec<u64> =
            (0..100_000).map(|_| region.access(&mut walker, true, &mut chance)).collect();
        let repeats = writes.windows(2).filter(|pair| pair[0] == pair[1]).count();
        // 15 in 115, and a little for the same block by chance.
        assert!((13_000..16_500).contains(&repeats), "{repeats}");
    }
}
