//! Caches that keep what is written: distances, and what goes to the SSD and back, for every size.
//!
//! Called by `analyze`. The stack is Olken's: every access moves its block to the newest place, and
//! the places taken since are the distance. Counting all accesses gives the LRU curve (total reuse
//! distance), counting reads the write-back curve (useful reuse distance): a write is never waited for.

use super::curve::{Curve, Distances};
use super::mix::Mix;
use super::places::Places;
use crate::access::Access;

/// No place: never used.
const NONE: u32 = u32::MAX;
/// Dirty in no cache.
const CLEAN: u32 = u32::MAX;

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
struct Block {
    place: u32,
    /// The smallest size of cache in which it is dirty.
    dirty_from: u32,
    was_write: bool,
}

/// The analysis, fed with accesses in any portions.
#[derive(Debug, Default)]
pub struct WriteBack {
    places: Places,
    blocks: Vec<Block>,
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
        if self.places.is_full() {
            self.compact();
        }
        if number >= self.blocks.len() {
            let unknown = Block { place: NONE, dirty_from: CLEAN, was_write: false };
            self.blocks.resize(number + 1, unknown);
        }
        let block = &mut self.blocks[number];
        if block.place == NONE {
            self.mix.count(None, is_write);
        } else {
            let distance = self.places.newer(block.place);
            self.mix.count(Some(block.was_write), is_write);
            self.total.count(distance);
            if !is_write {
                self.useful.count(distance);
            }
            // Caches of up to `distance` blocks have evicted it; those in which it was dirty wrote it.
            if block.dirty_from <= distance {
                self.destages.add(block.dirty_from, distance + 1);
                block.dirty_from = distance + 1;
            }
            self.places.clear(block.place);
        }
        if is_write {
            block.dirty_from = 1;
        }
        block.was_write = is_write;
        block.place = self.places.push();
    }

    /// The curves.
    pub fn finish(mut self) -> WriteBackCurves {
        let mut dirty = Steps::default();
        let mut seen = 0;
        for block in self.blocks.iter().filter(|block| block.place != NONE) {
            seen += 1;
            if block.dirty_from == CLEAN {
                continue;
            }
            let kept_from = self.places.newer(block.place) + 1;
            if block.dirty_from < kept_from {
                self.destages.add(block.dirty_from, kept_from);
            }
            dirty.add_from(block.dirty_from.max(kept_from));
        }
        let (total, useful) = (self.total.trimmed(), self.useful.trimmed());
        WriteBackCurves {
            mix: self.mix,
            blocks: seen,
            hits: total.hits(),
            read_hits: useful.hits(),
            destages: self.destages.curve(),
            dirty: dirty.curve(),
            total,
            useful,
        }
    }

    fn compact(&mut self) {
        for block in self.blocks.iter_mut().filter(|block| block.place != NONE) {
            block.place = self.places.rank(block.place);
        }
        self.places.compact();
    }
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
