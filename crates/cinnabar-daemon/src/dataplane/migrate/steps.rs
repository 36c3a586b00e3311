//! The steps of giving and taking, and what comes of them.

use super::record::Kept;
use super::warm::Left;
use super::work::{MoveStep, Where};
use super::{Attached, Moves, Swap, standby_name};
use crate::dataplane::background::Task;
use crate::dataplane::clock::after;
use crate::dataplane::control::PendingCommand;
use crate::dataplane::disks::OpenedVolume;
use crate::dataplane::plane::DataPlane;
use crate::dataplane::requests::Waiting;
use crate::dataplane::volume::VolumeIo;
use cinnabar_backend::generations::DeviceId;
use cinnabar_backend::rbd::LockState;
use cinnabar_backend::{Disk, entropy};
use cinnabar_config::messages::{CommandError, CommandErrorKind, Given};
use cinnabar_driver::ownership::{Action, Event, Reply, Role, Trust};
use cinnabar_driver::{Phase, VolumeLife};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::ProofToken;
use cinnabar_engine::{Command, Failure};
use std::sync::Arc;
use std::time::Duration;

/// Until the second attempt; each pause is twice the last one.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause: a guest waits no longer than this for a host that has come back.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Until it is looked again whether something still holds a back end.
const HOLD_LOOK: Duration = Duration::from_millis(2);

impl DataPlane {
    pub(super) fn moving(&mut self, key: usize) -> &mut Moves {
        self.volumes[key].moves.as_mut().expect("it moves")
    }

    /// Tells the rules what happened, and does what they say.
    pub(super) fn move_on(&mut self, now: Instant, key: usize, event: Event) {
        let actions = self.moving(key).own.apply(event);
        for action in actions {
            tracing::debug!(volume = self.volumes[key].config.name, ?event, ?action, "hand-over");
            self.move_step(now, key, action);
        }
    }

    fn move_step(&mut self, now: Instant, key: usize, action: Action) {
        match action {
            // Requests go by the role.
            Action::Hold => {}
            Action::Drain => {
                self.warm_ends(key, "the volume goes on to the other host");
                self.moving(key).swap = Swap::Draining;
                self.let_go(key);
            }
            Action::Release => self.release(now, key),
            Action::Answer(reply) => self.answer_peer(key, reply),
            Action::StandBy => {
                let moves = self.moving(key);
                (moves.tries, moves.again_at, moves.held_since) = (0, None, None);
                self.drop_left(key);
                self.admit_waiting(now, key);
                // Who has asked while it was being handed over.
                if !self.moving(key).takers.is_empty() {
                    self.moving(key).held_since.get_or_insert(now);
                    self.move_on(now, key, Event::Want);
                }
            }
            Action::Ask(attempt, epoch) => {
                let volume = &self.volumes[key];
                let peer = volume.moves.as_ref().expect("it moves").peer.clone();
                let name = volume.config.name.clone();
                let from = self.identity.clone();
                self.start_move(key, MoveStep::Ask { peer, name, attempt, epoch, from });
            }
            Action::Lock => {
                let mut place = self.whereabouts(key);
                let moves = self.moving(key);
                moves.left = None;
                place.options.by_word = moves.own.may_break();
                let step = MoveStep::Lock(place, Arc::clone(&self.volumes[key].io.disk));
                self.start_move(key, step);
            }
            Action::Record(record, trust) => {
                let volume = &self.volumes[key];
                let kept = Kept { record, peer: volume.config.peer.clone() };
                let (folder, name) = (self.moves_folder(), volume.config.name.clone());
                // Also what a crash has left, whose last changes would be taken for this host's.
                let crashed = || {
                    let recorded = self.data_thread.recorded(&name);
                    recorded.iter().any(|shard| shard.written)
                };
                let disowns = trust == Trust::ProofOnly && (volume.config.exclusive || crashed());
                let disown = disowns.then(|| self.ledger.clone());
                let step = MoveStep::Record { folder, name, kept, disown, by_command: false };
                self.start_move(key, step);
            }
            Action::Attach(trust) => self.prepare_to_serve(now, key, trust),
            Action::Serve => self.serves_again(now, key),
            Action::Retry => self.attempt_failed(now, key),
        }
    }

