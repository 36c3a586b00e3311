//! What the control plane and the data plane say to each other, and nothing else: settings going
//! in, messages while serving, answers and failures coming back.
//!
//! Called by both. The data plane implements:
//!
//! ```text
//! dataplane::start(StartConfig) -> Result<DataPlaneHandle, StartError>
//! ```
//!
//! `start` blocks until every volume answers (or one can't) and is called on a thread of its own.
//! It makes the waker, calls [`channel`], hands the [`Receiver`](std::sync::mpsc::Receiver) to the
//! data thread and returns the other end. The data thread takes messages with `try_recv` after each
//! wake, and ends after [`Message::Stop`] or when the receiver is disconnected.

use super::latency::Latencies;
use cinnabar_engine::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::volume::Warmth;
/// Where an NBD server listens; each volume has an address of its own.
pub use cinnabar_frontend::nbd::Address as NbdAddress;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Messages that may wait for the data thread; one more is refused.
pub const MESSAGES_MAX: usize = 64;

// ---- settings ----------------------------------------------------------------------------------

/// Everything the data plane needs to start. Paths are absolute.
#[derive(Clone, Debug)]
pub struct StartConfig {
    /// The cache device.
    pub cache: CacheConfig,
    /// The volumes served from the start, names unique.
    pub volumes: Vec<VolumeConfig>,
    /// Longest wait for the locks of the cache device and of the volumes' files, which a dead
    /// daemon's last writes may still hold.
    pub lock_wait_max: Duration,
    /// Set when the operator wants to stop before the start is over; looked at while waiting.
    pub cancel: Arc<AtomicBool>,
}

/// The cache device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// File or block device.
    pub device: PathBuf,
    /// Size in bytes: a file is created with it. `None`: the device's own size.
    pub size_bytes: Option<u64>,
    /// How I/O is done, for the cache and for file and device back ends.
    pub io: IoMode,
    /// Format it even if it holds something that is not ours.
    pub force: bool,
    /// Which blocks earn flash.
    pub eviction: EvictionMode,
    /// RAM for probation in bytes; `None`: min(1 % of the capacity, 256 MiB).
    pub probation_bytes: Option<u64>,
}

/// How I/O on files and devices is done.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum IoMode {
    /// `io_uring` and `O_DIRECT` where they work, else the slower way with a warning.
    #[default]
    Auto,
    /// `io_uring` or an error.
    Uring,
    /// Blocking calls on threads.
    Threads,
}

/// Which blocks earn flash; see [`cinnabar_engine::Eviction`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionMode {
    /// Second touch, ghost, carried blocks.
    #[default]
    Probation,
    /// Plain CLOCK.
    Clock,
}

/// One volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeConfig {
    /// Its name, also the name of its NBD export; 1 to 64 bytes.
    pub name: String,
    /// Where it lives: what [`cinnabar_backend::BackendSpec`] parses, with an absolute path.
    pub backend: String,
    /// What its requests do with the cache.
    pub mode: VolumeMode,
    /// What it keeps whatever others do.
    pub share_min: Share,
    /// What it may hold at most.
    pub share_max: Share,
    /// Where NBD clients find it.
    pub nbd: NbdAddress,
    /// Refuse writes; many clients may attach.
    pub read_only: bool,
    /// A writable volume may have more than one client.
    pub shared: bool,
    /// The operator's word that nobody else writes the backend.
    pub exclusive: bool,
    /// Sequential runs of at least this many bytes bypass the cache; 0 = never.
    pub bypass_sequential_bytes: u64,
    /// Single requests of at least this many bytes bypass the cache; 0 = never.
    pub bypass_large_bytes: u64,
}

/// What a volume's requests do with the cache; see [`cinnabar_engine::plan::Mode`].
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeMode {
    /// Reads and writes are cached; a write is acknowledged when the backend has it.
    #[default]
    WriteThrough,
    /// Reads are cached, writes invalidate.
    WriteAround,
    /// Nothing is cached; writes still invalidate.
    PassThrough,
}

/// A part of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// Bytes.
    Bytes(u64),
    /// Percent of the capacity, 0 to 100.
    Percent(f64),
}

/// New settings of a volume that is served; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VolumeChange {
    /// Its mode.
    pub mode: Option<VolumeMode>,
    /// What it keeps whatever others do.
    pub share_min: Option<Share>,
    /// What it may hold at most.
    pub share_max: Option<Share>,
}

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
        /// Answer.
        answer: AnswerTo<()>,
    },
    /// Change a volume's settings.
    SetVolume {
        /// Which.
        name: String,
        /// What changes.
        change: VolumeChange,
        /// Answer.
        answer: AnswerTo<()>,
    },
    /// Accept nothing new, finish what is under way, detach, checkpoint, end. What is not finished
    /// after `deadline` is cut off and reported.
    Stop {
        /// Time for all of it.
        deadline: Duration,
        /// Answer.
        answer: AnswerTo<StopReport>,
    },
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
    /// No such volume (404).
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

// ---- status ------------------------------------------------------------------------------------

/// Answer to [`Message::Status`], raw; the control plane makes JSON, tables and metrics of it.
#[derive(Clone, Debug)]
pub struct DataStatus {
    /// The cache.
    pub cache: CacheStatus,
    /// The volumes in the order they were added.
    pub volumes: Vec<VolumeStatus>,
}

