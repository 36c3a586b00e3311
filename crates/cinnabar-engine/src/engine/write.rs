//! Writes: the old copies go, durably where they are on flash; the backend gets the data; then the
//! new copies may come.
//!
//! The request holds its blocks alone. A block that is written in part keeps its place in the cache
//! only if its old content is at hand, verified; on a backend that takes whole 4 KiB blocks only,
//! the rest of an edge block is read first.

use super::Engine;
use super::request::Kind;
use crate::bounds::Bound;
use crate::descriptors::Key;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::plan::Mode;
use crate::rehearsal::Access;
use crate::seam::{IoError, IoOp, Payload, Slice, Target};
use crate::sequential::Stripes;
use crate::store::{Origin, Place, Removed, Sectors};
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use crate::volume::Volume;
use smallvec::{SmallVec, smallvec};

/// A write under way.
#[derive(Debug)]
pub(super) struct WriteState<P> {
    pub(super) span: ByteSpan,
    pub(super) data: P,
    fua: bool,
    keep: bool,
    /// It waits for the gate.
    waits: bool,
    /// The backend needs whole blocks, so edges come first.
    edges_first: bool,
    /// The backend write has been issued.
    issued: bool,
    /// Blocks before this one have been offered to the cache.
    offered: u32,
    /// Bit i: block i was cached.
    hits: SmallVec<[u64; 1]>,
    /// First and last block, if they are written in part.
    edges: SmallVec<[Edge<P>; 2]>,
}

/// A block that is written in part.
#[derive(Debug)]
struct Edge<P> {
    index: u32,
    /// What of it the request's buffer holds.
    sectors: Sectors,
    /// Its old content, while it is being read.
    old: Option<P>,
}

impl<P: Payload> WriteState<P> {
    pub(super) fn new(span: ByteSpan, data: P, fua: bool) -> Self {
        let words = span.blocks().div_ceil(64) as usize;
        let hits = smallvec![0; words];
        let edges = SmallVec::new();
        Self {
            span,
            data,
            fua,
            keep: false,
            waits: false,
            edges_first: false,
            issued: false,
            offered: 0,
            hits,
            edges,
        }
    }

    fn was_cached(&self, i: u32) -> bool {
        self.hits[i as usize / 64] >> (i % 64) & 1 == 1
    }

    /// Copies what the write doesn't cover of an edge block from its old content.
    fn merge(&mut self, edge: usize, old: &P, old_at: u64) {
        let edge = &mut self.edges[edge];
        edge.sectors = Sectors::ALL;
        let base = u64::from(edge.index) * BLOCK_BYTES;
        let start = self.span.head_bytes().max(base);
        let end = (self.span.head_bytes() + self.span.len).min(base + BLOCK_BYTES);
        assert!(start < end, "the write touches its edges");
        if start > base {
            self.data.copy_from(base, old, old_at, start - base);
        }
        if end < base + BLOCK_BYTES {
            let rest = base + BLOCK_BYTES - end;
            self.data.copy_from(end, old, old_at + (end - base), rest);
        }
    }
}

impl<P: Payload> Engine<P> {
    pub(super) fn start_write(&mut self, request: usize) {
        let index = self.requests[request].volume;
        let Kind::Write(state) = &self.requests[request].kind else { unreachable!("a write") };
        if state.offered > 0 {
            return self.write_io_done(request);
        }
        let span = state.span;
        let (unready, stripes) = (self.unready(), Stripes::of(&self.superblock.geometry));
        let volume = self.volume(index);
        let bypass = volume.bypass(span, stripes, unready);
        volume.counters.writes += 1;
        volume.counters.blocks_written += span.blocks();
        let whole_blocks_only = u64::from(volume.spec.align_bytes) == BLOCK_BYTES;
        let keep = bypass.is_none() && volume.spec.mode == Mode::WriteThrough;
        if bypass.is_none() && volume.spec.mode == Mode::WriteAround {
            volume.counters.bypassed.write_around += span.blocks();
        }
        let size = volume.spec.size_bytes;
        self.requests[request].outstanding = 1;
        let Kind::Write(state) = &mut self.requests[request].kind else { unreachable!("a write") };
        state.keep = keep;
        state.edges = edges(span, size);
        if span.end() == size && !size.is_multiple_of(BLOCK_BYTES) {
            let (from, to) = (span.head_bytes() + span.len, span.blocks() * BLOCK_BYTES);
            state.data.zero(from, to - from);
        }
        for edge in 0..state.edges.len() {
            self.begin_edge(request, edge, keep, whole_blocks_only);
        }
        let stale = self.take_out(request);
        let passed = self.pass_gate(request, stale);
        let Kind::Write(state) = &mut self.requests[request].kind else { unreachable!("a write") };
        state.waits = !passed;
        state.edges_first = whole_blocks_only;
        self.requests[request].outstanding -= 1;
        self.issue_if_ready(request);
    }