    pub(super) fn start_move(&mut self, key: usize, step: MoveStep) {
        let task = Task::Move { subject: self.subject(key), step: Box::new(step) };
        self.background.start(task);
    }

    fn whereabouts(&self, key: usize) -> Where {
        Where {
            config: Box::new(self.volumes[key].config.clone()),
            options: self.open_options.clone(),
            taken: self.taken_beside(Some(key)),
            claims: self.known_claims(),
        }
    }

    /// Has the engines let go of a volume that they have. What is under way is finished and flushed.
    fn let_go(&mut self, key: usize) {
        let first = self.volumes[key].life.leave().expect("the engines have it");
        self.leave_group(key);
        self.volumes[key].renewal.cancel();
        self.discard_lost(key);
        self.command(PendingCommand::End(key), &first);
    }

    /// Whether the engines let go of it for a hand-over.
    pub(in super::super) fn is_swapped(&self, key: usize) -> bool {
        let swaps = |moves: &Moves| moves.swap != Swap::None && !moves.ends;
        self.volumes[key].moves.as_ref().is_some_and(|moves| swaps(moves))
    }

    /// The engines have let go of it.
    pub(in super::super) fn swapped_out(&mut self, key: usize, flushed: bool) {
        // An image is let go of behind a good flush, whatever became of the cache's record afterwards.
        let released = self.volumes[key].io.disk.lock_state() == LockState::Released;
        let moves = self.moving(key);
        // What the end of a standby flushes says nothing of writes.
        if moves.swap == Swap::Draining {
            moves.drained = flushed || released;
        }
        self.forget_if_quiet(key);
    }

    /// Nothing of a volume is under way any more, and the engines don't have it. Whether it stays.
    pub(in super::super) fn stays_to_move(&mut self, now: Instant, key: usize) -> bool {
        if self.volumes[key].moves.is_none() {
            return false;
        }
        if self.is_over_to_move(key) {
            self.drop_reads(key);
            return false;
        }
        let size_bytes = self.volumes[key].io.disk.size_bytes();
        let moves = self.moving(key);
        match moves.swap {
            Swap::Draining => {
                moves.swap = Swap::Out;
                let drained = moves.drained;
                let is_left = drained && moves.left_for.is_some();
                moves.left = is_left.then_some(Left { epoch: 0, size_bytes });
                if !drained && !moves.own.is_lost() {
                    moves.reason = "the last flush of the back end failed".into();
                }
                self.move_on(now, key, Event::Drained(drained));
                true
            }
            Swap::EndingStandby => {
                moves.swap = Swap::Out;
                self.forget_standby(key);
                self.swap_to_owner(now, key);
                true
            }
            Swap::Out | Swap::Due => true,
            // It could not be attached at all.
            Swap::None => false,
        }
    }

    /// It leaves for good.
    pub(super) fn is_over_to_move(&self, key: usize) -> bool {
        let ends = self.volumes[key].moves.as_ref().is_some_and(|moves| moves.ends);
        ends || self.is_detaching()
    }

    /// The engines have no use for the record of a standby.
    fn forget_standby(&mut self, key: usize) {
        let name = self.volumes[key].life.name().to_owned();
        self.command(PendingCommand::ForgetStandby, &Command::Forget(name));
    }

    // ---- giving ------------------------------------------------------------------------------------

    fn release(&mut self, now: Instant, key: usize) {
        // An attempt to take it has failed while the standby served on.
        if self.stands_by(key) && self.moving(key).swap == Swap::None {
            self.moving(key).opened = None;
            return self.move_on(now, key, Event::Released);
        }
        self.moving(key).opened = None;
        self.open_standby(key);
    }

    fn open_standby(&mut self, key: usize) {
        let record = self.moving(key).own.record();
        let before = Arc::clone(&self.volumes[key].io.disk);
        let step = MoveStep::StandBy(self.whereabouts(key), record, before);
        self.start_move(key, step);
    }

