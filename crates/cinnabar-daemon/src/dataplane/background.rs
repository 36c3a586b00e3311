//! What may take long, on threads of its own: opening backends and cache devices, proving that
//! nobody wrote a backend, keeping generations.
//!
//! Results come back through a queue, and the waker makes the loop look.

use super::device::{self, OpenedDevice};
use super::disks::{self, OpenedVolume, Taken};
use super::migrate::{self, Arrival, MoveDone, MoveStep, WarmDone, WarmStep, WarmTask};
use super::resize::RoomAsked;
use super::returns::{self, Compared, Swept};
use super::watch::Sizes;
use super::writes::{Claims, Known, Subject};
use cinnabar_backend::disk::{Disk, DiskError, OpenOptions};
use cinnabar_backend::generations::{DeviceId, Ledger, StateError};
use cinnabar_backend::returning::{ReturnError, SnapNames};
use cinnabar_backend::{Proof, ProofError, Waker};
use cinnabar_driver::device_life::ReplacementId;
use cinnabar_driver::pending_proofs::GenerationHeld;
use cinnabar_engine::volume::ProofToken;
use cinnabar_messages::{
    AnswerTo, CommandError, CommandErrorKind, NewCache, StartError, VolumeConfig,
};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

/// Tasks of those that queue that are under way at a time.
const THREADS_MAX: usize = 8;
/// Tries to open a volume that waits, under way at a time: those that hang keep a thread each.
const TRIES_MAX: usize = 256;

/// Something to be done.
pub(super) enum Task {
    /// Open a volume's backend.
    Open(Opening),
    /// Prove that nobody wrote the disk of this volume, which was detached.
    /// It leaves a snapshot first, by one of these names, until then.
    Take { volume: usize, disk: Arc<Disk>, snap: Option<(SnapNames, Instant)> },
    /// What has changed of this disk since the snapshot of this number.
    Compare { subject: Subject, disk: Arc<Disk>, snap: u64, given_up: Arc<AtomicBool> },
    /// Remove snapshots of these names, and the one of this number.
    Sweep { subject: Subject, disk: Weak<Disk>, names: SnapNames, number: Option<u64> },
    /// Flush this disk of this volume and take its proof as it stands.
    Prove { volume: usize, disk: Arc<Disk> },
    /// New generations for these volumes.
    BumpGeneration { ledger: Ledger, held: Vec<GenerationHeld> },
    /// A new generation for a volume that is not attached: no device has it to be believed.
    Disown { ledger: Ledger, name: String, answer: AnswerTo<()> },
    /// Open and format another cache device.
    OpenDevice {
        id: ReplacementId,
        new: NewCache,
        shards: u32,
        options: OpenOptions,
        taken: Vec<Taken>,
    },
    /// Ask how large these disks are now.
    Measure { cache: Option<Weak<Disk>>, volumes: Vec<(usize, u64, Weak<Disk>)> },
    /// Whether the file system of the cache has room for it to grow.
    AskRoom(RoomAsked),
    /// Find out how large a volume's disk is now, and prove it as it stands.
    Grow { volume: usize, attachment: u64, disk: Weak<Disk>, answer: AnswerTo<u64> },
    /// Make the claim of a volume that joins the write log durable.
    Claim { subject: Subject, claims: Claims },
    /// Take it away: the volume has left.
    Unclaim { subject: Subject, claims: Claims },
    /// The same of a volume that is not served, and whose writes were given up.
    Discard { claims: Claims, answer: AnswerTo<()> },
    /// A step of a volume that moves between two hosts.
    Move { subject: Subject, step: Box<MoveStep> },
    /// Something of the blocks that move from one host's cache to the other's.
    Warm(WarmTask),
    /// These volumes are recorded on that device from now on.
    Entrust { ledger: Ledger, names: Vec<String>, device: DeviceId, path: PathBuf },
}

/// A volume's backend that is to be opened.
pub(super) struct Opening {
    pub(super) config: Box<VolumeConfig>,
    pub(super) options: OpenOptions,
    pub(super) taken: Vec<Taken>,
    /// Who may have a claim to it.
    pub(super) claims: Known,
    /// Looks up its generation on this cache device, if there is one.
    pub(super) keep: Option<(Ledger, Option<(DeviceId, PathBuf)>)>,
    /// Of the operator who adds it.
    pub(super) answer: Option<AnswerTo<()>>,
    /// Of a volume that waits.
    pub(super) attempt: Option<u64>,
}

