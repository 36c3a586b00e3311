//! From a configuration to a loop that serves.
//!
//! Whatever can be wrong is found before the cache device is touched, so that a failed start costs
//! no warmth: locks, sizes, names, shares, addresses come first, then generations, then a format if
//! one is due, and only then the engine opens the device. A device that is lost does not keep guests
//! from their disks: they are served without it.

use super::absent::Absents;
use super::background::Background;
use super::cache::Cache;
use super::clock::Clock;
use super::clones::Parent;
use super::control::PendingCommand;
use super::data_thread::DataThread;
use super::device;
use super::disks::{self, OpenedVolume, Taken};
use super::forced::Forced;
use super::front::{ClientLimits, Front};
use super::inbox::Inbox;
use super::io_table::IoTable;
use super::migrate::{Moves, standby_name};
use super::plane::DataPlane;
use super::qos::{Groups, VolumeQos};
use super::recordings::Recordings;
use super::renewal::Renewal;
use super::requests::Overdue;
use super::shard_set::ShardSet;
use super::state_folder::{StateFolder, warn_of_one_disk};
use super::volume::{Change, Recorders, Volume, VolumeIo};
use super::watch::Watch;
use super::worker::Worker;
use super::writes::{self, Halves, Leaving, OpenFailed, Traffic, Writes};
use cinnabar_backend::disk::{CacheDisk, Contents, Disk, OpenOptions};
use cinnabar_backend::generations::Ledger;
use cinnabar_backend::{Proof, entropy, memory, port};
use cinnabar_config::messages::samplers::samplers;
use cinnabar_config::messages::{
    AnswerTo, CacheConfig, Commands, IoMode, ModeCause, StartConfig, StartError, StartErrorKind,
    Subject, VolumeConfig,
};
use cinnabar_driver::ownership::Trust;
use cinnabar_driver::{PendingProofs, VolumeLife, WriteMode};
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::plan::Mode;
use cinnabar_engine::shards::ShardMap;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::volume::{Belief, VolumeSpec};
use cinnabar_engine::{Config, Engine};
use slab::Slab;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How exactly the thread wakes up for what is due: models of fast devices need it.
const TIMER_SLACK_NS: u64 = 1000;

