//! Ending a port's wait from another thread.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read, write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};

/// A handle that ends the wait of the port it came from; clones wake the same one.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    eventfd: OwnedFd,
    /// Someone called `wake` since the port last asked.
    rung: AtomicBool,
}

impl Waker {
    /// With `nonblocking` unset, `io_uring` can wait in a read of it.
    pub(super) fn new(nonblocking: bool) -> rustix::io::Result<Self> {
        let flags = if nonblocking { EventfdFlags::NONBLOCK } else { EventfdFlags::empty() };
        let eventfd = eventfd(0, flags | EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Bell { eventfd, rung: AtomicBool::new(false) })))
    }

    /// Ends the wait that is under way, or else the next one, which tells
    /// [`Woken`](super::PortEvent::Woken).
    pub fn wake(&self) {
        if !self.0.rung.swap(true, AcqRel) {
            self.nudge();
        }
    }

    /// Ends the wait without a word: a completion is there to be collected.
    pub(super) fn nudge(&self) {
        // It fails only when 2^64 - 2 nudges were not yet noticed; then the wait ends anyway.
        while write(&self.0.eventfd, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }

    /// Whether `wake` was called since the last time.
    pub(super) fn take(&self) -> bool {
        self.0.rung.swap(false, AcqRel)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }

    /// Takes back what was written; only for a nonblocking one.
    pub(super) fn drain(&self) {
        let _ = read(&self.0.eventfd, &mut [0_u8; 8]);
    }
}
