//! Caches that keep what is written: distances, and what goes to the SSD and back, for every size.
//!
//! Counting all accesses of the stack gives the LRU curve (total reuse distance), counting reads the
//! write-back curve (useful reuse distance): a write is never waited for.

use super::curve::{Curve, Distances};
use super::mix::Mix;
use super::stack::Stack;
use super::window::Window;
use crate::access::Access;

/// The analysis, fed with accesses in any portions.
#[derive(Debug, Default)]
pub struct WriteBack {
    stack: Stack,
    window: Window,
    mix: Mix,
    total: Distances,
    useful: Distances,
    destages: Steps,
}

/// What it found.
#[derive(Clone, Debug)]
pub struct WriteBackCurves {
    /// Accesses and reuses by class.
    pub mix: Mix,
    /// Different blocks: the working set.
    pub blocks: u64,
    /// Those of them that were used again: the reuse working set.
    pub blocks_again: u64,
    /// Distances of all reuses (TRD).
    pub total: Distances,
    /// Distances of reads (URD).
    pub useful: Distances,
    /// Accesses that hit, by size; reads and writes alike.
    pub hits: Curve,
    /// Reads that hit, by size.
    pub read_hits: Curve,
    /// Dirty blocks written to the backend when they were evicted, by size. One that is still dirty
    /// at the end is not among them.
    pub destages: Curve,
    /// Blocks still dirty at the end, by size.
    pub dirty: Curve,
}

impl WriteBackCurves {
    /// Accesses that miss in a cache of so many blocks.
    pub fn misses(&self, size_blocks: u64) -> u64 {
        self.mix.reads + self.mix.writes - self.hits.at(size_blocks)
    }

    /// Reads that miss in a cache of so many blocks.
    pub fn read_misses(&self, size_blocks: u64) -> u64 {
        self.mix.reads - self.read_hits.at(size_blocks)
    }

    /// Blocks written to the SSD: every write, and every read that missed.
    pub fn ssd_writes(&self, size_blocks: u64) -> u64 {
        if size_blocks == 0 { 0 } else { self.mix.writes + self.read_misses(size_blocks) }
    }
}

impl WriteBack {
    /// Counts accesses.
    pub fn extend(&mut self, accesses: &[Access]) {
        for access in accesses {
            self.access(access.block() as usize, access.is_write());
        }
    }

    fn access(&mut self, number: usize, is_write: bool) {
        let reuse = self.stack.access(number, is_write, hits_from);
        self.window.access(number, reuse.map(|reuse| reuse.distance));
        self.mix.count(reuse.map(|reuse| reuse.was_write), is_write);
        let Some(reuse) = reuse else { return };
        let distance = reuse.distance;
        self.total.count(distance);
        if !is_write {
            self.useful.count(distance);
        }
        if let Some((first, end)) = reuse.destaged {
            self.destages.add(first, end);
        }
    }

    /// The curves of all accesses counted so far.
    pub fn finish(mut self) -> WriteBackCurves {
        let mut dirty = Steps::default();
        for block in self.stack.last(hits_from) {
            if let Some((first, end)) = block.destaged {
                self.destages.add(first, end);
            }
            if let Some(first) = block.dirty_from {
                dirty.add_from(first);
            }
        }
        let (total, useful) = (self.total.trimmed(), self.useful.trimmed());
        WriteBackCurves {
            mix: self.mix,
            blocks: u64::from(self.window.blocks()),
            blocks_again: u64::from(self.window.again()),
            hits: total.hits(),
            read_hits: useful.hits(),
            destages: self.destages.curve(),
            dirty: dirty.curve(),
            total,
            useful,
        }
    }
}

/// A block is there if the blocks used since and the block itself have room.
fn hits_from(distance: u32) -> u32 {
    distance + 1
}

/// A count by size, kept as what each size adds to the one before.
#[derive(Debug, Default)]
struct Steps(Vec<i64>);

impl Steps {
    /// One more for sizes from `first` to below `end`.
    fn add(&mut self, first: u32, end: u32) {
        self.add_from(first);
        *self.step(end) -= 1;
    }

    /// One more for sizes from `first` on.
    fn add_from(&mut self, first: u32) {
        *self.step(first) += 1;
    }

    fn step(&mut self, size: u32) -> &mut i64 {
        let at = size as usize - 1;
        if at >= self.0.len() {
            self.0.resize((at + 1).next_power_of_two(), 0);
        }
        &mut self.0[at]
    }

    fn curve(&self) -> Curve {
        let used = self.0.iter().rposition(|step| *step != 0).map_or(0, |last| last + 1);
        Curve::sums(self.0[..used].iter().copied())
    }
}