/// What came of it.
pub(super) enum Finished {
    Opened {
        name: String,
        result: Result<Box<OpenedVolume>, StartError>,
        answer: Option<AnswerTo<()>>,
        attempt: Option<u64>,
    },
    Taken {
        volume: usize,
        proof: Option<ProofToken>,
    },
    Proved {
        volume: usize,
        result: Result<Option<ProofToken>, ProofError>,
    },
    GenerationsBumped(Result<Vec<u64>, StateError>),
    Disowned {
        result: Result<bool, StateError>,
        answer: AnswerTo<()>,
    },
    DeviceOpened {
        id: ReplacementId,
        result: Result<Box<OpenedDevice>, CommandError>,
    },
    Compared {
        subject: Subject,
        result: Compared,
    },
    Swept {
        subject: Subject,
        swept: Swept,
    },
    Measured(Sizes),
    RoomKnown(RoomAsked, Result<(), DiskError>),
    Grown {
        volume: usize,
        attachment: u64,
        result: Result<(u64, Option<ProofToken>), CommandError>,
        answer: AnswerTo<u64>,
    },
    Entrusted(Result<(), StateError>),
    Moved {
        subject: Subject,
        what: MoveDone,
    },
    Warm {
        task: Arrival,
        what: WarmDone,
    },
    Claimed {
        subject: Subject,
        result: Result<(), String>,
    },
    Unclaimed(Subject),
    Discarded {
        name: String,
        answer: AnswerTo<()>,
    },
}

/// See the module.
pub(super) struct Background {
    waiting: VecDeque<Task>,
    /// Of those that queue.
    running: usize,
    /// The same for tries to open volumes that wait: nobody waits for them.
    tries: VecDeque<Task>,
    trying: usize,
    /// Of those that don't.
    urgent: usize,
    /// Cache devices that are being opened; those that hang keep a thread each.
    pub(super) devices: usize,
    /// Blocks that are being read for other hosts, by request.
    pub(super) reads: usize,
    sender: mpsc::Sender<Finished>,
    receiver: mpsc::Receiver<Finished>,
    waker: Waker,
}

impl Background {
    pub(super) fn new(waker: Waker) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self {
            waiting: VecDeque::new(),
            running: 0,
            tries: VecDeque::new(),
            trying: 0,
            urgent: 0,
            devices: 0,
            reads: 0,
            sender,
            receiver,
            waker,
        }
    }

    /// Starts a task. What a guest may wait for never queues behind what waits for another process's lock;
    /// there is at most one such task for each volume.
    pub(super) fn start(&mut self, task: Task) {
        if task.is_urgent() {
            self.urgent += 1;
            self.spawn(task);
        } else if matches!(task, Task::Measure { .. } | Task::AskRoom(_) | Task::Warm(_))
            || matches!(task, Task::Compare { .. } | Task::Sweep { .. })
            || task.only_asks()
        {
            self.reads += usize::from(is_reading(&task));
            self.spawn(task);
        } else if matches!(task, Task::OpenDevice { .. }) {
            self.devices += 1;
            self.spawn(task);
        } else {
            let queue = if task.is_try() { &mut self.tries } else { &mut self.waiting };
            queue.push_back(task);
            self.fill();
        }
    }

    /// Takes something that is finished.
    pub(super) fn take(&mut self) -> Option<Finished> {
        let finished = self.receiver.try_recv().ok()?;
        self.count(&finished);
        Some(finished)
    }

    /// Waits for the end of a try, at the start when there is nothing else to do.
    pub(super) fn opened_within(
        &mut self,
        wait_max: Duration,
    ) -> Option<(u64, Result<Box<OpenedVolume>, StartError>)> {
        let finished = self.receiver.recv_timeout(wait_max).ok()?;
        self.count(&finished);
        match finished {
            Finished::Opened { result, attempt: Some(attempt), .. } => Some((attempt, result)),
            _ => None,
        }
    }

    fn count(&mut self, finished: &Finished) {
        if finished.is_urgent() {
            self.urgent -= 1;
        } else if let Finished::Warm { what, .. } = finished {
            self.reads -= usize::from(matches!(what, WarmDone::Read(..)));
        } else if matches!(finished, Finished::Measured(_) | Finished::RoomKnown(..))
            || matches!(finished, Finished::Compared { .. } | Finished::Swept { .. })
            || finished.only_asked()
        {
            // Not counted: nobody waits for it, a stop neither.
        } else if matches!(finished, Finished::DeviceOpened { .. }) {
            self.devices -= 1;
        } else if matches!(finished, Finished::Opened { attempt: Some(_), .. }) {
            self.trying -= 1;
        } else {
            self.running -= 1;
        }
        self.fill();
    }

    /// Nothing waits or runs that has to be brought to an end.
    pub(super) fn is_idle(&self) -> bool {
        self.running == 0 && self.urgent == 0 && self.waiting.is_empty()
    }

    fn fill(&mut self) {
        while self.running < THREADS_MAX {
            let Some(task) = self.waiting.pop_front() else { break };
            self.running += 1;
            self.spawn(task);
        }
        while self.trying < TRIES_MAX {
            let Some(task) = self.tries.pop_front() else { break };
            self.trying += 1;
            self.spawn(task);
        }
    }

    fn spawn(&self, task: Task) {
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
                let _ = self.sender.send(task.run_here());
                self.waker.wake();
            }
        }
    }
}

