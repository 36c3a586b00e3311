//! A write log that no daemon uses: what is on it, and how its writes reach a back end.

mod check;
mod dump;
mod memory;
mod report;
mod rescue;
mod session;
#[cfg(test)]
mod tests;

pub use check::{check, recognise};
pub use dump::dump;
pub use memory::{Remembered, noted};
pub use report::{LogVolumeReport, MemoryReport, WriteLogReport};
pub use rescue::{Rescued, rescue};
pub use session::Session;

use crate::image::LOCK_WAIT;
use crate::{OfflineError, Watch};
use cinnabar_backend::disk::{OpenOptions, existing_write_log, open_write_log};
use cinnabar_backend::{Disk, Memory};
use cinnabar_writeback::WriteLog;
use cinnabar_writeback::memory::release;
use cinnabar_writeback::recover::{Found, OpenError, Survey, format, survey};
pub use cinnabar_writeback::{Command, Config, Done, Place};
use std::path::Path;
use std::sync::Arc;

/// A write log, open and locked, and looked at. Nothing has been written to it but what was in memory.
pub struct OpenLog {
    /// Its device.
    pub disk: Arc<Disk>,
    /// What was found on it.
    pub survey: Survey,
}

/// Opens the write log at a path, to bring its writes to a back end.
///
/// # Errors
/// If there is none, it is in use, or it is damaged.
pub fn open(path: &Path, watch: &mut dyn Watch) -> Result<OpenLog, OfflineError> {
    open_with_memory(path, &Remembered::Noted, watch)
}

/// The same. Writes that a killed daemon has left in memory are brought to the log first.
///
/// # Errors
/// As [`open`]; and if writes are in memory, and that is not there or is damaged.
pub fn open_with_memory(
    path: &Path,
    memory: &Remembered,
    watch: &mut dyn Watch,
) -> Result<OpenLog, OfflineError> {
    let options = OpenOptions { lock_wait: LOCK_WAIT, ..OpenOptions::default() };
    let found = existing_write_log(path, &options)?;
    let device = path.display().to_string();
    if found.superblock.is_none() {
        return Err(OfflineError::NoWriteLog { device });
    }
    let disk = Arc::new(found.disk);
    // What an earlier session has written without a flush is not built on.
    let synced = rustix::fs::fdatasync(&*disk);
    synced.map_err(|errno| failed(&device, OpenError::Io(errno.into())))?;
    memory::put_back(&disk, &device, memory)?;
    let survey = look(&disk, &device, watch)?;
    if let Some(place) = survey.unreadable.first() {
        return Err(failed(&device, OpenError::Directory(*place)));
    }
    Ok(OpenLog { disk, survey })
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
    let survey = look(&made.disk, &device, &mut ())?;
    Ok(OpenLog { disk: Arc::new(made.disk), survey })
}

impl OpenLog {
    /// What was found of a volume.
    ///
    /// # Errors
    /// If the log holds nothing of it, with the names of those of which it does.
    pub fn volume(&self, name: &str) -> Result<&Found, OfflineError> {
        let found = self.survey.volumes.iter().find(|found| found.record.name == name);
        found.ok_or_else(|| OfflineError::NotInWriteLog {
            device: self.device(),
            volume: name.to_owned(),
            there: self.survey.volumes.iter().map(|found| found.record.name.clone()).collect(),
        })
    }

    /// Makes a write log of it, as a start of the daemon would do: what a crash has torn is recorded as
    /// void.
    ///
    /// # Errors
    /// If the device fails.
    pub fn begin(self, config: Config) -> Result<(Arc<Disk>, WriteLog<Memory>), OfflineError> {
        let device = self.device();
        let log = self.survey.begin(&*self.disk, config);
        let log = log.map_err(|error| failed(&device, error))?;
        // What a killed daemon had in memory has been put back, or counts no more.
        release(&*self.disk).map_err(|error| failed(&device, error))?;
        Ok((self.disk, log))
    }

    /// Its path, for people.
    fn device(&self) -> String {
        self.disk.path().display().to_string()
    }
}

/// Looks at what is on a device, and writes nothing.
fn look(disk: &Disk, device: &str, watch: &mut dyn Watch) -> Result<Survey, OfflineError> {
    let segments = cinnabar_writeback::recover::superblock::<Memory>(disk);
    let of = segments.map_err(|error| failed(device, error))?.segments;
    let mut at = |segment: u32| watch.at("segments read", segment.into(), of.into());
    survey::<Memory>(disk, disk.size_bytes(), Config::default().mutants, &mut at)
        .map_err(|error| failed(device, error))
}

fn failed(device: &str, error: OpenError) -> OfflineError {
    let device = device.to_owned();
    match error {
        OpenError::Io(error) => OfflineError::WriteLogIo { device, message: error.to_string() },
        error => OfflineError::WriteLog { device, message: error.to_string() },
    }
}
