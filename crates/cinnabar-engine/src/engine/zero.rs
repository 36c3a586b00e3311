//! Trims and write-zeroes, of any length: the old copies go step by step, then the backend's part
//! follows.
//!
//! The request holds its blocks alone, so the steps may take as many events as they like.

use super::Engine;
use super::request::Kind;
use crate::bounds::Bound;
use crate::descriptors::Key;
use crate::mutant::Mutant;
use crate::seam::{IoError, IoOp, Payload, Slice};
use crate::store::Removed;
use crate::units::{BLOCK_BYTES, ByteSpan};
use crate::volume::Volume;
use smallvec::{SmallVec, smallvec};

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Taking cached blocks out, from this one on.
    TakeOut(u64),
    /// Waiting until what was taken out is durably recorded as invalid.
    Gate,
    /// Reading an edge block of a backend that takes whole blocks only.
    ReadEdge(usize),
    /// Writing it back.
    WriteEdge(usize),
    /// The operation itself.
    Main,
    /// Writing zeros from this byte on, because the backend can't zero by itself.
    Fallback(u64),
    /// Making it durable.
    Flush,
}

/// A trim or write-zeroes under way.
#[derive(Debug)]
pub(super) struct ZeroState<P> {
    span: ByteSpan,
    fua: bool,
    trim: bool,
    may_punch: bool,
    /// The backend is not told: only what is cached goes.
    invalidate: bool,
    /// Blocks on flash that were taken out: first and end of the range around them.
    stale: Option<(u64, u64)>,
    stage: Stage,
    started: bool,
    /// The part that is sent to the backend.
    inner: ByteSpan,
    /// Partly zeroed blocks {block, first byte, end} on a backend that takes whole blocks only.
    edges: SmallVec<[(u64, u64, u64); 2]>,
    buffer: Option<P>,
}

impl<P: Payload> ZeroState<P> {
    pub(super) fn new(span: ByteSpan, fua: bool, trim: bool, may_punch: bool) -> Self {
        Self {
            span,
            fua,
            trim,
            may_punch,
            invalidate: false,
            stale: None,
            stage: Stage::TakeOut(span.first_block()),
            started: false,
            inner: span,
            edges: SmallVec::new(),
            buffer: None,
        }
    }

    /// Drops what is cached and sends nothing to the backend.
    pub(super) fn invalidate(span: ByteSpan) -> Self {
        Self { invalidate: true, ..Self::new(span, false, true, true) }
    }

    pub(super) const fn invalidates(&self) -> bool {
        self.invalidate
    }

    /// The first step: counts the request, and divides it for its backend. Later ones do nothing.
    fn begin(&mut self, volume: &mut Volume) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        assert!(self.edges.is_empty() && self.inner == self.span, "it is divided once");
        match (self.invalidate, self.trim) {
            (true, _) => {}
            (false, true) => volume.counters.trims += 1,
            (false, false) => volume.counters.zeroes += 1,
        }
        if u64::from(volume.spec.align_bytes) == BLOCK_BYTES {
            self.align_to_blocks();
        }
    }

    /// Splits off what a backend of whole blocks can't do: a trim shrinks, a zero gets edges.
    fn align_to_blocks(&mut self) {
        let (start, end) = (self.span.offset, self.span.end());
        let inner = start.next_multiple_of(BLOCK_BYTES);
        let inner_end = end / BLOCK_BYTES * BLOCK_BYTES;
        if !self.trim {
            let head = start / BLOCK_BYTES * BLOCK_BYTES;
            if start < inner {
                self.edges.push((head, start - head, (end - head).min(BLOCK_BYTES)));
            }
            if inner_end < end && (inner_end > head || start == inner) {
                self.edges.push((inner_end, 0, end - inner_end));
            }
        }
        self.inner = ByteSpan::new(inner, inner_end.saturating_sub(inner));
        let within = inner >= start && self.inner.end() <= end;
        assert!(within || self.inner.len == 0, "nothing beyond the request is sent to the backend");
        assert!(self.edges.len() <= 2, "a range has two ends");
    }

    fn slice(&self, len: u64) -> Slice<P> {
        Slice { data: self.buffer.clone().expect("allocated before"), at: 0, len }
    }
}

