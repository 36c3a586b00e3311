//! What each page of the segments holds, and where the newest version of a block is: 14.3 bytes a
//! page.
//!
//! A descriptor has ten bytes, little-endian: block (40 bits), sectors (8), checksum (32). That of a
//! chunk header has no sectors; it holds the chunk's epoch (40 bits) and number (32 bits) instead.

use crate::format::SEGMENT_PAGES;
use cinnabar_engine::address_map::AddressMap;
use cinnabar_engine::mix;
use std::collections::BTreeMap;

const DESCRIPTOR_BYTES: usize = 10;

/// Every sector of a block.
pub(crate) const ALL_SECTORS: u8 = 0xFF;

/// What a slot of data holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) block: u64,
    /// Sectors; never none.
    pub(crate) sectors: u8,
    pub(crate) checksum: u32,
}

/// See the module.
pub(crate) struct Slots {
    seed: u64,
    descriptors: Vec<u8>,
    /// Place in the directory of the volume that owns a segment.
    owners: Vec<u16>,
    map: AddressMap,
    /// Entries that the map had no room for: a few in a full table.
    overflow: BTreeMap<(u16, u64), u32>,
    /// From a version that holds only some sectors of a block to the next older one that holds more.
    older: BTreeMap<u32, u32>,
}

/// Seed of a page's checksum: of the device, the volume's incarnation, the chunk and the block, so
/// that what an earlier use of the slot has left behind never passes.
pub(crate) const fn checksum_seed(device: u64, incarnation: u64, number: u32, block: u64) -> u64 {
    mix(block, mix(incarnation, device) ^ ((number as u64) << 32))
}

impl Slots {
    /// Empty ones for so many segments.
    pub(crate) fn new(segments: u32, seed: u64) -> Self {
        let slots = segments * SEGMENT_PAGES;
        Self {
            seed,
            descriptors: vec![0; slots as usize * DESCRIPTOR_BYTES],
            owners: vec![0; segments as usize],
            map: AddressMap::new(slots),
            overflow: BTreeMap::new(),
            older: BTreeMap::new(),
        }
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        let tables = self.descriptors.len() + self.owners.len() * 2;
        let trees = self.overflow.len() * 24 + self.older.len() * 16;
        (tables + trees) as u64 + self.map.ram_bytes()
    }

    pub(crate) fn owner(&self, slot: u32) -> u16 {
        self.owners[(slot / SEGMENT_PAGES) as usize]
    }

    pub(crate) fn set_owner(&mut self, segment: u32, volume: u16) {
        self.owners[segment as usize] = volume;
    }

    fn hash(&self, volume: u16, block: u64) -> u64 {
        mix(block | u64::from(volume) << 44, self.seed)
    }

    fn bytes(&self, slot: u32) -> &[u8; DESCRIPTOR_BYTES] {
        let at = slot as usize * DESCRIPTOR_BYTES;
        self.descriptors[at..at + DESCRIPTOR_BYTES].try_into().expect("a whole descriptor")
    }

    fn set(&mut self, slot: u32, block: u64, sectors: u8, last: u32) {
        assert!(block < 1 << 40, "a descriptor has 40 bits for it");
        let at = slot as usize * DESCRIPTOR_BYTES;
        let bytes = &mut self.descriptors[at..at + DESCRIPTOR_BYTES];
        bytes[..5].copy_from_slice(&block.to_le_bytes()[..5]);
        bytes[5] = sectors;
        bytes[6..].copy_from_slice(&last.to_le_bytes());
    }

    fn get(&self, slot: u32) -> (u64, u8, u32) {
        let bytes = self.bytes(slot);
        let mut block = [0; 8];
        block[..5].copy_from_slice(&bytes[..5]);
        let last = u32::from_le_bytes(bytes[6..].try_into().expect("four bytes"));
        (u64::from_le_bytes(block), bytes[5], last)
    }

    /// Makes `slot` the header of a chunk.
    pub(crate) fn set_header(&mut self, slot: u32, epoch: u64, number: u64) {
        self.set(slot, epoch & ((1 << 40) - 1), 0, number as u32);
    }

    /// Makes `slot` a page of data.
    pub(crate) fn set_data(&mut self, slot: u32, held: Held) {
        assert_ne!(held.sectors, 0, "a page of data holds something");
        self.set(slot, held.block, held.sectors, held.checksum);
    }

    /// What `slot` holds, if it is a page of data.
    pub(crate) fn data(&self, slot: u32) -> Option<Held> {
        let (block, sectors, checksum) = self.get(slot);
        (sectors != 0).then_some(Held { block, sectors, checksum })
    }

    /// The chunk of a page of data: the slot of its header, its epoch and its number (their low 40 and
    /// 32 bits).
    pub(crate) fn chunk_of(&self, slot: u32) -> (u32, u64, u32) {
        let first = slot - slot % SEGMENT_PAGES;
        let header = (first..=slot).rev().find(|slot| self.get(*slot).1 == 0);
        let header = header.expect("a segment begins with a header");
        let (epoch, _, number) = self.get(header);
        (header, epoch, number)
    }

    /// The slot of the newest version of a block.
    pub(crate) fn find(&self, volume: u16, block: u64) -> Option<u32> {
        let is_it = |slot| {
            self.owner(slot) == volume && {
                let (held, sectors, _) = self.get(slot);
                held == block && sectors != 0
            }
        };
        let found = self.map.find(self.hash(volume, block), is_it);
        found.or_else(|| {
            if self.overflow.is_empty() {
                return None;
            }
            self.overflow.get(&(volume, block)).copied()
        })
    }

