//! An empty cache: the device formatted anew, even if it holds a warm cache of ours.
//!
//! Called by a run before it warms. What holds somebody else's data is refused, as ever.

use crate::bench::target::{CacheOptions, TargetError};
use cinnabar_backend::disk::{self, OpenOptions, open_cache};
use cinnabar_backend::format;
use cinnabar_engine::metadata::superblock::Geometry;
use rustix::io::Errno;
use std::time::Duration;

/// Longest wait for somebody else's lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Makes it so.
pub(super) fn empty(options: &CacheOptions) -> Result<(), TargetError> {
    let failed = |error| TargetError::Disk { unit: "the cache".to_owned(), error };
    let open = OpenOptions { lock_wait: LOCK_WAIT, ..OpenOptions::default() };
    let settings =
        disk::CacheOptions { size_bytes: options.size_bytes, force: false, anew: true, open };
    let cache = open_cache(&options.device, &settings).map_err(failed)?;
    let size = cache.disk.size_bytes();
    // A size that no cache can have is told when the cache is opened, in the same words as ever.
    let Ok(geometry) = Geometry::for_shards(size, Geometry::shards_for(size)) else {
        return Ok(());
    };
    let superblocks = format::fresh(geometry).map_err(|error| {
        let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        TargetError::Files("random numbers", errno)
    })?;
    format::write(&cache.disk, &superblocks).map_err(failed)
}
