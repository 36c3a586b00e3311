//! The clean stop: finish what was begun, take the proofs, mark the device as clean.

use super::clock::after;
use super::control::PendingCommand;
use super::plane::DataPlane;
use cinnabar_config::messages::{AnswerTo, CommandError, StopReport};
use cinnabar_driver::Phase;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Command, Failure};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A stop under way.
pub(super) struct Stop {
    step: Step,
    answer: Option<AnswerTo<StopReport>>,
    /// Clients that have not taken their replies by then are cut off.
    drain_until: Instant,
    /// Back ends that do not have everything by then get the rest after the next start.
    destage_until: Instant,
    /// Everything is cut off.
    deadline: Instant,
    report: StopReport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// No new requests; those under way are answered.
    Draining,
    /// Volumes leave the write log: their back ends get what it holds.
    Destaging,
    /// What stays in the write log becomes durable there.
    ClosingLog,
    /// Volumes finish, flush, prove and go.
    Detaching,
    /// The engine writes its checkpoint.
    Closing,
    Ended,
}

impl Stop {
    /// Tells whoever asked how it went.
    pub(super) fn tell(self) {
        if let Some(answer) = self.answer {
            let _ = answer.send(Ok(self.report));
        }
    }

    /// When everything is cut off.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// When something is to be given up.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self.step {
            Step::Draining => Some(self.drain_until),
            Step::Destaging => Some(self.destage_until),
            Step::ClosingLog | Step::Detaching | Step::Closing => Some(self.deadline),
            Step::Ended => None,
        }
    }
}

impl DataPlane {
    pub(super) fn is_ended(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.step == Step::Ended)
    }

    pub(super) fn begin_stop(
        &mut self,
        now: Instant,
        deadline: Duration,
        answer: Option<AnswerTo<StopReport>>,
    ) {
        if self.stop.is_some() {
            if let Some(answer) = answer {
                let _ = answer.send(Err(CommandError::gone()));
            }
            return;
        }
        tracing::info!(deadline_s = deadline.as_secs_f64(), "stopping");
        self.drain();
        // Guests' requests are answered now, whatever their volumes' limits.
        for key in self.order.clone() {
            self.leave_group(key);
        }
        // What is still waiting for another process's lock gives up.
        if let Some(cancel) = &self.open_options.cancel {
            cancel.store(true, Relaxed);
        }
        self.stop = Some(Stop {
            step: Step::Draining,
            answer,
            // The other half is for flushes, proofs and the checkpoint.
            drain_until: after(now, deadline / 2),
            destage_until: after(now, deadline / 4 * 3),
            deadline: after(now, deadline),
            report: StopReport::default(),
        });
        self.give_up_comparing();
        self.stop_changing_device();
    }

    /// Goes on with a stop as far as it can.
    pub(super) fn advance_stop(&mut self, now: Instant) {
        // One step may make the next one possible; nothing else would end the next wait.
        while self.step_stop(now) {}
    }

    fn step_stop(&mut self, now: Instant) -> bool {
        let Some(stop) = &self.stop else { return false };
        let (step, late, due) = (stop.step, now >= stop.drain_until, now >= stop.deadline);
        let destage_until = stop.destage_until;
        match step {
            Step::Draining if self.is_drained() || late => {
                self.enter(Step::Destaging);
                self.leave_log_for_stop(now);
                // The log and the engines get these commands now, not after the next wait.
                self.apply(now);
            }
            Step::Destaging if !self.is_changing_log() || now >= destage_until => {
                // What has joined since goes, too, claims included.
                if now < destage_until && self.leave_log_for_stop(now) {
                    self.apply(now);
                    return true;
                }
                self.enter(Step::ClosingLog);
                if !self.close_log() {
                    self.log_was_closed(now);
                }
                self.apply(now);
            }
            Step::Detaching
                if self.volumes.is_empty()
                    && self.replacing.is_none()
                    && self.background.is_idle()
                    && !self.writes.is_marking() =>
            {
                self.enter(Step::Closing);
                self.command(PendingCommand::Close, &Command::Close);
                self.apply(now);
            }
            Step::ClosingLog | Step::Detaching | Step::Closing if due => self.cut_off(),
            _ => return false,
        }
        true
    }

    /// Everything in the write log is durable, or can't be made so.
    pub(super) fn log_was_closed(&mut self, now: Instant) {
        self.enter(Step::Detaching);
        self.detach_all();
        self.apply(now);
    }

    /// Volumes are on their way out: none begins to serve.
    pub(super) fn is_detaching(&self) -> bool {
        self.stop
            .as_ref()
            .is_some_and(|stop| matches!(stop.step, Step::Detaching | Step::Closing | Step::Ended))
    }

    fn enter(&mut self, step: Step) {
        if let Some(stop) = &mut self.stop {
            stop.step = step;
        }
    }

    fn detach_all(&mut self) {
        let keys: Vec<usize> = self.volumes.iter().map(|(key, _)| key).collect();
        for key in keys {
            // Clients that are still there have had their time.
            self.remove_exports(key);
            // Who has asked for the removal of one that leaves already is answered when it has gone.
            let volume = &self.volumes[key];
            if matches!(volume.life.phase(), Phase::Attaching | Phase::Serving)
                || volume.is_renewed()
            {
                let answer = self.volumes[key].answer.take();
                self.detach(key, answer);
            } else {
                // One between two hosts: the engines have let go of it.
                self.forget_if_quiet(key);
            }
        }
    }

    /// The engine has closed, or could not.
    pub(super) fn closed(&mut self, _now: Instant, result: Result<(), Failure>) {
        let kept_blocks = self.shard_set.counters(&self.data_thread, &[]).cache.cached_blocks;
        match result {
            Ok(()) => self.finish(StopReport { clean: true, kept_blocks, cut_off: 0 }),
            Err(error) => {
                tracing::error!(reason = %error, "the cache device was not marked as clean");
                self.finish(StopReport::default());
            }
        }
    }

    /// The time is over.
    fn cut_off(&mut self) {
        let cut_off = (self.requests.len() + self.under_way_elsewhere()) as u64;
        let volumes: Vec<&str> =
            self.volumes.iter().map(|(_, volume)| volume.config.name.as_str()).collect();
        tracing::error!(
            cut_off,
            ?volumes,
            "the stop took too long; the next start is as after a crash"
        );
        self.finish(StopReport { cut_off, ..StopReport::default() });
    }

    fn finish(&mut self, report: StopReport) {
        let Some(stop) = &mut self.stop else { return };
        stop.step = Step::Ended;
        stop.report = report;
        tracing::info!(clean = report.clean, kept_blocks = report.kept_blocks, "stopped");
    }
}
