//! The cache device in use, if there is one: how it is, and what becomes known of it.

use super::control::PendingCommand;
use super::device::OpenedDevice;
use super::faults::Faults;
use super::patience::silence_max;
use super::plane::DataPlane;
use super::resize::CacheSize;
use cinnabar_backend::Disk;
use cinnabar_backend::generations::DeviceId;
use cinnabar_config::messages::{AnswerTo, Loaded, State};
use cinnabar_config::status::report::why;
use cinnabar_driver::DeviceLife;
use cinnabar_engine::counters::CacheCounters;
use cinnabar_engine::health::{Health, LoadReport, PassThroughReason};
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Command, Failure};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
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
    /// It was given up because its file was cut short: how.
    pub(super) cut_short: Option<String>,
    /// Errors of late.
    pub(super) faults: Faults,
    /// Times it was given up because it failed, hung or was cut short.
    pub(super) losses: u64,
    /// How large it is, and is to be.
    pub(super) size: Option<CacheSize>,
    /// A budget of SSD writes lets nothing go to flash.
    pub(super) throttled: bool,
    /// Times it was exchanged by command.
    pub(super) replacements: u64,
    /// Whether the log knows that it is not in use.
    told: bool,
    /// What may be done with it when, and what comes next.
    pub(super) life: DeviceLife<Box<OpenedDevice>>,
    /// The data threads know that operations without a time-out have a bound for now.
    pub(super) hurried: bool,
    /// Of operators who wait for it to be let go of.
    pub(super) abandoning: Vec<AnswerTo<()>>,
}

/// One that is open.
struct Device {
    disk: Arc<Disk>,
    id: DeviceId,
    /// What was formatted on it reaches so far.
    formatted_bytes: u64,
}

impl Cache {
    /// None yet.
    pub(super) fn none(path: PathBuf, timeout: Duration) -> Self {
        let (device, missing, loaded) = (None, None, None);
        Self {
            path,
            device,
            missing,
            loaded,
            timeout,
            hangs: false,
            cut_short: None,
            faults: Faults::default(),
            losses: 0,
            size: None,
            throttled: false,
            replacements: 0,
            told: false,
            life: DeviceLife::new(silence_max(timeout), Mutants::default()),
            hurried: false,
            abandoning: Vec::new(),
        }
    }

    /// The open device.
    pub(super) fn disk(&self) -> Option<&Disk> {
        self.device.as_ref().map(|device| &*device.disk)
    }

    /// Its identity, and where it is.
    pub(super) fn identity(&self) -> Option<(DeviceId, PathBuf)> {
        self.device.as_ref().map(|device| (device.id, self.path.clone()))
    }

    /// The open device, for others to look at.
    pub(super) fn shared(&self) -> Option<&Arc<Disk>> {
        self.device.as_ref().map(|device| &device.disk)
    }

    /// Whether this is the open device, and not one that was before.
    pub(super) fn is(&self, disk: &Weak<Disk>) -> bool {
        self.shared().is_some_and(|open| std::ptr::eq(disk.as_ptr(), Arc::as_ptr(open)))
    }

    /// What was formatted on it reaches so far; 0 without one.
    pub(super) fn formatted_bytes(&self) -> u64 {
        self.device.as_ref().map_or(0, |device| device.formatted_bytes)
    }

    /// Bytes of it that are used, or are to be; 0 without one.
    pub(super) fn used_bytes(&self) -> u64 {
        self.size.as_ref().map_or(0, CacheSize::used_bytes)
    }

    /// Whether the log knows that it is not in use.
    pub(super) const fn is_told(&self) -> bool {
        self.told
    }

