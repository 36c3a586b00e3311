//! Filling a map with all that a checkpoint lists, at a fraction of what insertions cost.
//!
//! Entries come in the order of their slots, so each belongs to a bucket somewhere else in a table of
//! a hundred megabytes: a cache line from DRAM for each. So they are gathered by part of the table
//! first, in the order in which they come, and placed part by part: a part stays in the CPU's cache
//! meanwhile. What finds its bucket full goes on to its other one in the same way, that is with the
//! next entries of that part.
//!
//! The map is empty when filling begins and is not used before it ends, so a bucket is filled from its
//! first way on, and a byte that counts its entries is all that is read of it.

use super::{AddressMap, KICKS_MAX, NEARLY_FULL, WAYS};
use crate::bounds::{Bound, Bounds, Crossings};
use crate::mutant::{Mutant, Mutants};
use crate::prefetch::prefetch;
use std::ops::Range;

/// An entry on its way: the entry below, then the bucket it goes to, then how often it was moved on.
const BUCKET_SHIFT: u32 = 32;
const MOVES_SHIFT: u32 = 57;
const _: () = assert!(KICKS_MAX as u64 <= 1 << (u64::BITS - MOVES_SHIFT));
const MOVES_MAX: u64 = KICKS_MAX as u64 - 1;
/// Entries on their way in a cache line, and how far ahead of its turn the bucket of one is loaded.
const ENTRIES_A_LINE: usize = 8;
const ENTRIES_AHEAD: usize = 16;

/// Entries on their way into an [`AddressMap`].
pub(crate) struct Filling {
    /// log2 of the buckets of a part.
    part_log2: u32,
    /// Room for entries of each part.
    room: usize,
    entries: Vec<u64>,
    /// Where each part's next entry goes, and where it is full.
    ends: Vec<(u32, u32)>,
    /// Entries of each bucket of the map.
    loads: Vec<u8>,
    /// Entries that found their bucket full.
    moved: Vec<u64>,
    /// The part that is placed next when all that is left is placed.
    next: usize,
    mutants: Mutants,
}

impl Filling {
    /// To fill `map`, which is empty.
    pub(crate) fn new(
        map: &AddressMap,
        bounds: &Bounds,
        crossings: &Crossings,
        mutants: Mutants,
    ) -> Self {
        debug_assert!(map.words.iter().all(|entry| *entry == 0), "the map is empty");
        assert!(map.buckets <= 1 << (MOVES_SHIFT - BUCKET_SHIFT), "a bucket has room in an entry");
        let part_log2 = bounds.fill_buckets.ilog2();
        let parts = (map.buckets >> part_log2) as usize + 1;
        let room = bounds.fill_entries;
        crossings.note_if(parts > 1, Bound::FillBuckets);
        Self {
            part_log2,
            room,
            entries: vec![0; parts * room],
            ends: (0..parts).map(|part| ends(part, room)).collect(),
            loads: vec![0; map.buckets as usize],
            moved: Vec::new(),
            next: 0,
            mutants,
        }
    }

    /// Bytes of RAM that it takes until the index is loaded.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let entries = (self.entries.capacity() + self.moved.capacity()) * size_of::<u64>();
        (entries + size_of_val(&self.ends[..]) + self.loads.capacity()) as u64
    }

    /// Takes an entry for `slot` in, to be placed sooner or later; says whether others had to be placed
    /// before. Slots that leave the map for want of room are added to `out`.
    #[inline]
    pub(crate) fn add(
        &mut self,
        map: &mut AddressMap,
        hash: u64,
        slot: u32,
        out: &mut Vec<u32>,
    ) -> bool {
        let item = map.first_bucket(hash) << BUCKET_SHIFT | u64::from(map.entry(hash, slot));
        let full = self.gather(map, item, out);
        if full {
            self.go_on(map, out);
        }
        full
    }

    /// Appends an item to its part; says whether that part had to be placed first.
    #[inline]
    fn gather(&mut self, map: &mut AddressMap, item: u64, out: &mut Vec<u32>) -> bool {
        let part = (bucket_of(item) >> self.part_log2) as usize;
        let (end, most) = self.ends[part];
        let full = end == most;
        if full {
            self.place(map, part, out);
        }
        let end = &mut self.ends[part].0;
        let at = *end as usize;
        self.entries[at] = item;
        *end += 1;
        if at.is_multiple_of(ENTRIES_A_LINE) {
            prefetch(&self.entries, at + ENTRIES_A_LINE);
        }
        full
    }

    /// What was moved on is gathered, too.
    fn go_on(&mut self, map: &mut AddressMap, out: &mut Vec<u32>) {
        while let Some(item) = self.moved.pop() {
            self.gather(map, item, out);
        }
    }

    /// Places what is left, at least `budget` entries if there are; true when nothing is left.
    pub(crate) fn finish_some(
        &mut self,
        map: &mut AddressMap,
        mut budget: u64,
        out: &mut Vec<u32>,
    ) -> bool {
        // Entries that are moved on may go to parts behind: so it ends after a round without any.
        let mut empty = 0;
        while empty < self.ends.len() {
            let part = self.next;
            let count = self.gathered(part).len() as u64;
            if count > 0 && budget == 0 {
                return false;
            }
            self.next = (part + 1) % self.ends.len();
            empty = if count == 0 { empty + 1 } else { 0 };
            budget = budget.saturating_sub(count);
            self.place(map, part, out);
            self.go_on(map, out);
        }
        true
    }

    /// Places what a part has gathered.
    fn place(&mut self, map: &mut AddressMap, part: usize, out: &mut Vec<u32>) {
        let gathered = self.gathered(part);
        self.ends[part] = ends(part, self.room);
        for at in gathered.clone() {
            let ahead = at + ENTRIES_AHEAD;
            if ahead < gathered.end {
                prefetch(&map.words, map.offset + bucket_of(self.entries[ahead]) as usize * WAYS);
            }
            let item = self.entries[at];
            let (bucket, entry, moves) = (bucket_of(item), item as u32, item >> MOVES_SHIFT);
            let load = &mut self.loads[bucket as usize];
            // First choices leave some room, so that most second ones find it.
            let most = if moves == 0 { NEARLY_FULL } else { WAYS };
            let mut leaves = entry;
            if usize::from(*load) < most {
                map.bucket_mut(bucket)[usize::from(*load)] = entry;
                *load += 1;
                continue;
            }
            if moves >= MOVES_MAX {
                out.push(map.slot(entry));
                continue;
            }
            if moves > 0 {
                map.kicks = map.kicks.wrapping_add(7);
                let way = map.kicks as usize % WAYS;
                leaves = std::mem::replace(&mut map.bucket_mut(bucket)[way], entry);
            }
            if self.mutants.is(Mutant::FillingMovesNothing) {
                continue;
            }
            let other = map.other_bucket(bucket, leaves >> map.slot_bits);
            self.moved.push((moves + 1) << MOVES_SHIFT | other << BUCKET_SHIFT | u64::from(leaves));
        }
    }

    /// Where the entries are that a part has gathered.
    fn gathered(&self, part: usize) -> Range<usize> {
        part * self.room..self.ends[part].0 as usize
    }

    /// Whether `slot` is on its way; for checks.
    pub(crate) fn holds(&self, map: &AddressMap, slot: u32) -> bool {
        let is_it = |item: &u64| map.slot(*item as u32) == slot;
        self.moved.iter().any(is_it) || self.all_gathered().flatten().any(is_it)
    }

    fn all_gathered(&self) -> impl Iterator<Item = &[u64]> {
        (0..self.ends.len()).map(|part| &self.entries[self.gathered(part)])
    }
}

