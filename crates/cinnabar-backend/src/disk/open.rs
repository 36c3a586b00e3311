//! Opening a file or block device.

use super::error::{DiskError, DiskErrorKind};
use super::lock::{Patience, lock};
use super::progress::Progress;
use super::{Disk, DiskKind, Identity, blocking, durable, ioctl};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat, StatFs, fcntl_getfl, fcntl_setfl, fstat, stat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// I/Os of one disk that a port gives the kernel at a time, at most: more than devices profit from.
const DEPTH_MAX: usize = 256;

/// Times a file is opened that another one has taken the place of meanwhile.
pub(super) const TRIES: u32 = 5;

/// How a disk is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// For reading only, sharing the lock with other readers.
    pub read_only: bool,
    /// Without a lock, for reading only: another process writes it. What is read may not be kept.
    pub unlocked: bool,
    /// The operator vouches that another daemon that has it locked is dead, though the storage does not say
    /// so. Counts where a lock can be broken and its holder fenced off: RBD images.
    pub by_word: bool,
    /// It is to be served as a clone: it must say what it has itself.
    pub is_clone: bool,
    /// Past the page cache, where the file system allows it.
    pub direct: bool,
    /// How long to wait for another process's lock.
    pub lock_wait: Duration,
    /// Ends that wait early once it is set.
    pub cancel: Option<Arc<AtomicBool>>,
    /// Counts the steps of opening, and of formatting what was opened.
    pub progress: Progress,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            unlocked: false,
            by_word: false,
            is_clone: false,
            direct: true,
            lock_wait: Duration::from_secs(30),
            cancel: None,
            progress: Progress::default(),
        }
    }
}

impl OpenOptions {
    /// One wait for all that an opening waits for.
    pub(super) fn patience(&self) -> Patience {
        Patience::new(self.lock_wait, self.cancel.clone(), self.progress.clone())
    }
}

impl Disk {
    /// Opens, locks and measures a file or block device of at least one sector.
    ///
    /// # Errors
    /// [`DiskError`], with a hint.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, DiskError> {
        let disk = Self::open_any_size(path, options)?;
        match disk.size_bytes() {
            0 => Err(DiskError::new(path, DiskErrorKind::Empty)),
            size if !size.is_multiple_of(512) => {
                Err(DiskError::new(path, DiskErrorKind::OddSize(size)))
            }
            _ => Ok(disk),
        }
    }

    /// As [`open`](Self::open), but empty and odd-sized files pass.
    pub(super) fn open_any_size(path: &Path, options: &OpenOptions) -> Result<Self, DiskError> {
        let mut patience = options.patience();
        let mut tries = TRIES;
        loop {
            // Looked at before it is opened: opening a pipe would wait for its other end.
            let before = stat(path).map_err(|errno| DiskError::from_errno(path, "stat", errno))?;
            let kind = disk_kind(path, &before)?;
            let (fd, direct) = open_fd(path, kind, options, &mut patience)?;
            options.progress.step();
            let mut disk = Self::finish(path, fd, direct, options, &mut patience)?;
            // The process that held the lock may have put another file in its place, or removed it.
            // Some file systems give a file another number each time it is looked at.
            tries -= 1;
            disk.had_name = disk.kind == DiskKind::File && is_at(disk.as_fd(), path);
            if disk.kind != DiskKind::File || tries == 0 || disk.had_name {
                return Ok(disk);
            }
        }
    }

    /// Locks and measures what was opened.
    pub(super) fn finish(
        path: &Path,
        fd: OwnedFd,
        direct: bool,
        options: &OpenOptions,
        patience: &mut Patience,
    ) -> Result<Self, DiskError> {
        assert!(options.read_only || !options.unlocked, "who writes has the lock");
        if !options.unlocked {
            lock(fd.as_fd(), path, options.read_only, patience)?;
        }
        let failed = |errno| DiskError::from_errno(path, "stat", errno);
        let stat = fstat(&fd).map_err(failed)?;
        let stat_fs = rustix::fs::fstatfs(&fd).map_err(failed)?;
        let kind = disk_kind(path, &stat)?;
        if kind == DiskKind::Block
            && !options.read_only
            && ioctl::is_read_only(&fd).map_err(failed)?
        {
            return Err(DiskError::new(path, DiskErrorKind::ReadOnly));
        }
        let size_bytes = match kind {
            DiskKind::Block => ioctl::size_bytes(&fd).map_err(failed)?,
            DiskKind::File | DiskKind::Server => stat.st_size.cast_unsigned(),
        };
        let mut disk = Self {
            fresh: None,
            fd,
            remote: None,
            path: path.to_owned(),
            kind,
            size_bytes: size_bytes.into(),
            align_bytes: 512,
            direct,
            read_only: options.read_only,
            in_memory: is_in_memory(&stat_fs, kind),
            nowait: false,
            dsync_is_known: kind == DiskKind::Block || durable::is_known(&stat_fs),
            syncs: durable::Syncs::default(),
            sync_failure_sticks: true,
            had_name: false,
            lost_name: AtomicBool::new(false),
            is_cache: false,
            depth_max: DEPTH_MAX,
            progress: options.progress.clone(),
            identity: Identity::Inode(stat.st_dev, stat.st_ino),
            snapshot: None,
            lineage: None,
        };
        disk.settle_alignment()?;
        disk.nowait = blocking::knows_nowait(disk.as_fd());
        Ok(disk)
    }

    /// Finds the alignment that direct I/O needs, and gives up direct I/O where it can't be kept.
    fn settle_alignment(&mut self) -> Result<(), DiskError> {
        if self.kind == DiskKind::Block {
            let bytes = rustix::fs::ioctl_blksszget(&self.fd)
                .map_err(|errno| DiskError::from_errno(&self.path, "block size", errno))?;
            if bytes > 4096 {
                return Err(DiskError::new(&self.path, DiskErrorKind::BlockSize(bytes)));
            }
            self.align_bytes = if bytes <= 512 { 512 } else { 4096 };
            return Ok(());
        }
        if !self.direct {
            return Ok(());
        }
        match direct_alignment(self.as_fd()) {
            Some(bytes @ (512 | 4096)) if self.size_bytes().is_multiple_of(u64::from(bytes)) => {
                self.align_bytes = bytes;
                Ok(())
            }
            Some(4096) => self.give_up_direct("its size is not a multiple of 4096"),
            _ => self.give_up_direct("its file system has no direct I/O in blocks up to 4096"),
        }
    }

    /// Switches to the page cache on the same description, so that the lock stays. FUA and flush
    /// still mean durable.
    fn give_up_direct(&mut self, reason: &str) -> Result<(), DiskError> {
        let failed = |errno| DiskError::from_errno(&self.path, "switching direct I/O off", errno);
        let flags = fcntl_getfl(&self.fd).map_err(failed)?;
        fcntl_setfl(&self.fd, flags - OFlags::DIRECT).map_err(failed)?;
        warn_buffered(&self.path, reason);
        self.direct = false;
        self.align_bytes = 512;
        Ok(())
    }
}

