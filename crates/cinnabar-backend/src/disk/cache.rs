//! The cache device: made at its size, recognised, and never taken from another process.

use super::error::{DiskError, DiskErrorKind};
use super::fresh::Fresh;
use super::image_format::format_of;
use super::lock::lock;
use super::open::{OpenOptions, TRIES, is_at, warn_buffered};
use super::{Disk, DiskKind, blocking};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Superblock, SuperblockError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    FallocateFlags, Mode, OFlags, fallocate, fcntl_getfl, fcntl_setfl, fsync, ftruncate,
};
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;

/// How a cache device is opened.
#[derive(Clone, Debug, Default)]
pub struct CacheOptions {
    /// Size of a file that is made or formatted, in bytes; ignored for block devices.
    pub size_bytes: Option<u64>,
    /// Take the device whatever is on it, unless it is a Cinnabar cache that can be used.
    pub force: bool,
    /// Treat a Cinnabar cache as blank, too.
    pub format: bool,
    /// Parts of a file that is made or formatted that get their space now, in order; `None`: all of
    /// it. The rest is a hole.
    pub room: Option<Vec<Range<u64>>>,
    /// The rest; `read_only` is ignored.
    pub open: OpenOptions,
}

/// What is on a cache device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A Cinnabar cache.
    Ours(Superblock),
    /// Nothing, or something that `force` gives up: to be formatted.
    Blank,
}

/// A cache device, open and locked.
#[derive(Debug)]
pub struct CacheDisk {
    /// The device.
    pub disk: Disk,
    /// What is on it.
    pub contents: Contents,
}

impl CacheDisk {
    /// Says of a cache file that it was not made with this size.
    pub fn warn_of_size(&self, wanted: Option<u64>) {
        let Contents::Ours(superblock) = &self.contents else { return };
        let size_bytes = superblock.geometry.device_bytes();
        let other = wanted.is_some_and(|wanted| superblock.geometry.segments_for(wanted).is_err());
        if other && self.disk.kind == DiskKind::File {
            tracing::warn!(
                path = %self.disk.path.display(), size_bytes,
                "the cache keeps the size it was formatted with; for another one remove the file: \
                 the next start makes it, and it is cold"
            );
        }
    }
}

/// Opens a cache device, making the file if there is none.
///
/// # Errors
/// [`DiskError`]; above all [`DiskErrorKind::Foreign`] for foreign data.
pub fn open_cache(path: &Path, options: &CacheOptions) -> Result<CacheDisk, DiskError> {
    let (mut disk, is_new) = open_or_create(path, options)?;
    disk.serve_as_cache();
    if is_new {
        return Ok(CacheDisk { disk, contents: Contents::Blank });
    }
    let contents = inspect(&disk, options)?;
    if disk.progress.is_given_up() {
        return Err(DiskError::new(path, DiskErrorKind::Cancelled));
    }
    if contents == Contents::Blank {
        return blank(path, disk, options);
    }
    if let Contents::Ours(superblock) = &contents {
        let expected = superblock.geometry.device_bytes();
        if disk.size_bytes() < expected && options.force {
            let kind = DiskErrorKind::Short { got: disk.size_bytes(), expected };
            tracing::warn!(path = %path.display(), was = %kind, "formatting it, as --force says");
            return blank(path, disk, options);
        }
        if disk.size_bytes() < expected {
            let kind = DiskErrorKind::Short { got: disk.size_bytes(), expected };
            return Err(DiskError::new(path, kind));
        }
    }
    Ok(CacheDisk { disk, contents })
}

/// Opens a device that is written; a file that is not there is made, and the second is true.
pub(super) fn open_or_create(
    path: &Path,
    options: &CacheOptions,
) -> Result<(Disk, bool), DiskError> {
    let mut options = options.clone();
    options.open.read_only = false;
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match Disk::open_any_size(path, &options.open) {
            Err(DiskError { kind: DiskErrorKind::NotFound, .. }) => match create(path, &options)? {
                Some(disk) => return Ok((disk, true)),
                // Another process was quicker; or it is a link that leads nowhere.
                None if tries == 0 => {
                    return Err(DiskError::from_errno(path, "creating it", Errno::EXIST));
                }
                None => {}
            },
            other => return other.map(|disk| (disk, false)),
        }
    }
}

