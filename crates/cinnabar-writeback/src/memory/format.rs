//! The write memory's header and entries.

use crate::format::chunk::Entry;
use crate::format::{NUMBERS_END, SEGMENT_PAGES, SESSIONS_END, VOLUMES_MAX};
use cinnabar_engine::metadata::codec::{Reader, Writer};
use cinnabar_engine::units::BLOCK_BYTES;

const HEADER_MAGIC: &[u8; 8] = b"CINWMEM1";
const ENTRY_MAGIC: u32 = 0x454D_4C57;
/// Bytes of the header that mean something.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes of an entry that mean something.
pub const ENTRY_BYTES: usize = 88;
/// Bytes from one entry to the next.
const STRIDE: u64 = 128;

const _: () = assert!(ENTRY_BYTES as u64 <= STRIDE && HEADER_BYTES as u64 <= BLOCK_BYTES);

/// Pages of data that fit a file of so many bytes.
pub const fn pages_of(bytes: u64) -> u32 {
    let mut pages = bytes.saturating_sub(BLOCK_BYTES) / (BLOCK_BYTES + STRIDE);
    if pages > u32::MAX as u64 {
        pages = u32::MAX as u64;
    }
    // The table is rounded up to whole pages.
    while pages > 0 && bytes_of(pages as u32) > bytes {
        pages -= 1;
    }
    pages as u32
}

/// Bytes of a file with so many pages of data.
pub const fn bytes_of(pages: u32) -> u64 {
    data_at(pages, 0) + pages as u64 * BLOCK_BYTES
}

/// Byte of an entry.
pub(super) const fn entry_at(page: u32) -> u64 {
    BLOCK_BYTES + page as u64 * STRIDE
}

/// Byte of a page of data, in a file with so many.
pub(super) const fn data_at(pages: u32, page: u32) -> u64 {
    entry_at(pages).next_multiple_of(BLOCK_BYTES) + page as u64 * BLOCK_BYTES
}

/// Whose memory a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryHeader {
    /// Boot of the host.
    pub boot: [u8; 16],
    /// The log's identity.
    pub uuid: [u8; 16],
    /// Drawn for this use of the file.
    pub nonce: u64,
    /// Pages of data.
    pub pages: u32,
}

impl MemoryHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut w = Writer::new(&mut bytes);
        w.bytes(HEADER_MAGIC);
        w.bytes(&self.boot);
        w.bytes(&self.uuid);
        w.u64(self.nonce);
        w.u32(self.pages);
        w.seal();
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut r = Reader::verified(bytes)?;
        if &r.array::<8>() != HEADER_MAGIC {
            return None;
        }
        Some(Self { boot: r.array(), uuid: r.array(), nonce: r.u64(), pages: r.u32() })
    }
}

/// One entry of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryEntry {
    /// Of the file's header.
    pub(super) nonce: u64,
    /// Of two entries for the same place in a chunk the one with the higher stamp counts.
    pub(super) stamp: u64,
    pub(super) place: u16,
    pub(super) incarnation: u64,
    pub(super) session: u32,
    pub(super) opening: u64,
    pub(super) number: u64,
    pub(super) epoch: u64,
    /// Slot of the chunk's header.
    pub(super) slot: u32,
    /// Which of the chunk's entries it is.
    pub(super) index: u16,
    pub(super) entry: Entry,
}

impl MemoryEntry {
    pub(super) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let mut w = Writer::new(&mut bytes);
        w.u32(ENTRY_MAGIC);
        w.u64(self.nonce);
        w.u64(self.stamp);
        w.u16(self.place);
        w.u64(self.incarnation);
        w.u32(self.session);
        w.u64(self.opening);
        w.u64(self.number);
        w.u64(self.epoch);
        w.u32(self.slot);
        w.u16(self.index);
        let (kind, sectors, block, last) = self.entry.fields();
        w.u8(kind);
        w.u8(sectors);
        w.u64(block);
        w.u32(last);
        w.seal();
        debug_assert_eq!(Self::decode(&bytes), Some(*self), "what is read is what is meant");
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let mut r = Reader::verified(bytes)?;
        if r.u32() != ENTRY_MAGIC {
            return None;
        }
        let (nonce, stamp, place, incarnation) = (r.u64(), r.u64(), r.u16(), r.u64());
        let (session, opening, number, epoch) = (r.u32(), r.u64(), r.u64(), r.u64());
        let (slot, index) = (r.u32(), r.u16());
        let (kind, sectors, block, last) = (r.u8(), r.u8(), r.u64(), r.u32());
        let entry = Entry::of_fields(kind, sectors, block, last)?;
        let bounded = [opening, number, epoch].iter().all(|number| *number < NUMBERS_END)
            && place < VOLUMES_MAX
            && session < SESSIONS_END
            && u32::from(index) < SEGMENT_PAGES;
        let found = Self {
            nonce,
            stamp,
            place,
            incarnation,
            session,
            opening,
            number,
            epoch,
            slot,
            index,
            entry,
        };
        bounded.then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_pages_do_not_overlap() {
        for bytes in [0, 4096, 8192, 12_288, 1 << 20, (1 << 20) + 5, 64 << 20, 1 << 40] {
            let pages = pages_of(bytes);
            assert!(pages == 0 || bytes_of(pages) <= bytes, "{pages} in {bytes}");
            assert!(bytes < 1 << 20 || bytes_of(pages) + 2 * 4096 + 128 > bytes, "{pages}");
            assert!(entry_at(pages) <= data_at(pages, 0));
        }
        assert_eq!((pages_of(1 << 20), bytes_of(1)), (247, 3 * 4096));
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let header = MemoryHeader { boot: [1; 16], uuid: [2; 16], nonce: 3, pages: 4 };
        let mut bytes = header.encode();
        assert_eq!(MemoryHeader::decode(&bytes), Some(header));
        bytes[30] ^= 1;
        assert_eq!(MemoryHeader::decode(&bytes), None);
        let entry = MemoryEntry {
            nonce: 1,
            stamp: u64::MAX,
            place: 255,
            incarnation: u64::MAX,
            session: 7,
            opening: 1 << 50,
            number: 1 << 60,
            epoch: 9,
            slot: u32::MAX,
            index: 254,
            entry: Entry::Data { block: (1 << 40) - 1, sectors: 0xF, checksum: u32::MAX },
        };
        let mut bytes = entry.encode();
        assert_eq!(MemoryEntry::decode(&bytes), Some(entry));
        bytes[80] ^= 1;
        assert_eq!(MemoryEntry::decode(&bytes), None);
        assert_eq!(MemoryEntry::decode(&[0; ENTRY_BYTES]), None);
        assert_eq!(MemoryHeader::decode(&[0; HEADER_BYTES]), None);
    }
}
