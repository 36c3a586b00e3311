//! The engine's I/O on its way to port, model or helper thread, and back.

use super::Driver;
use super::slow::Task;
use cinnabar_backend::generations::StateError;
use cinnabar_backend::work::{What, Work, pages_of, translate};
use cinnabar_backend::{Done, Job, Memory, ProofError, port};
use cinnabar_driver::TrackedIo;
use cinnabar_driver::io_tracker::{EndedIo, ProofResult};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::ProofToken;
use cinnabar_engine::{Event, IoDone, IoError, IoId, IoOp, IoRequest, Target};
use std::sync::Arc;
use std::time::Duration;

/// What is known of an I/O under way.
#[derive(Debug)]
pub(super) struct Io {
    /// `None`: nothing waits for its end any more.
    pub(super) owner: Option<IoId>,
    /// Key of the volume; `None` is the cache device.
    pub(super) volume: Option<usize>,
    pub(super) what: What,
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
                let io = Io { owner: Some(id), volume: None, what };
                let token = self.ios.start(now, io, self.device.timeout) as u64;
                self.port.submit(Job { token, file, op });
            }
        }
    }

    fn start_backend_io(&mut self, now: Instant, id: IoId, key: usize, op: IoOp<Memory>) {
        let (what, work) = translate(op);
        let volume = &mut self.volumes[key];
        volume.in_flight += 1;
        let file = volume.file;
        // Nothing waits for a proof; a new generation is a matter of this host.
        let waits = matches!(work, Work::Port(_));
        let bound = if waits { volume.timeout } else { Duration::ZERO };
        let io = self.ios.start(now, Io { owner: Some(id), volume: Some(key), what }, bound);
        let mut carry_out = true;
        if !matches!(work, Work::BumpGeneration { .. })
            && let Some(verdict) =
                cinnabar_model::judge(&mut volume.models, now.0, what.kind, what.offset, what.len)
        {
            self.ios.delay(io, Instant(verdict.complete_at_ns), verdict.error);
            carry_out = verdict.carry_out;
        }
        match work {
            _ if !carry_out => self.ios.end_by_model(io),
            Work::Port(op) => self.port.submit(Job { token: io as u64, file, op }),
            Work::Prove => {
                let disk = Arc::clone(&self.volumes[key].disk);
                self.slow.start(Task::Prove { io, disk });
            }
            Work::BumpGeneration { held } => {
                let (ledger, name) = (self.ledger.clone(), self.volumes[key].name.clone());
                self.slow.start(Task::BumpGeneration { io, ledger, name, held });
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
            let What { name, offset, len, .. } = self.ios.get(io).of.what;
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
        result: Result<Option<ProofToken>, ProofError>,
    ) {
        let result = match result {
            Ok(proof) => {
                let volume = self.ios.get(io).of.volume.map(|key| self.volumes[key].attachment);
                let attachment = volume.unwrap_or_default();
                let proof = proof.map(|proof| proof.of_attachment(attachment));
                self.ios.bring(io, ProofResult { proof, generation: None });
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
        self.ios.end_elsewhere(now, io, result);
    }

    /// A volume has a new generation, or it could not be kept.
    pub(super) fn generation_bumped(
        &mut self,
        now: Instant,
        io: usize,
        result: Result<u64, StateError>,
    ) {
        let result = match result {
            Ok(generation) => {
                let proof = ProofResult { proof: None, generation: Some(generation) };
                self.ios.bring(io, proof);
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
        let Io { owner, volume, .. } = ended.io.of;
        if let Some(volume) = volume {
            self.volumes[volume].in_flight -= 1;
            self.forget_if_quiet(volume);
        }
        if let Some(id) = owner {
            self.events.push(Event::IoDone(ended.done(id)));
        }
    }

    /// Whose I/O it is, for the log.
    fn path_of(&self, io: usize) -> String {
        match self.ios.get(io).of.volume {
            Some(key) => self.volumes[key].disk.path().display().to_string(),
            None => self.device.path.display().to_string(),
        }
    }
}
