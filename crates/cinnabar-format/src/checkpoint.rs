//! Checkpoints: the whole index, so that a start reads metadata and not the cache.
//!
//! A checkpoint is a run of pages in one of two slots: a head with the active regions, then volumes,
//! then segments, then descriptors. Every page has its own checksum, the checkpoint's sequence number and its position,
//! so that a stale or misplaced page is noticed.

use crate::MetaPage;
use crate::codec::{Reader, Writer};
use crate::descriptor::DESCRIPTOR_BYTES;
use crate::limits::{NAME_BYTES_MAX, VOLUMES_MAX};
use crate::proof::ProofToken;

const MAGIC: u32 = 0x504B_4843;
const PAGE_HEADER_BYTES: usize = 4 + 4 + 8 + 4 + 1 + 1 + 2;
const ROOM: usize = 4096 - PAGE_HEADER_BYTES;
const VOLUME_BYTES: usize = VolumeRecord::BYTES;
const HEAD_BYTES: usize = 3 * 4 + 2 * 8 + 2 * 4 + 8 + 8 + 4;
/// Active regions that a head has room for.
pub const REGIONS_MAX: usize = (ROOM - HEAD_BYTES) / OpenRegion::BYTES;
const SEGMENT_BYTES: usize = 4 + 8 + 8 + 4 + 4 + 1;

pub const VOLUMES_A_PAGE: usize = ROOM / VOLUME_BYTES;
pub const SEGMENTS_A_PAGE: usize = ROOM / SEGMENT_BYTES;
pub const DESCRIPTORS_A_PAGE: usize = ROOM / DESCRIPTOR_BYTES;
const _: () = assert!(VOLUMES_A_PAGE > 0 && DESCRIPTORS_A_PAGE <= u16::MAX as usize);

/// Pages a checkpoint of `slots` slots in `segments` segments can take.
pub const fn pages_max(slots: u32, segments: u32) -> u64 {
    1 + (VOLUMES_MAX as u64).div_ceil(VOLUMES_A_PAGE as u64)
        + (segments as u64).div_ceil(SEGMENTS_A_PAGE as u64)
        + (slots as u64).div_ceil(DESCRIPTORS_A_PAGE as u64)
}

/// First page: how many of everything follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Number of volumes.
    pub volumes: u32,
    /// Number of segments that hold data.
    pub segments: u32,
    /// Number of descriptors: the slots of the log.
    pub slots: u32,
    /// The newest chunk's sequence number: what newer ones say is not in here.
    pub chunk_sequence: u64,
    /// First page of the journal whose records are not in here.
    pub journal_page: u64,
    /// The session that made it.
    pub session: u32,
    pub era: u32,
    /// Pages of the journal before this one were durable when the head was written; 0: an earlier
    /// version did not say.
    pub journal_durable: u64,
    /// Openings of regions up to this number count only if the head names them.
    pub openings: u64,
}

impl Head {
    /// Pages behind the head.
    pub const fn pages(&self) -> u64 {
        (self.volumes as u64).div_ceil(VOLUMES_A_PAGE as u64)
            + (self.segments as u64).div_ceil(SEGMENTS_A_PAGE as u64)
            + (self.slots as u64).div_ceil(DESCRIPTORS_A_PAGE as u64)
    }

    /// Position of the first page of descriptors, for a head that fits its slot.
    pub const fn first_descriptors(&self) -> u32 {
        1 + self.volumes.div_ceil(VOLUMES_A_PAGE as u32)
            + self.segments.div_ceil(SEGMENTS_A_PAGE as u32)
    }
}

/// A region that is active; see [`Record::RegionOpened`](crate::journal::Record::RegionOpened).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRegion {
    pub incarnation: u32,
    pub region: u32,
    pub opening: u64,
}

impl OpenRegion {
    const BYTES: usize = 4 + 4 + 8;
}

/// A volume whose blocks are cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Index in the descriptors.
    pub index: u16,
    /// Session.
    pub incarnation: u32,
    pub size_bytes: u64,
    pub name: String,
    /// Raised whenever the volume may have been written without the cache device.
    pub generation: u64,
    /// Order of records about volumes.
    pub stamp: u64,
    /// Written copies in chunks up to this sequence number, of the session that wrote this record,
    /// are covered by a backend flush.
    pub flushed: u64,
    /// It may have been written since the proof was taken.
    pub written: bool,
    /// The newest proof; `None`: none could be had.
    pub proof: Option<ProofToken>,
}

/// A segment that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// Which.
    pub segment: u32,
    /// Order of filling.
    pub sequence: u64,
    /// Sequence number of the newest chunk in it.
    pub last: u64,
    /// Slots used.
    pub used: u32,
    /// It was still being filled.
    pub open: bool,
    /// Volume index that owns its share group; `u32::MAX`: the common group.
    pub owner: u32,
}

