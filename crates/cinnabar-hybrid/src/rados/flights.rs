//! Operations under way: what they are for, and how their ends come to the thread that uses the pools.

use crate::buffers::Buffers;
use crate::librados::{Landed, Page, ReadOp, Then, WriteOp};
use crate::pools::{Completion, OpError};
use cinnabar_placement::{Object, Pool};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// An operation under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) token: u64,
    pub(super) began: Instant,
    pub(super) step: Step,
}

/// What its next end means.
#[derive(Debug)]
pub(super) enum Step {
    /// A read of the guest's. It reads into memory of its own, which is copied at the end: nothing of the library's
    /// ever touches the guest's.
    Read {
        memory: Buffers,
        may_be_missing: bool,
    },
    /// A change of an object in this pool.
    Change(Pool),
    Delete,
    Probe,
    /// The source's version is asked for, then the copy begins.
    Look {
        from: Object,
        to: Object,
    },
    Copy(Pool),
    /// Ranges are read, then written, some at a time.
    PatchRead(Patch),
    PatchWrite(Patch),
    /// A change of the table.
    Store,
    /// Whether the epoch is still ours; when that was asked, by [`now_ns`](crate::librados::lock_state::now_ns).
    Check {
        began_ns: u64,
    },
    List(Pool),
}

/// A copy of ranges through the host.
#[derive(Debug)]
pub(super) struct Patch {
    pub(super) from: Object,
    pub(super) to: Object,
    /// What is still to be copied; those being copied are at the front.
    pub(super) ranges: VecDeque<Range<u64>>,
    /// How many are being copied.
    pub(super) taken: usize,
}

/// What the library or the keeper has to tell.
#[derive(Debug)]
pub(super) enum News {
    Wrote(Landed<WriteOp>),
    Read(Landed<ReadOp>),
    Copied(Landed<()>),
    Listed(Result<Page, Errno>),
}

impl News {
    pub(super) fn result(&self) -> Result<(), Errno> {
        match self {
            Self::Wrote(landed) => landed.result,
            Self::Read(landed) => landed.result,
            Self::Copied(landed) => landed.result,
            Self::Listed(page) => page.as_ref().map(drop).map_err(|errno| *errno),
        }
    }
}

/// Where ends are left, by the flight's number, by whatever thread.
#[derive(Debug)]
pub(super) struct Inbox {
    news: Mutex<Vec<(usize, News)>>,
    bell: OwnedFd,
}

impl Inbox {
    pub(super) fn new() -> Result<Arc<Self>, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { news: Mutex::default(), bell }))
    }

    pub(super) fn put(&self, flight: usize, news: News) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push((flight, news));
        self.ring();
    }

    /// Something can be taken from the pools.
    pub(super) fn ring(&self) {
        // It fails only when the counter is full: then the descriptor is readable.
        let _full = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> Vec<(usize, News)> {
        let mut count = [0; 8];
        // It fails when it has not rung.
        let _empty = rustix::io::read(&self.bell, &mut count);
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Has the end of an operation put into the inbox.
pub(super) fn then<T: 'static>(
    inbox: &Arc<Inbox>,
    flight: usize,
    news: fn(Landed<T>) -> News,
) -> Then<T> {
    let inbox = Arc::clone(inbox);
    Box::new(move |landed| inbox.put(flight, news(landed)))
}

/// How an operation on an object in `pool` failed.
pub(super) fn failed(errno: Errno, pool: Pool) -> OpError {
    match errno {
        Errno::NOENT => OpError::Missing,
        Errno::NOSPC | Errno::DQUOT => OpError::NoSpace(pool),
        // This client was fenced off.
        Errno::SHUTDOWN => OpError::Fenced,
        Errno::TIMEDOUT => OpError::TimedOut,
        errno => OpError::Other(errno),
    }
}

/// The end of an operation.
pub(super) fn ended(token: u64, result: Result<crate::pools::Answer, OpError>) -> Completion {
    Completion { token, result }
}

/// Copies bytes into a request's memory; what they do not cover is zeroed.
pub(super) fn fill(memory: &Buffers, bytes: &[u8]) {
    let mut rest = bytes;
    for part in memory.parts() {
        let (now, behind) = rest.split_at(rest.len().min(part.iov_len));
        // SAFETY: the memory is the operation's alone until its completion is taken, and has so many bytes.
        unsafe { part.iov_base.cast::<u8>().copy_from_nonoverlapping(now.as_ptr(), now.len()) };
        rest = behind;
    }
    memory.zero_from(bytes.len() as u64);
}

/// Appends what a request's memory holds to a write.
pub(super) fn gather(mut op: WriteOp, mut offset: u64, memory: &Buffers) -> WriteOp {
    for part in memory.parts() {
        // SAFETY: the memory is the operation's until its completion is taken, and has so many bytes. (A guest
        // may change them meanwhile: the library copies them once.)
        op = unsafe { op.write_from(offset, part.iov_base.cast(), part.iov_len) };
        offset += part.iov_len as u64;
    }
    op
}
