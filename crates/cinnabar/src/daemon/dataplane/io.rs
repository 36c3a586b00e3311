//! The engine's I/O requests as jobs of the port, and their completions on the way back.
//!
//! Called by the loop.

use super::plane::Plane;
use super::proofs::Brought;
use super::timers::Held;
use super::volume::Volume;
use cinnabar_backend::sim::OpKind;
use cinnabar_backend::work::{What, Work, pages_of, translate};
use cinnabar_backend::{Done, FileId, Job, JobOp, Memory, port};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::{Event, IoDone, IoError, IoId, IoOp, IoRequest, Target};
use cinnabar_frontend::nbd::{Body, Extent, ExtentKind, Ticket};
use rustix::io::Errno;

/// An I/O under way.
pub(super) struct Io {
    pub(super) owner: Owner,
    /// Key of the volume; `None` is the cache device.
    pub(super) volume: Option<usize>,
    pub(super) what: What,
    pub(super) started: Instant,
    /// When the engine is told that it takes too long; `None`: never, or it was told.
    pub(super) deadline: Option<Instant>,
    /// It was told.
    pub(super) overdue: bool,
    /// When a model lets it complete.
    complete_at: Instant,
    /// What a model says instead of the result.
    error: Option<IoError>,
    /// What it brings beside the result; rare, and too large for each I/O to have room for it.
    brought: Option<Box<Brought>>,
}

/// Who waits for it.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    Engine(IoId),
    /// A client that asked what is allocated.
    BlockStatus(Ticket),
    /// Whoever waited has been answered, or is gone.
    Nobody,
}

impl Io {
    fn new(owner: Owner, volume: Option<usize>, what: What, started: Instant) -> Self {
        Self {
            owner,
            volume,
            what,
            started,
            deadline: None,
            overdue: false,
            complete_at: Instant::default(),
            error: None,
            brought: None,
        }
    }
}

impl Plane {
    /// Starts an I/O of the engine's.
    pub(super) fn start_io(&mut self, now: Instant, request: IoRequest<Memory>) {
        let IoRequest { id, target, op } = request;
        match target {
            Target::Backend(volume) => {
                match self.by_id.get(usize::from(volume.0)).copied().flatten() {
                    Some(key) => self.start_backend_io(now, id, key, op),
                    // A heartbeat of a volume whose attach is not answered yet.
                    None => self.early.push((volume, IoRequest { id, target, op })),
                }
            }
            Target::Cache => {
                let Some(file) = self.cache.file() else {
                    let gone = IoDone { pages: pages_of(op), ..IoDone::new(id, Err(IoError::Io)) };
                    return self.events.push(Event::IoDone(gone));
                };
                let (what, Work::Port(op)) = translate(op) else {
                    unreachable!("proofs are of backends")
                };
                let mut io = Io::new(Owner::Engine(id), None, what, now);
                io.deadline = self.deadline_of(now, None);
                let io = self.ios.insert(io);
                self.port.submit(Job { token: io as u64, file, op });
            }
        }
    }

    fn start_backend_io(&mut self, now: Instant, id: IoId, key: usize, op: IoOp<Memory>) {
        let (what, work) = translate(op);
        let mut io = Io::new(Owner::Engine(id), Some(key), what, now);
        // Nobody waits for a proof; a new generation is a matter of this host.
        if matches!(work, Work::Port(_)) {
            io.deadline = self.deadline_of(now, Some(key));
        }
        let volume: &mut Volume = &mut self.volumes[key];
        volume.in_flight += 1;
        let file = volume.file;
        let mut carry_out = true;
        if !matches!(work, Work::Distrust)
            && let Some(verdict) = volume.judge(now, what.kind, what.offset, what.len)
        {
            io.complete_at = Instant(verdict.complete_at_ns);
            io.error = verdict.error;
            carry_out = verdict.carry_out;
        }
        let at = io.complete_at;
        let io = self.ios.insert(io);
        match work {
            // The model's error replaces this result.
            _ if !carry_out => self.timers.hold(Held { at, io, result: Ok(()) }),
            Work::Port(op) => self.port.submit(Job { token: io as u64, file, op }),
            Work::Prove => self.start_proof(io, key),
            Work::Distrust => self.start_distrust(io, key),
        }
    }

