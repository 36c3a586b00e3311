//! Why a claim can't be made, read or removed, each with a line that helps.

use super::location::Location;
use super::record::Claim;
use crate::rbd::RbdError;
use std::path::Path;

/// Why a claim can't be made, read or removed.
#[derive(Debug, thiserror::Error)]
#[error("claim {location}: {kind}")]
pub struct ClaimError {
    /// Where the claim is.
    pub location: Location,
    /// Why.
    pub kind: ClaimErrorKind,
}

/// See [`ClaimError`].
#[derive(Debug, thiserror::Error)]
pub enum ClaimErrorKind {
    /// Another log has writes of the volume, or this log has some of an earlier incarnation of it.
    #[error(
        "writes of volume {:?} may be in write log {:?} of host {:?} only, since {}",
        .0.volume, .0.device, .0.host, .0.since.escape_debug()
    )]
    Held(Box<Claim>),
    /// It is not what was written: whose it is can't be told.
    #[error("it is damaged: {}", .0.escape_debug())]
    Damaged(String),
    /// Made by a later release.
    #[error("its version {0} is not known to this release")]
    Version(u32),
    /// Not a file.
    #[error("it is not a regular file")]
    WrongKind,
    /// The file beside it has so many names (hard links): by another one the claim would not be found.
    #[error(
        "the file beside it has {0} names (hard links), and would have a claim by one of them only"
    )]
    Names(u64),
    /// What is to be written would not be read again.
    #[error("it can't be written as text: {}", .0.escape_debug())]
    Unfit(String),
    /// The kernel refused.
    #[error("{during}: {error}")]
    Io {
        /// What was tried.
        during: &'static str,
        /// What came of it.
        error: std::io::Error,
    },
}

impl ClaimError {
    pub(super) fn new(path: &Path, kind: ClaimErrorKind) -> Self {
        Self { location: Location::File(path.to_owned()), kind }
    }

    pub(super) fn io(path: &Path, during: &'static str, error: impl Into<std::io::Error>) -> Self {
        Self::new(path, ClaimErrorKind::Io { during, error: error.into() })
    }

    /// Whether the storage did not answer in time, which it may do later.
    pub fn is_silence(&self) -> bool {
        let ClaimErrorKind::Io { error, .. } = &self.kind else { return false };
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<RbdError>());
        let silent = matches!(inner, Some(RbdError::NoMonitor(_) | RbdError::Silent(_)));
        silent || error.kind() == std::io::ErrorKind::TimedOut
    }

    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match &self.kind {
            ClaimErrorKind::Held(_) => {
                "start the daemon on that host, or run there: cinnabar cache writeback LOG --volume NAME \
                 --to BACKEND; remove the claim only if that log is lost for good"
            }
            ClaimErrorKind::Damaged(_) | ClaimErrorKind::WrongKind => {
                "look at it; remove it only if no write log of any host has writes of this volume"
            }
            ClaimErrorKind::Names(_) => {
                "remove the other links, or set claim to one path for every host that serves the file"
            }
            ClaimErrorKind::Version(_) => "use the release that made it",
            ClaimErrorKind::Unfit(_) => {
                "give the volume and the write log's file names of plain text"
            }
            ClaimErrorKind::Io { .. } if matches!(self.location, Location::Rbd(_)) => {
                "the Ceph user must be allowed to read and write the object cinnabar_claim.ID beside the image \
                 (ID: rbd info), and the cluster must answer"
            }
            ClaimErrorKind::Io { .. } => {
                "write-back mode needs a folder beside the back end that the daemon may write"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn storage_that_is_silent_may_answer_later() {
        let io = |error| ClaimError::io(Path::new("/c"), "connect", error);
        assert!(io(Error::other(RbdError::NoMonitor(10))).is_silence());
        assert!(io(Error::from(ErrorKind::TimedOut)).is_silence());
        assert!(!io(Error::other(RbdError::NoPool("p".into()))).is_silence());
        assert!(!io(Error::from(ErrorKind::PermissionDenied)).is_silence());
        assert!(!ClaimError::new(Path::new("/c"), ClaimErrorKind::WrongKind).is_silence());
    }
}
