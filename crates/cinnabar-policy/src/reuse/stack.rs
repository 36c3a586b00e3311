//! The stack of caches that keep what is written, blind to what is counted of it.
//!
//! The stack is Olken's: every access moves its block to the newest place, and the places taken
//! since are the distance. What a distance means in sizes of caches is the caller's to say: a
//! sample's distances are shorter than the workload's.

use super::places::Places;

/// No place: never used.
const NONE: u32 = u32::MAX;
/// Dirty in no cache.
const CLEAN: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    place: u32,
    /// The smallest size of cache in which it is dirty.
    dirty_from: u32,
    was_write: bool,
}

const UNKNOWN: Block = Block { place: NONE, dirty_from: CLEAN, was_write: false };

/// Blocks in the order of their last use.
#[derive(Debug, Default)]
pub(super) struct Stack {
    places: Places,
    blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reuse {
    /// Was the block's previous access a write?
    pub(super) was_write: bool,
    /// Other blocks of the stack used since.
    pub(super) distance: u32,
    /// The smallest cache that has the block, in blocks.
    pub(super) hits_from: u32,
    /// Sizes, from the first to below the second, of caches that evicted it dirty since.
    pub(super) destaged: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    /// Sizes of caches that evicted it dirty, as in [`Reuse`].
    pub(super) destaged: Option<(u32, u32)>,
    /// The smallest cache that has it, dirty.
    pub(super) dirty_from: Option<u32>,
}

impl Stack {
    /// An access. `hits_from` turns a distance into the smallest size of cache that hits.
    #[inline]
    pub(super) fn access(
        &mut self,
        number: usize,
        is_write: bool,
        hits_from: impl Fn(u32) -> u32,
    ) -> Option<Reuse> {
        if self.places.is_full() {
            self.compact();
        }
        if number >= self.blocks.len() {
            self.blocks.resize(number + 1, UNKNOWN);
        }
        let block = &mut self.blocks[number];
        let mut reuse = None;
        if block.place != NONE {
            let distance = self.places.newer(block.place);
            let hits_from = hits_from(distance);
            let was_write = block.was_write;
            let mut found = Reuse { was_write, distance, hits_from, destaged: None };
            // Smaller caches have evicted it; those in which it was dirty wrote it.
            if block.dirty_from < hits_from {
                found.destaged = Some((block.dirty_from, hits_from));
                block.dirty_from = hits_from;
            }
            self.places.clear(block.place);
            reuse = Some(found);
        }
        if is_write {
            block.dirty_from = 1;
        }
        block.was_write = is_write;
        block.place = self.places.push();
        reuse
    }

    /// Takes a block out as if it had never been; its number may be given to another. Returns how
    /// many blocks were used since it was.
    pub(super) fn forget(&mut self, number: usize) -> u32 {
        let block = std::mem::replace(&mut self.blocks[number], UNKNOWN);
        assert!(block.place != NONE, "only a block that was used is forgotten");
        let newer = self.places.newer(block.place);
        self.places.clear(block.place);
        newer
    }

    /// How every block was left.
    pub(super) fn last(&self, hits_from: impl Fn(u32) -> u32) -> impl Iterator<Item = Last> {
        let used = self.blocks.iter().filter(|block| block.place != NONE);
        used.map(move |block| {
            if block.dirty_from == CLEAN {
                return Last { destaged: None, dirty_from: None };
            }
            let kept_from = hits_from(self.places.newer(block.place));
            let destaged = (block.dirty_from < kept_from).then_some((block.dirty_from, kept_from));
            Last { destaged, dirty_from: Some(block.dirty_from.max(kept_from)) }
        })
    }

    fn compact(&mut self) {
        for block in self.blocks.iter_mut().filter(|block| block.place != NONE) {
            block.place = self.places.rank(block.place);
        }
        self.places.compact();
    }
}
