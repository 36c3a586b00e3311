//! What the engine wants to have done beside the data: proofs for the heartbeat, new generations.
//!
//! Both block and are done by background threads; [`PendingProofs`](cinnabar_driver::PendingProofs)
//! says when, and for which I/Os.

use super::background::Task;
use super::io_table::IoTable;
use super::plane::DataPlane;
use cinnabar_backend::generations::StateError;
use cinnabar_backend::{ProofError, port};
use cinnabar_driver::pending_proofs::GenerationHeld;
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::ProofToken;
use std::sync::Arc;

/// An I/O of some thread's I/O table.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoName {
    pub(super) thread: usize,
    pub(super) io: usize,
}

impl DataPlane {
    /// Has volumes flushed and proved for what their shards have asked for in this turn.
    pub(super) fn start_proofs(&mut self) {
        for volume in self.proofs.begin() {
            let disk = Arc::clone(&self.volumes[volume].io.disk);
            self.background.start(Task::Prove { volume, disk });
        }
    }

    pub(super) fn proved(
        &mut self,
        now: Instant,
        volume: usize,
        result: Result<Option<ProofToken>, ProofError>,
    ) {
        let io = &self.volumes[volume].io;
        let (name, attachment) = (&io.name, io.attachment);
        let warns = result.is_err() && self.data_thread.io_table.warnings.allow(now);
        let result = match result {
            // One that has come back is flushed, but proves nothing yet.
            Ok(proof) => Ok(self.volumes[volume].life.proof_to_record(proof)),
            Err(ProofError::Flush(errno)) => {
                if warns {
                    let path = io.disk.path().display();
                    tracing::warn!(volume = name, %path, %errno, "flushing failed");
                }
                Err(port::io_error(errno))
            }
            Err(error) => {
                // What was written is durable all the same.
                if warns {
                    tracing::warn!(volume = name, reason = %error, "no proof of who wrote the volume");
                }
                Ok(None)
            }
        };
        for IoName { thread, io } in self.proofs.proved(volume) {
            let result = result.clone();
            let settle =
                move |io_table: &mut IoTable| io_table.ios.proved(now, io, result, attachment);
            self.shard_set.on_io_table(&mut self.data_thread, thread, settle);
        }
    }

    /// Has a volume's generation changed, for this I/O.
    pub(super) fn start_generation_bump(&mut self, io: IoName, volume: usize, held: u64) {
        let now = self.data_thread.clock.now();
        if self.proofs.is_overdue() {
            return self.settle_generations(now, vec![io], None);
        }
        let name = self.volumes[volume].config.name.clone();
        let write = self.proofs.raise(io, name, held);
        self.write_generations(now, write);
    }

    fn write_generations(&mut self, now: Instant, write: Option<Vec<GenerationHeld>>) {
        if let Some(held) = write {
            self.state_folder.begins(now);
            self.background.start(Task::BumpGeneration { ledger: self.ledger.clone(), held });
        }
    }

    pub(super) fn generations_bumped(
        &mut self,
        now: Instant,
        result: Result<Vec<u64>, StateError>,
    ) {
        match &result {
            Ok(_) => self.state_kept(),
            Err(error) => self.state_failed(now, &error.to_string(), error.hint()),
        }
        let (ios, next) = self.proofs.raised();
        self.settle_generations(now, ios, result.ok().as_deref());
        self.write_generations(now, next);
    }

    /// These I/Os have the new generations, in their order, or have failed.
    pub(super) fn settle_generations(
        &mut self,
        now: Instant,
        ios: Vec<IoName>,
        generations: Option<&[u64]>,
    ) {
        for (at, IoName { thread, io }) in ios.into_iter().enumerate() {
            let generation = generations.map(|all| all[at]);
            let settle =
                move |io_table: &mut IoTable| io_table.generation_bumped(now, io, generation);
            self.shard_set.on_io_table(&mut self.data_thread, thread, settle);
        }
    }
}

impl IoTable {
    fn generation_bumped(&mut self, now: Instant, io: usize, generation: Option<u64>) {
        if generation.is_some() {
            let volume = self.name_of(io);
            tracing::info!(volume, "what any cache device holds of it is void now");
        }
        if let Some(ended) = self.ios.raised(now, io, generation) {
            self.deliver(now, ended);
        }
    }
}
