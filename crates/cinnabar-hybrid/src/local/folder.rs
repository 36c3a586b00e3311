//! A pool's folder: one file an object, and a mark that says whose it is.

use crate::pools::{LIST_MAX, Listed, Listing, OpenError};
use cinnabar_placement::{Object, Pool};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatxFlags, fsync, openat, statx, unlinkat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The mark's name.
const MARK: &str = "cinnabar-hybrid";
/// Longest mark that is read.
const MARK_BYTES_MAX: usize = 512;

/// See the module.
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    pool: Pool,
    direct: bool,
    align_bytes: u32,
    /// Files that are no objects and belong here.
    own: Vec<String>,
    /// A list that goes on.
    stream: Mutex<Option<Dir>>,
}

/// A file of one letter more or less is another one's: the whole text counts.
fn mark(identity: [u8; 16], pool: Pool) -> String {
    let number = u128::from_be_bytes(identity);
    format!("version 1\nvolume {number:032x}\npool {pool}\n")
}

impl Folder {
    /// Opens a folder of any kind.
    pub(super) fn open(path: &Path, pool: Pool) -> Result<Self, OpenError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => {
                OpenError::MissingPart(format!("the {pool} pool's folder {}", path.display()))
            }
            errno => io(format!("opening the {pool} pool's folder {}", path.display()), errno),
        })?;
        let (own, path) = (vec![MARK.into()], path.to_owned());
        let stream = Mutex::default();
        Ok(Self { fd, path, pool, direct: false, align_bytes: 512, own, stream })
    }

    /// A file that is no object's and belongs here, if it is here.
    pub(super) fn keep(&mut self, path: &Path) {
        let here = path.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
        if let (Some(name), true) =
            (path.file_name(), here == std::fs::canonicalize(&self.path).ok())
        {
            self.own.push(name.to_string_lossy().into_owned());
        }
    }

    /// Makes it the volume's, if it is empty or was made so by an attempt that did not come to its end.
    pub(super) fn make(&self, identity: [u8; 16]) -> Result<(), OpenError> {
        let what = |what: &str| format!("{what} in {}", self.path.display());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = match openat(&self.fd, MARK, flags, Mode::from_raw_mode(0o644)) {
            Ok(fd) => fd,
            Err(Errno::EXIST) => {
                let text = format!("{} is a pool of a hybrid volume", self.path.display());
                return Err(OpenError::Foreign(text));
            }
            Err(errno) => return Err(io(what("making the mark"), errno)),
        };
        let text = mark(identity, self.pool);
        let written = rustix::io::write(&fd, text.as_bytes());
        let done =
            written.and_then(|n| if n == text.len() { fsync(&fd) } else { Err(Errno::NOSPC) });
        done.and_then(|()| fsync(&self.fd)).map_err(|errno| {
            // Without this the next try would take the folder for another volume's.
            self.unmake();
            io(what("writing the mark"), errno)
        })
    }

    /// Takes the mark of a volume away that was not made after all.
    pub(super) fn unmake(&self) {
        let _left = unlinkat(&self.fd, MARK, AtFlags::empty());
    }

    /// Whether it is this pool of this volume; finds out how its files are read.
    pub(super) fn check(&mut self, identity: [u8; 16]) -> Result<(), OpenError> {
        let (pool, path) = (self.pool, self.path.display().to_string());
        let fd = openat(&self.fd, MARK, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let fd = fd.map_err(|errno| match errno {
            Errno::NOENT => OpenError::Foreign(format!(
                "{path} is no pool of a hybrid volume: its file {MARK} is missing (is its file system mounted?)"
            )),
            errno => io(format!("opening {path}/{MARK}"), errno),
        })?;
        let mut bytes = [0; MARK_BYTES_MAX];
        let len = rustix::io::read(&fd, &mut bytes)
            .map_err(|errno| io(format!("reading {path}/{MARK}"), errno))?;
        let text = String::from_utf8_lossy(&bytes[..len]);
        if text != mark(identity, pool) {
            let newer = !text.starts_with("version 1\n") && text.starts_with("version ");
            let what = if newer {
                "was made by a newer version".into()
            } else if text == mark(identity, pool.other()) {
                format!("is the {} pool of this volume, not the {pool} one", pool.other())
            } else {
                format!("is not the {pool} pool of this volume")
            };
            return Err(OpenError::Foreign(format!("{path} {what}")));
        }
        self.settle_direct();
        Ok(())
    }

    /// Direct I/O where the file system has it, in blocks up to 4 KiB.
    fn settle_direct(&mut self) {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        let Ok(fd) = openat(&self.fd, MARK, flags, Mode::empty()) else { return self.warn() };
        let Ok(seen) = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
            return self.warn();
        };
        let tells = StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::DIOALIGN);
        // A file system that does not tell gets blocks of 4 KiB, which all devices take.
        let bytes =
            if tells { seen.stx_dio_mem_align.max(seen.stx_dio_offset_align) } else { 4096 };
        match bytes {
            1..=512 => (self.direct, self.align_bytes) = (true, 512),
            513..=4096 => (self.direct, self.align_bytes) = (true, 4096),
            _ => self.warn(),
        }
    }

    fn warn(&self) {
        let (path, pool) = (self.path.display(), self.pool);
        tracing::warn!(%path, %pool, "no direct I/O in this pool; using the page cache");
    }

    pub(super) fn align_bytes(&self) -> u32 {
        self.align_bytes
    }

    /// Opens an object's file, or makes it.
    pub(super) fn open_object(&self, object: Object, make: bool) -> Result<OwnedFd, Errno> {
        assert_eq!(object.pool, self.pool, "an object of this pool");
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        flags.set(OFlags::CREATE, make);
        flags.set(OFlags::DIRECT, self.direct);
        openat(&self.fd, object.to_string(), flags, Mode::from_raw_mode(0o600))
    }

    /// Removes an object's file, durably; one that is missing is removed.
    pub(super) fn remove_object(&self, object: Object) -> Result<(), Errno> {
        match unlinkat(&self.fd, object.to_string(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => fsync(&self.fd),
            Err(errno) => Err(errno),
        }
    }

    /// Bytes of an object's file, and those that it takes.
    pub(super) fn measure(&self, object: Object) -> Result<(u64, u64), Errno> {
        let seen = statx(
            &self.fd,
            object.to_string(),
            AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::BASIC_STATS,
        )?;
        Ok((seen.stx_size, seen.stx_blocks * 512))
    }

    /// Makes durable which files there are.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        fsync(&self.fd)
    }

    /// The next names of a list that goes on, or begins: in the folder's order, so that each name is read once. One
    /// list at a time.
    pub(super) fn list(&self, goes_on: bool) -> Result<Listing, Errno> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let mut dir = match stream.take() {
            Some(dir) if goes_on => dir,
            _ => Dir::read_from(self.fd.as_fd())?,
        };
        let mut listing = Listing::default();
        while listing.objects.len() < LIST_MAX {
            let Some(entry) = dir.read() else { return Ok(listing) };
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." || self.own.contains(&name) {
                continue;
            }
            listing.objects.push(match Object::parse(&name, self.pool) {
                Ok(object) => Listed::Object(object),
                Err(_) => Listed::Foreign(name),
            });
        }
        listing.next = Some("more".into());
        *stream = Some(dir);
        Ok(listing)
    }
}

/// A call that failed.
pub(super) fn io(during: String, errno: Errno) -> OpenError {
    OpenError::Io { during, errno }
}
