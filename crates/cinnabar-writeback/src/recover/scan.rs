//! Reading the directory, and the headers of all chunks.

use super::media::{Media, OpenError, is_overdue, read_each};
use crate::format::chunk::ChunkHeader;
use crate::format::directory::Record;
use crate::format::{SEGMENT_PAGES, VOLUMES_MAX, directory_offset, offset_of};
use crate::mutant::{Mutant, Mutants};
use cinnabar_engine::metadata::MetaPage;
use std::collections::BTreeMap;
use std::ops::Range;

/// Where headers are at most so many pages apart, a segment is read whole: 1 MiB takes an SSD about as
/// long as 4 to 15 single pages, one after the other.
const NEAR: u32 = 32;

/// What was read of a volume.
pub(crate) struct Headers {
    pub(crate) record: Record,
    /// By number and session: what a session has written that does not count may lie behind a header
    /// that was lost, and is not seen before the next session has written one in its place.
    pub(crate) chunks: BTreeMap<(u64, u32), ChunkHeader>,
    /// The highest number seen, whether or not it counts.
    pub(crate) seen: u64,
    /// The newest session seen: each began with a record that was durable before its first chunk.
    pub(crate) session: u32,
    /// Chunks up to this number were durable when a chunk was written.
    pub(crate) durable: u64,
}

/// What the directory says.
pub(crate) struct Directory {
    /// By place.
    pub(crate) volumes: BTreeMap<u16, Headers>,
    /// The newest stamp of each place.
    pub(crate) stamps: Vec<u64>,
    /// Incarnations that the records of free places tell of.
    pub(crate) left: Vec<u64>,
    /// Places of which both records are damaged, or one that may be the newer one can't be read.
    pub(crate) unreadable: Vec<u16>,
}

/// The records of all places in use, and the stamps of all.
pub(crate) fn directory<P>(media: &impl Media<P>, uuid: [u8; 16]) -> Result<Directory, OpenError> {
    let (mut volumes, mut stamps, mut unreadable) = (BTreeMap::new(), Vec::new(), Vec::new());
    let mut left = Vec::new();
    let no_page = ChunkHeader::unreadable();
    let mut all = vec![MetaPage::zeroed(); usize::from(VOLUMES_MAX) * 2];
    read_each(media, directory_offset(0, 0), &mut all)?;
    for (place, pages) in (0..VOLUMES_MAX).zip(all.chunks_exact(2)) {
        let own = |record: &Record| record.uuid == uuid && record.volume == place;
        let records = pages.iter().filter_map(Record::decode).filter(own);
        let newest = records.max_by_key(|record| record.stamp);
        // A place in use has two records, of which a crash can tear one: that one was not relied on. One
        // that can't be read may be the newer one, and have been.
        let hidden = pages.contains(&no_page) && newest.as_ref().is_some_and(|of| of.in_use);
        let damaged = newest.is_none() && pages.iter().all(|page| *page != MetaPage::zeroed());
        if hidden || damaged {
            unreadable.push(place);
        }
        stamps.push(newest.as_ref().map_or(0, |record| record.stamp));
        left.extend(newest.iter().filter(|record| !record.in_use).map(|record| record.incarnation));
        if let Some(record) = newest.filter(|record| record.in_use) {
            let (seen, durable) = (record.retired, record.retired);
            let chunks = BTreeMap::new();
            volumes.insert(place, Headers { record, chunks, seen, session: 0, durable });
        }
    }
    Ok(Directory { volumes, stamps, left, unreadable })
}

/// The records of all places in use.
pub(crate) fn records<P>(
    media: &impl Media<P>,
    uuid: [u8; 16],
) -> Result<BTreeMap<u16, Record>, OpenError> {
    let volumes = directory(media, uuid)?.volumes.into_iter();
    Ok(volumes.map(|(place, headers)| (place, headers.record)).collect())
}

/// Slots that can't be read. What they hold counts as damaged: a header that was durable is missed by those behind
/// it. One that was written last is missed by nobody, as if it had been torn.
#[derive(Debug, Default)]
pub(crate) struct BadSlots(pub(crate) Vec<u32>);

impl BadSlots {
    /// Takes one down, unless it is rather the device that fails.
    pub(super) fn note(&mut self, slot: u32, error: std::io::Error) -> Result<(), OpenError> {
        if is_overdue(&error) || self.0.len() >= BAD_MAX {
            return Err(error.into());
        }
        self.0.push(slot);
        Ok(())
    }
}

