//! Block descriptors: entry i describes slot i, in 11 bytes, laid out as on disk
//! ([`descriptor`](cinnabar_format::descriptor)). The checksum of a slot that holds nothing stays
//! readable until the slot is used again, because a read may still be under way.

use crate::limits::{VOLUME_BLOCKS_MAX, VOLUMES_MAX};
use crate::prefetch::prefetch;
use cinnabar_format::descriptor::{BLOCK_BITS, VOLUME_BITS};
pub(crate) use cinnabar_format::descriptor::{DESCRIPTOR_BYTES, Flags, Key, mix};

/// All descriptors of a shard: flash slots first, RAM slots behind them.
pub(crate) struct Descriptors {
    bytes: Vec<u8>,
}

impl Descriptors {
    /// Room for `slots` slots, zeroed and not touched.
    pub(crate) fn new(slots: u32) -> Self {
        Self { bytes: vec![0; slots as usize * DESCRIPTOR_BYTES] }
    }

    /// Bytes allocated.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The table, for a driver that wants to back it with huge pages, and for checkpoints.
    pub(crate) fn table(&self) -> &[u8] {
        &self.bytes
    }

    /// Raw bytes of `count` entries from `slot` on.
    pub(crate) fn raw(&self, slot: u32, count: u32) -> &[u8] {
        let at = slot as usize * DESCRIPTOR_BYTES;
        &self.bytes[at..at + count as usize * DESCRIPTOR_BYTES]
    }

    /// Overwrites entries from `slot` on with bytes of a checkpoint.
    pub(crate) fn set_raw(&mut self, slot: u32, bytes: &[u8]) {
        assert!(bytes.len().is_multiple_of(DESCRIPTOR_BYTES), "whole descriptors");
        let at = slot as usize * DESCRIPTOR_BYTES;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Lets these slots hold nothing, nor a checksum: nothing is read there.
    pub(crate) fn wipe(&mut self, slots: std::ops::Range<u32>) {
        let at = |slot: u32| slot as usize * DESCRIPTOR_BYTES;
        self.bytes[at(slots.start)..at(slots.end)].fill(0);
    }

    /// Starts loading the entry of `slot`.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        let at = slot as usize * DESCRIPTOR_BYTES;
        prefetch(&self.bytes, at);
        prefetch(&self.bytes, at + DESCRIPTOR_BYTES - 1);
    }

    /// The 56-bit word in the upper bits, one byte of checksum below.
    #[inline]
    fn wide(&self, slot: u32) -> u64 {
        let at = slot as usize * DESCRIPTOR_BYTES + 3;
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    #[inline]
    fn word(&self, slot: u32) -> u64 {
        self.wide(slot) >> 8
    }

    #[inline]
    fn set_word(&mut self, slot: u32, word: u64) {
        let at = slot as usize * DESCRIPTOR_BYTES + 3;
        let low = u64::from(self.bytes[at]);
        self.bytes[at..at + 8].copy_from_slice(&(word << 8 | low).to_le_bytes());
    }

    /// Whether `slot` holds `key`.
    #[inline]
    pub(crate) fn is(&self, slot: u32, key: Key) -> bool {
        self.word(slot) & ((1 << (BLOCK_BITS + VOLUME_BITS)) - 1) == key.word()
    }

    /// The key in `slot`, if it holds one.
    #[inline]
    pub(crate) fn key(&self, slot: u32) -> Option<Key> {
        Key::in_word(self.word(slot))
    }

    /// Flags of `slot`.
    #[inline]
    pub(crate) fn flags(&self, slot: u32) -> Flags {
        Flags::in_word(self.word(slot))
    }

    /// Sets the flags of `slot`.
    #[inline]
    pub(crate) fn set_flags(&mut self, slot: u32, flags: Flags) {
        debug_assert!(self.key(slot).is_some(), "flags are those of a block");
        self.bytes[slot as usize * DESCRIPTOR_BYTES + DESCRIPTOR_BYTES - 1] = flags.0;
    }

    /// Lets `slot` hold `key`.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, key: Key, flags: Flags) {
        assert!(key.block < VOLUME_BLOCKS_MAX && key.volume < VOLUMES_MAX, "a key fits its bits");
        self.set_word(slot, key.word() | u64::from(flags.0) << (BLOCK_BITS + VOLUME_BITS));
        debug_assert_eq!((self.key(slot), self.flags(slot)), (Some(key), flags), "as it was set");
    }

    /// Lets `slot` hold nothing; the checksum stays.
    #[inline]
    pub(crate) fn clear(&mut self, slot: u32) {
        self.set_word(slot, 0);
    }

    /// Checksum of the data in `slot`.
    pub(crate) fn checksum(&self, slot: u32) -> u32 {
        let at = slot as usize * DESCRIPTOR_BYTES;
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    /// Sets the checksum of the data in `slot`.
    #[inline]
    pub(crate) fn set_checksum(&mut self, slot: u32, checksum: u32) {
        let at = slot as usize * DESCRIPTOR_BYTES;
        self.bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_key_flags_and_checksum_apart() {
        let mut table = Descriptors::new(3);
        let key = Key { volume: VOLUMES_MAX - 1, block: (1 << BLOCK_BITS) - 1 };
        table.set_checksum(1, 0xDEAD_BEEF);
        table.set(1, key, Flags::default().with_refs(3).with_written(true));
        assert_eq!(table.key(1), Some(key));
        assert!(table.is(1, key) && !table.is(0, key));
        assert_eq!((table.flags(1).refs(), table.flags(1).written()), (3, true));
        assert_eq!(table.checksum(1), 0xDEAD_BEEF);
        table.set_flags(1, Flags::default());
        assert_eq!((table.key(1), table.flags(1).refs()), (Some(key), 0));
        table.clear(1);
        assert_eq!((table.key(1), table.checksum(1)), (None, 0xDEAD_BEEF));
        assert_eq!((table.key(0), table.key(2)), (None, None));
    }
}
