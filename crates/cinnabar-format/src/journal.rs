//! Journal pages: what the checkpoint and the chunks don't say.
//!
//! A page is eight sectors of 512 bytes, each checked by itself: a device tears a page between
//! sectors at worst, so after a crash a sector is whole or what it was before, and anything else is
//! damage.

use crate::MetaPage;
use crate::checkpoint::VolumeRecord;
use crate::codec::{Reader, Writer};

/// Sectors in a page.
pub const SECTORS: usize = 8;
const SECTOR_BYTES: usize = 512;
const MAGIC: u32 = 0x4C4E_4A43;
/// Checksum, magic, device, era, page, first page of the write, tail, checkpoint, index, bytes.
const HEADER_BYTES: usize = 4 + 4 + 4 + 4 + 8 + 8 + 8 + 8 + 1 + 2;
const ROOM: usize = SECTOR_BYTES - HEADER_BYTES;
/// Bytes of the largest record.
const RECORD_BYTES_MAX: usize = 1 + VolumeRecord::BYTES;
const _: () = assert!(RECORD_BYTES_MAX <= ROOM);
const _: () = assert!(SECTORS * SECTOR_BYTES == size_of::<MetaPage>());
const _: () = assert!(ROOM <= u16::MAX as usize);
/// Bytes of records that a page has room for at least, whatever their sizes: a sector may be left
/// with just too little for the largest.
pub const PAGE_ROOM_MIN: usize = SECTORS * (ROOM - RECORD_BYTES_MAX);
/// Invalidation records that a page has room for.
pub const INVALIDATIONS_A_PAGE: usize = SECTORS * (ROOM / Record::INVALIDATION_BYTES);

/// Something that stays true, whatever is written later. See `docs/design/durability.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Copies of these blocks in chunks up to `version` are invalid.
    Invalidation {
        /// Whose.
        incarnation: u32,
        /// First block.
        block: u64,
        /// Number of blocks.
        count: u32,
        /// Sequence number of the log.
        version: u64,
    },
    /// Everything in this segment, in chunks up to `version`, is invalid.
    SegmentInvalidation {
        /// Which.
        segment: u32,
        /// Sequence number of the log.
        version: u64,
    },
    /// The chunk at this slot failed to be written and is invalid.
    ChunkInvalidation {
        /// Slot of its header.
        slot: u32,
        /// Sequence number of the log.
        version: u64,
    },
    /// Chunks newer than `sequence` of this session may be found from the segment's start on.
    Opened {
        /// Which.
        segment: u32,
        /// Sequence number of its opening.
        sequence: u64,
        session: u32,
    },
    /// The backend has been flushed: written copies in chunks of this session up to `sequence` may be
    /// believed.
    Flushed {
        /// Whose.
        incarnation: u32,
        session: u32,
        /// Sequence number of the log.
        sequence: u64,
    },
    /// A volume; the one with the highest stamp counts.
    Volume(Box<VolumeRecord>),
    /// Blocks of this incarnation are never believed again.
    Dropped {
        /// Whose.
        incarnation: u32,
    },
    /// A region became active: copies of its blocks may be invalid without a record until the
    /// [`RegionClosed`](Self::RegionClosed) of this opening.
    RegionOpened {
        /// Whose.
        incarnation: u32,
        /// Number of its first block, divided by [`REGION_BLOCKS`].
        region: u32,
        /// Its number, a stamp; the session is in the upper half.
        opening: u64,
    },
    /// It is active no more.
    RegionClosed(Box<RegionEnd>),
}

/// Blocks of a region: 1 MiB, aligned.
pub const REGION_BLOCKS: u64 = 256;

/// The end of an opening of a region: copies of the blocks in `stale` in chunks up to `version` are
/// invalid, and no others because of this opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionEnd {
    /// Whose.
    pub incarnation: u32,
    /// As in [`Record::RegionOpened`].
    pub region: u32,
    /// As in [`Record::RegionOpened`].
    pub opening: u64,
    /// Sequence number of the log.
    pub version: u64,
    /// Bit i: block i of the region.
    pub stale: [u64; 4],
}

impl RegionEnd {
    const BYTES: usize = 4 + 4 + 8 + 8 + 32;

