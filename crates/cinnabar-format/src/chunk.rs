//! Chunk headers: the log describes itself.
//!
//! A chunk is one header page and up to 255 blocks of data behind it, written in one sequential
//! write, durable on its own. From the headers alone the index can be rebuilt.

use crate::MetaPage;
use crate::codec::{Reader, Writer};
use crate::descriptor::mix;

/// Blocks of a full chunk, header included (1 MiB).
pub const CHUNK_BLOCKS: u32 = 256;
/// Blocks of data in a full chunk.
pub const DATA_BLOCKS_MAX: u32 = CHUNK_BLOCKS - 1;
const MAGIC: u32 = 0x4B48_4343;
const HEADER_BYTES: usize = 4 + 4 + 8 + 16 + 4 + 4 + 4 + 2 + 2;
/// Bytes of one entry on disk.
pub const ENTRY_BYTES: usize = 14;
const _: () = assert!(HEADER_BYTES + DATA_BLOCKS_MAX as usize * ENTRY_BYTES <= 4096);

/// Seed of a block's checksum: device, key and incarnation, not the place, so that a reinserted block
/// keeps its sum and another block's data never passes.
pub const fn checksum_seed(uuid: [u8; 16], incarnation: u32, block: u64) -> u64 {
    block_seed(device_seed(uuid), incarnation, block)
}

/// As [`checksum_seed`], with the device's seed at hand.
pub const fn block_seed(device: u64, incarnation: u32, block: u64) -> u64 {
    mix(block, (incarnation as u64) << 36 ^ device)
}

/// The secret seed of a device, for checksums and key hashes.
pub const fn device_seed(uuid: [u8; 16]) -> u64 {
    let all = u128::from_le_bytes(uuid);
    mix(all as u64, (all >> 64) as u64)
}

/// The same, folded: the identity of a device as journal pages carry it.
pub const fn device_of(uuid: [u8; 16]) -> u32 {
    device_seed(uuid) as u32
}

/// What a record in the log says of its block. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// Nothing: the block was dropped before its chunk was written.
    Hole = 0,
    /// A copy of what the backend holds durably.
    Clean = 1,
    /// A copy of a write that the backend acknowledged; believed after a crash only if a backend
    /// flush covers it.
    Written = 2,
    /// Data that the backend doesn't have yet (write-back).
    Dirty = 3,
    /// The block's older copies are invalid.
    Invalidation = 4,
    /// The backend has durably received the dirty copy of this sequence.
    Destaged = 5,
}

impl RecordKind {
    fn from_u8(value: u8) -> Option<Self> {
        [Self::Hole, Self::Clean, Self::Written, Self::Dirty, Self::Invalidation, Self::Destaged]
            .into_iter()
            .find(|kind| *kind as u8 == value)
    }
}

/// One record: the block at the same position behind the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The incarnation of the block's volume.
    pub incarnation: u32,
    /// Block number within the volume, 40 bits.
    pub block: u64,
    /// What the record says.
    pub kind: RecordKind,
    /// Seeded CRC-32C of the data.
    pub checksum: u32,
}

/// A decoded chunk header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Of the device; a chunk of another device's image is not believed.
    pub uuid: [u8; 16],
    /// Order of writing. A session goes on behind everything it found.
    pub sequence: u64,
    /// Which session of the device wrote it; what a session did not find can't be taken for its own.
    pub session: u32,
    /// Slot of the header itself; a misdirected write is not believed.
    pub slot: u32,
    /// Incarnation of the volume that owns the segment's share group, 0 for the common one.
    pub group: u32,
    /// The records, one a block.
    pub entries: Vec<Entry>,
}

impl ChunkHeader {
    /// The header page.
    ///
    /// # Panics
    /// If there are more than [`DATA_BLOCKS_MAX`] entries.
    pub fn encode(&self) -> MetaPage {
        assert!(self.entries.len() <= DATA_BLOCKS_MAX as usize, "a chunk holds 255 blocks");
        let mut page = MetaPage::zeroed();
        let mut w = Writer::new(&mut page.0);
        w.u32(MAGIC);
        w.u64(self.sequence);
        w.bytes(&self.uuid);
        w.u32(self.session);
        w.u32(self.slot);
        w.u32(self.group);
        w.u16(self.entries.len() as u16);
        w.u16(0);
        assert_eq!(w.written(), HEADER_BYTES, "the entries begin where they are looked for");
        for entry in &self.entries {
            assert!(entry.block < 1 << 40, "a block number has 40 bits");
            w.u32(entry.incarnation);
            w.bytes(&entry.block.to_le_bytes()[..5]);
            w.u8(entry.kind as u8);
            w.u32(entry.checksum);
        }
        w.seal();
        debug_assert_eq!(Self::decode(&page).as_ref(), Some(self), "what is read is what is meant");
        page
    }

    /// The header in `page`, or nothing if it isn't one or is damaged.
    pub fn decode(page: &MetaPage) -> Option<Self> {
        Self::read(Reader::verified(&page.0)?)
    }

    /// As [`decode`](Self::decode), or what would be the header without its check: for the mutant
    /// that does not.
    pub fn decode_or_trust(page: &MetaPage, trust: bool) -> Option<Self> {
        if trust { Self::read(Reader::unverified(&page.0)) } else { Self::decode(page) }
    }

    fn read(mut r: Reader<'_>) -> Option<Self> {
        if r.u32() != MAGIC {
            return None;
        }
        let (sequence, uuid, session) = (r.u64(), r.array(), r.u32());
        let (slot, group, count) = (r.u32(), r.u32(), r.u16());
        if u32::from(count) > DATA_BLOCKS_MAX {
            return None;
        }
        let _reserved = r.u16();
        let mut entries = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let incarnation = r.u32();
            let mut block = [0; 8];
            block[..5].copy_from_slice(&r.array::<5>());
            let kind = RecordKind::from_u8(r.u8())?;
            let block = u64::from_le_bytes(block);
            entries.push(Entry { incarnation, block, kind, checksum: r.u32() });
        }
        Some(Self { uuid, sequence, session, slot, group, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_header_comes_back_and_a_flipped_bit_does_not() {
        let entries = (0..u64::from(DATA_BLOCKS_MAX))
            .map(|i| Entry {
                incarnation: 9,
                block: (1 << 40) - 1 - i,
                kind: RecordKind::Written,
                checksum: i as u32,
            })
            .collect();
        let header = ChunkHeader {
            uuid: [3; 16],
            sequence: 1 << 50,
            session: 5,
            slot: 256,
            group: 9,
            entries,
        };
        let mut page = header.encode();
        assert_eq!(ChunkHeader::decode(&page), Some(header));
        page.0[4000] ^= 0x10;
        assert_eq!(ChunkHeader::decode(&page), None);
        assert_eq!(ChunkHeader::decode(&MetaPage::zeroed()), None);
    }
}
