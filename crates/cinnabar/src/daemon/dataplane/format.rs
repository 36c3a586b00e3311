//! Formatting a cache device that is blank, or that `--force` gives up.
//!
//! Called at start-up, when all else is known to be well, and for a device that takes another's place.

use super::disks::with_path;
use crate::daemon::messages::{StartError, StartErrorKind, Subject};
use crate::daemon::random;
use cinnabar_backend::disk::{CacheDisk, Contents, Disk, DiskError};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::units::BLOCK_BYTES;

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
            Ok(Superblock::format(random_uuid()?, geometry))
        }
    }
}

/// Writes a fresh format: zeros where marks will be written durably in small pieces (into holes
/// that costs 2.5 times as much), then both copies of the superblock, one of them blank.
pub(super) fn format(disk: &Disk, superblock: &Superblock) -> Result<(), StartError> {
    let path = disk.path();
    let failed = |error| {
        let error: DiskError = error;
        let message = format!("cache device {error}");
        StartError::new(StartErrorKind::Io, Subject::Cache, message, "see the kernel log (dmesg)")
    };
    let (first, count) = superblock.geometry.marks;
    disk.write_zeros(first * BLOCK_BYTES, count * BLOCK_BYTES).map_err(failed)?;
    let mut copies = [const { MetaPage::zeroed() }; 2];
    let (offset, page) = superblock.encode();
    copies[(offset / BLOCK_BYTES) as usize] = page;
    disk.write_pages(0, &copies).map_err(failed)?;
    let capacity_blocks = superblock.geometry.capacity_blocks();
    tracing::info!(path = %path.display(), capacity_blocks, "formatted the cache device");
    Ok(())
}

fn random_uuid() -> Result<[u8; 16], StartError> {
    let mut uuid: [u8; 16] = random::bytes().map_err(|error| {
        StartError::new(StartErrorKind::Resources, Subject::Daemon, error.to_string(), "")
    })?;
    // Version 4, variant 1, as others expect of a random UUID.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}