/// What is to be formatted: a file gets the size that is asked for.
fn blank(path: &Path, mut disk: Disk, options: &CacheOptions) -> Result<CacheDisk, DiskError> {
    if disk.kind == DiskKind::File {
        let size = whole_pages(path, options.size_bytes.unwrap_or(disk.size_bytes()))?;
        allocate(&disk, size, options.room.as_deref())?;
        disk.size_bytes = size.into();
    }
    Ok(CacheDisk { disk, contents: Contents::Blank })
}

impl Disk {
    /// Whether its file system has room for as much of it as `bytes`, what it holds already included;
    /// asked before room is taken, for a kernel gives out all there is and only then says that it is
    /// not enough. Of a device: always. Blocks.
    ///
    /// # Errors
    /// [`DiskErrorKind::NoSpace`], or what the kernel says.
    pub fn check_room(&self, bytes: u64) -> Result<(), DiskError> {
        if self.kind != DiskKind::File {
            return Ok(());
        }
        check_room(self, bytes).map_err(|errno| match errno {
            Errno::NOSPC => DiskError::new(&self.path, DiskErrorKind::NoSpace(bytes)),
            errno => DiskError::from_errno(&self.path, "asking for room", errno),
        })
    }

    /// Writes zeros over a metadata area, so that later durable writes don't pay for holes
    /// (measured: 2.5 times). Blocking; for formatting only.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let failed = |errno| DiskError::from_errno(&self.path, "writing zeros", errno);
        blocking::write_zeros(self, offset, len, &self.progress).map_err(failed)
    }

    /// Reads pages; what lies past the end reads as zeros. Blocking; for opening only.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> Result<(), DiskError> {
        let failed = |errno| DiskError::from_errno(&self.path, "reading superblocks", errno);
        blocking::read_pages(self, pages, offset).map_err(failed)?;
        self.progress.step();
        Ok(())
    }

    /// Writes pages durably. Blocking; for formatting only.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn write_pages(&self, offset: u64, pages: &[MetaPage]) -> Result<(), DiskError> {
        let failed = |errno| DiskError::from_errno(&self.path, "formatting", errno);
        self.progress.go_on().map_err(failed)?;
        blocking::write_pages(self, pages, offset).map_err(failed)?;
        self.keep();
        fsync(&self.fd).map_err(failed)?;
        self.progress.step();
        Ok(())
    }
}

/// Whose data is it?
fn inspect(disk: &Disk, options: &CacheOptions) -> Result<Contents, DiskError> {
    let path = &disk.path;
    let failed = |errno| DiskError::from_errno(path, "reading the first blocks", errno);
    let mut pages = [const { MetaPage::zeroed() }; 2];
    blocking::read_pages(disk, &mut pages, 0).map_err(failed)?;
    let kind = match Superblock::decode(&pages) {
        Ok(_) if options.format => {
            tracing::warn!(path = %path.display(), "it is a cache; formatting it again");
            return Ok(Contents::Blank);
        }
        Ok(superblock) => return Ok(Contents::Ours(superblock)),
        Err(SuperblockError::Foreign) => match first_data(disk).map_err(failed)? {
            Some(at) => DiskErrorKind::Foreign(describe(&pages[0], at)),
            None => return Ok(Contents::Blank),
        },
        Err(error) => DiskErrorKind::Superblock(error),
    };
    if options.force {
        tracing::warn!(path = %path.display(), was = %kind, "formatting it, as --force says");
        return Ok(Contents::Blank);
    }
    Err(DiskError::new(path, kind))
}

