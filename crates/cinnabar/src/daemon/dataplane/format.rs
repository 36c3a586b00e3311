//! Formatting a cache device, in the daemon's words.
//!
//! Called at start-up, when all else is known to be well, and for a device that takes another's place.

use super::disks::with_path;
use crate::daemon::messages::{StartError, StartErrorKind, Subject};
use cinnabar_backend::disk::{CacheDisk, Contents, Disk};
use cinnabar_backend::format as device;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};

/// The superblock that is there, or the one of a fresh format, not written yet.
pub(super) fn superblock_for(cache: &CacheDisk) -> Result<Superblock, StartError> {
    match &cache.contents {
        Contents::Ours(superblock) => Ok(superblock.clone()),
        Contents::Blank => {
            let geometry = Geometry::for_device(cache.disk.size_bytes()).map_err(|error| {
                let message = with_path("cache device", cache.disk.path(), &error);
                let hint = "choose a size from 20 MiB to just under 1 TiB";
                StartError::new(StartErrorKind::CacheSize, Subject::Cache, message, hint)
            })?;
            device::fresh(geometry).map(|mut all| all.remove(0)).map_err(|error| {
                StartError::new(StartErrorKind::Resources, Subject::Daemon, error.to_string(), "")
            })
        }
    }
}

/// Writes a fresh format.
pub(super) fn format(disk: &Disk, superblock: &Superblock) -> Result<(), StartError> {
    device::write(disk, std::slice::from_ref(superblock)).map_err(|error| {
        let message = format!("cache device {error}");
        StartError::new(StartErrorKind::Io, Subject::Cache, message, "see the kernel log (dmesg)")
    })
}
