//! Loading a checkpoint: the index as some moment of the last session left it.
//!
//! Pages come in any order and are taken in at once; a damaged one costs the blocks that it speaks
//! of. Nothing of it is served before [`replay`](super::replay) has brought it up to date.

use super::{Doubt, Holding, Index, Store};
use crate::address_map::{AddressMap, Filling};
use crate::bounds::Bound;
use crate::descriptors::{DESCRIPTOR_BYTES, Descriptors, Key};
use crate::journal::scan::PAGE_MAX;
use crate::limits::VOLUMES_MAX;
use crate::log::SegmentState;
use crate::log::shares::Group;
use crate::metadata::MetaPage;
use crate::metadata::checkpoint::{DESCRIPTORS_A_PAGE, Head, Page, SegmentRecord, VolumeRecord};
use crate::metadata::superblock::Geometry;
use crate::mutant::Mutant;
use crate::seam::Payload;
use std::collections::BTreeMap;
use std::ops::Range;

/// Where a chunk may follow those that are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) segment: u32,
    /// Slot of the next header, within the segment.
    pub(crate) at: u32,
    /// The session that must have written it, and the sequence number that it must exceed.
    pub(crate) session: u32,
    pub(crate) after: u64,
    /// Of the segment's opening.
    pub(crate) opened: u64,
}

/// What a recovery knows before it reads the index.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) sequence: u64,
    pub(crate) head: Head,
    /// Volumes by incarnation.
    pub(crate) volumes: BTreeMap<u32, u16>,
    /// Whether the checkpoint's descriptors with this volume index speak of a volume still known.
    pub(crate) indices: Vec<bool>,
    /// Newest sequence number that a backend flush covers, by incarnation and session.
    pub(crate) flushed: BTreeMap<(u32, u32), u64>,
    /// Segments still open when the checkpoint was made.
    pub(crate) chains: Vec<Chain>,
    /// Segments emptied since then, and the newest sequence number that this invalidates.
    pub(crate) emptied: BTreeMap<u32, u64>,
    pub(crate) doubt: Doubt,
    pub(crate) damaged_pages: u64,
    pub(crate) unflushed_blocks: u64,
    pub(crate) doubtful_blocks: u64,
}

impl Known {
    /// Whether a written copy in a chunk of this session and sequence number is covered by a flush.
    pub(crate) fn is_flushed(&self, incarnation: u32, session: u32, sequence: u64) -> bool {
        self.flushed.get(&(incarnation, session)).is_some_and(|covered| sequence <= *covered)
    }
}

/// Whether a head can be that of a checkpoint on a device of this geometry.
pub(crate) fn is_sound(head: &Head, geometry: &Geometry) -> bool {
    (head.slots == 0 || head.slots == geometry.slots())
        && head.segments <= geometry.segments
        && head.journal_page.max(head.journal_durable) <= PAGE_MAX
        && head.pages() < geometry.checkpoints.1
}

impl<P: Payload> Store<P> {
    /// Makes a volume of an earlier session known.
    pub(crate) fn adopt(&mut self, record: &VolumeRecord) {
        assert!(record.index < VOLUMES_MAX, "looked at when it was read");
        let index = usize::from(record.index);
        if self.holdings.len() <= index {
            self.holdings.resize(index + 1, Holding::default());
        }
        let incarnation = record.incarnation;
        self.holdings[index] = Holding { incarnation, alive: true, ..Holding::default() };
    }

    /// Takes in the page at `position` of the checkpoint.
    pub(crate) fn load(&mut self, known: &mut Known, position: u32, page: Option<&MetaPage>) {
        let raw = page.and_then(|page| Page::raw_descriptors(page, known.sequence, position));
        let taken = if let Some(raw) = raw {
            self.load_descriptors(known, position, raw)
        } else {
            match page.and_then(|page| Page::decode(page, known.sequence, position)) {
                // Behind them come descriptors, which were taken in by what the segments say.
                Some(Page::Segments(records)) if position < known.head.first_descriptors() => {
                    records.iter().all(|record| self.load_segment(known, record))
                }
                _ => false,
            }
        };
        known.damaged_pages += u64::from(!taken);
    }

    fn load_segment(&mut self, known: &mut Known, record: &SegmentRecord) -> bool {
        let slots = self.log.geometry.segment_slots();
        if record.segment >= self.log.geometry.segments || record.used > slots {
            return false;
        }
        if record.open && !known.emptied.contains_key(&record.segment) {
            known.chains.push(Chain {
                segment: record.segment,
                at: record.used,
                session: known.head.session,
                after: record.last.max(known.head.chunk_sequence),
                opened: record.sequence,
            });
        }
        // Emptied since: what it holds now, if anything, is in newer chunks.
        if record.used == 0 || known.emptied.contains_key(&record.segment) {
            return true;
        }
        let group = self.group_owned_by(u16::try_from(record.owner).ok());
        self.occupy(record.segment, group, record.sequence, record.last, record.used);
        true
    }

