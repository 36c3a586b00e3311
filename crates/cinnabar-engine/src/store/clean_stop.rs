//! A clean stop: what is only in RAM goes to flash, then the index into a checkpoint.
//!
//! Called by the engine's lifecycle.

use super::fill::Reason;
use super::{Outbox, Pending, Store};
use crate::log::SegmentState;
use crate::metadata::checkpoint::{
    DESCRIPTORS_A_PAGE, Head, Page, SEGMENTS_A_PAGE, SegmentRecord, VOLUMES_A_PAGE, VolumeRecord,
};
use crate::seam::{IoOp, Payload, Target};
use crate::units::{BLOCK_BYTES, Instant};

/// Pages in one write.
const PAGES_A_WRITE: u32 = 64;
/// RAM slots promoted an event.
const SLOTS_A_STEP: usize = 256;

/// Writes a checkpoint page by page, one I/O at a time.
pub(crate) struct CheckpointWriter {
    sequence: u64,
    position: u32,
    head: Head,
    volumes: Vec<VolumeRecord>,
    segments: Vec<SegmentRecord>,
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
        let slots: Vec<u32> = self.probation.slots().skip(done).take(SLOTS_A_STEP).collect();
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
        for group in 0..self.log.groups.len() {
            self.submit_chunk(group as u16, outbox);
        }
    }

    /// Whether no chunk is in RAM or being written.
    pub(crate) fn is_written(&self) -> bool {
        self.log.writing.is_empty()
    }

    /// Begins checkpoint `sequence`.
    pub(crate) fn checkpoint(&self, sequence: u64, volumes: Vec<VolumeRecord>) -> CheckpointWriter {
        let holds = |state| matches!(state, SegmentState::Open | SegmentState::Sealed);
        let segments: Vec<_> = self
            .log
            .segments
            .iter()
            .enumerate()
            .filter(|(_, segment)| holds(segment.state) && segment.used > 0)
            .map(|(index, segment)| SegmentRecord {
                segment: index as u32,
                sequence: segment.sequence,
                used: segment.used,
                owner: self.log.groups[usize::from(segment.group)]
                    .owner
                    .map_or(u32::MAX, u32::from),
            })
            .collect();
        let head = Head {
            volumes: volumes.len() as u32,
            segments: segments.len() as u32,
            slots: self.log.geometry.slots(),
            chunk_sequence: self.log.sequence,
        };
        CheckpointWriter { sequence, position: 0, head, volumes, segments }
    }

    /// Writes the next pages; false if all are written.
    pub(crate) fn write_checkpoint(
        &self,
        writer: &mut CheckpointWriter,
        outbox: &mut Outbox<P>,
    ) -> bool {
        let total = 1 + writer.head.pages() as u32;
        let count = PAGES_A_WRITE.min(total - writer.position);
        if count == 0 {
            return false;
        }
        let first = writer.position;
        let pages = (first..first + count)
            .map(|position| self.page(writer, position).encode(writer.sequence, position))
            .collect();
        let base = self.log.geometry.checkpoints.0[(writer.sequence % 2) as usize];
        let offset = (base + u64::from(first)) * BLOCK_BYTES;
        writer.position += count;
        let op = IoOp::WriteMeta { offset, pages, data: smallvec::SmallVec::new(), fua: false };
        outbox.io(Target::Cache, op, Pending::Checkpoint);
        true
    }

    fn page(&self, writer: &CheckpointWriter, position: u32) -> Page {
        let Some(index) = position.checked_sub(1) else { return Page::Head(writer.head) };
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
        let count = DESCRIPTORS_A_PAGE.min(writer.head.slots as usize - first);
        Page::Descriptors(self.descriptors.raw(first as u32, count as u32).to_vec())
    }
}