impl<P: Payload> Engine<P> {
    /// Does the step that `stage` names.
    pub(super) fn advance_zero(&mut self, request: usize) {
        let index = self.requests[request].volume;
        assert_eq!(self.requests[request].outstanding, 0, "one step at a time");
        let Kind::Zero(state) = &mut self.requests[request].kind else { unreachable!("a zero") };
        let volume = self.volumes[usize::from(index)].as_mut().expect("has requests");
        state.begin(volume);
        let (stage, stale, invalidate) = (state.stage, state.stale, state.invalidate);
        let silent = matches!(stage, Stage::TakeOut(_) | Stage::Gate);
        assert!(silent || !invalidate, "an invalidation never reaches the backend");
        if !invalidate && self.requests[request].answered {
            // It took too long, and the backend has heard of nothing yet. What was taken out was as
            // good as any copy, but no later write will find it and invalidate it.
            let forgets = self.config.mutants.is(Mutant::LateTrimNotRecorded);
            if let (Stage::TakeOut(_), Some((first, end))) = (stage, stale)
                && !forgets
            {
                self.store.invalidate_durably(index, first, end);
            }
            return self.finish(request);
        }
        let Kind::Zero(state) = &mut self.requests[request].kind else { unreachable!("a zero") };
        match state.stage {
            Stage::TakeOut(next) => self.take_out_some(request, next),
            Stage::Gate if state.invalidate => self.finish(request),
            Stage::Gate => self.go_on(request, Stage::ReadEdge(0)),
            Stage::ReadEdge(edge) => {
                let Some(&(block, ..)) = state.edges.get(edge) else {
                    return self.go_on(request, Stage::Main);
                };
                state.buffer = Some(P::alloc(1));
                volume.counters.backend_reads += 1;
                volume.counters.backend_read_bytes += BLOCK_BYTES;
                let data = smallvec![state.slice(BLOCK_BYTES)];
                self.backend_io(request, IoOp::Read { offset: block, data });
            }
            Stage::WriteEdge(edge) => {
                let (block, from, to) = state.edges[edge];
                let slice = state.slice(BLOCK_BYTES);
                slice.data.zero(from, to - from);
                volume.counters.backend_writes += 1;
                volume.counters.backend_write_bytes += BLOCK_BYTES;
                let op = IoOp::Write { offset: block, data: smallvec![slice], fua: false };
                self.backend_io(request, op);
            }
            Stage::Main if state.inner.len == 0 => self.go_on(request, Stage::Flush),
            Stage::Main => {
                let (span, may_punch) = (state.inner, state.may_punch);
                volume.counters.backend_writes += 1;
                let op = if state.trim {
                    IoOp::Trim { span }
                } else {
                    IoOp::WriteZeroes { span, may_punch }
                };
                self.backend_io(request, op);
            }
            Stage::Fallback(offset) => self.write_zeros(request, offset),
            Stage::Flush
                if state.fua && !self.config.mutants.is(Mutant::DurableZeroesNotFlushed) =>
            {
                self.backend_flush(request);
            }
            Stage::Flush => self.finish(request),
        }
    }

    fn take_out_some(&mut self, request: usize, next: u64) {
        let volume = self.requests[request].volume;
        let Kind::Zero(state) = &mut self.requests[request].kind else { unreachable!("a zero") };
        let end = state.span.end_block();
        let all = (state.span.first_block(), end);
        assert!(all.0 <= next && next < end, "the next block is one of the request's");
        let grows = self.config.mutants.is(Mutant::PassedRunGrows);
        // While the index is being loaded what it holds is not the whole truth.
        let noted = match &mut self.loader {
            Some(loader) if next == all.0 => loader.pass(volume, all.0, all.1, grows),
            _ => false,
        };
        let empty = noted || self.store.holdings[usize::from(volume)].cached_blocks == 0;
        let stop = if empty { end } else { end.min(next + self.config.bounds.zero_blocks) };
        let mut removed = 0;
        if !self.config.mutants.is(Mutant::PartialOutlivesTrim) {
            self.store.drop_partials(volume, next, stop);
        }
        if !empty {
            for block in next..stop {
                let copy = self.store.remove(Key { volume, block });
                removed += u64::from(copy != Removed::Absent);
                if copy == Removed::FromFlash {
                    let first = state.stale.map_or(block, |(first, _)| first);
                    state.stale = Some((first, block + 1));
                }
            }
        }
        let (invalidate, mut stale) = (state.invalidate, state.stale);
        state.stage = if stop < end { Stage::TakeOut(stop) } else { Stage::Gate };
        if invalidate {
            self.volume(volume).counters.invalidated_blocks += removed;
        }
        if stop < end {
            self.store.crossings.note(Bound::ZeroBlocks);
            return self.paused.push_back(request);
        }
        if self.records_all() {
            stale = Some(all);
        }
        if self.config.mutants.is(Mutant::TrimNotRecorded) {
            stale = None;
        }
        if self.pass_gate(request, stale) {
            self.advance_zero(request);
        }
    }

