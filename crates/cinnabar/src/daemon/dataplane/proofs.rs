//! What the engine wants to have done beside the data: proofs for the heartbeat, new generations.
//!
//! Both block and are done by background threads.

use super::background::Task;
use super::desk::Desk;
use super::plane::Plane;
use crate::daemon::generations::StateError;
use cinnabar_backend::{ProofError, port};
use cinnabar_driver::io_tracker::ProofResult;
use cinnabar_engine::IoError;
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::ProofToken;
use std::sync::Arc;

/// An I/O of some thread's desk.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoName {
    pub(super) thread: usize,
    pub(super) io: usize,
}

/// Volumes whose generation is to be changed. One file holds them all, so those that come while it
/// is being written are done together, with the next write.
#[derive(Default)]
pub(super) struct GenerationBumps {
    /// I/Os, their volumes' names and generations.
    waiting: Vec<(IoName, (String, u64))>,
    writing: bool,
}

impl Plane {
    /// Begins to flush and prove a volume, for this I/O.
    pub(super) fn start_proof(&mut self, io: IoName, volume: usize) {
        let disk = Arc::clone(&self.volumes[volume].io.disk);
        self.background.start(Task::Prove { io, disk });
    }

    pub(super) fn proved(
        &mut self,
        now: Instant,
        IoName { thread, io }: IoName,
        result: Result<Option<ProofToken>, ProofError>,
    ) {
        let settle = move |desk: &mut Desk| desk.proved(now, io, result);
        self.crew.on_desk(&mut self.lane, thread, settle);
    }

    /// Has a volume's generation changed, for this I/O.
    pub(super) fn start_generation_bump(&mut self, io: IoName, volume: usize, held: u64) {
        let name = self.volumes[volume].config.name.clone();
        self.generation_bumps.waiting.push((io, (name, held)));
        self.write_generation_bumps();
    }

    fn write_generation_bumps(&mut self) {
        if self.generation_bumps.writing || self.generation_bumps.waiting.is_empty() {
            return;
        }
        self.generation_bumps.writing = true;
        let (ios, held) = std::mem::take(&mut self.generation_bumps.waiting).into_iter().unzip();
        let ledger = self.ledger.clone();
        self.background.start(Task::BumpGeneration { ledger, ios, held });
    }

    pub(super) fn generation_bumped(
        &mut self,
        now: Instant,
        ios: Vec<IoName>,
        result: Result<Vec<u64>, StateError>,
    ) {
        self.generation_bumps.writing = false;
        if let Err(error) = &result {
            let hint = error.hint();
            tracing::error!(
                reason = %error, hint,
                "volumes can't be written: without a cache device, a new generation must be kept"
            );
        }
        let generations = result.ok();
        for (at, IoName { thread, io }) in ios.into_iter().enumerate() {
            let generation = generations.as_ref().map(|all| all[at]);
            let settle = move |desk: &mut Desk| desk.generation_bumped(now, io, generation);
            self.crew.on_desk(&mut self.lane, thread, settle);
        }
        self.write_generation_bumps();
    }
}

impl Desk {
    fn proved(&mut self, now: Instant, io: usize, result: Result<Option<ProofToken>, ProofError>) {
        let (result, proof) = match result {
            Ok(proof) => (Ok(()), proof),
            Err(ProofError::Flush(errno)) => {
                self.warn(now, io, errno);
                (Err(port::io_error(errno)), None)
            }
            Err(error) => {
                // What was written is durable all the same.
                if self.warnings.allow(now) {
                    let volume = self.name_of(io);
                    tracing::warn!(volume, reason = %error, "no proof of who wrote the volume");
                }
                (Ok(()), None)
            }
        };
        let attachment = self.attachment_of(io);
        let proof = proof.map(|proof| proof.of_attachment(attachment));
        self.ios.bring(io, ProofResult { proof, generation: None });
        self.ios.end_elsewhere(now, io, result);
    }

    fn generation_bumped(&mut self, now: Instant, io: usize, generation: Option<u64>) {
        let result = if generation.is_some() {
            let volume = self.name_of(io);
            tracing::info!(volume, "what any cache device holds of it is void now");
            self.ios.bring(io, ProofResult { proof: None, generation });
            Ok(())
        } else {
            Err(IoError::Io)
        };
        self.ended(now, io, result, Vec::new());
    }
}
