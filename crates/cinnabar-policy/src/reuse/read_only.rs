//! Caches that drop what is written (write-around with invalidation): reads that hit, for every size.

use super::curve::{Curve, Distances};
use super::hole_stack::HoleStack;
use crate::access::Access;

/// The analysis, fed with accesses in any portions.
#[derive(Debug, Default)]
pub struct ReadOnly {
    stack: HoleStack<false>,
    reads: u64,
    distances: Distances,
}

/// What it found.
#[derive(Clone, Debug)]
pub struct ReadOnlyCurves {
    /// Number of all reads.
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

impl ReadOnly {
    /// Counts accesses.
    pub fn extend(&mut self, accesses: &[Access]) {
        for access in accesses {
            let number = access.block() as usize;
            if access.is_write() {
                self.stack.write(number);
                continue;
            }
            self.reads += 1;
            if let Some(distance) = self.stack.read(number) {
                self.distances.count(distance);
            }
        }
    }

    /// The curves of all accesses counted so far.
    pub fn finish(self) -> ReadOnlyCurves {
        let distances = self.distances.trimmed();
        ReadOnlyCurves { reads: self.reads, read_hits: distances.hits(), distances }
    }
}
