//! The cache device in use, if there is one: how it is, and what becomes known of it.
//!
//! Called by the loop, at start-up and for each status.

use super::control::Awaited;
use super::plane::Plane;
use crate::daemon::generations::DeviceId;
use crate::daemon::messages::{Loaded, State};
use crate::daemon::report::why;
use cinnabar_backend::port::Port;
use cinnabar_backend::{Disk, FileId};
use cinnabar_engine::health::{Health, LoadReport, PassThroughReason};
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::Warmth;
use cinnabar_engine::{Command, Failure};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The cache device.
pub(super) struct Cache {
    /// The one in use, or else the one that should be.
    pub(super) path: PathBuf,
    device: Option<Device>,
    /// Why there is none, if it could not be opened.
    missing: Option<String>,
    /// What the last load found.
    pub(super) loaded: Option<Loaded>,
    /// Longest operation on it; zero: no bound.
    pub(super) timeout: Duration,
    /// It was given up because an operation took longer.
    pub(super) hangs: bool,
    /// Whether the log knows that it is not in use.
    told: bool,
}

/// One that is open.
struct Device {
    disk: Arc<Disk>,
    file: FileId,
    id: DeviceId,
}

impl Cache {
    /// None yet.
    pub(super) fn none(path: PathBuf, timeout: Duration) -> Self {
        let (device, missing, loaded) = (None, None, None);
        Self { path, device, missing, loaded, timeout, hangs: false, told: false }
    }

    /// Where its I/O goes.
    pub(super) fn file(&self) -> Option<FileId> {
        self.device.as_ref().map(|device| device.file)
    }

    /// The open device.
    pub(super) fn disk(&self) -> Option<&Disk> {
        self.device.as_ref().map(|device| &*device.disk)
    }

    /// Its identity, and where it is.
    pub(super) fn identity(&self) -> Option<(DeviceId, PathBuf)> {
        self.device.as_ref().map(|device| (device.id, self.path.clone()))
    }

    /// How I/O on it is done.
    pub(super) fn way(&self) -> &'static str {
        match self.disk() {
            Some(disk) if disk.is_direct() => "direct",
            Some(_) => "page cache",
            None => "no device",
        }
    }

    /// Takes a device that was opened.
    pub(super) fn install(
        &mut self,
        port: &mut dyn Port,
        disk: Disk,
        id: DeviceId,
    ) -> rustix::io::Result<()> {
        let disk = Arc::new(disk);
        let file = port.register(Arc::clone(&disk))?;
        disk.path().clone_into(&mut self.path);
        self.device = Some(Device { disk, file, id });
        (self.missing, self.loaded) = (None, None);
        (self.hangs, self.told) = (false, false);
        Ok(())
    }

    /// Lets go of the device, lock included. No I/O of it may be under way.
    pub(super) fn close(&mut self, port: &mut dyn Port) {
        if let Some(device) = self.device.take() {
            port.unregister(device.file);
            tracing::info!(path = %self.path.display(), "let go of the cache device");
        }
        self.loaded = None;
    }

    /// Goes on without a device, and says why. One with I/O under way is left to the kernel.
    pub(super) fn give_up(&mut self, reason: String) {
        tracing::error!(
            path = %self.path.display(), reason,
            "no cache device: volumes pass through (hint: exchange it with `cinnabar cache replace`)"
        );
        self.device = None;
        (self.missing, self.told) = (Some(reason), true);
    }
}

impl Plane {
    /// Blocks that fit on the device; 0 without one.
    pub(super) fn capacity_blocks(&self) -> u64 {
        self.cache.disk().map_or(0, |_| self.engine.cache_counters().capacity_blocks)
    }

    /// How the cache is, and why it is not serving.
    pub(super) fn cache_state(&self) -> (State, String) {
        let replacing = self.replacing.as_ref().map(|_| "the cache device is being replaced");
        match (self.engine.health(), replacing) {
            (_, Some(reason)) => (State::Degraded, reason.to_owned()),
            (Health::Serving, None) => (State::Serving, String::new()),
            (Health::Opening, None) => (State::Starting, "being opened".to_owned()),
            (Health::Loading { pages, of }, None) => {
                let reason =
                    format!("loading the index, {pages} of {of} pages; requests pass through");
                (State::Starting, reason)
            }
            (Health::PassThrough(reason), None) => {
                let missing = self.cache.missing.clone().filter(|_| self.cache.device.is_none());
                let reason = match (reason, missing) {
                    (PassThroughReason::Abandoned, _) if self.cache.hangs => {
                        "the cache device did not answer and was given up".to_owned()
                    }
                    (PassThroughReason::Abandoned, _) | (_, None) => why(reason),
                    (_, Some(missing)) => missing,
                };
                (State::Degraded, format!("volumes pass through: {reason}"))
            }
            (Health::Closed, None) => (State::Stopping, "closed".to_owned()),
        }
    }

    /// Says it once when the device is lost.
    pub(super) fn watch_health(&mut self) {
        if self.cache.told {
            return;
        }
        if let Health::PassThrough(reason) = self.engine.health() {
            self.cache.told = true;
            let path = self.cache.path.display();
            if reason == PassThroughReason::Abandoned {
                tracing::warn!(%path, "the cache device is not used any more: volumes pass through");
            } else {
                tracing::error!(
                    %path, reason = why(reason),
                    "the cache device is lost: volumes pass through (hint: exchange it with \
                     `cinnabar cache replace`)"
                );
            }
        }
    }

    /// Asks to be told when the index is loaded.
    pub(super) fn await_load(&mut self, now: Instant) {
        self.command(Awaited::Load(now), Command::AwaitLoad);
    }

    /// Once the index is loaded it is known how many blocks of a volume are believed.
    pub(super) fn settle_warmth(&mut self) {
        if self.cache.loaded.is_none() {
            return;
        }
        for (_, volume) in &mut self.volumes {
            if let (Warmth::Loading, Some(id)) = (volume.warmth, volume.id) {
                let counters = self.engine.volume_counters(id).unwrap_or_default();
                volume.warmth = Warmth::Warm { blocks: counters.cached_blocks };
            }
        }
    }

    pub(super) fn loaded(
        &mut self,
        now: Instant,
        opened: Instant,
        result: Result<LoadReport, Failure>,
    ) {
        let report = match result {
            Ok(report) => report,
            Err(error) => {
                if self.stop.is_none() && self.cache.device.is_some() {
                    tracing::warn!(reason = %error, "the index was not loaded");
                }
                return;
            }
        };
        let took = Duration::from_nanos(now.since_ns(opened));
        self.cache.loaded = Some(Loaded { report, took });
        self.settle_warmth();
        let LoadReport { start, blocks, pages, .. } = report;
        tracing::info!(
            ?start,
            blocks,
            pages,
            replayed_blocks = report.replayed_blocks,
            unflushed_blocks = report.unflushed_blocks,
            marked_blocks = report.marked_blocks,
            took_s = took.as_secs_f64(),
            "the index is loaded"
        );
        if report.damaged_pages > 0 {
            let damaged_pages = report.damaged_pages;
            tracing::warn!(damaged_pages, "some of the index was damaged; that is not cached");
        }
    }
}
