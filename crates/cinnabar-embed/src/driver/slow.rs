//! What blocks and is rare, each on a thread of its own: proving a backend (once a second while it
//! is written) and keeping a new generation (once for each volume that loses its cache device).
//!
//! Results come back through a queue; the waker ends the port's wait.

use super::Driver;
use cinnabar_backend::generations::StateError;
use cinnabar_backend::{Disk, Ledger, Proof, ProofError, Waker};
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::ProofToken;
use std::sync::{Arc, Mutex, mpsc};

/// Something to be done for an I/O of the engine's.
pub(super) enum Task {
    Prove { io: usize, disk: Arc<Disk> },
    BumpGeneration { io: usize, ledger: Ledger, name: String, held: u64 },
}

/// What came of it.
enum Finished {
    Proved { io: usize, result: Result<Option<ProofToken>, ProofError> },
    GenerationBumped { io: usize, result: Result<u64, StateError> },
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
                Finished::Proved { io, result } => self.proved(now, io, result),
                Finished::GenerationBumped { io, result } => {
                    self.generation_bumped(now, io, result);
                }
            }
        }
    }
}

impl Task {
    fn run(self) -> Finished {
        match self {
            Self::Prove { io, disk } => {
                let result = disk.prove();
                // Before the driver hears of it: it may mean to close the disk.
                drop(disk);
                Finished::Proved { io, result }
            }
            Self::BumpGeneration { io, ledger, name, held } => {
                let result =
                    ledger.with(|state| state.bump_generation(&[(name, held)])).map(|all| all[0]);
                Finished::GenerationBumped { io, result }
            }
        }
    }
}

fn take(slot: &Mutex<Option<Task>>) -> Option<Task> {
    slot.lock().ok().and_then(|mut slot| slot.take())
}
