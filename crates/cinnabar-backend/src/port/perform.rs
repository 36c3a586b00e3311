//! Doing a task with blocking system calls.

use super::extents;
use super::job::Done;
use super::task::{BlockingOp, Progress, Step, Task};
use crate::disk::{self, Disk};
use libc::iovec;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::time::Duration;

/// Pauses between tries of a call that is refused for the moment.
const PAUSE: Duration = Duration::from_millis(1);
/// Their number, after which the refusal is final.
const PAUSES_MAX: u32 = 10_000;

/// Does all of a task.
pub(super) fn perform(mut task: Task, disk: &Disk) -> Done {
    let mut pauses = 0;
    loop {
        let result = step(&mut task, disk);
        match task.advance(result) {
            Progress::More => {}
            Progress::Patiently if pauses < PAUSES_MAX => {
                pauses += 1;
                std::thread::sleep(PAUSE);
            }
            Progress::Patiently => return task.finish(Err(Errno::AGAIN)),
            Progress::End(result) => return task.finish(result),
        }
    }
}

/// Does the next call of a task.
pub(super) fn step(task: &mut Task, disk: &Disk) -> Result<usize, Errno> {
    let fd = disk.as_fd().as_raw_fd();
    match task.step() {
        Step::Read { offset, iovecs } => {
            // SAFETY: each element is memory that the task owns, and the list is a live slice no
            // longer than the kernel's bound.
            let count = unsafe {
                libc::preadv(fd, iovecs.as_ptr(), count_of(iovecs), offset.cast_signed())
            };
            counted(count)
        }
        Step::Write { offset, iovecs, dsync } => {
            let flags = if dsync { libc::RWF_DSYNC } else { 0 };
            // SAFETY: as above.
            let count = unsafe {
                let len = count_of(iovecs);
                libc::pwritev2(fd, iovecs.as_ptr(), len, offset.cast_signed(), flags)
            };
            counted(count)
        }
        Step::Sync => disk.sync(disk::SyncExtent::Data).map(|()| 0),
        Step::Allocate { mode, span } => {
            rustix::fs::fallocate(disk, mode, span.offset, span.len).map(|()| 0)
        }
        Step::BlockingOp { what, span } => {
            match what {
                BlockingOp::Discard => disk::discard(disk, span.offset, span.len)?,
                BlockingOp::ZeroOut => disk::zero_out(disk, span.offset, span.len)?,
                BlockingOp::Extents => task.extents = extents::find(disk, span)?,
            }
            Ok(0)
        }
    }
}

fn count_of(iovecs: &[iovec]) -> i32 {
    i32::try_from(iovecs.len()).expect("at most IOVECS_MAX")
}

fn counted(count: isize) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}
