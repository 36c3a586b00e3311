//! What blocks and is rare, each on a thread of its own: proving a backend (once a second while it
//! is written), keeping new generations (once for each volume that loses its cache device), opening
//! another cache device; and what a call of the program waits for: opening a volume's backend, measuring
//! one that may have grown, proving one at its end, keeping the state.
//!
//! Results come back through a queue; the waker ends the port's wait. Where no thread can be had, what
//! blocks waits and is tried again ([`Slow::retry`]): the driver's thread never does it.

use super::Driver;
use super::device::Prepared;
use super::new_device::Opening;
use super::replace::LOOK_EVERY;
use super::volumes::Attached;
use crate::error::Error;
use cinnabar_backend::generations::StateError;
use cinnabar_backend::{Disk, Ledger, Proof, ProofError, Waker, port};
use cinnabar_driver::Silence;
use cinnabar_driver::device_life::ReplacementId;
use cinnabar_driver::io_tracker::after;
use cinnabar_driver::pending_proofs::GenerationHeld;
use cinnabar_engine::units::Instant;
use cinnabar_engine::volume::ProofToken;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Between two log lines of generations that can't be kept.
const TELL_EVERY: Duration = Duration::from_mins(1);

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
}

/// What came of it.
enum Finished {
    Proved { volume: usize, result: Result<Option<ProofToken>, ProofError> },
    GenerationsBumped { result: Result<Vec<u64>, StateError> },
    DeviceOpened { id: ReplacementId, result: Box<Result<Prepared, Error>> },
}

/// What a thread is to do.
type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread that does this.
type Spawn = Box<dyn Fn(Work) -> std::io::Result<()> + Send>;

/// See the module.
pub(super) struct Slow {
    sender: mpsc::Sender<Finished>,
    receiver: mpsc::Receiver<Finished>,
    waker: Waker,
    spawn: Spawn,
    /// What no thread could be had for, in order.
    waiting: RefCell<VecDeque<Work>>,
    /// That was logged.
    warned: Cell<bool>,
    /// When it was logged that generations can't be kept.
    told: Cell<Option<Instant>>,
}

impl Slow {
    pub(super) fn new(waker: Waker) -> Self {
        let spawn: Spawn = Box::new(|work| {
            std::thread::Builder::new().name("cinnabar-slow".into()).spawn(work).map(drop)
        });
        Self::with(waker, spawn)
    }

    fn with(waker: Waker, spawn: Spawn) -> Self {
        let (sender, receiver) = mpsc::channel();
        let waiting = RefCell::default();
        let (warned, told) = (Cell::default(), Cell::default());
        Self { sender, receiver, waker, spawn, waiting, warned, told }
    }

    pub(super) fn start(&self, task: Task) {
        self.spawn(self.sender.clone(), move || task.run());
    }

    /// Whether something waits for a thread: [`retry`](Self::retry) is to be called soon.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Tries again to have threads for what waits for them.
    pub(super) fn retry(&self) {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(work) = next else { break self.warned.set(false) };
            // A thread that can't be had drops what it was given.
            let slot = Arc::new(Mutex::new(Some(work)));
            let theirs = Arc::clone(&slot);
            let run = move || {
                if let Some(work) = take(&theirs) {
                    work();
                }
            };
            let Err(error) = (self.spawn)(Box::new(run)) else { continue };
            if let Some(work) = take(&slot) {
                self.waiting.borrow_mut().push_front(work);
            }
            if !self.warned.replace(true) {
                tracing::warn!(%error, "no thread for what blocks: it waits, and is tried again");
            }
            break;
        }
    }

    /// Whether it is to be logged now that generations can't be kept: each write may try it again.
    fn tells(&self, now: Instant) -> bool {
        let tells = self.told.get().is_none_or(|told| after(told, TELL_EVERY) <= now);
        if tells {
            self.told.set(Some(now));
        }
        tells
    }

    /// Closes it; that may take long, and nobody waits for it.
    pub(super) fn close<T: Send + 'static>(&self, late: T) {
        let (sender, _) = mpsc::channel();
        self.spawn(sender, move || drop(late));
    }

    /// Has a thread do this, send the result and wake the driver.
    fn spawn<T: Send + 'static>(
        &self,
        sender: mpsc::Sender<T>,
        work: impl FnOnce() -> T + Send + 'static,
    ) {
        let waker = self.waker.clone();
        self.waiting.borrow_mut().push_back(Box::new(move || {
            // The driver may be gone, or may not wait any more.
            let _ = sender.send(work());
            waker.wake();
        }));
        self.retry();
    }
}

