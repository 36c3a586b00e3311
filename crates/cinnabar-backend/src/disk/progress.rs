//! Whether something that may take long goes on, or hangs.
//!
//! Opening and formatting count their steps; what waits for their end asks for the count. The size of a
//! new cache file may take its file system an hour, and one write to a device that is gone may never
//! end: no bound on the whole tells the two apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count of steps, shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// One more is done.
    pub(super) fn step(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// How many are done.
    pub fn steps(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
