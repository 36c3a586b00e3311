//! QEMU's locks on an image, so that neither opens what the other one writes.
//!
//! QEMU, its tools and other hypervisors lock single bytes of a file, for reading and by open file description: at
//! 100 one for each thing that they do with it, at 200 one for each thing that nobody else may do meanwhile (QEMU's
//! `block/file-posix.c`). Locks for reading never refuse each other, so each side locks first and then looks at what
//! the others have.

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{StatFs, fstatfs};
use rustix::io::Errno;
use std::ffi::c_short;

/// What its users do with an image: a byte each from here on.
const DOES: i64 = 100;
/// What they keep others from doing: a byte each from here on.
const DENIES: i64 = 200;
/// Bytes of the two.
const ALL: i64 = 200;

/// File systems over SMB, old and new (`statfs(2)`): a lock there keeps its owner from writing what it locks for
/// reading.
const SMB: [u64; 2] = [0xff53_4d42, 0xfe53_4d42];

/// Things that may be done with an image, as they count from [`DOES`] and [`DENIES`].
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Takes them, for reading or for reading and writing. False if QEMU, or who locks as it does, is in the way. Where
/// there are no such locks none is taken.
pub(super) fn try_lock(fd: BorrowedFd<'_>, read_only: bool) -> bool {
    let is_smb = |found: StatFs| SMB.contains(&(found.f_type.cast_unsigned() & 0xffff_ffff));
    if fstatfs(fd).is_ok_and(is_smb) {
        return true;
    }
    let does: &[i64] = if read_only { &[READ] } else { &[READ, WRITE] };
    let denies = [WRITE, RESIZE];
    let own = does.iter().map(|thing| DOES + thing).chain(denies.map(|thing| DENIES + thing));
    for byte in own {
        if let Err(errno) = request(fd, libc::F_OFD_SETLK, libc::F_RDLCK, byte, 1) {
            unlock(fd);
            return !matches!(errno, Errno::AGAIN | Errno::ACCESS);
        }
    }
    let theirs = does.iter().map(|thing| DENIES + thing).chain(denies.map(|thing| DOES + thing));
    let free = { theirs }.all(|byte| {
        let found = request(fd, libc::F_OFD_GETLK, libc::F_WRLCK, byte, 1);
        found.is_ok_and(|kind| kind == libc::F_UNLCK)
    });
    if !free {
        unlock(fd);
    }
    free
}

fn unlock(fd: BorrowedFd<'_>) {
    // What can't be let go of ends with the file.
    let _ = request(fd, libc::F_OFD_SETLK, libc::F_UNLCK, DOES, ALL);
}

/// Sets a lock, or gives the kind of another's that is in its way.
fn request(
    fd: BorrowedFd<'_>,
    command: i32,
    kind: i32,
    start: i64,
    len: i64,
) -> Result<i32, Errno> {
    let mut lock = libc::flock {
        l_type: kind as c_short,
        l_whence: libc::SEEK_SET as c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: both commands read and write one `flock`, and the descriptor is open.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut lock) } {
        0 => Ok(i32::from(lock.l_type)),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::File;

    /// An image that another process has as QEMU has it: these bytes are locked.
    fn other(path: &std::path::Path, bytes: &[i64]) -> File {
        let file = File::open(path).expect("it opens");
        for byte in bytes {
            request(file.as_fd(), libc::F_OFD_SETLK, libc::F_RDLCK, *byte, 1).expect("it is free");
        }
        file
    }

    fn image() -> tempfile::NamedTempFile {
        tempfile::NamedTempFile::new().expect("a temporary file")
    }

    #[test]
    fn what_qemu_writes_is_not_opened_and_what_it_reads_not_written() {
        // qemu-nbd, then `qemu-img convert`, as /proc/locks has them.
        let (writer, reader) = (&[100, 101, 103, 201, 203][..], &[100, 201, 203][..]);
        for (bytes, ours) in [(writer, [false, false]), (reader, [true, false])] {
            let image = image();
            let theirs = other(image.path(), bytes);
            let own = image.reopen().expect("it opens");
            assert_eq!([true, false].map(|read_only| try_lock(own.as_fd(), read_only)), ours);
            drop(theirs);
            assert!(try_lock(own.as_fd(), false), "they are gone");
        }
    }

    #[test]
    fn qemu_sees_what_is_opened_here() {
        for (read_only, bytes) in [(true, &[100, 201, 203][..]), (false, &[100, 101, 201, 203])] {
            let image = image();
            let own = image.reopen().expect("it opens");
            assert!(try_lock(own.as_fd(), read_only));
            let theirs = image.reopen().expect("it opens");
            let seen = |byte: &i64| {
                let found = request(theirs.as_fd(), libc::F_OFD_GETLK, libc::F_WRLCK, *byte, 1);
                found == Ok(libc::F_RDLCK)
            };
            assert_eq!((0..400).filter(seen).collect::<Vec<i64>>(), bytes);
        }
    }

    #[test]
    fn a_try_that_fails_leaves_no_locks() {
        let image = image();
        let theirs = other(image.path(), &[101]);
        let own = image.reopen().expect("it opens");
        assert!(!try_lock(own.as_fd(), false));
        let found = request(theirs.as_fd(), libc::F_OFD_GETLK, libc::F_WRLCK, 201, 1);
        assert_eq!(found, Ok(libc::F_UNLCK));
    }
}
