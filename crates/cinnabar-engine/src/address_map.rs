//! The address map: hash of a key -> slot, at 4.3 bytes a block.
//!
//! Buckets of one cache line hold sixteen 32-bit entries {tag, slot + 1}; a key may lie in either of
//! two buckets (cuckoo hashing with partial keys), so a table 94 % full still takes every insertion
//! and a lookup reads at most two lines. The map never sees keys: the caller compares the
//! candidate's block descriptor.

mod filling;

pub(crate) use filling::Filling;

use crate::prefetch::{align_offset, prefetch};

const WAYS: usize = 16;
/// Entries of a bucket that takes no more first choices while an index is being loaded.
const NEARLY_FULL: usize = 14;
/// Displacements before an insertion gives up and the displaced block is dropped from the cache.
const KICKS_MAX: u32 = 128;
/// Entries for 100 buckets' worth of slots, as a percentage: the load at which the table is full.
const LOAD_PERCENT: u64 = 94;

/// Hash -> slot.
pub struct AddressMap {
    words: Vec<u32>,
    offset: usize,
    buckets: u64,
    slot_bits: u32,
    kicks: u32,
}

impl AddressMap {
    /// A map for slots below `slots`. Memory is allocated zeroed and not touched.
    ///
    /// # Panics
    /// If there are more than 2^28.
    pub fn new(slots: u32) -> Self {
        let buckets = (u64::from(slots) * 100).div_ceil(LOAD_PERCENT * WAYS as u64).max(2);
        assert!(buckets < 1 << 32, "half a hash chooses a bucket");
        let words = vec![0u32; (buckets as usize + 1) * WAYS];
        let offset = align_offset(&words);
        let slot_bits = 32 - slots.leading_zeros();
        assert!(slot_bits <= 28, "a shard indexes at most 2^28 slots");
        Self { words, offset, buckets, slot_bits, kicks: 0 }
    }

    /// Bytes allocated.
    pub fn ram_bytes(&self) -> u64 {
        self.words.len() as u64 * 4
    }

