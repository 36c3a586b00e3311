//! Formatting a cache device, in the daemon's words.
//!
//! Called at start-up, when all else is known to be well, and for a device that takes another's place.

use super::disks::{explain, with_path};
use cinnabar_backend::disk::{CacheDisk, Contents, Disk};
use cinnabar_backend::format as device;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_messages::{StartError, StartErrorKind, Subject};

/// The superblocks that are there, or those of a fresh format with so many shards, not written yet.
pub(super) fn superblocks_for(
    cache: &CacheDisk,
    shards: Option<u32>,
) -> Result<Vec<Superblock>, StartError> {
    let disk = &cache.disk;
    match &cache.contents {
        Contents::Ours(first) => {
            if shards.is_some_and(|shards| shards != first.geometry.shards) {
                tracing::warn!(
                    path = %disk.path().display(),
                    shards = first.geometry.shards,
                    "the cache keeps the shards it was formatted with; for others stop the daemon and \
                     remove the file: the next start makes it, and it is cold"
                );
            }
            device::superblocks(disk, first).map_err(|error| {
                explain(&error, Subject::Cache, StartErrorKind::CacheFormat, "cache device")
            })
        }
        Contents::Blank => {
            let size = disk.size_bytes();
            let shards = shards.unwrap_or_else(|| Geometry::shards_for(size));
            let geometry = Geometry::for_shards(size, shards).map_err(|error| {
                let message = with_path("cache device", disk.path(), &error);
                let hint = "choose a size from 20 MiB to just under 1 TiB for each shard";
                StartError::new(StartErrorKind::CacheSize, Subject::Cache, message, hint)
            })?;
            device::fresh(geometry).map_err(|error| {
                StartError::new(StartErrorKind::Resources, Subject::Daemon, error.to_string(), "")
            })
        }
    }
}

/// Writes a fresh format.
pub(super) fn format(disk: &Disk, superblocks: &[Superblock]) -> Result<(), StartError> {
    device::write(disk, superblocks).map_err(|error| {
        let message = format!("cache device {error}");
        StartError::new(StartErrorKind::Io, Subject::Cache, message, "see the kernel log (dmesg)")
    })
}
