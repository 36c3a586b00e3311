//! The I/O of one data thread: from an engine's wish to a job of the port, and its end on the way
//! back.
//!
//! What an I/O table can't settle by itself it tells ([`IoEvent`]): the owner of the I/O table passes it on.

mod ages;
mod files;
mod overdue;
mod qos_queues;
#[cfg(test)]
pub(super) mod tests;

use super::clock::Clock;
use super::data_thread::{Pool, Returned, ThreadEvent, ThreadMessage};
use super::front::Caller;
use super::guests;
use super::patience::silence_max;
use super::volume::VolumeIo;
use super::warnings::{Warnings, io_failed};
use cinnabar_backend::disk::DiskKind;
use cinnabar_backend::model::OpKind;
use cinnabar_backend::port::{Extent, Port};
use cinnabar_backend::work::{IoInfo, Work, pages_of, translate};
use cinnabar_backend::{Disk, Done, FileId, Job, JobOp, Memory, port};
use cinnabar_driver::ShardIo;
use cinnabar_driver::health_news::HealthNews;
use cinnabar_driver::io_tracker::{EndedIo, IoTracker, TrackedIo};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant};
use cinnabar_engine::{IoDone, IoError, IoId, IoOp, Reply};
use cinnabar_policy::planning::Totals;
use qos_queues::{Parked, QosPlace, QosQueues};
use rustix::io::Errno;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Discarding 256 MiB, or making room for as much, takes a sound device this much longer than reads and
/// writes: SSDs have been seen that took 10 s, under load.
const DISCARD_TIMES: u32 = 4;

/// The time that an operation on the cache device has, if reads and writes have this one.
pub(super) fn bound_of(kind: OpKind, usual: Duration) -> Duration {
    if kind == OpKind::Discard { usual * DISCARD_TIMES } else { usual }
}

/// See the module.
pub(super) struct IoTable {
    /// Not dropped while the kernel may hang in an operation: see [`IoTable::end`].
    pub(super) port: ManuallyDrop<Box<dyn Port>>,
    /// I/Os in the port's or a thread's hands, or held back by a model.
    pub(super) ios: IoTracker<Io>,
    cache: Option<(FileId, Arc<Disk>)>,
    /// The write log's device, and that of its mirror.
    log: [Option<(FileId, Arc<Disk>)>; 2],
    /// Devices that are not used any more, with I/O that has not ended. They stay locked as long as
    /// that may still write to them.
    left: Vec<(FileId, Arc<Disk>)>,
    /// Longest operation on the cache device; zero: no bound.
    cache_timeout: Duration,
    /// A bound for the device in use, where there is none, because it is to be let go of or is
    /// being opened.
    hurried: Option<Duration>,
    /// By the plane's keys.
    volumes: Vec<Option<(FileId, Arc<VolumeIo>)>>,
    qos_queues: QosQueues,
    pub(super) warnings: Warnings,
    /// For the owner, in order.
    pub(super) told: Vec<IoEvent>,
    /// How long engines' reads and writes took.
    pub(super) totals: Totals,
}

/// What an I/O table tells its owner.
pub(super) enum IoEvent {
    /// For the engine of this shard.
    Done(u32, IoDone),
    /// For the engine of this shard: it takes too long.
    Overdue(u32, IoId),
    /// For the write log: at this one of its devices.
    Log(usize, IoDone),
    /// What is allocated; `None` if it can't be told, or not in time.
    Extents(Caller, Option<Vec<Extent>>),
    /// This cache device does not answer. Another one may have taken its place when that is heard.
    Hangs(Weak<Disk>, IoInfo),
    /// A volume that leaves has no I/O here any more.
    Quiet(usize),
    /// To be proved, for this I/O of the volume.
    Prove(usize, usize),
    /// To bump the generation, for this I/O of the volume, if it still has this one.
    BumpGeneration(usize, usize, u64),
}

/// An I/O under way.
#[derive(Debug)]
pub(super) struct Io {
    owner: Owner,
    /// Key of the volume; `None` is a cache device, or that of the write log.
    volume: Option<usize>,
    /// Where it goes.
    file: FileId,
    what: IoInfo,
    /// Of one that has waited for its turn.
    seat: Option<QosPlace>,
}

