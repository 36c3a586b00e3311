//! RBD images and hybrid volumes that are being closed: by their own threads, so that nobody waits for a slow cluster;
//! only the process does, at its end, for all of them together.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longest wait for all of them at the end of a process.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// How many are open, or being closed.
static OPEN: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// One that is open or being closed, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Counted(());

impl Counted {
    pub(crate) fn new() -> Self {
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(*open > 0, "each was counted once");
        *open -= 1;
        ENDED.notify_all();
    }
}

/// Waits until all that was let go of is closed, for at most 15 s in all. For the end of a process: libraries' threads
/// must not outlive their code, and a volume that is let go of need not be fenced off.
pub fn finish_closing() {
    let left = wait(WAIT_MAX);
    if left > 0 {
        tracing::warn!(left, "images or volumes are not closed: their clusters do not answer");
    }
}

/// Waits for at most so long. Gives how many are not closed: the cluster is silent.
fn wait(limit: Duration) -> usize {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ENDED.wait_timeout_while(open, limit, |open| *open > 0);
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
