//! Reads: each block from RAM, flash or the backend; the reply when all of them are there.
//!
//! Called by the engine's router. The request holds its blocks shared, so no write can come between
//! a lookup and the fill that follows a miss.

use super::Engine;
use super::request::{Kind, ReadState};
use crate::descriptors::Key;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::plan::Mode;
use crate::seam::{IoError, IoOp, Payload, Slice, Slices, Target};
use crate::store::{Origin, Place};
use crate::units::{BLOCK_BYTES, VolumeId};
use crate::volume::Bypass;
use smallvec::smallvec;

/// Blocks fetched from the backend by one I/O (1 MiB): what comes of it is the work of one event.
const MISSING_BLOCKS_MAX: u32 = 256;

/// Consecutive blocks that one I/O can fetch.
#[derive(Clone, Copy)]
enum Run {
    Flash { index: u32, slot: u32, count: u32 },
    Missing { index: u32, count: u32 },
}

impl<P: Payload> Engine<P> {
    pub(super) fn start_read(&mut self, request: usize) {
        let active = &self.requests[request];
        let index = active.volume;
        let Kind::Read(ReadState { span, data, .. }) = &active.kind else { unreachable!("a read") };
        let (span, data) = (*span, data.clone());
        let unready = self.unready();
        let volume = self.volume(index);
        let bypass = volume.bypass(span, unready);
        volume.counters.reads += 1;
        volume.counters.blocks_read += span.blocks();
        self.sample(index, span, false);
        let blind = [Bypass::PassThrough, Bypass::Loading, Bypass::NoDevice];
        let looks = bypass.is_none_or(|bypass| !blind.contains(&bypass)) && unready.is_none();
        let (first, count) = (span.first_block(), span.blocks() as u32);
        // The request counts as one I/O of itself, so that it can't finish while it is starting.
        self.requests[request].outstanding = 1;
        let (mut run, mut hits, mut ram_hits) = (None, 0, 0);
        for i in 0..count {
            let key = Key { volume: index, block: first + u64::from(i) };
            let slot = if looks { self.store.find(key) } else { None };
            let Some(slot) = slot else {
                run = Some(self.extend_missing(request, run, i));
                continue;
            };
            hits += 1;
            self.store.touch(slot, key);
            match self.store.place(slot) {
                Place::Ram(buffer) => {
                    ram_hits += 1;
                    let slab = self.store.buffers.data();
                    data.copy_from(u64::from(i) * BLOCK_BYTES, slab, buffer.at(), BLOCK_BYTES);
                }
                Place::Flash => run = Some(self.extend_flash(request, run, i, slot)),
            }
        }
        self.issue(request, run);
        let misses = u64::from(count - hits);
        let counters = &mut self.volume(index).counters;
        counters.read_hits += u64::from(hits);
        counters.read_hits_ram += ram_hits;
        counters.misses += misses;
        counters.partial_hits += u64::from(hits > 0 && misses > 0);
        let Kind::Read(state) = &mut self.requests[request].kind else { unreachable!("a read") };
        state.keep = bypass.is_none();
        self.read_part_done(request);
    }

    fn extend_missing(&mut self, request: usize, run: Option<Run>, i: u32) -> Run {
        if let Some(Run::Missing { index, count }) = run
            && index + count == i
            && count < MISSING_BLOCKS_MAX
        {
            return Run::Missing { index, count: count + 1 };
        }
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
        let Kind::Read(state) = &active.kind else { unreachable!("a read") };
        active.outstanding += 1;
        let slices = |index: u32, count: u32| -> Slices<P> {
            let (at, len) = (u64::from(index) * BLOCK_BYTES, u64::from(count) * BLOCK_BYTES);
            smallvec![Slice { data: state.data.clone(), at, len }]
        };
        match run {
            Run::Flash { index, slot, count } => {
                self.store.pin(slot);
                let offset = self.store.log.offset_of(slot);
                let op = IoOp::Read { offset, data: slices(index, count) };
                let pending = Pending::CacheRead { request, index, slot, count };
                self.outbox.io(Target::Cache, op, pending);
            }
            Run::Missing { index, count } => {
                let offset = (state.span.first_block() + u64::from(index)) * BLOCK_BYTES;
                let op = IoOp::Read { offset, data: slices(index, count) };
                let pending = Pending::BackendRead { request, index, count };
                self.outbox.io(Target::Backend(VolumeId(volume)), op, pending);
                let counters = &mut self.volume(volume).counters;
                counters.backend_reads += 1;
                counters.backend_read_bytes += u64::from(count) * BLOCK_BYTES;
            }
        }
    }

    /// Blocks have come from flash: each is verified; one that is wrong, or could not be read, is a
    /// miss after all.
    pub(super) fn cache_read_done(
        &mut self,
        request: usize,
        index: u32,
        slot: u32,
        count: u32,
        result: Result<(), IoError>,
    ) {
        let active = &self.requests[request];
        let volume = active.volume;
        let Kind::Read(ReadState { span, data, .. }) = &active.kind else { unreachable!("a read") };
        let (first, data) = (span.first_block(), data.clone());
        if result.is_err() {
            self.store.count_device_error();
        }
        let mut run = None;
        for (i, at) in (index..index + count).zip(slot..) {
            let key = Key { volume, block: first + u64::from(i) };
            if result.is_ok() {
                let sum = data.checksum(u64::from(i) * BLOCK_BYTES, self.store.checksum_seed(key));
                // The slot may have been given up since; it is pinned, so its checksum still stands.
                let careless = self.config.mutants.is(Mutant::ChecksumNotVerified);
                if sum == self.store.descriptors.checksum(at) || careless {
                    continue;
                }
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
        self.read_part_done(request);
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
        let active = &self.requests[request];
        let volume = active.volume;
        let Kind::Read(ReadState { span, data, keep }) = &active.kind else {
            unreachable!("a read")
        };
        let (first, data) = (span.first_block(), data.clone());
        let mode = self.volumes[usize::from(volume)].as_ref().map(|v| v.spec.mode);
        if result.is_ok() && *keep && mode != Some(Mode::PassThrough) {
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
        self.requests[request].outstanding -= 1;
        self.finish_if_done(request);
    }
}