/// Who waits for it.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Engine(u32, IoId),
    Log(usize, IoId),
    /// A client that asked what is allocated.
    BlockStatus(Caller),
    /// The one that waited has been answered, or is gone.
    Nobody,
}

impl IoTable {
    pub(super) fn new(port: Box<dyn Port>, cache_timeout: Duration) -> Self {
        Self {
            port: ManuallyDrop::new(port),
            ios: IoTracker::new(),
            cache: None,
            log: [None, None],
            left: Vec::new(),
            cache_timeout,
            hurried: None,
            volumes: Vec::new(),
            qos_queues: QosQueues::default(),
            warnings: Warnings::default(),
            told: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Starts an I/O of an engine's on the cache device.
    pub(super) fn cache_io(&mut self, now: Instant, (shard, id): (u32, IoId), op: IoOp<Memory>) {
        let Some((file, _)) = self.cache else {
            let gone = IoDone { pages: pages_of(op), ..IoDone::new(id, Err(IoError::Io)) };
            return self.told.push(IoEvent::Done(shard, gone));
        };
        let (what, Work::Port(op)) = translate(op) else { unreachable!("proofs are of backends") };
        let bound = self.hurried.unwrap_or_else(|| bound_of(what.kind, self.cache_timeout));
        let io = self.insert(now, Owner::Engine(shard, id), (None, file), what, bound);
        self.port.submit(Job { token: io as u64, file, op });
    }

    /// Starts an I/O on one of the write log's devices.
    pub(super) fn log_io(&mut self, now: Instant, (half, id): (usize, IoId), op: IoOp<Memory>) {
        let Some((file, _)) = self.log[half] else { unreachable!("it is installed with the log") };
        let (what, Work::Port(op)) = translate(op) else { unreachable!("proofs are of backends") };
        // Without a bound a half that hangs would keep the other one from being used.
        let is_mirrored = self.log.iter().all(Option::is_some);
        let bound = if is_mirrored { silence_max(self.cache_timeout) } else { self.cache_timeout };
        let io = self.insert(now, Owner::Log(half, id), (None, file), what, bound);
        self.port.submit(Job { token: io as u64, file, op });
    }

    /// Starts an I/O of an engine's on a volume's backend, or has it wait for its turn there. Proofs
    /// and generations wait for nothing: what is believed must not depend on what guests ask for.
    pub(super) fn backend_io(
        &mut self,
        now: Instant,
        (shard, id): (u32, IoId),
        key: usize,
        op: IoOp<Memory>,
    ) {
        if let IoOp::Read { offset, data } = &op
            && let Some(door) = self.volume(key).1.door()
            && door.answers(*offset, data)
        {
            return self.told.push(IoEvent::Done(shard, IoDone::new(id, Ok(()))));
        }
        let (what, work) = translate(op);
        let owner = Owner::Engine(shard, id);
        match work {
            Work::Port(op) => {
                let parked = Parked { of: (shard, id), key, what, op };
                if let Some(Parked { op, .. }) = self.park(now, parked) {
                    self.volume(key).1.ios.begin();
                    self.begin(now, (owner, None), key, what, op);
                }
            }
            // Nobody waits for a proof.
            Work::Prove => {
                let file = self.volume(key).0;
                let io = self.insert(now, owner, (Some(key), file), what, Duration::ZERO);
                if self.is_carried_out(now, io, key, what) {
                    self.told.push(IoEvent::Prove(io, key));
                }
            }
            // A matter of this host.
            Work::BumpGeneration { held } => {
                let file = self.volume(key).0;
                let io = self.insert(now, owner, (Some(key), file), what, Duration::ZERO);
                self.told.push(IoEvent::BumpGeneration(io, key, held));
            }
        }
    }

    /// Begins an I/O on a volume's backend, which counts it already.
    fn begin(
        &mut self,
        now: Instant,
        (owner, seat): (Owner, Option<QosPlace>),
        key: usize,
        what: IoInfo,
        op: JobOp,
    ) {
        let (file, volume) = self.volume(key);
        let (file, bound) = (*file, volume.timeout);
        let io = self.ios.start(now, Io { owner, volume: Some(key), file, what, seat }, bound);
        if self.is_carried_out(now, io, key, what) {
            self.port.submit(Job { token: io as u64, file, op });
        }
    }

    /// Asks the models of a volume's backend. Without them, or if they let it through: true.
    fn is_carried_out(&mut self, now: Instant, io: usize, key: usize, what: IoInfo) -> bool {
        let verdict = self.volume(key).1.judge(now, what.kind, what.offset, what.len);
        let Some(verdict) = verdict else { return true };
        self.ios.delay(io, Instant(verdict.complete_at_ns), verdict.error);
        if !verdict.carry_out {
            self.ios.end_by_model(io);
        }
        verdict.carry_out
    }

    /// Asks a volume's file what is allocated, for a client.
    pub(super) fn ask_extents(&mut self, now: Instant, key: usize, caller: Caller, span: ByteSpan) {
        let what =
            IoInfo { name: "block status", kind: OpKind::Read, offset: span.offset, len: span.len };
        let (file, volume) = self.volume(key);
        let (file, bound) = (*file, volume.timeout);
        let io = self.insert(now, Owner::BlockStatus(caller), (Some(key), file), what, bound);
        self.port.submit(Job { token: io as u64, file, op: JobOp::Extents { span } });
    }

    fn insert(
        &mut self,
        now: Instant,
        owner: Owner,
        (volume, file): (Option<usize>, FileId),
        what: IoInfo,
        bound: Duration,
    ) -> usize {
        if let Some(key) = volume {
            self.volume(key).1.ios.begin();
        }
        self.ios.start(now, Io { owner, volume, file, what, seat: None }, bound)
    }

    /// The port has done a job.
    pub(super) fn io_done(&mut self, now: Instant, done: Done) {
        let io = done.token as usize;
        if let Err(errno) = done.result {
            self.warn(now, io, errno);
        }
        let result = done.result.map_err(port::io_error);
        if let Owner::BlockStatus(caller) = self.ios.get(io).of.owner {
            let ended = self.ios.remove(io, result, Vec::new());
            self.retire(now, &ended);
            self.told.push(IoEvent::Extents(caller, result.is_ok().then_some(done.extents)));
        } else {
            self.ended(now, io, result, done.pages);
        }
    }

    /// An I/O has ended; a model may hold the news back.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        io: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        if let Some(ended) = self.ios.end(now, io, result, pages) {
            self.deliver(now, ended);
        }
    }

