//! What operators ask of volumes in write-back mode, and what the stop asks of the log.

use super::mode::AGAIN_AFTER;
use super::{ClaimPlace, Claims, PendingCommand, Writes, refused};
use crate::dataplane::background::Task;
use crate::dataplane::clock::after;
use crate::dataplane::plane::DataPlane;
use crate::dataplane::requests::Origin;
use crate::dataplane::volume::{Change, Volume};
use cinnabar_backend::entropy;
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind, ModeCause, VolumeMode};
use cinnabar_driver::write_mode::Route;
use cinnabar_engine::Op;
use cinnabar_engine::units::Instant;
use cinnabar_writeback::{Command, Refusal};

impl DataPlane {
    /// Has a volume that serves change between write-back and another mode. Joining is answered when it
    /// is done; leaving takes as long as the back end does, and is answered at once.
    pub(in super::super) fn change_write_mode(
        &mut self,
        now: Instant,
        key: usize,
        (mode, by_operator): (VolumeMode, bool),
        answer: AnswerTo<()>,
    ) {
        let volume = &mut self.volumes[key];
        // What can't be had changes nothing.
        let before = volume.mode_by_operator;
        let cause = if by_operator { ModeCause::Operator } else { ModeCause::Plan };
        let by_operator = by_operator || before;
        let (old, changes) = (volume.config.mode, volume.writes.changes());
        // One that could not join when it was attached may try again.
        let may_join = mode == VolumeMode::WriteBack && volume.claims.is_none();
        if mode == old && !may_join {
            volume.mode_by_operator = by_operator;
            let _ = answer.send(Ok(()));
            return;
        }
        let error = if changes {
            let message = format!("volume {:?} is changing its mode", volume.config.name);
            Some(CommandError::new(CommandErrorKind::Busy, message, "try again in a moment"))
        } else if mode != VolumeMode::WriteBack {
            let place = volume.writes.place();
            if let Some(refusal) = place.and_then(|place| self.writes.cannot_drain(place)) {
                let _ = answer.send(Err(refused(refusal)));
                return;
            }
            self.take_mode(key, mode, cause);
            self.volumes[key].mode_by_operator = by_operator;
            self.leave_log(now, key, Change::Leave, (true, false));
            let _ = answer.send(Ok(()));
            return;
        } else {
            self.cannot_join(key)
        };
        if let Some(error) = error {
            let _ = answer.send(Err(error));
            return;
        }
        if self.volumes[key].writes.route() != Route::Engine {
            // It was on its way back already, or never left.
            self.take_mode(key, mode, cause);
            self.volumes[key].mode_by_operator = by_operator;
            let _ = answer.send(Ok(()));
            return;
        }
        let incarnation = match entropy::bytes() {
            Ok(bytes) => u64::from_le_bytes(bytes),
            Err(error) => {
                let message = format!("no random numbers: {error}");
                let error = CommandError::new(CommandErrorKind::Limit, message, "");
                let _ = answer.send(Err(error));
                return;
            }
        };
        let claims = self.claims_for(key, incarnation);
        self.take_mode(key, mode, cause);
        let volume = &mut self.volumes[key];
        volume.mode_by_operator = by_operator;
        (volume.claims, volume.change) = (claims, Change::Join(answer, (old, before)));
        let step = volume.writes.join(true);
        self.write_step(now, key, step);
    }

    /// Why a volume can't be written back, if so.
    fn cannot_join(&self, key: usize) -> Option<CommandError> {
        if self.volumes[key].config.read_only {
            let message = "a read-only volume has nothing to write back";
            let hint = "leave its mode as it is";
            return Some(CommandError::new(CommandErrorKind::Invalid, message, hint));
        }
        match &self.writes {
            Writes::On(_) => self.unguarded(key),
            Writes::Off => {
                let message = "mode write-back needs a write log, and none is configured";
                let hint = "set write_log in [cache] and restart the daemon";
                Some(CommandError::new(CommandErrorKind::Invalid, message, hint))
            }
            Writes::Missing { reason, .. } => {
                let hint = "restart the daemon when it is there";
                Some(CommandError::new(CommandErrorKind::Io, reason.clone(), hint))
            }
        }
    }