    /// The group of a volume, the common one if it has none.
    pub(super) fn group_owned_by(&mut self, owner: Option<u16>) -> u16 {
        let Some(owner) = owner else { return 0 };
        assert!(self.log.groups.len() <= self.log.groups_max(), "groups are bounded");
        let existing = self.log.groups.iter().position(|g| g.owner == Some(owner));
        let index = match existing {
            Some(index) => index,
            None if self.log.groups.len() >= self.log.groups_max() => 0,
            None => {
                self.log.groups.push(Group { owner: Some(owner), ..Group::common() });
                self.log.groups.len() - 1
            }
        };
        index as u16
    }

    /// A segment turns out to hold something.
    pub(crate) fn occupy(&mut self, index: u32, group: u16, sequence: u64, last: u64, used: u32) {
        assert!(used <= self.log.geometry.segment_slots(), "looked at when it was read");
        let segment = &mut self.log.segments[index as usize];
        assert!(
            segment.pins == 0 && segment.pending_chunks == 0,
            "nothing reads or writes there yet"
        );
        assert!(segment.listed.is_none(), "segments are put in order at the end");
        if segment.state == SegmentState::Free {
            segment.state = SegmentState::Sealed;
            segment.group = group;
            self.log.groups[usize::from(group)].segments += 1;
        }
        segment.sequence = sequence;
        // Blocks are taken in up to here. The cleaner looks no further, so it never goes down under
        // them; it would only if pages or chunks contradict each other.
        segment.used = segment.used.max(used);
        segment.last = last;
    }

    fn load_descriptors(&mut self, known: &mut Known, position: u32, raw: &[u8]) -> bool {
        assert_eq!(self.index, Index::Partial, "an index in use is not loaded into");
        let Some(first) = position.checked_sub(known.head.first_descriptors()) else {
            return false;
        };
        let first = first * DESCRIPTORS_A_PAGE as u32;
        let count = (raw.len() / DESCRIPTOR_BYTES) as u32;
        if u64::from(first) + u64::from(count) > u64::from(self.log.geometry.slots()) {
            return false;
        }
        self.descriptors.set_raw(first, raw);
        let slots = self.log.geometry.segment_slots();
        let mut from = first;
        while from < first + count {
            let segment = self.log.segment_of(from);
            let stop = (first + count).min((segment + 1) * slots);
            let used = segment * slots + self.log.segments[segment as usize].used;
            let used = used.clamp(from, stop);
            self.load_run(known, segment, from..used);
            if !self.mutants.is(Mutant::EmptiedNotWiped) {
                self.descriptors.wipe(used..stop);
            }
            from = stop;
        }
        true
    }

    /// Takes in what the checkpoint says of slots of one segment. No block comes twice: what it says
    /// of segments that were emptied while it was written is left out, and in all others blocks only
    /// left.
    fn load_run(&mut self, known: &mut Known, segment: u32, slots: Range<u32>) {
        let mut filling = self.filling.take().expect("an index is loaded by filling it");
        let mut out = Vec::new();
        let (mut of, mut count, mut live, mut full) = (0, 0, 0, false);
        for slot in slots {
            let Some(key) = self.descriptors.key(slot) else { continue };
            if !self.believe(known, segment, slot, key) {
                self.descriptors.clear(slot);
                continue;
            }
            if key.volume != of {
                self.count_loaded(of, count);
                (of, count) = (key.volume, 0);
            }
            (count, live) = (count + 1, live + 1);
            full |= filling.add(&mut self.map, key.hash(self.seed), slot, &mut out);
        }
        self.count_loaded(of, count);
        self.crossings.note_if(full, Bound::FillEntries);
        self.log.settle_some(segment, live);
        self.filling = Some(filling);
        self.push_out(&out);
    }

    fn count_loaded(&mut self, volume: u16, count: u64) {
        if count > 0 {
            self.holdings[usize::from(volume)].cached_blocks += count;
            self.counters.cached_blocks += count;
        }
    }

    /// These slots have no room in the address map: their blocks leave the cache.
    fn push_out(&mut self, slots: &[u32]) {
        for &slot in slots {
            let key = self.descriptors.key(slot).expect("a mapped slot holds a key");
            self.vacate(slot, key);
            self.invalidate_key(key);
        }
    }

