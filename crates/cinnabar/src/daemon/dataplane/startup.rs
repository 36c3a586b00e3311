//! From a configuration to a loop that serves.
//!
//! Called by the data thread. Whatever can be wrong is found before the cache device is touched, so
//! that a failed start costs no warmth: locks, sizes, names, shares, addresses come first, then
//! generations, then a format if one is due, and only then the engine opens the device. A device
//! that is lost does not keep guests from their disks: they are served without it.

use super::background::Background;
use super::cache::Cache;
use super::clock::Clock;
use super::control::Awaited;
use super::disks::{self, OpenedVolume, Taken};
use super::plane::{Plane, Warnings};
use super::proofs::Distrusts;
use super::timers::Timers;
use super::volume::{Phase, Recorders, Volume, export_of};
use super::{device, format};
use crate::daemon::generations::Ledger;
use crate::daemon::messages::{
    AnswerTo, Commands, IoMode, StartConfig, StartError, StartErrorKind, Subject, VolumeConfig,
};
use cinnabar_backend::disk::{Contents, Disk, OpenOptions};
use cinnabar_backend::{Memory, Proof, SimModel, memory, port};
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::plan::Mode;
use cinnabar_engine::units::{BLOCK_BYTES, SECTOR_BYTES};
use cinnabar_engine::volume::{Belief, VolumeSpec, Warmth};
use cinnabar_engine::{Command, Config, Engine};
use cinnabar_frontend::nbd::{Export, Limits, ListenError, Server};
use slab::Slab;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The minimums of all volumes sum to at most this share of the capacity, in percent.
const SHARES_MIN_PERCENT: u64 = 80;
/// How exactly the thread wakes up for what is due: models of fast devices need it.
const TIMER_SLACK_NS: u64 = 1000;

impl Plane {
    /// Opens everything, and serves once it returns.
    pub(super) fn start(config: &StartConfig) -> Result<(Self, Commands), StartError> {
        let options = OpenOptions {
            lock_wait: config.lock_wait_max,
            cancel: Some(Arc::clone(&config.cancel)),
            ..OpenOptions::default()
        };
        let opened = device::open_configured(&config.cache, &options);
        if let Err(error) = &opened
            && (config.cache.required || !error.kind.is_lost(true))
        {
            return Err(device::start_error(error));
        }
        let ledger = Ledger::open(&config.cache.state_dir, &options)
            .map_err(|error| disks::state_error(&error))?;
        let cache = match opened {
            Ok(cache) => Ok(cache),
            Err(error) => {
                let known = ledger.with(|state| state.knows_cache(&config.cache.device));
                if !error.kind.is_lost(known) {
                    return Err(device::start_error(&error));
                }
                Err(error.to_string())
            }
        };
        let superblock = cache.as_ref().ok().map(format::superblock_for).transpose()?;
        let mut used: Vec<Taken> = cache.iter().map(|cache| taken_by_cache(&cache.disk)).collect();
        let mut opened = Vec::with_capacity(config.volumes.len());
        for volume in &config.volumes {
            let volume = disks::open_volume(volume, &options, &used)?;
            used.push(taken(&volume.disk, &volume.config));
            opened.push(volume);
        }
        let settings = engine_config(config);
        let engine = match &superblock {
            Some(superblock) => Engine::new(settings, superblock.clone()),
            None => Engine::without_device(settings),
        };
        for (start, len) in engine.tables() {
            memory::advise_huge(start, len);
        }
        let (mut plane, commands) = Self::new(config, options, engine, ledger)?;
        let blank = match (cache, superblock) {
            (Ok(cache), Some(superblock)) => {
                plane
                    .cache
                    .install(&mut **plane.port, cache.disk, superblock.uuid)
                    .map_err(|errno| no_place(Subject::Cache, errno))?;
                (cache.contents == Contents::Blank).then_some(superblock)
            }
            (Err(reason), _) => {
                plane.cache.give_up(reason);
                None
            }
            (Ok(_), None) => unreachable!("an open device has a superblock, or is to get one"),
        };
        match plane.prepare(config, opened, blank.as_ref()) {
            Ok(()) => Ok((plane, commands)),
            Err(error) => {
                plane.end();
                Err(error)
            }
        }
    }

