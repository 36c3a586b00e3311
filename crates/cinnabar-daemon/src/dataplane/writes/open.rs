//! The write log at the start: its device opened, formatted if it is empty, recovered.

use super::{Halves, KnownLog, Running, Writes, mirrored};
use crate::dataplane::device;
use crate::dataplane::disks::explain;
use crate::dataplane::patience::{in_time, silence_max};
use crate::dataplane::plane::DataPlane;
use cinnabar_backend::disk::{DiskError, DiskErrorKind, OpenOptions, Progress, open_write_log};
use cinnabar_backend::write_memory::WriteMemory;
use cinnabar_backend::{Memory, entropy};
use cinnabar_config::messages::{CacheConfig, StartError, StartErrorKind, Subject, WriteLogConfig};
use cinnabar_engine::units::Instant;
use cinnabar_writeback::format::VOLUMES_MAX;
use cinnabar_writeback::recover::OpenError;
use cinnabar_writeback::{Config, WriteLog, recover};
use slab::Slab;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A log that is open, locked and recovered.
pub(in super::super) struct Opened {
    pub(in super::super) halves: Halves,
    pub(super) log: WriteLog<Memory>,
    pub(super) memory: Option<WriteMemory>,
}

/// Opens the configured write log. One that is not there, fails or does not answer keeps only those
/// volumes from being served that need it. Of a mirrored one, one half may be missing, if the other one is
/// known to hold everything.
///
/// # Errors
/// What can only be a mistake in the configuration, or the start was given up.
pub(in super::super) fn open(
    config: &CacheConfig,
    options: &OpenOptions,
) -> Result<Option<Opened>, OpenFailed> {
    let Some(settings) = config.write_log.clone() else { return Ok(None) };
    let progress = Progress::default();
    let open = OpenOptions { progress: progress.clone(), ..options.clone() };
    let (path, bound) = (settings.path.clone(), silence_max(config.device_timeout));
    let in_time = |bound, work: Box<dyn FnOnce() -> _ + Send>| {
        in_time(&progress, bound, options, work).unwrap_or_else(|| {
            let error = silent(&path, bound, options);
            Err(OpenFailed::of(&error))
        })
    };
    let Some(mirror) = settings.mirror.clone() else {
        return in_time(bound, Box::new(move || open_one(&settings, &open, bound))).map(Some);
    };
    let halves = mirrored::open_both([&settings.path, &mirror], settings.size_bytes, &open, bound);
    // Each half has its bound; this one is for what there is besides.
    let work = move || mirrored::begin(&settings, halves, bound);
    in_time(bound.saturating_mul(4), Box::new(work)).map(Some)
}

/// What is said of a device that takes too long, or was not waited for.
pub(super) fn silent(path: &Path, bound: Duration, options: &OpenOptions) -> DiskError {
    let cancelled = options.cancel.as_ref().is_some_and(|cancel| cancel.load(Relaxed));
    let kind = if cancelled { DiskErrorKind::Cancelled } else { DiskErrorKind::Silent(bound) };
    DiskError { path: path.to_owned(), kind }
}

/// Why it could not be opened.
pub(in super::super) enum OpenFailed {
    /// The start is over.
    Fatal(StartError),
    /// Volumes that need it wait.
    Missing(String),
}

impl OpenFailed {
    pub(super) fn of(error: &DiskError) -> Self {
        let kind = device::cache_kind(&error.kind);
        let mut start = explain(error, Subject::Cache, kind, "write log");
        if matches!(error.kind, DiskErrorKind::NoSize) {
            "set write_log_size in [cache], for example write_log_size = \"4GiB\""
                .clone_into(&mut start.hint);
        }
        match kind {
            StartErrorKind::Io | StartErrorKind::CacheAccess => Self::Missing(start.message),
            _ => Self::Fatal(start),
        }
    }

    fn no_random(error: &std::io::Error) -> Self {
        let message = format!("no random numbers: {error}");
        let kind = StartErrorKind::Resources;
        Self::Fatal(StartError::new(kind, Subject::Daemon, message, ""))
    }
}

/// Random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], OpenFailed> {
    entropy::bytes().map_err(|error| OpenFailed::no_random(&error))
}

