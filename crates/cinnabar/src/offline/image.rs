//! Where the offline tools read: a cache device, locked against the daemon, or an image in memory.

use super::OfflineError;
use cinnabar_backend::Disk;
use cinnabar_backend::disk::OpenOptions;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::path::Path;
use std::time::Duration;

/// Pages read at a time: what the tools hold in memory at once (1 MiB, one chunk).
pub const PAGES_A_READ: usize = 256;

/// A daemon that was killed a moment ago holds its lock until its last write has landed.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Pages of a cache device.
pub trait Source {
    /// Size in blocks of 4 KiB.
    fn blocks(&self) -> u64;

    /// Reads pages from block `first` on and says how many of them could not be read. Those, and
    /// what lies past the end, come back as zeros, which no decoder takes for anything.
    fn read(&self, first: u64, pages: &mut [MetaPage]) -> u64;
}

/// A cache device, open and locked.
#[derive(Debug)]
pub struct Image {
    disk: Disk,
}

impl Image {
    /// Opens for reading, sharing the lock with other readers but not with a daemon.
    ///
    /// # Errors
    /// When it is not there, may not be read, or is in use.
    pub fn open(path: &Path) -> Result<Self, OfflineError> {
        Self::open_as(path, true)
    }

    /// Opens for reading and writing, alone.
    ///
    /// # Errors
    /// When it is not there, may not be written, or is in use.
    pub fn open_to_write(path: &Path) -> Result<Self, OfflineError> {
        Self::open_as(path, false)
    }

    fn open_as(path: &Path, read_only: bool) -> Result<Self, OfflineError> {
        let options = OpenOptions { read_only, lock_wait: LOCK_WAIT, ..OpenOptions::default() };
        let disk = Disk::open(path, &options)?;
        Ok(Self { disk })
    }

    /// The device itself, for writing.
    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }
}

impl Source for Image {
    fn blocks(&self) -> u64 {
        self.disk.size_bytes() / BLOCK_BYTES
    }

    fn read(&self, first: u64, pages: &mut [MetaPage]) -> u64 {
        let count = self.blocks().saturating_sub(first).min(pages.len() as u64) as usize;
        let (inside, outside) = pages.split_at_mut(count);
        for page in outside {
            page.0.fill(0);
        }
        if self.read_batch(first, inside).is_ok() {
            return 0;
        }
        // A sector that can't be read costs its page, not its neighbours.
        let mut unreadable = 0;
        for (block, page) in (first..).zip(inside) {
            if self.read_batch(block, std::slice::from_mut(page)).is_err() {
                page.0.fill(0);
                unreadable += 1;
            }
        }
        unreadable
    }
}

impl Image {
    fn read_batch(&self, first: u64, pages: &mut [MetaPage]) -> rustix::io::Result<()> {
        let mut done = 0;
        while done < pages.len() {
            let rest = pages[done..].iter_mut().take(PAGES_A_READ);
            let mut slices: Vec<_> =
                rest.map(|page| IoSliceMut::new(page.0.as_mut_slice())).collect();
            let at = (first + done as u64) * BLOCK_BYTES;
            match rustix::io::preadv(&self.disk, &mut slices, at) {
                // The rest of a page that was cut short is read again, with the whole page.
                Ok(bytes) if bytes as u64 >= BLOCK_BYTES => done += bytes / BLOCK_BYTES as usize,
                Ok(_) => return Err(Errno::IO),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

impl Source for [MetaPage] {
    fn blocks(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, first: u64, pages: &mut [MetaPage]) -> u64 {
        for (block, page) in (first..).zip(pages) {
            match usize::try_from(block).ok().and_then(|block| self.get(block)) {
                Some(there) => page.0.copy_from_slice(&there.0),
                None => page.0.fill(0),
            }
        }
        0
    }
}
