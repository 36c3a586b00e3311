//! The devices of a write log without a daemon: one, or the two halves of a mirrored log.

use super::marks::check_alone;
use super::{LogHalves, failed};
use crate::offline::OfflineError;
use crate::offline::image::LOCK_WAIT;
use cinnabar_backend::disk::{OpenOptions, existing_write_log};
use cinnabar_backend::{Disk, Memory, entropy};
use cinnabar_engine::{IoDone, IoId, IoOp};
use cinnabar_writeback::WriteLog;
use cinnabar_writeback::mirror::{
    Half, Mark, MarkState, Mirror, Out, Pair, force_alone, read_mark, start,
};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::recover::OpenError;
use std::path::Path;
use std::sync::Arc;

/// What a log is on while it is at work.
pub struct LogDevice {
    disks: LogHalves,
    mirror: Option<Mirror<Memory>>,
    out: Out<Memory>,
}

impl From<Arc<Disk>> for LogDevice {
    fn from(disk: Arc<Disk>) -> Self {
        Self { disks: [Some(disk), None], mirror: None, out: Out::default() }
    }
}

impl LogDevice {
    pub(super) fn mirrored(disks: LogHalves, mirror: Mirror<Memory>) -> Self {
        Self { disks, mirror: Some(mirror), out: Out::default() }
    }

    /// Its devices, each of which is there if I/O of it is asked for.
    pub(super) fn disks(&self) -> &LogHalves {
        &self.disks
    }

    /// The log asks for an I/O; it has read the page that it wants so often before.
    pub(super) fn submit(&mut self, id: IoId, op: IoOp<Memory>, before: u8) {
        match &mut self.mirror {
            Some(mirror) => mirror.submit(id, op, before, &mut self.out),
            None => self.out.ios.push((0, id, op)),
        }
    }

    /// An I/O of a half has ended.
    pub(super) fn done(&mut self, half: usize, done: IoDone) {
        match &mut self.mirror {
            Some(mirror) => mirror.done(half, &done, &mut self.out),
            None => self.out.done.push(done),
        }
    }

    /// The log has taken an event.
    pub(super) fn advance(&mut self, log: &WriteLog<Memory>) {
        if let Some(mirror) = &mut self.mirror {
            mirror.advance(log, &mut self.out);
        }
    }

    /// What is to be done, and what is for the log.
    pub(super) fn take(&mut self) -> Out<Memory> {
        std::mem::take(&mut self.out)
    }
}

/// Opens the devices of a log that are there, and locks them; empty ones do not count. Of a mirrored log
/// the second of the result says what is wrong with one that is missing.
pub(super) fn open_devices(
    log: &Path,
    mirror: Option<&Path>,
) -> Result<(LogHalves, Option<String>), OfflineError> {
    let options = OpenOptions { lock_wait: LOCK_WAIT, ..OpenOptions::default() };
    let open = |path: &Path| {
        let found = existing_write_log(path, &options)?;
        let device = path.display().to_string();
        let log = found.superblock.ok_or(OfflineError::NoWriteLog { device })?;
        Ok::<_, OfflineError>((found.disk, log))
    };
    let Some(mirror) = mirror else {
        let (disk, superblock) = open(log)?;
        let alone = check_alone(&disk, superblock);
        alone.map_err(|error| failed(&log.display().to_string(), error))?;
        return Ok(([Some(Arc::new(disk)), None], None));
    };
    let disk = |(disk, _)| Some(Arc::new(disk));
    match (open(log), open(mirror)) {
        (Ok(a), Ok(b)) => Ok(([disk(a), disk(b)], None)),
        (Ok(a), Err(error)) => Ok(([disk(a), None], Some(error.to_string()))),
        (Err(error), Ok(b)) => Ok(([None, disk(b)], Some(error.to_string()))),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Finds out which halves count, and levels them. What is rescued soon is in no need of another copy: a
/// half that is not complete is left as it is.
pub(super) fn pair(halves: &LogHalves) -> Result<Pair<'_, Disk>, OpenError> {
    start_pair(halves)?.without_filling::<Memory>()
}

pub(super) fn start_pair(halves: &LogHalves) -> Result<Pair<'_, Disk>, OpenError> {
    let half = |disk: &'_ Option<Arc<Disk>>| disk.is_some();
    debug_assert!(halves.iter().any(half), "one was opened");
    let given = halves.each_ref().map(|disk| {
        let media: &Disk = disk.as_ref()?;
        Some(Half { media, bytes: media.size_bytes() })
    });
    let nonce = u64::from_le_bytes(entropy::bytes()?);
    start::<Memory, Disk>(given, nonce, Mutants::default())
}

/// The halves given can't be used together, or one of them alone.
pub(super) fn refused(device: &str, missing: Option<&str>, error: OpenError) -> OfflineError {
    match (failed(device, error), missing) {
        (OfflineError::LogHalf { device, message, hint }, Some(missing)) => {
            let message = format!("{message}; {missing}");
            OfflineError::LogHalf { device, message, hint }
        }
        (error, _) => error,
    }
}

/// What helps if it is a matter of halves.
pub(super) const fn hint_of(error: &OpenError) -> Option<&'static str> {
    match error {
        OpenError::HalfMissing => Some(
            "name the other half with --mirror; if it is lost for good: cinnabar cache mirror DEVICE \
             --alone",
        ),
        OpenError::Incomplete => {
            Some("use the other half: this one lacks older writes and can't be used alone")
        }
        OpenError::Split => {
            Some("look at each with cinnabar cache check, and empty the one that is to be given up")
        }
        OpenError::Copies => Some("name the two halves; a copy of one does not count"),
        OpenError::OtherLog => Some("check the paths: write_log and write_log_mirror in [cache]"),
        _ => None,
    }
}

/// The operator's word that the other half of a mirrored log is lost for good: the one at this path counts
/// alone from now on. Gives its mark as it is then, and whether it was so before.
///
/// # Errors
/// If there is no write log, it is in use, or is not complete.
pub fn stand_alone(path: &Path) -> Result<(Mark, bool), OfflineError> {
    let options = OpenOptions { lock_wait: LOCK_WAIT, ..OpenOptions::default() };
    let found = existing_write_log(path, &options)?;
    let device = path.display().to_string();
    let Some(log) = found.superblock else { return Err(OfflineError::NoWriteLog { device }) };
    let failed = |error| failed(&device, error);
    let before = read_mark(&found.disk, log.uuid).map_err(failed)?;
    let was = before.is_none_or(|mark| mark.state == MarkState::Alone);
    let mark = force_alone(&found.disk).map_err(failed)?;
    Ok((mark, was))
}
