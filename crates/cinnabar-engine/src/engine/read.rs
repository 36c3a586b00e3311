//! Reads: each block from RAM, flash or the backend; the reply when all of them are there.
//!
//! The request holds its blocks shared, so no write can come between a lookup and the fill that
//! follows a miss.

use super::Engine;
use super::request::Kind;
use crate::bounds::Bound;
use crate::descriptors::Key;
use crate::limits::DATA_BLOCKS_MAX;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{IoError, IoOp, Payload, Slice, Slices, Target};
use crate::sequential::Stripes;
use crate::store::{Origin, Place, Sectors};
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use crate::volume::{Bypass, Volume};
use smallvec::smallvec;

/// A read under way.
#[derive(Debug)]
pub(super) struct ReadState<P> {
    span: ByteSpan,
    pub(super) data: P,
    /// Where blocks go that the guest must not touch before they are judged, if `data` is its own
    /// memory; laid out like it.
    private: Option<P>,
    /// I/Os into the guest's own memory.
    pub(super) direct: u32,
    /// Missed blocks are cached.
    pub(super) keep: bool,
    /// The cache device fell silent: once nothing is under way, all of it comes from the backend.
    pub(super) again: bool,
}

impl<P: Payload> ReadState<P> {
    pub(super) fn new(span: ByteSpan, data: P) -> Self {
        Self { span, data, private: None, direct: 0, keep: false, again: false }
    }

    pub(super) const fn span(&self) -> ByteSpan {
        self.span
    }

    /// Memory of the engine's own for the request's blocks.
    fn private(&mut self) -> &P {
        if self.data.is_private() {
            return &self.data;
        }
        self.private.get_or_insert_with(|| P::alloc(self.span.blocks() as u32))
    }

    /// Hands blocks to the guest that were read into the engine's own memory.
    fn publish(&self, index: u32, count: u32) {
        if let Some(private) = &self.private {
            let (at, len) = (u64::from(index) * BLOCK_BYTES, u64::from(count) * BLOCK_BYTES);
            self.data.copy_from(at, private, at, len);
        }
    }
}

/// Consecutive blocks that one I/O can fetch.
#[derive(Clone, Copy)]
enum Run {
    Flash {
        index: u32,
        slot: u32,
        count: u32,
    },
    /// As before, but to the engine's own memory: what was read directly was not what it should be,
    /// but then the guest may have changed it.
    Again {
        index: u32,
        slot: u32,
        count: u32,
    },
    Missing {
        index: u32,
        count: u32,
    },
}

/// What was read from the cache device.
#[derive(Clone, Copy)]
pub(super) struct Flash {
    pub(super) slot: u32,
    pub(super) count: u32,
    /// To the guest's own memory.
    pub(super) direct: bool,
}

impl<P: Payload> Engine<P> {
    pub(super) fn start_read(&mut self, request: usize) {
        let active = &self.requests[request];
        let index = active.volume;
        let Kind::Read(ReadState { span, data, .. }) = &active.kind else { unreachable!("a read") };
        let (span, data) = (*span, data.clone());
        let (unready, stripes) = (self.unready(), Stripes::of(&self.superblock.geometry));
        let volume = self.volume(index);
        let bypass = volume.bypass(span, stripes, unready);
        volume.counters.reads += 1;
        volume.counters.blocks_read += span.blocks();
        let blind = [Bypass::PassThrough, Bypass::Loading, Bypass::NoDevice];
        let looks = bypass.is_none_or(|bypass| !blind.contains(&bypass)) && unready.is_none();
        debug_assert!((1..=DATA_BLOCKS_MAX).contains(&span.blocks()), "looked at on arrival");
        let (first, count) = (span.first_block(), span.blocks() as u32);
        // The request counts as one I/O of itself, so that it can't finish while it is starting.
        self.requests[request].outstanding = 1;
        let (mut run, mut hits, mut ram_hits, mut staged_hits) = (None, 0, 0, 0);
        for i in 0..count {
            let key = Key { volume: index, block: first + u64::from(i) };
            let slot = if looks { self.store.find(key) } else { None };
            let Some(slot) = slot else {
                let (asked, to) = (Sectors::of(span, key.block), u64::from(i) * BLOCK_BYTES);
                if looks && self.store.serve_partial(key, asked, (&data, to)) {
                    (hits, ram_hits) = (hits + 1, ram_hits + 1);
                    continue;
                }
                run = Some(self.extend_missing(request, run, i));
                continue;
            };
            hits += 1;
            self.store.touch(slot, key);
            match self.store.place(slot) {
                Place::Ram(buffer) => {
                    ram_hits += 1;
                    staged_hits += u64::from(!self.store.is_in_probation(slot));
                    let slab = self.store.buffers.data();
                    data.copy_from(u64::from(i) * BLOCK_BYTES, slab, buffer.at(), BLOCK_BYTES);
                }
                Place::Flash => run = Some(self.extend_flash(request, run, i, slot)),
            }
        }
        self.issue(request, run);
        assert!(ram_hits <= u64::from(hits) && hits <= count, "each block is a hit or a miss");
        let misses = u64::from(count - hits);
        let counters = &mut self.volume(index).counters;
        counters.read_hits += u64::from(hits);
        counters.read_hits_ram += ram_hits;
        counters.read_hits_staged += staged_hits;
        counters.misses += misses;
        counters.partial_hits += u64::from(hits > 0 && misses > 0);
        let Kind::Read(state) = &mut self.requests[request].kind else { unreachable!("a read") };
        state.keep = bypass.is_none();
        self.read_part_done(request);
    }

