//! Checkpoints: the index, written while it goes on changing.
//!
//! A checkpoint speaks of the log as it stood when it began: descriptors of blocks that came later
//! may be in it, and recovery leaves them out or finds them again in their chunks; what left since
//! is in the journal. So pages are copied as their turn comes. Order: the chunks it speaks of are
//! written; its pages; a flush; its head, durably.

use super::fill::Reason;
use super::{Index, Outbox, Pending, Store};
use crate::bounds::Bound;
use crate::descriptors::{DESCRIPTOR_BYTES, Flags};
use crate::log::SegmentState;
use crate::metadata::checkpoint::{
    DESCRIPTORS_A_PAGE, Head, OpenRegion, Page, SEGMENTS_A_PAGE, SegmentRecord, VOLUMES_A_PAGE,
    VolumeRecord,
};
use crate::mutant::Mutant;
use crate::seam::{IoOp, Payload, Target};
use crate::units::{BLOCK_BYTES, Instant};

/// What a checkpoint waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Chunks that it speaks of are being written.
    Chunks,
    /// Its pages, from this position on.
    Pages(u32),
    Flush,
    Head,
    Done,
}

/// What a checkpoint waits for, for observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointPhase {
    Chunks,
    Pages,
    Flush,
    Head,
}

/// A checkpoint being written, one I/O at a time.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    /// Its number; its slot is this modulo 2.
    pub(crate) sequence: u64,
    /// First page of the journal that it does not cover.
    pub(crate) journal_page: u64,
    stage: Stage,
    head: Head,
    regions: Vec<OpenRegion>,
    volumes: Vec<VolumeRecord>,
    segments: Vec<SegmentRecord>,
}

impl CheckpointWriter {
    /// Whether a volume's index is spoken of, and so must not be given to another one meanwhile.
    pub(crate) fn names(&self, index: u16) -> bool {
        self.volumes.iter().any(|volume| volume.index == index)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// What it waits for. One that is done is waited for by nothing, and is not kept.
    pub(crate) fn phase(&self) -> CheckpointPhase {
        match self.stage {
            Stage::Chunks => CheckpointPhase::Chunks,
            Stage::Pages(_) => CheckpointPhase::Pages,
            Stage::Flush => CheckpointPhase::Flush,
            Stage::Head | Stage::Done => CheckpointPhase::Head,
        }
    }

    /// Whether it waits for chunks; else for an I/O of its own.
    pub(crate) fn waits_for_chunks(&self) -> bool {
        self.stage == Stage::Chunks
    }
}

impl<P: Payload> Store<P> {
    /// Moves up to a step's worth of probation to flash, from the `done`th slot on; gives how far
    /// it got, or nothing when all is done.
    pub(crate) fn flush_probation(
        &mut self,
        done: usize,
        now: Instant,
        outbox: &mut Outbox<P>,
    ) -> Option<usize> {
        let slots: Vec<u32> =
            self.probation.slots().skip(done).take(self.bounds.stop_slots).collect();
        self.crossings.note_if(slots.len() == self.bounds.stop_slots, Bound::StopSlots);
        for &slot in &slots {
            let Some(key) = self.descriptors.key(slot) else { continue };
            if !self.promote(slot, key, Reason::CleanStop, now, outbox) {
                self.forget(slot, key);
            }
        }
        (!slots.is_empty()).then_some(done + slots.len())
    }

    /// Writes every chunk that holds something.
    pub(crate) fn submit_all_chunks(&mut self, outbox: &mut Outbox<P>) {
        for stream in self.log.streams() {
            self.submit_chunk(stream, outbox);
        }
    }

    /// Whether no chunk is in RAM or being written.
    pub(crate) fn is_written(&self) -> bool {
        self.log.writing.is_empty()
    }

    /// Whether it is time for a checkpoint: many records since the last one, or many segments, or
    /// a journal that nothing else makes room in.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.journal.is_enabled()
            && (self.journal.live_len() > self.live_max()
                || self.opened > self.opened_max()
                || self.is_journal_cramped())
    }

