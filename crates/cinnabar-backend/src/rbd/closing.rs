//! Images that are being closed: by their own threads, so that nobody waits for a slow cluster; only
//! the process does, at its end, for all of them together.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longest wait for all of them at the end of a process.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(15);

/// How many images are open, or being closed.
static IMAGES: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// An image that is open or being closed, for as long as this lives.
#[derive(Debug)]
pub(super) struct Counted(());

impl Counted {
    pub(super) fn new() -> Self {
        *IMAGES.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut images = IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(*images > 0, "each was counted once");
        *images -= 1;
        ENDED.notify_all();
    }
}

/// Waits until all images are closed, for at most so long. Gives how many are not: the cluster is
/// silent.
pub(super) fn wait(limit: Duration) -> usize {
    let images = IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ENDED.wait_timeout_while(images, limit, |images| *images > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_ends_the_wait() {
        let (one, two) = (Counted::new(), Counted::new());
        assert!(wait(Duration::ZERO) >= 2);
        drop(one);
        let closing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(two);
        });
        assert_eq!(wait(Duration::from_mins(1)), 0);
        closing.join().expect("it ends");
    }
}
