//! The device of a write log: made at its size, recognised, and never taken from another process.
//!
//! What is on it are writes that were acknowledged and that no back end has: nothing here ever
//! formats a device that holds anything, and there is no `--force`.

use super::cache::{allocate, describe, first_data, open_or_create, sync_folder, whole_pages};
use super::error::{DiskError, DiskErrorKind};
use super::open::OpenOptions;
use super::{CacheOptions, Disk, DiskKind, blocking};
use crate::Memory;
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_writeback::format::superblock::{Superblock, SuperblockError};
use cinnabar_writeback::format::{SEGMENTS_MIN, bytes_of, segments_of};
use cinnabar_writeback::recover::Media;
use std::path::Path;

/// A write log's device, open and locked.
#[derive(Debug)]
pub struct WriteLogDisk {
    /// The device.
    pub disk: Disk,
    /// What is on it; `None`: nothing, and it is to be formatted.
    pub superblock: Option<Superblock>,
}

/// Opens the device of a write log. A file that is not there is made, with `size_bytes`.
///
/// # Errors
/// [`DiskError`]; above all [`DiskErrorKind::NoWriteLog`] for other data.
pub fn open_write_log(
    path: &Path,
    size_bytes: Option<u64>,
    options: &OpenOptions,
) -> Result<WriteLogDisk, DiskError> {
    let open = options.clone();
    let options = CacheOptions { size_bytes, open, ..CacheOptions::default() };
    let (mut disk, is_new) = open_or_create(path, &options)?;
    if is_new {
        // It will be the only copy of writes that were acknowledged.
        sync_folder(path)?;
    }
    disk.serve_as_cache();
    let superblock = recognise(&disk)?;
    if superblock.is_none() && disk.kind() == DiskKind::File && !is_new {
        let size = whole_pages(path, size_bytes.unwrap_or(disk.size_bytes()))?;
        allocate(&disk, size, None)?;
        disk.size_bytes = size.into();
    }
    let got = disk.size_bytes();
    match superblock {
        Some(superblock) => fits(&disk, superblock)?,
        None if segments_of(got).is_none() => {
            let kind = DiskErrorKind::WriteLogSmall { got, least: bytes_of(SEGMENTS_MIN) };
            return Err(DiskError::new(path, kind));
        }
        None => {}
    }
    Ok(WriteLogDisk { disk, superblock })
}

/// Opens the device of a write log that is there; none is made.
///
/// # Errors
/// [`DiskError`]; above all [`DiskErrorKind::NoWriteLog`] for other data.
pub fn existing_write_log(path: &Path, options: &OpenOptions) -> Result<WriteLogDisk, DiskError> {
    let mut disk = Disk::open(path, options)?;
    disk.serve_as_cache();
    let superblock = recognise(&disk)?;
    if let Some(superblock) = superblock {
        fits(&disk, superblock)?;
    }
    Ok(WriteLogDisk { disk, superblock })
}

/// Whether nothing is on a device, as far as is looked.
///
/// # Errors
/// If it can't be read.
pub fn is_blank(disk: &Disk) -> std::io::Result<bool> {
    Ok(first_data(disk)?.is_none())
}

/// Whether a device holds all that its superblock speaks of.
fn fits(disk: &Disk, superblock: Superblock) -> Result<(), DiskError> {
    let (got, expected) = (disk.size_bytes(), bytes_of(superblock.segments));
    if got >= expected {
        return Ok(());
    }
    Err(DiskError::new(disk.path(), DiskErrorKind::WriteLogShort { got, expected }))
}

/// What is on a device: a write log, nothing, or something that must not be touched.
fn recognise(disk: &Disk) -> Result<Option<Superblock>, DiskError> {
    let path = disk.path();
    let failed = |errno| DiskError::from_errno(path, "reading the first blocks", errno);
    let read = |copy| {
        let mut page = [const { MetaPage::zeroed() }];
        blocking::read_pages(disk, &mut page, copy * BLOCK_BYTES).map(|()| page)
    };
    match superblock_of(read).map_err(failed)? {
        Ok(superblock) => Ok(Some(superblock)),
        Err(SuperblockError::Foreign) => match first_data(disk).map_err(failed)? {
            Some(at) => {
                let [first] = read(0).map_err(failed)?;
                Err(DiskError::new(path, DiskErrorKind::NoWriteLog(describe(&first, at))))
            }
            None => Ok(None),
        },
        Err(error) => Err(DiskError::new(path, DiskErrorKind::WriteLog(error))),
    }
}