    /// Runs of invalid blocks: first block of the volume, and end.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        let base = u64::from(self.region) * REGION_BLOCKS;
        let is_stale = |at: &u64| self.stale[(at / 64) as usize] >> (at % 64) & 1 == 1;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for block in (0..REGION_BLOCKS).filter(is_stale).map(|at| base + at) {
            match runs.last_mut() {
                Some((_, end)) if *end == block => *end += 1,
                _ => runs.push((block, block + 1)),
            }
        }
        runs
    }
}

impl Record {
    const INVALIDATION_BYTES: usize = 1 + 4 + 5 + 4 + 8;
    /// Bytes of what is said of a volume when the journal is rewritten: the volume, and how far
    /// its backend is flushed.
    pub const VOLUME_STATE_BYTES: usize = RECORD_BYTES_MAX + 1 + 16;

    /// Bytes in a page.
    pub fn bytes(&self) -> usize {
        1 + match self {
            Self::Invalidation { .. } => Self::INVALIDATION_BYTES - 1,
            Self::SegmentInvalidation { .. } | Self::ChunkInvalidation { .. } => 12,
            Self::Opened { .. } | Self::Flushed { .. } | Self::RegionOpened { .. } => 16,
            Self::Volume(_) => VolumeRecord::BYTES,
            Self::Dropped { .. } => 4,
            Self::RegionClosed(_) => RegionEnd::BYTES,
        }
    }

    fn encode(&self, w: &mut Writer<'_>) {
        let end = w.written() + self.bytes();
        match self {
            Self::Invalidation { incarnation, block, count, version } => {
                assert!(*block < 1 << 40, "a block number has 40 bits");
                w.u8(1);
                w.u32(*incarnation);
                w.bytes(&block.to_le_bytes()[..5]);
                w.u32(*count);
                w.u64(*version);
            }
            Self::SegmentInvalidation { segment, version } => {
                w.u8(2);
                w.u32(*segment);
                w.u64(*version);
            }
            Self::ChunkInvalidation { slot, version } => {
                w.u8(3);
                w.u32(*slot);
                w.u64(*version);
            }
            Self::Opened { segment, sequence, session } => {
                w.u8(4);
                w.u32(*segment);
                w.u32(*session);
                w.u64(*sequence);
            }
            Self::Flushed { incarnation, session, sequence } => {
                w.u8(5);
                w.u32(*incarnation);
                w.u32(*session);
                w.u64(*sequence);
            }
            Self::Volume(record) => {
                w.u8(6);
                record.encode(w);
            }
            Self::Dropped { incarnation } => {
                w.u8(7);
                w.u32(*incarnation);
            }
            Self::RegionOpened { incarnation, region, opening } => {
                w.u8(8);
                w.u32(*incarnation);
                w.u32(*region);
                w.u64(*opening);
            }
            Self::RegionClosed(ended) => {
                w.u8(9);
                w.u32(ended.incarnation);
                w.u32(ended.region);
                for value in [ended.opening, ended.version].iter().chain(&ended.stale) {
                    w.u64(*value);
                }
            }
        }
        assert_eq!(w.written(), end, "a record takes the room that was counted for it");
    }

    fn decode(r: &mut Reader<'_>) -> Option<Self> {
        Some(match r.u8() {
            1 => {
                let incarnation = r.u32();
                let mut block = [0; 8];
                block[..5].copy_from_slice(&r.array::<5>());
                let (count, version) = (r.u32(), r.u64());
                Self::Invalidation { incarnation, block: u64::from_le_bytes(block), count, version }
            }
            2 => Self::SegmentInvalidation { segment: r.u32(), version: r.u64() },
            3 => Self::ChunkInvalidation { slot: r.u32(), version: r.u64() },
            4 => {
                let (segment, session) = (r.u32(), r.u32());
                Self::Opened { segment, sequence: r.u64(), session }
            }
            5 => {
                let (incarnation, session) = (r.u32(), r.u32());
                Self::Flushed { incarnation, session, sequence: r.u64() }
            }
            6 => Self::Volume(Box::new(VolumeRecord::decode(r)?)),
            7 => Self::Dropped { incarnation: r.u32() },
            8 => {
                let (incarnation, region) = (r.u32(), r.u32());
                Self::RegionOpened { incarnation, region, opening: r.u64() }
            }
            9 => Self::RegionClosed(Box::new(RegionEnd {
                incarnation: r.u32(),
                region: r.u32(),
                opening: r.u64(),
                version: r.u64(),
                stale: [r.u64(), r.u64(), r.u64(), r.u64()],
            })),
            _ => return None,
        })
    }
}

