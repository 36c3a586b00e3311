//! Block descriptors, as a checkpoint holds them: what a slot of the log holds, in 11 bytes.
//!
//! Layout of an entry, little-endian: bytes 0-3 checksum; bytes 4-10 a 56-bit word
//! {flags:8, volume + 1:12, block:36}. A volume field of zero means that the slot holds nothing.

use crate::limits::{VOLUME_BLOCKS_MAX, VOLUMES_MAX};

/// Bytes of an entry.
pub const DESCRIPTOR_BYTES: usize = 11;
/// Bits of a block's number.
pub const BLOCK_BITS: u32 = 36;
/// Bits of a volume's index, plus 1.
pub const VOLUME_BITS: u32 = 12;
const _: () = assert!((VOLUMES_MAX as u64) < (1 << VOLUME_BITS));
const _: () = assert!(VOLUME_BLOCKS_MAX == 1 << BLOCK_BITS);
const _: () =
    assert!(32 + BLOCK_BITS + VOLUME_BITS + u8::BITS == DESCRIPTOR_BYTES as u32 * u8::BITS);

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Index of the volume.
    pub volume: u16,
    /// Block within it.
    pub block: u64,
}

impl Key {
    /// Its bits of an entry's word.
    #[inline]
    pub fn word(self) -> u64 {
        debug_assert!(self.block < 1 << BLOCK_BITS && self.volume < VOLUMES_MAX);
        self.block | (u64::from(self.volume) + 1) << BLOCK_BITS
    }

    /// The key in an entry's word, if the slot holds one.
    #[inline]
    pub fn in_word(word: u64) -> Option<Self> {
        let volume = (word >> BLOCK_BITS) & ((1 << VOLUME_BITS) - 1);
        (volume != 0)
            .then(|| Self { volume: volume as u16 - 1, block: word & ((1 << BLOCK_BITS) - 1) })
    }

    /// Hash of the key under the device's secret seed, so that a guest can't aim at a bucket.
    #[inline]
    pub fn hash(self, seed: u64) -> u64 {
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
pub struct Flags(pub u8);

impl Flags {
    const REFS: u8 = 0b11;
    const WRITTEN: u8 = 0b100;
    const UNFLUSHED: u8 = 0b1000;
    const CONDEMNED: u8 = 0b1_0000;

    /// The flags in an entry's word.
    #[inline]
    pub const fn in_word(word: u64) -> Self {
        Self((word >> (BLOCK_BITS + VOLUME_BITS)) as u8)
    }

    /// How often it was used, as far as two bits count.
    #[inline]
    pub const fn refs(self) -> u8 {
        self.0 & Self::REFS
    }

    /// The same with so many uses.
    ///
    /// # Panics
    /// In tests, if two bits don't count that many.
    #[inline]
    #[must_use]
    pub const fn with_refs(self, refs: u8) -> Self {
        debug_assert!(refs <= Self::REFS, "two bits count the uses");
        Self((self.0 & !Self::REFS) | refs)
    }

    /// The block came from a write and has not been read since.
    #[inline]
    pub const fn written(self) -> bool {
        self.0 & Self::WRITTEN != 0
    }

    /// The same, from a write or not.
    #[inline]
    #[must_use]
    pub const fn with_written(self, written: bool) -> Self {
        Self(if written { self.0 | Self::WRITTEN } else { self.0 & !Self::WRITTEN })
    }

    /// When the block came in, its volume had writes that no backend flush covered: a crash of the
    /// backend's host may undo what the block holds.
    #[inline]
    pub const fn unflushed(self) -> bool {
        self.0 & Self::UNFLUSHED != 0
    }

    /// The same, with such writes or without.
    #[inline]
    #[must_use]
    pub const fn with_unflushed(self, unflushed: bool) -> Self {
        Self(if unflushed { self.0 | Self::UNFLUSHED } else { self.0 & !Self::UNFLUSHED })
    }

    /// The hand has passed over the block on flash: it goes when its segment is emptied, unless it
    /// is used before. Means nothing in a checkpoint.
    #[inline]
    pub const fn condemned(self) -> bool {
        self.0 & Self::CONDEMNED != 0
    }

    /// The same, passed over or not.
    #[inline]
    #[must_use]
    pub const fn with_condemned(self, condemned: bool) -> Self {
        Self(if condemned { self.0 | Self::CONDEMNED } else { self.0 & !Self::CONDEMNED })
    }
}

/// What a descriptor in a checkpoint says, for offline tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorRecord {
    /// Index of the volume.
    pub volume: u16,
    /// Block within it.
    pub block: u64,
    /// Believed after a crash only if a backend flush covers its segment.
    pub unflushed: bool,
    /// Seeded CRC-32C of the data; see [`checksum_seed`](crate::chunk::checksum_seed).
    pub checksum: u32,
}

/// The descriptors of a page, one a slot; `None` where a slot holds nothing.
///
/// # Panics
/// Never: each has its bytes.
pub fn descriptors(raw: &[u8]) -> impl Iterator<Item = Option<DescriptorRecord>> {
    raw.chunks_exact(DESCRIPTOR_BYTES).map(|entry| {
        let checksum = u32::from_le_bytes(entry[..4].try_into().expect("four bytes"));
        let word = u64::from_le_bytes(entry[3..].try_into().expect("eight bytes")) >> 8;
        let Key { volume, block } = Key::in_word(word)?;
        let unflushed = Flags::in_word(word).unflushed();
        Some(DescriptorRecord { volume, block, unflushed, checksum })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_flags_come_back_from_a_word() {
        let key = Key { volume: VOLUMES_MAX - 1, block: VOLUME_BLOCKS_MAX - 1 };
        let flags = Flags::default().with_refs(3).with_unflushed(true);
        let word = key.word() | u64::from(flags.0) << (BLOCK_BITS + VOLUME_BITS);
        assert_eq!((Key::in_word(word), Flags::in_word(word)), (Some(key), flags));
        let mut raw = [0; 3 * DESCRIPTOR_BYTES];
        raw[DESCRIPTOR_BYTES..][..4].copy_from_slice(&0xDEAD_BEEF_u32.to_le_bytes());
        raw[DESCRIPTOR_BYTES + 4..][..7].copy_from_slice(&word.to_le_bytes()[..7]);
        let Key { volume, block } = key;
        let record = DescriptorRecord { volume, block, unflushed: true, checksum: 0xDEAD_BEEF };
        assert_eq!(descriptors(&raw).collect::<Vec<_>>(), [None, Some(record), None]);
    }
}