impl Task {
    fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Prove { .. }
                | Self::BumpGeneration { .. }
                | Self::Entrust { .. }
                | Self::Grow { .. }
                | Self::Claim { .. }
                | Self::Unclaim { .. }
                | Self::Discard { .. }
        ) || matches!(self, Self::Move { step, .. } if !step.only_asks())
    }

    /// A question to another host, or to storage that may be silent: nothing comes of it but an answer.
    fn only_asks(&self) -> bool {
        matches!(self, Self::Move { step, .. } if step.only_asks())
    }

    /// Does it on the data thread, which must not wait for another host, nor compare images.
    fn run_here(self) -> Finished {
        match self {
            Self::Warm(WarmTask { of, step }) => Finished::Warm { task: of, what: step.give_up() },
            Self::Compare { subject, .. } => {
                Finished::Compared { subject, result: Err(ReturnError::GivenUp) }
            }
            Self::Sweep { subject, .. } => Finished::Swept { subject, swept: Swept::default() },
            task => task.run(),
        }
    }

    const fn is_try(&self) -> bool {
        matches!(self, Self::Open(Opening { attempt: Some(_), .. }))
    }

    fn run(self) -> Finished {
        match self {
            Self::Open(Opening { config, options, taken, claims, keep, answer, attempt }) => {
                let name = config.name.clone();
                let open = || {
                    let mut opened = migrate::open(&config, &options, &taken, &claims)?;
                    if let Some((ledger, device)) = &keep {
                        let device = device.as_ref().map(|(id, path)| (*id, path.as_path()));
                        let names = std::slice::from_ref(&name);
                        let kept = ledger.with(|state| state.attach(names, device));
                        opened.generation = kept.map_err(|error| disks::state_error(&error))?[0];
                        (opened.kept, opened.kept_on) = (true, device.map(|(id, _)| id));
                    }
                    Ok(Box::new(opened))
                };
                let result = open();
                Finished::Opened { name, result, answer, attempt }
            }
            Self::Take { volume, disk, snap } => {
                Finished::Taken { volume, proof: taken(disk, snap.as_ref()) }
            }
            Self::Prove { volume, disk } => Finished::Proved { volume, result: proved(disk) },
            Self::BumpGeneration { ledger, held } => {
                Finished::GenerationsBumped(ledger.with(|state| state.bump_generation(&held)))
            }
            Self::Disown { ledger, name, answer } => {
                Finished::Disowned { result: ledger.with(|state| state.disown(&name)), answer }
            }
            Self::OpenDevice { id, new, shards, options, taken } => {
                let progress = options.progress.clone();
                let result = device::open_new(&new, shards, &options, &taken);
                let result = match result {
                    // It is closed here: it may hang once more.
                    Ok(_) if progress.is_given_up() => Err(CommandError::gone()),
                    result => result.map(Box::new),
                };
                Finished::DeviceOpened { id, result }
            }
            Self::Compare { subject, disk, snap, given_up } => {
                Finished::Compared { subject, result: returns::compare(disk, snap, &given_up) }
            }
            Self::Sweep { subject, disk, names, number } => {
                Finished::Swept { subject, swept: returns::sweep(&disk, &names, number) }
            }
            Self::Measure { cache, volumes } => Finished::Measured(measure(cache, volumes)),
            Self::AskRoom(asked) => {
                let result = ask_room(&asked);
                Finished::RoomKnown(asked, result)
            }
            Self::Grow { volume, attachment, disk, answer } => {
                let result = grown(&disk);
                Finished::Grown { volume, attachment, result, answer }
            }
            Self::Claim { subject, claims } => Finished::Claimed { subject, result: claims.make() },
            Self::Unclaim { subject, claims } => {
                claims.unmake();
                Finished::Unclaimed(subject)
            }
            Self::Discard { claims, answer } => {
                claims.unmake();
                Finished::Discarded { name: claims.claim.volume, answer }
            }
            Self::Move { subject, step } => Finished::Moved { subject, what: step.run() },
            Self::Warm(WarmTask { of, step }) => Finished::Warm { task: of, what: step.run() },
            Self::Entrust { ledger, names, device, path } => {
                Finished::Entrusted(ledger.with(|state| state.entrust(&names, device, &path)))
            }
        }
    }
}

