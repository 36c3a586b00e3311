//! What the control plane and the data plane say to each other, and nothing else: settings going
//! in ([`crate::settings`]), messages while serving, answers ([`crate::status::raw`]) and
//! failures ([`StartError`]) coming back; beside them what is recorded of guests ([`recording`]) and
//! what the manager sees of them ([`samplers`]), in buffers of fixed size.
//!
//! The data plane implements:
//!
//! ```text
//! dataplane::start(StartConfig) -> Result<DataPlaneHandle, StartError>
//! ```
//!
//! `start` blocks until every volume answers (or one can't) and is called on a thread of its own.
//! It makes the waker, calls [`channel`], hands the [`Receiver`](std::sync::mpsc::Receiver) to the
//! data thread and returns the other end. The data thread takes messages with `try_recv` after each
//! wake, and ends after [`Message::Stop`] or when the receiver is disconnected.

#![forbid(unsafe_code)]

pub mod pulse;
pub mod recording;
pub mod samplers;
pub mod start_error;

pub use crate::Subject;
pub use crate::settings::*;
pub use crate::status::raw::*;
pub use start_error::*;

use pulse::Pulse;
use recording::{RECORDINGS_MAX, Recording};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Messages that may wait for the data thread; one more is refused.
pub const MESSAGES_MAX: usize = 64;

// ---- messages ----------------------------------------------------------------------------------

/// Where the answer to a message goes; dropping it unsent tells the control plane that the data
/// plane is gone.
pub type AnswerTo<T> = oneshot::Sender<Result<T, CommandError>>;

