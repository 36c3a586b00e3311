//! Belady's optimum among caches that cache every miss: evicts what is used again last.
//!
//! Needs the whole trace: four bytes an access for the accesses and four for the next uses, once for
//! all sizes, and a bit an access for each size. Next uses are all different (one access is of one
//! block), so the cached blocks are a set of positions, and the latest is the highest bit of a bit
//! set.

use super::{Outcome, Replacement};
use crate::access::{Access, blocks_of};
use crate::bit_set::BitSet;
use crate::counts::Writes;
use std::num::NonZeroU32;

/// Never used again.
const NEVER: u32 = u32::MAX;
/// Not cached.
const ABSENT: u32 = u32::MAX - 1;

/// All accesses of a trace, and what comes next: shared by caches of every size.
#[derive(Debug)]
pub struct Future<'a> {
    accesses: &'a [Access],
    /// Position of the next access of the block of each access.
    next_use: Vec<u32>,
    blocks: u32,
    only_reads: bool,
}

/// A trace is too long for [`Future`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the optimum can be computed for {} references at most", Future::ACCESSES_MAX)]
pub struct TooLong;

impl<'a> Future<'a> {
    /// Most accesses of a trace: positions must differ from the two special marks.
    pub const ACCESSES_MAX: usize = ABSENT as usize;

    /// Looks ahead. If writes drop what is cached (write-around), a block that is written next is of
    /// no use.
    ///
    /// # Errors
    /// If there are more than [`ACCESSES_MAX`](Self::ACCESSES_MAX) accesses.
    pub fn new(accesses: &'a [Access], writes: Writes) -> Result<Self, TooLong> {
        if accesses.len() > Self::ACCESSES_MAX {
            return Err(TooLong);
        }
        let only_reads = drops_what_is_written(writes);
        let blocks = blocks_of(accesses);
        let mut last = vec![NEVER; blocks as usize];
        let mut next_use = vec![NEVER; accesses.len()];
        for (position, access) in accesses.iter().enumerate().rev() {
            let last = &mut last[access.block() as usize];
            next_use[position] = *last;
            *last = if only_reads && access.is_write() { NEVER } else { position as u32 };
        }
        Ok(Self { accesses, next_use, blocks, only_reads })
    }

    /// Was it made for writes with this effect?
    pub(crate) fn is_for(&self, writes: Writes) -> bool {
        self.only_reads == drops_what_is_written(writes)
    }
}

fn drops_what_is_written(writes: Writes) -> bool {
    writes == Writes::Around
}

/// The optimum, for one trace.
#[derive(Debug)]
pub struct Belady<'a> {
    capacity: u32,
    future: &'a Future<'a>,
    /// Accesses seen.
    now: usize,
    /// Next use of each block, if cached.
    cached: Vec<u32>,
    count: u32,
    /// Next uses of cached blocks.
    uses: BitSet,
    /// Cached blocks that are never used again; some may have been removed since.
    useless: Vec<u32>,
}

impl<'a> Belady<'a> {
    /// A cache of so many blocks for the accesses of `future`.
    pub fn new(capacity: NonZeroU32, future: &'a Future<'a>) -> Self {
        Self {
            capacity: capacity.get(),
            future,
            now: 0,
            cached: vec![ABSENT; future.blocks as usize],
            count: 0,
            uses: BitSet::new(future.accesses.len()),
            useless: Vec::new(),
        }
    }

    fn evict(&mut self) -> Option<u32> {
        while let Some(block) = self.useless.pop() {
            if self.cached[block as usize] == NEVER {
                self.cached[block as usize] = ABSENT;
                return Some(block);
            }
        }
        let position = self.uses.take_last()?;
        let block = self.future.accesses[position as usize].block();
        self.cached[block as usize] = ABSENT;
        Some(block)
    }
}

impl Replacement for Belady<'_> {
    fn reserve(&mut self, blocks: u32) {
        assert!(blocks as usize <= self.cached.len(), "the trace was known from the start");
    }

    #[inline]
    fn touch(&mut self, block: u32, mut evicted: impl FnMut(u32)) -> Outcome {
        let next = self.future.next_use[self.now];
        debug_assert!(
            self.future.accesses[self.now].block() == block,
            "accesses come as announced"
        );
        let was = self.cached[block as usize];
        if was == ABSENT {
            if self.count < self.capacity {
                self.count += 1;
            } else if let Some(victim) = self.evict() {
                evicted(victim);
            }
        } else if was != NEVER {
            self.uses.remove(was);
        }
        self.now += 1;
        self.cached[block as usize] = next;
        if next == NEVER {
            self.useless.push(block);
        } else {
            self.uses.insert(next);
        }
        if was == ABSENT { Outcome::Admitted } else { Outcome::Hit }
    }

    fn remove(&mut self, block: u32) -> bool {
        self.now += 1;
        let was = std::mem::replace(&mut self.cached[block as usize], ABSENT);
        if was == ABSENT {
            return false;
        }
        if was != NEVER {
            self.uses.remove(was);
        }
        self.count -= 1;
        true
    }
}
