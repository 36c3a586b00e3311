//! How large a disk is now, which may be another size than when it was opened.

use super::error::DiskError;
use super::{Disk, DiskKind, Identity, ioctl};
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;

impl Disk {
    /// Asks how large it is now, in whole units of its alignment. Blocks; a server for at most some
    /// ten seconds.
    ///
    /// # Errors
    /// It can't be asked.
    pub fn measure(&self) -> Result<u64, DiskError> {
        let failed = |errno| DiskError::from_errno(&self.path, "fstat", errno);
        let size = match (&self.remote, self.kind) {
            (Some(remote), _) => {
                remote.measure().map_err(|kind| DiskError::new(&self.path, kind))?
            }
            (None, DiskKind::Block) => ioctl::size_bytes(&self.fd).map_err(failed)?,
            (None, _) => {
                self.look_at_path();
                rustix::fs::fstat(&self.fd).map_err(failed)?.st_size.cast_unsigned()
            }
        };
        // What is cut off and grows back is zeroes, not the parent's.
        if let Some(lineage) = &self.lineage {
            lineage.map.cut(size);
        }
        Ok(size / u64::from(self.align_bytes) * u64::from(self.align_bytes))
    }

    /// Whether its path still names this file, which `identity` is of.
    fn look_at_path(&self) {
        let lost = match rustix::fs::stat(&self.path) {
            Ok(stat) => self.identity != Identity::Inode(stat.st_dev, stat.st_ino),
            Err(errno) if errno == Errno::NOENT => true,
            // The folder may be out of reach for a while.
            Err(_) => return,
        };
        let lost = lost && self.had_name;
        if !self.lost_name.swap(lost, Relaxed) && lost {
            let path = self.path.display();
            tracing::error!(%path, "its path no longer names the file that is in use: what is written there is lost when it is closed");
        }
    }

    /// From now on so much of it is served, if it was less before.
    pub fn grow_to(&self, size_bytes: u64) {
        if self.size_bytes.fetch_max(size_bytes, Relaxed) < size_bytes
            && let Some(remote) = &self.remote
        {
            remote.grow_to(size_bytes);
        }
    }
}