/// From the control plane to the data thread. Every message is answered exactly once; only
/// `Status` must be answered without waiting for I/O.
#[derive(Debug)]
pub enum Message {
    /// What is going on?
    Status(AnswerTo<DataStatus>),
    /// Open the backend, attach the volume, listen.
    AddVolume(Box<VolumeConfig>, AnswerTo<()>),
    /// Disconnect its clients, wait for its requests, detach and seal it.
    RemoveVolume {
        /// Which.
        name: String,
        /// Also with clients connected; otherwise [`CommandErrorKind::Busy`].
        force: bool,
        /// Give up its writes that the back end does not have yet.
        discard_dirty: bool,
        answer: AnswerTo<()>,
    },
    /// Change a volume's settings.
    SetVolume {
        /// Which.
        name: String,
        change: VolumeChange,
        answer: AnswerTo<()>,
    },
    /// Shares of all these volumes, in blocks, take effect together; `None`: it has none of its own.
    /// Volumes that are not there are left out.
    AdoptTargets {
        /// By name.
        targets: Vec<(String, Option<u64>)>,
        answer: AnswerTo<()>,
    },
    /// Whether blocks may go to flash from now on.
    AdoptAdmission {
        /// They may.
        admits: bool,
        answer: AnswerTo<()>,
    },
    /// The operator holds a volume's mode no longer: plans may change it again, where they may at all.
    FreeMode {
        /// Which.
        name: String,
        /// Answer: whether he had set it.
        answer: AnswerTo<bool>,
    },
    /// Bring all acknowledged writes of a volume to its back end, durably.
    FlushVolume {
        /// Which.
        name: String,
        answer: AnswerTo<()>,
    },
    /// Serve all of a backend that has grown; nothing cached is dropped. Answered with the size.
    ResizeVolume {
        /// Which.
        name: String,
        answer: AnswerTo<u64>,
    },
    /// Drop what is cached of a volume, durably: its backend was written past the cache.
    Invalidate {
        /// Which; without a range it need not be attached.
        name: String,
        /// Which bytes; `None`: all.
        range: Option<ByteRange>,
        answer: AnswerTo<()>,
    },
    /// Go on with another cache device. Volumes pass through meanwhile.
    ReplaceCache {
        new: NewCache,
        /// Answer, once it is in use.
        answer: AnswerTo<()>,
    },
    /// Another size of the cache, as far as its device was made for it.
    ResizeCache {
        size_bytes: u64,
        /// Answer, once that has begun; the status has the rest.
        answer: AnswerTo<()>,
    },
    /// Go on without a cache device; the one in use is closed and unlocked.
    AbandonCache(AnswerTo<()>),
    /// Record what the guests of these volumes ask for, from now on.
    Record {
        /// Which; `None`: all that are served now.
        names: Option<Vec<String>>,
        answer: AnswerTo<Recording>,
    },
    /// End this recording; what it holds already is still to be read.
    EndRecording {
        /// Which.
        id: u64,
        answer: AnswerTo<()>,
    },
    /// Which daemon this is: a number that each start draws.
    Identity(AnswerTo<String>),
    /// The other host of a volume that may move asks for it, and tells the highest epoch it knows.
    Give {
        /// Which.
        name: String,
        epoch: u64,
        /// Which daemon asks ([`Message::Identity`]); daemons of earlier releases do not say.
        from: Option<String>,
        /// Answer, once this host does not own the volume.
        answer: AnswerTo<Given>,
    },
    /// The other host has taken a volume, and asks what is kept of it in the cache here: a page of its
    /// blocks, hottest first.
    Hot {
        /// Which.
        name: String,
        /// The epoch that the hand-over was answered with.
        epoch: u64,
        /// Where to go on, as the last page says; 0: the beginning.
        after: u64,
        /// Blocks at most.
        limit: usize,
        /// Answer; an error if nothing is kept of that epoch.
        answer: AnswerTo<HotPage>,
    },
    /// It wants these blocks.
    HotBlocks {
        /// Which volume.
        name: String,
        /// The epoch that the hand-over was answered with.
        epoch: u64,
        blocks: Vec<u64>,
        /// Answer: those of them that are cached, in the daemons' own form.
        answer: AnswerTo<Vec<u8>>,
    },
    /// A volume that is served may move to the other host from now on.
    MigrateOut {
        /// Which.
        name: String,
        /// The other daemon.
        peer: Peer,
        /// Answer, once that is durable.
        answer: AnswerTo<()>,
    },
    /// A volume comes from the other host.
    MigrateIn {
        /// Which: one that may move, or with a peer one that waits for its back end or address.
        name: String,
        /// The other daemon; `None`: as it is.
        peer: Option<Peer>,
        /// `Some`: take it now; `true`: the operator vouches that the other host does not serve it.
        take: Option<bool>,
        /// Answer, once it stands by, or this host is the owner.
        answer: AnswerTo<()>,
    },
    /// A volume that this host owns may not move any more.
    MigrateCancel {
        /// Which.
        name: String,
        /// Answer, once that is durable.
        answer: AnswerTo<()>,
    },
    /// Accept nothing new, finish what is under way, detach, checkpoint, end. What is not finished
    /// after `deadline` is cut off and reported.
    Stop {
        /// Time for all of it.
        deadline: Duration,
        answer: AnswerTo<StopReport>,
    },
}

/// What the other host is told that has asked for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// This host does not own the volume, and will not before it has asked.
    pub free: bool,
    /// The highest epoch known here.
    pub epoch: u64,
    /// If it is free: the last one in which this host was the owner.
    pub owned: u64,
    /// Why it stays here, or an empty line.
    pub reason: String,
}

/// Blocks of a volume that was handed over, in the cache of the host that it was handed over from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotPage {
    /// Numbers of blocks of 4 KiB.
    pub blocks: Vec<u64>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<u64>,
    /// The back end's change proof as it was taken behind the last write of that host; `None`: it proves
    /// nothing.
    pub proof: Option<[u8; 64]>,
    /// Size of the volume then.
    pub size_bytes: u64,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first.
    pub offset: u64,
    /// How many, at least one.
    pub len: u64,
}

