//! How other threads talk to a volume's thread, and what it tells of itself.

use super::Request;
use cinnabar_placement::volume::Counts;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read, write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a volume does, as of about a second ago.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    pub planner: &'static str,
    /// Bytes of the volume.
    pub size_bytes: u64,
    pub extent_bytes: u64,
    /// Extents that were written.
    pub extents_present: u32,
    /// Objects in the slow and the fast pool, copies and garbage included.
    pub objects: [u32; 2],
    /// Bytes of the fast pool that it may take, and that it takes.
    pub budget_bytes: u64,
    /// See above.
    pub fast_bytes: u64,
    /// Extents on their way, and moves that wait.
    pub moving: usize,
    /// Of the state machine.
    pub counts: Counts,
    /// Bytes of moves that went through this host.
    pub host_bytes: u64,
    /// What moves of the last round gain, in milliseconds a second (`benefit`).
    pub gain_ms_per_s: f64,
    /// The last move that was planned, and why.
    pub last_move: Option<String>,
    /// Objects under the volume's name that belong to nothing: deleted, and those that it never made.
    pub left_deleted: u64,
    /// See above.
    pub foreign: u64,
    /// One of the latter, and its pool.
    pub foreign_name: Option<String>,
    /// What is wrong, if anything is.
    pub trouble: Option<String>,
    /// Another host has the volume, or its table can't be trusted any more: nothing is served.
    pub lost: bool,
}

#[derive(Default)]
struct State {
    requests: Vec<Box<dyn Request>>,
    closed: bool,
    status: Status,
    failed_flush: Option<Errno>,
}

/// See the module.
pub(super) struct Mail {
    state: Mutex<State>,
    /// As the status has it, for those who ask at each request.
    lost: AtomicBool,
    bell: OwnedFd,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail").finish_non_exhaustive()
    }
}

impl Mail {
    pub(super) fn new() -> Result<Self, Errno> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { state: Mutex::default(), lost: AtomicBool::new(false), bell })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain values, whole whenever the lock is free.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        while write(&self.bell, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }

    pub(super) fn submit(&self, request: Box<dyn Request>) {
        let mut state = self.lock();
        let quiet = state.requests.is_empty();
        state.requests.push(request);
        drop(state);
        if quiet {
            self.ring();
        }
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.ring();
    }

    /// All requests that came, and whether there will be no more.
    pub(super) fn take(&self) -> (Vec<Box<dyn Request>>, bool) {
        let _none = read(&self.bell, &mut [0_u8; 8]);
        let mut state = self.lock();
        (std::mem::take(&mut state.requests), state.closed)
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn status(&self) -> Status {
        self.lock().status.clone()
    }

    /// Whether the volume may be another host's.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    pub(super) fn set_status(&self, status: Status) {
        self.lost.store(status.lost, Release);
        self.lock().status = status;
    }

    pub(super) fn failed_flush(&self) -> Option<Errno> {
        self.lock().failed_flush
    }

    pub(super) fn forget_failed_flush(&self) {
        self.lock().failed_flush = None;
    }

    /// A flush has ended, perhaps with a failure. Gives the one that sticks: which writes are lost is not
    /// known, so all later flushes fail as well.
    pub(super) fn note_flush(&self, failed: Option<Errno>) -> Result<(), Errno> {
        let mut state = self.lock();
        state.failed_flush = state.failed_flush.or(failed);
        state.failed_flush.map_or(Ok(()), Err)
    }
}