/// What every sector of a page says besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// Folded identity of the device.
    pub device: u32,
    /// Session at which everything before was given up; pages of other eras mean nothing.
    pub era: u32,
    /// Number of the page; it lies at this number modulo the pages of the ring.
    pub page: u64,
    /// First page of the write that this one was part of.
    pub first: u64,
    /// Pages before this one are dead.
    pub tail: u64,
    /// The checkpoint that the records from `tail` on go with; an older one won't do.
    pub checkpoint: u64,
}

impl PageHeader {
    /// A page without records, at place `at` of a ring of `places` that is formatted. Its number is
    /// before that of the first page to be written, so that no place ever reads as zeros.
    ///
    /// # Panics
    /// If the ring has no such place.
    pub fn formatted(device: u32, era: u32, places: u64, at: u64) -> MetaPage {
        assert!(at < places, "a place of the ring");
        let page = if at == 0 { places } else { at };
        let header = Self { device, era, page, first: page, tail: places + 1, checkpoint: 0 };
        header.encode(&mut [].iter().peekable()).0
    }

    /// Whether the page is one of a ring as it was formatted. Pages written since are not dead when
    /// they are written.
    pub const fn is_formatted(&self) -> bool {
        self.tail > self.page
    }

    /// The page with as many of `records` as fit, and how many that are.
    ///
    /// # Panics
    /// If a record is of a volume without a name, or of a block beyond every volume.
    pub fn encode<'a>(
        &self,
        records: &mut std::iter::Peekable<impl Iterator<Item = &'a Record>>,
    ) -> (MetaPage, usize) {
        let mut page = MetaPage::zeroed();
        let mut taken = 0;
        for (index, sector) in page.0.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            let mut held = Vec::new();
            let mut bytes = 0;
            while let Some(record) = records.next_if(|r| bytes + r.bytes() <= ROOM) {
                bytes += record.bytes();
                held.push(record);
            }
            let mut w = Writer::new(sector);
            w.u32(MAGIC);
            w.u32(self.device);
            w.u32(self.era);
            for value in [self.page, self.first, self.tail, self.checkpoint] {
                w.u64(value);
            }
            w.u8(index as u8);
            w.u16(held.len() as u16);
            assert_eq!(w.written(), HEADER_BYTES, "records begin where they are looked for");
            taken += held.len();
            for record in held {
                record.encode(&mut w);
            }
            w.seal();
        }
        (page, taken)
    }
}

/// A decoded sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sector<R = Vec<Record>> {
    /// Zeros: never written.
    Blank,
    Whole(PageHeader, R),
    /// Neither.
    Damaged,
}

/// The eight sectors of a page.
pub fn decode(page: &MetaPage) -> [Sector; SECTORS] {
    std::array::from_fn(|index| {
        let at = index * SECTOR_BYTES;
        let sector = &page.0[at..at + SECTOR_BYTES];
        let mut records = Vec::new();
        match decode_sector(sector, index, |_| true, &mut records) {
            Sector::Blank => Sector::Blank,
            Sector::Whole(header, ()) => Sector::Whole(header, records),
            Sector::Damaged => Sector::Damaged,
        }
    })
}

/// Tells of each sector of a page in order, and appends the records of those that are wanted. A start
/// looks at every page of the ring, and most are dead.
pub fn decode_each(
    page: &MetaPage,
    wanted: impl Fn(&PageHeader) -> bool,
    records: &mut Vec<Record>,
    mut each: impl FnMut(Sector<()>),
) {
    for (index, sector) in page.0.chunks_exact(SECTOR_BYTES).enumerate() {
        each(decode_sector(sector, index, &wanted, records));
    }
}

