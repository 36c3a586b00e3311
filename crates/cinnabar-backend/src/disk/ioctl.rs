//! Requests to block devices that have no system call of their own.

use rustix::fd::AsFd;
use rustix::io;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const BLKZEROOUT: Opcode = opcode::none(0x12, 127);
const BLKROGET: Opcode = opcode::none(0x12, 94);
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);

/// Size of a block device in bytes.
pub(super) fn size_bytes(fd: impl AsFd) -> io::Result<u64> {
    // SAFETY: this request writes one u64.
    unsafe { ioctl(fd, Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Whether a block device is set read-only. Linux lets it be opened for writing all the same.
pub(super) fn is_read_only(fd: impl AsFd) -> io::Result<bool> {
    // SAFETY: this request writes one int.
    let set = unsafe { ioctl(fd, Getter::<BLKROGET, std::ffi::c_int>::new()) };
    set.map(|set| set != 0)
}

/// Tells a block device that a range holds nothing any more.
pub(crate) fn discard(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: this request reads two u64.
    unsafe { ioctl(fd, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}

/// Zeroes a range of a block device, by the device's own means or by writing zeros.
pub(crate) fn zero_out(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: this request reads two u64.
    unsafe { ioctl(fd, Setter::<BLKZEROOUT, [u64; 2]>::new([offset, len])) }
}