impl DataPlane {
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
        let last = ledger.with(|state| state.cache_elsewhere(&config.cache.device));
        let cache = match opened {
            Ok(cache) => {
                device::warn_of_another(&cache.0, last.as_deref());
                // Of one that does not answer it can't be said.
                warn_of_one_disk(&config.cache.device, &config.cache.state_dir);
                Ok(cache)
            }
            Err(error) => {
                let known = ledger.with(|state| state.knows_cache(&config.cache.device));
                if !error.kind.is_lost(known) {
                    return Err(device::start_error(&error));
                }
                let last = last.map(|last| format!("; the one in use last was {}", last.display()));
                Err(format!("{error}{}", last.unwrap_or_default()))
            }
        };
        let (cache, reason) = match cache {
            Ok((cache, superblocks)) => match superblocks {
                Ok(superblocks) => (Some((cache, superblocks)), String::new()),
                Err(error)
                    if error.kind == StartErrorKind::CacheFormat && !config.cache.required =>
                {
                    (None, error.message)
                }
                Err(error) => return Err(error),
            },
            Err(reason) => (None, reason),
        };
        let log = match writes::open(&config.cache, &options) {
            Ok(log) => Ok(log),
            Err(OpenFailed::Missing(reason)) => Err(reason),
            Err(OpenFailed::Fatal(error)) => return Err(error),
        };
        let mut used: Vec<Taken> =
            cache.iter().map(|(cache, _)| taken_by_cache(&cache.disk)).collect();
        used.extend(log.iter().flatten().flat_map(|log| log.halves.disks()).map(taken_by_log));
        let (mut plane, commands) = Self::new(config, options, ledger)?;
        plane.end_tls_by(config.tls.as_ref());
        let begun = plane
            .install_writes(&config.cache, log)
            .and_then(|()| plane.open_backends(config, used))
            .and_then(|opened| plane.begin(config, cache.ok_or(reason), opened));
        match begun {
            Ok(()) => Ok((plane, commands)),
            Err(error) => {
                plane.end();
                Err(error)
            }
        }
    }

    /// A loop without engines, volumes and cache device.
    fn new(
        config: &StartConfig,
        open_options: OpenOptions,
        ledger: Ledger,
    ) -> Result<(Self, Commands), StartError> {
        let CacheConfig { io, device_timeout, threads, poll_max, .. } = config.cache;
        let port = open_port(io)?;
        sharpen_timers();
        let (commands, messages) = super::message_queue(port.waker());
        let clients = ClientLimits::of(&config.cache);
        let (heard, front) = (Inbox::new(port.waker()), Front::new(port.waker(), clients));
        let clock = Clock::start();
        let background = Background::new(port.waker(), clock);
        let streams = config.manager.as_ref().map(|manager| {
            samplers(threads, manager.every_us(), manager.monitor.seed, clock.origin())
        });
        let groups = config.qos_groups.iter().map(|group| (group.name.clone(), group.depth));
        let threads = threads.max(1);
        let times = (device_timeout, poll_max);
        let worker = |number| Worker::start(number, clock, io, clients, times, heard.clone());
        let workers = (1..threads).map(worker).collect::<Result<Vec<_>, _>>()?;
        let mut data_thread =
            DataThread::new(0, clock, IoTable::new(port, device_timeout), poll_max);
        introduce(&mut data_thread, &workers);
        let plane = Self {
            data_thread,
            shard_set: ShardSet::new(workers),
            front,
            drains: 0,
            cache: Cache::none(config.cache.device.clone(), device_timeout),
            replacing: None,
            volumes: Slab::new(),
            groups: Groups::new(groups),
            order: Vec::new(),
            requests: Slab::new(),
            awaited: Slab::new(),
            replies: Vec::new(),
            ledger,
            state_folder: StateFolder::default(),
            proofs: PendingProofs::new(Mutants::default()),
            background,
            opening: Vec::new(),
            absents: Absents::default(),
            watch: Watch::default(),
            forced: Forced::default(),
            open_options,
            messages,
            heard,
            heard_early: Vec::new(),
            recordings: Recordings::new(
                streams.as_ref().map(|streams| streams.samplers.every_us()),
            ),
            samplers: streams.as_ref().map(|streams| Arc::clone(&streams.samplers)),
            streams,
            targets: BTreeMap::new(),
            writes: Writes::Off,
            identity: format!("{:016x}", draw_attachment()?),
            claims_dir: config.cache.state_dir.join("claims"),
            drain_on_stop: config.cache.write_log.as_ref().is_some_and(|log| log.drain_on_stop),
            rpo: config.cache.write_log.as_ref().map_or(Duration::MAX, |log| log.rpo),
            stop: None,
            opened: None,
            look_at: None,
            waiting: Vec::new(),
            next_late: None,
            overdue: Overdue::default(),
            port_events: Vec::new(),
            said: Vec::new(),
        };
        Ok((plane, commands))
    }

    /// Seats the engines, and serves.
    fn begin(
        &mut self,
        config: &StartConfig,
        cache: Result<(CacheDisk, Vec<Superblock>), String>,
        opened: Vec<OpenedVolume>,
    ) -> Result<(), StartError> {
        match cache {
            Ok((cache, superblocks)) => {
                self.seat(config, &superblocks);
                self.install_cache(cache.disk, &superblocks[0])
                    .map_err(|errno| no_place(Subject::Cache, errno))?;
                self.plan_size(&config.cache, &superblocks);
                let blank = cache.contents == Contents::Blank;
                self.prepare(config, opened, blank.then_some(&superblocks))
            }
            Err(reason) => {
                self.seat_without_device(config);
                self.cache.give_up(reason);
                self.prepare(config, opened, None)
            }
        }
    }

    fn seat(&mut self, config: &StartConfig, superblocks: &[Superblock]) {
        let settings = engine_config(config, superblocks.len());
        let new = |superblock: &Superblock| Engine::new(settings, superblock.clone());
        let engines: Vec<_> = superblocks.iter().map(new).collect();
        for (start, len) in engines.iter().flat_map(Engine::tables) {
            memory::advise_huge(start, len);
        }
        let map = ShardMap::of(&superblocks[0].geometry);
        self.shard_set.seat(&mut self.data_thread, map, engines);
    }

    /// Engines that pass through, as many as the device would have.
    pub(super) fn seat_without_device(&mut self, config: &StartConfig) {
        let size = config.cache.size_max_bytes.or(config.cache.size_bytes).unwrap_or(0);
        let shards = config.cache.shards.unwrap_or_else(|| Geometry::shards_for(size));
        let settings = engine_config(config, shards as usize);
        let engines = (0..shards).map(|_| Engine::without_device(settings)).collect();
        self.shard_set.seat(&mut self.data_thread, ShardMap::usual(shards), engines);
    }

    /// Listens for all volumes, formats the device if `blank` are its superblocks, opens it.
    fn prepare(
        &mut self,
        config: &StartConfig,
        opened: Vec<OpenedVolume>,
        blank: Option<&[Superblock]>,
    ) -> Result<(), StartError> {
        let keys = self.install_all(opened)?;
        self.check_minimums()?;
        self.listen_for_absents()?;
        self.look_up_generations(&keys)?;
        self.open(config, blank)?;
        self.take_planned_size();
        self.attach_all(&keys)?;
        let now = self.data_thread.clock.now();
        self.retry_absent(now);
        self.look_around(now);
        Ok(())
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

    /// Refuses minimums of all configured volumes that can't be kept. Those that wait count, too: the one that came
    /// last would wait without end.
    fn check_minimums(&self) -> Result<(), StartError> {
        self.check_capacity(self.capacity_blocks()).map_err(|problem| {
            StartError::new(StartErrorKind::Settings, Subject::Cache, problem, "lower a share_min")
        })
    }

    /// Installs the configured volumes; gives their keys, in their order. Those that move come first: the
    /// first thread has to have their addresses, which others may share. One whose address something else has
    /// waits, as one without its back end does.
    fn install_all(&mut self, opened: Vec<OpenedVolume>) -> Result<Vec<usize>, StartError> {
        let mut keys = vec![None; opened.len()];
        let moves = |(_, volume): &(usize, OpenedVolume)| volume.standby.is_some();
        let (moving, others): (Vec<_>, Vec<_>) = opened.into_iter().enumerate().partition(moves);
        for (at, volume) in moving.into_iter().chain(others) {
            let config = volume.config.clone();
            match self.install(volume) {
                Ok(key) => keys[at] = Some(key),
                Err(error) if error.kind.is_of_address() => self.waits_for_address(config, &error),
                Err(error) => return Err(error),
            }
        }
        let keys: Vec<usize> = keys.into_iter().flatten().collect();
        self.order.clone_from(&keys);
        Ok(keys)
    }

    /// Makes an opened volume known to all but the engine.
    pub(super) fn install(&mut self, opened: OpenedVolume) -> Result<usize, StartError> {
        self.check_parent(&opened)?;
        // Others may have been opened beside it, and a server may have several names.
        disks::check_taken(&opened.config, &opened.identity(), &self.taken())?;
        let OpenedVolume { config, disk, layers, proof, generation, claim_at, standby, .. } =
            opened;
        let subject = || Subject::Volume(config.name.clone());
        self.check_shares(&config, None)?;
        if let Some(thread) = self.thread_at(&config).filter(|thread| *thread > 0)
            && config.peer.is_some()
        {
            let message = format!("its NBD address is served by data thread {thread}, for others");
            let hint = "volumes that move are served by the first: give it an address of its own";
            return Err(StartError::new(StartErrorKind::AddressInvalid, subject(), message, hint));
        }
        let thread = self.thread_for(&config)?;
        let attachment = draw_attachment()?;
        let peer = config.peer.as_ref();
        let moves = standby.zip(peer.cloned());
        let moves = moves.map(|(record, peer)| Box::new(Moves::standby(&config, peer, record)));
        let parent = Parent::new(&config);
        let called = if moves.is_some() { standby_name(attachment) } else { config.name.clone() };
        let life = VolumeLife::new(called, attachment, Mutants::default());
        let group = self.groups.of(&config, &disk);
        let qos = VolumeQos::join(group, attachment, config.qos);
        let io = Arc::new(VolumeIo::new(&config, disk, layers, &life, qos));
        let key = self.volumes.vacant_key();
        self.shard_set
            .install(&mut self.data_thread, key, &io)
            .map_err(|errno| no_place(subject(), errno))?;
        if let Err(error) = self.listen_at(thread, &config, key, &io) {
            self.remove_exports_at(thread, key);
            self.shard_set.uninstall(&mut self.data_thread, key);
            return Err(error);
        }
        if let Some(samplers) = &self.samplers {
            io.watch(samplers.watch(&config.name));
        }
        let inserted = self.volumes.insert(Volume {
            config,
            io,
            life,
            proof,
            generation,
            thread,
            latencies: (thread == 0).then(Recorders::default),
            answer: None,
            failed: None,
            measured: None,
            grow_due: false,
            mode_by_operator: false,
            mode_cause: ModeCause::Opened,
            writes: WriteMode::default(),
            change: Change::None,
            leaving: Leaving::default(),
            stops: false,
            claim_at,
            claims: None,
            traffic: Traffic::default(),
            renewal: Renewal::default(),
            number: attachment,
            parent,
            moves,
            unconfirmed: false,
            move_change: None,
            comparing: None,
            left_snap: None,
        });
        debug_assert_eq!(inserted, key);
        self.order.push(key);
        Ok(key)
    }

    /// Sends the engine a volume; one that comes back with what others may have changed.
    pub(super) fn attach_with(
        &mut self,
        key: usize,
        answer: Option<AnswerTo<()>>,
        changed: Option<Vec<ByteSpan>>,
    ) {
        let (share_min_blocks, share_max_blocks) = self.shares(&self.volumes[key].config);
        let volume = &mut self.volumes[key];
        let config = &volume.config;
        // A standby is another volume to the engines: they keep what they have of this one.
        let stands_by = volume.moves.as_ref().is_some_and(|moves| moves.stands_by());
        let name = volume.life.name().to_owned();
        let recorded = self.data_thread.recorded(&name);
        let disk = &volume.io.disk;
        let spec = VolumeSpec {
            name,
            size_bytes: disk.size_bytes(),
            align_bytes: disk.align_bytes(),
            read_only: config.read_only || stands_by,
            mode: if stands_by { Mode::PassThrough } else { Mode::from(config.mode) },
            share_min_blocks,
            share_max_blocks,
            fill_limit_bytes: config.fill_limit_bytes,
            bypass_sequential_bytes: config.bypass_sequential_bytes,
            bypass_large_bytes: config.bypass_large_bytes,
            belief: Belief::Unknown,
            generation: volume.generation,
            proof: volume.proof.take(),
            exclusive: config.exclusive && !stands_by,
        };
        let trust = volume.moves.as_ref().map_or(Trust::Word, |moves| moves.trust());
        let judge = |record: &_, now: Option<&_>| disk.judge(&trust.weigh(record), now);
        let attach = match changed {
            Some(changed) => volume.life.attach_returned(spec, &changed),
            None => volume.life.attach(spec, &recorded, judge),
        };
        self.command(PendingCommand::Attach(key, answer), &attach);
    }

    /// The files that are in use here.
    pub(super) fn taken(&self) -> Vec<Taken> {
        self.taken_beside(None)
    }

    /// The same, but for the volume of this key.
    pub(super) fn taken_beside(&self, except: Option<usize>) -> Vec<Taken> {
        let volumes = self.volumes.iter().filter(|(key, _)| Some(*key) != except);
        let volumes = volumes.map(|(_, volume)| taken(&volume.io.disk, &volume.config));
        let cache = self.cache.disk().map(taken_by_cache);
        let log = self.writes.halves().into_iter().flat_map(Halves::disks).map(taken_by_log);
        cache.into_iter().chain(log).chain(volumes).collect()
    }
}

