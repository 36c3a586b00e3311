//! Guests' requests to a volume that this host does not own: reads go to the back end, after a look whether
//! a write log somewhere claims it; what changes something, or is to make it durable, waits, and has the
//! volume taken.

use super::work::{MoveDone, MoveStep};
use crate::dataplane::background::Task;
use crate::dataplane::clock::after;
use crate::dataplane::front::{Caller, Front};
use crate::dataplane::plane::DataPlane;
use crate::dataplane::requests::{Waiting, needs_owner};
use crate::dataplane::writes::Claimed;
use cinnabar_backend::Memory;
use cinnabar_driver::ownership::{Event, PeerAnswer, Role};
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Failure, IoError, Op};
use cinnabar_frontend::{Body, Command, Incoming};
use std::time::Duration;

/// Until it is looked for a claim again on storage that was silent.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// How a request to a standby goes on.
enum Way {
    Wait,
    Read,
    Done,
}

impl DataPlane {
    /// A request of a guest to a volume that moves and is not owned here.
    pub(in super::super) fn admit_moving(
        &mut self,
        now: Instant,
        arrived: Instant,
        caller: Caller,
        request: Incoming<Memory>,
    ) {
        let key = request.export.0 as usize;
        let volume = &self.volumes[key];
        let moves = volume.moves.as_ref().expect("it moves");
        let stands_by = moves.own.reads_through() && moves.stands_by();
        let stands_by = stands_by && volume.life.serving().is_some();
        // A flush, too: what its guest was acknowledged by the other host may not be durable yet.
        let wants = needs_owner(&request.command);
        let way = match &request.command {
            _ if !stands_by || wants => Way::Wait,
            Command::Engine(Op::Read { .. }) | Command::Prefetch { .. } => Way::Read,
            Command::BlockStatus { .. } => Way::Done,
            Command::Engine(_) => Way::Wait,
        };
        match way {
            Way::Done => self.answer(caller, key, Ok(Body::Done)),
            Way::Read => {
                let answer_by = volume.answer_by(arrived);
                let waiting = Waiting::new(caller, request, arrived, answer_by);
                self.moving(key).reads.push(waiting);
                self.note_answer_by(answer_by);
                self.look_at_claim(key);
            }
            Way::Wait => {
                self.keep_waiting(arrived, caller, request);
                let moves = self.moving(key);
                if wants && moves.own.role() == Role::Standby {
                    moves.held_since.get_or_insert(now);
                    self.move_on(now, key, Event::Want);
                }
            }
        }
    }

    /// Has a background thread look whether the volume is claimed. A claim that is made afterwards comes
    /// before the first write that the back end lacks is acknowledged, and so behind the arrival of the
    /// reads that wait for this look.
    fn look_at_claim(&mut self, key: usize) {
        let moves = self.moving(key);
        if moves.looks || moves.reads.is_empty() || moves.looks_again_at.is_some() {
            return;
        }
        moves.looks = true;
        moves.checking = std::mem::take(&mut moves.reads);
        let config = Box::new(self.volumes[key].config.clone());
        let step = MoveStep::Look { claims: self.known_claims(), config };
        let task = Task::Move { subject: self.subject(key), step: Box::new(step) };
        self.background.start(task);
    }

    /// After a pause, with the reads that still wait by then.
    fn look_again_at_claim(&mut self, now: Instant, key: usize) {
        let at = after(now, LOOK_PAUSE);
        self.moving(key).looks_again_at = Some(at);
        self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
    }

    /// The pause is over.
    pub(super) fn claim_due(&mut self, now: Instant, key: usize) {
        match self.moving(key).looks_again_at {
            Some(at) if at <= now => {
                self.moving(key).looks_again_at = None;
                self.look_at_claim(key);
            }
            Some(at) => self.look_at = Some(self.look_at.map_or(at, |other| other.min(at))),
            None => {}
        }
    }