    /// A loop without volumes and cache device.
    fn new(
        config: &StartConfig,
        open_options: OpenOptions,
        engine: Engine<Memory>,
        ledger: Ledger,
    ) -> Result<(Self, Commands), StartError> {
        let port = open_port(config.cache.io)?;
        sharpen_timers();
        let (commands, messages) = super::message_queue(port.waker());
        let background = Background::new(port.waker());
        let plane = Self {
            clock: Clock::start(),
            port: ManuallyDrop::new(port),
            engine,
            server: Server::new(Limits::default()),
            cache: Cache::none(config.cache.device.clone(), config.cache.device_timeout),
            replacing: None,
            volumes: Slab::new(),
            order: Vec::new(),
            by_id: Vec::new(),
            requests: Slab::new(),
            awaited: Slab::new(),
            ios: Slab::new(),
            early: Vec::new(),
            next_overdue: None,
            ledger,
            distrusts: Distrusts::default(),
            timers: Timers::default(),
            engine_wake: None,
            background,
            opening: Vec::new(),
            open_options,
            messages,
            stop: None,
            warnings: Warnings::default(),
            opened: None,
            events: Vec::new(),
            actions: Vec::new(),
            incoming: Vec::new(),
            port_events: Vec::new(),
        };
        Ok((plane, commands))
    }

    /// Listens for all volumes, formats the device if `blank` is its superblock, opens it.
    fn prepare(
        &mut self,
        config: &StartConfig,
        opened: Vec<OpenedVolume>,
        blank: Option<&Superblock>,
    ) -> Result<(), StartError> {
        let keys =
            opened.into_iter().map(|volume| self.install(volume)).collect::<Result<Vec<_>, _>>()?;
        self.look_up_generations(&keys)?;
        self.open(config, blank)?;
        self.attach_all(&keys)
    }

    /// The generations of volumes that are to be attached.
    fn look_up_generations(&mut self, keys: &[usize]) -> Result<(), StartError> {
        let names: Vec<String> =
            keys.iter().map(|key| self.volumes[*key].config.name.clone()).collect();
        let device = self.cache.identity();
        let device = device.as_ref().map(|(id, path)| (*id, path.as_path()));
        let generations = self
            .ledger
            .with(|state| state.attach(&names, device))
            .map_err(|error| disks::state_error(&error))?;
        for (key, generation) in keys.iter().zip(generations) {
            self.volumes[*key].generation = generation;
        }
        Ok(())
    }

    /// Makes an opened volume known to everybody but the engine.
    pub(super) fn install(&mut self, opened: OpenedVolume) -> Result<usize, StartError> {
        let OpenedVolume { config, disk, layers, epoch, generation } = opened;
        let subject = || Subject::Volume(config.name.clone());
        self.check_shares(&config, None)?;
        let disk = Arc::new(disk);
        let file =
            self.port.register(Arc::clone(&disk)).map_err(|errno| no_place(subject(), errno))?;
        let size = disk.size_bytes();
        let models = layers.into_iter().map(|spec| SimModel::new(spec, size)).collect();
        let export = Export {
            id: export_of(self.volumes.vacant_key()),
            name: config.name.clone(),
            size_bytes: size,
            read_only: config.read_only,
            // Whatever the disk needs: the engine reads and rewrites the blocks around.
            min_block_bytes: SECTOR_BYTES as u32,
            shared: config.shared,
            description: String::new(),
        };
        if let Err(error) = self.listen(&config, export) {
            self.port.unregister(file);
            return Err(error);
        }
        let key = self.volumes.insert(Volume {
            config,
            disk,
            file,
            models,
            id: None,
            epoch,
            generation,
            warmth: Warmth::New,
            latencies: Recorders::default(),
            phase: Phase::Attaching,
            in_flight: 0,
            overdue_now: 0,
        });
        self.order.push(key);
        Ok(key)
    }

    fn listen(&mut self, config: &VolumeConfig, export: Export) -> Result<(), StartError> {
        let subject = || Subject::Volume(config.name.clone());
        let id = export.id;
        self.server.add_export(export).map_err(|error| {
            let kind = StartErrorKind::Settings;
            StartError::new(kind, subject(), error.to_string(), "choose another name")
        })?;
        self.server.listen(&config.nbd, &[id]).map(drop).map_err(|error| {
            self.server.remove_export(id, &mut super::plane::Pool);
            let (kind, hint) = match error {
                ListenError::InUse(_) => (
                    StartErrorKind::AddressInUse,
                    "stop whoever listens there, or choose another address",
                ),
                _ => (
                    StartErrorKind::AddressInvalid,
                    "choose a socket path in a folder that exists, or an address of this host",
                ),
            };
            let mut message = format!("nbd {}: {error}", config.nbd);
            if let Some(source) = std::error::Error::source(&error) {
                message = format!("{message}: {source}");
            }
            StartError::new(kind, subject(), message, hint)
        })
    }

