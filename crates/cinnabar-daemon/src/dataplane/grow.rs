//! A backend that has grown: `cinnabar volume resize`.
//!
//! Steps: a background thread asks how large the backend is and proves it as it stands; the engines,
//! and through them the device, know of the size; then the servers. Nothing is dropped. A backend
//! that has shrunk is no matter of a command: its guests count on what is gone.

use super::background::Task;
use super::control::{PendingCommand, failed};
use super::plane::DataPlane;
use cinnabar_config::messages::{AnswerTo, CommandError, CommandErrorKind};
use cinnabar_driver::Phase;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::volume::ProofToken;
use cinnabar_engine::{Command, Failure};
use std::sync::Arc;

impl DataPlane {
    pub(super) fn resize_volume(&mut self, name: &str, answer: AnswerTo<u64>) {
        let key = match self.find(name) {
            Ok(_) if self.stop.is_some() => return drop(answer.send(Err(CommandError::gone()))),
            Ok(key) => key,
            Err(error) => return drop(answer.send(Err(error))),
        };
        if self.volumes[key].writes.changes() {
            let message = format!("volume {name:?} is changing its mode");
            let hint = "try again in a moment";
            let error = CommandError::new(CommandErrorKind::Busy, message, hint);
            return drop(answer.send(Err(error)));
        }
        let io = &self.volumes[key].io;
        if !io.disk.size_bytes().is_multiple_of(BLOCK_BYTES) {
            let message = format!("the last block of {name:?} is not a whole one");
            let hint = "remove the volume and add it again; its blocks are dropped";
            let error = CommandError::new(CommandErrorKind::Invalid, message, hint);
            return drop(answer.send(Err(error)));
        }
        let (attachment, disk) = (io.attachment, Arc::downgrade(&io.disk));
        self.background.start(Task::Grow { volume: key, attachment, disk, answer });
    }

    /// It is known how large the backend is.
    pub(super) fn grown(
        &mut self,
        key: usize,
        attachment: u64,
        result: Result<(u64, Option<ProofToken>), CommandError>,
        answer: AnswerTo<u64>,
    ) {
        let volume = self.volumes.get_mut(key).filter(|volume| {
            volume.io.attachment == attachment && volume.life.phase() == Phase::Serving
        });
        let Some(volume) = volume else { return drop(answer.send(Err(CommandError::gone()))) };
        let (size_bytes, proof) = match result {
            Ok(found) => found,
            Err(error) => return drop(answer.send(Err(error))),
        };
        volume.note_size(size_bytes);
        let served = volume.io.disk.size_bytes();
        if size_bytes == served && !volume.grow_due {
            // The log may have been busy when the engines had grown.
            let status = |place| self.writes.log()?.status(place);
            let in_log = self.volumes[key].writes.place().and_then(status);
            if in_log.is_some_and(|status| status.size_bytes < served) {
                return self.has_grown(key, attachment, served, Ok(()), answer);
            }
            return drop(answer.send(Ok(served)));
        }
        if size_bytes < served {
            let message =
                format!("the backend has {size_bytes} bytes, fewer than the {served} served");
            let hint = "make it as large again as it was, or remove the volume and add it again";
            let error = CommandError::new(CommandErrorKind::Invalid, message, hint);
            return drop(answer.send(Err(error)));
        }
        let proof = volume.life.proof_to_record(proof);
        let proof = proof.map(|proof| proof.of_attachment(attachment));
        let id = volume.life.id().expect("a volume that serves is attached");
        // From now on the port lets it pass; the engines do when they know.
        volume.io.disk.grow_to(size_bytes);
        volume.grow_due = true;
        let awaited = PendingCommand::Grow(key, attachment, size_bytes, answer);
        self.command(awaited, &Command::Grow(id, size_bytes, proof));
    }

    /// The engines know of the size.
    pub(super) fn has_grown(
        &mut self,
        key: usize,
        attachment: u64,
        size_bytes: u64,
        result: Result<(), Failure>,
        answer: AnswerTo<u64>,
    ) {
        let volume = self.volumes.get_mut(key).filter(|volume| volume.io.attachment == attachment);
        if let (Ok(()), Some(volume)) = (&result, volume) {
            volume.grow_due = false;
        }
        let result = result.map_err(|error| failed("growing the volume", error));
        let answer = match result {
            Ok(()) => match self.grow_in_log((key, attachment), size_bytes, answer) {
                // The log knows of it first.
                None => return,
                Some(answer) => answer,
            },
            Err(_) => answer,
        };
        self.tell_size(key, attachment, size_bytes, result, answer);
    }

    /// Everything below the servers knows of the size.
    pub(super) fn tell_size(
        &mut self,
        key: usize,
        attachment: u64,
        size_bytes: u64,
        result: Result<(), CommandError>,
        answer: AnswerTo<u64>,
    ) {
        let volume = self.volumes.get(key).filter(|volume| volume.io.attachment == attachment);
        if let (Ok(()), Some(volume)) = (&result, volume) {
            let volume = volume.config.name.clone();
            self.tell_front_size(key, size_bytes);
            tracing::info!(
                volume,
                size_bytes,
                "the volume has grown: guests see it when they connect the next time"
            );
        }
        let _ = answer.send(result.map(|()| size_bytes));
    }
}
