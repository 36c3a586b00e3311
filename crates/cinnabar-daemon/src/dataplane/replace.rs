//! Another cache device while volumes are served: `cinnabar cache replace`.
//!
//! Steps of a replacement ([`DeviceLife`](cinnabar_driver::DeviceLife) has their order): a background
//! thread opens, locks and formats the new device; the engine gives up the old one; that is let go of;
//! the volumes' generations are entrusted to the new one, durably, so that the old one is never
//! believed again; the engine goes on with the new one. Until then volumes pass through. What fails
//! before the old one is given up changes nothing; what fails later leaves them passing through.
//!
//! A new device that does not answer while it is opened is left to its thread, and changes nothing:
//! the old one is in use still. What comes of it later is closed.

use super::background::Task;
use super::clock::after;
use super::control::{PendingCommand, command_error};
use super::device::{OpenedDevice, start_error};
use super::device_life::busy;
use super::plane::DataPlane;
use cinnabar_backend::disk::{DiskError, DiskErrorKind, OpenOptions, Progress};
use cinnabar_backend::generations::StateError;
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind, NewCache};
use cinnabar_config::units::write_size;
use cinnabar_driver::DevicePhase;
use cinnabar_driver::device_life::ReplacementId;
use cinnabar_engine::plan::{Plan, VolumePlan};
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Command, Failure};
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait of an operator's command where no time-out is set: for I/O on a device that is to be
/// let go of or opened in another's place, for a range that a back end's write is under way in.
pub(super) const SILENCE_MAX: Duration =
    if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(30) };
/// New devices that don't answer: each keeps a thread.
const HANGING_MAX: usize = 8;
/// How often it is looked whether one does.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A replacement under way, as its operator asked for it.
pub(super) struct Replacing {
    id: ReplacementId,
    path: PathBuf,
    /// How far the opening of the new device has come, and by which it is given up.
    progress: Progress,
    answer: AnswerTo<()>,
}

