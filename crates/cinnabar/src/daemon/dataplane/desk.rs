//! The I/O of one data thread: from an engine's wish to a job of the port, and its end on the way
//! back.
//!
//! What a desk can't settle by itself it tells ([`Told`]): the owner of the desk passes it on.

mod ages;
mod files;
mod overdue;
#[cfg(test)]
mod tests;

use super::clock::after;
use super::proofs::Brought;
use super::volume::VolumeIo;
use super::warnings::Warnings;
use cinnabar_backend::port::{Extent, Port};
use cinnabar_backend::sim::OpKind;
use cinnabar_backend::sim::timers::{Held, Timers};
use cinnabar_backend::work::{What, Work, pages_of, translate};
use cinnabar_backend::{Disk, Done, FileId, Job, JobOp, Memory, port};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::{IoDone, IoError, IoId, IoOp};
use cinnabar_frontend::nbd::Ticket;
use rustix::io::Errno;
use slab::Slab;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// See the module.
pub(super) struct Desk {
    /// Not dropped while the kernel may hang in an operation: see [`Desk::end`].
    pub(super) port: ManuallyDrop<Box<dyn Port>>,
    /// I/Os in the port's or a thread's hands, or held back by a model.
    ios: Slab<Io>,
    timers: Timers,
    /// When the first of them takes too long.
    pub(super) next_overdue: Option<Instant>,
    cache: Option<(FileId, Arc<Disk>)>,
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
    pub(super) warnings: Warnings,
    /// For the owner, in order.
    pub(super) told: Vec<Told>,
}

/// What a desk tells its owner.
pub(super) enum Told {
    /// For the engine of this shard.
    Done(u32, IoDone),
    /// For the engine of this shard: it takes too long.
    Overdue(u32, IoId),
    /// What is allocated; `None` if it can't be told, or not in time.
    Extents(Ticket, Option<Vec<Extent>>),
    /// The cache device does not answer.
    Hangs(What),
    /// A volume that leaves has no I/O here any more.
    Quiet(usize),
    /// To be proved, for this I/O of the volume.
    Prove(usize, usize),
    /// To be distrusted, for this I/O of the volume, if this is its generation still.
    Distrust(usize, usize, u64),
}

/// An I/O under way.
struct Io {
    owner: Owner,
    /// Key of the volume; `None` is a cache device.
    volume: Option<usize>,
    /// Where it goes.
    file: FileId,
    what: What,
    started: Instant,
    /// When the owner is told that it takes too long; `None`: never, or it was told.
    deadline: Option<Instant>,
    /// It was told.
    overdue: bool,
    /// When a model lets it complete.
    complete_at: Instant,
    /// What a model says instead of the result.
    error: Option<IoError>,
    /// What it brings beside the result; rare, and too large for each I/O to have room for it.
    brought: Option<Box<Brought>>,
}

/// Who waits for it.
#[derive(Clone, Copy)]
enum Owner {
    Engine(u32, IoId),
    /// A client that asked what is allocated.
    BlockStatus(Ticket),
    /// Whoever waited has been answered, or is gone.
    Nobody,
}

impl Desk {
    pub(super) fn new(port: Box<dyn Port>, cache_timeout: Duration) -> Self {
        Self {
            port: ManuallyDrop::new(port),
            ios: Slab::new(),
            timers: Timers::default(),
            next_overdue: None,
            cache: None,
            left: Vec::new(),
            cache_timeout,
            hurried: None,
            volumes: Vec::new(),
            warnings: Warnings::default(),
            told: Vec::new(),
        }
    }