/// Where there is a byte that is not zero, looking where file systems, partition tables and RAIDs
/// keep what they need to be recognised: the first MiB, the last MiB (GPT's copy, old RAID), and
/// at 64 and 128 MiB (copies of btrfs and ext4).
pub(super) fn first_data(disk: &Disk) -> rustix::io::Result<Option<u64>> {
    const MIB: u64 = 1 << 20;
    let last = (disk.size_bytes().saturating_sub(MIB)) / 4096 * 4096;
    let mut pages = vec![MetaPage::zeroed(); 256];
    for start in [0, last, 64 * MIB, 128 * MIB] {
        if start >= disk.size_bytes() {
            continue;
        }
        blocking::read_pages(disk, &mut pages, start)?;
        disk.progress.step();
        let found = pages.iter().position(|page| page.0.iter().any(|&byte| byte != 0));
        if let Some(index) = found {
            return Ok(Some(start + index as u64 * 4096));
        }
    }
    Ok(None)
}

/// Says what the data looks like, so that a wrong path is noticed.
pub(super) fn describe(first: &MetaPage, at: u64) -> String {
    let bytes = &first.0;
    if let Some(format) = format_of(first) {
        return format!("it looks like a {format} image");
    }
    let known: [(usize, &[u8], &str); 7] = [
        (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (512, b"EFI PART", "a GPT partition table"),
        (0, b"LUKS\xba\xbe", "an encrypted LUKS volume"),
        (512, b"LABELONE", "an LVM physical volume"),
        (0xff6, b"SWAPSPACE2", "swap space"),
        (510, &[0x55, 0xaa], "a boot sector or partition table"),
    ];
    known.iter().find(|(offset, magic, _)| bytes[*offset..].starts_with(magic)).map_or_else(
        || format!("data at byte {at}"),
        |(_, _, name)| format!("it looks like {name}"),
    )
}

/// Makes the file, really allocated; `None` if another process has made it meanwhile. A failed
/// attempt leaves no file behind, nor does a start that fails before it is formatted, unless
/// another process has locked the file since: then it belongs to that process.
fn create(path: &Path, options: &CacheOptions) -> Result<Option<Disk>, DiskError> {
    let size = options.size_bytes.ok_or_else(|| DiskError::new(path, DiskErrorKind::NoSize))?;
    let size = whole_pages(path, size)?;
    if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        // A device that is not plugged in must not become a file in /dev.
        return Err(DiskError::new(path, DiskErrorKind::NotFound));
    }
    let failed = |errno| DiskError::from_errno(path, "creating it", errno);
    options.open.progress.go_on().map_err(failed)?;
    // Direct I/O is asked for afterwards: some file systems make the file before they refuse it.
    let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let fd = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => fd,
        Err(Errno::EXIST) => return Ok(None),
        Err(Errno::NOENT) => return Err(DiskError::new(path, DiskErrorKind::NoFolder)),
        Err(errno) => return Err(failed(errno)),
    };
    let mut patience = options.open.patience();
    lock(fd.as_fd(), path, false, &mut patience)?;
    // The process that had the lock meanwhile may have formatted it, or put another file in its
    // place.
    if !is_at(fd.as_fd(), path) || rustix::fs::fstat(&fd).map_err(failed)?.st_size > 0 {
        return Ok(None);
    }
    // The same description, so the lock is held until the name is gone.
    let held = rustix::io::fcntl_dupfd_cloexec(&fd, 0).map_err(failed)?;
    let direct = options.open.direct && set_direct(&fd, path);
    let made = Disk::finish(path, fd, direct, &options.open, &mut patience)
        .and_then(|disk| allocate(&disk, size, options.room.as_deref()).map(|()| disk));
    match made {
        Ok(mut disk) => {
            disk.size_bytes = size.into();
            disk.fresh = Some(Fresh::of(&disk));
            // Without its name the cache merely starts cold.
            let _best_effort = sync_folder(path);
            Ok(Some(disk))
        }
        Err(error) => {
            if is_at(held.as_fd(), path) {
                let _ = rustix::fs::unlink(path);
            }
            Err(error)
        }
    }
}

