//! The double's blocks: what it keeps in RAM, what a write does to it, read-modify-write.

use super::kept::Block;
use super::{Bug, Double, Work, span_of};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES, VolumeId};
use cinnabar_engine::{IoOp, Op, Payload, Request, Slice};
use cinnabar_sim::{Stamp, Stamped};
use std::ops::Range;

impl Double {
    /// Is a write to these blocks under way? Then a read of them fills nothing.
    pub(super) fn written_now(&self, volume: VolumeId, span: ByteSpan) -> bool {
        self.work.values().any(|work| {
            work.request.volume == volume
                && !matches!(work.request.op, Op::Read { .. })
                && span_of(&work.request.op).is_some_and(|other| touch(other, span))
        })
    }

    /// Copies cached blocks; returns the runs of those that are missing.
    pub(super) fn look_up(
        &mut self,
        volume: VolumeId,
        span: ByteSpan,
        data: &Stamped,
    ) -> Vec<Range<u64>> {
        let volume = &mut self.volumes[usize::from(volume.0)];
        let kept = volume.kept.borrow();
        let mut missing: Vec<Range<u64>> = Vec::new();
        for block in span.first_block()..span.end_block() {
            let at = (block - span.first_block()) * BLOCK_BYTES;
            if let Some(cached) = kept.cached.get(&block).filter(|_| volume.caching) {
                data.copy_from(at, &cached.data, 0, BLOCK_BYTES);
                volume.counters.read_hits += 1;
                continue;
            }
            volume.counters.misses += 1;
            match missing.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => missing.push(block..block + 1),
            }
        }
        missing
    }

    /// What a write does to cached blocks and to fills under way.
    pub(super) fn invalidate(&mut self, request: &Request<Stamped>) {
        let Some(span) = span_of(&request.op) else { return };
        if self.bug != Bug::FillOverNewerWrite {
            for work in self.work.values_mut() {
                let hit = work.request.volume == request.volume
                    && span_of(&work.request.op).is_some_and(|other| touch(other, span));
                work.overtaken |= hit;
            }
        }
        let kept = &mut *self.volumes[usize::from(request.volume.0)].kept.borrow_mut();
        let keep = match &request.op {
            Op::Write { .. } => self.bug == Bug::StaleRead,
            Op::WriteZeroes { .. } => self.bug == Bug::LostZeroes,
            _ => false,
        };
        if keep {
            return;
        }
        for block in span.first_block()..span.end_block() {
            if let Some(copy) = kept.cached.remove(&block) {
                kept.removed.insert(block, copy);
            }
        }
    }

    /// Caches what a read fetched.
    pub(super) fn fill(&mut self, work: &Work) {
        let Op::Read { span, data } = &work.request.op else { return };
        if work.overtaken || self.bug == Bug::PassThrough {
            return;
        }
        let volume = &self.volumes[usize::from(work.request.volume.0)];
        if !volume.caching {
            return;
        }
        let cached = &mut volume.kept.borrow_mut().cached;
        for block in work.missing.iter().cloned().flatten() {
            let copy = Stamped::alloc(1);
            copy.copy_from(0, data, (block - span.first_block()) * BLOCK_BYTES, BLOCK_BYTES);
            cached.insert(block, Block { data: copy, flushed: volume.clean });
        }
    }

    /// Caches a write's whole buffer, as broken variants do.
    pub(super) fn keep_write(&mut self, work: &Work) {
        let Op::Write { span, data, .. } = &work.request.op else { return };
        let cached = &mut self.volumes[usize::from(work.request.volume.0)].kept.borrow_mut().cached;
        for block in span.first_block()..span.end_block() {
            let copy = Stamped::alloc(1);
            copy.copy_from(0, data, (block - span.first_block()) * BLOCK_BYTES, BLOCK_BYTES);
            cached.insert(block, Block { data: copy, flushed: false });
        }
    }
}

fn touch(one: ByteSpan, other: ByteSpan) -> bool {
    one.first_block() < other.end_block() && other.first_block() < one.end_block()
}

/// A write of zeros.
pub(super) fn zeros(span: ByteSpan, fua: bool) -> IoOp<Stamped> {
    let data = Stamped::from_stamps(vec![Stamp::ZERO; span.blocks() as usize * 8]);
    let slice = Slice { data, at: span.head_bytes(), len: span.len };
    IoOp::Write { offset: span.offset, data: [slice].into_iter().collect(), fua }
}

/// Read-modify-write of whole blocks: the read now, the write next.
pub(super) fn modify(work: &mut Work, ios: &mut Vec<IoOp<Stamped>>) {
    let (span, fua) = match &work.request.op {
        Op::Write { span, fua, .. } | Op::WriteZeroes { span, fua, .. } => (*span, *fua),
        // A trim is a hint; only whole blocks can be trimmed here.
        Op::Trim { span, .. } => {
            let first = span.offset.next_multiple_of(BLOCK_BYTES);
            let end = span.end() / BLOCK_BYTES * BLOCK_BYTES;
            if first < end {
                ios.push(IoOp::Trim { span: ByteSpan::new(first, end - first) });
            }
            return;
        }
        Op::Read { .. } | Op::Flush | Op::Invalidate { .. } => {
            unreachable!("handled by the caller")
        }
    };
    let buffer = Stamped::alloc(span.blocks() as u32);
    let all = Slice { data: buffer, at: 0, len: span.blocks() * BLOCK_BYTES };
    let offset = span.first_block() * BLOCK_BYTES;
    ios.push(IoOp::Read { offset, data: [all.clone()].into_iter().collect() });
    work.next = Some(IoOp::Write { offset, data: [all].into_iter().collect(), fua });
}

/// Lays a write or zeroes over the blocks that were read for it.
pub(super) fn apply_change(op: &Op<Stamped>, write: &IoOp<Stamped>) {
    let IoOp::Write { data: blocks, .. } = write else { return };
    let blocks = &blocks[0].data;
    match op {
        Op::Write { span, data, .. } => {
            blocks.copy_from(span.head_bytes(), data, span.head_bytes(), span.len);
        }
        Op::WriteZeroes { span, .. } => {
            let first = (span.head_bytes() / SECTOR_BYTES) as usize;
            blocks.set(first, &vec![Stamp::ZERO; (span.len / SECTOR_BYTES) as usize]);
        }
        _ => {}
    }
}
