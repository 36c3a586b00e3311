//! Whether something that may take long goes on, or hangs.
//!
//! Opening and formatting count their steps; what waits for their end asks for the count. The size of a
//! new cache file may take its file system an hour, and one write to a device that is gone may never
//! end: no bound on the whole tells the two apart.
//!
//! What waits may give it up. Whatever was under way in the kernel then may still be done; no further
//! step changes the device.

use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// A count of steps, and whether they are still wanted; shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    steps: AtomicU64,
    given_up: AtomicBool,
}

impl Progress {
    /// One more is done.
    pub(super) fn step(&self) {
        self.0.steps.fetch_add(1, Relaxed);
    }

    /// How many are done.
    pub fn steps(&self) -> u64 {
        self.0.steps.load(Relaxed)
    }

    /// It is not waited for any more: opening and formatting end before their next step.
    pub fn give_up(&self) {
        self.0.given_up.store(true, SeqCst);
    }

    /// Whether that was said.
    pub fn is_given_up(&self) -> bool {
        self.0.given_up.load(SeqCst)
    }

    /// Whether both are of one opening.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// To be asked before each step that changes something.
    pub(super) fn go_on(&self) -> Result<(), Errno> {
        if self.is_given_up() { Err(Errno::CANCELED) } else { Ok(()) }
    }
}
