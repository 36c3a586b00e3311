//! Plain simulators, written for plainness: what the golden counts are checked with.

use cinnabar_trace::{Reference, TraceError, references};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Every reference of a trace.
pub(crate) fn load(path: &Path) -> Vec<Reference> {
    let records = cinnabar_trace::open(path).expect("the trace opens");
    references(records).collect::<Result<_, TraceError>>().expect("the trace is valid")
}

/// What a simulator counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) read_misses: u64,
    pub(crate) write_misses: u64,
    pub(crate) write_hits: u64,
}

impl Counts {
    pub(crate) fn misses(self) -> u64 {
        self.read_misses + self.write_misses
    }

    /// Every insertion and every write hit writes a block.
    pub(crate) fn write_through_flash_blocks(self) -> u64 {
        self.misses() + self.write_hits
    }

    fn count(&mut self, reference: Reference, hit: bool) {
        match (reference.write, hit) {
            (false, true) => {}
            (false, false) => self.read_misses += 1,
            (true, true) => self.write_hits += 1,
            (true, false) => self.write_misses += 1,
        }
    }
}

/// Least recently used, by time stamps in an ordered map.
pub(crate) fn lru(trace: &[Reference], capacity: usize) -> Counts {
    let mut counts = Counts::default();
    let mut used_at: HashMap<u64, usize> = HashMap::new();
    let mut by_time: BTreeMap<usize, u64> = BTreeMap::new();
    for (now, &reference) in trace.iter().enumerate() {
        let before = used_at.insert(reference.key, now);
        counts.count(reference, before.is_some());
        by_time.insert(now, reference.key);
        if let Some(before) = before {
            by_time.remove(&before);
        } else if used_at.len() > capacity {
            let (_, oldest) = by_time.pop_first().expect("the cache is full");
            used_at.remove(&oldest);
        }
    }
    counts
}

/// CLOCK: a hit sets the bit; an insertion has it clear; the hand clears set bits and passes on.
pub(crate) fn clock(trace: &[Reference], capacity: usize) -> Counts {
    let mut counts = Counts::default();
    let mut slot_of: HashMap<u64, usize> = HashMap::new();
    let mut slots: Vec<(u64, bool)> = Vec::with_capacity(capacity);
    let mut hand = 0;
    for &reference in trace {
        let slot = slot_of.get(&reference.key).copied();
        counts.count(reference, slot.is_some());
        if let Some(slot) = slot {
            slots[slot].1 = true;
            continue;
        }
        if slots.len() < capacity {
            slot_of.insert(reference.key, slots.len());
            slots.push((reference.key, false));
            continue;
        }
        while std::mem::take(&mut slots[hand].1) {
            hand = (hand + 1) % capacity;
        }
        slot_of.remove(&slots[hand].0);
        slots[hand].0 = reference.key;
        slot_of.insert(reference.key, hand);
        hand = (hand + 1) % capacity;
    }
    counts
}

#[test]
fn the_simulators_can_be_followed_by_hand() {
    let trace: Vec<Reference> =
        [1, 2, 1, 3, 1, 2].map(|key| Reference { key, write: key == 2 }).into();
    // Two slots. LRU: 3 evicts 2. CLOCK: the hand clears 1's bit, then takes 2's slot.
    let expected = Counts { read_misses: 2, write_misses: 2, write_hits: 0 };
    assert_eq!(lru(&trace, 2), expected);
    assert_eq!(clock(&trace, 2), expected);
    assert_eq!(clock(&trace, 3), Counts { read_misses: 2, write_misses: 1, write_hits: 1 });
}
