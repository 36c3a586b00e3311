//! The write memory: writes of volumes with `ack = "memory"` are acknowledged when they are there.

use super::open::OpenFailed;
use super::{Running, Writes};
use crate::dataplane::plane::DataPlane;
use crate::dataplane::volume::Volume;
use cinnabar_backend::disk::BoundedMedia;
use cinnabar_backend::write_memory::{WriteMemory, WriteMemoryError, boot_id};
use cinnabar_backend::{Memory, entropy};
use cinnabar_config::messages::{
    Ack, CommandError, CommandErrorKind, StartError, StartErrorKind, Subject, WriteLogConfig,
    WriteMemoryStatus,
};
use cinnabar_engine::RequestId;
use cinnabar_engine::units::Instant;
use cinnabar_writeback::memory::{Host, MemoryAt, MemoryOp, open_with, release};
use cinnabar_writeback::recover::{Media, OpenError};
use cinnabar_writeback::{Command, Config, Event, LogVolumeId, WriteLog};
use std::sync::Arc;
use std::time::Duration;

/// Recovers a log, with what a killed daemon has left in memory.
pub(super) fn open(
    settings: &WriteLogConfig,
    (media, bytes): (&impl Media<Memory>, u64),
    config: Config,
) -> Result<(WriteLog<Memory>, Option<WriteMemory>), OpenFailed> {
    let file = settings.memory.as_ref().map(|of| WriteMemory::open(&of.path, of.size_bytes));
    let file = file.transpose().map_err(|error| unusable(&error))?;
    let missing = |reason: String| OpenFailed::Missing(reason);
    let boot = boot_id().map_err(|error| missing(format!("the boot of this host: {error}")))?;
    let nonce = entropy::bytes().map(u64::from_le_bytes);
    let nonce = nonce.map_err(|error| missing(format!("no random numbers: {error}")))?;
    let path = file.as_ref().map_or("", |file| file.path().to_str().unwrap_or_default());
    let memory = file.as_ref().map(|file| {
        let may_be_lost = file.was_emptied();
        MemoryAt { file, path, nonce, may_be_lost }
    });
    let log = open_with(media, bytes, config, &Host { boot, memory });
    let log = log.map_err(|error| {
        let hint = match &error {
            OpenError::Memory(path) => format!(
                " (hint: set write_memory = {path:?} as before; if it is gone for good, what no \
                 flush covered is lost: `: > FILE` makes an empty write_memory that says so)"
            ),
            OpenError::MemoryOfAnother(path) => format!(
                " (hint: each write log needs a write_memory of its own; start that log's daemon with \
                 {path:?}, or give up what no flush of its guests covered: `: > {path}`)"
            ),
            OpenError::MemoryDamaged { .. } => format!(
                " (hint: `: > {path}` gives up what no flush covered; everything else is in the log)"
            ),
            _ => String::new(),
        };
        missing(format!("write log {}: {error}{hint}", settings.path.display()))
    })?;
    if file.as_ref().is_some_and(WriteMemory::was_emptied) {
        tracing::warn!(path, "the write memory was empty: what no flush covered was given up");
    }
    Ok((log, file))
}

fn unusable(error: &WriteMemoryError) -> OpenFailed {
    if error.may_pass() {
        return OpenFailed::Missing(format!("{error} (hint: {})", error.hint()));
    }
    let (kind, subject) = (StartErrorKind::Resources, Subject::Daemon);
    OpenFailed::Fatal(StartError::new(kind, subject, error.to_string(), error.hint()))
}

impl Writes {
    /// Does something to the write memory, at once.
    pub(super) fn store(&self, op: &MemoryOp<Memory>) {
        if let Self::On(running) = self {
            op.carry_out(running.memory.as_ref().expect("the log was opened with one"));
        }
    }
}

impl Running {
    /// How writes of the volume at a place are acknowledged from now on.
    pub(super) fn acknowledge(&mut self, place: LogVolumeId, ack: Ack) {
        let memory = ack == Ack::Memory;
        let command = Command::Acknowledge { place, memory };
        // It is not answered.
        self.events.push(Event::Control(RequestId(u64::MAX), command));
    }

    pub(super) fn memory_status(&self, now: Instant) -> Option<WriteMemoryStatus> {
        let (file, status) = (self.memory.as_ref()?, self.log.memory(now)?);
        Some(WriteMemoryStatus {
            path: file.path().to_owned(),
            size_bytes: status.size_bytes,
            used_bytes: status.used_bytes,
            age: Duration::from_nanos(status.age_ns),
        })
    }
}

impl DataPlane {
    /// Whether the log that there is can acknowledge a volume's writes so.
    pub(in crate::dataplane) fn check_memory(&mut self, ack: Ack) -> Result<(), CommandError> {
        let has = self.writes.running().is_some_and(|running| running.memory.is_some());
        if ack == Ack::Durable || has {
            return Ok(());
        }
        let message = "ack = \"memory\" needs a write memory";
        let hint = "set write_memory in [cache], and start the daemon again";
        Err(CommandError::new(CommandErrorKind::Invalid, message, hint))
    }

    /// Tells the log how a volume's writes are acknowledged, if they go there.
    pub(in crate::dataplane) fn acknowledge(&mut self, key: usize) {
        let Volume { writes, config, .. } = &self.volumes[key];
        if let (Some(place), Some(running)) = (writes.place(), self.writes.running()) {
            running.acknowledge(place, config.ack);
        }
    }

    /// The log has been closed: nothing in its memory counts any more.
    pub(super) fn release_memory(&mut self) {
        let Some(running) = self.writes.running() else { return };
        let Some(file) = &running.memory else { return };
        // One that says nothing of it is newer: the next start has the other half say the same.
        let released = running.halves.in_use().try_for_each(|(_, disk)| {
            release(&BoundedMedia::new(Arc::clone(disk), running.halves.bound())?)
        });
        match released {
            Ok(()) => file.remove(),
            Err(error) => tracing::warn!(%error, "the write memory stays for the next start"),
        }
    }
}