    /// Delivers what was held back and is due, and tells of what takes too long: after everything
    /// that the port brought.
    pub(super) fn look_at_time(&mut self, now: Instant) {
        while let Some(ended) = self.ios.take_due(now) {
            self.deliver(now, ended);
        }
        for io in self.ios.overdue(now) {
            self.overdue(now, io);
        }
    }

    /// When it is to be looked at again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ios.deadline().into_iter().chain(self.qos_queues.deadline()).min()
    }

    pub(super) fn deliver(&mut self, now: Instant, ended: EndedIo<Io>) {
        self.retire(now, &ended);
        self.measure(now, &ended.io);
        match ended.io.of.owner {
            Owner::Engine(shard, id) => self.told.push(IoEvent::Done(shard, ended.done(id))),
            Owner::Log(half, id) => self.told.push(IoEvent::Log(half, ended.done(id))),
            Owner::BlockStatus(_) | Owner::Nobody => {}
        }
    }

    /// Counts how long an engine's read or write took. One that took too long may have failed.
    fn measure(&mut self, now: Instant, io: &TrackedIo<Io>) {
        let Io { owner: Owner::Engine(..), volume, what, .. } = &io.of else { return };
        let totals = &mut self.totals;
        let latency = match (volume, what.kind) {
            (None, OpKind::Read) => &mut totals.ssd_reads,
            (None, OpKind::Write) => &mut totals.ssd_writes,
            (Some(_), OpKind::Read) => &mut totals.backend_reads,
            (Some(_), OpKind::Write) => &mut totals.backend_writes,
            (_, OpKind::Flush | OpKind::Discard) => return,
        };
        if !io.overdue {
            latency.add(now.since_ns(io.started), what.len.div_ceil(BLOCK_BYTES));
        }
    }

    fn retire(&mut self, now: Instant, ended: &EndedIo<Io>) {
        let io = &ended.io;
        if io.overdue {
            self.no_longer_overdue(now, io);
        }
        let Io { volume, file, owner, what, seat } = io.of;
        if let Some(seat) = seat {
            self.qos_queues.end(seat);
        }
        if let Some(key) = volume {
            let read = matches!((owner, what.kind), (Owner::Engine(..), OpKind::Read));
            // How long a failed read took says nothing of how busy the back end is.
            if read && !io.overdue && ended.is_ok() {
                self.volume(key).1.reads.note(now.since_ns(io.started));
            }
            if self.volume(key).1.ios.end() {
                self.told.push(IoEvent::Quiet(key));
            }
        } else if !self.left.is_empty() {
            self.close_left(file);
        }
    }

    /// Whether a volume's backend is a server.
    fn is_server(&self, key: usize) -> bool {
        self.volume(key).1.disk.kind() == DiskKind::Server
    }

    /// The name of the volume that an I/O is for.
    pub(super) fn name_of(&self, io: usize) -> &str {
        self.ios.get(io).of.volume.map_or("", |key| &self.volume(key).1.name)
    }

    pub(super) fn warn(&mut self, now: Instant, io: usize, errno: Errno) {
        if self.warnings.allow(now) {
            let Io { volume, file: of, what: IoInfo { name, offset, len, .. }, .. } =
                self.ios.get(io).of;
            let devices = self.cache.iter().chain(self.log.iter().flatten()).chain(&self.left);
            let path = match volume {
                Some(key) => self.volume(key).1.disk.path().display().to_string(),
                None => devices
                    .filter(|(file, _)| *file == of)
                    .map(|(_, disk)| disk.path().display().to_string())
                    .collect(),
            };
            tracing::warn!(path, operation = name, offset, len, %errno, "{}", io_failed(errno));
        }
    }

    /// Bytes of its tables.
    pub(super) fn ram_bytes(&self) -> u64 {
        self.ios.ram_bytes()
    }

    /// Lets go of everything. What still hangs in the kernel is left behind: waiting for it would
    /// keep the process from ending.
    pub(super) fn end(self) {
        let Self { port, volumes, cache, log, left, .. } = self;
        drop((volumes, cache, log, left));
        let port = ManuallyDrop::into_inner(port);
        if port.in_flight() > 0 {
            tracing::warn!(in_flight = port.in_flight(), "ending with I/O under way");
            std::mem::forget(port);
        } else {
            drop(port);
        }
    }
}

