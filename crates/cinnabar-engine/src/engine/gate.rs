//! The gate before the backend: a write is sent only when the copies that it
//! invalidates are durably recorded as invalid, or lie in a region durably recorded as active.
//!
//! With a cache device that is an invalidation record in its journal; without one, a new generation
//! of the volume, recorded on the host.

use super::Engine;
use super::request::Kind;
use crate::journal::Ticket;
use crate::metadata::journal::Record;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{IoError, IoOp, Payload, Target};
use crate::units::VolumeId;
use crate::volume::{Bypass, VolumeState};

impl<P: Payload> Engine<P> {
    /// What keeps every request from the cache just now.
    pub(super) fn unready(&self) -> Option<Bypass> {
        if self.store.dead {
            Some(Bypass::NoDevice)
        } else {
            self.loader.is_some().then_some(Bypass::Loading)
        }
    }

    /// Whether every write appends an invalidation record, also one that hits no block on flash: the
    /// index may not list every copy on the device.
    pub(super) fn records_all(&self) -> bool {
        let loading =
            self.loader.is_some() && !self.config.mutants.is(Mutant::NoRecordWhileLoading);
        loading || self.doubtful
    }

    /// Has blocks `first..end`, of which one or more have a copy on flash, invalid; `None` if
    /// none has a copy there. Gives whether the request may go on at once; if not, it has one I/O
    /// more to wait for and comes back through [`passed`](Self::passed).
    pub(super) fn pass_gate(&mut self, request: usize, blocks: Option<(u64, u64)>) -> bool {
        let active = &self.requests[request];
        let volume = active.volume;
        assert!(
            active.granted && active.locked,
            "blocks are invalidated under an exclusive range lock"
        );
        if self.config.mutants.is(Mutant::GenerationNotRaised) && self.store.dead {
            return true;
        }
        if self.store.dead {
            return self.pass_generation_gate(request, volume);
        }
        let saves = self.config.mutants.is(Mutant::ThrottleStopsRecords) && !self.store.admits;
        if let Some((first, end)) = blocks
            && !self.config.mutants.is(Mutant::NoRecord)
            && !saves
        {
            // Where the index may not list every copy, a record speaks of all of them.
            let said = if self.records_all() {
                self.store.record_invalidation(volume, first, end);
                false
            } else {
                self.store.overwrite(volume, first..end, self.now)
            };
            let counted = u64::from(self.config.crash_safe);
            let counters = &mut self.volume(volume).counters;
            if said {
                counters.region_writes += counted;
            } else {
                counters.invalidation_waits += counted;
            }
            if said && self.store.barrier().is_none() {
                return true;
            }
        } else if self.store.barrier().is_none() {
            return true;
        }
        let ticket = self.store.journal.newest();
        let hasty = self.config.mutants.is(Mutant::RecordAfterWrite);
        if self.store.journal.is_durable(ticket) || hasty {
            return true;
        }
        let last = self.at_gate.back().map_or(Ticket::NONE, |(last, _)| *last);
        assert!(last <= ticket, "who comes later waits for as much at least");
        self.requests[request].outstanding += 1;
        self.at_gate.push_back((ticket, request));
        false
    }

    fn pass_generation_gate(&mut self, request: usize, index: u16) -> bool {
        let volume = self.volume(index);
        if volume.generation_bumped {
            return true;
        }
        volume.awaiting_generation.push(request);
        self.requests[request].outstanding += 1;
        self.bump_generation(index);
        false
    }

    /// Asks for a new generation of a volume, unless that is under way: one that came late would
    /// be taken for an answer to the next loss of a device.
    pub(super) fn bump_generation(&mut self, index: u16) {
        if std::mem::replace(&mut self.volume(index).bumping_generation, true) {
            return;
        }
        let target = Target::Backend(VolumeId(index));
        let held = self.volume(index).spec.generation;
        self.outbox.io(
            target,
            IoOp::BumpGeneration { held },
            Pending::BumpGeneration { volume: index },
        );
    }

    /// A volume's generation has been changed, or could not be.
    pub(super) fn generation_bump_done(
        &mut self,
        index: u16,
        result: Result<(), IoError>,
        generation: Option<u64>,
    ) {
        let volume = self.volume(index);
        assert!(volume.bumping_generation, "a generation that comes was asked for");
        volume.bumping_generation = false;
        let waiting = std::mem::take(&mut volume.awaiting_generation);
        if result.is_ok() {
            volume.generation_bumped = true;
            volume.spec.generation = generation.unwrap_or(volume.spec.generation);
        }
        for request in waiting {
            if let Err(error) = result {
                self.requests[request].failure.get_or_insert(error);
            }
            self.passed(request);
        }
        self.generation_known(result);
        if let VolumeState::Sealing(..) = self.volume(index).state {
            self.end_sealing(index, result);
        } else {
            self.detach_if_quiet(index);
        }
    }

    /// A write of the journal has ended.
    pub(super) fn journal_done(&mut self, result: Result<(), IoError>) {
        if let Err(error) = self.store.journal.written(result) {
            self.store.count_device_error();
            return self.lose_device(crate::health::PassThroughReason::Failed(error));
        }
        while let Some(&(ticket, request)) = self.at_gate.front()
            && self.store.journal.is_durable(ticket)
        {
            self.at_gate.pop_front();
            self.passed(request);
        }
        self.answer_recorded();
    }

    /// The device is lost: those who wait for it take the other way.
    pub(super) fn reroute_gate(&mut self) {
        assert!(self.store.dead, "while the device is there, its journal is waited for");
        for (_, request) in std::mem::take(&mut self.at_gate) {
            let volume = self.requests[request].volume;
            if self.pass_generation_gate(request, volume) {
                self.passed(request);
            } else {
                // It waits for one thing, as before.
                self.requests[request].outstanding -= 1;
            }
        }
    }

    /// A request may go on.
    fn passed(&mut self, request: usize) {
        let active = &mut self.requests[request];
        assert!(active.outstanding > 0, "who waits at the gate counts that");
        active.outstanding -= 1;
        match &active.kind {
            Kind::Write(_) => self.write_passed(request),
            Kind::Zero(_) => self.zero_passed(request),
            Kind::Read(_) | Kind::Flush => unreachable!("only what writes waits"),
        }
    }

    /// Lets the journal write what it has, until the last checkpoint of a clean stop covers it all.
    pub(super) fn pump_journal(&mut self) {
        if self.store.dead || !self.lifecycle.journals() {
            return;
        }
        if self.store.wants_rebase() {
            let state = self.volume_state();
            self.store.journal.begin_rebase(state);
        }
        if let Some((offset, pages)) = self.store.journal.next_write() {
            let data = smallvec::SmallVec::new();
            let op = IoOp::WriteMeta { offset, pages, data, fua: true };
            self.outbox.io(Target::Cache, op, Pending::Journal);
        }
    }

    /// What the journal says of volumes, as of now.
    fn volume_state(&mut self) -> Vec<Record> {
        let (stamp, session) = (self.store.journal.next_stamp(), self.store.session);
        let of = |index: u16| {
            let volume = self.volume_record(index, stamp);
            let (incarnation, sequence) = (volume.incarnation, volume.flushed);
            let flushed = Record::Flushed { incarnation, session, sequence };
            [Record::Volume(Box::new(volume)), flushed]
        };
        self.volumes_known().flat_map(of).collect()
    }

    /// The newest record's ticket.
    pub(super) fn newest_ticket(&self) -> Ticket {
        self.store.journal.newest()
    }
}
