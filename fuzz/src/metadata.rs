//! On-disk structures: no panic whatever a page holds, and what is read is what was written.

use crate::input::Input;
use cinnabar_engine::journal::scan::Scan;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::checkpoint::{Head, Page, VolumeRecord};
use cinnabar_engine::metadata::chunk::{ChunkHeader, Entry, RecordKind};
use cinnabar_engine::metadata::journal::{PageHeader, Record, RegionEnd, Sector, decode};
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::volume::ProofToken;

const SECTOR_BYTES: usize = 512;

/// A page of these bytes, zeros behind them.
fn page(bytes: &[u8]) -> MetaPage {
    let mut page = MetaPage::zeroed();
    let len = bytes.len().min(page.0.len());
    page.0[..len].copy_from_slice(&bytes[..len]);
    page
}

/// The page with these bytes changed.
fn edited(mut page: MetaPage, edits: &[(u16, u8)]) -> MetaPage {
    for (at, byte) in edits {
        page.0[usize::from(*at) % size_of::<MetaPage>()] ^= byte;
    }
    page
}

/// The page with a checksum for every `unit` bytes, or else hardly an input would come past the
/// first test. What is blank stays blank.
fn sealed(mut page: MetaPage, unit: usize) -> MetaPage {
    for part in page.0.chunks_exact_mut(unit) {
        if part.iter().any(|byte| *byte != 0) {
            let crc = crc32c::crc32c(&part[4..]);
            part[..4].copy_from_slice(&crc.to_le_bytes());
        }
    }
    page
}

/// One of each structure, as the engine writes it: what is to be changed a little.
///
/// # Panics
/// Never: they are valid.
pub fn examples() -> Vec<MetaPage> {
    let geometry = Geometry::for_device(64 << 20).expect("a good size");
    let volume = VolumeRecord {
        index: 1,
        incarnation: 7,
        size_bytes: 1 << 30,
        generation: 3,
        stamp: 4,
        flushed: 5,
        written: true,
        name: "vm1".into(),
        proof: Some(ProofToken([9; 64])),
    };
    let entry = Entry { incarnation: 7, block: 3, kind: RecordKind::Clean, checksum: 5 };
    let chunk = ChunkHeader {
        uuid: [1; 16],
        sequence: 9,
        session: 1,
        slot: 256,
        group: 0,
        entries: vec![entry; 20],
    };
    let records = [
        Record::Invalidation { incarnation: 7, block: 3, count: 2, version: 9 },
        Record::Volume(Box::new(volume.clone())),
        Record::Opened { segment: 1, sequence: 2, session: 1 },
        Record::RegionOpened { incarnation: 7, region: 0, opening: 1 << 32 },
        Record::RegionClosed(Box::new(RegionEnd {
            incarnation: 7,
            region: 0,
            opening: 1 << 32,
            version: 9,
            stale: [1, 0, 0, 1 << 63],
        })),
    ];
    let header = PageHeader { device: 1, era: 1, page: 5, first: 4, tail: 1, checkpoint: 2 };
    let slots = geometry.slots();
    let head = Head { volumes: 1, slots, journal_page: 5, session: 1, era: 1, ..Head::default() };
    vec![
        Superblock::format([1; 16], geometry).encode().1,
        Page::Head(head, Vec::new()).encode(2, 0),
        Page::Volumes(vec![volume]).encode(2, 1),
        chunk.encode(),
        header.encode(&mut records.iter().peekable()).0,
    ]
}

/// Every decoder on every page: what is one structure's page is another's garbage. Whether one is none.
fn decode_all(pages: &[MetaPage; 2], number: u64, position: u32) -> bool {
    let mut found = superblocks(pages);
    for page in pages {
        found |= checkpoint(page, number, position);
        // The examples' own number and place.
        found |= checkpoint(page, 2, 1);
        found |= chunk(page);
    }
    found | journal(pages, number)
}

fn superblocks(pages: &[MetaPage; 2]) -> bool {
    let Ok(superblock) = Superblock::decode(pages) else { return false };
    let (offset, page) = superblock.encode();
    assert!(offset < 8192);
    assert_eq!(Superblock::decode(&[page, MetaPage::zeroed()]), Ok(superblock.clone()));
    let geometry = superblock.geometry;
    assert!(geometry.log + u64::from(geometry.slots()) <= geometry.device_blocks);
    assert!(geometry.capacity_blocks() > 0);
    true
}

fn checkpoint(page: &MetaPage, sequence: u64, position: u32) -> bool {
    let head = Page::decode_head(page);
    let found = Page::decode(page, sequence, position);
    let is_one = head.is_some() || found.is_some();
    if let Some((sequence, head, regions)) = head {
        let _bounded = head.pages();
        assert_eq!(Page::decode(page, sequence, 0), Some(Page::Head(head, regions)));
    }
    if let Some(found) = found {
        let again = found.encode(sequence, position);
        assert_eq!(Page::decode(&again, sequence, position), Some(found));
    }
    is_one
}

fn chunk(page: &MetaPage) -> bool {
    let Some(header) = ChunkHeader::decode(page) else { return false };
    assert_eq!(ChunkHeader::decode(&header.encode()), Some(header));
    true
}

fn journal(pages: &[MetaPage], from: u64) -> bool {
    let mut is_one = false;
    for page in pages {
        for sector in decode(page) {
            let Sector::Whole(header, records) = sector else { continue };
            is_one = true;
            let (again, taken) = header.encode(&mut records.iter().peekable());
            // They came out of one sector, so they fit into one again.
            assert_eq!(taken, records.len());
            assert_eq!(decode(&again)[0], Sector::Whole(header, records.clone()));
            let mut scan = Scan::new(header.device, header.era);
            scan.take(pages);
            if let Some(read) = scan.read(from, from / 2, Mutants::default()) {
                assert!(read.start <= read.next && read.next - read.start <= pages.len() as u64);
            }
        }
    }
    is_one
}

/// A number and a position (`u64`, `u32`), how often an example is changed (`u8`) and where by what (`u16`, `u8`
/// each), and two pages; whether one of these is a structure.
///
/// # Panics
/// When what was read is not what was written.
pub fn run(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let (number, position, count) = (input.u64(), input.u32(), input.u8());
    let edits: Vec<(u16, u8)> = (0..count).map(|_| (input.u16(), input.u8())).collect();
    let bytes = input.rest();
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    let raw = [page(head), page(tail)];
    let mut found = decode_all(&raw, number, position);
    let unit = if position.is_multiple_of(2) { size_of::<MetaPage>() } else { SECTOR_BYTES };
    found |= decode_all(&raw.map(|page| sealed(page, unit)), number, position);
    let examples = examples();
    let example = &examples[number as usize % examples.len()];
    let changed = sealed(edited(example.clone(), &edits), unit);
    decode_all(&[changed, example.clone()], number / 8, position);
    found
}
