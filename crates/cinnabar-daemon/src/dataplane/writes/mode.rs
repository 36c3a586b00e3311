//! A volume's way into the write log and out of it: what each step asks for, and what comes of it.

use super::{ClaimPlace, Claims, PendingCommand, Subject, refused};
use crate::dataplane::background::Task;
use crate::dataplane::clock::after;
use crate::dataplane::plane::DataPlane;
use crate::dataplane::requests::Origin;
use crate::dataplane::volume::{Change, Volume};
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind, ModeCause, VolumeMode};
use cinnabar_driver::write_mode::{Failed, Step};
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::plan::{Plan, VolumePlan};
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Failure, IoError, Op};
use cinnabar_writeback::{Command, Done, Refusal};
use std::time::Duration;

/// Until the log is asked again to let go of a volume of which something is under way.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(20);

impl DataPlane {
    /// A volume, as long as it is installed.
    pub(in super::super) fn subject(&self, key: usize) -> Subject {
        Subject { key, number: self.volumes[key].number }
    }

    /// Its key, if it is still there.
    pub(in super::super) fn key_of(&self, subject: Subject) -> Option<usize> {
        let volume = self.volumes.get(subject.key)?;
        (volume.number == subject.number).then_some(subject.key)
    }

    /// Does the next step.
    pub(in super::super) fn write_step(&mut self, now: Instant, key: usize, step: Step) {
        let subject = self.subject(key);
        match step {
            Step::Claim => {
                let claims = self.volumes[key].claims.clone().expect("set before it joins");
                self.background.start(Task::Claim { subject, claims });
            }
            Step::Attach => self.attach_at_log(subject),
            // It is answered once it has joined.
            Step::Serve => self.attach_to_engines(key, None),
            Step::Hold => {
                if self.volumes[key].writes.leaves() {
                    self.holds_to_leave(now, key);
                }
                self.settle_writes(now, key);
            }
            Step::Flush if self.has_late_requests(key) => {
                self.flushed_to_join(now, key, Err(Failure::Io(IoError::TimedOut)));
            }
            Step::Flush => self.submit_for(now, key, Op::Flush, Origin::Mode),
            Step::Joined(_) => self.has_joined(now, key),
            Step::Ask(command) => {
                self.note_answered_alone(key);
                if let Some(running) = self.writes.running() {
                    running.ask(PendingCommand::Step(subject), command);
                }
            }
            Step::AskLater(command) => {
                if let Some(running) = self.writes.running() {
                    let at = after(now, AGAIN_AFTER);
                    running.later.push((at, PendingCommand::Step(subject), command));
                }
            }
            Step::Unclaim => {
                let claims = self.volumes[key].claims.clone().expect("set before it joins");
                self.background.start(Task::Unclaim { subject, claims });
            }
            Step::Left(failed) => self.has_left(now, key, failed),
            Step::Stays(failed) => self.stays(now, key, &failed),
        }
    }

    fn attach_at_log(&mut self, subject: Subject) {
        let volume = &self.volumes[subject.key];
        let claims = volume.claims.as_ref().expect("set before it joins");
        let command = Command::Attach {
            name: volume.config.name.clone(),
            size_bytes: volume.io.disk.size_bytes(),
            incarnation: claims.claim.incarnation,
            group: volume.config.write_group.clone().unwrap_or_default(),
        };
        if let Some(running) = self.writes.running() {
            running.ask(PendingCommand::Attach(subject), command);
        }
    }

    /// A background thread has made the claim, or could not.
    pub(in super::super) fn claimed(
        &mut self,
        now: Instant,
        subject: Subject,
        result: Result<(), String>,
    ) {
        if let Some(key) = self.key_of(subject) {
            let step = self.volumes[key].writes.claimed(result);
            self.write_step(now, key, step);
        }
    }

    /// A background thread has taken the claim away, as far as that could be.
    pub(in super::super) fn unclaimed(&mut self, now: Instant, subject: Subject) {
        if let Some(key) = self.key_of(subject) {
            let step = self.volumes[key].writes.unclaimed();
            self.write_step(now, key, step);
        }
    }

    pub(super) fn attached_at_log(
        &mut self,
        now: Instant,
        subject: Subject,
        result: Result<Done, Refusal>,
    ) {
        let Some(key) = self.key_of(subject) else { return };
        let result = result.map(|done| match done {
            Done::Attached(place) => place,
            Done::Nothing => unreachable!("an attach is answered with a place"),
        });
        // It has grown meanwhile.
        let size_bytes = self.volumes[key].io.disk.size_bytes();
        if let Ok(place) = result
            && let Some(running) = self.writes.running()
            && running.log.status(place).is_some_and(|status| status.size_bytes < size_bytes)
        {
            return self.attach_at_log(subject);
        }
        let place = self.writes.place_of(&self.volumes[key].config.name);
        let status = place.and_then(|place| self.writes.log()?.status(place));
        let knows = (place.is_some(), status.as_ref().is_some_and(|status| status.taken));
        let config = &self.volumes[key].config;
        if let Some(status) = &status
            && status.group != config.write_group.as_deref().unwrap_or_default()
        {
            let (volume, group) = (&config.name, &status.group);
            tracing::warn!(
                volume,
                group,
                "it keeps its write group until it has left the write log"
            );
        }
        let step = self.volumes[key].writes.attached(result, knows);
        if let (Some(place), Some(running)) =
            (self.volumes[key].writes.place(), self.writes.running())
        {
            running.volumes[usize::from(place.0)] = Some(key);
        }
        self.acknowledge(key);
        self.write_step(now, key, step);
    }

