//! A write log that no daemon uses: what is on it, and how its writes reach a back end.

mod check;
mod check_halves;
mod dump;
mod halves;
mod marks;
mod memory;
mod overlay;
mod report;
mod rescue;
mod session;
#[cfg(test)]
mod tests;

pub use check::{check, recognise};
pub use check_halves::check_mirrored;
pub use dump::dump;
pub use halves::{LogDevice, stand_alone};
pub use memory::{Remembered, noted};
pub use report::{HalfReport, LogVolumeReport, MemoryReport, WriteLogReport};
pub use rescue::{Rescued, Target, Wanted, rescue};
pub use session::Session;

use crate::offline::{OfflineError, Watch};
use cinnabar_backend::disk::{OpenOptions, open_write_log};
use cinnabar_backend::{Disk, Memory};
use cinnabar_writeback::WriteLog;
use cinnabar_writeback::memory::release;
use cinnabar_writeback::recover::{Found, Media, OpenError, Survey, format, survey};
pub use cinnabar_writeback::{Command, Config, Done, LogVolumeId};
use std::path::Path;
use std::sync::Arc;

/// A write log, open and locked, and looked at. Nothing has been written to it but what was in memory.
pub struct OpenLog {
    /// Its devices: the log's own, and its mirror.
    disks: LogHalves,
    /// Its path, for people.
    device: String,
    /// What was found on it.
    pub survey: Survey,
    /// What is wrong with a half that is missing, if the other one is known to hold everything.
    pub missing: Option<String>,
}

/// The log's own device, and its mirror.
type LogHalves = [Option<Arc<Disk>>; 2];

/// Opens the write log at a path, to bring its writes to a back end.
///
/// # Errors
/// If there is none, it is in use, or it is damaged.
pub fn open(path: &Path, watch: &mut dyn Watch) -> Result<OpenLog, OfflineError> {
    open_with_memory((path, None), &Remembered::Noted, watch)
}

/// The same, of a log and its mirror, if it has one. Writes that a killed daemon has left in memory are
/// brought to the log first.
///
/// # Errors
/// As [`open`]; if neither half is known to hold everything; and if writes are in memory, and that is not
/// there or is damaged.
pub fn open_with_memory(
    (path, mirror): (&Path, Option<&Path>),
    memory: &Remembered,
    watch: &mut dyn Watch,
) -> Result<OpenLog, OfflineError> {
    let (disks, missing) = halves::open_devices(path, mirror)?;
    let device = path.display().to_string();
    let survey = if let ([Some(disk), None], None) = (&disks, mirror) {
        look_and_put_back(&**disk, disk.size_bytes(), &device, memory, watch)?
    } else {
        let pair = halves::pair(&disks)
            .map_err(|error| halves::refused(&device, missing.as_deref(), error))?;
        look_and_put_back(&pair, pair.bytes(), &device, memory, watch)?
    };
    if let Some(place) = survey.unreadable.first() {
        return Err(failed(&device, OpenError::Directory(*place)));
    }
    Ok(OpenLog { disks, device, survey, missing })
}

fn look_and_put_back(
    media: &impl Media<Memory>,
    bytes: u64,
    device: &str,
    memory: &Remembered,
    watch: &mut dyn Watch,
) -> Result<Survey, OfflineError> {
    // What an earlier session has written without a flush is not built on.
    media.flush().map_err(|error| failed(device, error.into()))?;
    memory::put_back(media, bytes, device, memory)?;
    look(media, bytes, device, watch)
}

/// Opens the write log at a path; where there is none, an empty one of `bytes` bytes is made.
///
/// # Errors
/// If there is something else, or it can't be made.
pub fn create(path: &Path, bytes: u64) -> Result<OpenLog, OfflineError> {
    let made = open_write_log(path, Some(bytes), &OpenOptions::default())?;
    let device = path.display().to_string();
    let failed = |error| failed(&device, error);
    if made.superblock.is_none() {
        let uuid = cinnabar_backend::entropy::bytes().map_err(|error| failed(error.into()))?;
        format::<Memory>(&made.disk, made.disk.size_bytes(), uuid).map_err(failed)?;
    }
    let survey = look(&made.disk, made.disk.size_bytes(), &device, &mut ())?;
    Ok(OpenLog { disks: [Some(Arc::new(made.disk)), None], device, survey, missing: None })
}

impl OpenLog {
    /// What was found of a volume.
    ///
    /// # Errors
    /// If the log holds nothing of it, with the names of those of which it does.
    pub fn volume(&self, name: &str) -> Result<&Found, OfflineError> {
        let found = self.survey.volumes.iter().find(|found| found.record.name == name);
        found.ok_or_else(|| OfflineError::NotInWriteLog {
            device: self.device.clone(),
            volume: name.to_owned(),
            there: self.survey.volumes.iter().map(|found| found.record.name.clone()).collect(),
        })
    }

    /// Makes a write log of it, as a start of the daemon would do: what a crash has torn is recorded as
    /// void.
    ///
    /// # Errors
    /// If the device fails.
    pub fn begin(self, config: Config) -> Result<(LogDevice, WriteLog<Memory>), OfflineError> {
        let Self { disks, device, survey, missing } = self;
        let error = |error| failed(&device, error);
        if let ([Some(disk), None], None) = (&disks, &missing) {
            let log = survey.begin(&**disk, config).map_err(error)?;
            // What a killed daemon had in memory has been put back, or counts no more.
            release(&**disk).map_err(error)?;
            return Ok((Arc::clone(disk).into(), log));
        }
        let pair = halves::pair(&disks).map_err(error)?;
        let mut log = survey.begin(&pair, config).map_err(error)?;
        release(&pair).map_err(error)?;
        let mirror = pair.finish(&mut log).map_err(error)?;
        Ok((LogDevice::mirrored(disks, mirror), log))
    }
}

/// Looks at what is on a device, and writes nothing.
fn look(
    media: &impl Media<Memory>,
    bytes: u64,
    device: &str,
    watch: &mut dyn Watch,
) -> Result<Survey, OfflineError> {
    let superblock = cinnabar_writeback::recover::superblock(media);
    let of = superblock.map_err(|error| failed(device, error))?.segments;
    let mut at = |segment: u32| watch.at("segments read", segment.into(), of.into());
    survey(media, bytes, Config::default().mutants, &mut at).map_err(|error| failed(device, error))
}

fn failed(device: &str, error: OpenError) -> OfflineError {
    let device = device.to_owned();
    match error {
        OpenError::Io(error) => OfflineError::WriteLogIo { device, message: error.to_string() },
        error => match halves::hint_of(&error) {
            Some(hint) => OfflineError::LogHalf { device, message: error.to_string(), hint },
            None => OfflineError::WriteLog { device, message: error.to_string() },
        },
    }
}