    /// Starts an I/O of an engine's on the cache device, `base` bytes into it.
    pub(super) fn cache_io(
        &mut self,
        now: Instant,
        (shard, id): (u32, IoId),
        base: u64,
        mut op: IoOp<Memory>,
    ) {
        let Some((file, _)) = self.cache else {
            let gone = IoDone { pages: pages_of(op), ..IoDone::new(id, Err(IoError::Io)) };
            return self.told.push(Told::Done(shard, gone));
        };
        op.shift(base);
        let (what, Work::Port(op)) = translate(op) else { unreachable!("proofs are of backends") };
        let bound = self.hurried.unwrap_or(self.cache_timeout);
        let io = self.insert(now, Owner::Engine(shard, id), (None, file), what, bound);
        self.port.submit(Job { token: io as u64, file, op });
    }

    /// Starts an I/O of an engine's on a volume's backend.
    pub(super) fn backend_io(
        &mut self,
        now: Instant,
        (shard, id): (u32, IoId),
        key: usize,
        op: IoOp<Memory>,
    ) {
        let (what, work) = translate(op);
        let (file, volume) = self.volume(key);
        let (file, volume) = (*file, Arc::clone(volume));
        // Nobody waits for a proof; a new generation is a matter of this host.
        let waits = matches!(work, Work::Port(_));
        let bound = if waits { volume.timeout } else { Duration::ZERO };
        let io = self.insert(now, Owner::Engine(shard, id), (Some(key), file), what, bound);
        let mut carry_out = true;
        if !matches!(work, Work::Distrust { .. })
            && let Some(verdict) = volume.judge(now, what.kind, what.offset, what.len)
        {
            self.ios[io].complete_at = Instant(verdict.complete_at_ns);
            self.ios[io].error = verdict.error;
            carry_out = verdict.carry_out;
        }
        match work {
            // The model's error replaces this result.
            _ if !carry_out => {
                let at = self.ios[io].complete_at;
                self.timers.hold(Held { at, io, result: Ok(()) });
            }
            Work::Port(op) => self.port.submit(Job { token: io as u64, file, op }),
            Work::Prove => self.told.push(Told::Prove(io, key)),
            Work::Distrust { held } => self.told.push(Told::Distrust(io, key, held)),
        }
    }

    /// Asks a volume's file what is allocated, for a client.
    pub(super) fn ask_extents(&mut self, now: Instant, key: usize, ticket: Ticket, span: ByteSpan) {
        let what =
            What { name: "block status", kind: OpKind::Read, offset: span.offset, len: span.len };
        let (file, volume) = self.volume(key);
        let (file, bound) = (*file, volume.timeout);
        let io = self.insert(now, Owner::BlockStatus(ticket), (Some(key), file), what, bound);
        self.port.submit(Job { token: io as u64, file, op: JobOp::Extents { span } });
    }

    fn insert(
        &mut self,
        now: Instant,
        owner: Owner,
        (volume, file): (Option<usize>, FileId),
        what: What,
        bound: Duration,
    ) -> usize {
        let deadline = (!bound.is_zero()).then(|| after(now, bound));
        if let Some(deadline) = deadline {
            let next = self.next_overdue.map_or(deadline, |next| next.min(deadline));
            self.next_overdue = Some(next);
        }
        if let Some(key) = volume {
            self.volume(key).1.in_flight.fetch_add(1, Relaxed);
        }
        self.ios.insert(Io {
            owner,
            volume,
            file,
            what,
            started: now,
            deadline,
            overdue: false,
            complete_at: Instant::default(),
            error: None,
            brought: None,
        })
    }

    /// The port has done a job.
    pub(super) fn io_done(&mut self, now: Instant, done: Done) {
        let io = done.token as usize;
        if let Err(errno) = done.result {
            self.warn(now, io, errno);
        }
        let result = done.result.map_err(port::io_error);
        if let Owner::BlockStatus(ticket) = self.ios[io].owner {
            self.retire(now, io);
            self.told.push(Told::Extents(ticket, result.is_ok().then_some(done.extents)));
        } else {
            self.ended(now, io, result, done.pages);
        }
    }

    /// Keeps what an I/O brings beside its result.
    pub(super) fn bring(&mut self, io: usize, brought: Brought) {
        self.ios[io].brought = Some(Box::new(brought));
    }

