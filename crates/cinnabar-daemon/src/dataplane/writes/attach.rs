//! Volumes that are attached: by way of the write log, if they are in write-back mode or have writes
//! there.

use super::{PendingCommand, Subject, Writes, refused};
use crate::dataplane::plane::DataPlane;
use crate::dataplane::volume::{Change, Fault, Volume};
use cinnabar_backend::disk::DiskKind;
use cinnabar_backend::entropy;
use cinnabar_backend::spec::Place as BackendPlace;
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind, VolumeMode};
use cinnabar_config::volume::backend_place;
use cinnabar_engine::units::Instant;
use cinnabar_writeback::{Command, Refusal};

impl DataPlane {
    /// Attaches an installed volume.
    pub(in super::super) fn attach(&mut self, key: usize, answer: Option<AnswerTo<()>>) {
        let config = &self.volumes[key].config;
        let held = self.writes.place_of(&config.name).is_some();
        if config.mode != VolumeMode::WriteBack && !held {
            return self.attach_to_engines(key, answer);
        }
        let now = self.data_thread.clock.now();
        let kind = CommandErrorKind::Invalid;
        let refused = match &self.writes {
            Writes::Off => {
                let message = "mode write-back needs a write log, and none is configured";
                Some(CommandError::new(kind, message, "set write_log in [cache]"))
            }
            Writes::Missing { reason, .. } => {
                let hint = "restart the daemon when it is there";
                Some(CommandError::new(CommandErrorKind::Io, reason.clone(), hint))
            }
            Writes::On(_) if config.read_only => {
                let message = "the write log holds writes of it, and it is read-only";
                Some(CommandError::new(kind, message, "serve it writable until they are written"))
            }
            Writes::On(_) if config.mode == VolumeMode::WriteBack => self.unguarded(key),
            // It is there only until its writes are where they belong.
            Writes::On(_) => None,
        };
        if let Some(error) = refused {
            return self.refuse_attach(now, key, answer, error);
        }
        match entropy::bytes().map(u64::from_le_bytes) {
            Ok(incarnation) => {
                self.volumes[key].claims = self.claims_for(key, incarnation);
                self.volumes[key].change = Change::Attach(answer);
                let step = self.volumes[key].writes.join(false);
                self.write_step(now, key, step);
            }
            Err(error) => {
                let message = format!("no random numbers: {error}");
                let error = CommandError::new(CommandErrorKind::Limit, message, "");
                self.refuse_attach(now, key, answer, error);
            }
        }
    }

    /// Why no other host would know that a volume in write-back mode is in use here.
    pub(super) fn unguarded(&self, key: usize) -> Option<CommandError> {
        let Volume { config, io, .. } = &self.volumes[key];
        let is_image = backend_place(&config.backend)
            .is_some_and(|place| matches!(place, BackendPlace::Rbd(_)));
        let has_claim = config.claim.is_some() || config.exclusive || is_image;
        if io.disk.kind() == DiskKind::File || has_claim {
            return None;
        }
        let message =
            "mode write-back needs a place for the volume's claim, for its back end is no file";
        let hint = "set claim to a file that every host of this back end sees, or exclusive = true \
                    if no other host serves it";
        Some(CommandError::new(CommandErrorKind::Invalid, message, hint))
    }

    /// A volume can't be attached, and no engine was asked.
    pub(in super::super) fn refuse_attach(
        &mut self,
        now: Instant,
        key: usize,
        answer: Option<AnswerTo<()>>,
        error: CommandError,
    ) {
        self.remove_exports(key);
        let volume = &mut self.volumes[key];
        volume.answer = answer;
        volume.failed = Some(Fault::Attach(error));
        volume.life.refused();
        self.admit_waiting(now, key);
        self.submit_early(now, key);
        self.forget_if_quiet(key);
    }
}

impl DataPlane {
    /// A volume has grown: has the log know of it, if the volume is there. Gives the answer back if not.
    pub(in super::super) fn grow_in_log(
        &mut self,
        (key, attachment): (usize, u64),
        size_bytes: u64,
        answer: AnswerTo<u64>,
    ) -> Option<AnswerTo<u64>> {
        let is_it = |volume: &&Volume| volume.io.attachment == attachment;
        let place = self.volumes.get(key).filter(is_it).and_then(|volume| volume.writes.place());
        let Some(place) = place else { return Some(answer) };
        let subject = self.subject(key);
        let running = self.writes.running()?;
        let command = Command::Grow { place, size_bytes };
        running.ask(PendingCommand::Grow(subject, size_bytes, answer), command);
        None
    }

    pub(super) fn log_has_grown(
        &mut self,
        subject: Subject,
        size_bytes: u64,
        result: Result<(), Refusal>,
        answer: AnswerTo<u64>,
    ) {
        let Some(key) = self.key_of(subject) else {
            let _ = answer.send(Err(CommandError::gone()));
            return;
        };
        let attachment = self.volumes[key].io.attachment;
        // It has left meanwhile: the engines know of the size, and that is all it takes.
        let result = if result == Err(Refusal::NoVolume) { Ok(()) } else { result };
        self.tell_size(key, attachment, size_bytes, result.map_err(refused), answer);
    }
}

impl Writes {
    /// A volume is in the log no more, or its key will be another one's.
    pub(in super::super) fn forget(&mut self, key: usize) {
        if let Some(running) = self.running() {
            running.volumes.iter_mut().filter(|of| **of == Some(key)).for_each(|of| *of = None);
        }
    }
}
