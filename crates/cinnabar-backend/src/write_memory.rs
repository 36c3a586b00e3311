//! The write memory of a write log: a file in a tmpfs or hugetlbfs, mapped. It outlives the daemon, and
//! not the host (`cinnabar_writeback::memory`).

use crate::Memory;
use cinnabar_engine::Payload;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_writeback::memory::{MemoryFile, PAGES_MIN, bytes_of};
use rustix::fd::OwnedFd;
use rustix::fs::{
    FallocateFlags, FileType, FlockOperation, Mode, OFlags, fallocate, fchmod, flock, fstat,
    fstatfs, ftruncate, open,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

/// Fewest bytes of a write memory: each request has to fit.
pub const WRITE_MEMORY_BYTES_MIN: u64 = 8 << 20;
/// Most bytes of one: it is RAM, and all of it goes to the log's device when a guest flushes.
pub const WRITE_MEMORY_BYTES_MAX: u64 = 4 << 30;

const _: () = assert!(bytes_of(PAGES_MIN) < WRITE_MEMORY_BYTES_MIN);

const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58F6;

/// An open and locked write memory.
#[derive(Debug)]
pub struct WriteMemory {
    path: PathBuf,
    /// Keeps the lock.
    _file: OwnedFd,
    start: NonNull<u8>,
    len_bytes: usize,
    was_emptied: bool,
}

// SAFETY: the mapping belongs to the value alone; what is stored in it is stored by its one owner.
unsafe impl Send for WriteMemory {}

/// Why a write memory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum WriteMemoryError {
    /// A call of the system has failed.
    #[error("write memory {path}: {what}: {errno}")]
    System {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system says.
        errno: Errno,
    },
    /// It would be written to a device, sooner or later.
    #[error("write memory {0} is in a file system that is neither tmpfs nor hugetlbfs")]
    FileSystem(PathBuf),
    /// It is something else, or another user's.
    #[error("write memory {0} is not a file of this user that nobody else may use")]
    NotOwn(PathBuf),
    /// Another process has it.
    #[error("write memory {0} is in use by another process")]
    InUse(PathBuf),
    /// It is too small.
    #[error("write memory {path} has {bytes} bytes, at least {WRITE_MEMORY_BYTES_MIN} are needed")]
    Small {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
}

impl WriteMemoryError {
    /// What helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::System { errno: Errno::NOSPC | Errno::NOMEM, .. } => {
                "give the file system more room, or choose a smaller write_memory_size"
            }
            Self::System { .. } => {
                "write_memory names a file, such as /dev/shm/cinnabar/log.memory"
            }
            Self::FileSystem(_) => "put it below /dev/shm, or into a hugetlbfs",
            Self::NotOwn(_) => {
                "run the daemon as the user whose file it is (it may hold acknowledged writes), or choose \
                 another path"
            }
            Self::InUse(_) => "give each daemon a write_memory of its own",
            Self::Small { .. } => "stop the daemon cleanly, remove the file, and start it again",
        }
    }

    /// Whether it may be there later; otherwise it can only be a mistake in the configuration.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::System { .. } | Self::InUse(_))
    }
}

/// Boot of this host, as the kernel calls it.
///
/// # Errors
/// If it does not say.
pub fn boot_id() -> std::io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(id) if digits.len() == 32 => Ok(id.to_be_bytes()),
        _ => Err(std::io::Error::other("the kernel's boot_id is not one")),
    }
}