/// The doors of the shards that one thread runs: its clock, its I/O table, what others are told, and
/// letters to other threads.
pub(super) struct ShardDoors<'a> {
    pub(super) now: Instant,
    pub(super) clock: Clock,
    pub(super) io_table: &'a mut IoTable,
    pub(super) said: &'a mut Vec<ThreadEvent>,
    pub(super) thread: usize,
    pub(super) pool: &'a Pool,
    pub(super) letters: &'a mut Vec<(usize, ThreadMessage)>,
    pub(super) back: &'a mut Vec<Returned>,
}

impl ShardIo<Memory> for ShardDoors<'_> {
    type Volume = usize;

    fn applied(&mut self) {
        self.now = self.clock.now();
    }

    fn start_on_cache(&mut self, shard: u32, id: IoId, op: IoOp<Memory>) {
        self.io_table.cache_io(self.now, (shard, id), op);
    }

    fn start_on_backend(&mut self, shard: u32, id: IoId, key: usize, op: IoOp<Memory>) {
        let home = self.pool.home(shard);
        if home != self.thread && self.io_table.is_server(key) {
            self.letters.push((home, ThreadMessage::Io { shard, id, key, op }));
        } else {
            self.io_table.backend_io(self.now, (shard, id), key, op);
        }
    }

    fn reply(&mut self, shard: u32, reply: Reply<Memory>) {
        match guests::thread_of(reply.id) {
            None => self.said.push(ThreadEvent::Reply(shard, reply)),
            Some(own) if own == self.thread => self.back.push(Returned::Reply(reply)),
            Some(other) => {
                self.letters.push((other, ThreadMessage::Returned(Returned::Reply(reply))));
            }
        }
    }

    fn tell_home(&mut self, _: u32, home: usize, _: Instant) {
        self.letters.push((home, ThreadMessage::Look));
    }

    fn health(&mut self, shard: u32, news: HealthNews) {
        self.said.push(ThreadEvent::Health(shard, news));
    }
}
