//! Of which snapshot a back end is a clone, and what it has itself.
//!
//! RBD images alone can say so (`rbd::lineage`).

#[cfg(feature = "test-clones")]
pub(crate) mod of_file;

use cinnabar_driver::CloneMap;
use std::fmt;
use std::sync::Arc;

/// A snapshot, which nobody can write. Two are the same whatever they are called.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What no other snapshot has, ever.
    id: String,
    /// What people call it.
    name: String,
}

#[cfg(any(feature = "ceph", feature = "test-clones"))]
impl Snapshot {
    pub(crate) const fn new(id: String, name: String) -> Self {
        Self { id, name }
    }
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Snapshot {}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Of a back end that is open for writing, under its lock.
#[derive(Clone, Debug)]
pub struct Lineage {
    /// The snapshot that it is a clone of, or why nothing can be read of one.
    pub parent: Result<Snapshot, String>,
    /// Which of its objects are its own, relative to that. It holds as long as the lock does.
    pub map: Arc<CloneMap>,
}

#[cfg(feature = "ceph")]
impl Lineage {
    /// Of a back end of which all is read from itself, for this reason.
    pub(crate) fn without_parent(reason: impl Into<String>) -> Self {
        let map = CloneMap::new(cinnabar_engine::units::BLOCK_BYTES, 0, []);
        Self { parent: Err(reason.into()), map: Arc::new(map.expect("an empty map is small")) }
    }
}
