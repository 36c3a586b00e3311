//! What may block, one by one: what it needs, what comes of it.

use super::threads::{Class, Job, Queue};
use crate::dataplane::device::{self, OpenedDevice};
use crate::dataplane::disks::{self, OpenedVolume, Taken};
use crate::dataplane::migrate::{self, Arrival, MoveDone, MoveStep, WarmDone, WarmTask};
use crate::dataplane::resize::RoomAsked;
use crate::dataplane::returns::{self, Compared, Swept};
use crate::dataplane::watch::Sizes;
use crate::dataplane::writes::{Claims, Known, Subject};
use cinnabar_backend::disk::{Disk, DiskError, OpenOptions};
use cinnabar_backend::generations::{DeviceId, Ledger, StateError};
use cinnabar_backend::returning::{ReturnError, SnapNames};
use cinnabar_backend::{Proof, ProofError};
use cinnabar_config::messages::{
    AnswerTo, CommandError, CommandErrorKind, NewCache, StartError, StartErrorKind, VolumeConfig,
};
use cinnabar_driver::device_life::ReplacementId;
use cinnabar_driver::pending_proofs::GenerationHeld;
use cinnabar_engine::volume::ProofToken;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Instant;

const NO_THREAD: &str = "no thread can be had for it";
const NO_THREAD_HINT: &str = "raise the limit on threads (TasksMax=, pids.max, ulimit -u)";

/// Something to be done.
pub(in super::super) enum Task {
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
    /// Close a cache device that was opened too late; it may hang.
    Close(Box<OpenedDevice>),
    /// Ask how large these disks are now.
    Measure { cache: Option<Weak<Disk>>, volumes: Vec<(usize, u64, Weak<Disk>)> },
    /// Whether the file system of the cache has room for it to grow.
    AskRoom(RoomAsked),
    /// Find out how large a volume's disk is now, and prove it as it stands.
    Grow { volume: usize, attachment: u64, disk: Weak<Disk>, answer: AnswerTo<u64> },
    /// Make the claim of a volume that joins the write log durable.
    Claim { subject: Subject, claims: Claims },
    /// Have it say the number that the log has.
    Renew { subject: Subject, claims: Claims },
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
pub(in super::super) struct Opening {
    pub(in super::super) config: Box<VolumeConfig>,
    pub(in super::super) options: OpenOptions,
    pub(in super::super) taken: Vec<Taken>,
    /// Who may have a claim to it.
    pub(in super::super) claims: Known,
    /// Looks up its generation on this cache device, if there is one.
    pub(in super::super) keep: Option<(Ledger, Option<(DeviceId, PathBuf)>)>,
    /// Of the operator who adds it.
    pub(in super::super) answer: Option<AnswerTo<()>>,
    /// Of a volume that waits.
    pub(in super::super) attempt: Option<u64>,
}

/// What came of it.
pub(in super::super) enum Finished {
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
    Closed,
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

impl Job for Task {
    type Done = Finished;

    /// What guests or engines wait for goes first, and never behind what waits for another process's
    /// lock. A stop waits for nothing that is only asked.
    fn place(&self) -> (Class, Option<Queue>) {
        match self {
            Self::Prove { volume, .. } | Self::Grow { volume, .. } => {
                (Class::Urgent, Some(Queue::Volume(*volume)))
            }
            Self::Claim { subject, .. }
            | Self::Renew { subject, .. }
            | Self::Unclaim { subject, .. } => {
                (Class::Urgent, Some(Queue::Claim(subject.number())))
            }
            Self::BumpGeneration { .. } | Self::Entrust { .. } | Self::Disown { .. } => {
                (Class::State, Some(Queue::State))
            }
            Self::Discard { .. } => (Class::Urgent, None),
            Self::Move { step, .. } if step.only_asks() => (Class::Question, None),
            // An operator's command must not wait for a volume that is being locked.
            Self::Move { subject, step } => {
                (Class::Urgent, step.is_kept().then(|| Queue::Move(subject.number())))
            }
            Self::Take { volume, .. } => (Class::Usual, Some(Queue::Volume(*volume))),
            Self::Open(Opening { attempt: None, .. }) => (Class::Usual, None),
            Self::Open(Opening { attempt: Some(_), .. }) => (Class::Try, None),
            Self::OpenDevice { .. } => (Class::Device, None),
            Self::Close(_)
            | Self::Measure { .. }
            | Self::AskRoom(_)
            | Self::Warm(_)
            | Self::Compare { .. }
            | Self::Sweep { .. } => (Class::Question, None),
        }
    }

    fn give_up(self) -> Result<Finished, Self> {
        Ok(match self {
            // The engine asks again, a period later.
            Self::Prove { volume, .. } => {
                let result = Err(ProofError::Flush(Errno::TIMEDOUT));
                Finished::Proved { volume, result }
            }
            Self::Warm(WarmTask { of, step }) => Finished::Warm { task: of, what: step.give_up() },
            Self::Compare { subject, .. } => {
                Finished::Compared { subject, result: Err(ReturnError::GivenUp) }
            }
            Self::Sweep { subject, .. } => Finished::Swept { subject, swept: Swept::default() },
            // An operator has an answer.
            Self::Open(Opening { config, answer: answer @ Some(_), attempt, .. }) => {
                let (name, kind) = (config.name, StartErrorKind::Resources);
                let subject = cinnabar_config::messages::Subject::Volume(name.clone());
                let error = StartError::new(kind, subject, NO_THREAD, NO_THREAD_HINT);
                Finished::Opened { name, result: Err(error), answer, attempt }
            }
            Self::OpenDevice { id, .. } => Finished::DeviceOpened { id, result: Err(no_thread()) },
            Self::Grow { volume, attachment, answer, .. } => {
                Finished::Grown { volume, attachment, result: Err(no_thread()), answer }
            }
            waits => return Err(waits),
        })
    }

    fn run(self) -> Finished {
        match self {
            Self::Open(opening) => {
                let result = opened(&opening);
                let Opening { config, answer, attempt, .. } = opening;
                Finished::Opened { name: config.name, result, answer, attempt }
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
            Self::Renew { claims, .. } => {
                claims.renew();
                Finished::Closed
            }
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
            Self::Close(late) => {
                drop(late);
                Finished::Closed
            }
            Self::Entrust { ledger, names, device, path } => {
                Finished::Entrusted(ledger.with(|state| state.entrust(&names, device, &path)))
            }
        }
    }
}

/// Opens a volume's back end, and looks up its generation.
fn opened(opening: &Opening) -> Result<Box<OpenedVolume>, StartError> {
    let Opening { config, options, taken, claims, keep, .. } = opening;
    let mut opened = migrate::open(config, options, taken, claims)?;
    if let Some((ledger, device)) = keep {
        let device = device.as_ref().map(|(id, path)| (*id, path.as_path()));
        let names = std::slice::from_ref(&config.name);
        let kept = ledger.with(|state| state.attach(names, device));
        opened.generation = kept.map_err(|error| disks::state_error(&error))?[0];
        (opened.kept, opened.kept_on) = (true, device.map(|(id, _)| id));
    }
    Ok(Box::new(opened))
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

fn no_thread() -> CommandError {
    CommandError::new(CommandErrorKind::Limit, NO_THREAD, NO_THREAD_HINT)
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
    crate::dataplane::tests::resizing::file_system(disk.path(), asked.bytes)?;
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
