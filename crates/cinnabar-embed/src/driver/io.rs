//! The engine's I/O on its way to port, model or helper thread, and back.

use super::Driver;
use super::slow::Task;
use cinnabar_backend::generations::StateError;
use cinnabar_backend::sim::timers::Held;
use cinnabar_backend::work::{What, Work, pages_of, translate};
use cinnabar_backend::{Done, Job, Memory, ProofError, port, sim};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::Epoch;
use cinnabar_engine::{Event, IoDone, IoError, IoId, IoOp, IoRequest, Target};
use std::sync::Arc;

/// An I/O under way.
pub(super) struct Io {
    /// `None`: whoever waited has been answered, or is gone.
    pub(super) owner: Option<IoId>,
    /// Key of the volume; `None` is the cache device.
    pub(super) volume: Option<usize>,
    pub(super) what: What,
    /// When the engine is told that it takes too long; `None`: never, or it was told.
    pub(super) deadline: Option<Instant>,
    started: Instant,
    /// When a model lets it complete.
    complete_at: Instant,
    /// What a model says instead of the result.
    error: Option<IoError>,
    epoch: Option<Epoch>,
    generation: Option<u64>,
}

impl Io {
    fn new(id: IoId, volume: Option<usize>, what: What, started: Instant) -> Self {
        Self {
            owner: Some(id),
            volume,
            what,
            deadline: None,
            started,
            complete_at: Instant::default(),
            error: None,
            epoch: None,
            generation: None,
        }
    }
}

impl Driver {
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
                let Some(file) = self.device.file() else {
                    let gone = IoDone { pages: pages_of(op), ..IoDone::new(id, Err(IoError::Io)) };
                    return self.events.push(Event::IoDone(gone));
                };
                let (what, Work::Port(op)) = translate(op) else {
                    unreachable!("proofs are of backends")
                };
                let mut io = Io::new(id, None, what, now);
                io.deadline = self.deadline_of(now, None);
                let token = self.ios.insert(io) as u64;
                self.port.submit(Job { token, file, op });
            }
        }
    }

    fn start_backend_io(&mut self, now: Instant, id: IoId, key: usize, op: IoOp<Memory>) {
        let (what, work) = translate(op);
        let mut io = Io::new(id, Some(key), what, now);
        // Nobody waits for a proof; a new generation is a matter of this host.
        if matches!(work, Work::Port(_)) {
            io.deadline = self.deadline_of(now, Some(key));
        }
        let volume = &mut self.volumes[key];
        volume.in_flight += 1;
        let file = volume.file;
        let mut carry_out = true;
        if !matches!(work, Work::Distrust { .. })
            && let Some(verdict) =
                sim::judge(&mut volume.models, now.0, what.kind, what.offset, what.len)
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
            Work::Prove => {
                let disk = Arc::clone(&self.volumes[key].disk);
                self.slow.start(Task::Prove { io, disk });
            }
            Work::Distrust { held } => {
                let (ledger, name) = (self.ledger.clone(), self.volumes[key].name.clone());
                self.slow.start(Task::Distrust { io, ledger, name, held });
            }
        }
    }

    /// Starts what was asked of a volume before its attach was answered.
    pub(super) fn start_early(&mut self, volume: VolumeId) {
        let now = self.now();
        for (named, request) in std::mem::take(&mut self.early) {
            if named == volume {
                self.start_io(now, request);
            } else {
                self.early.push((named, request));
            }
        }
    }

    /// The port has done a job.
    pub(super) fn io_done(&mut self, now: Instant, done: Done) {
        let io = done.token as usize;
        if let Err(errno) = done.result {
            let What { name, offset, len, .. } = self.ios[io].what;
            let path = self.path_of(io);
            tracing::warn!(path, operation = name, offset, len, %errno, "I/O failed");
        }
        self.ended(now, io, done.result.map_err(port::io_error), done.pages);
    }

    /// A backend was flushed and asked for its proof, or could not be.
    pub(super) fn proved(
        &mut self,
        now: Instant,
        io: usize,
        result: Result<Option<Epoch>, ProofError>,
    ) {
        let result = match result {
            Ok(epoch) => {
                let volume = self.ios[io].volume.map(|key| self.volumes[key].attachment);
                let attachment = volume.unwrap_or_default();
                self.ios[io].epoch = epoch.map(|epoch| epoch.of_attachment(attachment));
                Ok(())
            }
            Err(ProofError::Flush(errno)) => {
                tracing::warn!(path = self.path_of(io), %errno, "flushing failed");
                Err(port::io_error(errno))
            }
            Err(error) => {
                // What was written is durable all the same.
                tracing::warn!(
                    path = self.path_of(io), reason = %error, "no proof of who wrote the volume"
                );
                Ok(())
            }
        };
        self.ended(now, io, result, Vec::new());
    }

    /// A volume has a new generation, or it could not be kept.
    pub(super) fn distrusted(&mut self, now: Instant, io: usize, result: Result<u64, StateError>) {
        let result = match result {
            Ok(generation) => {
                self.ios[io].generation = Some(generation);
                Ok(())
            }
            Err(error) => {
                tracing::error!(
                    reason = %error,
                    "a volume can't be written: without a cache device, a new generation must be kept"
                );
                Err(IoError::Io)
            }
        };
        self.ended(now, io, result, Vec::new());
    }

    /// An I/O has ended; a model may hold the news back.
    fn ended(
        &mut self,
        now: Instant,
        io: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        let Io { volume, what, started, complete_at: at, .. } = self.ios[io];
        if volume.is_none() && result.is_ok() {
            self.device.times.add(what, now.since_ns(started));
        }
        if at > now {
            // Models stand before backends, which have no pages.
            self.timers.hold(Held { at, io, result });
        } else {
            self.deliver(io, result, pages);
        }
    }

    /// Tells the engine of a completion.
    pub(super) fn deliver(
        &mut self,
        key: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        let io = self.ios.remove(key);
        if let Some(volume) = io.volume {
            self.volumes[volume].in_flight -= 1;
            self.forget_if_quiet(volume);
        }
        let Some(id) = io.owner else { return };
        let result = io.error.map_or(result, Err);
        let (epoch, generation) =
            if result.is_ok() { (io.epoch, io.generation) } else { (None, None) };
        self.events.push(Event::IoDone(IoDone { id, result, pages, epoch, generation }));
    }

    /// Whose I/O it is, for the log.
    fn path_of(&self, io: usize) -> String {
        match self.ios[io].volume {
            Some(key) => self.volumes[key].disk.path().display().to_string(),
            None => self.device.path.display().to_string(),
        }
    }
}