    /// Segments opened since the last checkpoint that call for one: an eighth of those that are used; more, up to a
    /// half, while the headers of their chunks are soon read.
    pub(crate) fn opened_max(&self) -> u32 {
        let segments = self.log.bound;
        let soon_read = self.bounds.replayed_chunks / self.log.geometry.segment_chunks;
        let most = (segments / 8).max(soon_read.min(segments / 2));
        most.max(self.bounds.opened_segments)
    }

    fn live_max(&self) -> usize {
        crate::journal::Journal::live_max(&self.log.geometry, self.bounds.live_records)
    }

    /// Whether only a checkpoint makes room in the journal.
    pub(crate) fn is_journal_cramped(&self) -> bool {
        self.journal.is_half_full() && self.journal.wants_checkpoint(self.volumes_known())
    }

    /// Whether rewriting the journal makes room in it.
    pub(crate) fn wants_rebase(&self) -> bool {
        self.journal.is_half_full() && self.journal.wants_rebase(self.volumes_known())
    }

    fn volumes_known(&self) -> usize {
        self.holdings.iter().filter(|holding| holding.alive).count()
    }

    /// Begins checkpoint `sequence`; the one before has ended, and the index is all there is.
    pub(crate) fn begin_checkpoint(
        &mut self,
        sequence: u64,
        era: u32,
        volumes: Vec<VolumeRecord>,
    ) -> CheckpointWriter {
        assert_eq!(self.index, Index::InUse, "a checkpoint speaks of all that is known");
        let holds = |state| matches!(state, SegmentState::Open | SegmentState::Sealed);
        let segments: Vec<_> = self
            .log
            .segments
            .iter()
            .enumerate()
            .filter(|(_, segment)| holds(segment.state))
            .map(|(index, segment)| SegmentRecord {
                segment: index as u32,
                sequence: segment.sequence,
                last: segment.last,
                used: segment.used,
                open: segment.state == SegmentState::Open,
                owner: self.log.groups[usize::from(segment.group)]
                    .owner
                    .map_or(u32::MAX, u32::from),
            })
            .collect();
        let journal_page = self.journal.checkpoint_begins();
        self.opened = 0;
        let head = Head {
            volumes: volumes.len() as u32,
            segments: segments.len() as u32,
            slots: self.log.geometry.slots(),
            chunk_sequence: self.log.sequence,
            journal_page,
            session: self.session,
            era,
            journal_durable: 0,
            openings: self.journal.stamp(),
        };
        assert!(
            head.pages() < self.log.geometry.checkpoints.1,
            "it fits, and its head is accepted"
        );
        let stage = Stage::Chunks;
        // They are active before the records that it does not cover.
        let regions = self.regions.open();
        CheckpointWriter { sequence, journal_page, stage, head, regions, volumes, segments }
    }

    /// A checkpoint of nothing: only its head.
    pub(crate) fn empty_checkpoint(&mut self, sequence: u64, era: u32) -> CheckpointWriter {
        assert_eq!(self.counters.cached_blocks, 0, "there is nothing to speak of");
        let mut writer = self.begin_checkpoint(sequence, era, Vec::new());
        writer.segments.clear();
        writer.head = Head { segments: 0, slots: 0, ..writer.head };
        writer
    }

    /// Goes on with a checkpoint after its last I/O has ended well, or a chunk has been written.
    /// Starts the next I/O unless it has to wait for chunks.
    pub(crate) fn advance_checkpoint(&self, writer: &mut CheckpointWriter, outbox: &mut Outbox<P>) {
        let total = 1 + writer.head.pages() as u32;
        if writer.stage == Stage::Chunks {
            let hasty = self.mutants.is(Mutant::CheckpointBeforeSegments);
            if !hasty && self.log.is_writing_up_to(writer.head.chunk_sequence) {
                return;
            }
            writer.stage = Stage::Pages(1);
        }
        writer.stage = match writer.stage {
            Stage::Pages(first) if first < total => {
                let count = self.bounds.checkpoint_pages.min(total - first);
                self.crossings.note_if(count < total - first, Bound::CheckpointPages);
                self.write_pages(writer, first..first + count, outbox);
                Stage::Pages(first + count)
            }
            Stage::Pages(_) if self.mutants.is(Mutant::CheckpointBeforeSegments) => {
                self.write_pages(writer, 0..1, outbox);
                Stage::Head
            }
            Stage::Pages(_) => {
                outbox.io(Target::Cache, IoOp::Flush, Pending::Checkpoint);
                Stage::Flush
            }
            Stage::Flush => {
                self.write_pages(writer, 0..1, outbox);
                Stage::Head
            }
            Stage::Head => Stage::Done,
            Stage::Chunks | Stage::Done => unreachable!("no I/O of a checkpoint was under way"),
        };
    }