    fn extend_missing(&mut self, request: usize, run: Option<Run>, i: u32) -> Run {
        if let Some(Run::Missing { index, count }) = run
            && index + count == i
            && count < self.config.bounds.miss_blocks
        {
            return Run::Missing { index, count: count + 1 };
        }
        let cut = matches!(run, Some(Run::Missing { index, count }) if index + count == i);
        self.store.crossings.note_if(cut, Bound::MissBlocks);
        self.issue(request, run);
        Run::Missing { index: i, count: 1 }
    }

    fn extend_flash(&mut self, request: usize, run: Option<Run>, i: u32, at: u32) -> Run {
        if let Some(Run::Flash { index, slot, count }) = run
            && (index + count, slot + count) == (i, at)
            && self.store.log.segment_of(slot) == self.store.log.segment_of(at)
        {
            return Run::Flash { index, slot, count: count + 1 };
        }
        self.issue(request, run);
        Run::Flash { index: i, slot: at, count: 1 }
    }

    /// Starts the I/O for a run.
    fn issue(&mut self, request: usize, run: Option<Run>) {
        let Some(run) = run else { return };
        let active = &mut self.requests[request];
        let volume = active.volume;
        let Kind::Read(state) = &mut active.kind else { unreachable!("a read") };
        active.outstanding += 1;
        let slices = |data: &P, index: u32, count: u32| -> Slices<P> {
            let (at, len) = (u64::from(index) * BLOCK_BYTES, u64::from(count) * BLOCK_BYTES);
            smallvec![Slice { data: data.clone(), at, len }]
        };
        match run {
            Run::Flash { index, slot, count } | Run::Again { index, slot, count } => {
                assert!(count > 0, "a run has blocks");
                debug_assert!(u64::from(index + count) <= state.span.blocks(), "of the request");
                let last = self.store.log.segment_of(slot + count - 1);
                debug_assert_eq!(self.store.log.segment_of(slot), last, "of one pinned segment");
                let direct = matches!(run, Run::Flash { .. }) && !state.data.is_private();
                state.direct += u32::from(direct);
                let data = if direct { &state.data } else { state.private() };
                let data = slices(data, index, count);
                self.store.pin(slot);
                let op = IoOp::Read { offset: self.store.log.offset_of(slot), data };
                let pending = Pending::CacheRead { request, index, slot, count, direct };
                self.outbox.io(Target::Cache, op, pending);
            }
            Run::Missing { index, count } => {
                assert!(count > 0, "a run has blocks");
                assert!(u64::from(index + count) <= state.span.blocks(), "of the request");
                let offset = (state.span.first_block() + u64::from(index)) * BLOCK_BYTES;
                let op = IoOp::Read { offset, data: slices(state.private(), index, count) };
                let pending = Pending::BackendRead { request, index, count };
                self.outbox.io(Target::Backend(VolumeId(volume)), op, pending);
                let counters = &mut self.volume(volume).counters;
                counters.backend_reads += 1;
                counters.backend_read_bytes += u64::from(count) * BLOCK_BYTES;
            }
        }
    }

