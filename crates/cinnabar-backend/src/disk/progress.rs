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
pub struct Progress {
    steps: Arc<AtomicU64>,
    given_up: Arc<AtomicBool>,
}

impl Progress {
    /// Of a part: its steps are counted here, too, and it is given up by itself.
    #[must_use]
    pub fn part(&self) -> Self {
        Self { steps: Arc::clone(&self.steps), given_up: Arc::default() }
    }

    /// One more is done.
    pub(super) fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    /// How many are done.
    pub fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    /// It is not waited for any more: opening and formatting end before their next step.
    pub fn give_up(&self) {
        self.given_up.store(true, SeqCst);
    }

    /// Whether that was said.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(SeqCst)
    }

    /// To be asked before each step that changes something.
    pub(super) fn go_on(&self) -> Result<(), Errno> {
        if self.is_given_up() { Err(Errno::CANCELED) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One half of a mirrored log that hangs must not have the other one given up.
    #[test]
    fn a_part_is_given_up_by_itself() {
        let whole = Progress::default();
        let parts = [whole.part(), whole.part()];
        parts[0].step();
        parts[1].clone().step();
        assert_eq!(whole.steps(), 2);
        parts[0].give_up();
        assert!(parts[0].go_on().is_err() && parts[1].go_on().is_ok() && whole.go_on().is_ok());
    }
}