    /// The table, for a driver that wants to back it with huge pages.
    pub(crate) fn table(&self) -> &[u32] {
        &self.words
    }

    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        (hash as u32) >> self.slot_bits
    }

    #[inline]
    fn first_bucket(&self, hash: u64) -> u64 {
        ((hash >> 32) * self.buckets) >> 32
    }

    /// The other bucket of a tag in `bucket`. It is its own inverse: both are reflections of each
    /// other about a point that only the tag decides.
    #[inline]
    fn other_bucket(&self, bucket: u64, tag: u32) -> u64 {
        let spread = u64::from(tag.wrapping_add(1).wrapping_mul(0x9E37_79B1));
        let point = (spread * self.buckets) >> 32;
        if point >= bucket { point - bucket } else { point + self.buckets - bucket }
    }

    #[inline]
    fn bucket(&self, bucket: u64) -> &[u32; WAYS] {
        let at = self.offset + bucket as usize * WAYS;
        self.words[at..at + WAYS].try_into().expect("a whole bucket")
    }

    #[inline]
    fn bucket_mut(&mut self, bucket: u64) -> &mut [u32] {
        let at = self.offset + bucket as usize * WAYS;
        &mut self.words[at..at + WAYS]
    }

    #[inline]
    fn slot(&self, entry: u32) -> u32 {
        (entry & ((1 << self.slot_bits) - 1)).wrapping_sub(1)
    }

    #[inline]
    fn entry(&self, hash: u64, slot: u32) -> u32 {
        assert!((slot + 1) >> self.slot_bits == 0, "a slot leaves the tag's bits alone");
        (self.tag(hash) << self.slot_bits) | (slot + 1)
    }

    /// Starts loading both buckets of `hash`.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let first = self.first_bucket(hash);
        let other = self.other_bucket(first, self.tag(hash));
        prefetch(&self.words, self.offset + first as usize * WAYS);
        prefetch(&self.words, self.offset + other as usize * WAYS);
    }

    /// The first slot with the tag of `hash` for which `is_it` says yes.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = self.tag(hash);
        let first = self.first_bucket(hash);
        if let Some(slot) = self.find_in(first, tag, &mut is_it) {
            return Some(slot);
        }
        self.find_in(self.other_bucket(first, tag), tag, &mut is_it)
    }

    #[inline]
    fn find_in(&self, bucket: u64, tag: u32, is_it: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let entries = self.bucket(bucket);
        let mut matches = 0u32;
        let (want, mask) = (tag << self.slot_bits, u32::MAX << self.slot_bits);
        for (way, &entry) in entries.iter().enumerate() {
            matches |= u32::from(entry & mask == want) << way;
        }
        while matches != 0 {
            let entry = entries[matches.trailing_zeros() as usize];
            matches &= matches - 1;
            // An empty entry looks like one with tag 0.
            if entry != 0 && is_it(self.slot(entry)) {
                return Some(self.slot(entry));
            }
        }
        None
    }

    /// Adds `slot` under `hash`. If no room can be made, some slot (perhaps this one) is pushed out
    /// of the map and returned; the caller drops that block.
    ///
    /// # Panics
    /// If the map is not for a slot of that number.
    #[must_use]
    pub fn insert(&mut self, hash: u64, slot: u32) -> Option<u32> {
        debug_assert!(self.find(hash, |other| other == slot).is_none(), "a slot is mapped once");
        let mut entry = self.entry(hash, slot);
        let first = self.first_bucket(hash);
        let other = self.other_bucket(first, self.tag(hash));
        let load = |bucket| self.bucket(bucket).iter().filter(|&&e| e != 0).count();
        let (first_load, other_load) = (load(first), load(other));
        let mut bucket = if first_load <= other_load { first } else { other };
        for _ in 0..KICKS_MAX {
            if let Some(free) = self.bucket_mut(bucket).iter_mut().find(|e| **e == 0) {
                *free = entry;
                return None;
            }
            self.kicks = self.kicks.wrapping_add(7);
            let way = self.kicks as usize % WAYS;
            std::mem::swap(&mut entry, &mut self.bucket_mut(bucket)[way]);
            bucket = self.other_bucket(bucket, entry >> self.slot_bits);
        }
        assert_ne!(entry, 0, "only entries are displaced");
        Some(self.slot(entry))
    }

    /// Removes `slot` from under `hash`; says whether it was there.
    pub fn remove(&mut self, hash: u64, slot: u32) -> bool {
        self.swap(hash, slot, 0)
    }

    /// Lets the entry of `old` point at `new`; says whether it was there.
    pub fn replace(&mut self, hash: u64, old: u32, new: u32) -> bool {
        let entry = self.entry(hash, new);
        self.swap(hash, old, entry)
    }

    #[inline]
    fn swap(&mut self, hash: u64, slot: u32, with: u32) -> bool {
        let entry = self.entry(hash, slot);
        let first = self.first_bucket(hash);
        let other = self.other_bucket(first, self.tag(hash));
        for bucket in [first, other] {
            if let Some(found) = self.bucket_mut(bucket).iter_mut().find(|e| **e == entry) {
                *found = with;
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::mix;

    #[test]
    fn the_other_bucket_is_its_own_inverse() {
        let map = AddressMap::new(100_000);
        for tag in 0..2_000 {
            for bucket in [0, 1, map.buckets / 2, map.buckets - 1] {
                let other = map.other_bucket(bucket, tag);
                assert!(other < map.buckets);
                assert_eq!(map.other_bucket(other, tag), bucket);
            }
        }
    }

    #[test]
    fn every_slot_of_a_full_table_is_found_and_removed() {
        let slots = 300_000u32;
        let mut map = AddressMap::new(slots);
        for slot in 0..slots {
            assert_eq!(map.insert(mix(u64::from(slot) * 77, 1), slot), None, "slot {slot}");
        }
        for slot in 0..slots {
            let hash = mix(u64::from(slot) * 77, 1);
            assert_eq!(map.find(hash, |s| s == slot), Some(slot));
        }
        for slot in (0..slots).step_by(2) {
            assert!(map.remove(mix(u64::from(slot) * 77, 1), slot));
        }
        for slot in 0..slots {
            let found = map.find(mix(u64::from(slot) * 77, 1), |s| s == slot);
            assert_eq!(found.is_some(), slot % 2 == 1);
        }
    }

    #[test]
    fn colliding_keys_push_one_out_instead_of_looping() {
        let mut map = AddressMap::new(1_000);
        let pushed = (0..200).filter_map(|slot| map.insert(42, slot)).count();
        assert_eq!(pushed, 200 - 2 * WAYS, "two buckets hold 32 entries of one hash");
    }
}
