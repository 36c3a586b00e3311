//! The cache device: opened at the start, formatted if it is new, and done without if it can't be used.

use super::replace::LOOK_EVERY;
use super::slow::Slow;
use super::times::DeviceTimes;
use super::{Driver, PendingCommand};
use crate::Options;
use crate::error::Error;
use cinnabar_backend::disk::{
    CacheDisk, CacheOptions, Contents, DiskError, DiskErrorKind, Identity, OpenOptions, Progress,
    in_time, open_cache,
};
use cinnabar_backend::generations::DeviceId;
use cinnabar_backend::port::OwnPort;
use cinnabar_backend::{Disk, FileId, Ledger, Memory, format, memory, port};
use cinnabar_driver::{DeviceLife, IoTracker, PendingProofs, Silence};
use cinnabar_engine::health::{Health, PassThroughReason};
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::shards::{ShardMap, Sharded};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{Command, Config, Failure, IoError};
use slab::Slab;
use std::collections::VecDeque;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest opening of a cache before its device counts as lost.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest operation on a device without a time-out while it is opened, replaced, let go of or closed.
pub(super) const SILENCE_MAX: Duration =
    if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(30) };

/// The cache device in use, or else the one that should be.
pub(crate) struct Device {
    pub(crate) path: PathBuf,
    open: Option<Open>,
    /// Why there is none, if it could not be opened.
    missing: Option<String>,
    /// Longest operation on it; zero: no bound.
    pub(super) timeout: Duration,
    /// An operation took longer.
    pub(super) hangs: bool,
    /// How long operations took.
    pub(crate) times: DeviceTimes,
    /// What may be done with it when, and what comes next.
    pub(super) life: DeviceLife<Prepared>,
    /// Devices that are not used any more, with I/O that has not ended. They stay locked as long as
    /// that may still write to them.
    pub(super) left: Vec<(FileId, Arc<Disk>)>,
}

/// The device in use.
pub(super) struct Open {
    disk: Arc<Disk>,
    file: FileId,
    id: DeviceId,
    segments: u64,
}

/// A device that is open, locked and formatted.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) disk: Disk,
    /// One for each shard.
    pub(super) superblocks: Vec<Superblock>,
}

impl Device {
    /// Where its I/O goes.
    pub(super) fn file(&self) -> Option<FileId> {
        self.open.as_ref().map(|open| open.file)
    }

    /// Its identity.
    pub(super) fn id(&self) -> Option<DeviceId> {
        self.open.as_ref().map(|open| open.id)
    }

    /// Segments of its log, of all shards together; 0 without a device.
    pub(crate) fn segments(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.segments)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Longest operation on it, as things are now; zero: no bound.
    pub(super) fn bound(&self) -> Duration {
        if self.timeout.is_zero() && self.life.hurries() { SILENCE_MAX } else { self.timeout }
    }

    /// What this file is of devices, for messages, unless it is none.
    pub(super) fn is_taken(&self, identity: &Identity) -> Option<&'static str> {
        let open = self.open.as_ref().map(|open| &open.disk);
        if open.is_some_and(|disk| disk.identity() == *identity) {
            return Some("the cache device");
        }
        let mut left = self.left.iter();
        let is_left = left.any(|(_, disk)| disk.identity() == *identity);
        is_left.then_some("a cache device that was given up and has not answered yet")
    }

    /// Takes it out of use.
    pub(super) fn take_open(&mut self) -> Option<(FileId, Arc<Disk>)> {
        self.open.take().map(|open| (open.file, open.disk))
    }

    /// The path of the device with this file.
    pub(super) fn path_of(&self, file: FileId) -> &Path {
        let left = self.left.iter().find(|left| left.0 == file);
        left.map_or(&self.path, |(_, disk)| disk.path())
    }
}

