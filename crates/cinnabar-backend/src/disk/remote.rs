//! Who does the I/O of a disk that the kernel does not: an NBD client, an RBD image, a hybrid volume.

use super::error::DiskErrorKind;
use crate::hybrid;
use crate::nbd::{self, Sink};
use crate::port::{FileId, Task};
#[cfg(feature = "ceph")]
use crate::rbd;
use crate::rbd::LockState;
use rustix::io::Errno;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) enum Remote {
    /// The client of an NBD server's export.
    Nbd(nbd::Client),
    /// An open RBD image.
    #[cfg(feature = "ceph")]
    Rbd(rbd::Client),
    /// An open hybrid volume.
    Hybrid(hybrid::Client),
}

/// The same of each kind.
macro_rules! each {
    ($remote:expr, $client:ident => $what:expr) => {
        match $remote {
            Remote::Nbd($client) => $what,
            #[cfg(feature = "ceph")]
            Remote::Rbd($client) => $what,
            Remote::Hybrid($client) => $what,
        }
    };
}

impl Remote {
    /// A port has the disk under this name. A server tells only ports with jobs, for it loses only
    /// what was written; an image that is lost is lost to all.
    pub(crate) fn register(&self, file: FileId, sink: &Arc<dyn Sink>) {
        match self {
            Self::Nbd(_) => {}
            #[cfg(feature = "ceph")]
            Self::Rbd(image) => image.register(file, Arc::clone(sink)),
            Self::Hybrid(volume) => volume.register(file, Arc::clone(sink)),
        }
    }

    /// And no longer.
    pub(crate) fn unregister(&self, file: FileId, sink: &Arc<dyn Sink>) {
        match self {
            Self::Nbd(_) => {}
            #[cfg(feature = "ceph")]
            Self::Rbd(image) => image.unregister(file, Arc::clone(sink)),
            Self::Hybrid(volume) => volume.unregister(file, sink),
        }
    }

    /// Takes a task; the sink gets its completion.
    pub(crate) fn submit(&self, task: Task, sink: Arc<dyn Sink>) {
        each!(self, client => client.submit(task, sink));
    }

    /// Flushes, waiting for it.
    pub(super) fn flush(&self) -> rustix::io::Result<()> {
        each!(self, client => client.flush())
    }

    /// See [`Disk::give_up`](super::Disk::give_up).
    pub(super) fn give_up(&self) -> bool {
        match self {
            Self::Nbd(client) => {
                client.give_up();
                true
            }
            #[cfg(feature = "ceph")]
            Self::Rbd(_) => false,
            Self::Hybrid(_) => false,
        }
    }

    /// See [`Disk::rest`](super::Disk::rest).
    pub(super) fn rest(&self) {
        match self {
            Self::Nbd(client) => client.rest(),
            #[cfg(feature = "ceph")]
            Self::Rbd(_) => {}
            Self::Hybrid(_) => {}
        }
    }

    /// Why it is out of reach, if it is.
    pub(super) fn trouble(&self) -> Option<String> {
        each!(self, client => client.trouble())
    }

    /// Whether it may be served.
    pub(super) fn lock_state(&self) -> LockState {
        match self {
            Self::Nbd(_) => LockState::Held,
            #[cfg(feature = "ceph")]
            Self::Rbd(image) => image.lock_state(),
            Self::Hybrid(volume) => volume.lock_state(),
        }
    }

    /// The failure of a flush that sticks.
    pub(super) fn failed_flush(&self) -> Option<Errno> {
        each!(self, client => client.failed_flush())
    }

    /// See [`Disk::forget_failed_flush`](super::Disk::forget_failed_flush).
    pub(super) fn forget_failed_flush(&self) {
        each!(self, client => client.forget_failed_flush());
    }

    /// Asks how many bytes it has now.
    pub(super) fn measure(&self) -> Result<u64, DiskErrorKind> {
        match self {
            Self::Nbd(client) => client.measure().map_err(DiskErrorKind::Server),
            #[cfg(feature = "ceph")]
            Self::Rbd(image) => image.measure().map_err(DiskErrorKind::Rbd),
            Self::Hybrid(volume) => Ok(volume.size_bytes()),
        }
    }

    /// Serves so many bytes from now on.
    #[cfg_attr(not(feature = "ceph"), expect(unused_variables, reason = "a server is asked again"))]
    pub(super) fn grow_to(&self, size_bytes: u64) {
        match self {
            Self::Nbd(client) => client.renew(),
            #[cfg(feature = "ceph")]
            Self::Rbd(image) => image.grow_to(size_bytes),
            // It keeps its size.
            Self::Hybrid(_) => {}
        }
    }

    /// Whether it tells how large it is now without much ado.
    pub(super) fn tells_size(&self) -> bool {
        match self {
            // To new connections only.
            Self::Nbd(_) => false,
            #[cfg(feature = "ceph")]
            Self::Rbd(_) => true,
            Self::Hybrid(_) => true,
        }
    }
}
