//! Blocks that are dropped by command: `cinnabar volume invalidate`.

use super::background::Task;
use super::control::{PendingCommand, failed};
use super::plane::DataPlane;
use cinnabar_backend::generations::StateError;
use cinnabar_config::messages::{AnswerTo, ByteRange, CommandError, CommandErrorKind};
use cinnabar_engine::health::Health;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant};
use cinnabar_engine::{Command, Failure};

impl DataPlane {
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
            Err(Failure::NoVolume) if matches!(self.shard_set.health(), Health::PassThrough(_)) => {
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
}

fn nothing_cached() -> CommandError {
    let message = "there is no such volume, and nothing of it is cached";
    let hint = "`cinnabar volume list` shows those there are";
    CommandError::new(CommandErrorKind::NotFound, message, hint)
}
