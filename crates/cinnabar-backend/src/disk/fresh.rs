//! A cache file that was made and not formatted is removed: a start that fails leaves nothing behind.
//!
//! The file is removed only while its lock is held, and only if its name still leads to it, so that
//! no other process can be using it.

use super::{Disk, Identity};
use rustix::fs::{AtFlags, CWD, statat, unlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A file that goes when it is dropped, unless it is kept.
#[derive(Debug)]
pub(super) struct Fresh {
    path: PathBuf,
    identity: Identity,
    kept: AtomicBool,
}

impl Fresh {
    /// The file of a disk that was just made, and is locked.
    pub(super) fn of(disk: &Disk) -> Self {
        let (path, identity) = (disk.path.clone(), disk.identity.clone());
        Self { path, identity, kept: AtomicBool::new(false) }
    }
}

impl Disk {
    /// A file that was made for this disk holds something, and stays from now on.
    pub(super) fn keep(&self) {
        if let Some(fresh) = &self.fresh {
            fresh.kept.store(true, Relaxed);
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if self.kept.load(Relaxed) {
            return;
        }
        let found = statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| Identity::Inode(stat.st_dev, stat.st_ino) == self.identity) {
            // Without the right to remove it, it stays: an empty cache file does no harm.
            let _stays = unlink(&self.path);
        }
    }
}