    /// It is about to; true the first time.
    pub(super) const fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
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
    fn take(&mut self, disk: Arc<Disk>, id: DeviceId, formatted_bytes: u64) {
        disk.path().clone_into(&mut self.path);
        self.device = Some(Device { disk, id, formatted_bytes });
        (self.missing, self.loaded) = (None, None);
        (self.hangs, self.cut_short, self.told) = (false, None, false);
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

impl DataPlane {
    /// Takes a device that was opened, with the superblock of its first region.
    pub(super) fn install_cache(
        &mut self,
        disk: Disk,
        first: &Superblock,
    ) -> rustix::io::Result<()> {
        let disk = Arc::new(disk);
        let size = CacheSize::of(std::slice::from_ref(first));
        let capacity_blocks = size.capacity_blocks();
        self.cache.size = Some(size);
        self.shard_set.install_cache(&mut self.data_thread, &disk, capacity_blocks)?;
        self.cache.take(disk, first.uuid, first.geometry.device_bytes());
        let counters = self.shard_set.counters(&self.data_thread, &[]).cache;
        self.cache.faults = Faults::since(&counters);
        Ok(())
    }

    /// Lets go of the device, lock included, unless I/O that was given up may still write to it.
    pub(super) fn close_cache(&mut self) {
        self.shard_set.close_cache(&mut self.data_thread);
        if self.cache.device.take().is_some() {
            tracing::info!(path = %self.cache.path.display(), "let go of the cache device");
        }
        self.cache.loaded = None;
    }

    /// Blocks that fit on the device; 0 without one.
    pub(super) fn capacity_blocks(&self) -> u64 {
        self.shard_set.capacity_blocks
    }

    /// How the cache is, and why it is not serving.
    pub(super) fn cache_state(
        &self,
        now: Instant,
        health: Health,
        counters: &CacheCounters,
    ) -> (State, String) {
        let replacing = self.replacing.as_ref().map(|_| "the cache device is being replaced");
        match (health, replacing) {
            (_, Some(reason)) => (State::Degraded, reason.to_owned()),
            (Health::Serving, None) => match self.cache.faults.of_late(now, counters) {
                Some(reason) => (State::Degraded, reason),
                None => (State::Serving, String::new()),
            },
            (Health::Opening, None) => (State::Starting, "being opened".to_owned()),
            (Health::Loading { pages, of }, None) => {
                let reason =
                    format!("loading the index, {pages} of {of} pages; requests pass through");
                (State::Starting, reason)
            }
            (Health::PassThrough(reason), None) => {
                let missing = self.cache.missing.clone().filter(|_| self.cache.device.is_none());
                let reason = match (reason, missing) {
                    (PassThroughReason::Abandoned, _) if self.cache.cut_short.is_some() => {
                        self.cache.cut_short.clone().unwrap_or_default()
                    }
                    _ if self.cache.hangs => {
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

    /// Asks to be told when the index is loaded.
    pub(super) fn await_load(&mut self, now: Instant) {
        self.command(PendingCommand::Load(now), &Command::AwaitLoad);
    }

    /// Once the index is loaded it is known how many blocks of these volumes are believed.
    pub(super) fn settle_warmth(&mut self, mut keys: Vec<usize>) {
        keys.retain(|key| self.volumes[*key].life.id().is_some());
        if self.cache.loaded.is_none() || keys.is_empty() {
            return;
        }
        let ids: Vec<_> = keys.iter().map(|key| self.volumes[*key].life.id()).collect();
        let counters = self.shard_set.counters(&self.data_thread, &ids).volumes;
        for (key, counters) in keys.into_iter().zip(counters) {
            self.volumes[key].life.settle(&counters);
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
        self.settle_warmth(self.volumes.iter().map(|(key, _)| key).collect());
        let LoadReport { start, blocks, pages, .. } = report;
        tracing::info!(
            ?start,
            blocks,
            pages,
            replayed_blocks = report.replayed_blocks,
            unflushed_blocks = report.unflushed_blocks,
            doubtful_blocks = report.doubtful_blocks,
            overwritten_blocks = report.overwritten_blocks,
            took_s = took.as_secs_f64(),
            "the index is loaded"
        );
        if report.damaged_pages > 0 {
            let damaged_pages = report.damaged_pages;
            tracing::warn!(damaged_pages, "some of the index was damaged; that is not cached");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_backend::disk::OpenOptions;

    /// It may have been measured, or given up, before the other one came.
    #[test]
    fn what_is_said_of_one_device_does_not_concern_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut cache = Cache::none(folder.path().join("none"), Duration::ZERO);
        let install = |cache: &mut Cache, name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, [0; 4096]).expect("a file");
            let disk = Arc::new(Disk::open(&path, &OpenOptions::default()).expect("it opens"));
            let weak = Arc::downgrade(&disk);
            cache.take(disk, DeviceId::default(), 4096);
            weak
        };
        assert!(!cache.is(&Weak::new()), "there is none");
        let first = install(&mut cache, "first");
        assert!(cache.is(&first));
        let second = install(&mut cache, "second");
        assert!(!cache.is(&first));
        assert!(cache.is(&second));
        assert!(!cache.is(&Weak::new()));
    }
}