/// The proof of a disk that is let go of.
fn taken(disk: Arc<Disk>, snap: Option<&(SnapNames, Instant)>) -> Option<ProofToken> {
    let taken = match snap {
        Some((names, by)) => disk.take_proof_and_snap(names, *by),
        None => disk.take_proof(),
    };
    let proof = taken.unwrap_or_else(|error| {
        let path = disk.path().display();
        tracing::warn!(
            %path, reason = %error,
            "nothing proves that nobody will write the volume; its blocks are dropped"
        );
        None
    });
    // Before the loop hears of it: it may mean to close the disk.
    drop(disk);
    proof
}

const fn is_reading(task: &Task) -> bool {
    matches!(task, Task::Warm(WarmTask { step: WarmStep::Read(_), .. }))
}

/// The disk is let go of before the loop hears of it.
#[expect(clippy::needless_pass_by_value, reason = "it is dropped here")]
fn proved(disk: Arc<Disk>) -> Result<Option<ProofToken>, ProofError> {
    disk.prove()
}

/// One that is gone refuses nothing: the loop knows.
fn ask_room(asked: &RoomAsked) -> Result<(), DiskError> {
    let Some(disk) = asked.disk.upgrade() else { return Ok(()) };
    #[cfg(test)]
    super::tests::resizing::file_system(disk.path(), asked.bytes)?;
    disk.check_room(asked.bytes)
}

/// One that can't be asked is passed over: its own I/O tells.
fn measure(cache: Option<Weak<Disk>>, volumes: Vec<(usize, u64, Weak<Disk>)>) -> Sizes {
    let size = |disk: &Weak<Disk>| disk.upgrade()?.measure().ok();
    let of = |(key, attachment, disk)| Some((key, attachment, size(&disk)?));
    let cache = cache.and_then(|disk| size(&disk).map(|size| (disk, size)));
    Sizes { cache, volumes: volumes.into_iter().filter_map(of).collect() }
}

fn grown(disk: &Weak<Disk>) -> Result<(u64, Option<ProofToken>), CommandError> {
    let disk = disk.upgrade().ok_or_else(CommandError::gone)?;
    let size = disk.measure().map_err(|error| {
        CommandError::new(CommandErrorKind::Io, format!("backend {error}"), error.hint())
    })?;
    // Without a proof a crash leaves the volume cold, no more.
    let proof = disk.prove().unwrap_or_else(|error| {
        tracing::warn!(path = %disk.path().display(), reason = %error, "no proof of a grown disk");
        None
    });
    Ok((size, proof))
}

impl Finished {
    const fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Proved { .. }
                | Self::GenerationsBumped(_)
                | Self::Entrusted(_)
                | Self::Grown { .. }
                | Self::Claimed { .. }
                | Self::Unclaimed(_)
                | Self::Discarded { .. }
        ) || matches!(self, Self::Moved { what, .. } if !what.only_asked())
    }

    const fn only_asked(&self) -> bool {
        matches!(self, Self::Moved { what, .. } if what.only_asked())
    }
}
