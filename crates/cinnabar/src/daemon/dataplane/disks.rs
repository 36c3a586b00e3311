//! Opening the cache device and the volumes' backends, and saying what is wrong with them.
//!
//! Called at start-up, and by the background threads for volumes that come later.

use crate::daemon::messages::{CacheConfig, StartError, StartErrorKind, Subject, VolumeConfig};
use cinnabar_backend::BackendSpec;
use cinnabar_backend::disk::{
    CacheDisk, CacheOptions, Disk, DiskError, DiskErrorKind, OpenOptions, open_cache, read_epoch,
};
use cinnabar_backend::sim::SimSpec;
use cinnabar_backend::spec::SpecError;
use cinnabar_engine::limits::VOLUME_BLOCKS_MAX;
use cinnabar_engine::metadata::superblock::SuperblockError;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::volume::Epoch;
use std::path::Path;

/// A volume whose backend is open and locked.
pub(super) struct OpenedVolume {
    pub(super) config: VolumeConfig,
    pub(super) disk: Disk,
    pub(super) layers: Vec<SimSpec>,
    /// The proof as it stands now.
    pub(super) epoch: Option<Epoch>,
}

/// Opens and locks the cache device, making its file if there is none.
pub(super) fn open_cache_device(
    config: &CacheConfig,
    options: &OpenOptions,
) -> Result<CacheDisk, StartError> {
    let size_bytes = config.size_bytes;
    let options = CacheOptions { size_bytes, force: config.force, open: options.clone() };
    open_cache(&config.device, &options)
        .map_err(|error| explain(&error, Subject::Cache, cache_kind(&error.kind), "cache device"))
}

/// Opens and locks a volume's backend.
pub(super) fn open_volume(
    config: &VolumeConfig,
    options: &OpenOptions,
) -> Result<OpenedVolume, StartError> {
    let subject = || Subject::Volume(config.name.clone());
    let spec = BackendSpec::parse(&config.backend, Path::new("/")).map_err(|error| {
        let message = format!("backend {:?}: {}", config.backend, with_source(&error));
        StartError::new(StartErrorKind::Settings, subject(), message, error.hint())
    })?;
    let options = OpenOptions { read_only: config.read_only, ..options.clone() };
    let disk = Disk::open(&spec.path, &options)
        .map_err(|error| explain(&error, subject(), backend_kind(&error.kind), "backend"))?;
    if disk.size_bytes().div_ceil(BLOCK_BYTES) > VOLUME_BLOCKS_MAX {
        let message = format!("backend {}: it is larger than 256 TiB", spec.path.display());
        let kind = StartErrorKind::BackendSize;
        return Err(StartError::new(kind, subject(), message, "split it into smaller volumes"));
    }
    let epoch = read_epoch(&disk).unwrap_or_else(|error| {
        tracing::warn!(volume = config.name, reason = %error, "nothing proves who wrote it last");
        None
    });
    Ok(OpenedVolume { config: config.clone(), disk, layers: spec.layers, epoch })
}

fn explain(error: &DiskError, subject: Subject, kind: StartErrorKind, what: &str) -> StartError {
    StartError::new(kind, subject, format!("{what} {error}"), error.hint())
}

fn with_source(error: &SpecError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error} {source}"),
        None => error.to_string(),
    }
}

fn cache_kind(kind: &DiskErrorKind) -> StartErrorKind {
    match kind {
        DiskErrorKind::Foreign(_) => StartErrorKind::ForeignData,
        DiskErrorKind::Superblock(SuperblockError::Foreign) => StartErrorKind::ForeignData,
        DiskErrorKind::Superblock(_) => StartErrorKind::CacheFormat,
        DiskErrorKind::Empty
        | DiskErrorKind::OddSize(_)
        | DiskErrorKind::Short { .. }
        | DiskErrorKind::NoSpace(_)
        | DiskErrorKind::NoSize => StartErrorKind::CacheSize,
        DiskErrorKind::InUse { .. } => StartErrorKind::CacheInUse,
        DiskErrorKind::Cancelled => StartErrorKind::Cancelled,
        DiskErrorKind::Io { .. } => StartErrorKind::Io,
        _ => StartErrorKind::CacheAccess,
    }
}

fn backend_kind(kind: &DiskErrorKind) -> StartErrorKind {
    match kind {
        DiskErrorKind::ReadOnly => StartErrorKind::BackendReadOnly,
        DiskErrorKind::Empty | DiskErrorKind::OddSize(_) => StartErrorKind::BackendSize,
        DiskErrorKind::InUse { .. } => StartErrorKind::BackendInUse,
        DiskErrorKind::Cancelled => StartErrorKind::Cancelled,
        DiskErrorKind::Io { .. } => StartErrorKind::Io,
        _ => StartErrorKind::BackendAccess,
    }
}

/// `cache device /path: what is wrong`.
pub(super) fn with_path(what: &str, path: &Path, error: &impl std::fmt::Display) -> String {
    format!("{what} {}: {error}", path.display())
}
