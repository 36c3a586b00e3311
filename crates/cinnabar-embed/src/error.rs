//! What can go wrong, each with a line that helps.

use cinnabar_backend::DiskError;
use cinnabar_backend::generations::StateError;
use cinnabar_backend::port::PortError;
use cinnabar_backend::spec::SpecError;
use cinnabar_engine::Failure;
use cinnabar_engine::limits::DATA_BYTES_MAX;
use cinnabar_engine::metadata::superblock::GeometryError;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cache device can't be used.
    #[error("cache device {0}")]
    Device(DiskError),
    /// The cache device is too small or too large.
    #[error("cache device {}: {error}", path.display())]
    DeviceSize {
        /// Which.
        path: PathBuf,
        /// Why.
        error: GeometryError,
    },
    /// The cache device opened, but the cache on it did not.
    #[error("cache device {}: opening the cache failed: {failure}", path.display())]
    DeviceFailed {
        /// Which.
        path: PathBuf,
        /// Why.
        failure: Failure,
    },
    /// The new cache device is in use here already.
    #[error("cache device {}: it is {what}", path.display())]
    DeviceTaken {
        /// Which.
        path: PathBuf,
        /// What else it is.
        what: String,
    },
    /// The new cache device holds a cache already.
    #[error("cache device {}: it holds a Cinnabar cache", .0.display())]
    HoldsCache(PathBuf),
    /// What must be known outside of the device can't be kept.
    #[error("{0}")]
    State(StateError),
    /// Neither `io_uring` nor threads.
    #[error("no I/O: {0}")]
    Port(PortError),
    /// No random numbers for an identity.
    #[error("{0}")]
    Random(std::io::Error),
    /// The text is not a backend.
    #[error("volume {volume:?}: backend {text:?}: {error}")]
    Backend {
        /// Of which volume.
        volume: String,
        /// The text.
        text: String,
        /// Why.
        error: SpecError,
    },
    /// The volume's file or device can't be used.
    #[error("volume {volume:?}: {error}")]
    Disk {
        /// Which volume.
        volume: String,
        /// Why.
        error: DiskError,
    },
    /// It is attached already, or it is the cache device itself.
    #[error("volume {volume:?}: {backend}: it is {what}")]
    Taken {
        /// Which volume.
        volume: String,
        /// Where it lives.
        backend: String,
        /// What else it is.
        what: String,
    },
    /// A volume of this name is attached.
    #[error("volume {0:?} is attached already")]
    Exists(String),
    /// The engine refused the volume.
    #[error("volume {volume:?}: attaching it failed: {failure}")]
    Attach {
        /// Which volume.
        volume: String,
        /// Why.
        failure: Failure,
    },
    /// The volume's backend has become smaller.
    #[error("volume {volume:?}: its backend has {size} bytes, fewer than the {served} served")]
    Shrunk {
        /// Which volume.
        volume: String,
        /// Size of the backend in bytes.
        size: u64,
        /// Size of the volume in bytes, which stays.
        served: u64,
    },
    /// The volume can't grow while it is attached: its last block is not a whole one.
    #[error("volume {volume:?}: its {served} bytes don't end with a whole block")]
    OddEnd {
        /// Which volume.
        volume: String,
        /// Its size in bytes.
        served: u64,
    },
    /// The kernel has no room for another file.
    #[error("no place for another file: {0}")]
    Files(Errno),
    /// The volume was detached.
    #[error("no such volume: it was detached")]
    NoVolume,
    /// Not whole sectors.
    #[error("{len} bytes at {offset} are not whole sectors")]
    Misaligned {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Past the end of the volume.
    #[error("{len} bytes at {offset} are not inside a volume of {size} bytes")]
    PastEnd {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Size of the volume in bytes.
        size: u64,
    },
    /// More than one request may have.
    #[error("a request of {0} bytes is longer than {DATA_BYTES_MAX}")]
    TooLong(u64),
    /// As many requests are under way as can be.
    #[error("{max} requests are under way, as many as can be", max = crate::QUEUE_MAX)]
    QueueFull,
    /// It was tried and failed.
    #[error("{what}: {failure}")]
    Failed {
        /// What was to be done.
        what: &'static str,
        /// Why it was not.
        failure: Failure,
    },
    /// The kernel does not let us wait any more; the cache can't be used further.
    #[error("waiting for I/O: {0}")]
    Wait(Errno),
}

impl Error {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Device(error) | Self::Disk { error, .. } => disk_hint(error),
            Self::DeviceSize { .. } => "choose a size from 20 MiB to just under 1 TiB",
            Self::DeviceFailed { .. } => "see the kernel log (dmesg) for the device's errors",
            Self::DeviceTaken { .. } => "name another one; `abandon` lets go of the one in use",
            Self::HoldsCache(_) => "set `format` to format it; what it caches now is lost",
            Self::State(StateError::Folder(_)) => "each cache needs a state_dir of its own",
            Self::State(StateError::Io { .. }) => {
                "name a state_dir on this host that this program may write"
            }
            Self::Port(_) => "check the limits on threads and open files",
            Self::Random(_) => "/dev/urandom must be readable",
            Self::Backend { error, .. } => error.hint(),
            Self::Taken { .. } => "attach each file or export once",
            Self::Exists(_) => "detach it first, or choose another name",
            Self::Attach { .. } => "a name has 1 to 64 bytes; a cache has at most 4095 volumes",
            Self::Files(_) => "raise the limit on open files",
            Self::NoVolume => "attach it again",
            Self::Misaligned { .. } => "offset and length are multiples of 512 bytes",
            Self::Shrunk { .. } => {
                "make it as large again as it was, or detach the volume and attach it"
            }
            Self::OddEnd { .. } => "detach the volume and attach it; its blocks are dropped",
            Self::PastEnd { .. } => {
                "a volume keeps its size until `resize` finds that it has grown"
            }
            Self::TooLong(_) => "split it; read and write do",
            Self::QueueFull => "poll before submitting more",
            Self::Failed { .. } | Self::Wait(_) => "see the kernel log (dmesg)",
        }
    }
}

/// The daemon's hints speak of its configuration; where they do, ours speak of the options.
fn disk_hint(error: &DiskError) -> &'static str {
    use cinnabar_backend::disk::DiskErrorKind as Kind;
    match &error.kind {
        Kind::NotFound => "check the path",
        Kind::ReadOnly => "set read_only for a file that nobody writes",
        Kind::NoSize => "set size_bytes",
        Kind::InUse { .. } | Kind::Cancelled => {
            "stop the process that uses it; a process that was killed lets go when its last write has landed"
        }
        Kind::Foreign(_) => "check the path; `format` formats it and loses that data",
        Kind::Short { .. } | Kind::Superblock(_) => {
            "set `format` to format it again; only cached data is lost"
        }
        _ => error.hint(),
    }
}