    /// The back end is open for reading: it takes the place of the other one, which is let go of.
    pub(super) fn opened_standby(
        &mut self,
        now: Instant,
        key: usize,
        result: Result<Box<OpenedVolume>, (String, Option<ProofToken>)>,
    ) {
        let swapped = result.and_then(|opened| {
            let disk = Arc::new(opened.disk);
            let swapped = self.swap_in(key, disk, Attached::Standby);
            swapped.map_err(|errno| (errno.to_string(), None))
        });
        match swapped {
            Ok(old) => {
                let moves = self.moving(key);
                (moves.leaving, moves.swap) = (Some(Arc::clone(&old.disk)), Swap::None);
                drop(old);
                self.attach_to_engines(key, None);
                self.let_go_of_back_end(now, key);
            }
            Err((reason, proof)) => {
                let volume = &self.volumes[key].config.name;
                tracing::warn!(volume, reason, "the back end can't be opened as a standby");
                // The end of an image lets go of its lock, behind which another host may have it.
                let unlocked = self.volumes[key].io.disk.lock_state() == LockState::Released;
                let moves = self.moving(key);
                moves.reason = reason;
                if unlocked || !moves.own.may_return() {
                    return self.stand_by_in(now, key, PAUSE_MAX);
                }
                // Nothing was let go of: its guests do not wait for what may never be.
                (moves.left, moves.kept_proof) = (None, proof);
                self.move_on(now, key, Event::NotReleased);
            }
        }
    }

    fn stand_by_in(&mut self, now: Instant, key: usize, pause: Duration) {
        let at = after(now, pause);
        self.moving(key).stand_by_at = Some(at);
        self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
    }

    /// Closes the back end that was open for writing, lock included, if nothing holds it any more.
    fn let_go_of_back_end(&mut self, now: Instant, key: usize) {
        let Some(old) = self.moving(key).leaving.take() else { return };
        match Arc::try_unwrap(old) {
            Ok(disk) => {
                drop(disk);
                return self.move_on(now, key, Event::Released);
            }
            // A background thread has it for a moment.
            Err(held) => self.moving(key).leaving = Some(held),
        }
        let at = after(now, HOLD_LOOK);
        self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
    }

    fn answer_peer(&mut self, key: usize, reply: Reply) {
        let volume = &self.volumes[key].config.name;
        let (free, epoch, owned, reason) = match reply {
            Reply::Free { epoch, owned } => (true, epoch, owned, String::new()),
            Reply::Refused(refusal, epoch) => (false, epoch, 0, refusal.to_string()),
        };
        tracing::info!(volume, free, epoch, reason, "the other host has asked for the volume");
        let moves = self.moving(key);
        if free && moves.swap == Swap::None && moves.held_since.is_none() && moves.drained {
            (moves.given, moves.drained) = (moves.given + 1, false);
        }
        if let Some(left) = moves.left.as_mut().filter(|left| free && left.epoch == 0) {
            left.epoch = epoch;
        }
        if let Some(answer) = moves.asked.pop() {
            // It may have given up by now, and asks again.
            let _ = answer.send(Ok(Given { free, epoch, owned, reason }));
        }
    }

    // ---- taking ------------------------------------------------------------------------------------

    pub(super) fn locked(
        &mut self,
        now: Instant,
        key: usize,
        result: Result<Box<OpenedVolume>, String>,
    ) {
        let served = self.volumes[key].io.disk.size_bytes();
        let moves = self.moving(key);
        let locked = match result {
            Ok(opened) if opened.disk.size_bytes() < served => {
                Err("the back end has shrunk".to_owned())
            }
            result => result,
        };
        match locked {
            Ok(opened) => {
                (moves.opened, moves.reason) = (Some(opened), String::new());
                self.move_on(now, key, Event::Locked(true));
            }
            Err(reason) => {
                moves.reason = reason;
                self.move_on(now, key, Event::Locked(false));
            }
        }
    }

    fn prepare_to_serve(&mut self, now: Instant, key: usize, trust: Trust) {
        self.moving(key).trust = trust;
        let volume = &self.volumes[key];
        // After a hand-over that has failed: it is locked still.
        if !self.stands_by(key) {
            let disk = Arc::clone(&volume.io.disk);
            let moves = self.moving(key);
            moves.returns = true;
            let proof = moves.kept_proof.take();
            match self.swap_in(key, disk, Attached::Owner) {
                Ok(_same) => {
                    self.volumes[key].proof = proof;
                    self.attach_to_engines(key, None);
                }
                Err(errno) => {
                    self.moving(key).reason = errno.to_string();
                    self.move_on(now, key, Event::Attached(false));
                }
            }
            return;
        }
        let name = volume.config.name.clone();
        let (ledger, device) = (self.ledger.clone(), self.cache.identity());
        self.start_move(key, MoveStep::Prepare { ledger, name, device });
    }