/// With more of them the device is not believed to hold what was written.
const BAD_MAX: usize = 64;

/// Reads the headers of all chunks; gives the newest opening seen in each segment, 0 for none.
pub(crate) fn scan<P>(
    media: &impl Media<P>,
    (uuid, segments): ([u8; 16], u32),
    volumes: &mut BTreeMap<u16, Headers>,
    (mutants, bad): (Mutants, &mut BadSlots),
    at: &mut dyn FnMut(u32),
) -> Result<Vec<u64>, OpenError> {
    let mut openings = vec![0; segments as usize];
    let mut pieces = Pieces::new(media);
    for (segment, newest) in (0..segments).zip(&mut openings) {
        at(segment);
        let (mut page, mut opening) = (0, None);
        while page < SEGMENT_PAGES {
            let slot = segment * SEGMENT_PAGES + page;
            let bytes = pieces.page::<P>(slot, bad)?;
            let header = ChunkHeader::decode(bytes).filter(|header| header.slot == slot);
            let Some(header) = header.filter(|header| header.uuid == uuid) else {
                let was = opening.is_some() || ChunkHeader::was_one(bytes, uuid);
                pieces.step = SEGMENT_PAGES;
                if was && !mutants.is(Mutant::HeadersNotSought) {
                    let rest = slot + 1..(segment + 1) * SEGMENT_PAGES;
                    let seen =
                        look_at_each(media, uuid, (rest, &|_| true), volumes, (mutants, bad))?;
                    *newest = seen.max(*newest);
                }
                break;
            };
            *newest = header.opening.max(*newest);
            // What follows was left behind by an earlier use of the segment. Each session opens its
            // own.
            let use_of =
                (header.volume, header.incarnation, session_of(&header, mutants), header.opening);
            if *opening.get_or_insert(use_of) != use_of {
                break;
            }
            pieces.step = 1 + header.data_pages();
            page += pieces.step;
            note(volumes, header, mutants);
        }
    }
    Ok(openings)
}

/// Headers of segments, read one by one where they are far apart, else with what lies between them.
struct Pieces<'a, M> {
    media: &'a M,
    pages: Vec<MetaPage>,
    /// The slots that have been read.
    read: Range<u32>,
    /// Pages from the last header to the next one.
    step: u32,
}

impl<'a, M> Pieces<'a, M> {
    fn new(media: &'a M) -> Self {
        let pages = vec![MetaPage::zeroed(); SEGMENT_PAGES as usize];
        Self { media, pages, read: 0..0, step: SEGMENT_PAGES }
    }

    fn page<P>(&mut self, slot: u32, bad: &mut BadSlots) -> Result<&MetaPage, OpenError>
    where
        M: Media<P>,
    {
        if !self.read.contains(&slot) {
            let left = SEGMENT_PAGES - slot % SEGMENT_PAGES;
            let mut count = if self.step > NEAR { 1 } else { left };
            // What was read is overwritten, whole or in part.
            self.read = 0..0;
            let read = self.media.read_pages(offset_of(slot), &mut self.pages[..count as usize]);
            if let Err(error) = read {
                if is_overdue(&error) {
                    return Err(error.into());
                }
                // It may be a page of data that can't be read: headers only, then.
                count = 1;
                if let Err(error) = self.media.read_pages(offset_of(slot), &mut self.pages[..1]) {
                    bad.note(slot, error)?;
                    self.pages[0] = ChunkHeader::unreadable();
                }
            }
            self.read = slot..slot + count;
        }
        Ok(&self.pages[(slot - self.read.start) as usize])
    }
}

type HeaderCounts<'a> = dyn Fn(&ChunkHeader) -> bool + 'a;

