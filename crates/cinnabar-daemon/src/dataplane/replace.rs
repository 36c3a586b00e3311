//! Another cache device while volumes are served, or none: `cinnabar cache replace` and `abandon`.
//!
//! Steps of a replacement: a background thread opens, locks and formats the new device; the engine
//! gives up the old one; that is closed; the volumes' generations are entrusted to the new one,
//! durably, so that the old one is never believed again; the engine goes on with the new one. Until
//! then volumes pass through. What fails on the way leaves them passing through.
//!
//! A new device that does not answer while it is opened is left to its thread, and changes nothing:
//! the old one is in use still. What comes of it later is closed.

use super::background::Task;
use super::clock::after;
use super::control::{PendingCommand, command_error, failed};
use super::device::{OpenedDevice, start_error};
use super::patience::silence_max;
use super::plane::Plane;
use crate::generations::StateError;
use crate::messages::{
    AnswerTo, ByteRange, CommandError, CommandErrorKind, NewCache, StartError, StartErrorKind,
    Subject,
};
use cinnabar_backend::disk::{DiskError, DiskErrorKind, OpenOptions, Progress};
use cinnabar_driver::Silence;
use cinnabar_engine::health::Health;
use cinnabar_engine::plan::{Plan, VolumePlan};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant};
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

/// A replacement under way.
pub(super) struct Replacing {
    stage: Stage,
    answer: AnswerTo<()>,
}

enum Stage {
    Opening(Opening),
    /// It is open, and waits for the old one to be let go of.
    Opened(Box<OpenedDevice>),
    /// It takes the old one's place.
    Installing,
}

/// A new device that is being opened, measured and formatted.
struct Opening {
    path: PathBuf,
    /// How far it has come, and by which it is given up.
    progress: Progress,
    /// As it was last looked at.
    steps: u64,
    /// Since then.
    silence: Silence,
}

impl Plane {
    pub(super) fn replace_cache(&mut self, new: NewCache, answer: AnswerTo<()>) {
        if let Err(error) = self.may_change_device() {
            let _ = answer.send(Err(error));
            return;
        }
        if self.background.devices >= HANGING_MAX {
            let message = format!("{HANGING_MAX} cache devices are being opened and don't answer");
            let hint = "see the kernel log (dmesg)";
            let _ = answer.send(Err(CommandError::new(CommandErrorKind::Busy, message, hint)));
            return;
        }
        let progress = Progress::default();
        let taken = self.taken();
        let options = OpenOptions { progress: progress.clone(), ..self.open_options.clone() };
        let now = self.lane.clock.now();
        let stage = Stage::Opening(Opening {
            path: new.device.clone(),
            progress,
            steps: 0,
            silence: Silence::since(now),
        });
        self.replacing = Some(Replacing { stage, answer });
        let shards = self.crew.shards();
        self.background.start(Task::OpenDevice { new, shards, options, taken });
        self.look_at_new_device(now);
    }

    /// How long an operation on a cache device may take before an operator is answered.
    pub(super) fn silence_max(&self) -> Duration {
        silence_max(self.cache.timeout)
    }

    /// Gives up a new device that gets nowhere, and sees to it that it is looked at again.
    pub(super) fn look_at_new_device(&mut self, now: Instant) {
        let bound = self.silence_max();
        let Some(Replacing { stage: Stage::Opening(opening), .. }) = &mut self.replacing else {
            return;
        };
        let steps = opening.progress.steps();
        if steps != opening.steps {
            (opening.steps, opening.silence) = (steps, Silence::since(now));
        }
        if opening.silence.is_over(now, bound) {
            let kind = DiskErrorKind::Silent(bound);
            let error = DiskError { path: opening.path.clone(), kind };
            let mut error = command_error(&start_error(&error));
            "see the kernel log (dmesg); nothing has changed, name another device"
                .clone_into(&mut error.hint);
            return self.give_up_opening(error);
        }
        let next = after(now, LOOK_EVERY);
        self.look_at = Some(self.look_at.map_or(next, |at| at.min(next)));
    }

    /// The operator has this answer; the thread that opens it is left alone.
    pub(super) fn give_up_opening(&mut self, error: CommandError) {
        if let Some(Replacing { stage: Stage::Opening(opening), .. }) = &self.replacing {
            opening.progress.give_up();
            self.end_replacing(Err(error));
        }
    }

