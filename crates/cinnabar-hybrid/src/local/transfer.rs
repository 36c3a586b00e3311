//! The system calls: transfers of any length, zeroing, copies.

use libc::iovec;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::{Errno, pwrite};
use smallvec::SmallVec;

/// Bytes that a copy moves at a time.
const PIECE_BYTES: usize = 1 << 20;
/// What memory for direct I/O is aligned to.
const ALIGN_BYTES: usize = 4096;
/// Elements of one call.
const PARTS_MAX: usize = 1024;

/// In which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    Write,
}

/// Memory of our own that direct I/O takes.
pub(super) struct Piece {
    bytes: Vec<u8>,
    start: usize,
}

impl Piece {
    pub(super) fn new() -> Self {
        let bytes = vec![0; PIECE_BYTES + ALIGN_BYTES];
        let start = bytes.as_ptr().align_offset(ALIGN_BYTES);
        Self { bytes, start }
    }

    fn get(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }
}

/// Reads into, or writes from, all of this memory.
///
/// # Safety
/// The memory is there, and for a read no one else's.
pub(super) unsafe fn transfer(
    fd: impl AsFd,
    way: Way,
    offset: u64,
    memory: &[iovec],
) -> Result<(), Errno> {
    let raw = fd.as_fd().as_raw_fd();
    let mut rest: SmallVec<[iovec; 4]> = SmallVec::from_slice(memory);
    let (mut at, mut used) = (offset, 0);
    while used < rest.len() {
        let parts = &rest[used..];
        let (first, count) = (parts.as_ptr(), parts.len().min(PARTS_MAX));
        let position = i64::try_from(at).map_err(|_| Errno::INVAL)?;
        let count = i32::try_from(count).map_err(|_| Errno::INVAL)?;
        // SAFETY: a live list of live memory, as the caller vouches.
        let moved = unsafe {
            match way {
                Way::Read => libc::preadv(raw, first, count, position),
                Way::Write => libc::pwritev(raw, first, count, position),
            }
        };
        let Ok(mut moved) = usize::try_from(moved) else {
            match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::INTR) => continue,
                errno => return Err(errno.unwrap_or(Errno::IO)),
            }
        };
        if moved == 0 {
            // Objects have their full length: this one was cut off.
            return Err(if way == Way::Read { Errno::NODATA } else { Errno::IO });
        }
        at += moved as u64;
        while moved > 0 {
            let part = &mut rest[used];
            let taken = moved.min(part.iov_len);
            part.iov_base = part.iov_base.wrapping_byte_add(taken);
            part.iov_len -= taken;
            moved -= taken;
            used += usize::from(part.iov_len == 0);
        }
    }
    Ok(())
}

/// Zeroes a range, giving its room back if `punch`.
pub(super) fn zero(fd: impl AsFd, offset: u64, length: u64, punch: bool) -> Result<(), Errno> {
    let fd = fd.as_fd();
    let way = if punch { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
    loop {
        match fallocate(fd, way | FallocateFlags::KEEP_SIZE, offset, length) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
            other => return other,
        }
    }
    let mut piece = Piece::new();
    let mut at = offset;
    while at < offset + length {
        let len = (offset + length - at).min(PIECE_BYTES as u64) as usize;
        write_all(fd, piece.get(len), at)?;
        at += len as u64;
    }
    Ok(())
}

/// Copies a range; what is a hole stays one, if `thin` and the copy has none there yet. Gives the bytes
/// that were read.
pub(super) fn copy(
    from: impl AsFd,
    to: impl AsFd,
    range: std::ops::Range<u64>,
    thin: bool,
) -> Result<u64, Errno> {
    let (from, to) = (from.as_fd(), to.as_fd());
    let mut piece = Piece::new();
    let (mut at, mut copied) = (range.start, 0);
    while at < range.end {
        let mut end = range.end;
        if thin {
            match seek(from, SeekFrom::Data(at)) {
                Ok(data) => {
                    if let Ok(hole) = seek(from, SeekFrom::Hole(data)) {
                        // A hole may have been punched just where the data began.
                        let hole = hole.max(data + 1);
                        end = end.min(hole.next_multiple_of(ALIGN_BYTES as u64));
                    }
                    // Data may begin within what direct I/O takes at once.
                    at = at.max(data / ALIGN_BYTES as u64 * ALIGN_BYTES as u64);
                }
                // Nothing but a hole follows.
                Err(Errno::NXIO) => break,
                // Without holes all is copied.
                Err(_) => {}
            }
        }
        let len = end.saturating_sub(at).min(PIECE_BYTES as u64) as usize;
        assert!(len > 0 || at >= range.end, "a copy gets on");
        let bytes = piece.get(len);
        read_all(from, bytes, at)?;
        write_all(to, bytes, at)?;
        at += len as u64;
        copied += len as u64;
    }
    Ok(copied)
}

/// Reads as much as there is room for.
pub(super) fn read_all(fd: impl AsFd, bytes: &mut [u8], offset: u64) -> Result<(), Errno> {
    let memory = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: an exclusive borrow that outlives the call.
    unsafe { transfer(fd, Way::Read, offset, &[memory]) }
}

pub(super) fn write_all(fd: impl AsFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    loop {
        match pwrite(&fd, bytes, offset) {
            Ok(n) if n == bytes.len() => return Ok(()),
            Ok(0) => return Err(Errno::IO),
            Ok(n) => return write_all(fd, &bytes[n..], offset + n as u64),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn holes_stay_holes() {
        let (from, to) = (tempfile::tempfile().expect("one"), tempfile::tempfile().expect("two"));
        for file in [&from, &to] {
            file.set_len(4 << 20).expect("a length");
        }
        write_all(&from, &[7; 8192], 1 << 20).expect("written");
        write_all(&from, &[8; 4096], (4 << 20) - 4096).expect("written");
        let copied = copy(&from, &to, 0..4 << 20, true).expect("copied");
        assert!((12_288..1 << 20).contains(&copied), "{copied}");
        let mut bytes = vec![0; 4 << 20];
        read_all(&to, &mut bytes, 0).expect("read");
        assert!(bytes[..1 << 20].iter().all(|b| *b == 0));
        assert!(bytes[1 << 20..][..8192].iter().all(|b| *b == 7));
        assert!(bytes[(4 << 20) - 4096..].iter().all(|b| *b == 8));
        let blocks = to.metadata().expect("a look").blocks() * 512;
        assert!(blocks < 1 << 20, "{blocks} bytes are taken");
        zero(&to, 0, 4 << 20, true).expect("punched");
        read_all(&to, &mut bytes, 0).expect("read");
        assert!(bytes.iter().all(|b| *b == 0));
        assert_eq!(read_all(&to, &mut bytes[..512], 4 << 20), Err(Errno::NODATA));
    }
}
