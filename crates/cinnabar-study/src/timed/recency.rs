//! LRU order of a host's cached blocks, in two arrays and without a hash table.
//!
//! A ring of block numbers, oldest first, holds one entry for each use; an array over all blocks
//! says which entry is a block's newest. So a hit is one store to a line that the look-up has loaded
//! already, and one to the end of the ring; entries that are no longer a block's newest are stepped
//! over when a victim is looked for, reading forward. A linked list would touch three lines in
//! random places. Both tiers of a block share one line of the array.

use cinnabar_engine::prefetch::prefetch;

/// In flash and not in RAM: the medium of a block of the unified architecture.
pub(super) const IN_FLASH: u32 = 1 << 30;
/// Newer than what is below.
pub(super) const DIRTY: u32 = 1 << 31;
/// An entry's place in the ring, plus 1.
const PLACE: u32 = IN_FLASH - 1;
/// A ring has so many entries for each block it may hold, so that squeezing out old ones is rare.
const SLACK: usize = 2;
/// And at least so many.
const RING_MIN: usize = 64;
/// How far ahead of the eviction hand entries are looked up.
const AHEAD: usize = 12;

/// What is known of each block: a word for each tier, 0 if it is not there.
pub(super) type Words = Vec<[u32; 2]>;

/// One tier: its blocks in LRU order.
#[derive(Debug)]
pub(super) struct Recency<const TIER: usize> {
    ring: Vec<u32>,
    first: usize,
    /// Entries, old ones among them.
    used: usize,
    /// Number of blocks in the list.
    live: usize,
    capacity: usize,
}

impl<const TIER: usize> Recency<TIER> {
    pub(super) fn new(capacity: u64) -> Self {
        let capacity = capacity as usize;
        let entries = if capacity == 0 { 0 } else { (capacity * SLACK).max(RING_MIN) };
        assert!(entries < PLACE as usize, "a place fits its bits");
        Self { ring: vec![0; entries], first: 0, used: 0, live: 0, capacity }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn is_full(&self) -> bool {
        self.live >= self.capacity
    }

    /// Makes a block that is here the newest.
    #[inline]
    pub(super) fn touch(&mut self, block: u32, words: &mut Words) {
        let place = self.push(block, words);
        let word = &mut words[block as usize][TIER];
        debug_assert!(*word & PLACE != 0, "only what is here can be touched");
        *word = *word & !PLACE | place;
    }

    /// Adds a block that is not here, with these flags.
    ///
    /// # Panics
    /// If there is no room: the caller has to evict a block before.
    #[inline]
    pub(super) fn insert(&mut self, block: u32, flags: u32, words: &mut Words) {
        assert!(self.live < self.capacity, "room was made");
        let place = self.push(block, words);
        let word = &mut words[block as usize][TIER];
        debug_assert!(*word == 0, "it is here already");
        *word = flags | place;
        self.live += 1;
    }

    /// Takes out a block that is here.
    #[inline]
    pub(super) fn remove(&mut self, block: u32, words: &mut Words) {
        debug_assert!(words[block as usize][TIER] != 0, "it is not here");
        words[block as usize][TIER] = 0;
        self.live -= 1;
    }

    /// Takes out the block that was used least recently; also gives its flags.
    #[inline]
    pub(super) fn pop(&mut self, words: &mut Words) -> Option<(u32, u32)> {
        if self.live == 0 {
            return None;
        }
        loop {
            let place = self.first;
            let block = self.ring[place];
            self.look_ahead(words);
            self.first = if place + 1 == self.ring.len() { 0 } else { place + 1 };
            self.used -= 1;
            let word = words[block as usize][TIER];
            if (word & PLACE) as usize == place + 1 {
                self.remove(block, words);
                return Some((block, word & !PLACE));
            }
        }
    }

    pub(super) fn clear(&mut self, words: &mut Words) {
        while self.pop(words).is_some() {}
    }

    /// Entries are read in order, but what they name is anywhere: it had better be on its way.
    #[inline]
    fn look_ahead(&self, words: &Words) {
        let mut place = self.first + AHEAD;
        if place >= self.ring.len() {
            place -= self.ring.len();
        }
        prefetch(words, self.ring[place] as usize);
    }

    #[inline]
    fn push(&mut self, block: u32, words: &mut Words) -> u32 {
        if self.used == self.ring.len() {
            self.squeeze(words);
        }
        let mut place = self.first + self.used;
        if place >= self.ring.len() {
            place -= self.ring.len();
        }
        self.ring[place] = block;
        self.used += 1;
        place as u32 + 1
    }

    /// Closes the gaps that old entries are. At least half of the ring is free then.
    #[cold]
    fn squeeze(&mut self, words: &mut Words) {
        let len = self.ring.len();
        let mut to = self.first;
        let mut kept = 0;
        for from in (self.first..len).chain(0..self.first).take(self.used) {
            let block = self.ring[from];
            let word = &mut words[block as usize][TIER];
            if (*word & PLACE) as usize == from + 1 {
                self.ring[to] = block;
                *word = *word & !PLACE | (to as u32 + 1);
                to = if to + 1 == len { 0 } else { to + 1 };
                kept += 1;
            }
        }
        debug_assert_eq!(kept, self.live, "each block has one newest entry");
        self.used = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::VecDeque;

    /// Against a deque that is searched.
    #[test]
    fn does_what_a_list_does() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let capacity = 1 + rng.below(100);
            let blocks = 1 + rng.below(300);
            let mut words: Words = vec![[0; 2]; blocks as usize];
            let mut lru = Recency::<1>::new(capacity);
            let mut model: VecDeque<(u32, u32)> = VecDeque::new();
            for _ in 0..20_000 {
                let block = rng.below(blocks) as u32;
                let found = model.iter().position(|&(there, _)| there == block);
                assert_eq!(words[block as usize][1] != 0, found.is_some());
                match (found, rng.below(10)) {
                    (Some(at), 0) => {
                        lru.remove(block, &mut words);
                        model.remove(at);
                    }
                    (Some(at), _) => {
                        lru.touch(block, &mut words);
                        let entry = model.remove(at).expect("found");
                        model.push_back(entry);
                    }
                    (None, roll) => {
                        if lru.is_full() {
                            assert_eq!(lru.pop(&mut words), model.pop_front());
                        }
                        let flags = if roll < 5 { DIRTY } else { IN_FLASH };
                        lru.insert(block, flags, &mut words);
                        model.push_back((block, flags));
                    }
                }
            }
            lru.clear(&mut words);
            assert!(words.iter().all(|word| *word == [0, 0]), "nothing is left");
        }
    }
}
