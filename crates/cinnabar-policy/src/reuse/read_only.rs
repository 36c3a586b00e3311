//! Caches that drop what is written (write-around with invalidation): reads that hit, for every size.
//!
//! Called by `analyze`. A dropped block leaves a free place in every cache that had it, and the next
//! block that comes in takes it instead of evicting. In the stack that is a **hole**: a place that
//! stays taken, by no block. Which caches profit follows from the newest hole alone.

use super::curve::{Curve, Distances};
use super::places::Places;
use crate::access::Access;
use crate::bit_set::BitSet;

/// No place: never read, or written since.
const NONE: u32 = u32::MAX;

/// The analysis, fed with accesses in any portions.
#[derive(Debug)]
pub struct ReadOnly {
    places: Places,
    holes: BitSet,
    /// Each block's place.
    blocks: Vec<u32>,
    reads: u64,
    distances: Distances,
}

/// What it found.
#[derive(Clone, Debug)]
pub struct ReadOnlyCurves {
    /// All reads.
    pub reads: u64,
    /// Distances of reads that hit in some cache; a hole counts as a block.
    pub distances: Distances,
    /// Reads that hit, by size.
    pub read_hits: Curve,
}

impl ReadOnlyCurves {
    /// Reads that miss in a cache of so many blocks.
    pub fn read_misses(&self, size_blocks: u64) -> u64 {
        self.reads - self.read_hits.at(size_blocks)
    }

    /// Blocks written to the SSD: every read that missed.
    pub fn ssd_writes(&self, size_blocks: u64) -> u64 {
        if size_blocks == 0 { 0 } else { self.read_misses(size_blocks) }
    }
}

impl Default for ReadOnly {
    fn default() -> Self {
        let places = Places::default();
        let holes = BitSet::new(places.capacity());
        Self { places, holes, blocks: Vec::new(), reads: 0, distances: Distances::default() }
    }
}

impl ReadOnly {
    /// Counts accesses.
    pub fn extend(&mut self, accesses: &[Access]) {
        for access in accesses {
            let number = access.block() as usize;
            if number >= self.blocks.len() {
                self.blocks.resize(number + 1, NONE);
            }
            if access.is_write() { self.write(number) } else { self.read(number) }
        }
    }

    /// The curves.
    pub fn finish(self) -> ReadOnlyCurves {
        let distances = self.distances.trimmed();
        ReadOnlyCurves { reads: self.reads, read_hits: distances.hits(), distances }
    }

    fn write(&mut self, number: usize) {
        let place = std::mem::replace(&mut self.blocks[number], NONE);
        if place != NONE {
            self.holes.insert(place);
        }
    }

    fn read(&mut self, number: usize) {
        if self.places.is_full() {
            self.compact();
        }
        self.reads += 1;
        let place = self.blocks[number];
        let hole = self.holes.last();
        if place != NONE {
            self.distances.count(self.places.newer(place));
        }
        match hole {
            // Caches that have the hole but not the block fill it; those that have both get a hole
            // where the block was.
            Some(hole) if place == NONE || hole > place => {
                self.holes.remove(hole);
                self.places.clear(hole);
                if place != NONE {
                    self.holes.insert(place);
                }
            }
            _ if place != NONE => self.places.clear(place),
            _ => {}
        }
        self.blocks[number] = self.places.push();
    }

    fn compact(&mut self) {
        for place in self.blocks.iter_mut().filter(|place| **place != NONE) {
            *place = self.places.rank(*place);
        }
        let mut moved = Vec::new();
        while let Some(hole) = self.holes.take_last() {
            moved.push(self.places.rank(hole));
        }
        self.places.compact();
        self.holes = BitSet::new(self.places.capacity());
        for hole in moved {
            self.holes.insert(hole);
        }
    }
}
