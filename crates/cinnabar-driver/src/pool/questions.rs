//! Questions to what stands behind a lock that is only ever tried: they are left for whoever holds it.

#![expect(clippy::disallowed_types, reason = "its lock is held for a list's append")]

use crate::sync::{AtomicBool, Mutex, MutexGuard};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A question to a `T`, which sees to it that its asker gets the answer.
pub(super) type Question<T> = Box<dyn FnOnce(&T) + Send>;

/// In order.
pub(super) struct Questions<T> {
    left: Mutex<Vec<Question<T>>>,
    /// There may be one.
    asked: AtomicBool,
}

impl<T> Questions<T> {
    pub(super) fn new() -> Self {
        Self { left: Mutex::new(Vec::new()), asked: AtomicBool::new(false) }
    }

    fn left(&self) -> MutexGuard<'_, Vec<Question<T>>> {
        // A panic can't leave a list half appended to.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn leave(&self, question: Question<T>) {
        self.left().push(question);
        self.asked.store(true, Release);
    }

    /// Whether there may be one.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Answers what was left; the caller holds what is asked.
    pub(super) fn answer(&self, held: &T) {
        if self.is_asked() && self.asked.swap(false, Acquire) {
            let left = std::mem::take(&mut *self.left());
            for question in left {
                question(held);
            }
        }
    }
}