/// The cache, raw.
#[derive(Clone, Debug)]
pub struct CacheStatus {
    /// How it is.
    pub state: State,
    /// Why it is not [`State::Serving`], or an empty line.
    pub reason: String,
    /// How I/O is really done: `uring` or `threads`, and whether directly; e.g. `uring, direct`.
    pub io: String,
    /// The engine's counters.
    pub counters: CacheCounters,
    /// The engine's RAM.
    pub ram: RamBytes,
    /// RAM of the data plane's own buffers and queues, in bytes.
    pub edge_ram_bytes: u64,
}

/// A volume, raw.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// Its settings as they are now.
    pub config: VolumeConfig,
    /// How it is.
    pub state: State,
    /// Why it is not [`State::Serving`], or an empty line.
    pub reason: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// NBD connections now.
    pub connections: u32,
    /// What became of the blocks of an earlier run.
    pub warmth: Warmth,
    /// The engine's counters.
    pub counters: VolumeCounters,
    /// Latencies of guest requests.
    pub latencies: Latencies,
}

/// How a volume or the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Being opened or attached.
    Starting,
    /// All is well.
    Serving,
    /// Serves, but not as configured; the reason says how.
    Degraded,
    /// Being detached.
    Stopping,
    /// Does not serve; the reason says why.
    Failed,
}

// ---- the handle --------------------------------------------------------------------------------

/// What [`start`](super::dataplane::start) returns: a running data plane.
#[derive(Debug)]
pub struct DataPlaneHandle {
    /// Sends messages.
    pub commands: Commands,
    /// Resolves when the data thread ends: after a stop with `Ok`, otherwise with the reason why
    /// it can't go on. Dropped unsent if the thread panicked.
    pub ended: oneshot::Receiver<Result<(), StartError>>,
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

    /// The data plane has ended or is about to.
    pub fn gone() -> Self {
        Self::new(CommandErrorKind::Stopping, "the daemon is stopping", "")
    }
}

// ---- failures to start -------------------------------------------------------------------------

/// Why the data plane could not start, or could not go on: one clear line and what would help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// What kind of problem.
    pub kind: StartErrorKind,
    /// Which part of the configuration it belongs to; the CLI adds file and line.
    pub subject: Subject,
    /// One line, lower case, without a full stop, with the path or address it is about.
    pub message: String,
    /// What would help, one line.
    pub hint: String,
}

/// The part of the configuration an error belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The daemon as a whole.
    Daemon,
    /// `[cache]`.
    Cache,
    /// The `[[volume]]` of this name.
    Volume(String),
}

/// Kinds of [`StartError`]. What the operator has to change (settings, a file, another process in
/// the way) is a matter of configuration and ends with exit code 2, on which a supervisor does not
/// restart; what may go away by itself ends with 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartErrorKind {
    /// The cache device holds something that is not ours, and `force` is not set (2).
    ForeignData,
    /// The cache device is too small, too large, or smaller than `size` (2).
    CacheSize,
    /// The cache device is missing and can't be created, or may not be opened (2).
    CacheAccess,
    /// Another process holds the cache device after the bounded wait (2).
    CacheInUse,
    /// The cache device is ours but of an unknown version (2).
    CacheFormat,
    /// The backend does not exist or may not be opened (2).
    BackendAccess,
    /// The backend is read-only and the volume is not (2).
    BackendReadOnly,
    /// The backend is empty, no multiple of 512 bytes, or too large (2).
    BackendSize,
    /// Another process, or another volume, holds the backend after the bounded wait (2).
    BackendInUse,
    /// The NBD address is taken (2).
    AddressInUse,
    /// The NBD address can't be bound for another reason (2).
    AddressInvalid,
    /// Any other setting that can't be used, e.g. minimums beyond 80 % or `io = "uring"` where
    /// it is refused (2).
    Settings,
    /// [`StartConfig::cancel`] was set (0).
    Cancelled,
    /// Memory, descriptors, threads (1).
    Resources,
    /// An I/O failed (1).
    Io,
}

impl StartErrorKind {
    /// The process's exit code.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Cancelled => 0,
            Self::Resources | Self::Io => 1,
            _ => 2,
        }
    }
}

impl StartError {
    /// An error of `kind` about `subject`.
    pub fn new(
        kind: StartErrorKind,
        subject: Subject,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { kind, subject, message: message.into(), hint: hint.into() }
    }
}

// ---- conversions -------------------------------------------------------------------------------

impl Share {
    /// Blocks of 4 KiB out of `capacity_blocks`, at most all of them.
    pub fn blocks(self, capacity_blocks: u64) -> u64 {
        let blocks = match self {
            Self::Bytes(bytes) => bytes / BLOCK_BYTES,
            #[expect(clippy::cast_sign_loss, reason = "0 to 100 percent by construction")]
            Self::Percent(percent) => (capacity_blocks as f64 * percent / 100.0).round() as u64,
        };
        blocks.min(capacity_blocks)
    }
}

impl From<VolumeMode> for cinnabar_engine::plan::Mode {
    fn from(mode: VolumeMode) -> Self {
        match mode {
            VolumeMode::WriteThrough => Self::WriteThrough,
            VolumeMode::WriteAround => Self::WriteAround,
            VolumeMode::PassThrough => Self::PassThrough,
        }
    }
}

impl From<EvictionMode> for cinnabar_engine::Eviction {
    fn from(mode: EvictionMode) -> Self {
        match mode {
            EvictionMode::Probation => Self::Probation,
            EvictionMode::Clock => Self::Clock,
        }
    }
}
