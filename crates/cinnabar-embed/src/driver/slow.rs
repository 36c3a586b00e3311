//! What blocks and is rare, each on a thread of its own: proving a backend (once a second while it
//! is written), keeping new generations (once for each volume that loses its cache device), opening
//! another cache device, and measuring a backend that may have grown.
//!
//! Results come back through a queue; the waker ends the port's wait.

use super::Driver;
use super::device::Prepared;
use super::new_device::Opening;
use super::volumes::Attached;
use crate::error::Error;
use cinnabar_backend::disk::DiskError;
use cinnabar_backend::generations::StateError;
use cinnabar_backend::{Disk, Ledger, Proof, ProofError, Waker, port};
use cinnabar_driver::device_life::ReplacementId;
use cinnabar_driver::pending_proofs::GenerationHeld;
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::ProofToken;
use std::sync::{Arc, Mutex, mpsc};

/// Something to be done for I/Os of the engine's.
pub(super) enum Task {
    /// Of the volume of this key.
    Prove {
        volume: usize,
        disk: Arc<Disk>,
    },
    BumpGeneration {
        ledger: Ledger,
        held: Vec<GenerationHeld>,
    },
    /// A cache device that is to take another's place.
    OpenDevice {
        id: ReplacementId,
        opening: Box<Opening>,
    },
    /// How large a backend is, and its proof if that is more than is served.
    Measure {
        id: u64,
        disk: Arc<Disk>,
        served: u64,
    },
}

/// Size of a backend in bytes, and its proof as it stands if it has grown.
pub(super) type Measured = Result<(u64, Option<ProofToken>), DiskError>;

/// What came of it.
enum Finished {
    Proved { volume: usize, result: Result<Option<ProofToken>, ProofError> },
    GenerationsBumped { result: Result<Vec<u64>, StateError> },
    DeviceOpened { id: ReplacementId, result: Box<Result<Prepared, Error>> },
    Measured { id: u64, result: Measured },
}

/// See the module.
pub(super) struct Slow {
    sender: mpsc::Sender<Finished>,
    receiver: mpsc::Receiver<Finished>,
    waker: Waker,
}

impl Slow {
    pub(super) fn new(waker: Waker) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver, waker }
    }

    pub(super) fn start(&self, task: Task) {
        let (sender, waker) = (self.sender.clone(), self.waker.clone());
        // A thread that can't be had would drop the task, and the engine would wait for ever.
        let slot = Arc::new(Mutex::new(Some(task)));
        let theirs = Arc::clone(&slot);
        let work = move || {
            if let Some(task) = take(&theirs) {
                // The driver may be gone; then nobody wants to know.
                let _ = sender.send(task.run());
                waker.wake();
            }
        };
        let thread = std::thread::Builder::new().name("cinnabar-slow".into());
        if thread.spawn(work).is_err()
            && let Some(task) = take(&slot)
        {
            let _ = self.sender.send(task.run());
            self.waker.wake();
        }
    }
}

impl Driver {
    /// The waker fired.
    pub(super) fn take_slow(&mut self, now: Instant) {
        while let Ok(finished) = self.slow.receiver.try_recv() {
            match finished {
                Finished::Proved { volume, result } => self.proved(now, volume, result),
                Finished::GenerationsBumped { result } => self.generations_bumped(now, result),
                Finished::DeviceOpened { id, result } => self.device_opened(id, *result),
                Finished::Measured { id, result } if id == self.measuring => {
                    self.measured = Some(result);
                }
                Finished::Measured { .. } => {}
            }
        }
    }

    /// Begins to flush and prove the backend of the volume of this key.
    pub(super) fn start_proof(&self, volume: usize) {
        let disk = Arc::clone(&self.volumes[volume].disk);
        self.slow.start(Task::Prove { volume, disk });
    }

    /// A backend was flushed and asked for its proof, or could not be.
    fn proved(&mut self, now: Instant, key: usize, result: Result<Option<ProofToken>, ProofError>) {
        let Attached { disk, life, .. } = &self.volumes[key];
        let (path, attachment) = (disk.path().display(), life.attachment());
        let result = match result {
            Ok(proof) => Ok(proof),
            Err(ProofError::Flush(errno)) => {
                tracing::warn!(%path, %errno, "flushing failed");
                Err(port::io_error(errno))
            }
            Err(error) => {
                // What was written is durable all the same.
                tracing::warn!(%path, reason = %error, "no proof of who wrote the volume");
                Ok(None)
            }
        };
        let ended = self.proofs.proved(key);
        for io in ended.ios {
            self.ios.proved(now, io, result.clone(), attachment);
        }
        if ended.again {
            self.start_proof(key);
        }
    }

    /// Begins to write new generations, if there is something to be written now.
    pub(super) fn start_generation_bumps(&self, write: Option<Vec<GenerationHeld>>) {
        if let Some(held) = write {
            self.slow.start(Task::BumpGeneration { ledger: self.ledger.clone(), held });
        }
    }

    /// Volumes have new generations, or those could not be kept.
    fn generations_bumped(&mut self, now: Instant, result: Result<Vec<u64>, StateError>) {
        if let Err(error) = &result {
            tracing::error!(
                reason = %error,
                "volumes can't be written: without a cache device, a new generation must be kept"
            );
        }
        let (ios, next) = self.proofs.raised();
        let generations = result.ok();
        for (at, io) in ios.into_iter().enumerate() {
            let generation = generations.as_ref().map(|all| all[at]);
            if let Some(ended) = self.ios.raised(now, io, generation) {
                self.deliver(ended);
            }
        }
        self.start_generation_bumps(next);
    }
}

impl Task {
    fn run(self) -> Finished {
        match self {
            Self::Prove { volume, disk } => {
                let result = disk.prove();
                // Before the driver hears of it: it may mean to close the disk.
                drop(disk);
                Finished::Proved { volume, result }
            }
            Self::BumpGeneration { ledger, held } => Finished::GenerationsBumped {
                result: ledger.with(|state| state.bump_generation(&held)),
            },
            Self::OpenDevice { id, opening } => {
                Finished::DeviceOpened { id, result: Box::new(opening.run()) }
            }
            Self::Measure { id, disk, served } => {
                let result = measure(&disk, served);
                drop(disk);
                Finished::Measured { id, result }
            }
        }
    }
}

fn measure(disk: &Disk, served: u64) -> Measured {
    let size = disk.measure()?;
    if size <= served {
        return Ok((size, None));
    }
    // Without a proof a crash leaves the volume cold, no more.
    let proof = disk.prove().unwrap_or_else(|error| {
        tracing::warn!(path = %disk.path().display(), reason = %error, "no proof of a grown disk");
        None
    });
    Ok((size, proof))
}

fn take(slot: &Mutex<Option<Task>>) -> Option<Task> {
    slot.lock().ok().and_then(|mut slot| slot.take())
}
