//! In place of the library's module of this name. Loom's own locks are not enough: it never shows a thread
//! that waits to try one that another thread has it. So a lock is a word here, as it is in the standard
//! library.

#![expect(
    clippy::disallowed_types,
    reason = "what a lock is for stands in one that is never waited for"
)]

use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockError, TryLockResult};

thread_local! {
    /// A deliberate bug: fences do nothing. Loom's threads are one of the system's.
    pub(crate) static UNFENCED: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn fence(order: loom::sync::atomic::Ordering) {
    if !UNFENCED.get() {
        loom::sync::atomic::fence(order);
    }
}

pub(crate) struct Mutex<T> {
    taken: AtomicBool,
    what: std::sync::Mutex<T>,
}

pub(crate) struct MutexGuard<'l, T> {
    taken: &'l AtomicBool,
    what: Option<std::sync::MutexGuard<'l, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(what: T) -> Self {
        Self { taken: AtomicBool::new(false), what: std::sync::Mutex::new(what) }
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.taken.compare_exchange(false, true, Acquire, Relaxed) {
            Ok(_) => {
                let what = Some(self.what.try_lock().expect("nobody has it"));
                Ok(MutexGuard { taken: &self.taken, what })
            }
            Err(_) => Err(TryLockError::WouldBlock),
        }
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        loop {
            if let Ok(guard) = self.try_lock() {
                return Ok(guard);
            }
            loom::thread::yield_now();
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.what.as_ref().expect("it is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.what.as_mut().expect("it is held")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.what = None;
        self.taken.store(false, Release);
    }
}
