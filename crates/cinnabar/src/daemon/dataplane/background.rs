//! What may take long, on threads of its own: opening backends, proving that nobody wrote them.
//!
//! Called by the control part of the loop. Results come back through a queue, and the waker makes
//! the loop look.

use super::disks::{self, OpenedVolume, Taken};
use crate::daemon::messages::{AnswerTo, StartError, VolumeConfig};
use cinnabar_backend::Waker;
use cinnabar_backend::disk::{Disk, OpenOptions, take_epoch};
use cinnabar_engine::volume::Epoch;
use std::collections::VecDeque;
use std::sync::{Arc, mpsc};

/// Tasks under way at a time.
const THREADS_MAX: usize = 8;

/// Something to be done.
pub(super) enum Task {
    /// Open a volume's backend.
    Open {
        config: Box<VolumeConfig>,
        options: OpenOptions,
        taken: Vec<Taken>,
        answer: AnswerTo<()>,
    },
    /// Prove that nobody wrote the disk of this volume.
    Prove { volume: usize, disk: Arc<Disk> },
}

/// What came of it.
pub(super) enum Finished {
    Opened { name: String, result: Result<Box<OpenedVolume>, StartError>, answer: AnswerTo<()> },
    Proved { volume: usize, epoch: Option<Epoch> },
}

/// See the module.
pub(super) struct Background {
    waiting: VecDeque<Task>,
    running: usize,
    sender: mpsc::Sender<Finished>,
    receiver: mpsc::Receiver<Finished>,
    waker: Waker,
}

impl Background {
    pub(super) fn new(waker: Waker) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { waiting: VecDeque::new(), running: 0, sender, receiver, waker }
    }

    pub(super) fn start(&mut self, task: Task) {
        self.waiting.push_back(task);
        self.fill();
    }

    /// Takes something that is finished.
    pub(super) fn take(&mut self) -> Option<Finished> {
        let finished = self.receiver.try_recv().ok()?;
        self.running -= 1;
        self.fill();
        Some(finished)
    }

    /// Nothing waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }

    fn fill(&mut self) {
        while self.running < THREADS_MAX {
            let Some(task) = self.waiting.pop_front() else { break };
            self.running += 1;
            let (sender, waker) = (self.sender.clone(), self.waker.clone());
            // A thread that can't be had would drop the task and its answer: do it here then.
            let slot = Arc::new(std::sync::Mutex::new(Some(task)));
            let theirs = Arc::clone(&slot);
            let work = move || {
                let task = theirs.lock().ok().and_then(|mut slot| slot.take());
                if let Some(task) = task {
                    // The loop may be gone; then nobody wants to know.
                    let _ = sender.send(task.run());
                    waker.wake();
                }
            };
            let thread = std::thread::Builder::new().name("cinnabar-slow".into());
            if let Err(error) = thread.spawn(work) {
                tracing::warn!(%error, "no thread for a slow operation; the data thread does it");
                if let Some(task) = slot.lock().ok().and_then(|mut slot| slot.take()) {
                    let _ = self.sender.send(task.run());
                    self.waker.wake();
                }
            }
        }
    }
}

impl Task {
    fn run(self) -> Finished {
        match self {
            Self::Open { config, options, taken, answer } => {
                let name = config.name.clone();
                let result = disks::open_volume(&config, &options, &taken).map(Box::new);
                Finished::Opened { name, result, answer }
            }
            Self::Prove { volume, disk } => {
                let epoch = take_epoch(&disk).unwrap_or_else(|error| {
                    let path = disk.path().display();
                    tracing::warn!(
                        %path, reason = %error,
                        "nothing proves that nobody will write the volume; its blocks are dropped"
                    );
                    None
                });
                // Before the loop hears of it: it may mean to close the disk.
                drop(disk);
                Finished::Proved { volume, epoch }
            }
        }
    }
}