    /// It has looked.
    pub(super) fn looked_at_claim(
        &mut self,
        now: Instant,
        key: usize,
        result: &Result<(), Claimed>,
    ) {
        let moves = self.moving(key);
        moves.looks = false;
        let reads = std::mem::take(&mut moves.checking);
        match result {
            Ok(()) => {}
            Err(Claimed::Silence(reason)) => {
                let volume = &self.volumes[key].config.name;
                tracing::warn!(volume, reason, "a standby's reads wait for the storage");
                let moves = self.moving(key);
                moves.reason.clone_from(reason);
                drop(moves.reads.splice(..0, reads));
                return self.look_again_at_claim(now, key);
            }
            Err(Claimed::Yes(reason)) => {
                let volume = &self.volumes[key].config.name;
                tracing::error!(
                    volume,
                    reason,
                    "a standby's reads fail: the back end may lack writes"
                );
                self.moving(key).reason.clone_from(reason);
            }
        }
        for Waiting { caller, request, arrived, .. } in reads {
            let volume = &self.volumes[key];
            let moves = volume.moves.as_ref().expect("it moves");
            let stands_by = moves.own.role() == Role::Standby && moves.stands_by();
            let stands_by = stands_by && volume.life.serving().is_some();
            match result {
                Err(_) => self.answer(caller, key, Err(Failure::Io(IoError::Io))),
                Ok(()) if stands_by => self.admit_here(now, arrived, caller, request),
                Ok(()) => self.admit_one(now, arrived, caller, request),
            }
        }
        self.look_at_claim(key);
    }

    /// Answers reads that wait for a look at storage that is silent, when their time is over. Gives when the
    /// next one's is.
    pub(in super::super) fn give_up_reads(&mut self, now: Instant) -> Option<Instant> {
        let mut late = Vec::new();
        let mut next = None;
        for (key, volume) in &mut self.volumes {
            let Some(moves) = &mut volume.moves else { continue };
            for reads in [&mut moves.reads, &mut moves.checking] {
                let is_late = |read: &mut Waiting| read.answer_by.is_some_and(|at| at <= now);
                late.extend(reads.extract_if(.., is_late).map(|read| (key, read.caller)));
                next = next.into_iter().chain(reads.iter().filter_map(|read| read.answer_by)).min();
            }
        }
        for (key, caller) in late {
            self.answer(caller, key, Err(Failure::Io(IoError::TimedOut)));
        }
        next
    }

    /// Forgets requests that wait and whose client has gone. By now its guest may run on the other host:
    /// what the client wrote here last must not overwrite what it writes there.
    pub(super) fn drop_left(&mut self, key: usize) {
        let left = |front: &Front, waiting: &Waiting| {
            let Caller { thread, side, ticket } = waiting.caller;
            // Volumes that move are served by the first thread.
            waiting.is_of(key) && thread == 0 && !front.is_waited_for(side, ticket)
        };
        let Self { waiting, front, .. } = self;
        let gone: Vec<Waiting> = waiting.extract_if(.., |one| left(front, one)).collect();
        for one in gone {
            self.answer(one.caller, key, Err(Failure::NoVolume));
        }
    }

    /// Answers reads that wait for a look, as the volume goes.
    pub(super) fn drop_reads(&mut self, key: usize) {
        let moves = self.moving(key);
        let reads = std::mem::take(&mut moves.reads);
        let checking = std::mem::take(&mut moves.checking);
        for read in reads.into_iter().chain(checking) {
            self.answer(read.caller, key, Err(Failure::NoVolume));
        }
    }

    /// A background thread has done its part.
    pub(in super::super) fn move_done(
        &mut self,
        now: Instant,
        subject: crate::dataplane::writes::Subject,
        what: MoveDone,
    ) {
        let Some(key) = self.key_of(subject) else { return };
        if let MoveDone::Recorded(result, kept, true) = what {
            return self.move_changed(key, result, &kept);
        }
        if self.volumes[key].moves.is_none() {
            return;
        }
        if let MoveDone::Looked(result) = what {
            return self.looked_at_claim(now, key, &result);
        }
        if let MoveDone::Identified(result) = what {
            return self.identified(now, key, result);
        }
        if self.is_over_to_move(key) {
            return;
        }
        match what {
            MoveDone::Asked(attempt, answer, reason) => {
                let moves = self.moving(key);
                moves.reason = reason;
                moves.due.epoch = match answer {
                    PeerAnswer::Free { epoch, .. } => Some(epoch),
                    PeerAnswer::Refused(_) | PeerAnswer::Silent => None,
                };
                self.move_on(now, key, Event::Answered(attempt, answer));
            }
            MoveDone::Locked(result) => self.locked(now, key, result),
            MoveDone::StandsBy(result) => self.opened_standby(now, key, result),
            MoveDone::Recorded(result, ..) => {
                if let Err(reason) = &result {
                    self.moving(key).reason.clone_from(reason);
                }
                self.move_on(now, key, Event::Recorded(result.is_ok()));
            }
            MoveDone::Prepared(result) => self.prepared(now, key, result),
            MoveDone::Looked(_) | MoveDone::Identified(_) => unreachable!("taken above"),
        }
    }
}
