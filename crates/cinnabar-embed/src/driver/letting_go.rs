//! A cache device that is not used any more: noticed, given up by the engine, let go of.
//!
//! Its lock goes with it, so that another program, or a replacement, can have it at once. What hangs
//! in the kernel may still write to it: such a device stays locked until the last of that has ended.

use super::{Driver, PendingCommand, after};
use cinnabar_backend::FileId;
use cinnabar_driver::{DevicePhase, DeviceStep};
use cinnabar_engine::health::Health;
use cinnabar_engine::{Command, Failure};

impl Driver {
    /// Gives up a device that the engine has lost.
    pub(super) fn watch_device(&mut self) {
        if self.device.life.phase() == DevicePhase::InUse
            && let Health::PassThrough(_) = self.engine.health()
        {
            let reason = self.degraded().unwrap_or_default();
            tracing::error!(
                path = %self.device.path.display(),
                reason,
                "the cache device is lost: volumes pass through (hint: `Cache::replace` takes another)"
            );
            self.lose_device();
        }
    }

    /// Has the engine give up the device, unless that is under way.
    pub(super) fn lose_device(&mut self) {
        if let DeviceStep::GiveUp = self.device.life.lost() {
            self.hurry_device();
            self.order(PendingCommand::GiveUp, Command::Abandon);
        }
    }

    /// The engine has given up a device that was lost.
    pub(super) fn lost_device_given_up(&mut self, result: Result<(), Failure>) {
        match self.device.life.given_up(result) {
            DeviceStep::LetGo => {
                self.close_device();
                self.device.life.let_go();
            }
            DeviceStep::Ended(Err(error)) => {
                tracing::warn!(reason = %error.failure, "the cache device was not given up");
            }
            _ => {}
        }
    }

    /// Lets go of the device. No engine waits for I/O on it.
    pub(super) fn close_device(&mut self) {
        let Some((file, disk)) = self.device.take_open() else { return };
        self.loaded = None;
        let mut hangs = false;
        for io in self.ios.iter_mut().filter(|io| io.of.volume.is_none() && io.of.file == file) {
            (io.deadline, hangs) = (None, true);
        }
        if hangs {
            self.device.left.push((file, disk));
        } else {
            self.port.unregister(file);
        }
    }

    /// An I/O on a device has ended: lets go of it if it was left and that was the last one.
    pub(super) fn close_left(&mut self, file: FileId) {
        let Some(place) = self.device.left.iter().position(|left| left.0 == file) else { return };
        if !self.ios.iter().any(|io| io.of.volume.is_none() && io.of.file == file) {
            self.device.left.swap_remove(place);
            self.port.unregister(file);
        }
    }

    /// All I/O on the device has to come to an end: what has no bound gets one.
    pub(super) fn hurry_device(&mut self) {
        let (Some(file), true) = (self.device.file(), self.device.timeout.is_zero()) else {
            return;
        };
        let due = after(self.now(), self.device.bound());
        for io in self.ios.iter_mut().filter(|io| io.of.volume.is_none() && io.of.file == file) {
            io.deadline.get_or_insert(due);
        }
        self.ios.look_by(Some(due));
    }

    /// The device may take its time again, if it has no time-out.
    pub(super) fn ease_device(&mut self) {
        let (Some(file), true) = (self.device.file(), self.device.timeout.is_zero()) else {
            return;
        };
        for io in self.ios.iter_mut().filter(|io| io.of.volume.is_none() && io.of.file == file) {
            io.deadline = None;
        }
    }
}
