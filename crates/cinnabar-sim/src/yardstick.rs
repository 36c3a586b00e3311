//! Plain LRU, to compare the engine with at the same size.
//!
//! Called by hit-ratio tests and tables.

use std::collections::HashMap;

/// No slot.
const NONE: u32 = u32::MAX;

/// Least recently used: a list threaded through arrays by slot.
#[derive(Debug)]
pub struct Lru {
    slot_of: HashMap<u64, u32>,
    entries: Vec<Entry>,
    newest: u32,
    oldest: u32,
    capacity: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    newer: u32,
    older: u32,
}

impl Lru {
    /// An empty cache of so many blocks.
    ///
    /// # Panics
    /// If that is none, or more than 2^32 - 2.
    pub fn new(capacity: usize) -> Self {
        assert!((1..NONE as usize).contains(&capacity), "{capacity} blocks");
        let (slot_of, entries) = (HashMap::with_capacity(capacity), Vec::with_capacity(capacity));
        Self { slot_of, entries, newest: NONE, oldest: NONE, capacity }
    }

    /// Uses a block, and says whether it was there; it is afterwards.
    pub fn access(&mut self, key: u64) -> bool {
        if let Some(&slot) = self.slot_of.get(&key) {
            self.unlink(slot);
            self.make_newest(slot);
            return true;
        }
        let entry = Entry { key, newer: NONE, older: NONE };
        let slot = if self.entries.len() < self.capacity {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            let slot = self.oldest;
            self.unlink(slot);
            let evicted = std::mem::replace(&mut self.entries[slot as usize], entry);
            self.slot_of.remove(&evicted.key);
            slot
        };
        self.slot_of.insert(key, slot);
        self.make_newest(slot);
        false
    }

    fn unlink(&mut self, slot: u32) {
        let Entry { newer, older, .. } = self.entries[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn make_newest(&mut self, slot: u32) {
        let older = std::mem::replace(&mut self.newest, slot);
        match older {
            NONE => self.oldest = slot,
            older => self.entries[older as usize].newer = slot,
        }
        let entry = &mut self.entries[slot as usize];
        (entry.newer, entry.older) = (NONE, older);
    }
}