    /// Brings everything that was acknowledged to a volume's back end.
    pub(in super::super) fn flush_volume(
        &mut self,
        now: Instant,
        name: &str,
        answer: AnswerTo<()>,
    ) {
        let key = match self.find_in_log(name) {
            Ok(key) => key,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let writes = &self.volumes[key].writes;
        match (writes.place().filter(|_| writes.has_joined()), self.writes.running()) {
            (Some(place), Some(running)) => {
                running.ask(PendingCommand::Flush(answer), Command::Drain(place));
            }
            _ => self.submit_for(now, key, Op::Flush, Origin::Operator("flushing it", answer)),
        }
    }

    /// Takes a volume that is to be removed out of the log first; false if it is not there.
    pub(in super::super) fn remove_from_log(
        &mut self,
        now: Instant,
        key: usize,
        discard: bool,
        answer: &mut Option<AnswerTo<()>>,
    ) -> bool {
        let volume = &self.volumes[key];
        // One that joins may have a claim, or a place, in a moment.
        if volume.writes.route() == Route::Engine && !volume.writes.changes() {
            return false;
        }
        let name = volume.config.name.clone();
        let changing = || {
            let message = format!("volume {name:?} is changing its mode");
            CommandError::new(CommandErrorKind::Busy, message, "try again in a moment")
        };
        let place = volume.writes.place();
        let refusal = place.filter(|_| !discard).and_then(|place| self.writes.cannot_drain(place));
        let volume = &mut self.volumes[key];
        let step = match refusal {
            Some(refusal) => Err(refused(refusal)),
            // A back end that is away is waited for no longer.
            None if discard && volume.writes.changes() => {
                volume.writes.give_up().ok_or_else(changing)
            }
            None => volume.writes.leave(false, discard).ok_or_else(changing),
        };
        let step = match step {
            Ok(step) => step,
            Err(error) => {
                let _ = answer.take().map(|answer| answer.send(Err(error)));
                return true;
            }
        };
        self.remove_exports(key);
        if discard {
            tracing::warn!(volume = name, "its writes in the log are given up");
        }
        let subject = self.subject(key);
        if let Some(running) = self.writes.running() {
            running.forget_steps(subject);
        }
        self.volumes[key].change = Change::Remove;
        // Of the operator who has been waiting.
        let before = std::mem::replace(&mut self.volumes[key].answer, answer.take());
        if let Some(before) = before {
            let message = "another command gives its writes up and removes it";
            let _ = before.send(Err(CommandError::new(CommandErrorKind::Busy, message, "")));
        }
        self.write_step(now, key, step);
        true
    }

    /// Takes a volume that waits for its back end out of the log, and then out of those that wait; false
    /// if the log has nothing of it.
    pub(in super::super) fn remove_absent_from_log(
        &mut self,
        name: &str,
        discard: bool,
        answer: &mut Option<AnswerTo<()>>,
    ) -> bool {
        let Some(place) = self.writes.place_of(name) else { return false };
        let status = self.writes.log().and_then(|log| log.status(place)).unwrap_or_default();
        let Some(answer) = answer.take() else { return true };
        if (status.dirty_bytes > 0 || status.damaged) && !discard {
            let message = format!(
                "the write log holds writes of {name:?} that its back end lacks, and the volume waits"
            );
            let hint = "it is served as soon as its back end can be opened; --discard-dirty gives \
                        the writes up";
            let error = CommandError::new(CommandErrorKind::Busy, message, hint);
            let _ = answer.send(Err(error));
            return true;
        }
        let Some(config) = self.remove_absent(name) else { return false };
        // Its storage may be away: that is not asked here.
        let claim_place = ClaimPlace::Of(Box::new(config), self.claims_dir.clone());
        let Some(running) = self.writes.running() else { return false };
        let claims = Box::new(Self::claims_of(running, name, claim_place, 0));
        if status.dirty_bytes > 0 {
            tracing::warn!(volume = name, "its writes in the log are given up");
        }
        running.going.push(name.to_owned());
        let command = Command::Remove { place, discard };
        running.ask(PendingCommand::Discard(claims, command.clone(), answer), command);
        true
    }

    /// The log has let go of a volume that waited, or not.
    pub(super) fn discarded(
        &mut self,
        now: Instant,
        (claims, command, answer): (Box<Claims>, Command, AnswerTo<()>),
        result: Result<(), Refusal>,
    ) {
        let Some(running) = self.writes.running() else { return };
        let name = claims.claim.volume.clone();
        match result {
            Ok(()) | Err(Refusal::NoVolume) => {}
            // Should its device come back, it has no claim to the back end.
            Err(Refusal::Lost) => running.given_up.push(name),
            Err(Refusal::Busy) => {
                let asked = PendingCommand::Discard(claims, command.clone(), answer);
                return running.later.push((after(now, AGAIN_AFTER), asked, command));
            }
            Err(refusal) => return self.has_gone(&name, answer, Err(refused(refusal))),
        }
        self.background.start(Task::Discard { claims: *claims, answer });
    }

    /// Nothing is left of a volume that waited; its name may be another's.
    pub(in super::super) fn has_gone(
        &mut self,
        name: &str,
        answer: AnswerTo<()>,
        result: Result<(), CommandError>,
    ) {
        if let Some(running) = self.writes.running() {
            running.going.retain(|going| going != name);
        }
        let _ = answer.send(result);
    }

    /// Volumes are to leave the log before the stop: all of them, or those that have nothing there.
    /// True if one does.
    pub(in super::super) fn leave_log_for_stop(&mut self, now: Instant) -> bool {
        let mut leave = false;
        let keys: Vec<usize> = self.volumes.iter().map(|(key, _)| key).collect();
        for key in keys {
            let dirty = self.volumes[key]
                .writes
                .place()
                .and_then(|place| Some(self.writes.log()?.group(place)?.dirty_bytes > 0));
            let told = self.volumes[key].stops || self.volumes[key].writes.changes();
            if !told && (dirty == Some(false) || self.drain_on_stop) {
                self.volumes[key].stops = true;
                leave |= self.leave_log(now, key, Change::None, (false, false)).is_some();
            }
        }
        leave
    }

    /// Whether a volume is on its way into the log or out of it, and the stop waits for that.
    pub(in super::super) fn is_changing_log(&self) -> bool {
        let waits = |volume: &Volume| {
            let place = volume.writes.place();
            let group = place.and_then(|place| self.writes.log()?.group(place));
            self.drain_on_stop || group.is_none_or(|group| group.dirty_bytes == 0)
        };
        self.volumes.iter().any(|(_, volume)| volume.writes.changes() && waits(volume))
    }

    /// Makes everything in the log durable; false if there is none.
    pub(in super::super) fn close_log(&mut self) -> bool {
        let Some(running) = self.writes.running() else { return false };
        running.ask(PendingCommand::Close, Command::Close);
        true
    }

    pub(super) fn log_closed(&mut self, now: Instant, result: Result<(), Refusal>) {
        match result {
            Err(refusal) => tracing::error!(reason = %refusal, "the write log was not closed"),
            Ok(()) => self.release_memory(),
        }
        let left: u64 = self.writes.log().map_or(0, |log| {
            log.places()
                .filter_map(|place| log.status(place))
                .map(|status| status.dirty_bytes)
                .sum()
        });
        if left > 0 {
            tracing::warn!(
                dirty_bytes = left,
                "writes that no back end has yet stay in the write log until the next start"
            );
        }
        self.log_was_closed(now);
    }
}