impl DataPlane {
    pub(super) fn replace_cache(&mut self, new: NewCache, answer: AnswerTo<()>) {
        let now = self.data_thread.clock.now();
        let id = match self.begin_replacing(now) {
            Ok(id) => id,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let progress = Progress::default();
        let options = OpenOptions { progress: progress.clone(), ..self.open_options.clone() };
        self.replacing = Some(Replacing { id, path: new.device.clone(), progress, answer });
        let (shards, taken) = (self.shard_set.shards(), self.taken());
        self.background.start(Task::OpenDevice { id, new, shards, options, taken });
        self.look_at_new_device(now);
    }

    fn begin_replacing(&mut self, now: Instant) -> Result<ReplacementId, CommandError> {
        self.may_change_device()?;
        if self.background.devices() >= HANGING_MAX {
            let message = format!("{HANGING_MAX} cache devices are being opened and don't answer");
            let hint = "see the kernel log (dmesg)";
            return Err(CommandError::new(CommandErrorKind::Busy, message, hint));
        }
        self.cache.life.replace(now).map_err(busy)
    }

    /// Gives up a new device that gets nowhere, and sees to it that it is looked at again.
    pub(super) fn look_at_new_device(&mut self, now: Instant) {
        let Some(replacing) = &self.replacing else { return };
        if !self.cache.life.is_preparing(replacing.id) {
            return;
        }
        if self.cache.life.is_silent(now, replacing.progress.steps()) {
            replacing.progress.give_up();
            let kind = DiskErrorKind::Silent(self.silence_max());
            let error = DiskError { path: replacing.path.clone(), kind };
            let mut error = command_error(&start_error(&error));
            "see the kernel log (dmesg); nothing has changed, name another device"
                .clone_into(&mut error.hint);
            return self.end_replacing(Err(error));
        }
        let next = after(now, LOOK_EVERY);
        self.look_at = Some(self.look_at.map_or(next, |at| at.min(next)));
    }

    /// The new device is open and formatted, or not.
    pub(super) fn device_opened(
        &mut self,
        id: ReplacementId,
        result: Result<Box<OpenedDevice>, CommandError>,
    ) {
        match result {
            Ok(new) => match self.cache.life.prepared(id, new) {
                Ok(step) => self.device_step(step),
                // It was given up in the moment in which it answered. Closing it may take long.
                Err(late) => self.background.start(Task::Close(late)),
            },
            Err(error) if self.cache.life.is_preparing(id) => {
                self.cache.life.not_prepared(id);
                self.end_replacing(Err(error));
            }
            Err(_) => {}
        }
    }

    /// Has the host record that the volumes are the new device's.
    pub(super) fn entrust(&mut self) {
        let Some(new) = self.cache.life.new_device() else { return };
        let (device, path) = (new.superblock.uuid, new.disk.path().to_owned());
        let names = self.volumes.iter().map(|(_, volume)| volume.config.name.clone()).collect();
        let ledger = self.ledger.clone();
        self.background.start(Task::Entrust { ledger, names, device, path });
    }

    /// The generations are the new device's from now on, durably.
    pub(super) fn entrusted(&mut self, result: Result<(), StateError>) {
        // The stop has ended the replacement.
        if self.cache.life.phase() == DevicePhase::Closing {
            return;
        }
        match result {
            Ok(()) => {
                let step = self.cache.life.entrusted();
                self.device_step(step);
            }
            Err(error) => {
                self.cache.life.not_installed();
                let error =
                    CommandError::new(CommandErrorKind::Io, error.to_string(), error.hint());
                self.end_replacing(Err(error));
            }
        }
    }

    /// Has the engine begin with the new device.
    pub(super) fn install_new(&mut self, new: OpenedDevice) {
        let OpenedDevice { disk, superblock } = new;
        match self.install_cache(disk, &superblock) {
            Ok(()) => {
                self.command(PendingCommand::Replace, &Command::Replace(Box::new(superblock)));
            }
            Err(errno) => {
                self.shard_set.close_cache(&mut self.data_thread);
                self.cache.life.not_installed();
                let error = CommandError::new(
                    CommandErrorKind::Limit,
                    format!("no place for another file: {errno}"),
                    "raise the limit on open files",
                );
                self.end_replacing(Err(error));
            }
        }
    }

    /// The engine goes on with the new device, or could not.
    pub(super) fn begun(&mut self, now: Instant, result: Result<(), Failure>) {
        if result.is_ok() {
            self.cache.replacements += 1;
            let capacity_blocks = self.capacity_blocks();
            let path = self.cache.path.display();
            // A size that is smaller would have it shrink at the next start.
            tracing::info!(
                %path, capacity_blocks,
                "the cache device was replaced (hint: name it in the configuration, too, and as its \
                 size {})",
                write_size(self.cache.used_bytes().next_multiple_of(1 << 20))
            );
            self.adopt_shares();
            self.await_load(now);
        } else {
            // The answer tells of it.
            self.cache.tell();
        }
        let step = self.cache.life.begun(result);
        self.device_step(step);
    }

    /// Percentages are of another capacity now.
    pub(super) fn adopt_shares(&mut self) {
        let plans = self.volumes.iter().filter_map(|(_, volume)| {
            let (min, max) = self.shares(&volume.config);
            Some(VolumePlan {
                share_min_blocks: Some(min),
                share_max_blocks: Some(max),
                ..VolumePlan::unchanged(volume.life.id()?)
            })
        });
        let volumes = plans.collect();
        self.shard_set
            .adopt(&mut self.data_thread, &Plan { volumes, admits: Some(!self.cache.throttled) });
    }

    /// Whether a replacement is under way whose new device is there.
    pub(super) fn has_prepared(&self) -> bool {
        let is_preparing = |replacing: &Replacing| self.cache.life.is_preparing(replacing.id);
        self.replacing.as_ref().is_some_and(|replacing| !is_preparing(replacing))
    }

    /// What comes of the new device later is of no use.
    pub(super) fn give_up_opening(&self) {
        if let Some(replacing) = &self.replacing {
            replacing.progress.give_up();
        }
    }

    pub(super) fn end_replacing(&mut self, result: Result<(), CommandError>) {
        if let Some(replacing) = self.replacing.take() {
            if let Err(error) = &result {
                tracing::warn!(reason = %error, "the cache device was not replaced");
            }
            let _ = replacing.answer.send(result);
        }
    }
}