    /// One thing at a time: what is being opened was promised the device that is in use now.
    fn may_change_device(&self) -> Result<(), CommandError> {
        if self.stop.is_some() {
            return Err(CommandError::gone());
        }
        if self.replacing.is_some() || !self.opening.is_empty() || self.is_attaching() {
            let message = "a volume is being added or a device replaced";
            return Err(CommandError::new(
                CommandErrorKind::Busy,
                message,
                "try again in a moment",
            ));
        }
        Ok(())
    }

    /// The new device is open and formatted, or not.
    pub(super) fn device_opened(
        &mut self,
        progress: &Progress,
        result: Result<Box<OpenedDevice>, CommandError>,
    ) {
        let replacing = self.replacing.as_mut().filter(|replacing| match &replacing.stage {
            Stage::Opening(opening) => opening.progress.is(progress),
            Stage::Opened(_) | Stage::Installing => false,
        });
        match (replacing, result) {
            (Some(replacing), Ok(new)) => {
                replacing.stage = Stage::Opened(new);
                self.let_go_of_cache(None);
            }
            (Some(_), Err(error)) => self.end_replacing(Err(error)),
            // It was given up in the moment in which it answered. Closing it may take long.
            (None, Ok(new)) => {
                let thread = std::thread::Builder::new().name("cinnabar-slow".into());
                let _it_ends_by_itself = thread.spawn(move || drop(new));
            }
            (None, Err(_)) => {}
        }
    }

    pub(super) fn abandon_cache(&mut self, answer: AnswerTo<()>) {
        match self.may_change_device() {
            Ok(()) => self.let_go_of_cache(Some(answer)),
            Err(error) => {
                let _ = answer.send(Err(error));
            }
        }
    }

    /// Has the engines give up the device. An operator has the answer, even if the SSD never
    /// answers.
    fn let_go_of_cache(&mut self, answer: Option<AnswerTo<()>>) {
        let now = self.lane.clock.now();
        self.crew.hurry_cache(&mut self.lane, now, SILENCE_MAX);
        self.command(PendingCommand::Abandon(answer), &Command::Abandon);
    }

    /// The engine has given up the device. The answer is for whoever wanted no more than that.
    pub(super) fn abandoned(&mut self, result: Result<(), Failure>, answer: Option<AnswerTo<()>>) {
        let result = result.map_err(|error| failed("giving up the cache device", error));
        if result.is_ok() {
            self.close_cache();
        }
        match (answer, result) {
            (Some(answer), result) => {
                let _ = answer.send(result);
            }
            (None, Ok(())) if self.stop.is_none() => self.entrust(),
            (None, Ok(())) => self.end_replacing(Err(CommandError::gone())),
            (None, Err(error)) => self.end_replacing(Err(error)),
        }
    }

    fn entrust(&mut self) {
        let Some(Replacing { stage: Stage::Opened(new), .. }) = &self.replacing else { return };
        let (device, path) = (new.superblock.uuid, new.disk.path().to_owned());
        let names = self.volumes.iter().map(|(_, volume)| volume.config.name.clone()).collect();
        let ledger = self.ledger.clone();
        self.background.start(Task::Entrust { ledger, names, device, path });
    }

