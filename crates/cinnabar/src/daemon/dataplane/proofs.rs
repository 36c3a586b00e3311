//! What the engine wants to have done beside the data: proofs for the heartbeat, new generations.
//!
//! Called by the loop's I/O. Both block and are done by background threads.

use super::background::Task;
use super::plane::Plane;
use crate::daemon::generations::StateError;
use cinnabar_backend::{ProofError, port};
use cinnabar_engine::IoError;
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::Epoch;
use std::sync::Arc;

/// What such an I/O brings the engine.
#[derive(Debug, Default)]
pub(super) struct Brought {
    pub(super) epoch: Option<Epoch>,
    pub(super) generation: Option<u64>,
}

/// Volumes whose generation is to be changed. One file holds them all, so those that come while it
/// is being written are done together, with the next write.
#[derive(Default)]
pub(super) struct Distrusts {
    /// I/Os and their volumes' names.
    waiting: Vec<(usize, String)>,
    writing: bool,
}

impl Plane {
    /// Begins to flush and prove a volume, for this I/O.
    pub(super) fn start_proof(&mut self, io: usize, volume: usize) {
        let disk = Arc::clone(&self.volumes[volume].disk);
        self.background.start(Task::Prove { io, disk });
    }

    pub(super) fn proved(
        &mut self,
        now: Instant,
        io: usize,
        result: Result<Option<Epoch>, ProofError>,
    ) {
        let (result, epoch) = match result {
            Ok(epoch) => (Ok(()), epoch),
            Err(ProofError::Flush(errno)) => {
                self.warn(now, io, errno);
                (Err(port::io_error(errno)), None)
            }
            Err(error) => {
                // What was written is durable all the same.
                if self.warnings.allow(now) {
                    let volume = self.volume_of(io);
                    tracing::warn!(volume, reason = %error, "no proof of who wrote the volume");
                }
                (Ok(()), None)
            }
        };
        self.bring(io, Brought { epoch, generation: None });
        self.ended(now, io, result, Vec::new());
    }

    /// Has a volume's generation changed, for this I/O.
    pub(super) fn start_distrust(&mut self, io: usize, volume: usize) {
        let name = self.volumes[volume].config.name.clone();
        self.distrusts.waiting.push((io, name));
        self.write_distrusts();
    }

    fn write_distrusts(&mut self) {
        if self.distrusts.writing || self.distrusts.waiting.is_empty() {
            return;
        }
        self.distrusts.writing = true;
        let (ios, names) = std::mem::take(&mut self.distrusts.waiting).into_iter().unzip();
        let ledger = self.ledger.clone();
        self.background.start(Task::Distrust { ledger, ios, names });
    }

    pub(super) fn distrusted(
        &mut self,
        now: Instant,
        ios: Vec<usize>,
        result: Result<Vec<u64>, StateError>,
    ) {
        self.distrusts.writing = false;
        match result {
            Ok(generations) => {
                for (io, generation) in ios.into_iter().zip(generations) {
                    let volume = self.volume_of(io);
                    tracing::info!(volume, "what any cache device holds of it is void now");
                    self.bring(io, Brought { epoch: None, generation: Some(generation) });
                    self.ended(now, io, Ok(()), Vec::new());
                }
            }
            Err(error) => {
                let hint = error.hint();
                tracing::error!(
                    reason = %error, hint,
                    "volumes can't be written: without a cache device, a new generation must be kept"
                );
                for io in ios {
                    self.ended(now, io, Err(IoError::Io), Vec::new());
                }
            }
        }
        self.write_distrusts();
    }
}
