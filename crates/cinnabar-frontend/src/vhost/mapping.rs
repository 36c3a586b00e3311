//! A file of the front-end's, mapped: guest memory, or the notes of requests under way.

use super::budget::{Account, Charge};
use super::guard::Guard;
use rustix::fs::{fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

const PAGE_BYTES: u64 = 4096;
/// A mapping of this size or more is unmapped by a thread for that: at some 20 ns a page of 4 KiB
/// that was touched it takes 5 s for a guest of 1 TiB, in which no guest would be served.
const LARGE_BYTES: usize = 256 << 20;

/// Why memory can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MappingError {
    /// Not a memfd, nor a file on tmpfs or hugetlbfs.
    #[error("not shared memory")]
    NotShared,
    /// Empty, or its addresses wrap around.
    #[error("an impossible length")]
    Length,
    /// The file is shorter than it should be.
    #[error("its file is too short")]
    TooShort,
    /// The kernel says no.
    #[error("it can't be mapped")]
    Refused,
    /// It is more than the export may have, or this process.
    #[error("too much memory is mapped, or too many regions are")]
    TooMuch,
}

/// A range of a shared memory file.
#[derive(Debug)]
pub(super) struct Mapping {
    /// As mapped: whole pages.
    start: NonNull<u8>,
    mapped_bytes: usize,
    /// The first byte that was asked for, counted from `start`.
    skip: usize,
    len: usize,
    guard: Option<Guard>,
    /// Given back when it is unmapped.
    charge: Option<Charge>,
}

// SAFETY: an address range that stays mapped until it is dropped, wherever that happens. It is
// accessed through raw pointers only, by rules that the users of those have to follow.
unsafe impl Send for Mapping {}
// SAFETY: as above; its own methods only read what never changes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of the file from `offset` on, for `account`.
    ///
    /// The maker of the descriptor can't block anything here: the first call asks the kernel what
    /// kind of file it is without asking the file's own file system (a FUSE one may never answer),
    /// and only memory goes further.
    pub(super) fn new(
        account: &Arc<Account>,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> Result<Self, MappingError> {
        fcntl_get_seals(fd).map_err(|_| MappingError::NotShared)?;
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or(MappingError::Length)?;
        let size = fstat(fd).map_err(|_| MappingError::Refused)?.st_size;
        if u64::try_from(size).map_or(true, |size| end > size) {
            return Err(MappingError::TooShort);
        }
        // Huge pages are mapped as a whole.
        let page = fstatfs(fd).map_or(PAGE_BYTES, |stat| match u64::try_from(stat.f_bsize) {
            Ok(page) if stat.f_type == HUGETLBFS_MAGIC && page.is_power_of_two() => page,
            _ => PAGE_BYTES,
        });
        let skip = offset % page;
        let bytes = (end - (offset - skip)).checked_next_multiple_of(page);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let mapped_bytes = bytes.ok_or(MappingError::Length)?;
        let charge = account.charge(mapped_bytes as u64).ok_or(MappingError::TooMuch)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing.
        let start = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::NORESERVE;
            mmap(std::ptr::null_mut(), mapped_bytes, access, flags, fd, offset - skip)
        };
        let start = start.map_err(|errno| match errno {
            Errno::INVAL => MappingError::Length,
            _ => MappingError::Refused,
        })?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(MappingError::Refused)?;
        // SAFETY: our own mapping, just made. A guest's memory has no business in a core dump of
        // the host's; where that advice is unknown, nothing is lost.
        let _ = unsafe { madvise(start.as_ptr().cast(), mapped_bytes, Advice::LinuxDontDump) };
        let skip = usize::try_from(skip).expect("less than a page");
        let len = usize::try_from(len).expect("less than what was mapped");
        let charge = Some(charge);
        let mut mapping = Self { start, mapped_bytes, skip, len, guard: None, charge };
        mapping.guard = Guard::new(start.as_ptr(), mapped_bytes);
        if mapping.guard.is_none() { Err(MappingError::TooMuch) } else { Ok(mapping) }
    }

    /// The first byte that was asked for.
    pub(super) fn first(&self) -> *mut u8 {
        self.start.as_ptr().wrapping_add(self.skip)
    }

    /// Bytes from there on.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Whether the file was truncated, or the memory failed: what was read may be zeros.
    pub(super) fn is_broken(&self) -> bool {
        self.guard.as_ref().is_none_or(Guard::is_broken)
    }
}