    /// The gate is open.
    pub(super) fn zero_passed(&mut self, request: usize) {
        let Kind::Zero(state) = &self.requests[request].kind else { unreachable!("a zero") };
        assert_eq!(state.stage, Stage::Gate, "what passes the gate has waited there");
        if self.requests[request].failure.is_some() {
            return self.finish(request);
        }
        self.advance_zero(request);
    }

    fn write_zeros(&mut self, request: usize, offset: u64) {
        let Kind::Zero(state) = &mut self.requests[request].kind else { unreachable!("a zero") };
        let inner = state.inner;
        assert!(inner.offset <= offset && offset < inner.end(), "zeros within the request");
        let blocks = self.config.bounds.zero_fallback_blocks;
        let step = u64::from(blocks) * BLOCK_BYTES;
        let len = (state.inner.end() - offset).min(step);
        let cut = offset + len < state.inner.end();
        self.store.crossings.note_if(cut, Bound::ZeroFallbackBlocks);
        if offset == state.inner.offset {
            let zeros = P::alloc(blocks);
            zeros.zero(0, step);
            state.buffer = Some(zeros);
        }
        let data = smallvec![state.slice(len)];
        let volume = self.requests[request].volume;
        let counters = &mut self.volume(volume).counters;
        counters.backend_writes += 1;
        counters.backend_write_bytes += len;
        self.backend_io(request, IoOp::Write { offset, data, fua: false });
    }

    fn go_on(&mut self, request: usize, stage: Stage) {
        let Kind::Zero(state) = &mut self.requests[request].kind else { unreachable!("a zero") };
        state.stage = stage;
        self.advance_zero(request);
    }

    /// A backend operation of this request has ended: the next step, or the end.
    pub(super) fn zero_step_done(&mut self, request: usize, result: Result<(), IoError>) {
        let active = &self.requests[request];
        assert_eq!(active.outstanding, 0, "one step at a time");
        if active.answered {
            // It took too long, and was answered so: nothing more of it must land.
            self.note_backend_result(request, result);
            return self.finish(request);
        }
        let Kind::Zero(state) = &active.kind else { unreachable!("a zero") };
        let next = match (state.stage, result) {
            (Stage::Main, Err(IoError::Unsupported)) if state.trim => Stage::Flush,
            (Stage::Main, Err(IoError::Unsupported)) => Stage::Fallback(state.inner.offset),
            (_, Err(error)) => {
                self.note_backend_result(request, Err(error));
                return self.finish(request);
            }
            (Stage::Flush, Ok(())) => return self.finish(request),
            (Stage::ReadEdge(edge), Ok(())) => Stage::WriteEdge(edge),
            (Stage::WriteEdge(edge), Ok(())) => Stage::ReadEdge(edge + 1),
            (Stage::Fallback(offset), Ok(())) => {
                let step = u64::from(self.config.bounds.zero_fallback_blocks) * BLOCK_BYTES;
                let next = offset + step;
                if next < state.inner.end() { Stage::Fallback(next) } else { Stage::Flush }
            }
            (Stage::Main, Ok(())) => Stage::Flush,
            (Stage::TakeOut(_) | Stage::Gate, Ok(())) => {
                unreachable!("no backend operation in this stage")
            }
        };
        self.go_on(request, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Nothing;
    impl Payload for Nothing {
        fn alloc(_: u32) -> Self {
            Self
        }
        fn copy_from(&self, _: u64, _: &Self, _: u64, _: u64) {}
        fn zero(&self, _: u64, _: u64) {}
        fn checksum(&self, _: u64, _: u64) -> u32 {
            0
        }
    }

    fn split(offset: u64, len: u64) -> (Vec<(u64, u64, u64)>, u64, u64) {
        let mut state = ZeroState::<Nothing>::new(ByteSpan::new(offset, len), false, false, false);
        state.align_to_blocks();
        (state.edges.to_vec(), state.inner.offset, state.inner.len)
    }

    #[test]
    fn the_edges_and_the_inner_part_cover_the_span_exactly() {
        assert_eq!(split(4096, 8192), (vec![], 4096, 8192));
        assert_eq!(split(512, 1024), (vec![(0, 512, 1536)], 4096, 0));
        assert_eq!(split(512, 4096), (vec![(0, 512, 4096), (4096, 0, 512)], 4096, 0));
        assert_eq!(split(0, 512), (vec![(0, 0, 512)], 0, 0));
        assert_eq!(split(512, 8192), (vec![(0, 512, 4096), (8192, 0, 512)], 4096, 4096));
        assert_eq!(split(4096, 4608), (vec![(8192, 0, 512)], 4096, 4096));
    }
}