    fn write_pages(
        &self,
        writer: &CheckpointWriter,
        positions: std::ops::Range<u32>,
        outbox: &mut Outbox<P>,
    ) {
        let last = u64::from(positions.end) - 1;
        assert!(last <= writer.head.pages(), "pages of this checkpoint");
        let is_head = positions.start == 0;
        assert!(!is_head || positions.end == 1, "the head goes alone");
        let hasty = self.mutants.is(Mutant::CheckpointBeforeSegments);
        assert!(!is_head || writer.stage == Stage::Flush || hasty, "behind a flush of the others");
        let base = self.log.geometry.checkpoints.0[(writer.sequence % 2) as usize];
        let offset = (base + u64::from(positions.start)) * BLOCK_BYTES;
        let fua = is_head;
        let pages = positions
            .map(|position| self.page(writer, position).encode(writer.sequence, position))
            .collect();
        let op = IoOp::WriteMeta { offset, pages, data: smallvec::SmallVec::new(), fua };
        outbox.io(Target::Cache, op, Pending::Checkpoint);
    }

    fn page(&self, writer: &CheckpointWriter, position: u32) -> Page {
        let Some(index) = position.checked_sub(1) else {
            let journal_durable = self.journal.durable_page();
            let head = Head { journal_durable, ..writer.head };
            return Page::Head(head, writer.regions.clone());
        };
        let index = index as usize;
        let mut volumes = writer.volumes.chunks(VOLUMES_A_PAGE);
        let volume_pages = volumes.len();
        if index < volume_pages {
            return Page::Volumes(volumes.nth(index).expect("counted").to_vec());
        }
        let mut segments = writer.segments.chunks(SEGMENTS_A_PAGE);
        let segment_pages = segments.len();
        if index < volume_pages + segment_pages {
            return Page::Segments(segments.nth(index - volume_pages).expect("counted").to_vec());
        }
        let first = (index - volume_pages - segment_pages) * DESCRIPTORS_A_PAGE;
        assert!(
            first < writer.head.slots as usize,
            "each page behind the segments has descriptors"
        );
        let count = DESCRIPTORS_A_PAGE.min(writer.head.slots as usize - first);
        Page::Descriptors(self.descriptors_as_durable(first as u32, count as u32))
    }

    /// Descriptors, less those of blocks that are not on flash yet, with the flags of those that a
    /// backend flush covers by now set right.
    fn descriptors_as_durable(&self, first: u32, count: u32) -> Vec<u8> {
        let mut raw = self.descriptors.raw(first, count).to_vec();
        if !self.mutants.is(Mutant::CheckpointOfUnwrittenChunks) {
            for (from, to) in self.log.pending_slots() {
                let (from, to) = (from.max(first), to.min(first + count));
                if from < to {
                    let at = |slot: u32| (slot - first) as usize * DESCRIPTOR_BYTES;
                    raw[at(from)..at(to)].fill(0);
                }
            }
        }
        for (slot, entry) in (first..).zip(raw.chunks_exact_mut(DESCRIPTOR_BYTES)) {
            let flags = Flags(entry[DESCRIPTOR_BYTES - 1]);
            if !flags.unflushed() {
                continue;
            }
            let Some(key) = self.descriptors.key(slot) else { continue };
            let holding = &self.holdings[usize::from(key.volume)];
            let segment = &self.log.segments[self.log.segment_of(slot) as usize];
            if !holding.unflushed || segment.last <= holding.flushed {
                entry[DESCRIPTOR_BYTES - 1] = flags.with_unflushed(false).0;
            }
        }
        raw
    }
}
