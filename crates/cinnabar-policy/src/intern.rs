//! Keys to dense block numbers: the one hash table of every simulation.
//!
//! Insert only, so there are no tombstones. An entry has eight bytes, {tag, number + 1}. Traces come
//! in runs, so the eight keys of an aligned group share a cache line: the line follows from the
//! group's hash, the place in it from the key's low bits, turned by the hash so that strided keys
//! use all places, too. A batch's entries are read before the first is looked at, so that their
//! cache misses overlap.

use crate::access::Access;

/// References looked up together.
const BATCH: usize = 16;
/// Entries of a cache line.
const LINE: usize = 8;
const LINE_BITS: u32 = LINE.trailing_zeros();
/// Lines of an empty table.
const LINES_MIN: usize = 512;

/// More blocks than an [`Access`] can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {} different blocks (4 TiB)", Access::BLOCKS_MAX)]
pub struct TooManyBlocks;

/// The numbers given so far.
#[derive(Debug)]
pub struct Interner {
    entries: Vec<u64>,
    keys: Vec<u64>,
}

impl Default for Interner {
    fn default() -> Self {
        Self { entries: vec![0; LINES_MIN * LINE], keys: Vec::new() }
    }
}

impl Interner {
    /// Different keys so far; block numbers are below this.
    pub fn blocks(&self) -> u32 {
        self.keys.len() as u32
    }

    /// The key of each block number.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Appends the accesses of `references`, pairs of a key and whether it is a write, to `out`.
    ///
    /// # Errors
    /// With more than [`Access::BLOCKS_MAX`] keys; what came before the one too many is in `out`.
    pub fn extend(
        &mut self,
        references: impl IntoIterator<Item = (u64, bool)>,
        out: &mut Vec<Access>,
    ) -> Result<(), TooManyBlocks> {
        let mut references = references.into_iter();
        loop {
            let mut batch = [(0, false); BATCH];
            let mut filled = 0;
            while filled < BATCH
                && let Some(reference) = references.next()
            {
                batch[filled] = reference;
                filled += 1;
            }
            self.extend_batch(&batch[..filled], out)?;
            if filled < BATCH {
                return Ok(());
            }
        }
    }

    fn extend_batch(
        &mut self,
        batch: &[(u64, bool)],
        out: &mut Vec<Access>,
    ) -> Result<(), TooManyBlocks> {
        // Grown before the batch, so places found stay places.
        if (self.keys.len() + BATCH) * 2 > self.entries.len() {
            self.grow();
        }
        let mut homes = [0; BATCH];
        let mut found = [0; BATCH];
        for (&(key, _), (home, found)) in batch.iter().zip(homes.iter_mut().zip(&mut found)) {
            let hash = hash(key);
            *home = self.home(hash, key);
            *found = self.entries[*home];
        }
        for (&(key, write), (&home, &entry)) in batch.iter().zip(homes.iter().zip(&found)) {
            let tag = hash(key) as u32;
            let block = match number(entry) {
                Some(block) if (entry >> 32) as u32 == tag && self.keys[block as usize] == key => {
                    block
                }
                _ => self.find_or_add(key, tag, home)?,
            };
            out.push(Access::new(block, write));
        }
        Ok(())
    }

    /// Looks on from the first place of a key; it is not found there, or was not when looked at.
    fn find_or_add(&mut self, key: u64, tag: u32, home: usize) -> Result<u32, TooManyBlocks> {
        let mut place = home;
        loop {
            let entry = self.entries[place];
            let Some(block) = number(entry) else { break };
            if (entry >> 32) as u32 == tag && self.keys[block as usize] == key {
                return Ok(block);
            }
            place = self.next(place);
        }
        let block = self.keys.len() as u32;
        if block >= Access::BLOCKS_MAX {
            return Err(TooManyBlocks);
        }
        self.keys.push(key);
        self.entries[place] = u64::from(tag) << 32 | u64::from(block + 1);
        Ok(block)
    }

    fn grow(&mut self) {
        self.entries = vec![0; self.entries.len() * 2];
        for (block, &key) in self.keys.iter().enumerate() {
            let hash = hash(key);
            let mut place = self.home(hash, key);
            while self.entries[place] != 0 {
                place = self.next(place);
            }
            self.entries[place] = u64::from(hash as u32) << 32 | (block as u64 + 1);
        }
    }

    fn home(&self, hash: u64, key: u64) -> usize {
        let lines = self.entries.len() / LINE;
        // The top bits: the tag takes the low half. A table has at most 2^29 lines.
        let line = (hash >> (u64::BITS - lines.trailing_zeros())) as usize;
        let turn = hash as usize;
        line * LINE + (key as usize).wrapping_add(turn) % LINE
    }

    /// The same place of the next line: a full line pushes its keys on side by side.
    fn next(&self, place: usize) -> usize {
        (place + LINE) & (self.entries.len() - 1)
    }
}

/// A hash of the key's group of eight.
fn hash(key: u64) -> u64 {
    let mut hash = (key >> LINE_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    hash ^ (hash >> 32)
}

/// The block of an entry, if it has one.
fn number(entry: u64) -> Option<u32> {
    (entry as u32).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn check(keys: impl Iterator<Item = u64>) {
        let mut interner = Interner::default();
        let mut model = BTreeMap::new();
        let mut expected = Vec::new();
        let references: Vec<_> = keys.map(|key| (key, key % 3 == 0)).collect();
        for &(key, write) in &references {
            let next = model.len() as u32;
            expected.push(Access::new(*model.entry(key).or_insert(next), write));
        }
        let mut accesses = Vec::new();
        // In pieces, so that batches end anywhere.
        for piece in references.chunks(1_001) {
            interner.extend(piece.iter().copied(), &mut accesses).expect("few blocks");
        }
        assert!(accesses == expected, "every key has its number, in order of appearance");
        assert_eq!(interner.blocks() as usize, model.len());
        for (key, block) in model {
            assert_eq!(interner.keys()[block as usize], key);
        }
    }

    #[test]
    fn numbers_follow_the_order_of_appearance_whatever_the_keys_look_like() {
        check((0..50_000).chain(0..50_000));
        check((0..100_000).map(|i| i * 8 % 400_000));
        check((0..100_000).map(|i| (i % 7) << 40 | (i * i % 9_973)));
        check((0..60_000).map(|i| (i % 20_000) << 44));
        check([0, u64::MAX, 0, 1, u64::MAX].into_iter());
        check(std::iter::empty());
    }
}
