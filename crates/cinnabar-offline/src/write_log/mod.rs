//! A write log that no daemon uses: what is on it, and how its writes reach a back end.

mod rescue;
mod session;
#[cfg(test)]
mod tests;

pub use rescue::{Rescued, rescue};
pub use session::Session;

use crate::OfflineError;
use cinnabar_backend::Disk;
use cinnabar_backend::disk::{OpenOptions, open_write_log};
use cinnabar_writeback::recover::OpenError;
use cinnabar_writeback::{Config, Status, WriteLog, recover};
use std::path::Path;
use std::sync::Arc;

/// A write log, open and locked.
pub struct OpenLog {
    /// Its device.
    pub disk: Arc<Disk>,
    /// What was found on it.
    pub log: WriteLog<cinnabar_backend::Memory>,
}

/// Opens the write log at a path. What a crash has torn is recorded as void, as a start of the daemon
/// would do.
///
/// # Errors
/// If there is none, it is in use, or it is damaged.
pub fn open(path: &Path, config: Config) -> Result<OpenLog, OfflineError> {
    let found = open_write_log(path, None, &OpenOptions::default())?;
    let device = path.display().to_string();
    if found.superblock.is_none() {
        return Err(OfflineError::NoWriteLog { device });
    }
    let disk = Arc::new(found.disk);
    let log =
        recover::open(&*disk, disk.size_bytes(), config).map_err(|error| failed(&device, error))?;
    Ok(OpenLog { disk, log })
}

impl OpenLog {
    /// What it holds of each volume, in the order of the directory.
    pub fn volumes(&self) -> Vec<Status> {
        self.log.places().filter_map(|place| self.log.status(place)).collect()
    }
}

fn failed(device: &str, error: OpenError) -> OfflineError {
    let device = device.to_owned();
    match error {
        OpenError::Io(error) => OfflineError::WriteLogIo { device, message: error.to_string() },
        error => OfflineError::WriteLog { device, message: error.to_string() },
    }
}