/// The superblock that counts: one copy is enough, but what the first one says of a later release counts.
/// `read` gives a copy, 0 or 1.
///
/// # Errors
/// If no copy is one, and one can't be read: that may have been one.
fn superblock_of<E>(
    read: impl Fn(u64) -> Result<[MetaPage; 1], E>,
) -> Result<Result<Superblock, SuperblockError>, E> {
    let mut unreadable = None;
    for copy in 0..2 {
        match read(copy) {
            Err(error) => unreadable = Some(error),
            Ok([page]) => match Superblock::decode(&page) {
                Err(SuperblockError::Foreign) => {}
                found => return Ok(found),
            },
        }
    }
    unreadable.map_or(Ok(Err(SuperblockError::Foreign)), Err)
}

impl Media<Memory> for Disk {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> std::io::Result<()> {
        blocking::read_pages(self, pages, offset)?;
        self.progress().step();
        Ok(())
    }

    fn read_data(&self, offset: u64, blocks: u32) -> std::io::Result<Memory> {
        let memory = Memory::alloc(blocks);
        let mut pages = vec![MetaPage::zeroed(); blocks as usize];
        blocking::read_pages(self, &mut pages, offset)?;
        for (block, page) in (0..).zip(&pages) {
            memory.write_at(block * BLOCK_BYTES, &page.0);
        }
        self.progress().step();
        Ok(memory)
    }

    fn write_page(&self, offset: u64, page: &MetaPage) -> std::io::Result<()> {
        blocking::write_pages(self, std::slice::from_ref(page), offset)?;
        self.keep();
        self.progress().step();
        Ok(())
    }

    fn write_pages(&self, offset: u64, pages: &[MetaPage]) -> std::io::Result<()> {
        blocking::write_pages(self, pages, offset)?;
        self.keep();
        self.progress().step();
        Ok(())
    }

    fn flush(&self) -> std::io::Result<()> {
        rustix::fs::fdatasync(self)?;
        self.progress().step();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_writeback::{Config, recover};

    const SIZE: u64 = 16 << 20;

    fn open(path: &Path) -> Result<WriteLogDisk, DiskError> {
        open_write_log(path, Some(SIZE), &OpenOptions::default())
    }

    #[test]
    fn a_log_is_made_formatted_and_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let made = open(&path).expect("it is made");
        assert_eq!(made.superblock, None);
        recover::format(&made.disk, made.disk.size_bytes(), [7; 16]).expect("it is formatted");
        drop(made);
        let found = open(&path).expect("it is there");
        assert_eq!(found.superblock.map(|superblock| superblock.uuid), Some([7; 16]));
        let size = found.disk.size_bytes();
        let log = recover::open(&found.disk, size, Config::default()).expect("it opens");
        assert_eq!(log.places().count(), 0);
    }

    #[test]
    fn a_copy_that_can_not_be_read_leaves_the_other_one() {
        let log = Superblock { uuid: [7; 16], segments: SEGMENTS_MIN };
        for bad in 0..2 {
            let read = |copy| if copy == bad { Err("EIO") } else { Ok([log.encode()]) };
            assert_eq!(superblock_of(read), Ok(Ok(log)));
            let read = |copy| if copy == bad { Err("EIO") } else { Ok([MetaPage::zeroed()]) };
            assert_eq!(superblock_of(read), Err("EIO"), "it may have been one");
        }
        let blank = |_| Ok::<_, ()>([MetaPage::zeroed()]);
        assert_eq!(superblock_of(blank), Ok(Err(SuperblockError::Foreign)));
    }

    #[test]
    fn what_is_no_log_is_not_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        let mut bytes = vec![0; SIZE as usize];
        bytes[0x438..0x43A].copy_from_slice(&[0x53, 0xEF]);
        std::fs::write(&path, &bytes).expect("it is written");
        let error = open(&path).expect_err("it is a file system");
        assert!(error.to_string().contains("ext2"), "{error}");
        assert_eq!(std::fs::read(&path).expect("it is read"), bytes);
    }

    #[test]
    fn a_file_that_was_cut_short_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let made = open(&path).expect("it is made");
        recover::format(&made.disk, SIZE, [7; 16]).expect("it is formatted");
        drop(made);
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(SIZE / 2))
            .expect("it is cut short");
        let error = open(&path).expect_err("half of it is gone");
        assert!(matches!(error.kind, DiskErrorKind::WriteLogShort { .. }), "{error}");
    }

    #[test]
    fn a_file_that_is_never_formatted_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        drop(open(&path).expect("it is made"));
        assert!(!path.exists());
    }
}