/// Whether an open file is what its path names.
pub(super) fn is_at(fd: BorrowedFd<'_>, path: &Path) -> bool {
    let named = stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)) == named
}

/// Opens for direct I/O, or through the page cache where that is refused.
fn open_fd(
    path: &Path,
    kind: DiskKind,
    options: &OpenOptions,
    patience: &mut Patience,
) -> Result<(OwnedFd, bool), DiskError> {
    let mut flags = OFlags::CLOEXEC
        | if options.read_only { OFlags::RDONLY } else { OFlags::RDWR }
        | if options.direct { OFlags::DIRECT } else { OFlags::empty() };
    if kind == DiskKind::Block && !options.read_only {
        // For devices only: refused while the device is mounted or belongs to a RAID.
        flags |= OFlags::EXCL;
    }
    loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => return Ok((fd, flags.contains(OFlags::DIRECT))),
            Err(Errno::INTR) => {}
            Err(Errno::INVAL) if flags.contains(OFlags::DIRECT) => {
                warn_buffered(path, "its file system refuses O_DIRECT");
                flags -= OFlags::DIRECT;
            }
            Err(Errno::BUSY) if kind == DiskKind::Block => {
                if !patience.wait(path, || None) {
                    return Err(patience.in_use(path, None));
                }
            }
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if readable_only(path, options) => {
                return Err(DiskError::new(path, DiskErrorKind::ReadOnly));
            }
            Err(errno) => return Err(DiskError::from_errno(path, "open", errno)),
        }
    }
}

pub(super) fn warn_buffered(path: &Path, reason: &str) {
    tracing::warn!(path = %path.display(), reason, "no direct I/O; using the page cache");
}

fn readable_only(path: &Path, options: &OpenOptions) -> bool {
    !options.read_only && rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).is_ok()
}

/// `TMPFS_MAGIC`; a block device's node may lie on such a file system, the device doesn't.
fn is_in_memory(stat: &StatFs, kind: DiskKind) -> bool {
    kind == DiskKind::File && stat.f_type == 0x0102_1994
}

fn disk_kind(path: &Path, stat: &Stat) -> Result<DiskKind, DiskError> {
    let wrong = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(DiskKind::File),
        FileType::BlockDevice => return Ok(DiskKind::Block),
        FileType::Directory => "directory",
        FileType::CharacterDevice => "character device",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        _ => "special file",
    };
    Err(DiskError::new(path, DiskErrorKind::WrongKind(wrong)))
}

/// The alignment of direct I/O on a file, from the kernel or found by trying; `None`: not possible.
fn direct_alignment(fd: BorrowedFd<'_>) -> Option<u32> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    if let Ok(answer) = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::DIOALIGN)
    {
        let bytes = answer.stx_dio_mem_align.max(answer.stx_dio_offset_align);
        return match bytes {
            1..=512 => Some(512),
            513..=4096 => Some(4096),
            _ => None,
        };
    }
    // Before Linux 6.1, and on file systems that don't tell.
    [512, 4096].into_iter().find(|&bytes| blocking::can_read(fd, bytes))
}

/// Locks a folder for as long as the returned descriptor lives, so that one process uses it.
///
/// # Errors
/// [`DiskError`]; above all [`DiskErrorKind::InUse`] once the wait is over.
pub fn lock_folder(folder: &Path, options: &OpenOptions) -> Result<OwnedFd, DiskError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(folder, flags, Mode::empty())
        .map_err(|errno| DiskError::from_errno(folder, "open", errno))?;
    lock(fd.as_fd(), folder, false, &mut options.patience())?;
    Ok(fd)
}
