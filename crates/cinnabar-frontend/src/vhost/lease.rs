//! Guest memory in the hands of the engine, and the word that it is back.
//!
//! A read into guest memory may continue after its request was answered (when the engine reports
//! that the backend takes too long) or after the guest's connection broke. Until it has ended, the
//! guest must not get its memory back, and the same request must not be read into the same memory a
//! second time. The reader holds the lease; its end is recorded here.

use super::memory::GuestMemory;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Wakes the event loop, so that it calls the server. Called from any thread.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// The right to write to guest memory until it is dropped.
pub(super) struct Lease {
    _memory: Arc<GuestMemory>,
    returned: Arc<Returned>,
    /// The key to put on the list of returned leases; 0: nothing waits for it.
    awaited: AtomicU64,
}

impl Lease {
    pub(super) const fn new(memory: Arc<GuestMemory>, returned: Arc<Returned>) -> Self {
        Self { _memory: memory, returned, awaited: AtomicU64::new(0) }
    }

    /// Gives up the server's own handle; `key`, not 0, will be on the list as soon as there is no
    /// other any more.
    pub(super) fn await_return(self: Arc<Self>, key: u64) {
        self.awaited.store(key, Ordering::Release);
        drop(self);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let key = *self.awaited.get_mut();
        if key != 0 {
            self.returned.push(key);
        }
    }
}

/// Ended leases that a server waited for.
pub(super) struct Returned {
    keys: Mutex<Vec<u64>>,
    any: AtomicBool,
    waker: Waker,
}

impl Returned {
    pub(super) const fn new(waker: Waker) -> Self {
        Self { keys: Mutex::new(Vec::new()), any: AtomicBool::new(false), waker }
    }

    fn push(&self, key: u64) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.any.store(true, Ordering::Release);
        (self.waker)();
    }

    /// Whether there are any: one load.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(super) fn take(&self) -> Vec<u64> {
        if !self.any() {
            return Vec::new();
        }
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn the_last_handle_tells_and_only_if_it_is_awaited() {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let waker: Waker = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let returned = Arc::new(Returned::new(waker));
        let lease = || Arc::new(Lease::new(Arc::default(), Arc::clone(&returned)));
        drop(lease());
        let (ours, engines) = lease_pair(&lease());
        ours.await_return(7);
        assert!(!returned.any());
        std::thread::spawn(move || drop(engines)).join().expect("no panic");
        assert_eq!((returned.take(), woken.load(Ordering::Relaxed)), (vec![7], 1));
        lease().await_return(8);
        assert_eq!(returned.take(), [8], "no other holder was left");
        assert!(!returned.any());
    }

    fn lease_pair(lease: &Arc<Lease>) -> (Arc<Lease>, Arc<Lease>) {
        (Arc::clone(lease), Arc::clone(lease))
    }
}
