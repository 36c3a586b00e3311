//! How many different blocks were referenced, in bounded memory: exact up to a bound, then estimated.
//!
//! Blocks are kept in a table. When it is full, half of all possible blocks are left out from then
//! on, chosen by a hash, and those of them that are in the table go; what is left stands for twice
//! as many. A table of n blocks then errs by about 1/sqrt(n): with 2 to 4 million, some 0.1 % in
//! all, and more for a volume that has few of them.

use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Blocks kept at most: exact up to 16 GiB of footprint, in some 150 MiB of RAM.
const BLOCKS_MAX: usize = 1 << 22;
const READ: u8 = 1;
const WRITTEN: u8 = 2;

/// Numbers of different blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Footprint {
    /// Read or written.
    pub(crate) blocks: u64,
    /// Read at least once.
    pub(crate) blocks_read: u64,
    /// Written at least once.
    pub(crate) blocks_written: u64,
}

#[derive(Debug)]
pub(crate) struct Blocks {
    most: usize,
    /// One in 2^this of all blocks is kept.
    halvings: u32,
    seen: HashMap<u64, u8>,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { most: BLOCKS_MAX, halvings: 0, seen: HashMap::new() }
    }
}

impl Blocks {
    /// Counts a reference: `(volume << 40) | block`.
    pub(crate) fn add(&mut self, key: u64, write: bool) {
        if !is_kept(key, self.halvings) {
            return;
        }
        *self.seen.entry(key).or_default() |= if write { WRITTEN } else { READ };
        while self.seen.len() > self.most {
            self.halvings += 1;
            let halvings = self.halvings;
            self.seen.retain(|&key, _| is_kept(key, halvings));
        }
    }

    /// Was every block counted?
    pub(crate) fn is_exact(&self) -> bool {
        self.halvings == 0
    }

    /// All of them, and those of each volume.
    pub(crate) fn count(&self) -> (Footprint, BTreeMap<u32, Footprint>) {
        let mut whole = Footprint::default();
        let mut volumes: BTreeMap<u32, Footprint> = BTreeMap::new();
        let each = 1_u64 << self.halvings;
        for (&key, &how) in &self.seen {
            let volume = (key >> 40) as u32;
            for part in [&mut whole, volumes.entry(volume).or_default()] {
                part.blocks += each;
                part.blocks_read += if how & READ == 0 { 0 } else { each };
                part.blocks_written += if how & WRITTEN == 0 { 0 } else { each };
            }
        }
        (whole, volumes)
    }
}

/// Is the hash of a block below 2^64 / 2^halvings?
fn is_kept(key: u64, halvings: u32) -> bool {
    halvings == 0 || mixed(key) >> (64 - halvings) == 0
}

/// The finaliser of `SplitMix64`: every bit depends on every bit.
const fn mixed(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_up_to_the_bound_and_close_beyond() {
        let mut blocks = Blocks { most: 40_000, ..Blocks::default() };
        // Two volumes; every block of the first is read, a quarter of the second's is written.
        let fill = |blocks: &mut Blocks, end: u64| {
            for _twice in 0..2 {
                for block in 0..end {
                    blocks.add(block, false);
                    blocks.add(1 << 40 | block, block.is_multiple_of(4));
                }
            }
        };
        fill(&mut blocks, 20_000);
        assert!(blocks.is_exact());
        let (whole, volumes) = blocks.count();
        assert_eq!(whole, Footprint { blocks: 40_000, blocks_read: 35_000, blocks_written: 5000 });
        assert_eq!(volumes[&1], Footprint { blocks: 20_000, blocks_read: 15_000, ..whole });

        fill(&mut blocks, 400_000);
        assert!(!blocks.is_exact() && blocks.seen.len() <= 40_000);
        let (whole, volumes) = blocks.count();
        // At least 20,000 are kept: five standard deviations are 3.6 %, and 10 % for the 5000 of them.
        let is_close = |counted: u64, truth: f64, error: f64| {
            assert!((counted as f64 / truth - 1.0).abs() < error, "{counted} for {truth}");
        };
        is_close(whole.blocks, 800_000.0, 0.036);
        is_close(volumes[&0].blocks, 400_000.0, 0.05);
        is_close(whole.blocks_written, 100_000.0, 0.1);
    }
}
