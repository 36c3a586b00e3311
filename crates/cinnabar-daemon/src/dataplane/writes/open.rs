//! The write log's device at the start: opened, formatted if it is empty, recovered.

use super::{Running, Writes};
use crate::dataplane::device;
use crate::dataplane::disks::explain;
use crate::dataplane::patience::{in_time, silence_max};
use crate::dataplane::plane::Plane;
use crate::messages::{CacheConfig, StartError, StartErrorKind, Subject, WriteLogConfig};
use cinnabar_backend::disk::{
    Disk, DiskError, DiskErrorKind, OpenOptions, Progress, open_write_log,
};
use cinnabar_backend::write_memory::WriteMemory;
use cinnabar_backend::{Memory, entropy};
use cinnabar_writeback::format::VOLUMES_MAX;
use cinnabar_writeback::{Config, WriteLog, recover};
use slab::Slab;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Open, locked and recovered; and its write memory, if it has one.
type Opened = (Disk, WriteLog<Memory>, Option<WriteMemory>);

/// Opens the configured write log. One that is not there, fails or does not answer keeps only those
/// volumes from being served that need it.
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
    let opened = in_time(&progress, bound, options, move || open_now(&settings, &open));
    let opened = opened.unwrap_or_else(|| {
        let cancelled = options.cancel.as_ref().is_some_and(|cancel| cancel.load(Relaxed));
        let kind = if cancelled { DiskErrorKind::Cancelled } else { DiskErrorKind::Silent(bound) };
        Err(OpenFailed::of(&DiskError { path, kind }))
    });
    opened.map(Some)
}

/// Why it could not be opened.
pub(in super::super) enum OpenFailed {
    /// The start is over.
    Fatal(StartError),
    /// Volumes that need it wait.
    Missing(String),
}

impl OpenFailed {
    fn of(error: &DiskError) -> Self {
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
}

fn open_now(settings: &WriteLogConfig, options: &OpenOptions) -> Result<Opened, OpenFailed> {
    let found = open_write_log(&settings.path, settings.size_bytes, options)
        .map_err(|error| OpenFailed::of(&error))?;
    let disk = found.disk;
    let bytes = disk.size_bytes();
    let failed = |error: recover::OpenError| {
        OpenFailed::Missing(format!("write log {}: {error}", settings.path.display()))
    };
    if found.superblock.is_none() {
        let uuid = entropy::bytes().map_err(|error| {
            let message = format!("no random numbers: {error}");
            let kind = StartErrorKind::Resources;
            OpenFailed::Fatal(StartError::new(kind, Subject::Daemon, message, ""))
        })?;
        recover::format(&disk, bytes, uuid).map_err(failed)?;
        tracing::info!(device = %settings.path.display(), bytes, "a new write log was made");
    }
    let (log, memory) = super::memory::open(settings, &disk, log_config(settings))?;
    Ok((disk, log, memory))
}

fn log_config(settings: &WriteLogConfig) -> Config {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let defaults = Config::default();
    Config {
        dirty_max_percent: settings.dirty_max_percent,
        age_max_ns: ns(settings.rpo),
        // 5 s of the usual 30 s: the rest is for the destage itself, and for a back end that is busy.
        destage_after_ns: ns(settings.rpo) / 6,
        ..defaults
    }
}

impl Plane {
    /// Takes the write log, or notes why there is none.
    pub(in super::super) fn install_writes(
        &mut self,
        config: &CacheConfig,
        opened: Result<Option<Opened>, String>,
    ) -> Result<(), StartError> {
        let Some(settings) = &config.write_log else { return Ok(()) };
        let (disk, log, memory) = match opened {
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
        let disk = Arc::new(disk);
        self.lane.desk.install_log(Arc::clone(&disk)).map_err(|errno| {
            let message = format!("no place for another file: {errno}");
            let hint = "raise the limit on open files";
            StartError::new(StartErrorKind::Resources, Subject::Cache, message, hint)
        })?;
        for place in log.places() {
            let Some(status) = log.status(place).filter(|status| status.dirty_bytes > 0) else {
                continue;
            };
            let (volume, dirty_bytes) = (status.name, status.dirty_bytes);
            tracing::info!(volume, dirty_bytes, damaged = status.damaged, "in the write log");
        }
        self.writes = Writes::On(Box::new(Running {
            log,
            disk,
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
            told_lost: false,
        }));
        Ok(())
    }
}
