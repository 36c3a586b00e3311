//! What can be wrong with storage under test, each with a line that helps.
//!
//! Called by the target; shown by the command line.

use cinnabar_backend::disk::DiskError;
use cinnabar_backend::nbd::NbdError;
use cinnabar_backend::port::PortError;
use cinnabar_backend::spec::SpecError;
use cinnabar_text::chain;
use rustix::io::Errno;

/// Why storage can't be tested, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("{place:?}: {}", chain(error))]
    Spec { place: String, error: SpecError },
    #[error("{first} and {second} are one and the same storage")]
    Twice { first: String, second: String },
    #[error("{place} is the cache device, too")]
    IsCache { place: String },
    #[error("{unit}: {place:?} is {held}")]
    Precious { unit: String, place: String, held: Held },
    #[error("{place:?}: looking at what it holds: {error}")]
    Unreadable { place: String, error: std::io::Error },
    #[error("more than {0} files, devices and exports")]
    Many(usize),
    #[error("{place:?} has {bytes} bytes, which is less than a block")]
    Small { place: String, bytes: u64 },
    #[error("{unit}: {error}")]
    Disk { unit: String, error: DiskError },
    #[error("{}", chain(.0))]
    Cache(#[from] cinnabar_embed::Error),
    /// The cache is not used, for this reason; a benchmark of it would be one of nothing.
    #[error("the cache device is not in use: {0}")]
    Degraded(String),
    #[error("no I/O can be done: {0}")]
    Port(PortError),
    #[error("waiting for I/O: {0}")]
    Wait(Errno),
    #[error("{0}: {1}")]
    Files(&'static str, Errno),
}

/// What a place holds, as far as was looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    /// Something where names of file systems are.
    #[error("a block device that holds data (at byte {at})")]
    Device {
        /// Where the first byte is that is not 0.
        at: u64,
    },
    #[error("a file that holds data (at byte {at})")]
    File {
        /// Where the first byte is that is not 0.
        at: u64,
    },
    /// More than is looked at; zeros so far.
    #[error("a file that holds more than the {looked_at} bytes that are looked at")]
    Unknown { looked_at: u64 },
}

impl TargetError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Spec { error, .. } => error.hint(),
            Self::Twice { .. } => "name each file, device or export once",
            Self::IsCache { .. } => "the cache needs a file or device of its own, on an SSD",
            Self::Precious { .. } => {
                "check the name (for a device: lsblk -f); --overwrite if what it holds may be lost"
            }
            Self::Unreadable { .. } => "check its owner and mode, and dmesg",
            Self::Many(_) => "use fewer, larger ones",
            Self::Small { .. } => "name storage that can be overwritten: its contents are lost",
            Self::Disk { error, .. } => disk_hint(error),
            Self::Cache(error) => error.hint(),
            Self::Degraded(_) => "see the kernel log (dmesg), or name another --cache",
            Self::Port(_) => "check the limits on threads and open files",
            Self::Wait(_) => "see the kernel log (dmesg)",
            Self::Files(..) => "raise the limit on open files (ulimit -n)",
        }
    }
}

impl TargetError {
    /// Whether trying again without a change can't help: storage or cache are not what was said.
    pub fn of_usage(&self) -> bool {
        use cinnabar_embed::Error as Cache;
        match self {
            Self::Cache(error) => matches!(
                error,
                Cache::Device(_)
                    | Cache::DeviceSize { .. }
                    | Cache::Backend { .. }
                    | Cache::Disk { .. }
                    | Cache::Taken { .. }
            ),
            Self::Degraded(_) | Self::Port(_) | Self::Wait(_) | Self::Files(..) => false,
            _ => true,
        }
    }
}

fn disk_hint(error: &DiskError) -> &'static str {
    use cinnabar_backend::disk::DiskErrorKind as Kind;
    match &error.kind {
        Kind::NotFound => "check the path; a file to test on is made with: truncate -s 1G PATH",
        Kind::ReadOnly | Kind::Permission | Kind::Server(NbdError::ReadOnly) => {
            "a benchmark that writes needs storage it may write"
        }
        Kind::Empty => "give it a size: truncate -s 1G PATH",
        _ => error.hint(),
    }
}