fn taken_by_cache(disk: &Disk) -> Taken {
    Taken { identity: disk.identity(), read_only: false, what: "the cache device".into() }
}

fn taken_by_log(disk: &Disk) -> Taken {
    Taken { identity: disk.identity(), read_only: false, what: "the write log".into() }
}

fn taken(disk: &Disk, config: &VolumeConfig) -> Taken {
    let what = format!("the backend of volume {:?}", config.name);
    Taken { identity: disk.identity(), read_only: config.read_only, what }
}

pub(super) fn open_port(mode: IoMode) -> Result<Box<dyn port::Port>, StartError> {
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

/// Gives all threads the inboxes of all.
fn introduce(data_thread: &mut DataThread, workers: &[Worker]) {
    if workers.is_empty() {
        return;
    }
    let own = std::iter::once(Inbox::new(data_thread.io_table.port.waker()));
    let mail: Arc<[_]> = own.chain(workers.iter().map(|one| one.mail.clone())).collect();
    for worker in workers {
        let mail = Arc::clone(&mail);
        worker.call(move |hands| hands.data_thread.meet(mail));
    }
    data_thread.meet(mail);
}

/// Settings of each of so many engines, which share what probation may take.
fn engine_config(config: &StartConfig, shards: usize) -> Config {
    let given = config.cache.probation_bytes.map(|bytes| bytes / BLOCK_BYTES);
    let probation = given.map(|all| all.div_ceil(shards as u64));
    Config {
        eviction: config.cache.eviction.into(),
        endurance: config.cache.endurance,
        crash_safe: config.cache.crash_safe,
        heartbeats_apart: true,
        probation_blocks: probation.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX)),
        ..Config::default()
    }
}

/// What tells one use of a volume from all others.
fn draw_attachment() -> Result<u64, StartError> {
    entropy::bytes().map(u64::from_le_bytes).map_err(|error| {
        let message = format!("no random numbers: {error}");
        StartError::new(StartErrorKind::Resources, Subject::Daemon, message, "")
    })
}

fn no_place(subject: Subject, errno: rustix::io::Errno) -> StartError {
    let message = format!("no place for another file: {errno}");
    StartError::new(StartErrorKind::Resources, subject, message, "raise the limit on open files")
}

/// The kernel rounds a thread's time-outs up by 50 us unless told otherwise.
pub(super) fn sharpen_timers() {
    let slack = std::num::NonZeroU64::new(TIMER_SLACK_NS);
    if let Err(errno) = rustix::thread::set_current_timer_slack(slack) {
        tracing::debug!(%errno, "time-outs stay coarse");
    }
}