/// Where the first entry of a part goes, and where it is full: not all of them after as many entries,
/// or one event would have to place them all.
fn ends(part: usize, room: usize) -> (u32, u32) {
    let first = part * room;
    let end = first + room - part % (room / 4 + 1);
    (first as u32, u32::try_from(end).expect("an entry for each bucket of the largest map, or two"))
}

fn bucket_of(item: u64) -> u64 {
    (item << (u64::BITS - MOVES_SHIFT)) >> (u64::BITS - MOVES_SHIFT + BUCKET_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::mix;

    /// A map filled with a hash for each slot, and the slots that left it.
    fn filled(bounds: &Bounds, hashes: &[u64]) -> (AddressMap, Vec<u32>) {
        let mut map = AddressMap::new(hashes.len() as u32);
        let mut filling = Filling::new(&map, bounds, &Crossings::default(), Mutants::default());
        let mut out = Vec::new();
        for (slot, hash) in (0..).zip(hashes) {
            filling.add(&mut map, *hash, slot, &mut out);
        }
        // What has no room at all moves from bucket to bucket, a step each.
        let most = 1 + KICKS_MAX as usize + 2 * hashes.len() / 100;
        let done = (0..most).any(|_| filling.finish_some(&mut map, 100, &mut out));
        assert!(done, "not in {most} steps for {}", hashes.len());
        (map, out)
    }

    fn hashes(count: u64) -> Vec<u64> {
        (0..count).map(|slot| mix(slot * 77, 1)).collect()
    }

    #[test]
    fn a_full_table_is_filled_without_a_loss_whatever_the_parts() {
        let usual = Bounds::default();
        let small = Bounds { fill_buckets: 4, fill_entries: 9, ..usual };
        for (bounds, count) in [(usual, 300_000), (small, 20_000), (Bounds::TINY, 20_000)] {
            let hashes = hashes(count);
            let (map, out) = filled(&bounds, &hashes);
            assert_eq!(out, []);
            for (slot, hash) in (0..).zip(&hashes) {
                assert_eq!(map.find(*hash, |other| other == slot), Some(slot));
            }
            let entries = map.words.iter().filter(|entry| **entry != 0).count();
            assert_eq!(entries, hashes.len(), "each slot once");
        }
    }

    #[test]
    fn colliding_keys_push_out_what_has_no_room_and_nothing_else() {
        for bounds in [Bounds::default(), Bounds::TINY] {
            let mut hashes = hashes(1000);
            hashes[300..500].fill(42);
            let (map, mut out) = filled(&bounds, &hashes);
            out.sort_unstable();
            out.dedup();
            for (slot, hash) in (0..).zip(&hashes) {
                let found = map.find(*hash, |other| other == slot).is_some();
                assert_eq!(found, out.binary_search(&slot).is_err(), "slot {slot}");
            }
            let left = (300..500).filter(|slot| out.binary_search(slot).is_err()).count();
            assert!(left <= 2 * WAYS, "two buckets hold 32 entries of one hash, not {left}");
            assert!(out.len() < 200, "{} left for 200 of one hash", out.len());
        }
    }

    #[test]
    fn what_is_on_its_way_is_held_until_it_is_placed() {
        let mut map = AddressMap::new(1000);
        let mut filling =
            Filling::new(&map, &Bounds::default(), &Crossings::default(), Mutants::default());
        let mut out = Vec::new();
        filling.add(&mut map, 42, 7, &mut out);
        assert!(filling.holds(&map, 7) && !filling.holds(&map, 8));
        assert_eq!(map.find(42, |slot| slot == 7), None);
        assert!(filling.finish_some(&mut map, 1, &mut out));
        assert!(!filling.holds(&map, 7) && map.find(42, |slot| slot == 7) == Some(7));
    }
}