    /// The checkpoint's segments are known: its descriptors can be taken in.
    pub(crate) fn begin_filling(&mut self) {
        assert_eq!(self.index, Index::Partial, "an index in use is not loaded into");
        assert_eq!(self.counters.cached_blocks, 0, "nothing is in the address map yet");
        let filling = Filling::new(&self.map, &self.bounds, &self.crossings, self.mutants);
        self.filling = Some(Box::new(filling));
    }

    /// All descriptors have been taken in: lets the address map have some more of them; true when it
    /// has them all.
    pub(crate) fn finish_filling(&mut self) -> bool {
        let cut_short = self.mutants.is(Mutant::FillingCutShort);
        let filling = self.filling.take().filter(|_| !cut_short);
        let Some(mut filling) = filling else { return true };
        let mut out = Vec::new();
        // What is gathered is placed in an eighth of a lookup's time.
        let budget = self.bounds.replay_blocks * 8;
        let done = filling.finish_some(&mut self.map, budget, &mut out);
        self.filling = (!done).then_some(filling);
        self.push_out(&out);
        done
    }

    /// The device was lost while the index was being loaded: none of it is ever served.
    pub(crate) fn drop_loaded(&mut self) {
        assert!(self.dead && self.index != Index::InUse, "an index in use is not dropped");
        assert_eq!(self.counters.ram_blocks, 0, "nothing came in meanwhile");
        self.filling = None;
        let slots = self.slots();
        self.free_tables();
        (self.map, self.descriptors) = (AddressMap::new(slots), Descriptors::new(slots));
        for segment in &mut self.log.segments {
            (segment.live, segment.condemned) = (0, 0);
        }
        self.log.groups.iter_mut().for_each(|group| group.worth = 0);
        self.holdings.iter_mut().for_each(|holding| holding.cached_blocks = 0);
        self.counters.cached_blocks = 0;
    }

    /// The largest tables go before others are allocated: there need not be room for both.
    pub(crate) fn free_tables(&mut self) {
        (self.map, self.descriptors) = (AddressMap::new(0), Descriptors::new(0));
    }

    /// Whether a descriptor of the checkpoint counts.
    #[inline]
    fn believe(&mut self, known: &mut Known, segment: u32, slot: u32, key: Key) -> bool {
        let index = usize::from(key.volume);
        if !known.indices.get(index).is_some_and(|current| *current) {
            return false;
        }
        if !self.holdings[index].alive {
            self.holdings[index].passed_by += 1;
            return false;
        }
        if !known.doubt.is_empty()
            && known.doubt.covers(self.holdings[index].incarnation, key.block, known.head.session)
        {
            known.doubtful_blocks += 1;
            return false;
        }
        let flags = self.descriptors.flags(slot);
        let covered = !flags.unflushed() || self.is_covered(known, segment, index);
        let sound = flags.with_condemned(false).with_unflushed(false);
        if covered && sound != flags {
            self.descriptors.set_flags(slot, sound);
        }
        known.unflushed_blocks += u64::from(!covered);
        covered
    }

    /// Whether a backend flush covers written copies in a segment.
    fn is_covered(&self, known: &Known, segment: u32, volume: usize) -> bool {
        let incarnation = self.holdings[volume].incarnation;
        let last = self.log.segments[segment as usize].last;
        known.is_flushed(incarnation, known.head.session, last)
            || self.mutants.is(Mutant::RecordRetiredBeforeFlush)
    }

    /// Everything is in: order the segments and collect the free ones.
    pub(crate) fn finish_load(&mut self) {
        assert_eq!(self.index, Index::InPlace, "all of it has been loaded");
        assert!(
            self.log.writing.is_empty() && self.log.opened.is_empty(),
            "nothing came in so far"
        );
        assert_eq!(self.counters.ram_blocks, 0, "nor to RAM");
        assert!(self.filling.is_none(), "the address map has all of it");
        let segments = &self.log.segments;
        let mut sealed: Vec<u32> = (0..segments.len() as u32)
            .filter(|s| segments[*s as usize].state == SegmentState::Sealed)
            .collect();
        sealed.sort_unstable_by_key(|s| segments[*s as usize].sequence);
        for segment in sealed {
            self.log.enqueue(segment, false);
        }
        let segments = &self.log.segments;
        self.log.free.retain(|s| segments[*s as usize].state == SegmentState::Free);
        self.log.count_behind();
        let (free, sealed) = (self.log.free.len(), self.log.sealed());
        let held = (self.log.bound + self.log.behind) as usize;
        assert_eq!(free + sealed, held, "a segment is free or sealed");
        self.log.share_out();
        self.rehearsal.begin_warm();
    }
}
