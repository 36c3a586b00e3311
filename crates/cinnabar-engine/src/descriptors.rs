//! Block descriptors: entry i describes slot i, in 11 bytes.
//!
//! Layout of an entry, little-endian: bytes 0-3 checksum; bytes 4-10 a 56-bit word
//! {flags:8, volume + 1:12, block:36}. A volume field of zero means that the slot holds nothing; its checksum stays
//! readable until the slot is used again, because a read may still be under way.

use crate::limits::{VOLUME_BLOCKS_MAX, VOLUMES_MAX};
use crate::prefetch::prefetch;

pub(crate) const DESCRIPTOR_BYTES: usize = 11;
const BLOCK_BITS: u32 = 36;
const VOLUME_BITS: u32 = 12;
const _: () = assert!((VOLUMES_MAX as u64) < (1 << VOLUME_BITS));
const _: () = assert!(VOLUME_BLOCKS_MAX == 1 << BLOCK_BITS);
const _: () =
    assert!(32 + BLOCK_BITS + VOLUME_BITS + u8::BITS == DESCRIPTOR_BYTES as u32 * u8::BITS);

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Index of the volume.
    pub(crate) volume: u16,
    /// Block within it.
    pub(crate) block: u64,
}

impl Key {
    #[inline]
    fn word(self) -> u64 {
        debug_assert!(self.block < 1 << BLOCK_BITS && self.volume < VOLUMES_MAX);
        self.block | (u64::from(self.volume) + 1) << BLOCK_BITS
    }

    /// Hash of the key under the device's secret seed, so that a guest can't aim at a bucket.
    #[inline]
    pub(crate) fn hash(self, seed: u64) -> u64 {
        mix(self.word(), seed)
    }
}

/// A 64-bit finalizer (`SplitMix64`'s): every bit of the input moves every bit of the output.
#[inline]
pub const fn mix(value: u64, seed: u64) -> u64 {
    let mut x = value ^ seed;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Reference count bits and where the block came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u8);

impl Flags {
    const REFS: u8 = 0b11;
    const WRITTEN: u8 = 0b100;
    const UNFLUSHED: u8 = 0b1000;
    const CONDEMNED: u8 = 0b1_0000;

    pub(crate) const fn refs(self) -> u8 {
        self.0 & Self::REFS
    }

    pub(crate) const fn with_refs(self, refs: u8) -> Self {
        debug_assert!(refs <= Self::REFS, "two bits count the uses");
        Self((self.0 & !Self::REFS) | refs)
    }

    /// The block came from a write and has not been read since.
    pub(crate) const fn written(self) -> bool {
        self.0 & Self::WRITTEN != 0
    }

    pub(crate) const fn with_written(self, written: bool) -> Self {
        Self(if written { self.0 | Self::WRITTEN } else { self.0 & !Self::WRITTEN })
    }
}

impl Flags {
    /// When the block came in, its volume had writes that no backend flush covered: a crash of the
    /// backend's host may undo what the block holds.
    #[inline]
    pub(crate) const fn unflushed(self) -> bool {
        self.0 & Self::UNFLUSHED != 0
    }

    #[inline]
    pub(crate) const fn with_unflushed(self, unflushed: bool) -> Self {
        Self(if unflushed { self.0 | Self::UNFLUSHED } else { self.0 & !Self::UNFLUSHED })
    }

    /// The hand has passed over the block on flash: it goes when its segment is emptied, unless it
    /// is used before. Means nothing in a checkpoint.
    pub(crate) const fn condemned(self) -> bool {
        self.0 & Self::CONDEMNED != 0
    }

    #[inline]
    pub(crate) const fn with_condemned(self, condemned: bool) -> Self {
        Self(if condemned { self.0 | Self::CONDEMNED } else { self.0 & !Self::CONDEMNED })
    }
}

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
        let word = self.word(slot);
        let volume = (word >> BLOCK_BITS) & ((1 << VOLUME_BITS) - 1);
        (volume != 0)
            .then(|| Key { volume: volume as u16 - 1, block: word & ((1 << BLOCK_BITS) - 1) })
    }

    /// Flags of `slot`.
    #[inline]
    pub(crate) fn flags(&self, slot: u32) -> Flags {
        Flags((self.word(slot) >> (BLOCK_BITS + VOLUME_BITS)) as u8)
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