/// A cache device that is to take the place of the one in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCache {
    /// File or block device, absolute.
    pub device: PathBuf,
    /// Size in bytes: a file is created with it. `None`: the device's own size.
    pub size_bytes: Option<u64>,
    /// Format it even if it holds something, ours or not.
    pub format: bool,
}

/// How a stop went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// The device was marked clean: the next start is warm.
    pub clean: bool,
    /// Blocks kept for the next start.
    pub kept_blocks: u64,
    /// Guest requests cut off at the deadline.
    pub cut_off: u64,
}

/// Why a message could not be obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// What kind of problem.
    pub kind: CommandErrorKind,
    /// One line, lower case, without a full stop.
    pub message: String,
    /// What would help, one line; may be empty.
    pub hint: String,
}

/// Kinds of [`CommandError`], each with a status code in the control API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandErrorKind {
    /// No such volume, or nothing is known of it (404).
    NotFound,
    /// There is such a volume already (409).
    Exists,
    /// Not now: clients connected, in use, another change under way (409).
    Busy,
    /// The settings make no sense, or the backend or address can't be used (422).
    Invalid,
    /// A fixed limit was reached (429).
    Limit,
    /// The daemon is stopping (503).
    Stopping,
    /// A device failed (500).
    Io,
}

// ---- the handle --------------------------------------------------------------------------------

/// What the start of a data plane returns: one that runs.
#[derive(Debug)]
pub struct DataPlaneHandle {
    /// Sends messages.
    pub commands: Commands,
    /// Resolves when the data thread ends: after a stop with `Ok`, otherwise with the reason why
    /// it can't go on. Dropped unsent if the thread panicked.
    pub ended: oneshot::Receiver<Result<(), StartError>>,
    /// What data threads tell the manager, if there is to be one.
    pub streams: Option<samplers::SampleStreams>,
    /// All its data threads, to be asked whether they turn.
    pub pulses: Vec<Pulse>,
}

/// Wakes the data thread out of its wait for I/O, from any thread (an eventfd, in practice).
pub trait Waker: Send + Sync + fmt::Debug {
    /// Makes the data thread look at its messages soon. Never blocks.
    fn wake(&self);
}

/// The sending end for messages.
#[derive(Clone, Debug)]
pub struct Commands {
    queue: mpsc::SyncSender<Message>,
    waker: Arc<dyn Waker>,
}

/// A bounded queue of messages and its sending end.
pub fn channel(waker: Arc<dyn Waker>) -> (Commands, mpsc::Receiver<Message>) {
    let (queue, receiver) = mpsc::sync_channel(MESSAGES_MAX);
    (Commands { queue, waker }, receiver)
}

impl Commands {
    /// Queues a message and wakes the data thread. Never blocks.
    ///
    /// # Errors
    /// [`CommandErrorKind::Limit`] if too many are waiting, [`CommandErrorKind::Stopping`] if the
    /// data thread is gone.
    pub fn send(&self, message: Message) -> Result<(), CommandError> {
        self.queue.try_send(message).map_err(|error| match error {
            mpsc::TrySendError::Full(_) => CommandError::new(
                CommandErrorKind::Limit,
                "too many commands are waiting",
                "try again in a moment",
            ),
            mpsc::TrySendError::Disconnected(_) => CommandError::gone(),
        })?;
        self.waker.wake();
        Ok(())
    }
}

impl CommandError {
    /// An error of `kind`; `hint` may be empty.
    pub fn new(
        kind: CommandErrorKind,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { kind, message: message.into(), hint: hint.into() }
    }

    /// There is no place for another recording.
    pub fn too_many_recordings() -> Self {
        Self::new(
            CommandErrorKind::Limit,
            format!("{RECORDINGS_MAX} recordings are under way, which is the most at a time"),
            "end one of them, or record several volumes in one",
        )
    }

    /// The data plane has ended or is about to.
    pub fn gone() -> Self {
        Self::new(CommandErrorKind::Stopping, "the daemon is stopping", "")
    }
}