    pub(super) fn prepared(
        &mut self,
        now: Instant,
        key: usize,
        result: Result<(u64, Option<DeviceId>), String>,
    ) {
        let device = self.cache.identity().map(|(id, _)| id);
        let changes = self.replacing.is_some();
        let prepared = result.and_then(|(generation, on)| {
            let same = on == device && !changes;
            same.then_some(generation)
                .ok_or_else(|| "the cache device is being replaced".to_owned())
        });
        match prepared {
            Ok(generation) => {
                self.volumes[key].generation = generation;
                if self.volumes[key].life.phase() == Phase::Attaching {
                    self.moving(key).swap = Swap::Due;
                } else {
                    self.end_standby(now, key);
                }
            }
            Err(reason) => {
                self.moving(key).reason = reason;
                self.move_on(now, key, Event::Attached(false));
            }
        }
    }

    fn end_standby(&mut self, now: Instant, key: usize) {
        if self.volumes[key].life.serving().is_some() {
            self.moving(key).swap = Swap::EndingStandby;
            self.let_go(key);
        } else {
            self.moving(key).swap = Swap::Out;
            self.swap_to_owner(now, key);
        }
    }

    fn swap_to_owner(&mut self, now: Instant, key: usize) {
        let Some(opened) = self.moving(key).opened.take() else {
            self.moving(key).reason = "the back end was closed meanwhile".into();
            return self.move_on(now, key, Event::Attached(false));
        };
        let OpenedVolume { disk, proof, claim_at, .. } = *opened;
        let size_bytes = disk.size_bytes();
        match self.swap_in(key, Arc::new(disk), Attached::Owner) {
            Ok(_standby) => {
                let volume = &mut self.volumes[key];
                (volume.proof, volume.claim_at) = (proof.clone(), claim_at);
                self.moving(key).due.proof = proof;
                self.tell_front_size(key, size_bytes);
                self.attach_to_engines(key, None);
            }
            Err(errno) => {
                self.moving(key).reason = errno.to_string();
                self.move_on(now, key, Event::Attached(false));
            }
        }
    }

    /// Gives a volume that the engines don't have another attachment, to this back end. Gives the last one.
    fn swap_in(
        &mut self,
        key: usize,
        disk: Arc<Disk>,
        attached: Attached,
    ) -> rustix::io::Result<Arc<VolumeIo>> {
        let attachment = entropy::bytes().map(u64::from_le_bytes).map_err(|error| {
            rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
        })?;
        let volume = &self.volumes[key];
        let called = match attached {
            Attached::Standby => standby_name(attachment),
            Attached::Owner => volume.config.name.clone(),
        };
        let life = VolumeLife::new(called, attachment, Mutants::default());
        let io = Arc::new(VolumeIo::renewed_on(&volume.io, disk, &life));
        let before = Arc::clone(&volume.io);
        self.shard_set.uninstall(&mut self.data_thread, key);
        if let Err(errno) = self.shard_set.install(&mut self.data_thread, key, &io) {
            // Its place is free: it was there a moment ago.
            self.shard_set.install(&mut self.data_thread, key, &before)?;
            return Err(errno);
        }
        io.take_models(&before);
        let volume = &mut self.volumes[key];
        (volume.life, volume.proof) = (life, None);
        (volume.measured, volume.grow_due) = (None, false);
        drop(std::mem::replace(&mut volume.io, io));
        self.moving(key).attached = attached;
        Ok(before)
    }

    /// The engines have the volume in its new attachment.
    pub(in super::super) fn moved_in(&mut self, now: Instant, key: usize) {
        if self.volumes[key].moves.is_none() || self.is_over_to_move(key) {
            return;
        }
        let moves = self.moving(key);
        match (moves.attached, moves.swap) {
            (Attached::Owner, Swap::Out) => {
                moves.swap = Swap::None;
                self.move_on(now, key, Event::Attached(true));
            }
            (Attached::Standby, Swap::Due) => self.end_standby(now, key),
            _ => {}
        }
    }

