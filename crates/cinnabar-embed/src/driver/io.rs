//! The engine's I/O on its way to port, model or helper thread, and back.

use super::Driver;
use cinnabar_backend::work::{IoInfo, Work, pages_of, translate};
use cinnabar_backend::{Done, FileId, Job, Memory, port};
use cinnabar_driver::TrackedIo;
use cinnabar_driver::io_tracker::EndedIo;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::{Event, IoDone, IoError, IoId, IoOp, IoRequest, Target};
use std::time::Duration;

/// What is known of an I/O under way.
#[derive(Debug)]
pub(super) struct Io {
    /// `None`: nothing waits for its end any more.
    pub(super) owner: Option<IoId>,
    /// Key of the volume; `None` is the cache device.
    pub(super) volume: Option<usize>,
    /// Where it goes.
    pub(super) file: FileId,
    pub(super) what: IoInfo,
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
                let io = Io { owner: Some(id), volume: None, file, what };
                let token = self.ios.start(now, io, self.device.bound()) as u64;
                self.port.submit(Job { token, file, op });
            }
        }
    }

    fn start_backend_io(&mut self, now: Instant, id: IoId, key: usize, op: IoOp<Memory>) {
        let (what, work) = translate(op);
        let volume = &mut self.volumes[key];
        volume.life.ios().begin();
        let file = volume.file;
        // Nothing waits for a proof; a new generation is a matter of this host.
        let waits = matches!(work, Work::Port(_));
        let bound = if waits { volume.timeout } else { Duration::ZERO };
        let io = self.ios.start(now, Io { owner: Some(id), volume: Some(key), file, what }, bound);
        let mut carry_out = true;
        if !matches!(work, Work::BumpGeneration { .. })
            && let Some(verdict) = cinnabar_backend::model::judge(
                &mut volume.models,
                now.0,
                what.kind,
                what.offset,
                what.len,
            )
        {
            self.ios.delay(io, Instant(verdict.complete_at_ns), verdict.error);
            carry_out = verdict.carry_out;
        }
        match work {
            _ if !carry_out => self.ios.end_by_model(io),
            Work::Port(op) => self.port.submit(Job { token: io as u64, file, op }),
            Work::Prove => self.proofs.prove(key, io),
            Work::BumpGeneration { held } => {
                let name = self.volumes[key].name.clone();
                let write = self.proofs.raise(io, name, held);
                self.start_generation_bumps(write);
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
            let IoInfo { name, offset, len, .. } = self.ios.get(io).of.what;
            let path = self.path_of(io);
            tracing::warn!(path, operation = name, offset, len, %errno, "I/O failed");
        }
        self.ended(now, io, done.result.map_err(port::io_error), done.pages);
    }

    /// An I/O has ended; a model may hold the news back.
    fn ended(
        &mut self,
        now: Instant,
        io: usize,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        let TrackedIo { of: Io { volume, what, .. }, started, .. } = *self.ios.get(io);
        if volume.is_none() && result.is_ok() {
            self.device.times.add(what, now.since_ns(started));
        }
        if let Some(ended) = self.ios.end(now, io, result, pages) {
            self.deliver(ended);
        }
    }

    /// Tells the engine of a completion.
    pub(super) fn deliver(&mut self, ended: EndedIo<Io>) {
        let Io { owner, volume, file, .. } = ended.io.of;
        match volume {
            Some(volume) if self.volumes[volume].life.ios().end() => self.forget_if_quiet(volume),
            Some(_) => {}
            None => self.close_left(file),
        }
        if let Some(id) = owner {
            self.events.push(Event::IoDone(ended.done(id)));
        }
    }

    /// Whose I/O it is, for the log.
    fn path_of(&self, io: usize) -> String {
        let Io { volume, file, .. } = self.ios.get(io).of;
        match volume {
            Some(key) => self.volumes[key].disk.path().display().to_string(),
            None => self.device.path_of(file).display().to_string(),
        }
    }
}
