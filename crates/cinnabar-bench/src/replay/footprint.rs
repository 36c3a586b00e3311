//! How many different blocks were touched, exactly, in little memory.

use std::collections::BTreeMap;
use std::ops::Range;

/// A leaf has a bit for each of so many blocks: 4 KiB for 128 MiB of a disk.
const LEAF_BLOCKS: u64 = 1 << 15;
const LEAF_WORDS: usize = (LEAF_BLOCKS / 64) as usize;
/// Leaves of a trace at most, over all volumes: 256 MiB. A trace that touches more places than that
/// is told to have at least the blocks counted so far.
const LEAVES_MAX: usize = 65_536;

/// Blocks touched, by volume.
#[derive(Debug, Default)]
pub(super) struct Footprint {
    leaves: BTreeMap<(u32, u64), Box<[u64; LEAF_WORDS]>>,
    full: bool,
}

impl Footprint {
    /// Counts blocks as touched; returns how many of them were not before.
    pub(super) fn touch(&mut self, volume: u32, blocks: Range<u64>) -> u64 {
        let mut fresh = 0;
        let mut at = blocks.start;
        while at < blocks.end {
            let leaf = at / LEAF_BLOCKS;
            let end = blocks.end.min((leaf + 1) * LEAF_BLOCKS);
            if let Some(words) = self.leaf(volume, leaf) {
                for block in at..end {
                    let (word, bit) = ((block % LEAF_BLOCKS / 64) as usize, 1 << (block % 64));
                    fresh += u64::from(words[word] & bit == 0);
                    words[word] |= bit;
                }
            }
            at = end;
        }
        fresh
    }

    /// Whether there was no room for some of the places, whose blocks are not counted.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    fn leaf(&mut self, volume: u32, leaf: u64) -> Option<&mut [u64; LEAF_WORDS]> {
        if self.leaves.len() >= LEAVES_MAX && !self.leaves.contains_key(&(volume, leaf)) {
            self.full = true;
            return None;
        }
        Some(self.leaves.entry((volume, leaf)).or_insert_with(|| Box::new([0; LEAF_WORDS])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_once_each() {
        let mut footprint = Footprint::default();
        assert_eq!(footprint.touch(0, 10..20), 10);
        assert_eq!(footprint.touch(0, 15..25), 5);
        assert_eq!(footprint.touch(1, 10..20), 10, "another volume");
        // Over the edge of a leaf and of a word.
        assert_eq!(footprint.touch(0, LEAF_BLOCKS - 3..LEAF_BLOCKS + 70), 73);
        assert_eq!(footprint.touch(0, LEAF_BLOCKS - 5..LEAF_BLOCKS + 71), 3);
        assert_eq!(footprint.touch(0, 7..7), 0);
        assert!(!footprint.is_full());
    }

    #[test]
    fn memory_is_bounded() {
        let mut footprint = Footprint::default();
        let counted: u64 = (0..LEAVES_MAX as u64 + 10)
            .map(|leaf| footprint.touch(0, leaf * LEAF_BLOCKS..leaf * LEAF_BLOCKS + 1))
            .sum();
        assert_eq!(counted, LEAVES_MAX as u64);
        assert!(footprint.is_full());
        assert_eq!(footprint.touch(0, 1..3), 2, "what is known is still counted");
    }
}