    /// They have refused it.
    pub(in super::super) fn not_moved_in(
        &mut self,
        now: Instant,
        key: usize,
        error: Failure,
    ) -> bool {
        if self.volumes[key].moves.is_none() || self.is_over_to_move(key) {
            return false;
        }
        let moves = self.moving(key);
        moves.reason = format!("attaching it failed: {error}");
        match (moves.attached, moves.swap) {
            (Attached::Owner, Swap::Out) => {
                self.move_on(now, key, Event::Attached(false));
                true
            }
            (Attached::Standby, Swap::Due) => {
                self.end_standby(now, key);
                true
            }
            (Attached::Standby, Swap::None) if moves.given + moves.taken > 0 => {
                moves.swap = Swap::Out;
                self.stand_by_in(now, key, PAUSE_MAX);
                true
            }
            _ => false,
        }
    }

    fn serves_again(&mut self, now: Instant, key: usize) {
        let volume = &self.volumes[key].config.name;
        let moves = self.volumes[key].moves.as_ref().expect("it moves");
        let waited = moves
            .held_since
            .map_or(Duration::ZERO, |since| Duration::from_nanos(now.since_ns(since)));
        let epoch = moves.own.record().epoch;
        tracing::info!(volume, epoch, waited_s = waited.as_secs_f64(), "this host owns the volume");
        let moves = self.moving(key);
        (moves.tries, moves.again_at, moves.held_since) = (0, None, None);
        moves.reason.clear();
        (moves.drained, moves.last_take) = (false, waited);
        moves.taken += u64::from(!std::mem::take(&mut moves.returns));
        for taker in std::mem::take(&mut moves.takers) {
            let _ = taker.send(Ok(()));
        }
        self.drop_left(key);
        self.warm_begins(now, key);
        self.admit_waiting(now, key);
        self.check_lock(now, key);
    }

    fn attempt_failed(&mut self, now: Instant, key: usize) {
        let name = self.volumes[key].config.name.clone();
        let moves = self.moving(key);
        let pause = PAUSE_MIN.saturating_mul(1 << moves.tries.min(10)).min(PAUSE_MAX);
        moves.tries += 1;
        let at = after(now, pause);
        moves.again_at = Some(at);
        let reason = moves.reason.clone();
        tracing::warn!(volume = name, tries = moves.tries, reason, "the volume could not be taken");
        for taker in std::mem::take(&mut moves.takers) {
            let message = format!("volume {name:?} could not be taken: {reason}");
            let hint = "if the other daemon is dead, and only then: cinnabar migrate in NAME --take --force";
            let _ = taker.send(Err(CommandError::new(CommandErrorKind::Busy, message, hint)));
        }
        self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
        self.check_lock(now, key);
    }

    /// Goes on with what has waited for a moment.
    pub(in super::super) fn move_due(&mut self, now: Instant) {
        let moving: Vec<usize> =
            self.order.iter().copied().filter(|key| self.volumes[*key].moves.is_some()).collect();
        for key in moving {
            if self.is_over_to_move(key) {
                continue;
            }
            self.let_go_of_back_end(now, key);
            self.claim_due(now, key);
            self.forget_shut_out(key);
            self.warm_on(now, key);
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            let moves = self.moving(key);
            if is_due(moves.stand_by_at) {
                moves.stand_by_at = None;
                self.open_standby(key);
            }
            let moves = self.moving(key);
            if is_due(moves.again_at) {
                moves.again_at = None;
                self.drop_left(key);
                let moves = self.moving(key);
                let wanted = moves.own.role() == Role::Giving || !moves.takers.is_empty();
                let waits = |waiting: &Waiting| waiting.is_of(key) && waiting.needs_owner();
                let wanted = wanted || self.waiting.iter().any(waits);
                self.move_on(now, key, if wanted { Event::Again } else { Event::Unwanted });
            }
            let moves = self.moving(key);
            let dues = [moves.stand_by_at, moves.again_at];
            self.look_at = self.look_at.into_iter().chain(dues.into_iter().flatten()).min();
        }
    }
}