    /// The gate is open.
    pub(super) fn write_passed(&mut self, request: usize) {
        let active = &mut self.requests[request];
        let Kind::Write(state) = &mut active.kind else { unreachable!("a write") };
        assert!(state.waits && !state.issued, "a write passes the gate once, before it is issued");
        state.waits = false;
        if active.failure.is_some() {
            return self.finish_if_done(request);
        }
        self.issue_if_ready(request);
    }

    /// Issues the backend's write, unless it waits for the gate or for edges that it needs.
    fn issue_if_ready(&mut self, request: usize) {
        let active = &self.requests[request];
        let Kind::Write(state) = &active.kind else { unreachable!("a write") };
        if !state.waits && (!state.edges_first || active.outstanding == 0) {
            self.issue_write(request);
        }
    }

    /// Gets the old content of a partly written block: at once from RAM, by a read from flash, or,
    /// if the backend needs whole blocks, from there.
    fn begin_edge(&mut self, request: usize, edge: usize, keep: bool, needed: bool) {
        if !keep && !needed {
            return;
        }
        let volume = self.requests[request].volume;
        // What the backend may have lost must not come back by way of the block's rest.
        let doubtful = self.volume(volume).sync_failed.is_some();
        let Kind::Write(state) = &mut self.requests[request].kind else { unreachable!("a write") };
        let index = state.edges[edge].index;
        let block = state.span.first_block() + u64::from(index);
        let slot = self.store.find(Key { volume, block }).filter(|_| !doubtful);
        let (target, offset, slot) = match slot.map(|slot| (slot, self.store.place(slot))) {
            Some((_, Place::Ram(buffer))) => {
                state.merge(edge, self.store.buffers.data(), buffer.at());
                return;
            }
            Some((slot, Place::Flash)) => {
                self.store.pin(slot);
                (Target::Cache, self.store.log.offset_of(slot), Some(slot))
            }
            None if needed => (Target::Backend(VolumeId(volume)), block * BLOCK_BYTES, None),
            // Not kept while doubtful: the volume is passed by.
            None => {
                let (known, to) = (state.edges[edge].sectors, u64::from(index) * BLOCK_BYTES);
                let key = Key { volume, block };
                state.edges[edge].sectors = self.store.merge_partial(key, known, (&state.data, to));
                return;
            }
        };
        let old = P::alloc(1);
        state.edges[edge].old = Some(old.clone());
        self.requests[request].outstanding += 1;
        self.read_edge(request, edge, target, offset, slot, old);
    }

    fn read_edge(
        &mut self,
        request: usize,
        edge: usize,
        target: Target,
        offset: u64,
        slot: Option<u32>,
        old: P,
    ) {
        let op =
            IoOp::Read { offset, data: smallvec![Slice { data: old, at: 0, len: BLOCK_BYTES }] };
        self.outbox.io(target, op, Pending::Edge { request, edge, slot });
        if let Target::Backend(volume) = target {
            let counters = &mut self.volume(volume.0).counters;
            counters.backend_reads += 1;
            counters.backend_read_bytes += BLOCK_BYTES;
        }
    }