    /// The log has answered the command of a step.
    pub(in super::super) fn log_step_done(
        &mut self,
        now: Instant,
        subject: Subject,
        result: Result<(), Refusal>,
    ) {
        if let Some(key) = self.key_of(subject) {
            let little = self.little_is_left(now, key);
            let step = self.volumes[key].writes.answered(result, little);
            self.write_step(now, key, step);
        }
    }

    /// The engine has flushed the back end of a volume that joins.
    pub(in super::super) fn flushed_to_join(
        &mut self,
        now: Instant,
        key: usize,
        result: Result<(), Failure>,
    ) {
        let step = self.volumes[key].writes.flushed(result);
        self.write_step(now, key, step);
    }

    /// Whether something is still under way of requests that guests of a volume have given up.
    fn has_late_requests(&self, key: usize) -> bool {
        let serving = self.volumes[key].life.serving();
        serving.is_some_and(|volume| self.shard_set.late_requests(&self.data_thread, volume) > 0)
    }

    /// Goes on with a volume whose requests wait, if none of them is under way.
    pub(in super::super) fn settle_writes(&mut self, now: Instant, key: usize) {
        let awaits = self.volumes.get(key).is_some_and(|volume| volume.writes.awaits_idle());
        if awaits && !self.requests.iter().any(|(_, request)| request.is_change_of_guest(key)) {
            let step = self.volumes[key].writes.idle();
            self.write_step(now, key, step);
        }
    }

    /// What the engines have counted of a volume.
    pub(in super::super) fn counted(&self, key: usize) -> VolumeCounters {
        let Volume { io, life, renewal, .. } = &self.volumes[key];
        let own = self
            .shard_set
            .counters(&self.data_thread, &[life.id()])
            .volumes
            .pop()
            .unwrap_or_default();
        renewal.counted(life.phase(), &io.counted(&own))
    }

    /// Before the log is asked to let go of it, and forgets that.
    fn note_answered_alone(&mut self, key: usize) {
        if let Some(blocks) = self.answered_alone(&self.volumes[key]) {
            self.volumes[key].traffic.answered_alone(blocks);
        }
    }

    fn has_joined(&mut self, now: Instant, key: usize) {
        let counted = self.counted(key);
        self.volumes[key].traffic.joined(&counted);
        self.set_destages(now, key, true);
        self.number_claim(key);
        let volume = &mut self.volumes[key];
        let name = volume.config.name.clone();
        match std::mem::take(&mut volume.change) {
            Change::Attach(answer) if self.serves(key) => self.has_opened(now, key, answer),
            Change::Attach(answer) => self.attach_to_engines(key, answer),
            Change::Join(answer, _) => {
                tracing::info!(volume = name, "in write-back mode");
                let _ = answer.send(Ok(()));
                self.admit_waiting(now, key);
            }
            Change::None | Change::Leave | Change::Remove => {
                unreachable!("it was not about to join")
            }
        }
    }

    fn serves(&self, key: usize) -> bool {
        self.volumes[key].life.serving().is_some()
    }

    /// A volume that was attached serves by now, by way of the log or past it.
    fn has_opened(&mut self, now: Instant, key: usize, answer: Option<AnswerTo<()>>) {
        if let Some(answer) = answer {
            let _ = answer.send(Ok(()));
        }
        self.admit_waiting(now, key);
        self.leave_log_if_unwanted(now, key);
    }

    fn has_left(&mut self, now: Instant, key: usize, failed: Option<Failed>) {
        self.writes.forget(key);
        let counted = self.counted(key);
        self.volumes[key].traffic.left(&counted);
        self.set_destages(now, key, false);
        let serves = self.serves(key);
        let volume = &mut self.volumes[key];
        volume.claims = None;
        let name = volume.config.name.clone();
        let change = std::mem::take(&mut volume.change);
        // Its device has failed, and the directory has it still.
        if self.writes.place_of(&name).is_some()
            && let Some(running) = self.writes.running()
        {
            running.given_up.push(name.clone());
        }
        match change {
            Change::Attach(answer) if serves => {
                let reason = failed.map_or_else(CommandError::gone, |failed| explain(&failed));
                tracing::error!(volume = name, %reason, "not in write-back mode");
                return self.has_opened(now, key, answer);
            }
            Change::Attach(answer) => {
                let failed = failed.map_or_else(CommandError::gone, |failed| explain(&failed));
                return self.refuse_attach(now, key, answer, failed);
            }
            Change::Join(answer, (mode, by_operator)) => {
                self.take_mode(key, mode, ModeCause::NotJoined);
                self.volumes[key].mode_by_operator = by_operator;
                let failed = failed.map_or_else(CommandError::gone, |failed| explain(&failed));
                let _ = answer.send(Err(failed));
            }
            Change::None | Change::Leave => {
                tracing::info!(volume = name, "nothing of it is in the write log any more");
            }
            Change::Remove => {
                let answer = self.volumes[key].answer.take();
                self.force_goes_on(now, key);
                return self.detach(key, answer);
            }
        }
        self.admit_waiting(now, key);
    }

