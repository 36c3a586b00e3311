//! One volume of the write log.

use crate::bounds::{Bound, Bounds, Crossings};
use crate::commit::{Commits, Identity};
use crate::destage::Destage;
use crate::format::directory::{Gap, Record};
use crate::format::{SEGMENT_PAGES, chunk::Entry};
use crate::mutant::Mutants;
use crate::pace::Pace;
use crate::places::Places;
use crate::ranges::{RangeRecord, ZeroRanges};
use crate::record::RecordWrites;
use crate::segments::Segments;
use crate::slots::Slots;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant};
use cinnabar_engine::{Failure, IoError};
use cinnabar_engine::{Op, RequestId};
use std::collections::VecDeque;

/// Epochs that begin within this time count as equally old, in ns.
const AGE_STEP_NS: u64 = 100_000_000;

/// Most half blocks that a volume may append at once while its writers are slowed down: 1 MiB.
const SLOW_BURST: i64 = 512;

/// A request that waits for room.
#[derive(Debug)]
pub(crate) struct Waiting<P> {
    pub(crate) id: RequestId,
    pub(crate) op: Op<P>,
    /// Blocks of a write that have been appended.
    pub(crate) done: u64,
}

/// See the module.
pub(crate) struct Volume<P> {
    /// What the directory says, or will say with the record being written.
    pub(crate) record: Record,
    pub(crate) session: u32,
    /// Places of its write group: it, and those that count epochs with it.
    pub(crate) members: Places,
    /// Its size, as guests see it: a larger one counts once it is durable.
    pub(crate) size_bytes: u64,
    /// The epoch that writes belong to now.
    pub(crate) epoch: u64,
    /// Since when the volume has chunks of it.
    pub(crate) epoch_since: Option<Instant>,
    /// Some epochs that are not retired, and when they began: the age of what is dirty.
    pub(crate) ages: VecDeque<(u64, Instant)>,
    pub(crate) commits: Commits<P>,
    /// Oldest first. The last one is being filled, if `has_open`.
    pub(crate) segments: VecDeque<u32>,
    /// Pages of the first of them that are retired.
    pub(crate) retired_pages: u32,
    /// The epoch of the oldest chunk that is not retired, if that has been looked up.
    pub(crate) oldest: Option<u64>,
    pub(crate) has_open: bool,
    /// Pages of its segments that are in use.
    pub(crate) pages: u64,
    pub(crate) zeros: ZeroRanges,
    pub(crate) records: VecDeque<RangeRecord>,
    /// Half blocks that may be appended, while its writers are slowed down; less than nothing after a long
    /// write.
    pub(crate) slow: Option<i64>,
    /// Requests that wait for room, in order.
    pub(crate) waiting: VecDeque<Waiting<P>>,
    pub(crate) destage: Destage<P>,
    pub(crate) pace: Pace,
    /// Commands that wait until the back end has every chunk up to this number,
    /// and those of the others of its group all epochs before this one.
    pub(crate) drains: Vec<(RequestId, u64, u64)>,
    /// It was attached since the log was opened: before, no engine has it.
    pub(crate) attached: bool,
    /// The volume comes, goes, or becomes smaller, and this is being recorded: the command, and the
    /// write of the record that it waits for. Nothing is served meanwhile.
    pub(crate) attaching: Option<(RequestId, u64)>,
    /// The same, of a volume that grows: it is served.
    pub(crate) growing: Option<(RequestId, u64)>,
    /// The same, of one whose claim gets a number.
    pub(crate) claiming: Option<(RequestId, u64)>,
    /// It goes with its dirty data as soon as nothing of it is under way, for this command. Nothing is
    /// served or begun meanwhile.
    pub(crate) discarding: Option<RequestId>,
    pub(crate) record_writes: RecordWrites,
    /// Dirty data are damaged: it is not served.
    pub(crate) damaged: bool,
    /// No chunk may be written before everything is retired: the record has no room for this gap.
    pub(crate) drains_first: Option<Gap>,
    /// Blocks that have been written at the back end, and requests that took.
    pub(crate) destaged_blocks: u64,
    pub(crate) destaged_writes: u64,
    /// Blocks of reads that were answered without the engine.
    pub(crate) answered_blocks: u64,
    /// Why the last try to bring an epoch to the back end failed, until one succeeds.
    pub(crate) failing: Option<Failure>,
}