    /// Starts what was asked of a volume before its attach was answered.
    pub(super) fn start_early(&mut self, now: Instant, volume: VolumeId) {
        let early = std::mem::take(&mut self.early);
        for (named, request) in early {
            if named == volume {
                self.start_io(now, request);
            } else {
                self.early.push((named, request));
            }
        }
    }

    /// Asks the file what is allocated, for a client.
    pub(super) fn ask_extents(
        &mut self,
        now: Instant,
        file: FileId,
        volume: usize,
        ticket: Ticket,
        op: JobOp,
    ) {
        let JobOp::Extents { span } = op else { unreachable!("asked for extents only") };
        self.volumes[volume].in_flight += 1;
        let what =
            What { name: "block status", kind: OpKind::Read, offset: span.offset, len: span.len };
        let mut io = Io::new(Owner::BlockStatus(ticket), Some(volume), what, now);
        io.deadline = self.deadline_of(now, Some(volume));
        let token = self.ios.insert(io);
        self.port.submit(Job { token: token as u64, file, op });
    }

    /// The port has done a job.
    pub(super) fn io_done(&mut self, now: Instant, done: Done) {
        let key = done.token as usize;
        if let Err(errno) = done.result {
            self.warn(now, key, errno);
        }
        let result = done.result.map_err(port::io_error);
        if let Owner::BlockStatus(ticket) = self.ios[key].owner {
            self.retire(now, key);
            // Where it can't be told, everything counts as data.
            let body =
                if result.is_ok() { Body::Extents(extents(&done.extents)) } else { Body::Done };
            self.server.reply(ticket, Ok(body), &mut super::plane::Pool);
        } else {
            self.ended(now, key, result, done.pages);
        }
    }

    /// Keeps what an I/O brings beside its result.
    pub(super) fn bring(&mut self, key: usize, brought: Brought) {
        self.ios[key].brought = Some(Box::new(brought));
    }

    /// An I/O has ended; a model may hold the news back.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        key: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        let at = self.ios[key].complete_at;
        if at > now {
            // Models stand before backends, which have no pages.
            self.timers.hold(Held { at, io: key, result });
        } else {
            self.deliver(now, key, result, pages);
        }
    }

    /// Tells the engine of a completion.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        key: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        let io = self.retire(now, key);
        let Owner::Engine(id) = io.owner else { return };
        let result = io.error.map_or(result, Err);
        let brought = io.brought.filter(|_| result.is_ok()).map(|brought| *brought);
        let Brought { epoch, generation } = brought.unwrap_or_default();
        self.events.push(Event::IoDone(IoDone { id, result, pages, epoch, generation }));
    }

    fn retire(&mut self, now: Instant, key: usize) -> Io {
        if self.ios[key].overdue {
            self.no_longer_overdue(now, key);
        }
        let io = self.ios.remove(key);
        if let Some(volume) = io.volume {
            self.volumes[volume].in_flight -= 1;
            self.forget_if_quiet(volume);
        }
        io
    }

    /// The name of the volume that an I/O is for.
    pub(super) fn volume_of(&self, io: usize) -> &str {
        self.ios[io].volume.map_or("", |key| &self.volumes[key].config.name)
    }

    pub(super) fn warn(&mut self, now: Instant, io: usize, errno: Errno) {
        if self.warnings.allow(now) {
            let Io { volume, what: What { name, offset, len, .. }, .. } = self.ios[io];
            let path = match volume {
                Some(key) => self.volumes[key].disk.path(),
                None => &self.cache.path,
            };
            let path = path.display();
            tracing::warn!(%path, operation = name, offset, len, %errno, "I/O failed");
        }
    }
}

fn extents(found: &[port::Extent]) -> Vec<Extent> {
    let kind = |hole| if hole { ExtentKind::Hole } else { ExtentKind::Data };
    found.iter().map(|extent| Extent { len: extent.len, kind: kind(extent.hole) }).collect()
}