fn decode_sector(
    sector: &[u8],
    index: usize,
    wanted: impl Fn(&PageHeader) -> bool,
    into: &mut Vec<Record>,
) -> Sector<()> {
    if sector.iter().all(|byte| *byte == 0) {
        return Sector::Blank;
    }
    let before = into.len();
    let mut whole = || {
        let mut r = Reader::verified(sector)?;
        (r.u32() == MAGIC).then_some(())?;
        let (device, era) = (r.u32(), r.u32());
        let (page, first, tail, checkpoint) = (r.u64(), r.u64(), r.u64(), r.u64());
        (usize::from(r.u8()) == index).then_some(())?;
        let count = usize::from(r.u16());
        // Each record has at least one byte: a count beyond that is damage, and costs nothing.
        (count <= ROOM).then_some(())?;
        let header = PageHeader { device, era, page, first, tail, checkpoint };
        let is_wanted = wanted(&header);
        for _ in 0..count {
            let record = Record::decode(&mut r)?;
            if is_wanted {
                into.push(record);
            }
        }
        Some(header)
    };
    let whole = whole();
    if whole.is_none() {
        into.truncate(before);
    }
    whole.map_or(Sector::Damaged, |header| Sector::Whole(header, ()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::ProofToken;

    fn header() -> PageHeader {
        PageHeader { device: 1, era: 2, page: 77, first: 76, tail: 5, checkpoint: 4 }
    }

    fn records() -> Vec<Record> {
        let volume = VolumeRecord {
            index: 3,
            incarnation: 9,
            size_bytes: 1 << 40,
            generation: 7,
            stamp: 8,
            flushed: 6,
            written: true,
            name: "n".repeat(64),
            proof: Some(ProofToken([4; 64])),
        };
        vec![
            Record::Invalidation {
                incarnation: 1,
                block: (1 << 36) - 1,
                count: 9,
                version: 1 << 50,
            },
            Record::SegmentInvalidation { segment: 1, version: 2 },
            Record::ChunkInvalidation { slot: 1, version: 2 },
            Record::Opened { segment: 1, sequence: 2, session: 3 },
            Record::Flushed { incarnation: 1, session: 2, sequence: 3 },
            Record::Volume(Box::new(volume)),
            Record::Dropped { incarnation: 12 },
            Record::RegionOpened { incarnation: 1, region: u32::MAX, opening: 7 << 32 },
            Record::RegionClosed(Box::new(ended())),
        ]
    }

    fn ended() -> RegionEnd {
        RegionEnd { incarnation: 1, region: 2, opening: 3, version: 4, stale: [1 << 63, 3, 0, 5] }
    }

    #[test]
    fn a_regions_end_names_runs_of_its_blocks() {
        assert_eq!(ended().runs(), [(575, 578), (704, 705), (706, 707)]);
        let all = RegionEnd { stale: [u64::MAX; 4], ..ended() };
        assert_eq!(all.runs(), [(512, 768)]);
    }

    #[test]
    fn every_record_comes_back_from_its_sector() {
        let all: Vec<Record> = records().into_iter().cycle().take(100).collect();
        let (page, taken) = header().encode(&mut all.iter().peekable());
        let mut found = Vec::new();
        for sector in decode(&page) {
            let Sector::Whole(seen, records) = sector else { panic!("whole") };
            assert_eq!(seen, header());
            found.extend(records);
        }
        assert!(taken > 10 && found == all[..taken]);
    }

    #[test]
    fn a_page_holds_as_many_invalidation_records_as_it_says() {
        let record = records().swap_remove(0);
        let records = vec![record; INVALIDATIONS_A_PAGE + 1];
        assert_eq!(header().encode(&mut records.iter().peekable()).1, INVALIDATIONS_A_PAGE);
    }

    #[test]
    fn a_flipped_bit_damages_its_sector_only() {
        let (mut page, _) = header().encode(&mut records().iter().peekable());
        page.0[512 + 100] ^= 1;
        let sectors = decode(&page);
        assert_eq!(sectors[1], Sector::Damaged);
        assert!(matches!(sectors[0], Sector::Whole(..)));
        assert_eq!(decode(&MetaPage::zeroed())[3], Sector::Blank);
    }
}