impl<P: cinnabar_engine::Payload> Volume<P> {
    /// A volume as its record has it, with chunks up to `last`, of epochs up to `epoch`.
    pub(crate) fn new(record: Record, last: u64, epoch: u64, mutants: Mutants) -> Self {
        let session = record.gaps.last().map_or(0, |gap| gap.session);
        let mut members = Places::default();
        members.add(record.volume);
        Self {
            members,
            size_bytes: record.size_bytes,
            record,
            session,
            epoch: epoch + 1,
            epoch_since: None,
            ages: VecDeque::new(),
            commits: Commits::new(last, mutants),
            segments: VecDeque::new(),
            retired_pages: 0,
            oldest: None,
            has_open: false,
            pages: 0,
            zeros: ZeroRanges::default(),
            records: VecDeque::new(),
            slow: None,
            waiting: VecDeque::new(),
            destage: Destage::default(),
            pace: Pace::default(),
            drains: Vec::new(),
            attached: false,
            attaching: None,
            growing: None,
            claiming: None,
            discarding: None,
            record_writes: RecordWrites::default(),
            damaged: false,
            drains_first: None,
            destaged_blocks: 0,
            destaged_writes: 0,
            answered_blocks: 0,
            failing: None,
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        let Record { uuid, volume, incarnation, .. } = self.record;
        Identity { uuid, place: volume, incarnation }
    }

    /// Begins or ends to slow its writers down.
    pub(crate) fn slow_down(&mut self, slow: bool) {
        self.slow = slow.then_some(SLOW_BURST);
    }

    /// Whether its writers have to wait for the destage. A volume of which nothing is dirty waits for nothing.
    pub(crate) fn is_slowed(&self) -> bool {
        self.slow.is_some_and(|halves| halves <= 0) && self.is_dirty()
    }

    /// So many blocks are appended, of ranges at least one.
    pub(crate) fn pay(&mut self, blocks: u64) {
        if let Some(halves) = &mut self.slow {
            *halves -= 2 * blocks.max(1).cast_signed();
        }
    }

    /// The back end has taken so many blocks.
    pub(crate) fn earn(&mut self, blocks: u64) {
        if let Some(halves) = &mut self.slow {
            *halves = (*halves + blocks.cast_signed()).min(SLOW_BURST);
        }
    }

    /// Whether the back end lacks anything that was acknowledged, or is about to be.
    pub(crate) fn is_dirty(&self) -> bool {
        self.record.retired < self.commits.last
    }

    /// Whether the back end had no room for what was to be written last.
    pub(crate) fn has_no_room(&self) -> bool {
        self.failing == Some(Failure::Io(IoError::NoSpace))
    }

    /// Sectors of a span in one of its blocks, bit 0 the first. Those behind the volume's end count.
    pub(crate) fn sectors(&self, span: ByteSpan, block: u64) -> u8 {
        let mut span = span;
        if span.end() == self.size_bytes {
            span.len = span.end().next_multiple_of(BLOCK_BYTES) - span.offset;
        }
        span.sectors_in(block)
    }

    /// Whether so many entries can be appended without waiting, each with a page of data, and without the last
    /// `reserve` free segments.
    pub(crate) fn has_room(
        &self,
        entries: u64,
        (segments, reserve): (&Segments, u32),
        bounds: &Bounds,
    ) -> bool {
        if self.drains_first.is_some()
            || self.zeros.len() >= bounds.ranges
            || self.records.len() >= bounds.ranges
        {
            return false;
        }
        let open = match self.segments.back().filter(|_| self.has_open) {
            Some(open) => SEGMENT_PAGES - segments.all[*open as usize].used,
            None => 0,
        };
        // A header for each full chunk, and for a last one.
        let pages = |left: u32| left - left.div_ceil(bounds.entries as u32 + 1);
        let open = u64::from(pages(open).saturating_sub(1));
        let free = segments.free_count().saturating_sub(reserve);
        entries <= open + u64::from(free) * u64::from(pages(SEGMENT_PAGES))
    }

    /// Makes sure that there is a chunk of this epoch with room for an entry. Room was checked before.
    pub(crate) fn open_chunk(
        &mut self,
        now: Instant,
        data: bool,
        segments: &mut Segments,
        slots: &mut Slots,
        (bounds, crossings): (&Bounds, &Crossings),
    ) {
        let used = |segments: &Segments, segment: u32| segments.all[segment as usize].used;
        let left = |this: &Self, segments: &Segments| {
            let open = this.segments.back().filter(|_| this.has_open);
            open.map_or(0, |open| SEGMENT_PAGES - used(segments, *open))
        };
        if let Some(chunk) = &self.commits.open {
            let fits = !data || left(self, segments) > 0;
            let is_full = chunk.entries.len() >= bounds.entries;
            if chunk.epoch == self.epoch && !is_full && fits {
                return;
            }
            crossings.note_if(is_full, Bound::Entries);
            self.commits.seal();
        }
        if left(self, segments) < 2 {
            let segment = segments.open().expect("room was checked");
            slots.set_owner(segment, self.record.volume);
            self.segments.push_back(segment);
            self.has_open = true;
        }
        let segment = *self.segments.back().expect("one is open");
        let state = &mut segments.all[segment as usize];
        let first = segment * SEGMENT_PAGES + state.used;
        state.used += 1;
        self.pages += 1;
        let (number, session) = self.record.after(self.commits.last);
        assert_eq!(session, self.session, "a session writes its own numbers");
        let last = self.commits.last;
        crossings.note_if(number >> 32 != last >> 32, Bound::Numbers);
        let (epochs, retired) = (self.epoch >> 40, self.record.retired_epoch >> 40);
        crossings.note_if(epochs != retired, Bound::Epochs);
        slots.set_header(first, self.epoch, number);
        self.commits.begin((number, session), (self.epoch, now), (first, state.opening));
        if self.epoch_since.is_none() {
            self.epoch_since = Some(now);
            let newest = self.ages.back();
            if newest.is_none_or(|(_, since)| now.since_ns(*since) >= AGE_STEP_NS) {
                self.ages.push_back((self.epoch, now));
            }
        }
    }

    /// What an earlier session has left is at least as old as this one.
    pub(crate) fn note_age(&mut self, now: Instant) {
        if self.is_dirty() && self.ages.is_empty() {
            self.ages.push_back((self.record.retired_epoch + 1, now));
        }
    }

    /// How long the oldest dirty data have been waiting for the back end, in ns.
    pub(crate) fn age_ns(&mut self, now: Instant) -> u64 {
        if !self.is_dirty() {
            self.ages.clear();
        }
        let oldest = self.oldest.unwrap_or(self.record.retired_epoch + 1);
        while self.ages.get(1).is_some_and(|(epoch, _)| *epoch <= oldest) {
            self.ages.pop_front();
        }
        self.ages.front().map_or(0, |(_, since)| now.since_ns(*since))
    }

    /// The slot for the next page of data of the open chunk.
    pub(crate) fn next_slot(&mut self, segments: &mut Segments) -> u32 {
        let segment = *self.segments.back().expect("a chunk is open");
        let state = &mut segments.all[segment as usize];
        assert!(state.used < SEGMENT_PAGES, "a chunk ends within its segment");
        let slot = segment * SEGMENT_PAGES + state.used;
        state.used += 1;
        self.pages += 1;
        slot
    }

    /// Adds a range to the open chunk.
    pub(crate) fn push_range(&mut self, entry: Entry) {
        let chunk = self.commits.open.as_mut().expect("a chunk is open");
        let Entry::Range { block, count, kind } = entry else { panic!("a range has no data") };
        let (number, behind) = (chunk.number, chunk.data.len() as u32);
        chunk.entries.push(entry);
        self.records.push_back(RangeRecord { number, behind, block, count, kind });
        self.zeros.add(block, block + u64::from(count), number);
    }

    /// Forgets gaps that no chunk needs any more.
    pub(crate) fn prune_gaps(&mut self) {
        let retired = self.record.retired;
        let keep = self.record.gaps.iter().rposition(|gap| gap.last <= retired).unwrap_or(0);
        self.record.gaps.drain(..keep);
    }

    /// The record of a new volume.
    pub(crate) fn first_record(
        uuid: [u8; 16],
        volume: u16,
        stamp: u64,
        (name, size_bytes, incarnation, group): (String, u64, u64, String),
        bounds: &Bounds,
    ) -> Record {
        let (last, retired_epoch) = (bounds.first_number, bounds.first_epoch);
        Record {
            uuid,
            volume,
            stamp,
            in_use: true,
            name,
            incarnation,
            size_bytes,
            retired: last,
            retired_epoch,
            claim: 0,
            gaps: vec![Gap { last, next: last + 1, session: 1 }],
            group,
        }
    }
}