impl WriteMemory {
    /// Opens the file at `path`, or makes one of `size_bytes` there, and the folder that it is in. One
    /// that is there keeps its size: there may be writes in it.
    ///
    /// # Errors
    /// If it can't be used.
    pub fn open(path: &Path, size_bytes: u64) -> Result<Self, WriteMemoryError> {
        if let Some(folder) = path.parent() {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                system(path, "making its folder", errno)
            })?;
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match open(path, flags, Mode::empty()) {
            Ok(file) => Self::of_file(path, file, size_bytes, false),
            Err(Errno::NOENT) => Self::made(path, size_bytes),
            Err(errno) => Err(system(path, "opening it", errno)),
        }
    }

    /// Makes one. It gets its name when it has its size: an empty file of that name is an operator's
    /// word that writes are lost.
    fn made(path: &Path, size_bytes: u64) -> Result<Self, WriteMemoryError> {
        let failed = |what| move |errno| system(path, what, errno);
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::CREATE;
        let file = open(&name, flags, Mode::RUSR | Mode::WUSR).map_err(failed("making it"))?;
        let made = Self::of_file(path, file, size_bytes, true).and_then(|made| {
            rustix::fs::link(&name, path).map_err(failed("giving it its name"))?;
            Ok(made)
        });
        // That name is the other's who is making one at the same time.
        if !matches!(made, Err(WriteMemoryError::InUse(_))) {
            let _ = std::fs::remove_file(&name);
        }
        made
    }

    /// Opens one that is there, as it is: for tools.
    ///
    /// # Errors
    /// If it is not there, or can't be used.
    pub fn existing(path: &Path) -> Result<Self, WriteMemoryError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(path, flags, Mode::empty());
        Self::of_file(path, file.map_err(|errno| system(path, "opening it", errno))?, 0, false)
    }

    fn of_file(
        path: &Path,
        file: OwnedFd,
        size_bytes: u64,
        is_new: bool,
    ) -> Result<Self, WriteMemoryError> {
        let failed = |what| move |errno| system(path, what, errno);
        let found = fstat(&file).map_err(failed("looking at it"))?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        let mut bytes = u64::try_from(found.st_size).unwrap_or(0);
        let user = rustix::process::geteuid();
        // Tools are root's, too.
        let is_own = found.st_uid == user.as_raw() || size_bytes == 0 && user.is_root();
        let others = Mode::from_raw_mode(found.st_mode).intersects(Mode::RWXG | Mode::RWXO);
        let system_of = fstatfs(&file).map_err(failed("asking for its file system"))?;
        let kind = u64::try_from(system_of.f_type).unwrap_or(0);
        if kind != TMPFS && kind != HUGETLBFS {
            return Err(WriteMemoryError::FileSystem(path.to_owned()));
        }
        // An empty one may be a shell's; others may have opened any other one.
        if !is_file || !is_own || others && bytes > 0 {
            return Err(WriteMemoryError::NotOwn(path.to_owned()));
        }
        if others {
            fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(failed("keeping others out"))?;
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => WriteMemoryError::InUse(path.to_owned()),
            errno => system(path, "locking it", errno),
        })?;
        // What a killed daemon has left of making one is none.
        let was_empty = bytes == 0 || is_new;
        if was_empty && size_bytes > 0 {
            // hugetlbfs: whole pages of its own.
            let page = u64::try_from(system_of.f_bsize).unwrap_or(0).max(BLOCK_BYTES);
            bytes = size_bytes.next_multiple_of(page);
            ftruncate(&file, bytes).map_err(failed("giving it its size"))?;
        }
        if bytes < WRITE_MEMORY_BYTES_MIN {
            return Err(WriteMemoryError::Small { path: path.to_owned(), bytes });
        }
        // A page that is not there when it is looked at or stored to would be a signal. Each time: a
        // file may have got its size without its pages.
        if let Err(errno) = fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            if was_empty {
                // It stays an empty one.
                let _ = ftruncate(&file, 0);
            }
            return Err(system(path, "reserving it", errno));
        }
        let was_emptied = was_empty && !is_new;
        let len_bytes =
            usize::try_from(bytes).map_err(|_| system(path, "mapping it", Errno::NOMEM))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len_bytes, access, MapFlags::SHARED, &file, 0) };
        let start = NonNull::new(start.map_err(failed("mapping it"))?.cast::<u8>());
        let start = start.ok_or_else(|| system(path, "mapping it", Errno::NOMEM))?;
        Ok(Self { path: path.to_owned(), _file: file, start, len_bytes, was_emptied })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It was there, with a size of zero: the operator's word that what was in it is lost.
    pub fn was_emptied(&self) -> bool {
        self.was_emptied
    }

    /// Nothing in it counts any more: its RAM goes back to the host.
    pub fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the write memory stays, though nothing is in it");
        }
    }

    fn address(&self, at: u64, len: usize) -> *mut u8 {
        let end = usize::try_from(at).ok().and_then(|at| at.checked_add(len));
        assert!(end.is_some_and(|end| end <= self.len_bytes), "{len} bytes at {at}");
        self.start.as_ptr().wrapping_add(at as usize)
    }
}

fn system(path: &Path, what: &'static str, errno: Errno) -> WriteMemoryError {
    WriteMemoryError::System { path: path.to_owned(), what, errno }
}

impl Drop for WriteMemory {
    fn drop(&mut self) {
        // SAFETY: its own mapping, to which nothing points any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len_bytes) };
    }
}

impl MemoryFile<Memory> for WriteMemory {
    fn bytes(&self) -> u64 {
        self.len_bytes as u64
    }

    fn load(&self, at: u64, to: &mut [u8]) {
        let from = self.address(at, to.len());
        // SAFETY: the range was checked; `to` is private, and nobody stores to the file meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    fn load_data(&self, at: u64) -> Memory {
        let memory = Memory::alloc(1);
        let (from, to) = (self.address(at, BLOCK_BYTES as usize), memory.address(0, BLOCK_BYTES));
        // SAFETY: both ranges were checked, and the memory is new.
        unsafe { std::ptr::copy_nonoverlapping(from, to, BLOCK_BYTES as usize) }
        memory
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        let to = self.address(at, bytes.len());
        // A process that is killed has done all stores before one instruction and none behind it: only
        // the compiler must not move them.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the range was checked, and `bytes` is not in the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
        compiler_fence(Ordering::SeqCst);
    }