/// Opens everything but the volumes.
pub(crate) fn open(options: &Options) -> Result<Driver, Error> {
    let wait = OpenOptions { lock_wait: options.lock_wait, ..OpenOptions::default() };
    let cache_options = CacheOptions {
        size_bytes: options.size_bytes,
        force: options.format,
        format: options.fresh,
        room: None,
        open: OpenOptions { progress: Progress::default(), ..wait.clone() },
    };
    let bound = silence_max(options.device_timeout);
    let (path, silent) = (options.device.clone(), silent(options));
    let progress = cache_options.open.progress.clone();
    let opened = in_time(&progress, bound, &wait, move || open_cache(&path, &cache_options))
        .unwrap_or(Err(silent));
    if let Ok(cache) = &opened {
        cache.warn_of_size(options.size_bytes);
    }
    if let Err(error) = &opened
        && (options.required || !error.kind.is_lost(true))
    {
        return Err(Error::Device(error.clone()));
    }
    let ledger = Ledger::open(&options.state_dir, &wait).map_err(Error::State)?;
    let known = ledger.with(|state| state.knows_cache(&options.device));
    let opened = match opened {
        Err(error) if !error.kind.is_lost(known) => return Err(Error::Device(error)),
        Ok(cache) => {
            warn_of_another(options, &cache, &ledger);
            Ok(cache)
        }
        other => other,
    };
    let mut driver = Driver::new(options, ledger)?;
    match opened {
        Ok(cache) => driver.begin(options, cache)?,
        Err(error) => driver.go_without(options, error.to_string()),
    }
    if driver.device.is_open() {
        driver.device.life.begin();
        let begun = driver.start_engine()?;
        driver.device.life.begun(begun);
        match begun {
            Ok(()) => {
                driver.ease_device();
                driver.order(PendingCommand::Load, Command::AwaitLoad);
                return Ok(driver);
            }
            Err(failure) if options.required => {
                return Err(Error::DeviceFailed { path: options.device.clone(), failure });
            }
            Err(failure) => driver.go_without(options, failure.to_string()),
        }
    }
    driver.start_engine()?.map_err(|failure| Error::Failed { what: "starting", failure })?;
    Ok(driver)
}

impl Driver {
    fn new(options: &Options, ledger: Ledger) -> Result<Self, Error> {
        let port = port::open(options.io).map_err(Error::Port)?;
        let slow = Slow::new(port.waker());
        Ok(Self {
            origin: Instant::now(),
            port: OwnPort::new(port),
            engine: without_device(options, map_without_device(options)),
            device: Device {
                path: options.device.clone(),
                open: None,
                missing: None,
                timeout: options.device_timeout,
                hangs: false,
                times: DeviceTimes::default(),
                life: DeviceLife::new(silence_max(options.device_timeout), Mutants::default()),
                left: Vec::new(),
            },
            ledger,
            lock_wait: options.lock_wait,
            volumes: Slab::new(),
            by_id: Vec::new(),
            requests: Slab::new(),
            dropping: 0,
            commands: Slab::new(),
            ios: IoTracker::new(),
            early: Vec::new(),
            slow,
            proofs: PendingProofs::new(Mutants::default()),
            engine_wake: None,
            opened: None,
            fresh: Vec::new(),
            next_late: None,
            looked_at: cinnabar_engine::units::Instant::default(),
            lost_at: None,
            loaded: None,
            done: VecDeque::new(),
            answered: None,
            events: Vec::new(),
            actions: Vec::new(),
            port_events: Vec::new(),
        })
    }

    /// Takes a device that is open and makes an engine for it, formatting it if it is blank.
    fn begin(&mut self, options: &Options, cache: CacheDisk) -> Result<(), Error> {
        let (progress, shards) = (cache.disk.progress().clone(), options.shards);
        let bound = silence_max(options.device_timeout);
        let work =
            move || superblocks_of(shards, &cache).map(|found| found.map(|all| (cache, all)));
        let found = in_time(&progress, bound, &OpenOptions::default(), work);
        let (cache, superblocks) = match found.unwrap_or_else(|| Ok(Err(silent(options))))? {
            Ok(found) => found,
            Err(error) if options.required => return Err(Error::Device(error)),
            Err(error) => {
                self.go_without(options, error.to_string());
                return Ok(());
            }
        };
        self.engine = Sharded::new(config(options, superblocks.len()), superblocks.clone());
        self.advise_tables();
        self.use_device(cache.disk, &superblocks)
    }

    /// From now on the engine's I/O for the cache device goes to this one.
    pub(super) fn use_device(
        &mut self,
        disk: Disk,
        superblocks: &[Superblock],
    ) -> Result<(), Error> {
        let disk = Arc::new(disk);
        let file = self.port.register(Arc::clone(&disk)).map_err(Error::Files)?;
        let segments = superblocks.iter().map(|one| u64::from(one.segments_used)).sum();
        let device = &mut self.device;
        disk.path().clone_into(&mut device.path);
        (device.missing, device.hangs) = (None, false);
        device.open = Some(Open { disk, file, id: superblocks[0].uuid, segments });
        Ok(())
    }

    /// Large tables are better off in huge pages.
    pub(super) fn advise_tables(&self) {
        for (start, len) in self.engine.tables() {
            memory::advise_huge(start, len);
        }
    }

    /// The engine's first command; the inner error is the device's.
    fn start_engine(&mut self) -> Result<Result<(), Failure>, Error> {
        let mut silence = Silence::since(self.now());
        let place = self.order(PendingCommand::Under, Command::Open);
        loop {
            self.act();
            if matches!(self.commands[place], PendingCommand::Answered(_)) {
                let PendingCommand::Answered(answer) = self.commands.remove(place) else {
                    unreachable!("it was just looked at")
                };
                return Ok(answer.map(drop));
            }
            if silence.is_over(self.now(), OPEN_WAIT_MAX) {
                return Ok(Err(Failure::Io(IoError::TimedOut)));
            }
            self.wait(Some(LOOK_EVERY))?;
        }
    }

