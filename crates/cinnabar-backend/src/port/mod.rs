//! The I/O port: one object per data thread that carries out all file I/O and does all the waiting
//! (files, sockets, wake-ups from other threads, time-outs).
//!
//! Two implementations, the same behaviour and the same tests: `uring` over `io_uring`, `threads`
//! where that is refused.
//!
//! # Rules
//! * Every [`Job`] comes back as exactly one [`PortEvent::Done`], its buffers with it.
//! * Short transfers are continued, `EINTR` and `EAGAIN` retried; a completion is all or an error.
//! * A read that reaches past the end of the disk reads zeros there; a write that does is refused.
//! * Dropping a port waits for what is in flight, so that the kernel never writes to freed memory.

mod extents;
mod job;
mod own;
mod perform;
mod task;
mod threads;
mod uring;
mod waker;
mod workers;

pub use extents::Extent;
pub use job::{Done, Job, JobOp, io_error};
pub use own::OwnPort;
pub use waker::Waker;

pub(crate) use task::{Task, Whole};

use crate::disk::Disk;
use cinnabar_engine::units::ByteSpan;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// A disk registered with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Disks that one port can have.
pub const FILES_MAX: u32 = 8192;

/// What of a socket is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Bytes or connections to take, or the end of the stream.
    pub read: bool,
    /// Room to write.
    pub write: bool,
}

impl Interest {
    /// Hang-ups only.
    pub const NONE: Self = Self { read: false, write: false };
    /// Reading only.
    pub const READ: Self = Self { read: true, write: false };
    /// Writing only.
    pub const WRITE: Self = Self { read: false, write: true };
    pub const BOTH: Self = Self { read: true, write: true };
}

/// Something that happened.
#[derive(Debug)]
pub enum PortEvent {
    /// A job ended.
    Done(Done),
    /// A watched socket is ready. Level-triggered: told again at the next wait while it still is.
    Ready {
        /// The token it is watched under.
        token: u64,
        /// There are bytes or connections to take, or the end of the stream.
        readable: bool,
        /// There is room to write.
        writable: bool,
        /// The peer is gone in both directions, or the socket failed; told whatever is waited for.
        hangup: bool,
    },
    /// A [`Waker`] was used, once or more often.
    Woken,
    /// The server of a disk was out of reach and is back: it may have restarted, and lost these
    /// ranges, all of which were written since the last flush that covered them. Told before
    /// anything that it answers afterwards, by each port that had a job for the disk. Or an RBD
    /// image was lost to another client, all of it; told by each port that knows the disk.
    Restarted {
        /// The disk. It may have been unregistered meanwhile.
        file: FileId,
        /// Not to be believed: the disk holds what was written, or what was there before.
        ranges: Vec<ByteSpan>,
        /// This is the first port that is told.
        first: bool,
    },
}

/// One object that does all the I/O and all the waiting of a thread.
pub trait Port {
    /// What it is called in status and log: `uring` or `threads`.
    fn name(&self) -> &'static str;

    /// A handle by which other threads end a wait.
    fn waker(&self) -> Waker;

    /// Makes a disk known.
    ///
    /// # Errors
    /// What the kernel says, or `ENFILE` beyond [`FILES_MAX`].
    fn register(&mut self, disk: Arc<Disk>) -> rustix::io::Result<FileId>;

    /// Forgets a disk.
    ///
    /// # Panics
    /// If it has jobs in flight.
    fn unregister(&mut self, file: FileId);

    /// Queues a job. It starts with the next [`wait`](Self::wait), or now.
    ///
    /// # Panics
    /// If the file is not registered.
    fn submit(&mut self, job: Job);

    /// Watches a socket under a token of the caller's, or changes what is waited for. The caller
    /// unwatches it before closing it. With neither reading nor writing only a hang-up is reported.
    fn watch(&mut self, fd: RawFd, token: u64, interest: Interest);

    /// Stops watching; no more events are reported for this token, not even what had already
    /// happened. The kernel lets go of the socket at the next [`wait`](Self::wait).
    fn unwatch(&mut self, token: u64);

    /// Starts what is queued, waits until something happens or `timeout` passes (`None`: no limit;
    /// zero: don't wait), and appends what happened.
    ///
    /// # Errors
    /// Only what leaves the port unusable.
    fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<PortEvent>,
    ) -> rustix::io::Result<()>;

    /// Has the next [`wait`](Self::wait) tell of everything that has happened by then, whatever it
    /// would save by leaving some of it for later.
    fn look_at_all(&mut self) {}

    /// Jobs submitted and not yet told as done.
    fn in_flight(&self) -> usize;
}

/// Which implementation to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// `io_uring` where it works, threads otherwise.
    #[default]
    Auto,
    /// `io_uring` or nothing.
    Uring,
    Threads,
}

/// Why there is no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{during}: {errno}")]
pub struct PortError {
    /// What was tried.
    pub during: &'static str,
    /// What the kernel said.
    pub errno: rustix::io::Errno,
}

/// Opens a port, to be used by the calling thread only.
///
/// # Errors
/// [`PortError`]; with [`IoMode::Auto`] only if threads don't work either.
pub fn open(mode: IoMode) -> Result<Box<dyn Port>, PortError> {
    match mode {
        IoMode::Uring => Ok(Box::new(uring::Uring::new()?)),
        IoMode::Threads => Ok(Box::new(threads::Threads::new()?)),
        IoMode::Auto => match uring::Uring::new() {
            Ok(port) => Ok(Box::new(port)),
            Err(error) => {
                tracing::warn!(reason = %error, "no io_uring; using threads, which is slower");
                Ok(Box::new(threads::Threads::new()?))
            }
        },
    }
}
