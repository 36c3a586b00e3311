//! The ghost: fingerprints of blocks that left not long ago, at two bytes an entry.
//!
//! A miss found here was evicted or rejected too early and earns flash at once. One bit of an entry
//! says that the block's last use was a write: it distinguishes useful reuse (read after write)
//! from useless (write after write) beyond what is cached. Buckets of one cache line are small
//! FIFOs of 32 entries; together they approximate one FIFO as long as the cache. A fingerprint lies
//! with probability 32/32768 in a bucket by accident, which admits one block in a thousand too
//! many.

use crate::prefetch::{align_offset, prefetch};
use std::fmt;

const WAYS: usize = 32;
const WRITTEN: u16 = 0x8000;

/// Set of recently departed keys.
pub(crate) struct Ghost {
    prints: Vec<u16>,
    offset: usize,
    buckets: u64,
    /// Entries of a bucket in use.
    ways: usize,
}

impl Ghost {
    /// A ghost of about `entries` entries; memory is allocated zeroed and not touched.
    pub(crate) fn new(entries: u32) -> Self {
        let buckets = u64::from(entries).div_ceil(WAYS as u64).max(1);
        let prints = vec![0u16; (buckets as usize + 1) * WAYS];
        let offset = align_offset(&prints);
        Self { prints, offset, buckets, ways: WAYS }
    }

    /// Reaches back about so many entries from now on, at most as many as it has room for: each bucket
    /// remembers fewer, or more.
    pub(crate) fn set_reach(&mut self, entries: u64) {
        self.ways = (entries.div_ceil(self.buckets) as usize).clamp(1, WAYS);
    }

    /// The same, which [reaches back](Self::set_reach) so far.
    pub(crate) fn reaching(mut self, entries: u64) -> Self {
        self.set_reach(entries);
        self
    }

    /// Bytes allocated.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.prints.len() as u64 * 2
    }

    /// The table, for a driver that wants to back it with huge pages.
    pub(crate) fn table(&self) -> &[u16] {
        &self.prints
    }

    fn start(&self, hash: u64) -> usize {
        // The low half decides the bucket, so that it is independent of the address map's choice.
        let bucket = ((hash & 0xFFFF_FFFF) * self.buckets) >> 32;
        self.offset + bucket as usize * WAYS
    }

    fn print(hash: u64) -> u16 {
        ((hash >> 40) as u16 & !WRITTEN).max(1)
    }

    /// Starts loading the bucket of `hash`.
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&self.prints, self.start(hash));
    }

    /// Remembers `hash`, and whether its last use was a write; the oldest entry of its bucket falls
    /// out.
    pub(crate) fn insert(&mut self, hash: u64, written: bool) {
        let start = self.start(hash);
        let bucket = &mut self.prints[start..start + self.ways];
        bucket.copy_within(0..self.ways - 1, 1);
        bucket[0] = Self::print(hash) | if written { WRITTEN } else { 0 };
    }

    /// Forgets `hash`; if it was remembered, says whether its last use was a write.
    pub(crate) fn take(&mut self, hash: u64) -> Option<bool> {
        let start = self.start(hash);
        let bucket = &mut self.prints[start..start + self.ways];
        let print = Self::print(hash);
        let way = bucket.iter().position(|&entry| entry & !WRITTEN == print)?;
        let written = bucket[way] & WRITTEN != 0;
        bucket.copy_within(way + 1..self.ways, way);
        bucket[self.ways - 1] = 0;
        Some(written)
    }
}

/// What it remembers, wherever the allocator has put it.
impl fmt::Debug for Ghost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prints = &self.prints[self.offset..self.offset + self.buckets as usize * WAYS];
        f.debug_list().entries(prints.iter().filter(|print| **print != 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::mix;

    #[test]
    fn it_remembers_about_as_many_as_it_has_room_for_and_forgets_the_oldest() {
        let mut ghost = Ghost::new(32_000);
        for i in 0..64_000u64 {
            ghost.insert(mix(i, 9), i % 2 == 1);
        }
        let old = (0..16_000).filter(|&i| ghost.take(mix(i, 9)).is_some()).count();
        let new = (48_000..64_000).filter(|&i| ghost.take(mix(i, 9)) == Some(i % 2 == 1)).count();
        assert!(old < 800, "{old} of the oldest quarter are still there");
        assert!(new > 15_200, "{new} of the newest quarter are there");
        assert_eq!(ghost.take(mix(63_999, 9)), None, "taken once");
    }

    #[test]
    fn it_reaches_back_as_far_as_the_cache_is_large() {
        let mut ghost = Ghost::new(32_000);
        let remembered = |ghost: &mut Ghost, reach| {
            ghost.set_reach(reach);
            (0..64_000u64).for_each(|i| ghost.insert(mix(i, 9), false));
            (0..64_000).filter(|&i| ghost.take(mix(i, 9)).is_some()).count()
        };
        for (reach, least, most) in [(8000, 7000, 9000), (64_000, 30_000, 32_100), (1, 900, 1100)] {
            let found = remembered(&mut ghost, reach);
            assert!((least..=most).contains(&found), "{found} of a reach of {reach}");
        }
    }
}