fn open_one(
    settings: &WriteLogConfig,
    options: &OpenOptions,
    bound: Duration,
) -> Result<Opened, OpenFailed> {
    let found = open_write_log(&settings.path, settings.size_bytes, options)
        .map_err(|error| OpenFailed::of(&error))?;
    let disk = found.disk;
    let bytes = disk.size_bytes();
    let failed = |error: OpenError| {
        let hint = match &error {
            OpenError::HalfMissing | OpenError::Incomplete => {
                " (hint: set write_log_mirror to the other half; if that is lost for good: \
                 `cinnabar cache mirror DEVICE --alone`)"
            }
            _ => "",
        };
        OpenFailed::Missing(format!("write log {}: {error}{hint}", settings.path.display()))
    };
    match found.superblock {
        None => {
            recover::format(&disk, bytes, random()?).map_err(failed)?;
            tracing::info!(device = %settings.path.display(), bytes, "a new write log was made");
        }
        Some(superblock) => mirrored::check_alone(&disk, superblock).map_err(failed)?,
    }
    let config = log_config(settings);
    let (log, memory) = super::memory::open(settings, (&disk, bytes), config)?;
    Ok(Opened { halves: Halves::one(disk, bound), log, memory })
}

pub(super) fn log_config(settings: &WriteLogConfig) -> Config {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let defaults = Config::default();
    Config {
        dirty_max_percent: settings.dirty_max_percent,
        age_max_ns: ns(settings.rpo),
        // 5 s of the usual 30 s: the rest is for the destage itself, and for a back end that is busy.
        destage_after_ns: ns(settings.rpo) / 6,
        pace_ns: if settings.pace { defaults.pace_ns } else { 0 },
        ..defaults
    }
}

impl DataPlane {
    /// Takes the write log, or notes why there is none.
    pub(in super::super) fn install_writes(
        &mut self,
        config: &CacheConfig,
        opened: Result<Option<Opened>, String>,
    ) -> Result<(), StartError> {
        let Some(settings) = &config.write_log else { return Ok(()) };
        let Opened { halves, log, memory } = match opened {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(()),
            Err(reason) => {
                tracing::error!(
                    reason,
                    "there is no write log: volumes in write-back mode are not served (hint: \
                     restart the daemon when it is there)"
                );
                self.writes = Writes::Missing { path: settings.path.clone(), reason };
                return Ok(());
            }
        };
        // Of back ends that are no files.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.claims_dir);
        if let Err(error) = made {
            let folder = self.claims_dir.display();
            tracing::warn!(%folder, %error, "claims of back ends that are no files can't be kept");
        }
        halves.log_start();
        for (half, disk) in halves.in_use() {
            self.data_thread.io_table.install_log(half, Arc::clone(disk)).map_err(|errno| {
                let message = format!("no place for another file: {errno}");
                let hint = "raise the limit on open files";
                StartError::new(StartErrorKind::Resources, Subject::Cache, message, hint)
            })?;
        }
        for offset in log.bad_pages() {
            tracing::warn!(
                offset,
                "a page of the write log can't be read: what was written there last may be lost"
            );
        }
        for place in log.places() {
            let Some(status) = log.status(place).filter(|status| status.dirty_bytes > 0) else {
                continue;
            };
            let (volume, dirty_bytes) = (status.name, status.dirty_bytes);
            tracing::info!(volume, dirty_bytes, damaged = status.damaged, "in the write log");
        }
        self.writes = Writes::On(Box::new(Running {
            known: KnownLog::of(&log),
            log,
            halves,
            memory,
            events: Vec::new(),
            actions: Vec::new(),
            wake: None,
            volumes: vec![None; usize::from(VOLUMES_MAX)],
            asked: Slab::new(),
            early: Vec::new(),
            later: Vec::new(),
            going: Vec::new(),
            given_up: Vec::new(),
            leaving: Vec::new(),
            looked_at_leaving: Instant::default(),
            told_lost: false,
            told_misses: Instant::default(),
        }));
        // A half that is filled may lack nothing.
        self.log_has_moved(self.data_thread.clock.now());
        Ok(())
    }
}