/// `HUGETLBFS_MAGIC` of linux/magic.h.
const HUGETLBFS_MAGIC: rustix::fs::FsWord = 0x9584_58f6;

impl Drop for Mapping {
    fn drop(&mut self) {
        // No fault can come any more; and the address can't be reused before it is unmapped.
        self.guard = None;
        let start = self.start.as_ptr().expose_provenance();
        let past = Past { start, bytes: self.mapped_bytes, _charge: self.charge.take() };
        if self.mapped_bytes >= LARGE_BYTES {
            unmap_later(past);
        }
    }
}

/// Memory that [`Mapping::new`] mapped and nothing uses any more. It is unmapped when this is
/// dropped, and counts against the limit until then.
struct Past {
    start: usize,
    bytes: usize,
    _charge: Option<Charge>,
}

impl Drop for Past {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: the mapping's owner is gone, and made this once.
        let _ = unsafe { munmap(start, self.bytes) };
    }
}

/// Leaves it to a thread, which starts with the first and stays; if there is none, it is done here.
fn unmap_later(past: Past) {
    static THREAD: OnceLock<Option<Sender<Past>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (sender, mappings) = channel::<Past>();
        let thread = std::thread::Builder::new().name("cinnabar-unmap".into());
        let work = move || mappings.into_iter().for_each(drop);
        thread.spawn(work).ok().map(|_| sender)
    });
    if let Some(thread) = thread {
        // What can't be sent comes back with the error and is dropped with it.
        let _ = thread.send(past);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd;

    fn own() -> Arc<Account> {
        Arc::default()
    }

    #[test]
    fn only_memory_that_is_there_is_mapped() {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, 16 << 10).expect("room");
        let map =
            |offset, len| Mapping::new(&own(), file.as_fd(), offset, len).map(|one| one.len());
        assert_eq!(map(0, 16 << 10), Ok(16 << 10));
        assert_eq!(map(5000, 100), Ok(100));
        assert_eq!(map(0, (16 << 10) + 1), Err(MappingError::TooShort));
        assert_eq!(map(4096, u64::MAX - 4095), Err(MappingError::Length));
        assert_eq!(map(1 << 20, 0), Err(MappingError::Length));
        let mapping = Mapping::new(&own(), file.as_fd(), 5000, 100).expect("mapped");
        // SAFETY: within the mapping.
        unsafe { mapping.first().write(9) };
        let mut byte = [0];
        rustix::io::pread(&file, &mut byte, 5000).expect("readable");
        assert_eq!(byte, [9]);
    }

    #[test]
    fn large_memory_is_unmapped_too_though_later() {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, LARGE_BYTES as u64).expect("room");
        let mapping = Mapping::new(&own(), file.as_fd(), 0, LARGE_BYTES as u64).expect("mapped");
        let place = format!("{:x}-", mapping.first().addr());
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
            maps.lines().any(|line| line.starts_with(&place) && line.contains("memfd:guest"))
        };
        assert!(is_mapped());
        drop(mapping);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while is_mapped() {
            assert!(std::time::Instant::now() < deadline, "it is still there");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn a_file_on_disk_a_pipe_and_a_socket_are_no_memory() {
        let (pipe, _end) = std::io::pipe().expect("a pipe");
        let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        ftruncate(&disk, 8192).expect("room");
        for fd in [pipe.as_fd(), socket.as_fd(), disk.as_fd()] {
            assert_eq!(Mapping::new(&own(), fd, 0, 4096).err(), Some(MappingError::NotShared));
        }
    }
}
