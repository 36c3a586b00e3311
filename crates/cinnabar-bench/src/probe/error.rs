//! Why a device can't be probed, each with a line that helps.

use super::plan::Op;
use cinnabar_backend::disk::{DiskError, DiskErrorKind};
use cinnabar_backend::port::PortError;
use cinnabar_backend::spec::SpecError;
use cinnabar_text::show_size;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a device can't be probed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// What names it makes no sense.
    #[error("{text:?}: {error}{}", source_of(error))]
    Spec {
        /// What was written.
        text: String,
        /// Why.
        error: SpecError,
    },
    /// It can't be opened.
    #[error("{0}")]
    Disk(DiskError),
    /// No port to do I/O with.
    #[error("no way to do I/O: {0}")]
    Port(#[from] PortError),
    /// It can't be registered or waited for.
    #[error("waiting for I/O: {0}")]
    Wait(Errno),
    /// Too small for the plan.
    #[error("it has {}, which is less than the largest operation, {}", show_size(*has), show_size(*needs))]
    Small {
        /// Bytes there are.
        has: u64,
        /// Bytes of the largest operation.
        needs: u64,
    },
    /// Too small to write so much at a time.
    #[error(
        "it has {}, too little for {depth} operations of {} at a time that don't overlap",
        show_size(*has), show_size(*size)
    )]
    Narrow {
        /// Bytes there are.
        has: u64,
        /// Bytes of an operation.
        size: u64,
        /// Operations at a time.
        depth: u32,
    },
    /// Writing was not allowed.
    #[error("writes would overwrite what {0} holds")]
    Precious(String),
    /// A file was to be made where something is.
    #[error("{0:?} is there already")]
    Exists(PathBuf),
    /// A size is of no use here.
    #[error("only a file can be made, not {0}")]
    NotAFile(String),
    /// The file can't be made.
    #[error("can't make {path:?}: {error}")]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// An operation failed.
    #[error("a {} of {} at byte {offset} failed: {error}", op.name(), show_size(*size))]
    Io {
        /// Which.
        op: Op,
        /// Bytes.
        size: u64,
        /// First byte.
        offset: u64,
        /// Why.
        error: String,
    },
    /// Nothing comes back.
    #[error("nothing came back for {0} s")]
    Stalled(u64),
}

impl ProbeError {
    /// Whether the user can mend it by saying something else: nothing was measured.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Port(_) | Self::Wait(_) | Self::Io { .. } | Self::Stalled(_))
    }

    /// A line that helps.
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::Spec { error, .. } => error.hint(),
            Self::Disk(error) => match error.kind {
                DiskErrorKind::NotFound => {
                    "check the path; with --size 1GiB a file is made there for the probe"
                }
                DiskErrorKind::ReadOnly => "without --write it is only read",
                _ => error.hint(),
            },
            Self::Port(_) | Self::Wait(_) => "see the kernel log (dmesg)",
            Self::Small { .. } => "name smaller ones: --sizes 4KiB,16KiB",
            Self::Narrow { .. } => "name smaller --sizes or --depths",
            Self::Precious(_) => {
                "--destroy-contents says that this is meant; without --write it is only read"
            }
            Self::Exists(_) => "leave --size away to probe what is there, or name another path",
            Self::NotAFile(_) => "leave --size away, or name the path of a file",
            Self::Make { .. } => "check the folder, its owner and how much room it has",
            Self::Io { .. } => "see the kernel log (dmesg), or the log of the server",
            Self::Stalled(_) => "see whether the device or its server still works",
        };
        hint.to_owned()
    }
}

fn source_of(error: &SpecError) -> String {
    std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default()
}
