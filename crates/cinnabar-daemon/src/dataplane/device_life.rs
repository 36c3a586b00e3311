//! The life of the cache device in use: noticed to be lost, given up by the engine, let go of.
//!
//! [`DeviceLife`](cinnabar_driver::DeviceLife) says what comes next, whether the device was lost, an
//! operator abandons it or another one takes its place; here that is carried out. The lock of a device
//! goes with it, so that another program, or a replacement, can have it at once. What hangs in the
//! kernel may still write to it: such a device stays locked until the last of that has ended.

use super::control::{PendingCommand, failed};
use super::device::OpenedDevice;
use super::io_table::bound_of;
use super::patience::silence_max;
use super::plane::DataPlane;
use super::replace::SILENCE_MAX;
use cinnabar_backend::Disk;
use cinnabar_backend::work::IoInfo;
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind};
use cinnabar_config::status::report::why;
use cinnabar_driver::device_life::{DeviceBusy, DeviceError};
use cinnabar_driver::{DevicePhase, DeviceStep};
use cinnabar_engine::health::{Health, PassThroughReason};
use cinnabar_engine::{Command, Failure};
use std::sync::Weak;
use std::time::Duration;

/// What is to be done next with the cache device.
pub(super) type Step = DeviceStep<Box<OpenedDevice>>;

impl DataPlane {
    /// Does what comes next, until an answer is awaited.
    pub(super) fn device_step(&mut self, mut step: Step) {
        loop {
            step = match step {
                DeviceStep::Wait => break,
                DeviceStep::GiveUp => {
                    self.command(PendingCommand::GiveUp, &Command::Abandon);
                    DeviceStep::Wait
                }
                DeviceStep::LetGo => {
                    self.close_cache();
                    self.answer_abandoning(&Ok(()));
                    self.cache.life.let_go()
                }
                DeviceStep::Entrust => {
                    self.entrust();
                    DeviceStep::Wait
                }
                DeviceStep::Install(new) => {
                    self.install_new(*new);
                    DeviceStep::Wait
                }
                DeviceStep::Ended(result) => {
                    self.device_ended(result);
                    DeviceStep::Wait
                }
            };
        }
        self.follow_device();
    }

    /// What was asked for has ended; that may be less than a replacement which is under way.
    fn device_ended(&mut self, result: Result<(), DeviceError>) {
        let result = result.map_err(|DeviceError { what, failure }| failed(what, failure));
        self.answer_abandoning(&result);
        if self.has_prepared() {
            self.end_replacing(result);
        } else if let Err(error) = result {
            tracing::warn!(reason = %error, "the cache device was not given up");
        }
    }

    fn answer_abandoning(&mut self, result: &Result<(), CommandError>) {
        for answer in self.cache.abandoning.drain(..) {
            let _ = answer.send(result.clone());
        }
    }

    /// Operations on a device without a time-out have a bound while all of them have to come to an
    /// end, and no longer.
    pub(super) fn follow_device(&mut self) {
        let hurries = self.cache.life.hurries();
        if std::mem::replace(&mut self.cache.hurried, hurries) == hurries {
            return;
        }
        if hurries {
            let now = self.data_thread.clock.now();
            self.shard_set.hurry_cache(&mut self.data_thread, now, SILENCE_MAX);
        } else {
            self.shard_set.ease_cache(&mut self.data_thread);
        }
    }

    /// How long an operation on a cache device may take before an operator is answered.
    pub(super) fn silence_max(&self) -> Duration {
        silence_max(self.cache.timeout)
    }

    /// What is being opened was promised the device that is in use now.
    pub(super) fn may_change_device(&self) -> Result<(), CommandError> {
        if self.stop.is_some() {
            return Err(CommandError::gone());
        }
        if !self.opening.is_empty() || self.is_attaching() {
            return Err(busy(DeviceBusy));
        }
        Ok(())
    }

