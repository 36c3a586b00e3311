//! Files and block devices: opened for direct I/O, locked, measured.
//!
//! Called by the data plane at start-up and when volumes come; the port carries out their I/O.

mod blocking;
mod cache;
mod clock;
mod epoch;
mod error;
mod ioctl;
mod lock;
mod open;

pub use cache::{CacheDisk, CacheOptions, Contents, open_cache};
pub use error::{DiskError, DiskErrorKind};
pub use lock::lock_folder;
pub use open::OpenOptions;

pub(crate) use ioctl::{discard, zero_out};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
}

/// An open file or block device, locked as long as this or an I/O on it lives: the lock belongs to
/// the open file description that carries the I/O, so the kernel holds it until the last operation
/// has landed, even after `kill -9`.
#[derive(Debug)]
pub struct Disk {
    fd: OwnedFd,
    path: PathBuf,
    kind: DiskKind,
    size_bytes: u64,
    align_bytes: u32,
    direct: bool,
    read_only: bool,
    in_memory: bool,
    device: u64,
    inode: u64,
}

impl Disk {
    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File or block device.
    pub fn kind(&self) -> DiskKind {
        self.kind
    }

    /// Size in bytes when it was opened, a multiple of 512.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Alignment that offset, length and memory of an I/O need, in bytes: 512 or 4096.
    pub fn align_bytes(&self) -> u32 {
        self.align_bytes
    }

    /// Whether I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether it is a file in memory (tmpfs): its I/O is a copy that waits for nothing.
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Device and inode number: equal for two disks that are the same file.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

impl AsFd for Disk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