    fn stays(&mut self, now: Instant, key: usize, failed: &Failed) {
        let error = explain(failed);
        let has_place = self.writes.place_of(&self.volumes[key].config.name).is_some();
        if self.volumes[key].writes.place().is_some() {
            // It has its limit again.
            self.set_destages(now, key, true);
            self.slow_down(key, false);
        }
        let volume = &mut self.volumes[key];
        if !has_place {
            volume.claims = None;
        }
        match std::mem::take(&mut volume.change) {
            Change::Attach(answer) if volume.life.serving().is_some() => {
                tracing::error!(volume = volume.config.name, reason = %error, "not in write-back mode");
                return self.has_opened(now, key, answer);
            }
            Change::Attach(answer) => return self.refuse_attach(now, key, answer, error),
            Change::Join(answer, (mode, by_operator)) => {
                self.take_mode(key, mode, ModeCause::NotJoined);
                self.volumes[key].mode_by_operator = by_operator;
                let _ = answer.send(Err(error));
            }
            Change::Leave => {
                tracing::warn!(volume = volume.config.name, reason = %error, "it stays in the write log");
                // So another try to leave is one.
                self.take_mode(key, VolumeMode::WriteBack, ModeCause::NotLeft);
            }
            Change::None => {
                let volume = &volume.config.name;
                tracing::warn!(volume, reason = %error, "it stays in the write log");
            }
            Change::Remove => {
                let config = volume.config.clone();
                self.forced.take(key, volume.number);
                if let Some(answer) = volume.answer.take() {
                    let _ = answer.send(Err(error));
                }
                // Its clients were sent away for this.
                if self.stop.is_none()
                    && let Err(error) = self.listen(&config, key)
                {
                    tracing::error!(volume = config.name, reason = %error, "clients find no socket");
                }
            }
        }
        self.admit_waiting(now, key);
    }

    /// Gives a volume the mode that it has or is about to have, in the engines, too.
    pub(super) fn take_mode(&mut self, key: usize, mode: VolumeMode, cause: ModeCause) {
        let volume = &mut self.volumes[key];
        (volume.config.mode, volume.mode_cause) = (mode, cause);
        if let Some(volume) = volume.life.id() {
            let mode = Some(mode.into());
            let plan = VolumePlan { mode, ..VolumePlan::unchanged(volume) };
            self.shard_set
                .adopt(&mut self.data_thread, &Plan { volumes: vec![plan], ..Plan::default() });
        }
    }

    /// Has a volume leave the log, if it is there: `None` if not.
    pub(super) fn leave_log(
        &mut self,
        now: Instant,
        key: usize,
        change: Change,
        (served, discard): (bool, bool),
    ) -> Option<()> {
        let step = self.volumes[key].writes.leave(served, discard)?;
        self.volumes[key].change = change;
        self.hurry_destage(now, key);
        self.begins_to_leave(now, key, served);
        self.write_step(now, key, step);
        Some(())
    }

    /// A volume serves: if it is in the log only because writes were left there, it leaves.
    pub(in super::super) fn leave_log_if_unwanted(&mut self, now: Instant, key: usize) {
        if self.volumes[key].config.mode != VolumeMode::WriteBack {
            self.leave_log(now, key, Change::Leave, (true, false));
        }
    }

    /// Where the claim of a volume is to be.
    pub(super) fn claims_for(&self, key: usize, incarnation: u64) -> Option<Claims> {
        let volume = &self.volumes[key];
        let super::Writes::On(running) = &self.writes else { return None };
        let place = ClaimPlace::At(volume.claim_at.clone());
        Some(Self::claims_of(running, &volume.config.name, place, incarnation))
    }
}

/// What it means to an operator that a volume could not join or leave.
fn explain(failed: &Failed) -> CommandError {
    match failed {
        Failed::Claim(reason) => CommandError::new(CommandErrorKind::Busy, reason, ""),
        Failed::Log(refusal) => refused(*refusal),
        Failed::BackEnd => {
            let hint = "set the mode again once the back end is well";
            CommandError::new(CommandErrorKind::Busy, failed.to_string(), hint)
        }
        Failed::Flush(failure) => {
            let message = format!("flushing the back end failed: {failure}");
            CommandError::new(CommandErrorKind::Io, message, "see the daemon's log")
        }
    }
}
