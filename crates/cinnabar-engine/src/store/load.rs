//! Loading a checkpoint: the index of the last life, if it ended cleanly.
//!
//! Called by the engine's lifecycle at a start. Pages are read one batch at a time and taken in at
//! once; the first bad page ends it, and the caller starts cold.

use super::{Holding, Outbox, Pending, Store};
use crate::descriptors::{DESCRIPTOR_BYTES, Key};
use crate::log::SegmentState;
use crate::log::shares::Group;
use crate::metadata::MetaPage;
use crate::metadata::checkpoint::{DESCRIPTORS_A_PAGE, Head, Page, SegmentRecord, VolumeRecord};
use crate::seam::{IoOp, Payload, Target};
use crate::units::BLOCK_BYTES;

/// Pages in one read: some 24,000 descriptors, one or two milliseconds of work.
const PAGES_A_READ: u64 = 64;

/// A checkpoint being read.
pub(crate) struct Loader {
    sequence: u64,
    position: u32,
    head: Option<Head>,
    slot: u32,
    /// Volumes found, for the engine's table.
    pub(crate) volumes: Vec<VolumeRecord>,
    segments: Vec<SegmentRecord>,
}

impl Loader {
    /// A loader of checkpoint `sequence`.
    pub(crate) fn new(sequence: u64) -> Self {
        Self {
            sequence,
            position: 0,
            head: None,
            slot: 0,
            volumes: Vec::new(),
            segments: Vec::new(),
        }
    }
}

impl<P: Payload> Store<P> {
    /// Reads the next pages; false if all have been read.
    pub(crate) fn read_checkpoint(&self, loader: &Loader, outbox: &mut Outbox<P>) -> bool {
        let total = loader.head.map_or(1, |head| 1 + head.pages());
        let count = (total - u64::from(loader.position)).min(PAGES_A_READ);
        if count == 0 {
            return false;
        }
        let base = self.log.geometry.checkpoints.0[(loader.sequence % 2) as usize];
        let offset = (base + u64::from(loader.position)) * BLOCK_BYTES;
        let pages = vec![MetaPage::zeroed(); count as usize];
        let op = IoOp::ReadMeta { offset, pages };
        outbox.io(Target::Cache, op, Pending::Checkpoint);
        true
    }

    /// Takes in pages that were read. False if one is not what it should be.
    #[must_use]
    pub(crate) fn load(&mut self, loader: &mut Loader, pages: &[MetaPage]) -> bool {
        pages.iter().all(|page| {
            let decoded = Page::decode(page, loader.sequence, loader.position);
            loader.position += 1;
            decoded.is_some_and(|page| self.load_page(loader, page))
        })
    }

    fn load_page(&mut self, loader: &mut Loader, page: Page) -> bool {
        match page {
            Page::Head(head) => {
                let geometry = &self.log.geometry;
                let sound = loader.head.is_none()
                    && head.slots == geometry.slots()
                    && head.segments <= geometry.segments
                    && head.pages() < geometry.checkpoints.1;
                self.log.sequence = head.chunk_sequence;
                loader.head = Some(head);
                sound
            }
            Page::Volumes(records) => {
                for record in &records {
                    let index = usize::from(record.index);
                    if self.holdings.len() <= index {
                        self.holdings.resize(index + 1, Holding::default());
                    }
                    let holding = &mut self.holdings[index];
                    holding.incarnation = record.incarnation;
                    holding.alive = true;
                }
                loader.volumes.extend(records);
                true
            }
            Page::Segments(records) => {
                let all = records.iter().all(|record| self.load_segment(record));
                loader.segments.extend(records);
                all
            }
            Page::Descriptors(raw) => self.load_descriptors(loader, &raw),
        }
    }

    fn load_segment(&mut self, record: &SegmentRecord) -> bool {
        let slots = self.log.geometry.segment_slots();
        if record.segment >= self.log.geometry.segments || record.used > slots {
            return false;
        }
        let owner = u16::try_from(record.owner).ok();
        let existing = self.log.groups.iter().position(|g| g.owner == owner);
        let group = match (owner, existing) {
            (None, _) => 0,
            (Some(_), Some(index)) => index,
            (Some(_), None) if self.log.groups.len() >= self.log.groups_max() => 0,
            (Some(_), None) => {
                self.log.groups.push(Group { owner, ..Group::common() });
                self.log.groups.len() - 1
            }
        };
        let segment = &mut self.log.segments[record.segment as usize];
        if segment.state != SegmentState::Free {
            return false;
        }
        segment.state = SegmentState::Sealed;
        segment.used = record.used;
        segment.sequence = record.sequence;
        segment.group = group as u16;
        self.log.groups[group].segments += 1;
        true
    }

    fn load_descriptors(&mut self, loader: &mut Loader, raw: &[u8]) -> bool {
        let first = loader.slot;
        let count = (raw.len() / DESCRIPTOR_BYTES) as u32;
        loader.slot += DESCRIPTORS_A_PAGE as u32;
        if u64::from(first) + u64::from(count) > u64::from(self.log.geometry.slots()) {
            return false;
        }
        for (slot, bytes) in (first..).zip(raw.chunks_exact(DESCRIPTOR_BYTES)) {
            self.descriptors.set_raw(slot, bytes);
        }
        let keys: Vec<Option<Key>> =
            (first..first + count).map(|slot| self.descriptors.key(slot)).collect();
        for key in keys.iter().flatten() {
            self.map.prefetch(self.hash(*key));
        }
        for (slot, key) in (first..).zip(keys) {
            let Some(key) = key else { continue };
            let known = self.holdings.get(usize::from(key.volume)).is_some_and(|h| h.alive);
            let segment = &self.log.segments[self.log.segment_of(slot) as usize];
            let used = slot % self.log.geometry.segment_slots() < segment.used;
            if known && used {
                self.enter(key, slot);
            } else {
                self.descriptors.clear(slot);
            }
        }
        true
    }

    /// All pages are in: order the segments and collect the free ones.
    pub(crate) fn finish_load(&mut self, loader: &mut Loader) {
        loader.segments.sort_unstable_by_key(|record| record.sequence);
        for record in &loader.segments {
            let group = self.log.segments[record.segment as usize].group;
            self.log.groups[usize::from(group)].queue.push_back(record.segment);
        }
        let state = &self.log.segments;
        self.log.free.retain(|s| state[*s as usize].state == SegmentState::Free);
        self.log.share_out();
    }
}