    /// Blocks have come from flash: each is verified; one that is wrong, or could not be read, is a
    /// miss after all, unless the guest may have had its hands on it.
    pub(super) fn cache_read_done(
        &mut self,
        request: usize,
        index: u32,
        flash: Flash,
        result: Result<(), IoError>,
    ) {
        let Flash { slot, count, direct } = flash;
        let active = &mut self.requests[request];
        let (volume, answered) = (active.volume, active.answered);
        let Kind::Read(state) = &mut active.kind else { unreachable!("a read") };
        assert!(!direct || state.direct > 0, "I/O to the guest's memory counts");
        state.direct -= u32::from(direct);
        let first = state.span.first_block();
        let data = if direct { state.data.clone() } else { state.private().clone() };
        if result.is_err() && !direct {
            self.store.count_device_error();
        }
        let (mut run, dead) = (None, self.store.dead);
        let count = if state.again { 0 } else { count };
        for (i, at) in (index..index + count).zip(slot..) {
            let key = Key { volume, block: first + u64::from(i) };
            if result.is_ok() {
                let sum = data.checksum(u64::from(i) * BLOCK_BYTES, self.store.checksum_seed(key));
                // The slot may have been given up since; it is pinned, so its checksum still stands.
                let careless = self.config.mutants.is(Mutant::ChecksumNotVerified);
                if sum == self.store.descriptors.checksum(at) || careless {
                    if !direct && !answered {
                        self.publish(request, i, 1);
                    }
                    continue;
                }
            }
            // The guest may have changed its memory, or taken it away: that says nothing of the SSD.
            if direct && !dead {
                self.issue(request, Some(Run::Again { index: i, slot: at, count: 1 }));
                continue;
            }
            if result.is_ok() && !direct {
                self.store.count_checksum_failure();
            }
            if self.store.find(key) == Some(at) {
                self.store.forget_durably(at, key);
            }
            let counters = &mut self.volume(volume).counters;
            counters.read_hits -= 1;
            counters.misses += 1;
            run = Some(self.extend_missing(request, run, i));
        }
        self.issue(request, run);
        self.store.unpin(slot);
        self.answer_late(request);
        self.read_part_done(request);
    }

    /// Hands blocks that were read into the engine's own memory to the guest.
    fn publish(&self, request: usize, index: u32, count: u32) {
        let Kind::Read(state) = &self.requests[request].kind else { unreachable!("a read") };
        state.publish(index, count);
    }

    /// Blocks have come from the backend.
    pub(super) fn backend_read_done(
        &mut self,
        request: usize,
        index: u32,
        count: u32,
        result: Result<(), IoError>,
    ) {
        self.note_backend_result(request, result);
        let active = &mut self.requests[request];
        let (volume, answered) = (active.volume, active.answered);
        let Kind::Read(state) = &mut active.kind else { unreachable!("a read") };
        let (first, keep, data) = (state.span.first_block(), state.keep, state.private().clone());
        if result.is_ok() && !answered {
            state.publish(index, count);
        }
        let known = self.volumes[usize::from(volume)].as_ref();
        if result.is_ok() && keep && !known.is_some_and(Volume::passes_through) {
            let mut refused = 0;
            for i in index..index + count {
                let key = Key { volume, block: first + u64::from(i) };
                let from = (&data, u64::from(i) * BLOCK_BYTES);
                let now = self.now;
                let filled = self.store.fill(key, Origin::Read, from, now, &mut self.outbox);
                refused += u64::from(!filled);
            }
            self.volume(volume).counters.bypassed.no_space += refused;
        }
        self.read_part_done(request);
    }

    fn read_part_done(&mut self, request: usize) {
        let active = &mut self.requests[request];
        assert!(active.outstanding > 0, "what ends was waited for");
        active.outstanding -= 1;
        if active.outstanding == 0 {
            self.read_again_if_due(request);
        }
    }

    /// A read of the cache device is not waited for any more.
    pub(super) fn read_given_up(&mut self, request: usize, count: u32) {
        assert!(self.store.dead, "only a device that is lost is not waited for");
        let active = &mut self.requests[request];
        let volume = active.volume;
        let Kind::Read(state) = &mut active.kind else { unreachable!("a read") };
        // What else it gets goes to the same memory.
        (state.again, state.keep) = (true, false);
        let counters = &mut self.volume(volume).counters;
        counters.read_hits -= u64::from(count);
        counters.misses += u64::from(count);
        self.read_part_done(request);
    }

    /// Nothing is waited for any more: the end of a read, or its second beginning.
    pub(super) fn read_again_if_due(&mut self, request: usize) {
        let active = &self.requests[request];
        let Kind::Read(state) = &active.kind else { unreachable!("a read") };
        if active.outstanding > 0 {
            return;
        }
        match (state.again, state.direct > 0) {
            (true, true) => self.park(request),
            (true, false) if active.failure.is_none() => self.read_again(request),
            _ => self.finish(request),
        }
    }

    /// Reads all of it from the backend, into memory that no I/O knows of.
    pub(super) fn read_again(&mut self, request: usize) {
        let active = &mut self.requests[request];
        let Kind::Read(state) = &mut active.kind else { unreachable!("a read") };
        assert!(state.again && state.direct == 0, "no I/O knows of the memory any more");
        assert_eq!(active.outstanding, 0, "nothing of it is under way");
        let count = state.span.blocks() as u32;
        state.again = false;
        state.private = None;
        if state.data.is_private() {
            state.data = P::alloc(count);
        }
        active.outstanding = 1;
        let mut run = None;
        for i in 0..count {
            run = Some(self.extend_missing(request, run, i));
        }
        self.issue(request, run);
        self.read_part_done(request);
    }
}