/// A decoded page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    Head(Head, Vec<OpenRegion>),
    Volumes(Vec<VolumeRecord>),
    Segments(Vec<SegmentRecord>),
    /// Raw descriptors, 11 bytes each.
    Descriptors(Vec<u8>),
}

impl Page {
    fn kind_and_count(&self) -> (u8, usize) {
        match self {
            Self::Head(..) => (0, 1),
            Self::Volumes(records) => (1, records.len()),
            Self::Segments(records) => (2, records.len()),
            Self::Descriptors(raw) => (3, raw.len() / DESCRIPTOR_BYTES),
        }
    }

    /// Page `position` of checkpoint `sequence`.
    ///
    /// # Panics
    /// If it has more entries than fit a page, or a volume without a name.
    pub fn encode(&self, sequence: u64, position: u32) -> MetaPage {
        let mut page = MetaPage::zeroed();
        let mut w = Writer::new(&mut page.0);
        let (kind, count) = self.kind_and_count();
        let most = [1, VOLUMES_A_PAGE, SEGMENTS_A_PAGE, DESCRIPTORS_A_PAGE][usize::from(kind)];
        assert!(count <= most, "a page says no more than is read of it");
        w.u32(MAGIC);
        w.u64(sequence);
        w.u32(position);
        w.u8(kind);
        w.u8(0);
        w.u16(count as u16);
        assert_eq!(w.written(), PAGE_HEADER_BYTES, "content begins where it is looked for");
        match self {
            Self::Head(head, regions) => {
                assert!(regions.len() <= REGIONS_MAX, "the table of regions is bounded");
                w.u32(head.volumes);
                w.u32(head.segments);
                w.u32(head.slots);
                w.u64(head.chunk_sequence);
                w.u64(head.journal_page);
                w.u32(head.session);
                w.u32(head.era);
                w.u64(head.journal_durable);
                w.u64(head.openings);
                w.u32(regions.len() as u32);
                for open in regions {
                    w.u32(open.incarnation);
                    w.u32(open.region);
                    w.u64(open.opening);
                }
            }
            Self::Volumes(records) => records.iter().for_each(|record| record.encode(&mut w)),
            Self::Segments(records) => {
                for record in records {
                    w.u32(record.segment);
                    w.u64(record.sequence);
                    w.u64(record.last);
                    w.u32(record.used);
                    w.u32(record.owner);
                    w.u8(u8::from(record.open));
                }
            }
            Self::Descriptors(raw) => {
                assert!(raw.len().is_multiple_of(DESCRIPTOR_BYTES), "whole descriptors");
                w.bytes(raw);
            }
        }
        w.seal();
        debug_assert_eq!(Self::decode(&page, sequence, position).as_ref(), Some(self), "as meant");
        page
    }

    /// The number, the head and the active regions of the checkpoint that begins with `page`, if one
    /// does.
    pub fn decode_head(page: &MetaPage) -> Option<(u64, Head, Vec<OpenRegion>)> {
        let mut r = Reader::verified(&page.0)?;
        let _magic = r.u32();
        let sequence = r.u64();
        match Self::decode(page, sequence, 0)? {
            Self::Head(head, regions) => Some((sequence, head, regions)),
            _ => None,
        }
    }

    /// The raw descriptors in `page`, if it is page `position` of checkpoint `sequence` and holds
    /// some: as [`decode`](Self::decode), without a copy.
    pub fn raw_descriptors(page: &MetaPage, sequence: u64, position: u32) -> Option<&[u8]> {
        let mut r = Reader::verified(&page.0)?;
        let ours = r.u32() == MAGIC && r.u64() == sequence && r.u32() == position;
        let (kind, _, count) = (r.u8(), r.u8(), usize::from(r.u16()));
        let sound = ours && kind == 3 && count <= DESCRIPTORS_A_PAGE;
        let bytes = PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + count * DESCRIPTOR_BYTES;
        sound.then(|| &page.0[bytes])
    }

