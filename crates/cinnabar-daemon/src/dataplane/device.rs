//! The cache device: opened at start or later.
//!
//! Called at start-up, and by a background thread for one that takes another's place.
//!
//! A daemon serves without its cache device rather than not at all: guests can wait for nothing
//! less than for an SSD to be exchanged. But what can only be a mistake in the configuration is
//! said so at once; [`DiskErrorKind::is_lost`] tells the two apart.

use super::disks::{Taken, explain};
use super::format;
use super::patience::{in_time, silence_max};
use super::resize::configured_size;
use cinnabar_backend::disk::{
    CacheDisk, CacheOptions, Contents, Disk, DiskError, DiskErrorKind, Identity, OpenOptions,
    Progress, open_cache,
};
use cinnabar_config::messages::{
    CacheConfig, CommandError, CommandErrorKind, NewCache, StartError, StartErrorKind, Subject,
};
use cinnabar_engine::metadata::superblock::{Superblock, SuperblockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A cache device, open, locked and formatted.
pub(super) struct OpenedDevice {
    pub(super) disk: Disk,
    pub(super) superblock: Superblock,
}

/// A configured device, and its superblocks or those of a fresh format.
pub(super) type Configured = (CacheDisk, Result<Vec<Superblock>, StartError>);

/// Opens and locks the configured cache device, making its file if there is none.
pub(super) fn open_configured(
    config: &CacheConfig,
    options: &OpenOptions,
) -> Result<Configured, DiskError> {
    let progress = Progress::default();
    let open = OpenOptions { progress: progress.clone(), ..options.clone() };
    // A file is made for the largest size that it may get, with room for the one it has.
    let size_bytes = config.size_max_bytes.or(config.size_bytes);
    let room = format::first_room(config);
    let force = config.force;
    let wanted = CacheOptions { size_bytes, force, room, open, ..CacheOptions::default() };
    let (device, shards) = (config.device.clone(), config.shards);
    let config_of = config.clone();
    let work = move || {
        let cache = open_cache(&device, &wanted)?;
        let size = configured_size(&config_of, cache.disk.kind());
        let superblocks = format::superblocks_for(&cache, shards, size, config_of.size_max_bytes);
        Ok((cache, superblocks))
    };
    let bound = silence_max(config.device_timeout);
    in_time(&progress, bound, options, work).unwrap_or_else(|| {
        let cancelled = options.cancel.as_ref().is_some_and(|cancel| cancel.load(Relaxed));
        let kind = if cancelled { DiskErrorKind::Cancelled } else { DiskErrorKind::Silent(bound) };
        Err(DiskError { path: config.device.clone(), kind })
    })
}

/// Says of a cache that it is not the one in use last: the configuration may name one that was replaced.
pub(super) fn warn_of_another(cache: &CacheDisk, last: Option<&Path>) {
    if let (Contents::Ours(_), Some(last)) = (&cache.contents, last) {
        tracing::warn!(
            path = %cache.disk.path().display(),
            last = %last.display(),
            "another cache device was in use last: what this one holds of its volumes is not believed \
             (hint: after a replacement, name the new one in the configuration)"
        );
    }
}

/// Writes a fresh format to the configured device.
pub(super) fn format_configured(
    disk: &Arc<Disk>,
    superblocks: &[Superblock],
    timeout: Duration,
    options: &OpenOptions,
) -> Result<(), StartError> {
    let (own, all, bound) = (Arc::clone(disk), superblocks.to_vec(), silence_max(timeout));
    let work = move || format::format(&own, &all);
    in_time(disk.progress(), bound, options, work).unwrap_or_else(|| {
        let path = disk.path().to_owned();
        Err(start_error(&DiskError { path, kind: DiskErrorKind::Silent(bound) }))
    })
}

/// What it means at start that it can't be used.
pub(super) fn start_error(error: &DiskError) -> StartError {
    explain(error, Subject::Cache, cache_kind(&error.kind), "cache device")
}

/// Opens, locks and formats a device that is to take another's place. One that answers when it was
/// given up is left as it is.
pub(super) fn open_new(
    new: &NewCache,
    shards: u32,
    options: &OpenOptions,
    taken: &[Taken],
) -> Result<OpenedDevice, CommandError> {
    let what = |kind, message: String, hint: &str| CommandError::new(kind, message, hint);
    let path = new.device.display();
    if let Ok(metadata) = std::fs::metadata(&new.device) {
        let identity = Identity::Inode(metadata.dev(), metadata.ino());
        if let Some(twin) = taken.iter().find(|taken| taken.identity == identity) {
            let message = format!("cache device {path}: it is {}", twin.what);
            let hint = "name another one; `cinnabar cache abandon` lets go of the one in use";
            return Err(what(CommandErrorKind::Busy, message, hint));
        }
    }
    let options = CacheOptions {
        size_bytes: new.size_bytes,
        force: new.format,
        format: new.format,
        room: None,
        open: options.clone(),
    };
    let cache = open_cache(&new.device, &options).map_err(|error| {
        let mut explained = super::control::command_error(&start_error(&error));
        if matches!(error.kind, DiskErrorKind::Foreign(_) | DiskErrorKind::Superblock(_)) {
            "check the path; --format formats it and loses what it holds"
                .clone_into(&mut explained.hint);
        } else if matches!(error.kind, DiskErrorKind::NoSize) {
            "give the size of the file to be made with --size".clone_into(&mut explained.hint);
        }
        explained
    })?;
    if let Contents::Ours(_) = cache.contents {
        let message = format!("cache device {path}: it holds a Cinnabar cache");
        let hint = "--format reformats it; what it caches now is lost";
        return Err(what(CommandErrorKind::Invalid, message, hint));
    }
    let superblocks = format::superblocks_for(&cache, Some(shards), None, None)
        .map_err(|error| super::control::command_error(&error))?;
    format::format(&cache.disk, &superblocks)
        .map_err(|error| super::control::command_error(&error))?;
    let first = superblocks.into_iter().next().expect("a device has a region");
    Ok(OpenedDevice { disk: cache.disk, superblock: first })
}

pub(super) fn cache_kind(kind: &DiskErrorKind) -> StartErrorKind {
    match kind {
        DiskErrorKind::Foreign(_) | DiskErrorKind::Superblock(SuperblockError::Foreign) => {
            StartErrorKind::ForeignData
        }
        DiskErrorKind::Superblock(_) => StartErrorKind::CacheFormat,
        DiskErrorKind::Empty
        | DiskErrorKind::OddSize(_)
        | DiskErrorKind::Short { .. }
        | DiskErrorKind::NoSpace(_)
        | DiskErrorKind::NoSize => StartErrorKind::CacheSize,
        DiskErrorKind::InUse { .. } => StartErrorKind::CacheInUse,
        DiskErrorKind::Cancelled => StartErrorKind::Cancelled,
        DiskErrorKind::Io { .. } | DiskErrorKind::Silent(_) => StartErrorKind::Io,
        _ => StartErrorKind::CacheAccess,
    }
}
