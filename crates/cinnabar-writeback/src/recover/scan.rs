//! Reading the directory, and the headers of all chunks.

use super::media::{Media, OpenError};
use crate::format::chunk::ChunkHeader;
use crate::format::directory::Record;
use crate::format::{SEGMENT_PAGES, VOLUMES_MAX, directory_offset, offset_of};
use crate::mutant::{Mutant, Mutants};
use cinnabar_engine::metadata::MetaPage;
use std::collections::BTreeMap;

/// What was read of a volume.
pub(super) struct Headers {
    pub(super) record: Record,
    /// By number and session: what a session has written that does not count may lie behind a header
    /// that was lost, and is not seen before the next session has written one in its place.
    pub(super) chunks: BTreeMap<(u64, u32), ChunkHeader>,
    /// The highest number seen, whether or not it counts.
    pub(super) seen: u64,
    /// The newest session seen: each began with a record that was durable before its first chunk.
    pub(super) session: u32,
    /// Chunks up to this number were durable when a chunk was written.
    pub(super) durable: u64,
}

/// What the directory says.
pub(super) struct Directory {
    /// By place.
    pub(super) volumes: BTreeMap<u16, Headers>,
    /// The newest stamp of each place.
    pub(super) stamps: Vec<u64>,
    /// Places of which both records are damaged.
    pub(super) unreadable: Vec<u16>,
}

/// The records of all places in use, and the stamps of all.
pub(super) fn directory<P>(media: &impl Media<P>, uuid: [u8; 16]) -> Result<Directory, OpenError> {
    let (mut volumes, mut stamps, mut unreadable) = (BTreeMap::new(), Vec::new(), Vec::new());
    for place in 0..VOLUMES_MAX {
        let mut pages = [MetaPage::zeroed(), MetaPage::zeroed()];
        media.read_pages(directory_offset(place, 0), &mut pages)?;
        let own = |record: &Record| record.uuid == uuid && record.volume == place;
        let records = pages.iter().filter_map(Record::decode).filter(own);
        let newest = records.max_by_key(|record| record.stamp);
        // A place in use has two records, of which a crash can tear one.
        if newest.is_none() && pages.iter().all(|page| *page != MetaPage::zeroed()) {
            unreadable.push(place);
        }
        stamps.push(newest.as_ref().map_or(0, |record| record.stamp));
        if let Some(record) = newest.filter(|record| record.in_use) {
            let (seen, durable) = (record.retired, record.retired);
            let chunks = BTreeMap::new();
            volumes.insert(place, Headers { record, chunks, seen, session: 0, durable });
        }
    }
    Ok(Directory { volumes, stamps, unreadable })
}

/// Reads the headers of all chunks; gives the newest opening of a segment.
pub(super) fn scan<P>(
    media: &impl Media<P>,
    (uuid, segments): ([u8; 16], u32),
    volumes: &mut BTreeMap<u16, Headers>,
    mutants: Mutants,
    at: &mut dyn FnMut(u32),
) -> Result<u64, OpenError> {
    let mut newest = 0;
    for segment in 0..segments {
        at(segment);
        let (mut page, mut opening) = (0, None);
        while page < SEGMENT_PAGES {
            let slot = segment * SEGMENT_PAGES + page;
            let mut pages = [MetaPage::zeroed()];
            media.read_pages(offset_of(slot), &mut pages)?;
            let header = ChunkHeader::decode(&pages[0]).filter(|header| header.slot == slot);
            let Some(header) = header.filter(|header| header.uuid == uuid) else {
                let was = opening.is_some() || ChunkHeader::was_one(&pages[0], uuid);
                if was && !mutants.is(Mutant::HeadersNotSought) {
                    newest = newest.max(look_behind(media, uuid, slot, volumes, mutants)?);
                }
                break;
            };
            newest = newest.max(header.opening);
            // What follows was left behind by an earlier use of the segment. Each session opens its
            // own.
            let use_of =
                (header.volume, header.incarnation, session_of(&header, mutants), header.opening);
            if *opening.get_or_insert(use_of) != use_of {
                break;
            }
            page += 1 + header.data_pages();
            note(volumes, header, mutants);
        }
    }
    Ok(newest)
}

/// A header is missing or damaged. Where it had been written, headers behind it may be what says that
/// it was durable, and those of chunks that count lie behind one of a chunk that is retired.
fn look_behind<P>(
    media: &impl Media<P>,
    uuid: [u8; 16],
    slot: u32,
    volumes: &mut BTreeMap<u16, Headers>,
    mutants: Mutants,
) -> Result<u64, OpenError> {
    let rest = SEGMENT_PAGES - 1 - slot % SEGMENT_PAGES;
    let mut pages = vec![MetaPage::zeroed(); rest as usize];
    media.read_pages(offset_of(slot + 1), &mut pages)?;
    let mut newest = 0;
    for (page, slot) in pages.iter().zip(slot + 1..) {
        let own = |header: &ChunkHeader| header.uuid == uuid && header.slot == slot;
        if let Some(header) = ChunkHeader::decode(page).filter(own) {
            newest = newest.max(header.opening);
            note(volumes, header, mutants);
        }
    }
    Ok(newest)
}

pub(super) fn session_of(header: &ChunkHeader, mutants: Mutants) -> u32 {
    if mutants.is(Mutant::SessionIgnored) { 0 } else { header.session }
}

/// Takes down a header that was found.
fn note(volumes: &mut BTreeMap<u16, Headers>, header: ChunkHeader, mutants: Mutants) {
    let Some(found) = volumes.get_mut(&header.volume) else { return };
    if found.record.incarnation != header.incarnation {
        return;
    }
    found.seen = found.seen.max(header.number);
    found.durable = found.durable.max(header.durable);
    found.session = found.session.max(header.session);
    found.chunks.insert((header.number, session_of(&header, mutants)), header);
}