    /// Sends the engine a volume.
    pub(super) fn attach(&mut self, key: usize, answer: Option<AnswerTo<()>>) {
        let (share_min_blocks, share_max_blocks) = self.shares(&self.volumes[key].config);
        let volume = &mut self.volumes[key];
        let config = &volume.config;
        let epoch = volume.epoch.take();
        let recorded = self.engine.recorded(&config.name);
        let belief = recorded
            .map_or(Belief::Unknown, |recorded| volume.disk.judge(&recorded, epoch.as_ref()));
        let spec = VolumeSpec {
            name: config.name.clone(),
            size_bytes: volume.disk.size_bytes(),
            align_bytes: volume.disk.align_bytes(),
            read_only: config.read_only,
            mode: Mode::from(config.mode),
            share_min_blocks,
            share_max_blocks,
            bypass_sequential_bytes: config.bypass_sequential_bytes,
            bypass_large_bytes: config.bypass_large_bytes,
            belief,
            generation: volume.generation,
            epoch,
            exclusive: config.exclusive,
        };
        self.command(Awaited::Attach(key, answer), Command::Attach(spec));
    }

    /// Smallest and largest share in blocks.
    pub(super) fn shares(&self, config: &VolumeConfig) -> (u64, u64) {
        let capacity = self.capacity_blocks();
        (config.share_min.blocks(capacity), config.share_max.blocks(capacity))
    }

    /// Refuses minimums that can't be kept. `except` is the volume whose settings these are to be.
    pub(super) fn check_shares(
        &self,
        config: &VolumeConfig,
        except: Option<usize>,
    ) -> Result<(), StartError> {
        let capacity = self.capacity_blocks();
        let (min, max) = self.shares(config);
        let others = self.volumes.iter().filter(|(key, _)| Some(*key) != except);
        let sum: u64 = others.map(|(_, volume)| self.shares(&volume.config).0).sum::<u64>() + min;
        let problem = if min > max {
            format!("share_min is more than share_max ({min} and {max} blocks)")
        } else if sum > capacity * SHARES_MIN_PERCENT / 100 {
            format!(
                "the minimums of all volumes sum to {sum} blocks, more than {SHARES_MIN_PERCENT} % \
                 of the cache's {capacity}"
            )
        } else {
            return Ok(());
        };
        let subject = Subject::Volume(config.name.clone());
        let hint = "lower a share_min";
        Err(StartError::new(StartErrorKind::Settings, subject, problem, hint))
    }

    /// The files that are in use here.
    pub(super) fn taken(&self) -> Vec<Taken> {
        let volumes = self.volumes.iter().map(|(_, volume)| taken(&volume.disk, &volume.config));
        self.cache.disk().map(taken_by_cache).into_iter().chain(volumes).collect()
    }
}

fn taken_by_cache(disk: &Disk) -> Taken {
    Taken { identity: disk.identity(), read_only: false, what: "the cache device".into() }
}

fn taken(disk: &Disk, config: &VolumeConfig) -> Taken {
    let what = format!("the backend of volume {:?}", config.name);
    Taken { identity: disk.identity(), read_only: config.read_only, what }
}

fn open_port(mode: IoMode) -> Result<Box<dyn port::Port>, StartError> {
    let mode = match mode {
        IoMode::Auto => port::IoMode::Auto,
        IoMode::Uring => port::IoMode::Uring,
        IoMode::Threads => port::IoMode::Threads,
    };
    port::open(mode).map_err(|error| {
        let (kind, hint) = if mode == port::IoMode::Uring {
            (StartErrorKind::Settings, "set io = \"auto\" to go without io_uring")
        } else {
            (StartErrorKind::Resources, "check the limits on threads and open files")
        };
        StartError::new(kind, Subject::Cache, format!("no I/O: {error}"), hint)
    })
}

pub(super) fn engine_config(config: &StartConfig) -> Config {
    let probation = config.cache.probation_bytes.map(|bytes| bytes / BLOCK_BYTES);
    Config {
        eviction: config.cache.eviction.into(),
        crash_safe: config.cache.crash_safe,
        probation_blocks: probation.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX)),
        ..Config::default()
    }
}

fn no_place(subject: Subject, errno: rustix::io::Errno) -> StartError {
    let message = format!("no place for another file: {errno}");
    StartError::new(StartErrorKind::Resources, subject, message, "raise the limit on open files")
}

/// The kernel rounds a thread's time-outs up by 50 us unless told otherwise.
fn sharpen_timers() {
    let slack = std::num::NonZeroU64::new(TIMER_SLACK_NS);
    if let Err(errno) = rustix::thread::set_current_timer_slack(slack) {
        tracing::debug!(%errno, "time-outs stay coarse");
    }
}
