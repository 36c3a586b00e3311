//! Where a claim is kept: in a file, or in an object beside an RBD image.

use crate::rbd::RbdSpec;
use std::fmt;
use std::path::PathBuf;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    File(PathBuf),
    /// An object in the pool of an image, named by the image's id: it is found whatever the image is called
    /// now, and is no part of it.
    Rbd(Box<RbdSpec>),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Rbd(spec) => write!(f, "in pool {} beside image {}", spec.pool, spec.image),
        }
    }
}