    /// An I/O has ended; a model may hold the news back.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        io: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        let at = self.ios[io].complete_at;
        if at > now {
            // Models stand before backends, which have no pages.
            self.timers.hold(Held { at, io, result });
        } else {
            self.deliver(now, io, result, pages);
        }
    }

    /// A backend has done something for this I/O past the port: the port is looked at first, for that
    /// may have been after a restart of a server, of which the port tells.
    pub(super) fn ended_elsewhere(&mut self, now: Instant, io: usize, result: Result<(), IoError>) {
        let at = self.ios[io].complete_at.max(now);
        self.timers.hold(Held { at, io, result });
    }

    /// Delivers what was held back and is due, and tells of what takes too long.
    pub(super) fn look_at_time(&mut self, now: Instant) {
        while let Some(held) = self.timers.due(now) {
            self.deliver(now, held.io, held.result, Vec::new());
        }
        self.tell_overdue(now);
    }

    /// When it is to be looked at again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.next().into_iter().chain(self.next_overdue).min()
    }

    fn deliver(
        &mut self,
        now: Instant,
        io: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        let io = self.retire(now, io);
        let Owner::Engine(shard, id) = io.owner else { return };
        let result = io.error.map_or(result, Err);
        let brought = io.brought.filter(|_| result.is_ok()).map(|brought| *brought);
        let Brought { epoch, generation } = brought.unwrap_or_default();
        self.told.push(Told::Done(shard, IoDone { id, result, pages, epoch, generation }));
    }

    fn retire(&mut self, now: Instant, io: usize) -> Io {
        if self.ios[io].overdue {
            self.no_longer_overdue(now, io);
        }
        let io = self.ios.remove(io);
        if let Some(key) = io.volume {
            let volume = &self.volume(key).1;
            // In one order with `uninstall`, so that one of the two threads sees the other.
            if volume.in_flight.fetch_sub(1, SeqCst) == 1 && volume.leaves.load(SeqCst) {
                self.told.push(Told::Quiet(key));
            }
        } else if !self.left.is_empty() {
            self.close_left(io.file);
        }
        io
    }

    /// The attachment of the volume that an I/O is for.
    pub(super) fn attachment_of(&self, io: usize) -> u64 {
        self.ios[io].volume.map_or(0, |key| self.volume(key).1.attachment)
    }

    /// The name of the volume that an I/O is for.
    pub(super) fn name_of(&self, io: usize) -> &str {
        self.ios[io].volume.map_or("", |key| &self.volume(key).1.name)
    }

    pub(super) fn warn(&mut self, now: Instant, io: usize, errno: Errno) {
        if self.warnings.allow(now) {
            let Io { volume, what: What { name, offset, len, .. }, .. } = self.ios[io];
            let devices = self.cache.iter().chain(&self.left);
            let path = match volume {
                Some(key) => self.volume(key).1.disk.path().display().to_string(),
                None => devices
                    .filter(|(file, _)| *file == self.ios[io].file)
                    .map(|(_, disk)| disk.path().display().to_string())
                    .collect(),
            };
            tracing::warn!(path, operation = name, offset, len, %errno, "I/O failed");
        }
    }

    /// Bytes of its tables.
    pub(super) fn ram_bytes(&self) -> u64 {
        (self.ios.capacity() * size_of::<Io>()) as u64
    }

    /// Lets go of everything. What still hangs in the kernel is left behind: waiting for it would
    /// keep the process from ending.
    pub(super) fn end(self) {
        let Self { port, volumes, cache, left, .. } = self;
        drop((volumes, cache, left));
        let port = ManuallyDrop::into_inner(port);
        if port.in_flight() > 0 {
            tracing::warn!(in_flight = port.in_flight(), "ending with I/O under way");
            std::mem::forget(port);
        } else {
            drop(port);
        }
    }
}