    fn store_data(&self, at: u64, data: &Memory, from: u64) {
        let (to, from) = (self.address(at, BLOCK_BYTES as usize), data.address(from, BLOCK_BYTES));
        compiler_fence(Ordering::SeqCst);
        // SAFETY: both ranges were checked; the log's copy of a write is private.
        unsafe { std::ptr::copy_nonoverlapping(from, to, BLOCK_BYTES as usize) }
        compiler_fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").expect("a folder in memory")
    }

    #[test]
    fn what_was_stored_is_there_again_and_one_process_has_it() {
        let folder = folder();
        let path = folder.path().join("sub/memory");
        let memory = WriteMemory::open(&path, WRITE_MEMORY_BYTES_MIN).expect("it is made");
        memory.store(5, b"abc");
        let data = Memory::alloc(1);
        data.write_at(0, &[7; 4096]);
        memory.store_data(8192, &data, 0);
        let again = WriteMemory::open(&path, WRITE_MEMORY_BYTES_MIN);
        assert!(matches!(again, Err(WriteMemoryError::InUse(_))), "{again:?}");
        drop(memory);
        let memory = WriteMemory::open(&path, 2 * WRITE_MEMORY_BYTES_MIN).expect("it is there");
        assert_eq!(memory.bytes(), WRITE_MEMORY_BYTES_MIN, "it keeps its size");
        let mut bytes = [0; 3];
        memory.load(5, &mut bytes);
        assert_eq!((&bytes, memory.was_emptied()), (b"abc", false));
        assert_eq!(memory.load_data(8192).to_vec(0, 4096), [7; 4096]);
        drop(memory);
        std::fs::File::create(&path).expect("it is emptied");
        let memory = WriteMemory::open(&path, WRITE_MEMORY_BYTES_MIN).expect("it is there");
        assert!(memory.was_emptied());
        memory.remove();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_memory_of_ours_is_refused() {
        let disk = tempfile::tempdir().expect("a folder");
        let path = disk.path().join("memory");
        match WriteMemory::open(&path, WRITE_MEMORY_BYTES_MIN) {
            Err(WriteMemoryError::FileSystem(_)) => {
                assert!(!path.exists(), "nothing is left there");
            }
            Ok(_) => eprintln!("skipped: {} is a tmpfs", disk.path().display()),
            Err(error) => panic!("{error}"),
        }
        let folder = folder();
        let small = folder.path().join("small");
        std::fs::write(&small, [1; 4096]).expect("it is written");
        let open = |path: &Path| WriteMemory::open(path, WRITE_MEMORY_BYTES_MIN);
        // Others may read it.
        assert!(matches!(open(&small), Err(WriteMemoryError::NotOwn(_))));
        let own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&small, own).expect("it is ours");
        assert!(matches!(open(&small), Err(WriteMemoryError::Small { bytes: 4096, .. })));
        std::os::unix::fs::symlink(&small, folder.path().join("link")).expect("a link");
        let link = open(&folder.path().join("link"));
        assert!(matches!(link, Err(WriteMemoryError::System { .. })), "{link:?}");
        assert_eq!(boot_id().expect("the kernel says"), boot_id().expect("the kernel says"));
    }

    /// Such a file was mapped as it was, and a store to it was a signal once the file system was full.
    #[test]
    fn one_without_its_pages_gets_them_and_one_of_a_shell_is_made_private() {
        let folder = folder();
        let path = folder.path().join("memory");
        let file = std::fs::File::create(&path).expect("it is made");
        assert_eq!(file.metadata().expect("it is there").permissions().mode() & 0o077, 0o044);
        file.set_len(WRITE_MEMORY_BYTES_MIN).expect("it grows");
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        let blocks = || {
            use std::os::unix::fs::MetadataExt;
            path.metadata().expect("it is there").blocks() * 512
        };
        assert_eq!(blocks(), 0, "it has no pages");
        let open = || WriteMemory::open(&path, WRITE_MEMORY_BYTES_MIN).expect("it opens");
        assert!(!open().was_emptied() && blocks() == WRITE_MEMORY_BYTES_MIN);
        std::fs::remove_file(&path).expect("it is there");
        drop(std::fs::File::create(&path).expect("it is made"));
        assert!(open().was_emptied());
        let mode = path.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(&path).expect("it is there");
        assert!(!open().was_emptied(), "a new one says nothing");
        let names = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(names, 1, "its first name is gone");
    }
}
