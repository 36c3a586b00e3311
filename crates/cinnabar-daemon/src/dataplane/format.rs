//! Formatting a cache device, in the daemon's words.
//!
//! Called at start-up, when all else is known to be well, and for a device that takes another's place.

use super::disks::{explain, with_path};
use cinnabar_backend::disk::{CacheDisk, Contents, Disk};
use cinnabar_backend::format as device;
use cinnabar_config::messages::{CacheConfig, StartError, StartErrorKind, Subject};
use cinnabar_engine::metadata::superblock::{Geometry, GeometryError, Superblock};
use cinnabar_engine::units::BLOCK_BYTES;
use std::ops::Range;

/// Parts of a file that is made for a larger size than it has at first that get their space at once;
/// `None`: all of it.
pub(super) fn first_room(config: &CacheConfig) -> Option<Vec<Range<u64>>> {
    let (size, max) = (config.size_bytes?, config.size_max_bytes?);
    let max = max / BLOCK_BYTES * BLOCK_BYTES;
    let shards = config.shards.unwrap_or_else(|| Geometry::shards_for(max));
    // What is wrong with a size is said when superblocks are made.
    let geometry = Geometry::for_shards(max, shards).ok()?;
    let segments = geometry.segments_for(size).ok()?;
    (segments < geometry.segments).then(|| geometry.room(0, segments))
}

/// The superblocks that are there, or those of a fresh format with so many shards, not written yet; of
/// `size` bytes, if it is to have fewer than it is made for, and for at most `max`.
pub(super) fn superblocks_for(
    cache: &CacheDisk,
    shards: Option<u32>,
    size: Option<u64>,
    max: Option<u64>,
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
            // A file has this size already, a block device its own.
            let all = disk.size_bytes().min(max.unwrap_or(u64::MAX));
            let shards = shards.unwrap_or_else(|| Geometry::shards_for(all));
            let wrong = |error: GeometryError, hint: &str| {
                let message = with_path("cache device", disk.path(), &error);
                StartError::new(StartErrorKind::CacheSize, Subject::Cache, message, hint)
            };
            let geometry = Geometry::for_shards(all, shards).map_err(|error| {
                wrong(error, "choose a size from 20 MiB to just under 1 TiB for each shard")
            })?;
            let segments = size.map_or(Ok(geometry.segments), |size| geometry.segments_for(size));
            let segments = segments.map_err(|error| {
                wrong(error, "choose another size, or a size_max that is nearer to it")
            })?;
            let fresh = device::fresh(geometry).map_err(|error| {
                StartError::new(StartErrorKind::Resources, Subject::Daemon, error.to_string(), "")
            })?;
            Ok(fresh.into_iter().map(|superblock| superblock.with_segments(segments)).collect())
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

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_backend::disk::{CacheOptions, open_cache};

    /// As of a block device, whose own size is another one.
    #[test]
    fn a_device_is_made_for_its_largest_size_and_not_for_all_there_is() {
        const MIB: u64 = 1 << 20;
        let folder = tempfile::tempdir().expect("a folder");
        let options = CacheOptions { size_bytes: Some(256 * MIB), ..CacheOptions::default() };
        let cache = open_cache(&folder.path().join("cache"), &options).expect("a new file");
        let made = |size: u64, max: Option<u64>| {
            let made = superblocks_for(&cache, Some(2), Some(size * MIB), max.map(|max| max * MIB));
            made.map(|superblocks| {
                let Superblock { geometry, segments_used, .. } = superblocks[0];
                let used = geometry.used_bytes(segments_used);
                assert!(used <= size * MIB && used > (size - 4) * MIB, "{used}");
                geometry.device_bytes().div_ceil(8 * MIB) * 8
            })
        };
        assert_eq!(made(64, Some(128)), Ok(128));
        assert_eq!(made(64, None), Ok(256));
        assert_eq!(made(64, Some(1 << 20)), Ok(256), "there is no more");
        let error = made(160, Some(128)).expect_err("it is more than the largest size");
        assert_eq!(error.kind, StartErrorKind::CacheSize);
    }
}
