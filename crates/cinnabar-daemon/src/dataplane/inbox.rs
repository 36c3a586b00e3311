//! Queues between data threads, which wake their reader only when it sleeps.
//!
//! Nobody ever waits for the lock: it is held while a list is appended to or swapped.

use cinnabar_backend::Waker;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module; a clone is a handle to the same queue.
pub(super) struct Inbox<T>(Arc<Inner<T>>);

struct Inner<T> {
    queue: Mutex<Vec<T>>,
    /// There may be something.
    filled: AtomicBool,
    /// The reader sleeps, or is about to.
    sleeps: AtomicBool,
    waker: Waker,
}

impl<T> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Inbox<T> {
    /// A queue whose reader waits in the port of this waker.
    pub(super) fn new(waker: Waker) -> Self {
        let (filled, sleeps) = (AtomicBool::new(false), AtomicBool::new(true));
        Self(Arc::new(Inner { queue: Mutex::new(Vec::new()), filled, sleeps, waker }))
    }

    fn queue(&self) -> MutexGuard<'_, Vec<T>> {
        // A panic can't leave a list half appended to.
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends, and wakes the reader if it sleeps.
    pub(super) fn push(&self, item: T) {
        self.queue().push(item);
        self.ring();
    }

    /// Appends all of a list, which keeps its memory.
    pub(super) fn append(&self, items: &mut Vec<T>) {
        if !items.is_empty() {
            self.queue().append(items);
            self.ring();
        }
    }

    fn ring(&self) {
        // The order matters: what the reader looks at last before it sleeps is set first.
        self.0.filled.store(true, SeqCst);
        if self.0.sleeps.swap(false, SeqCst) {
            self.0.waker.wake();
        }
    }

    /// Whether there is something; costs one look.
    pub(super) fn is_filled(&self) -> bool {
        self.0.filled.load(SeqCst)
    }

    /// The reader is about to sleep; true if it must not.
    pub(super) fn sleeps(&self) -> bool {
        self.0.sleeps.store(true, SeqCst);
        self.is_filled()
    }

    /// Takes all there is, in order.
    pub(super) fn take(&self, into: &mut Vec<T>) {
        self.0.sleeps.store(false, SeqCst);
        if self.0.filled.swap(false, SeqCst) {
            into.append(&mut self.queue());
        }
    }
}