/// Looks for headers in each of these slots, of those that count; gives the newest opening seen. A header
/// before them is missing or damaged: where it had been written, headers behind it may be what says that
/// it was durable, and those of chunks that count lie behind one of a chunk that is retired.
pub(crate) fn look_at_each<P>(
    media: &impl Media<P>,
    uuid: [u8; 16],
    (slots, counts): (Range<u32>, &HeaderCounts<'_>),
    volumes: &mut BTreeMap<u16, Headers>,
    (mutants, bad): (Mutants, &mut BadSlots),
) -> Result<u64, OpenError> {
    let mut pages = vec![MetaPage::zeroed(); slots.len()];
    if let Err(error) = media.read_pages(offset_of(slots.start), &mut pages) {
        if is_overdue(&error) {
            return Err(error.into());
        }
        // A page that can't be read is as good as one that is damaged.
        for (page, slot) in pages.iter_mut().zip(slots.clone()) {
            if let Err(error) = media.read_pages(offset_of(slot), std::slice::from_mut(page)) {
                bad.note(slot, error)?;
                *page = MetaPage::zeroed();
            }
        }
    }
    let mut newest = 0;
    for (page, slot) in pages.iter().zip(slots) {
        let own = |header: &ChunkHeader| header.uuid == uuid && header.slot == slot;
        if let Some(header) = ChunkHeader::decode(page).filter(own).filter(counts) {
            newest = newest.max(header.opening);
            note(volumes, header, mutants);
        }
    }
    Ok(newest)
}

pub(crate) fn session_of(header: &ChunkHeader, mutants: Mutants) -> u32 {
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
    // Of two with the same number one was left behind by a history that was given up.
    let key = (header.number, session_of(&header, mutants));
    if found.chunks.get(&key).is_none_or(|known| known.opening <= header.opening) {
        found.chunks.insert(key, header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::chunk::Entry;
    use crate::format::directory::Gap;
    use std::cell::Cell;
    use std::io::{Error, Result};

    /// Pages from the first segment on, of which one can't be read.
    struct Device {
        pages: Vec<MetaPage>,
        bad: u32,
        reads: Cell<u32>,
    }

    impl Media<()> for Device {
        fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> Result<()> {
            self.reads.set(self.reads.get() + 1);
            let slot = (offset - offset_of(0)) as usize / 4096;
            if (slot..slot + pages.len()).contains(&(self.bad as usize)) {
                return Err(Error::other("a bad sector"));
            }
            for (to, from) in pages.iter_mut().zip(&self.pages[slot..]) {
                to.0 = from.0;
            }
            Ok(())
        }

        fn read_data(&self, _: u64, _: u32) -> Result<()> {
            unreachable!("headers only")
        }

        fn write_page(&self, _: u64, _: &MetaPage) -> Result<()> {
            unreachable!("nothing is written")
        }

        fn flush(&self) -> Result<()> {
            unreachable!("nothing is written")
        }
    }

    /// Two segments full of chunks of one page of data: the numbers found, and the reads that took.
    fn found(bad: u32) -> std::result::Result<(usize, u32), OpenError> {
        let slots = 2 * SEGMENT_PAGES;
        let header = |slot: u32| ChunkHeader {
            uuid: [1; 16],
            volume: 0,
            incarnation: 2,
            session: 1,
            opening: u64::from(slot / SEGMENT_PAGES + 1),
            number: u64::from(slot / 2 + 1),
            epoch: 1,
            durable: 0,
            slot,
            entries: vec![Entry::Data { block: 0, sectors: 1, checksum: 0 }],
        };
        let page = |slot: u32| {
            if slot.is_multiple_of(2) { header(slot).encode() } else { MetaPage::zeroed() }
        };
        let media = Device { pages: (0..slots).map(page).collect(), bad, reads: Cell::new(0) };
        let record = Record {
            uuid: [1; 16],
            volume: 0,
            stamp: 1,
            in_use: true,
            name: "a".to_owned(),
            incarnation: 2,
            size_bytes: 4096,
            retired: 0,
            retired_epoch: 0,
            claim: 0,
            gaps: vec![Gap { last: 0, next: 1, session: 1 }],
            group: String::new(),
        };
        let chunks = BTreeMap::new();
        let headers = Headers { record, chunks, seen: 0, session: 0, durable: 0 };
        let mut volumes = BTreeMap::from([(0, headers)]);
        let mut bad = BadSlots::default();
        scan(&media, ([1; 16], 2), &mut volumes, (Mutants::default(), &mut bad), &mut |_| {})?;
        assert!(bad.0.iter().all(|slot| *slot == media.bad), "{bad:?}");
        Ok((volumes[&0].chunks.len(), media.reads.get()))
    }

    #[test]
    fn short_chunks_are_read_by_the_segment_and_bad_data_cost_no_header() {
        let all = SEGMENT_PAGES as usize;
        // The first header, the rest of its segment, the other segment.
        assert_eq!(found(u32::MAX).expect("it is read"), (all, 3));
        let (chunks, reads) = found(SEGMENT_PAGES + 101).expect("data need not be read");
        assert_eq!(chunks, all);
        assert!(reads > 50, "headers one by one up to there: {reads}");
        let (chunks, _) = found(SEGMENT_PAGES + 100).expect("a header that can't be read");
        assert_eq!(chunks, all - 1, "those behind it are sought");
    }
}