    /// Makes `slot` the newest version of the block that it holds. Older versions stay in its chain
    /// as far as they hold sectors that newer ones don't.
    pub(crate) fn supersede(&mut self, slot: u32) {
        let (block, sectors, _) = self.get(slot);
        let volume = self.owner(slot);
        let hash = self.hash(volume, block);
        let Some(old) = self.find(volume, block) else {
            if let Some(pushed_out) = self.map.insert(hash, slot) {
                let key = (self.owner(pushed_out), self.get(pushed_out).0);
                let before = self.overflow.insert(key, pushed_out);
                assert!(before.is_none(), "a block has one newest version");
            }
            return;
        };
        if !self.map.replace(hash, old, slot) {
            let entry = self.overflow.get_mut(&(volume, block)).expect("found in one of both");
            *entry = slot;
        }
        let (mut newer, mut covered, mut next) = (slot, sectors, Some(old));
        while let Some(version) = next {
            next = self.older.remove(&version);
            let holds = self.get(version).1;
            if holds & !covered != 0 {
                self.older.insert(newer, version);
                newer = version;
                covered |= holds;
            }
        }
    }

    /// The newest version of a block is another one, in the same slot, with no fewer sectors.
    pub(crate) fn rewrite(&mut self, slot: u32, held: Held) {
        let (block, sectors, _) = self.get(slot);
        assert!(block == held.block && sectors & !held.sectors == 0, "it covers the older version");
        self.set_data(slot, held);
        let (mut newer, mut covered, mut next) = (slot, held.sectors, self.older.remove(&slot));
        while let Some(version) = next {
            next = self.older.remove(&version);
            let holds = self.get(version).1;
            if holds & !covered != 0 {
                self.older.insert(newer, version);
                newer = version;
                covered |= holds;
            }
        }
    }

    /// The next older version with sectors that the newer ones don't hold.
    pub(crate) fn older(&self, slot: u32) -> Option<u32> {
        if self.older.is_empty() { None } else { self.older.get(&slot).copied() }
    }

    /// Forgets all versions of a block.
    pub(crate) fn remove(&mut self, volume: u16, block: u64) {
        let Some(newest) = self.find(volume, block) else { return };
        let mut next = Some(newest);
        while let Some(version) = next {
            next = self.older.remove(&version);
        }
        self.unmap(volume, block, newest);
    }

    fn unmap(&mut self, volume: u16, block: u64, slot: u32) {
        if !self.map.remove(self.hash(volume, block), slot) {
            let removed = self.overflow.remove(&(volume, block));
            assert_eq!(removed, Some(slot), "found in one of both");
        }
    }

    /// The back end has what `slot` holds: the block is read there, unless a newer version hides it.
    /// Versions are retired from the oldest to the newest.
    pub(crate) fn retire(&mut self, slot: u32) {
        let (block, sectors, _) = self.get(slot);
        if sectors == 0 {
            return;
        }
        let volume = self.owner(slot);
        let Some(newest) = self.find(volume, block) else { return };
        if newest == slot {
            assert!(!self.older.contains_key(&slot), "older versions were retired before");
            self.unmap(volume, block, slot);
            return;
        }
        let mut version = newest;
        while let Some(older) = self.older(version) {
            if older == slot {
                self.older.remove(&version);
                return;
            }
            version = older;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Slots {
        let mut slots = Slots::new(8, 1);
        slots.set_owner(0, 3);
        slots.set_header(0, 5, 9);
        slots
    }

    fn write(slots: &mut Slots, slot: u32, block: u64, sectors: u8) {
        slots.set_data(slot, Held { block, sectors, checksum: slot });
        slots.supersede(slot);
    }

    fn versions(slots: &Slots, block: u64) -> Vec<u32> {
        std::iter::successors(slots.find(3, block), |slot| slots.older(*slot)).collect()
    }

    #[test]
    fn versions_that_add_no_sector_leave_the_chain() {
        let mut slots = slots();
        write(&mut slots, 1, 77, 0b0011);
        write(&mut slots, 2, 77, 0b0110);
        write(&mut slots, 3, 77, 0b1100);
        assert_eq!(versions(&slots, 77), [3, 2, 1]);
        write(&mut slots, 4, 77, 0b0010);
        assert_eq!(versions(&slots, 77), [4, 3, 1], "2 adds nothing to 4 and 3");
        write(&mut slots, 5, 77, ALL_SECTORS);
        assert_eq!(versions(&slots, 77), [5]);
        assert_eq!(slots.chunk_of(5), (0, 5, 9));
    }

    #[test]
    fn versions_are_retired_from_the_oldest_on() {
        let mut slots = slots();
        write(&mut slots, 1, 77, 0b0011);
        write(&mut slots, 2, 77, 0b1100);
        slots.retire(1);
        assert_eq!(versions(&slots, 77), [2]);
        slots.retire(2);
        assert_eq!(versions(&slots, 77), [] as [u32; 0]);
    }

    #[test]
    fn a_table_in_which_all_hashes_meet_loses_nothing() {
        let mut slots = Slots::new(8, 1);
        (0..8).for_each(|segment| slots.set_owner(segment, 1));
        let all: Vec<u32> = (0..8 * SEGMENT_PAGES).filter(|s| s % SEGMENT_PAGES != 0).collect();
        for slot in &all {
            slots.set_data(*slot, Held { block: u64::from(*slot), sectors: 1, checksum: 0 });
            slots.supersede(*slot);
        }
        for slot in &all {
            assert_eq!(slots.find(1, u64::from(*slot)), Some(*slot));
            slots.retire(*slot);
            assert_eq!(slots.find(1, u64::from(*slot)), None);
        }
    }
}
