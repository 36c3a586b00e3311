//! Where a claim is kept: in a file, or in an object beside an RBD image.

use super::error::ClaimError;
use super::file;
use super::record::Claim;
use crate::rbd::{self, RbdSpec};
use std::fmt;
use std::path::PathBuf;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file.
    File(PathBuf),
    /// An object in the pool of an image, named by the image's id: it is found whatever the image is called
    /// now, and is no part of it.
    Rbd(Box<RbdSpec>),
}

impl Location {
    /// The claim there, if there is one.
    ///
    /// # Errors
    /// If there is something else, or it can't be read: then it is not known whose the volume is.
    pub fn read(&self) -> Result<Option<Claim>, ClaimError> {
        match self {
            Self::File(path) => file::read(path),
            Self::Rbd(spec) => rbd::read_claim(spec).map_err(|kind| self.error(kind)),
        }
    }

    /// Makes a claim, durably. One of the same log and incarnation is written again.
    ///
    /// # Errors
    /// [`ClaimErrorKind::Held`](super::ClaimErrorKind::Held) if there is another's, also if two hosts try
    /// at the same time: one of them wins. Otherwise if something else is in its place, or it can't be
    /// made durable; then there may be a claim.
    pub fn write(&self, claim: &Claim) -> Result<(), ClaimError> {
        match self {
            Self::File(path) => file::write(path, claim),
            Self::Rbd(spec) => rbd::write_claim(spec, claim).map_err(|kind| self.error(kind)),
        }
    }

    /// Removes a claim, durably. There may be none.
    ///
    /// # Errors
    /// If it is another's, or not to be read; it stays then.
    pub fn remove(&self, claim: &Claim) -> Result<(), ClaimError> {
        match self {
            Self::File(path) => file::remove(path, claim),
            Self::Rbd(spec) => rbd::remove_claim(spec, claim).map_err(|kind| self.error(kind)),
        }
    }

    fn error(&self, kind: super::ClaimErrorKind) -> ClaimError {
        ClaimError { location: self.clone(), kind }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Rbd(spec) => write!(f, "in pool {} beside image {}", spec.pool, spec.image),
        }
    }
}