    /// The old content of an edge block has come, or not.
    pub(super) fn edge_done(
        &mut self,
        request: usize,
        edge: usize,
        slot: Option<u32>,
        result: Result<(), IoError>,
    ) {
        let volume = self.requests[request].volume;
        let whole_blocks_only = u64::from(self.volume(volume).spec.align_bytes) == BLOCK_BYTES;
        let active = &mut self.requests[request];
        let Kind::Write(state) = &mut active.kind else { unreachable!("a write") };
        let index = state.edges[edge].index;
        let block = state.span.first_block() + u64::from(index);
        let old = state.edges[edge].old.take().expect("was being read");
        let mut good = result.is_ok();
        if let Some(slot) = slot {
            self.store.unpin(slot);
            if good {
                let seed = self.store.checksum_seed(Key { volume, block });
                good = old.checksum(0, seed) == self.store.descriptors.checksum(slot);
                if !good {
                    self.store.count_checksum_failure();
                }
            } else {
                self.store.count_device_error();
            }
        }
        if good || result.is_ok() && self.config.mutants.is(Mutant::EdgeNotVerified) {
            state.merge(edge, &old, 0);
        } else if whole_blocks_only && slot.is_some() {
            // The cached copy is no good: the backend has the block. The SSD may still write to
            // that memory.
            let old = P::alloc(1);
            state.edges[edge].old = Some(old.clone());
            let target = Target::Backend(VolumeId(volume));
            return self.read_edge(request, edge, target, block * BLOCK_BYTES, None, old);
        } else if slot.is_none() {
            self.note_backend_result(request, result);
        }
        let active = &mut self.requests[request];
        assert!(active.outstanding > 0, "an edge that comes was waited for");
        active.outstanding -= 1;
        if active.outstanding > 0 {
            return;
        }
        let Kind::Write(state) = &active.kind else { unreachable!("a write") };
        if state.issued || active.failure.is_some() {
            self.write_io_done(request);
        } else {
            self.issue_if_ready(request);
        }
    }

    /// Takes every old copy out of the cache: until the backend has the new data it is unknown what
    /// a block contains, and if the write fails it stays unknown. Gives the blocks to be recorded as
    /// invalid.
    fn take_out(&mut self, request: usize) -> Option<(u64, u64)> {
        let volume = self.requests[request].volume;
        let records_all = self.records_all();
        let keeps = self.config.mutants.is(Mutant::ThrottleKeepsPartials) && !self.store.admits;
        if !self.config.mutants.is(Mutant::PartialNotTakenOut) && !keeps {
            let Kind::Write(state) = &self.requests[request].kind else { unreachable!("a write") };
            let (first, end) = (state.span.first_block(), state.span.end_block());
            self.store.drop_partials(volume, first, end);
        }
        let grows = self.config.mutants.is(Mutant::PassedRunGrows);
        if let Some(loader) = &mut self.loader {
            let Kind::Write(state) = &self.requests[request].kind else { unreachable!("a write") };
            let (first, end) = (state.span.first_block(), state.span.end_block());
            if loader.pass(volume, first, end, grows) {
                return records_all.then_some((first, end));
            }
        }
        let Kind::Write(state) = &mut self.requests[request].kind else { unreachable!("a write") };
        let all = records_all.then_some((state.span.first_block(), state.span.end_block()));
        let holding = &self.store.holdings[usize::from(volume)];
        let leaves = self.config.mutants.is(Mutant::CapKeepsRewritten);
        if holding.cached_blocks == 0 || leaves && holding.fill_cap.is_spent(self.now) {
            return all;
        }
        let mut hits = 0;
        let mut stale: Option<(u64, u64)> = None;
        for i in 0..state.span.blocks() {
            let key = Key { volume, block: state.span.first_block() + i };
            let removed = self.store.remove(key);
            if removed == Removed::Absent {
                continue;
            }
            state.hits[i as usize / 64] |= 1 << (i % 64);
            hits += 1;
            if removed == Removed::FromFlash {
                let first = stale.map_or(key.block, |(first, _)| first);
                stale = Some((first, key.block + 1));
            }
        }
        self.volume(volume).counters.write_hits += hits;
        all.or(stale)
    }

    fn issue_write(&mut self, request: usize) {
        let volume = self.requests[request].volume;
        let align = u64::from(self.volume(volume).spec.align_bytes);
        let Kind::Write(state) = &mut self.requests[request].kind else { unreachable!("a write") };
        assert!(
            !state.waits && !state.issued,
            "a write is issued once, after the copies it invalidates are recorded"
        );
        state.issued = true;
        let (data, fua, span) = (state.data.clone(), state.fua, state.span);
        // Of this mutant the guest's reads have to tell.
        let leaves = self.config.mutants.is(Mutant::CapKeepsRewritten);
        debug_assert!(
            leaves || self.holds_none(volume, span),
            "a cached copy outlives the start of a write"
        );
        let (offset, at, len) = if align == BLOCK_BYTES {
            (span.first_block() * BLOCK_BYTES, 0, span.blocks() * BLOCK_BYTES)
        } else {
            (span.offset, span.head_bytes(), span.len)
        };
        let counters = &mut self.volume(volume).counters;
        counters.backend_writes += 1;
        counters.backend_write_bytes += len;
        let data = smallvec![Slice { data, at, len }];
        self.backend_io(request, IoOp::Write { offset, data, fua });
    }