    pub(super) fn abandon_cache(&mut self, answer: AnswerTo<()>) {
        let step = self.may_change_device().and_then(|()| self.cache.life.abandon().map_err(busy));
        match step {
            Ok(step) => {
                self.cache.abandoning.push(answer);
                self.device_step(step);
            }
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    /// The engine has given up the device, or has not.
    pub(super) fn given_up(&mut self, result: Result<(), Failure>) {
        let step = self.cache.life.given_up(result);
        self.device_step(step);
    }

    fn lose_device(&mut self) {
        let step = self.cache.life.lost();
        self.device_step(step);
    }

    /// Says it once when the device is lost, and has it given up and let go of.
    pub(super) fn watch_health(&mut self) {
        self.shard_set.watch_health(&mut self.data_thread);
        let Health::PassThrough(reason) = self.shard_set.health() else { return };
        let uses = self.cache.life.can_be_lost();
        // Threads may be heard in another order than that in which they have run a shard.
        if uses && !self.is_without_device() {
            return;
        }
        if !self.begins_with_device() && self.cache.tell() {
            let path = self.cache.path.display();
            if reason == PassThroughReason::Abandoned || self.cache.hangs {
                tracing::warn!(%path, "the cache device is not used any more: volumes pass through");
            } else {
                self.cache.losses += 1;
                tracing::error!(
                    %path, reason = why(reason),
                    "the cache device is lost: volumes pass through (hint: exchange it with \
                     `cinnabar cache replace`)"
                );
            }
        }
        if uses {
            self.lose_device();
        }
    }

    fn is_without_device(&self) -> bool {
        let all = self.data_thread.ask(cinnabar_engine::Engine::health);
        matches!(Health::of_all(all.into_iter()), Health::PassThrough(_))
    }

    /// A shard that has not begun with a new device yet says what became of the old one.
    fn begins_with_device(&self) -> bool {
        match self.cache.life.phase() {
            DevicePhase::Opening => true,
            DevicePhase::Closing => self.replacing.is_some(),
            _ => false,
        }
    }

    /// What is under way on it ends when it ends; nothing new is begun. One that was in use before is given
    /// up already, whatever a thread that is late says of it.
    pub(super) fn give_up_hanging_device(&mut self, disk: &Weak<Disk>, what: IoInfo) {
        if self.cache.hangs || self.stop.is_some() || !self.cache.is(disk) {
            return;
        }
        let bound = bound_of(what.kind, self.silence_max());
        self.cache.hangs = true;
        // One that is not used any more, for another reason, has been counted if that was a loss.
        self.cache.losses += u64::from(!self.cache.is_told());
        tracing::error!(
            path = %self.cache.path.display(), operation = what.name, offset = what.offset,
            len = what.len, bound_s = bound.as_secs_f64(),
            "the cache device does not answer and is given up"
        );
        self.lose_device();
    }

    /// The device turned out to be smaller than what was formatted on it: what it held beyond is
    /// gone, and each read there would fail or, once it is written again, not be what it was.
    pub(super) fn give_up_short_device(&mut self, size_bytes: u64) {
        let needed = self.cache.formatted_bytes();
        if size_bytes >= needed || !self.cache.life.can_be_lost() {
            return;
        }
        let reason = format!("the cache device was cut short to {size_bytes} of {needed} bytes");
        tracing::error!(
            path = %self.cache.path.display(), reason,
            "the cache device is given up (hint: `cinnabar cache replace` takes another one)"
        );
        self.cache.cut_short = Some(format!("{reason} and was given up"));
        self.cache.losses += 1;
        self.lose_device();
    }

    /// The daemon stops: the device goes with it, and a replacement does not go on. One that the
    /// engine is beginning with is closed like any other.
    pub(super) fn stop_changing_device(&mut self) {
        self.give_up_opening();
        let begins = self.cache.life.phase() == DevicePhase::Opening;
        self.cache.life.close();
        if !begins {
            self.end_replacing(Err(CommandError::gone()));
        }
        self.answer_abandoning(&Err(CommandError::gone()));
        self.follow_device();
    }
}

/// One thing at a time.
pub(super) fn busy(_: DeviceBusy) -> CommandError {
    let message = "a volume is being added or a device replaced";
    CommandError::new(CommandErrorKind::Busy, message, "try again in a moment")
}