/// Switches direct I/O on, where the file system has it.
fn set_direct(fd: &OwnedFd, path: &Path) -> bool {
    let set = fcntl_getfl(fd).and_then(|flags| fcntl_setfl(fd, flags | OFlags::DIRECT));
    if set.is_err() {
        warn_buffered(path, "its file system refuses O_DIRECT");
    }
    set.is_ok()
}

/// Bytes allocated by one call: each one that ends shows that it gets on.
const ALLOCATED_AT_ONCE: u64 = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Sets a file's size and gives it its space, or these parts of it, so that a full file system is
/// noticed now. What else it held has no space any more.
pub(super) fn allocate(
    disk: &Disk,
    size: u64,
    parts: Option<&[Range<u64>]>,
) -> Result<(), DiskError> {
    let path = &disk.path;
    let all = [Range { start: 0, end: size }];
    let parts = parts.unwrap_or(&all);
    let needed: u64 = parts.iter().map(|part| part.end - part.start).sum();
    let failed = |errno| match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
            DiskError::new(path, DiskErrorKind::NoSpace(needed))
        }
        errno => DiskError::from_errno(path, "allocating", errno),
    };
    check_room(disk, needed).map_err(failed)?;
    disk.progress.go_on().map_err(failed)?;
    // A file of this size is left alone: some of FUSE's file systems can't change one.
    if rustix::fs::fstat(&disk.fd).map_err(failed)?.st_size.cast_unsigned() != size {
        ftruncate(&disk.fd, size).map_err(failed)?;
    }
    let holes = std::iter::once(0).chain(parts.iter().map(|part| part.end));
    let nexts = parts.iter().map(|part| part.start).chain(std::iter::once(size));
    for (start, end) in holes.zip(nexts).filter(|(start, end)| start < end) {
        disk.progress.go_on().map_err(failed)?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&disk.fd, punch, start, end - start) {
            // Where there are no holes, the file is as large as it may get.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => disk.progress.step(),
            Err(errno) => return Err(failed(errno)),
        }
    }
    for part in parts {
        allocate_part(disk, part.clone()).map_err(failed)?;
    }
    fsync(&disk.fd).map_err(failed)
}

fn allocate_part(disk: &Disk, part: Range<u64>) -> rustix::io::Result<()> {
    let Range { mut start, end } = part;
    while start < end {
        disk.progress.go_on()?;
        let len = (end - start).min(ALLOCATED_AT_ONCE);
        match fallocate(&disk.fd, FallocateFlags::empty(), start, len) {
            Ok(()) => {
                start += len;
                disk.progress.step();
            }
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let path = disk.path.display();
                tracing::info!(%path, "no fallocate here; writing zeros instead");
                blocking::write_zeros(disk, start, end - start, &disk.progress)?;
                break;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Asks for the room before taking it: the kernel would give out all there is and only then say
/// that it is not enough, and until then no other process could write. A file system that tells of
/// no room at all may not count it: there, taking it tells.
fn check_room(disk: &Disk, size: u64) -> rustix::io::Result<()> {
    let free = rustix::fs::fstatvfs(&disk.fd)?;
    let free_bytes = free.f_bavail.saturating_mul(free.f_frsize);
    let held_bytes = rustix::fs::fstat(&disk.fd)?.st_blocks.cast_unsigned().saturating_mul(512);
    let tells = free.f_blocks > 0 && free_bytes > 0;
    if tells && size.saturating_sub(held_bytes) > free_bytes { Err(Errno::NOSPC) } else { Ok(()) }
}

pub(super) fn whole_pages(path: &Path, size: u64) -> Result<u64, DiskError> {
    match size / 4096 * 4096 {
        0 => Err(DiskError::new(path, DiskErrorKind::Empty)),
        size if i64::try_from(size).is_err() => {
            Err(DiskError::new(path, DiskErrorKind::NoSpace(size)))
        }
        size => Ok(size),
    }
}

/// Makes a new name itself durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), DiskError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::empty()).and_then(fsync) {
        // Folders of some network file systems have nothing to sync: the server has the name.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(DiskError::from_errno(folder, "sync", errno)),
    }
}
