//! The journal: its pages one by one, and what recovery makes of them.

use super::image::PAGES_A_READ;
use super::{Source, Watch};
use cinnabar_engine::journal::scan::{Read, Scan};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::chunk::device_of;
use cinnabar_engine::metadata::journal::{PageHeader, Record, SECTORS, Sector, decode};
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::mutant::Mutants;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// A page that no decoder takes for anything, nor for blank.
static UNREADABLE: MetaPage = MetaPage([0xFF; 4096]);

/// Pages of the ring, by what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Of the present era, whole.
    pub whole: u64,
    /// As it was formatted, or of an earlier era or another device.
    pub old: u64,
    /// New in some sectors and old in others.
    pub torn: u64,
    /// With a sector that is neither, or that could not be read.
    pub damaged: u64,
}

/// The whole ring.
#[derive(Debug)]
pub struct Ring {
    /// What its pages hold.
    pub pages: Pages,
    scan: Scan,
}

impl Ring {
    /// Reads the ring of a device. Its records are held in memory, as recovery holds them: at most
    /// what the area has room for, 1/2048 of the log.
    pub fn read(
        source: &(impl Source + ?Sized),
        superblock: &Superblock,
        watch: &mut dyn Watch,
    ) -> Self {
        let mut scan = Scan::new(device_of(superblock.uuid), superblock.era);
        let mut pages = Pages::default();
        walk(source, superblock, watch, &mut |_, page, readable| {
            pages.count(superblock, page, readable);
            // One that can't be read is not known to be blank.
            scan.take(std::slice::from_ref(if readable { page } else { &UNREADABLE }));
            ControlFlow::Continue(())
        });
        Self { pages, scan }
    }

    /// What recovery concludes if the checkpoint covers everything before page `from`, and pages
    /// before `durable` are known to have been durable; nothing if records that were are missing.
    pub fn conclude(self, from: u64, durable: u64) -> Option<Read> {
        self.scan.read(from, durable, Mutants::default())
    }
}

impl Pages {
    fn count(&mut self, superblock: &Superblock, page: &MetaPage, readable: bool) {
        let sectors = decode(page);
        let ours: Vec<&PageHeader> =
            sectors.iter().filter_map(|sector| present(superblock, sector)).collect();
        let one_page = ours.windows(2).all(|pair| pair[0] == pair[1]);
        *if !readable || sectors.contains(&Sector::Damaged) {
            &mut self.damaged
        } else if ours.iter().all(|header| header.is_formatted()) {
            &mut self.old
        } else if ours.len() == SECTORS && one_page {
            &mut self.whole
        } else {
            &mut self.torn
        } += 1;
    }
}

/// The header of a sector that was written in the present era of this device.
pub fn present<'a>(superblock: &Superblock, sector: &'a Sector) -> Option<&'a PageHeader> {
    match sector {
        Sector::Whole(header, _) => (header.device == device_of(superblock.uuid)
            && header.era == superblock.era)
            .then_some(header),
        Sector::Blank | Sector::Damaged => None,
    }
}

/// Reads the ring page by page, until `visit` breaks it off: it gets the place in the ring, the page,
/// and whether that could be read.
pub fn walk(
    source: &(impl Source + ?Sized),
    superblock: &Superblock,
    watch: &mut dyn Watch,
    visit: &mut dyn FnMut(u64, &MetaPage, bool) -> ControlFlow<()>,
) {
    let (first, count) = superblock.geometry.journal;
    let mut pages = vec![MetaPage::zeroed(); PAGES_A_READ];
    let mut at = 0;
    while at < count {
        watch.at("journal pages", at, count);
        let batch = (count - at).min(PAGES_A_READ as u64);
        let pages = &mut pages[..batch as usize];
        let all = source.read(first + at, pages) == 0;
        for (place, page) in (at..).zip(pages.iter_mut()) {
            // Which one could not be read is told by reading it alone.
            let readable = all || source.read(first + place, std::slice::from_mut(page)) == 0;
            if visit(place, page, readable).is_break() {
                return;
            }
        }
        at += batch;
    }
    watch.at("journal pages", count, count);
}

pub fn kinds(records: &[Record]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for record in records {
        *counts.entry(name_of(record)).or_default() += 1;
    }
    counts
}

/// The kind of a record, as it is written.
pub const fn name_of(record: &Record) -> &'static str {
    match record {
        Record::Invalidation { .. } => "invalidation",
        Record::SegmentInvalidation { .. } => "segment_invalidation",
        Record::ChunkInvalidation { .. } => "chunk_invalidation",
        Record::Opened { .. } => "opened",
        Record::Flushed { .. } => "flushed",
        Record::Volume(_) => "volume",
        Record::Dropped { .. } => "dropped",
        Record::RegionOpened { .. } => "region_opened",
        Record::RegionClosed(_) => "region_closed",
    }
}
