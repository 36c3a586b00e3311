//! Chunk headers. A chunk is one header page and up to 255 pages of data behind it, written in one
//! sequential write; its entries are of one volume and one epoch.

use super::{NUMBERS_END, SEGMENT_PAGES, SESSIONS_END};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::codec::{Reader, Writer};

const MAGIC: u32 = 0x4843_4C57;
/// Entries of a chunk.
pub const ENTRIES_MAX: usize = 255;
const FIELDS_BYTES: usize = 4 + 4 + 16 + 2 + 8 + 4 + 8 + 8 + 8 + 8 + 4 + 2;
const ENTRY_BYTES: usize = 1 + 1 + 5 + 4;
const _: () = assert!(FIELDS_BYTES + ENTRIES_MAX * ENTRY_BYTES <= 4096);

/// What a record without data does to its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeKind {
    /// They read as zeros; they stay allocated.
    Zero,
    /// They read as zeros; they may be deallocated.
    Punch,
    /// The guest does not need them.
    Trim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A page of data.
    Data {
        /// Block of the volume.
        block: u64,
        /// Sectors that it holds, bit 0 the first; the others are zeros.
        sectors: u8,
        /// Seeded CRC-32C of the page.
        checksum: u32,
    },
    /// Blocks zeroed or trimmed; no data.
    Range {
        /// First block.
        block: u64,
        /// Number of blocks.
        count: u32,
        /// What to do.
        kind: RangeKind,
    },
}

impl Entry {
    /// Its kind, sectors, block, and checksum or number of blocks.
    ///
    /// # Panics
    /// If the block number does not fit.
    pub(crate) fn fields(&self) -> (u8, u8, u64, u32) {
        let fields = match *self {
            Self::Data { block, sectors, checksum } => (0, sectors, block, checksum),
            Self::Range { block, count, kind } => (1 + kind as u8, 0, block, count),
        };
        assert!(fields.2 < 1 << 40, "a block number has 40 bits");
        fields
    }