impl Driver {
    /// The result of what blocks, done on a thread of its own while requests go on.
    pub(super) fn beside<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.beside_for(Duration::ZERO, work).map(|result| result.expect("it has no bound"))
    }

    /// The same; `None`: it took longer than `bound`, if that is not zero. What comes of it later is
    /// dropped.
    pub(super) fn beside_for<T: Send + 'static>(
        &mut self,
        bound: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let (sender, result) = mpsc::channel();
        self.slow.spawn(sender, work);
        let mut silence = Silence::since(self.now());
        loop {
            self.act();
            match result.try_recv() {
                Ok(result) => return Ok(Some(result)),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => panic!("what blocks has panicked"),
            }
            if !bound.is_zero() && silence.is_over(self.now(), bound) {
                return Ok(None);
            }
            self.wait(Some(LOOK_EVERY))?;
        }
    }

    /// The waker fired.
    pub(super) fn take_slow(&mut self, now: Instant) {
        while let Ok(finished) = self.slow.receiver.try_recv() {
            match finished {
                Finished::Proved { volume, result } => self.proved(now, volume, result),
                Finished::GenerationsBumped { result } => self.generations_bumped(now, result),
                Finished::DeviceOpened { id, result } => self.device_opened(id, *result),
            }
        }
    }

    /// Begins to flush and prove the back ends of volumes whose shards have asked for it.
    pub(super) fn start_proofs(&mut self) {
        for volume in self.proofs.begin() {
            let disk = Arc::clone(&self.volumes[volume].disk);
            self.slow.start(Task::Prove { volume, disk });
        }
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
        for io in self.proofs.proved(key) {
            self.ios.proved(now, io, result.clone(), attachment);
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
        if let Err(error) = &result
            && self.slow.tells(now)
        {
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
        }
    }
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().ok().and_then(|mut slot| slot.take())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_backend::port::{IoMode, open};
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn generations_that_can_not_be_kept_are_told_of_once_a_minute() {
        let port = open(IoMode::Threads).expect("there are files and threads");
        let slow = Slow::new(port.waker());
        let told: Vec<_> =
            (0..150).filter(|second| slow.tells(Instant(second * 1_000_000_000))).collect();
        assert_eq!(told, [0, 60, 120]);
    }

    #[test]
    fn what_no_thread_can_be_had_for_waits_and_is_not_done_by_the_driver() {
        let port = open(IoMode::Threads).expect("there are files and threads");
        let refuses = Arc::new(AtomicBool::new(true));
        let refused = Arc::clone(&refuses);
        let spawn: Spawn = Box::new(move |work| {
            if refused.load(SeqCst) {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            std::thread::Builder::new().spawn(work).map(drop)
        });
        let slow = Slow::with(port.waker(), spawn);
        let (sender, by) = mpsc::channel();
        for _ in 0..3 {
            slow.spawn(sender.clone(), || std::thread::current().id());
        }
        slow.retry();
        assert!(by.try_recv().is_err(), "nobody has done it");
        assert!(slow.waits());
        refuses.store(false, SeqCst);
        slow.retry();
        assert!(!slow.waits());
        drop(sender);
        let by: Vec<_> = by.into_iter().collect();
        assert_eq!(by.len(), 3);
        assert!(!by.contains(&std::thread::current().id()));
    }
}
