//! Why the data plane could not start, or could not go on.
//!
//! Made by the data plane; the command line adds file and line, and ends with its exit code.

use crate::Subject;
use cinnabar_backend::disk::Identity;

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
    /// What the backend is that could not be opened, where that is known.
    pub backend: Option<Identity>,
    /// It is the volume's NBD address that was refused: no export can be reached there for now.
    pub nbd_refused: bool,
}

/// Kinds of [`StartError`]. Those of back ends and addresses end a `volume add`; at the start the volume waits
/// ([`may_pass`](StartErrorKind::may_pass)). What the operator has to change (settings, a file, another process in
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
    /// Another process holds the backend after the bounded wait (2).
    BackendInUse,
    /// A write log may hold writes that the backend lacks, and it is not this daemon's (2).
    BackendClaimed,
    /// Another volume, or the cache, has this backend (2).
    BackendTwice,
    /// Something else is at the address of a volume: a process that listens, or a file (2).
    AddressInUse,
    /// The address of a volume can't be bound for now: its folder or the host's address is not there, its folder
    /// may not be used, or the process is out of what it takes (2).
    AddressAway,
    /// The address of a volume can't be bound as it is configured, such as a port that the process may not
    /// use (2).
    AddressInvalid,
    /// Any other setting that can't be used, e.g. minimums beyond 80 % or `io = "uring"` where
    /// it is refused (2).
    Settings,
    /// [`StartConfig::cancel`](crate::settings::StartConfig::cancel) was set (0).
    Cancelled,
    /// Memory, descriptors, threads (1).
    Resources,
    /// An I/O failed (1).
    Io,
}

impl StartErrorKind {
    /// Whether it may pass without a change of the configuration: a volume that fails in this way
    /// waits, and others are served meanwhile.
    pub const fn may_pass(self) -> bool {
        matches!(
            self,
            Self::BackendAccess
                | Self::BackendReadOnly
                | Self::BackendSize
                | Self::BackendInUse
                | Self::BackendClaimed
                | Self::AddressInUse
                | Self::AddressAway
                | Self::Io
        )
    }

    /// Whether it may pass and is about the address of a volume: what it waits for.
    pub const fn is_of_address(self) -> bool {
        matches!(self, Self::AddressInUse | Self::AddressAway)
    }

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
        let (message, hint) = (message.into(), hint.into());
        Self { kind, subject, message, hint, backend: None, nbd_refused: false }
    }
}