    /// Goes on uncached. One with I/O under way is left to the kernel.
    fn go_without(&mut self, options: &Options, mut reason: String) {
        if let Some(last) = self.ledger.with(|state| state.cache_elsewhere(&options.device)) {
            let _infallible = write!(reason, "; the one in use last was {}", last.display());
        }
        tracing::error!(path = %self.device.path.display(), reason, "no cache device: uncached");
        self.device.missing = Some(reason);
        self.engine = without_device(options, *self.engine.router().map());
        self.engine_wake = None;
        self.commands.clear();
        self.events.clear();
        // No engine waits any more for what hangs in the kernel.
        self.ios.iter_mut().for_each(|io| io.of.owner = None);
        self.close_device();
        self.fresh.clear();
    }

    /// Why nothing is cached; `None` if all is well, or soon will be.
    pub(crate) fn degraded(&self) -> Option<String> {
        let Health::PassThrough(reason) = self.engine.health() else { return None };
        Some(match (reason, &self.device.missing) {
            (_, Some(missing)) => missing.clone(),
            _ if self.device.hangs => "the cache device did not answer and was given up".into(),
            (PassThroughReason::Abandoned, _) => "the cache device was given up".into(),
            (PassThroughReason::Failed(error), _) => {
                format!("the cache device could not record what it has to: {error}")
            }
            (PassThroughReason::NoDevice, _) => "there is no cache device".into(),
        })
    }
}

/// A cache that is not the one in use last: after a replacement, its name may be an old one.
fn warn_of_another(options: &Options, cache: &CacheDisk, ledger: &Ledger) {
    if let Contents::Ours(_) = cache.contents
        && let Some(last) = ledger.with(|state| state.cache_elsewhere(&options.device))
    {
        tracing::warn!(
            path = %options.device.display(),
            last = %last.display(),
            "another cache device was in use last: what this one holds of its volumes is not believed \
             (hint: after a replacement, name the new one)"
        );
    }
}

/// The superblocks that are there, or those of a fresh format; the inner error is the device's.
fn superblocks_of(
    shards: Option<u32>,
    cache: &CacheDisk,
) -> Result<Result<Vec<Superblock>, DiskError>, Error> {
    let disk = &cache.disk;
    if let Contents::Ours(first) = &cache.contents {
        return Ok(format::superblocks(disk, first));
    }
    let size = disk.size_bytes();
    let shards = shards.unwrap_or_else(|| Geometry::shards_for(size));
    let fresh = fresh_superblocks(disk, shards.clamp(1, Geometry::SHARDS_MAX))?;
    Ok(format::write(disk, &fresh).map(|()| fresh))
}

/// The superblocks of a fresh format with so many shards; nothing is written yet.
pub(super) fn fresh_superblocks(disk: &Disk, shards: u32) -> Result<Vec<Superblock>, Error> {
    let geometry = Geometry::for_shards(disk.size_bytes(), shards)
        .map_err(|error| Error::DeviceSize { path: disk.path().to_owned(), error })?;
    format::fresh(geometry).map_err(Error::Random)
}

/// What it means that the device gets nowhere while it is opened or formatted.
fn silent(options: &Options) -> DiskError {
    let kind = DiskErrorKind::Silent(silence_max(options.device_timeout));
    DiskError { path: options.device.clone(), kind }
}

/// The longest silence of a cache device with this time-out.
pub(super) const fn silence_max(timeout: Duration) -> Duration {
    if timeout.is_zero() { SILENCE_MAX } else { timeout }
}

/// Shards where there is no device to say: those of one that may come.
fn map_without_device(options: &Options) -> ShardMap {
    let size = options.size_bytes.unwrap_or(0);
    let shards = options.shards.unwrap_or_else(|| Geometry::shards_for(size));
    ShardMap::usual(shards.clamp(1, Geometry::SHARDS_MAX))
}

fn without_device(options: &Options, map: ShardMap) -> Sharded<Memory> {
    Sharded::without_device(config(options, map.shards() as usize), map)
}

/// Settings of each of so many shards, which share what probation may take.
fn config(options: &Options, shards: usize) -> Config {
    let probation = options.probation_bytes.map(|bytes| bytes / BLOCK_BYTES);
    let probation = probation.map(|all| all.div_ceil(shards as u64));
    Config {
        eviction: options.eviction,
        endurance: options.endurance,
        crash_safe: options.crash_safe,
        heartbeats_apart: true,
        probation_blocks: probation.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX)),
        ..Config::default()
    }
}
