//! The engine's first steps: open the device, or go on without it; attach the volumes.
//!
//! Called at start-up. The loop turns already, but nobody can reach it yet.

use super::clock::after;
use super::control::PendingCommand;
use super::device;
use super::plane::DataPlane;
use super::worker::WorkerEvent;
use cinnabar_config::messages::{StartConfig, StartError, StartErrorKind, Subject};
use cinnabar_driver::Silence;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::{Command, Failure, IoError};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Longest opening of a cache device, journal and volumes included, before it counts as lost.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait for volumes to join the write log.
const CLAIMS_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often that, and a wish to stop, is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
impl DataPlane {
    /// Opens the engine, after formatting the device if `blank` are its superblocks. A device that
    /// fails or hangs is given up, unless it is required.
    pub(super) fn open(
        &mut self,
        config: &StartConfig,
        blank: Option<&[Superblock]>,
    ) -> Result<(), StartError> {
        let since = self.data_thread.clock.now();
        let formatted = match (blank, self.cache.shared()) {
            (Some(superblocks), Some(disk)) => {
                let timeout = config.cache.device_timeout;
                device::format_configured(disk, superblocks, timeout, &self.open_options)
            }
            _ => Ok(()),
        };
        let has_device = self.cache.disk().is_some();
        let opened = match formatted {
            Ok(()) if has_device => self.try_device(config)?,
            Ok(()) => self.try_open(config)?.map_err(|failure| self.open_failure(failure)),
            Err(error) => Err(error),
        };
        let reason = match opened {
            Ok(()) => {
                if has_device {
                    self.await_load(since);
                }
                return Ok(());
            }
            Err(reason) if config.cache.required => return Err(reason),
            Err(reason) => reason,
        };
        // What hangs in the kernel is nobody's any more.
        self.shard_set.leave_cache(&mut self.data_thread);
        self.seat_without_device(config);
        self.cache.give_up(reason.message);
        self.forget_engines();
        self.try_open(config)?.map_err(|failure| self.open_failure(failure))
    }

    /// Opens the engine on the device; the inner error is the device's.
    fn try_device(&mut self, config: &StartConfig) -> Result<Result<(), StartError>, StartError> {
        self.cache.life.begin();
        self.follow_device();
        let opened = self.try_open(config)?;
        self.cache.life.begun(opened);
        self.follow_device();
        Ok(opened.map_err(|failure| self.open_failure(failure)))
    }

    /// What the engines that were seated have said so far is of no concern. Guests' requests are, which
    /// other threads pass on all the time, and I/O that is not the engines'.
    pub(super) fn forget_engines(&mut self) {
        self.awaited.clear();
        self.replies.clear();
        self.said.retain(|said| !said.is_of_engine());
        self.heard.take(&mut self.heard_early);
        let of_engine =
            |heard: &_| matches!(heard, WorkerEvent::DataThread(_, said) if said.is_of_engine());
        self.heard_early.retain(|heard| !of_engine(heard));
    }

    /// What it means that a device which was open can't be used.
    fn open_failure(&self, error: Failure) -> StartError {
        let message = super::disks::with_path("cache device", &self.cache.path, &error);
        let hint = "see the kernel log (dmesg) for the device's errors";
        StartError::new(StartErrorKind::Io, Subject::Cache, message, hint)
    }

    /// Opens the engine on what there is: the inner error is its own.
    fn try_open(&mut self, config: &StartConfig) -> Result<Result<(), Failure>, StartError> {
        self.opened = None;
        self.command(PendingCommand::Open, &Command::Open);
        let mut silence = Silence::since(self.data_thread.clock.now());
        // So that the loop looks at the time even if nothing happens.
        while self.opened.is_none() {
            if config.cancel.load(Relaxed) {
                let message = "given up while the cache device was being opened";
                let kind = StartErrorKind::Cancelled;
                return Err(StartError::new(kind, Subject::Cache, message, ""));
            }
            if silence.is_over(self.data_thread.clock.now(), OPEN_WAIT_MAX) {
                return Ok(Err(Failure::Io(IoError::TimedOut)));
            }
            self.look_at = Some(after(self.data_thread.clock.now(), LOOK_EVERY));
            self.turn()?;
        }
        Ok(self.opened.take().unwrap_or(Ok(())))
    }

    /// Attaches the volumes, and waits until the device knows of them, or is given up. One that can't
    /// be attached waits, to be tried again.
    pub(super) fn attach_all(&mut self, keys: &[usize]) -> Result<(), StartError> {
        for key in keys {
            self.attach(*key, None);
        }
        // Claims lie where back ends do: one that hangs does not keep others from being served.
        let until = after(self.data_thread.clock.now(), CLAIMS_WAIT_MAX);
        while self.is_attaching() {
            let now = self.data_thread.clock.now();
            if now >= until && !self.is_asked_to_attach() {
                break;
            }
            self.look_at = Some(after(now, LOOK_EVERY));
            self.turn()?;
        }
        Ok(())
    }
}
