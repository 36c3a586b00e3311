//! Files and block devices: opened for direct I/O, locked, measured. And exports of NBD servers, RBD
//! images, and hybrid volumes.

mod below;
mod blocking;
mod bounded;
mod cache;
mod change_proof;
mod clock;
mod durable;
mod error;
mod fresh;
mod image_format;
mod in_time;
mod ioctl;
mod lock;
mod open;
mod progress;
mod qemu_lock;
mod remote;
mod returning;
mod server;
mod size;
mod write_log;
mod write_log_halves;

pub use below::share_a_disk;
pub use bounded::BoundedMedia;
pub use cache::{CacheDisk, CacheOptions, Contents, open_cache};
pub use error::{DiskError, DiskErrorKind};
pub use in_time::in_time;
pub use open::{OpenOptions, lock_folder};
pub use progress::Progress;
pub use write_log::{WriteLogDisk, existing_write_log, is_blank, open_write_log};
pub use write_log_halves::{LogHalves, format_if_empty, open_halves};

pub(crate) use durable::Extent as SyncExtent;
pub(crate) use ioctl::{discard, zero_out};

use crate::lineage::{Lineage, Snapshot};
use crate::rbd::LockState;
use remote::Remote;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// An export of an NBD server, or an RBD image.
    Server,
}

/// What a disk is, whatever it is called: equal for two that are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Device and inode number of a file.
    Inode(u64, u64),
    /// Address and export of a server, cluster and image of Ceph's.
    Server(String),
}

/// An open file or block device, locked as long as this or an I/O on it lives: the lock belongs to
/// the open file description that carries the I/O, so the kernel holds it until the last operation
/// has landed, even after `kill -9`. A server's export has no lock; an RBD image has its own.
#[derive(Debug)]
pub struct Disk {
    /// The file was made by us and is of no use yet. Let go of before the lock is.
    fresh: Option<fresh::Fresh>,
    /// What is open; of a server only something that stands in for it.
    fd: OwnedFd,
    /// Who does the I/O if the kernel does not.
    remote: Option<Remote>,
    path: PathBuf,
    kind: DiskKind,
    /// What is served of it; it only grows.
    size_bytes: AtomicU64,
    align_bytes: u32,
    direct: bool,
    read_only: bool,
    in_memory: bool,
    /// The kernel starts its I/O without waiting (`FMODE_NOWAIT`).
    nowait: bool,
    /// Its file system, or the device, is known to carry out `RWF_DSYNC`.
    dsync_is_known: bool,
    syncs: durable::Syncs,
    sync_failure_sticks: bool,
    is_cache: bool,
    /// Its path named this file when it was opened, which not every file system can tell.
    had_name: bool,
    /// And does no longer.
    lost_name: AtomicBool,
    /// I/Os that one port gives the kernel at a time, at most.
    depth_max: usize,
    /// Of blocking I/O on it.
    progress: Progress,
    identity: Identity,
    snapshot: Option<Snapshot>,
    lineage: Option<Lineage>,
}

impl Disk {
    /// The path it was opened by; of a server, how it is written in a configuration.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File, block device or export.
    pub fn kind(&self) -> DiskKind {
        self.kind
    }

    /// Size in bytes when it was opened or grown, a multiple of 512.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Relaxed)
    }

    /// Alignment that offset, length and memory of an I/O need, in bytes: 512 or 4096.
    pub fn align_bytes(&self) -> u32 {
        self.align_bytes
    }

    /// Whether I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Why what is read may lack what another host has written and was told is written, if it may.
    pub fn may_read_old(&self) -> Option<&'static str> {
        match &self.remote {
            Some(Remote::Nbd(client)) if !client.export().multi => Some(
                "its server does not say that what one connection has written is read by others \
                 (NBD_FLAG_CAN_MULTI_CONN)",
            ),
            Some(_) => None,
            None if self.direct || self.in_memory => None,
            None => Some("without direct I/O, reads may come from this host's page cache"),
        }
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether it is a file in memory (tmpfs): its I/O is a copy that waits for nothing.
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Whether the kernel starts its reads and writes without waiting for anything but memory, so
    /// that a ring can carry them out without a thread.
    pub(crate) fn starts_without_waiting(&self, writes: bool) -> bool {
        // Into the page cache the kernel writes by itself only where there is room in it.
        self.nowait && (self.direct || !writes)
    }

    /// I/Os that one port gives the kernel at a time, at most, whatever the port would allow.
    pub(crate) fn depth_max(&self) -> usize {
        self.depth_max
    }

    /// Whether it is a cache device, whose I/O is all volumes'.
    pub(crate) fn is_cache(&self) -> bool {
        self.is_cache
    }

    /// Of blocking I/O on it, for who waits for that.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Who it is.
    pub fn identity(&self) -> Identity {
        self.identity.clone()
    }

    /// What is under way, and whatever comes, fails at once from now on. Writes that have left this host may
    /// still be carried out. False if that can't be done: then what is under way is waited for as before.
    pub fn give_up(&self) -> bool {
        self.remote().is_some_and(Remote::give_up)
    }

    /// Leaves an NBD server, so that it has places for other clients, until something is asked of it again.
    /// Blocks until nothing is under way there, for at most some ten seconds: then it is left later. Nothing
    /// else is ever left.
    pub fn rest(&self) {
        if let Some(remote) = self.remote() {
            remote.rest();
        }
    }

    /// What is wrong with it, if anything is: a flush failed, or its server is out of reach.
    pub fn trouble(&self) -> Option<String> {
        let failed = self.sync_failure().map(|errno| {
            format!(
                "a flush of the backend failed ({errno}), so writes may be lost: flushes fail and \
                 nothing is cached until the volume is removed and added again"
            )
        });
        let away = self.lost_name.load(Relaxed).then(|| {
            "another file has taken the place of the one that is served, or it was removed: what guests write \
             is lost when the volume stops"
                .to_owned()
        });
        failed.or(away).or_else(|| self.remote().and_then(Remote::trouble))
    }

    /// Whether it may be served: a lock that other hosts can break has to be seen now and then. What knows
    /// no such lock always may.
    pub fn lock_state(&self) -> LockState {
        self.remote().map_or(LockState::Held, Remote::lock_state)
    }

    /// Whether a server does its I/O.
    pub(crate) fn is_remote(&self) -> bool {
        self.kind == DiskKind::Server
    }

    /// Who does its I/O, if the kernel does not.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Which snapshot it is, if it is one that clones have as their parent.
    pub const fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// Of a clone ([`OpenOptions::is_clone`]): its parent, and what it has itself.
    pub const fn lineage(&self) -> Option<&Lineage> {
        self.lineage.as_ref()
    }

    /// Whether it can be asked now and then how large it is.
    pub fn tells_size(&self) -> bool {
        self.remote().is_none_or(Remote::tells_size)
    }
}

impl AsFd for Disk {
    /// The open file. A server has none; what stands in for it is never used for I/O.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