    /// The content of `page`, if it is page `position` of checkpoint `sequence`.
    pub fn decode(page: &MetaPage, sequence: u64, position: u32) -> Option<Self> {
        let mut r = Reader::verified(&page.0)?;
        if r.u32() != MAGIC || r.u64() != sequence || r.u32() != position {
            return None;
        }
        let kind = r.u8();
        let _reserved = r.u8();
        let count = usize::from(r.u16());
        match kind {
            0 => {
                let head = Head {
                    volumes: r.u32(),
                    segments: r.u32(),
                    slots: r.u32(),
                    chunk_sequence: r.u64(),
                    journal_page: r.u64(),
                    session: r.u32(),
                    era: r.u32(),
                    journal_durable: r.u64(),
                    openings: r.u64(),
                };
                let count = r.u32() as usize;
                let open =
                    |_| OpenRegion { incarnation: r.u32(), region: r.u32(), opening: r.u64() };
                (count <= REGIONS_MAX).then(|| Self::Head(head, (0..count).map(open).collect()))
            }
            1 if count <= VOLUMES_A_PAGE => (0..count)
                .map(|_| VolumeRecord::decode(&mut r))
                .collect::<Option<_>>()
                .map(Self::Volumes),
            2 if count <= SEGMENTS_A_PAGE => Some(Self::Segments(
                (0..count)
                    .map(|_| SegmentRecord {
                        segment: r.u32(),
                        sequence: r.u64(),
                        last: r.u64(),
                        used: r.u32(),
                        owner: r.u32(),
                        open: r.u8() == 1,
                    })
                    .collect(),
            )),
            3 if count <= DESCRIPTORS_A_PAGE => {
                let at = PAGE_HEADER_BYTES;
                Some(Self::Descriptors(page.0[at..at + count * DESCRIPTOR_BYTES].to_vec()))
            }
            _ => None,
        }
    }
}

impl VolumeRecord {
    /// Bytes of one on disk.
    pub(crate) const BYTES: usize = 2 + 4 + 4 * 8 + 3 + NAME_BYTES_MAX + 64;

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        assert!(!self.name.is_empty() && self.name.len() <= NAME_BYTES_MAX, "a name fits its room");
        assert!(self.index < VOLUMES_MAX, "a volume has an index");
        let end = w.written() + Self::BYTES;
        let mut name = [0; NAME_BYTES_MAX];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        w.u16(self.index);
        w.u32(self.incarnation);
        for value in [self.size_bytes, self.generation, self.stamp, self.flushed] {
            w.u64(value);
        }
        w.u8(self.name.len() as u8);
        w.u8(u8::from(self.proof.is_some()));
        w.u8(u8::from(self.written));
        w.bytes(&name);
        w.bytes(&self.proof.as_ref().map_or([0; 64], |proof| proof.0));
        assert_eq!(w.written(), end, "a volume takes the room that is counted for it");
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let (index, incarnation) = (r.u16(), r.u32());
        let (size_bytes, generation, stamp, flushed) = (r.u64(), r.u64(), r.u64(), r.u64());
        let (len, proven, written) = (usize::from(r.u8()), r.u8() == 1, r.u8() == 1);
        let name: [u8; NAME_BYTES_MAX] = r.array();
        let proof = Some(ProofToken(r.array())).filter(|_| proven);
        let name = String::from_utf8(name.get(..len)?.to_vec()).ok()?;
        let known = index < VOLUMES_MAX && !name.is_empty();
        known.then_some(Self {
            index,
            incarnation,
            size_bytes,
            name,
            generation,
            stamp,
            flushed,
            written,
            proof,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_page_comes_back_only_at_its_place() {
        let volume = VolumeRecord {
            index: 5,
            incarnation: 6,
            size_bytes: 1 << 40,
            generation: 1,
            stamp: 2,
            flushed: 3,
            written: true,
            name: "n".repeat(NAME_BYTES_MAX),
            proof: Some(ProofToken([4; 64])),
        };
        let segment = SegmentRecord {
            segment: 1,
            sequence: 2,
            last: 9,
            used: 3,
            open: true,
            owner: u32::MAX,
        };
        let head = Head {
            volumes: 1,
            segments: 2,
            slots: 3,
            chunk_sequence: 4,
            journal_page: 5,
            session: 6,
            era: 7,
            journal_durable: 8,
            openings: 9,
        };
        let open = OpenRegion { incarnation: 1, region: 2, opening: 3 };
        let pages = [
            Page::Head(head, vec![open; REGIONS_MAX]),
            Page::Volumes(vec![volume; VOLUMES_A_PAGE]),
            Page::Segments(vec![segment; SEGMENTS_A_PAGE]),
            Page::Descriptors(vec![7; DESCRIPTORS_A_PAGE * DESCRIPTOR_BYTES]),
        ];
        for page in pages {
            let mut bytes = page.encode(8, 2);
            assert_eq!(Page::decode(&bytes, 8, 2), Some(page));
            assert_eq!(Page::decode(&bytes, 7, 2), None);
            assert_eq!(Page::decode(&bytes, 8, 3), None);
            bytes.0[50] ^= 1;
            assert_eq!(Page::decode(&bytes, 8, 2), None);
        }
    }
}