    /// The generations are the new device's from now on, durably.
    pub(super) fn entrusted(&mut self, result: Result<(), StateError>) {
        let Some(Replacing { stage: stage @ Stage::Opened(_), .. }) = &mut self.replacing else {
            return;
        };
        let Stage::Opened(new) = std::mem::replace(stage, Stage::Installing) else { return };
        if let Err(error) = result {
            let error = CommandError::new(CommandErrorKind::Io, error.to_string(), error.hint());
            return self.end_replacing(Err(error));
        }
        if self.stop.is_some() {
            return self.end_replacing(Err(CommandError::gone()));
        }
        let OpenedDevice { disk, superblock } = *new;
        match self.install_cache(disk, &superblock) {
            Ok(()) => {
                // An operator has the answer, even if the new one never answers.
                let now = self.lane.clock.now();
                self.crew.hurry_cache(&mut self.lane, now, SILENCE_MAX);
                self.command(PendingCommand::Replace, &Command::Replace(Box::new(superblock)));
            }
            Err(errno) => {
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
    pub(super) fn replaced(&mut self, now: Instant, result: Result<(), Failure>) {
        match result {
            Ok(()) => {
                self.crew.ease_cache(&mut self.lane);
                self.cache.replacements += 1;
                let capacity_blocks = self.capacity_blocks();
                let path = self.cache.path.display();
                tracing::info!(
                    %path, capacity_blocks,
                    "the cache device was replaced (hint: name it in the configuration, too)"
                );
                self.adopt_shares();
                self.await_load(now);
                self.end_replacing(Ok(()));
            }
            Err(error) => {
                let error = failed("beginning with the new cache device", error);
                self.end_replacing(Err(error));
            }
        }
    }

    /// Percentages are of another capacity now.
    fn adopt_shares(&mut self) {
        let plans = self.volumes.iter().filter_map(|(_, volume)| {
            let (min, max) = self.shares(&volume.config);
            Some(VolumePlan {
                volume: volume.life.id()?,
                mode: None,
                share_min_blocks: Some(min),
                share_max_blocks: Some(max),
            })
        });
        let volumes = plans.collect();
        self.crew.adopt(&mut self.lane, &Plan { volumes });
    }

    fn end_replacing(&mut self, result: Result<(), CommandError>) {
        if let Some(replacing) = self.replacing.take() {
            if let Err(error) = &result {
                tracing::warn!(reason = %error, "the cache device was not replaced");
            }
            let _ = replacing.answer.send(result);
        }
    }

    /// Drops what is cached of a volume, attached or not.
    pub(super) fn invalidate(
        &mut self,
        now: Instant,
        name: &str,
        range: Option<ByteRange>,
        answer: AnswerTo<()>,
    ) {
        if self.stop.is_some() {
            let _ = answer.send(Err(CommandError::gone()));
            return;
        }
        let span = self.find(name).and_then(|key| {
            let size = self.volumes[key].io.disk.size_bytes();
            let range = range.unwrap_or(ByteRange { offset: 0, len: size });
            if range.len == 0 || range.offset >= size || range.len > size - range.offset {
                let message = format!("the range is not within the {size} bytes of {name:?}");
                let hint = "give offset and len in bytes, or neither";
                return Err(CommandError::new(CommandErrorKind::Invalid, message, hint));
            }
            // Whole blocks: those that are only touched count, too.
            let start = range.offset / BLOCK_BYTES * BLOCK_BYTES;
            let end = (range.offset + range.len).next_multiple_of(BLOCK_BYTES).min(size);
            Ok((key, ByteSpan::new(start, end - start)))
        });
        match span {
            Ok((key, span)) => self.invalidate_span(now, key, span, answer),
            Err(error)
                if range.is_none()
                    && (error.kind == CommandErrorKind::NotFound
                        || self.absents.reason(name).is_some()) =>
            {
                let awaited = PendingCommand::Forget(name.to_owned(), answer);
                self.command(awaited, &Command::Forget(name.to_owned()));
            }
            Err(error) => {
                let _ = answer.send(Err(error));
            }
        }
    }

    /// The engine has dropped what it knew of a volume that is not attached. Without a device it
    /// knows of none, but one that comes back would.
    pub(super) fn forgotten(
        &mut self,
        name: String,
        result: Result<(), Failure>,
        answer: AnswerTo<()>,
    ) {
        match result {
            Err(Failure::NoVolume) if matches!(self.crew.health(), Health::PassThrough(_)) => {
                let ledger = self.ledger.clone();
                self.background.start(Task::Disown { ledger, name, answer });
            }
            Err(Failure::NoVolume) => drop(answer.send(Err(nothing_cached()))),
            result => drop(answer.send(result.map_err(|error| failed("dropping it", error)))),
        }
    }

    /// No device is believed in what it holds of a volume that is not attached; false: none was.
    pub(super) fn disowned(result: Result<bool, StateError>, answer: AnswerTo<()>) {
        let result = match result {
            Ok(true) => Ok(()),
            Ok(false) => Err(nothing_cached()),
            Err(error) => {
                Err(CommandError::new(CommandErrorKind::Io, error.to_string(), error.hint()))
            }
        };
        let _ = answer.send(result);
    }

    /// What it means that a device which was open can't be used.
    pub(super) fn open_failure(&self, error: Failure) -> StartError {
        let message = super::disks::with_path("cache device", &self.cache.path, &error);
        let hint = "see the kernel log (dmesg) for the device's errors";
        StartError::new(StartErrorKind::Io, Subject::Cache, message, hint)
    }
}

fn nothing_cached() -> CommandError {
    let message = "there is no such volume, and nothing of it is cached";
    let hint = "`cinnabar volume list` shows those there are";
    CommandError::new(CommandErrorKind::NotFound, message, hint)
}
