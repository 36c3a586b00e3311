//! What operators ask of volumes in write-back mode, and what the stop asks of the log.

use super::{Asked, Claims, Writes, refused};
use crate::dataplane::background::Task;
use crate::dataplane::plane::Plane;
use crate::dataplane::requests::Asker;
use crate::dataplane::volume::Change;
use crate::messages::{AnswerTo, CommandError, CommandErrorKind, VolumeMode};
use cinnabar_backend::entropy;
use cinnabar_driver::write_mode::Route;
use cinnabar_engine::Op;
use cinnabar_engine::units::Instant;
use cinnabar_writeback::{Command, Refusal};

impl Plane {
    /// Has a volume that serves change between write-back and another mode. Joining is answered when it
    /// is done; leaving takes as long as the back end does, and is answered at once.
    pub(in super::super) fn change_write_mode(
        &mut self,
        now: Instant,
        key: usize,
        mode: VolumeMode,
        answer: AnswerTo<()>,
    ) {
        let volume = &mut self.volumes[key];
        let (old, changes) = (volume.config.mode, volume.writes.changes());
        if mode == old {
            let _ = answer.send(Ok(()));
            return;
        }
        let error = if changes {
            let message = format!("volume {:?} is changing its mode", volume.config.name);
            Some(CommandError::new(CommandErrorKind::Busy, message, "try again in a moment"))
        } else if mode != VolumeMode::WriteBack {
            volume.config.mode = mode;
            self.leave_log(now, key, Change::Leave, (true, false));
            let _ = answer.send(Ok(()));
            return;
        } else if volume.config.read_only {
            let message = "a read-only volume has nothing to write back";
            Some(CommandError::new(CommandErrorKind::Invalid, message, "leave its mode as it is"))
        } else {
            match &self.writes {
                Writes::On(_) => None,
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
        };
        if let Some(error) = error {
            let _ = answer.send(Err(error));
            return;
        }
        if self.volumes[key].writes.route() != Route::Engine {
            // It was on its way back already, or never left.
            self.volumes[key].config.mode = mode;
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
        let volume = &mut self.volumes[key];
        volume.config.mode = mode;
        (volume.claims, volume.change) = (claims, Change::Join(answer, old));
        let step = volume.writes.join(true);
        self.write_step(now, key, step);
    }

    /// Brings everything that was acknowledged to a volume's back end.
    pub(in super::super) fn flush_volume(
        &mut self,
        now: Instant,
        name: &str,
        answer: AnswerTo<()>,
    ) {
        let key = match self.find(name) {
            Ok(key) => key,
            Err(error) => return drop(answer.send(Err(error))),
        };
        match (self.volumes[key].writes.place(), self.writes.running()) {
            (Some(place), Some(running)) => {
                running.ask(Asked::Flush(answer), Command::Drain(place));
            }
            _ => self.submit_for(now, key, Op::Flush, Asker::Operator(answer)),
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
        if self.volumes[key].writes.route() == Route::Engine {
            return false;
        }
        let volume = &mut self.volumes[key];
        let name = volume.config.name.clone();
        let status = volume.writes.place().and_then(|place| self.writes.log()?.status(place));
        let lost = self.writes.log().is_some_and(cinnabar_writeback::WriteLog::is_lost);
        let refusal = match status {
            _ if discard => None,
            _ if lost => Some(Refusal::Lost),
            Some(status) if status.damaged => Some(Refusal::Damaged),
            _ => None,
        };
        let error = if volume.writes.changes() {
            let message = format!("volume {name:?} is changing its mode");
            Some(CommandError::new(CommandErrorKind::Busy, message, "try again in a moment"))
        } else {
            refusal.map(refused)
        };
        if let Some(error) = error {
            if let Some(answer) = answer.take() {
                let _ = answer.send(Err(error));
            }
            return true;
        }
        self.remove_exports(key);
        self.volumes[key].answer = answer.take();
        if discard {
            tracing::warn!(volume = name, "its writes in the log are given up");
        }
        self.leave_log(now, key, Change::Remove, (false, discard)).is_some()
    }

    /// Gives up what the log holds of a volume that waits for its back end; false if that is nothing.
    pub(in super::super) fn discard_absent(
        &mut self,
        config: &crate::messages::VolumeConfig,
        answer: &mut Option<AnswerTo<()>>,
    ) -> bool {
        let Some(place) = self.writes.place_of(&config.name) else { return false };
        let dir = self.claims_dir.clone();
        let Some(running) = self.writes.running() else { return false };
        let Some(answer) = answer.take() else { return false };
        let claims = Self::claims_of(running, config, &dir, 0);
        tracing::warn!(volume = config.name, "its writes in the log are given up");
        running.ask(Asked::Discard(claims, answer), Command::Remove { place, discard: true });
        true
    }

    pub(super) fn discarded(
        &mut self,
        claims: Claims,
        result: Result<(), Refusal>,
        answer: AnswerTo<()>,
    ) {
        match result {
            Ok(()) => self.background.start(Task::Discard { claims, answer }),
            Err(refusal) => drop(answer.send(Err(refused(refusal)))),
        }
    }

    /// Volumes are to leave the log before the stop: all of them, or those that have nothing there.
    pub(in super::super) fn leave_log_for_stop(&mut self, now: Instant) {
        let keys: Vec<usize> = self.volumes.iter().map(|(key, _)| key).collect();
        for key in keys {
            let dirty = self.volumes[key].writes.place().and_then(|place| {
                let status = self.writes.log()?.status(place)?;
                Some(status.dirty_bytes > 0)
            });
            if dirty == Some(false) || self.drain_on_stop {
                self.leave_log(now, key, Change::None, (false, false));
            }
        }
    }

    /// Whether a volume is on its way out of the log.
    pub(in super::super) fn is_leaving_log(&self) -> bool {
        self.volumes.iter().any(|(_, volume)| volume.writes.leaves())
    }

    /// Makes everything in the log durable; false if there is none.
    pub(in super::super) fn close_log(&mut self) -> bool {
        let Some(running) = self.writes.running() else { return false };
        running.ask(Asked::Close, Command::Close);
        true
    }

    pub(super) fn log_closed(&mut self, now: Instant, result: Result<(), Refusal>) {
        if let Err(refusal) = result {
            tracing::error!(reason = %refusal, "the write log was not closed");
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