    /// Whether nothing of these blocks is cached.
    fn holds_none(&self, volume: u16, span: ByteSpan) -> bool {
        let absent = |block| self.store.find(Key { volume, block }).is_none();
        (span.first_block()..span.end_block()).all(absent)
    }

    /// The backend has answered and no edge is being read any more. A long write pauses between
    /// steps, its blocks still held.
    pub(super) fn write_io_done(&mut self, request: usize) {
        let active = &self.requests[request];
        let volume = active.volume;
        assert_eq!(active.outstanding, 0, "nothing of the write is under way");
        let Kind::Write(state) = &active.kind else { unreachable!("a write") };
        let known = self.volumes[usize::from(volume)].as_ref();
        let keeps = |v: &Volume| v.spec.mode == Mode::WriteThrough && !v.passes_through();
        let keeps = known.is_some_and(keeps);
        let failed = active.failure.is_some()
            && !(state.issued && self.config.mutants.is(Mutant::FailedWriteCached));
        if failed && state.issued && self.config.mutants.is(Mutant::FailedPartialKept) {
            for edge in state.edges.iter().filter(|edge| edge.sectors != Sectors::ALL) {
                let block = state.span.first_block() + u64::from(edge.index);
                let from = (&state.data, u64::from(edge.index) * BLOCK_BYTES);
                self.store.keep_partial(Key { volume, block }, edge.sectors, from);
            }
        }
        if failed || !state.keep || !keeps {
            return self.finish(request);
        }
        assert!(state.issued, "what is cached has reached the backend before");
        let (mut not_reused, mut refused) = (0, 0);
        let for_whole = self.config.mutants.is(Mutant::PartialTakenForWhole);
        let end = state.span.blocks() as u32;
        assert!(state.offered < end, "a write that was offered whole has ended");
        let stop = end.min(state.offered + self.config.bounds.write_blocks);
        self.store.crossings.note_if(stop < end, Bound::WriteBlocks);
        for i in state.offered..stop {
            let key = Key { volume, block: state.span.first_block() + u64::from(i) };
            let from = (&state.data, u64::from(i) * BLOCK_BYTES);
            let edge = state.edges.iter().find(|edge| edge.index == i);
            if let Some(edge) = edge.filter(|edge| edge.sectors != Sectors::ALL && !for_whole) {
                self.store.keep_partial(key, edge.sectors, from);
                continue;
            }
            // Its rest came from no copy and not from the backend.
            if edge.is_some() && !state.was_cached(i) && !state.edges_first {
                self.store.count_completed_partial();
            }
            self.store.rehearse(key, Access::Write);
            if !self.store.write_pays(key) {
                self.store.note_unkept_write(key);
                not_reused += 1;
                continue;
            }
            let origin = if state.was_cached(i) { Origin::Rewrite } else { Origin::Write };
            let filled = self.store.fill(key, origin, from, self.now, &mut self.outbox);
            refused += u64::from(!filled);
        }
        let bypassed = &mut self.volume(volume).counters.bypassed;
        bypassed.write_not_reused += not_reused;
        bypassed.no_space += refused;
        if stop == end {
            return self.finish(request);
        }
        let Kind::Write(state) = &mut self.requests[request].kind else { unreachable!("a write") };
        state.offered = stop;
        self.paused.push_back(request);
    }
}

/// The blocks that a write covers in part. The volume's last block counts as covered when the write
/// reaches the volume's end.
fn edges<P>(span: ByteSpan, size: u64) -> SmallVec<[Edge<P>; 2]> {
    let end = if span.end() == size { span.end_block() * BLOCK_BYTES } else { span.end() };
    let covered = ByteSpan::new(span.offset, end - span.offset);
    let last = span.blocks() - 1;
    let ends = [0, last].into_iter().take(if last == 0 { 1 } else { 2 });
    let edge = |index: u64| {
        let sectors = Sectors::of(covered, span.first_block() + index);
        Edge { index: index as u32, sectors, old: None }
    };
    ends.map(edge).filter(|edge| edge.sectors != Sectors::ALL).collect()
}