    /// The entry with these fields, if there can be one.
    pub(crate) fn of_fields(kind: u8, sectors: u8, block: u64, last: u32) -> Option<Self> {
        let range = |kind| Some(Self::Range { block, count: last, kind });
        match kind {
            _ if block >= 1 << 40 => None,
            0 if sectors != 0 => Some(Self::Data { block, sectors, checksum: last }),
            1 => range(RangeKind::Zero),
            2 => range(RangeKind::Punch),
            3 => range(RangeKind::Trim),
            _ => None,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The device's identity.
    pub uuid: [u8; 16],
    /// Place of the volume in the directory.
    pub volume: u16,
    /// Which volume had that place.
    pub incarnation: u64,
    /// Session of the volume that wrote it.
    pub session: u32,
    /// Unique for each use of a segment: what an earlier use has left behind is told apart.
    pub opening: u64,
    /// Number of the chunk, consecutive within a session.
    pub number: u64,
    pub epoch: u64,
    /// When it was written, chunks up to this number were durable.
    pub durable: u64,
    /// Slot of the header; a misdirected write is not believed.
    pub slot: u32,
    /// Entries, in the order in which they take effect.
    pub entries: Vec<Entry>,
}

impl ChunkHeader {
    /// Pages of data behind the header.
    pub fn data_pages(&self) -> u32 {
        self.entries.iter().filter(|entry| matches!(entry, Entry::Data { .. })).count() as u32
    }

    /// The page.
    ///
    /// # Panics
    /// If there are more entries than fit.
    pub fn encode(&self) -> MetaPage {
        assert!(self.entries.len() <= ENTRIES_MAX, "a chunk has at most 255 entries");
        let mut page = MetaPage::zeroed();
        let mut w = Writer::new(&mut page.0);
        w.u32(MAGIC);
        w.bytes(&self.uuid);
        w.u16(self.volume);
        w.u64(self.incarnation);
        w.u32(self.session);
        for field in [self.opening, self.number, self.epoch, self.durable] {
            w.u64(field);
        }
        w.u32(self.slot);
        w.u16(self.entries.len() as u16);
        assert_eq!(w.written(), FIELDS_BYTES, "the entries begin where they are looked for");
        for entry in &self.entries {
            let (kind, sectors, block, last) = entry.fields();
            w.u8(kind);
            w.u8(sectors);
            w.bytes(&block.to_le_bytes()[..5]);
            w.u32(last);
        }
        w.seal();
        debug_assert_eq!(Self::decode(&page).as_ref(), Some(self), "what is read is what is meant");
        page
    }

    /// Whether a page looks as if it had been a header on this device: its mark or the identity is
    /// where they belong.
    pub fn was_one(page: &MetaPage, uuid: [u8; 16]) -> bool {
        page.0[4..8] == MAGIC.to_le_bytes() || page.0[8..24] == uuid
    }

    /// A page that can't be read: it may have been a header, or anything else.
    pub(crate) fn unreadable() -> MetaPage {
        let mut page = MetaPage::zeroed();
        Writer::new(&mut page.0).u32(MAGIC);
        page
    }

    /// The header in a page, or nothing if it isn't one or is damaged.
    pub fn decode(page: &MetaPage) -> Option<Self> {
        let mut r = Reader::verified(&page.0)?;
        if r.u32() != MAGIC {
            return None;
        }
        let (uuid, volume, incarnation, session) = (r.array(), r.u16(), r.u64(), r.u32());
        let [opening, number, epoch, durable] = std::array::from_fn(|_| r.u64());
        let (slot, count) = (r.u32(), usize::from(r.u16()));
        let bounded = [opening, number, epoch, durable].iter().all(|number| *number < NUMBERS_END);
        if count > ENTRIES_MAX || !bounded || session >= SESSIONS_END {
            return None;
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let (kind, sectors) = (r.u8(), r.u8());
            let mut block = [0; 8];
            block[..5].copy_from_slice(&r.array::<5>());
            let (block, last) = (u64::from_le_bytes(block), r.u32());
            entries.push(Entry::of_fields(kind, sectors, block, last)?);
        }
        let header = Self {
            uuid,
            volume,
            incarnation,
            session,
            opening,
            number,
            epoch,
            durable,
            slot,
            entries,
        };
        (header.slot % SEGMENT_PAGES + 1 + header.data_pages() <= SEGMENT_PAGES).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_header_comes_back_and_a_flipped_bit_does_not() {
        let data = |i: u64| Entry::Data { block: (1 << 40) - 1 - i, sectors: 0xF, checksum: 5 };
        let range = |kind| Entry::Range { block: 9, count: u32::MAX, kind };
        let mut entries: Vec<Entry> = (0..252).map(data).collect();
        entries.extend([RangeKind::Zero, RangeKind::Punch, RangeKind::Trim].map(range));
        let header = ChunkHeader {
            uuid: [3; 16],
            volume: 255,
            incarnation: u64::MAX,
            session: 6,
            opening: 1 << 50,
            number: 1 << 60,
            epoch: 77,
            durable: 4,
            slot: 512,
            entries,
        };
        let mut page = header.encode();
        assert_eq!(ChunkHeader::decode(&page), Some(header.clone()));
        // A number that could not be counted on from.
        page.0[46..54].copy_from_slice(&u64::MAX.to_le_bytes());
        Writer::new(&mut page.0).seal();
        assert_eq!(ChunkHeader::decode(&page), None);
        page = header.encode();
        page.0[2000] ^= 4;
        assert_eq!(ChunkHeader::decode(&page), None);
        for at in [5, 10] {
            page.0[at] ^= 4;
            assert_eq!(ChunkHeader::was_one(&page, [3; 16]), at == 5, "one of both is left");
        }
        assert!(!ChunkHeader::was_one(&MetaPage::zeroed(), [3; 16]));
        assert_eq!(ChunkHeader::decode(&MetaPage::zeroed()), None);
        let unreadable = ChunkHeader::unreadable();
        assert!(ChunkHeader::was_one(&unreadable, [3; 16]));
        assert_eq!(ChunkHeader::decode(&unreadable), None);
    }
}
