//! What is done with a claim, wherever it is kept.

use super::error::{ClaimError, ClaimErrorKind};
use super::file;
use super::location::Location;
use super::record::Claim;
use crate::rbd;

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
    /// [`ClaimErrorKind::Held`] if there is another's, also if two hosts try
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

    fn error(&self, kind: ClaimErrorKind) -> ClaimError {
        ClaimError { location: self.clone(), kind }
    }
}
