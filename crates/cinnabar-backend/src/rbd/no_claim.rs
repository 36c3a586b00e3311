//! Claims to images, in a build without Ceph's libraries: there can be none.

use super::spec::RbdSpec;
use crate::claim::{Claim, ClaimErrorKind};

fn absent() -> ClaimErrorKind {
    let error = std::io::Error::other("this build has no support for RBD (feature ceph)");
    ClaimErrorKind::Io { during: "connect", error }
}

/// See [`Location::read`](crate::claim::Location::read).
pub(crate) fn read_claim(_: &RbdSpec) -> Result<Option<Claim>, ClaimErrorKind> {
    Err(absent())
}

/// See [`Location::write`](crate::claim::Location::write).
pub(crate) fn write_claim(_: &RbdSpec, _: &Claim) -> Result<(), ClaimErrorKind> {
    Err(absent())
}

/// See [`Location::remove`](crate::claim::Location::remove).
pub(crate) fn remove_claim(_: &RbdSpec, _: &Claim) -> Result<(), ClaimErrorKind> {
    Err(absent())
}
