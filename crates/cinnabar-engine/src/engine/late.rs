//! What takes too long: I/O on a backend, requests, I/O on a cache device that is silent.
//!
//! The rules are in [`seam`](crate::seam), "Time-outs". No guest waits for what may never end, and
//! nothing that may still land is forgotten: a write to a backend keeps its blocks, I/O on the
//! device its buffers and its token.

use super::Engine;
use super::lifecycle::Lifecycle;
use super::request::{Active, Kind};
use crate::health::PassThroughReason;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{Failure, IoError, IoId, Payload, RequestId};
use crate::volume::VolumeState;
use smallvec::SmallVec;

impl<P: Payload> Engine<P> {
    /// An I/O takes longer than the driver's bound.
    pub(super) fn overdue(&mut self, id: IoId) {
        let place = usize::try_from(id.0).ok();
        let Some(pending) = place.and_then(|id| self.outbox.pending.get(id)) else { return };
        match *pending {
            Pending::BackendRead { request, .. }
            | Pending::Backend { request, .. }
            | Pending::Edge { request, slot: None, .. } => {
                let volume = self.requests[request].volume;
                self.volume(volume).counters.backend_overdue += 1;
                self.request_late(request);
            }
            // No guest waits for these, and a volume leaves when nothing of it is under way.
            Pending::Prove { .. }
            | Pending::BumpGeneration { .. }
            | Pending::Detach { .. }
            | Pending::GivenUp { .. } => {}
            _ if self.config.mutants.is(Mutant::SilentDeviceAwaited) => {}
            _ => self.give_up(id),
        }
    }

    /// Requests take longer than their volumes' bounds. A shard has several of a name if it has
    /// several parts of one request.
    pub(super) fn late(&mut self, mut ids: Vec<RequestId>) {
        ids.sort_unstable();
        let due = |active: &Active<P>| !active.answered && ids.binary_search(&active.id).is_ok();
        let all = self.requests.iter().filter(|(_, active)| due(active));
        let all: SmallVec<[(usize, RequestId); 4]> =
            all.map(|(request, active)| (request, active.id)).collect();
        for (request, id) in all {
            // The end of one may let another go on, and end.
            let there = self.requests.get(request);
            if there.is_some_and(|active| active.id == id && !active.answered) {
                self.request_late(request);
                self.run_ready();
            }
        }
    }

    fn request_late(&mut self, request: usize) {
        let active = &mut self.requests[request];
        let (volume, parked) = (active.volume, active.parked);
        if active.late {
            return;
        }
        active.failure.get_or_insert(IoError::TimedOut);
        if !active.granted && !self.config.mutants.is(Mutant::LateWaiterKept) {
            // It never ran, so nothing of it can land.
            return self.finish(request);
        }
        active.late = true;
        if matches!(&active.kind, Kind::Zero(state) if state.invalidates()) {
            assert!(self.invalidations > 0, "an invalidation that is not late counts");
            self.invalidations -= 1;
        }
        // What a late write has done is unknown: it is not kept.
        if let Kind::Read(state) = &mut active.kind {
            state.keep = false;
        }
        if !parked {
            self.volume(volume).late += 1;
            self.late += 1;
        }
        self.answer_late(request);
    }

    /// Tells the guest of a late request, once nothing is on its way to the guest's own memory.
    pub(super) fn answer_late(&mut self, request: usize) {
        let active = &mut self.requests[request];
        let waits = matches!(&active.kind, Kind::Read(state) if state.direct > 0);
        if active.late && !active.answered && active.granted && !waits {
            active.answered = true;
            let guest = active.id;
            self.outbox.reply(guest, Err(Failure::Io(IoError::TimedOut)));
        }
    }

    /// An I/O on the cache device is not waited for any more, nor is the device.
    fn give_up(&mut self, id: IoId) {
        self.store.count_device_error();
        let request = match self.outbox.pending[id.0 as usize] {
            Pending::CacheRead { request, direct: true, .. } => Some(request),
            _ => None,
        };
        let pending = self.outbox.give_up(id, request);
        if let Lifecycle::Opening(command, _) = self.lifecycle {
            self.opening_failed(command, IoError::TimedOut);
        } else {
            self.lose_device(PassThroughReason::Failed(IoError::TimedOut));
        }
        match pending {
            Pending::CacheRead { request, slot, count, .. } => {
                self.store.unpin(slot);
                self.read_given_up(request, count);
            }
            Pending::Edge { request, edge, slot } => {
                self.edge_done(request, edge, slot, Err(IoError::TimedOut));
            }
            // Buffers and slots of the log are never used again: the store is dead. The rest was
            // for the device alone.
            _ => {}
        }
    }

    /// A read lets go of its blocks: all that it waits for is the end of I/O into the guest's own
    /// memory, before which nothing else may be written there.
    pub(super) fn park(&mut self, request: usize) {
        let active = &mut self.requests[request];
        assert!(active.outstanding == 0 && !active.parked, "all that it waits for was given up");
        active.parked = true;
        let (index, locked) = (active.volume, active.locked);
        let late = std::mem::take(&mut active.late);
        let state = self.volumes[usize::from(index)].as_ref().map(|volume| volume.state);
        self.requests[request].orphan = state != Some(VolumeState::Attached);
        if late {
            self.not_late(index);
        }
        self.leave(request, locked, index);
    }

    /// I/O that was given up has ended after all.
    pub(super) fn given_up_done(&mut self, request: Option<usize>) {
        let Some(request) = request else { return };
        let active = &mut self.requests[request];
        let Kind::Read(state) = &mut active.kind else { unreachable!("only reads are direct") };
        assert!(state.direct > 0, "I/O to the guest's memory counts");
        state.direct -= 1;
        if state.direct > 0 {
            return;
        }
        if !active.parked {
            self.answer_late(request);
            return self.read_again_if_due(request);
        }
        assert_eq!(active.outstanding, 0, "what is parked waits for nothing else");
        active.parked = false;
        if active.orphan || active.failure.is_some() {
            let active = self.requests.remove(request);
            let failure = active.failure.map_or(Failure::NoVolume, Failure::Io);
            return self.outbox.reply(active.id, Err(failure));
        }
        let Kind::Read(state) = &active.kind else { unreachable!("just seen") };
        let (span, index) = (state.span(), active.volume);
        let volume = self.volumes[usize::from(index)].as_mut().expect("else it is an orphan");
        volume.requests += 1;
        let (first, end) = (span.first_block(), span.end_block());
        let granted = !active.locked || volume.locks.enter(request, first, end, false);
        self.requests[request].granted = granted;
        if granted {
            self.start(request);
        }
    }

    /// A volume takes no more requests: those that are parked will not be done again.
    pub(super) fn orphan(&mut self, volume: u16) {
        for (_, active) in &mut self.requests {
            active.orphan |= active.parked && active.volume == volume;
        }
    }

    /// A late request is not under way any more.
    pub(super) fn not_late(&mut self, volume: u16) {
        assert!(self.late > 0, "a request that is late counts");
        self.late -= 1;
        let volume = self.volume(volume);
        assert!(volume.late > 0, "for its volume, too");
        volume.late -= 1;
    }
}
