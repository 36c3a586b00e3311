//! Which job is next: the first one that there is memory for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Jobs to come, and the memory that those under way leave.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// A job returned its memory.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Jobs to come and what they need, in bytes.
    waiting: Vec<(usize, u64)>,
    free_bytes: u64,
    closed: bool,
}

/// The right to run a job; its memory is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'q> {
    queue: &'q Queue,
    job: usize,
    bytes: u64,
}

impl Queue {
    /// Jobs by what each needs; none of them needs more than there is.
    pub(super) fn new(needs: Vec<u64>, memory_bytes: u64) -> Self {
        assert!(needs.iter().all(|bytes| *bytes <= memory_bytes), "each job fits by itself");
        let waiting = needs.into_iter().enumerate().collect();
        let state = State { waiting, free_bytes: memory_bytes, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits for a job that fits; `None` if there are no more.
    pub(super) fn next(&self) -> Option<Turn<'_>> {
        let mut state = self.state();
        loop {
            if state.closed || state.waiting.is_empty() {
                return None;
            }
            let free = state.free_bytes;
            if let Some(at) = state.waiting.iter().position(|(_, bytes)| *bytes <= free) {
                let (job, bytes) = state.waiting.remove(at);
                state.free_bytes -= bytes;
                return Some(Turn { queue: self, job, bytes });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No further job is begun.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    // A thread that panicked took nothing with it: the state changes in one step.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    pub(super) fn job(&self) -> usize {
        self.job
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.state().free_bytes += self.bytes;
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_fits_goes_first_and_the_rest_waits() {
        let queue = Queue::new(vec![6, 6, 4], 10);
        let first = queue.next().expect("there are three");
        assert_eq!(first.job(), 0);
        let third = queue.next().expect("there are two");
        assert_eq!(third.job(), 2, "the second does not fit beside the first");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.next().map(|turn| turn.job()));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waits.is_finished(), "4 of 10 are free, 6 are needed");
            drop(first);
            assert_eq!(waits.join().expect("it got its turn"), Some(1));
        });
        drop(third);
        assert!(queue.next().is_none());
        assert_eq!(queue.state().free_bytes, 10);
    }

    #[test]
    fn a_closed_queue_lets_nobody_wait() {
        let queue = Queue::new(vec![1, 1], 1);
        let _turn = queue.next().expect("there are two");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.next().is_none());
            queue.close();
            assert!(waits.join().expect("it was woken"));
        });
    }
}
