//! The engine's I/O requests as jobs of the port, and their completions on the way back.
//!
//! Called by the loop.

use super::plane::Plane;
use super::timers::Held;
use super::volume::Volume;
use cinnabar_backend::sim::OpKind;
use cinnabar_backend::{Done, FileId, Job, JobOp, Memory, port};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Event, IoDone, IoError, IoId, IoOp, IoRequest, Slices, Target};
use cinnabar_frontend::nbd::{Body, Extent, ExtentKind, Ticket};
use rustix::io::Errno;

/// An I/O under way.
pub(super) struct Io {
    owner: Owner,
    /// Key of the volume; `None` is the cache device.
    volume: Option<usize>,
    what: What,
    /// When a model lets it complete.
    complete_at: Instant,
    /// What a model says instead of the result.
    error: Option<IoError>,
}

/// Who waits for it.
#[derive(Clone, Copy)]
enum Owner {
    Engine(IoId),
    /// A client that asked what is allocated.
    BlockStatus(Ticket),
}

/// What it is, for the model and for the log.
#[derive(Clone, Copy, Debug)]
struct What {
    name: &'static str,
    kind: OpKind,
    offset: u64,
    len: u64,
}

impl Plane {
    /// Starts an I/O of the engine's.
    pub(super) fn start_io(&mut self, now: Instant, request: IoRequest<Memory>) {
        let IoRequest { id, target, op } = request;
        let (what, op) = translate(op);
        let (file, volume) = match target {
            Target::Cache => (self.cache.file, None),
            Target::Backend(volume) => {
                let key = self.by_id.get(usize::from(volume.0)).copied().flatten();
                let key = key.expect("the engine names volumes it was told of, until detached");
                (self.volumes[key].file, Some(key))
            }
        };
        let mut io = Io {
            owner: Owner::Engine(id),
            volume,
            what,
            complete_at: Instant::default(),
            error: None,
        };
        let mut carry_out = true;
        if let Some(key) = volume {
            let volume: &mut Volume = &mut self.volumes[key];
            volume.in_flight += 1;
            if let Some(verdict) = volume.judge(now, what.kind, what.offset, what.len) {
                io.complete_at = Instant(verdict.complete_at_ns);
                io.error = verdict.error;
                carry_out = verdict.carry_out;
            }
        }
        let at = io.complete_at;
        let io = self.ios.insert(io);
        if carry_out {
            self.port.submit(Job { token: io as u64, file, op });
        } else {
            // The model's error replaces this result.
            self.timers.hold(Held { at, io, result: Ok(()) });
        }
    }

    /// Asks the file what is allocated, for a client.
    pub(super) fn ask_extents(&mut self, file: FileId, volume: usize, ticket: Ticket, op: JobOp) {
        let JobOp::Extents { span } = op else { unreachable!("asked for extents only") };
        self.volumes[volume].in_flight += 1;
        let what =
            What { name: "block status", kind: OpKind::Read, offset: span.offset, len: span.len };
        let token = self.ios.insert(Io {
            owner: Owner::BlockStatus(ticket),
            volume: Some(volume),
            what,
            complete_at: Instant::default(),
            error: None,
        });
        self.port.submit(Job { token: token as u64, file, op });
    }

    /// The port has done a job; a model may hold the news back.
    pub(super) fn io_done(&mut self, now: Instant, done: Done) {
        let key = done.token as usize;
        let io = &self.ios[key];
        let (owner, what) = (io.owner, io.what);
        let (volume, complete_at) = (io.volume, io.complete_at);
        if let Err(errno) = done.result {
            self.warn(now, volume, what, errno);
        }
        let result = done.result.map_err(port::io_error);
        if let Owner::BlockStatus(ticket) = owner {
            self.retire(key);
            // Where it can't be told, everything counts as data.
            let body =
                if result.is_ok() { Body::Extents(extents(&done.extents)) } else { Body::Done };
            self.server.reply(ticket, Ok(body), &mut super::plane::Pool);
        } else if complete_at > now {
            self.timers.hold(Held { at: complete_at, io: key, result });
        } else {
            self.deliver(key, result, done.pages);
        }
    }

    /// Tells the engine of a completion.
    pub(super) fn deliver(
        &mut self,
        key: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        let io = self.retire(key);
        let Owner::Engine(id) = io.owner else { unreachable!("only the engine's are delivered") };
        let result = io.error.map_or(result, Err);
        self.events.push(Event::IoDone(IoDone { pages, ..IoDone::new(id, result) }));
    }

    fn retire(&mut self, key: usize) -> Io {
        let io = self.ios.remove(key);
        if let Some(volume) = io.volume {
            self.volumes[volume].in_flight -= 1;
            self.forget_if_quiet(volume);
        }
        io
    }

    fn warn(&mut self, now: Instant, volume: Option<usize>, what: What, errno: Errno) {
        if self.warnings.allow(now) {
            let disk = volume.map_or(&self.cache.disk, |key| &self.volumes[key].disk);
            let (path, What { name, offset, len, .. }) = (disk.path().display(), what);
            tracing::warn!(%path, operation = name, offset, len, %errno, "I/O failed");
        }
    }
}

/// The port's job for the engine's operation.
fn translate(op: IoOp<Memory>) -> (What, JobOp) {
    let what = |name, kind, offset, len| What { name, kind, offset, len };
    match op {
        IoOp::Read { offset, data } => {
            let what = what("read", OpKind::Read, offset, bytes(&data));
            (what, JobOp::Read { offset, pages: Vec::new(), data })
        }
        IoOp::Write { offset, data, fua } => {
            let what = what("write", OpKind::Write, offset, bytes(&data));
            (what, JobOp::Write { offset, pages: Vec::new(), data, fua })
        }
        IoOp::ReadMeta { offset, pages } => {
            let what = what("metadata read", OpKind::Read, offset, pages.len() as u64 * 4096);
            (what, JobOp::Read { offset, pages, data: Slices::new() })
        }
        IoOp::WriteMeta { offset, pages, data, fua } => {
            let len = pages.len() as u64 * 4096 + bytes(&data);
            let what = what("metadata write", OpKind::Write, offset, len);
            (what, JobOp::Write { offset, pages, data, fua })
        }
        IoOp::Flush | IoOp::Prove | IoOp::Distrust => {
            (what("flush", OpKind::Flush, 0, 0), JobOp::Flush)
        }
        IoOp::Trim { span } => {
            (what("trim", OpKind::Discard, span.offset, span.len), JobOp::Trim { span })
        }
        IoOp::WriteZeroes { span, may_punch } => {
            let what = what("zeroing", OpKind::Discard, span.offset, span.len);
            (what, JobOp::WriteZeroes { span, may_punch })
        }
    }
}

fn bytes(data: &Slices<Memory>) -> u64 {
    data.iter().map(|slice| slice.len).sum()
}

fn extents(found: &[port::Extent]) -> Vec<Extent> {
    let kind = |hole| if hole { ExtentKind::Hole } else { ExtentKind::Data };
    found.iter().map(|extent| Extent { len: extent.len, kind: kind(extent.hole) }).collect()
}
