//! Kicks and calls: eventfds that guest and device ring each other's bell with.
//!
//! A front-end shares the open file of each eventfd with us and may change its flags and its counter
//! at any moment, so neither side of it may block whatever the flags say:
//!
//! - A kick is read with `RWF_NOWAIT`, which does not look at the flags.
//! - A call can't be a `write`: that blocks while the counter is full, and the kernel knows no
//!   `RWF_NOWAIT` for it (an eventfd has no `write_iter`). But the kernel itself signals eventfds
//!   without ever blocking, as KVM does. So a call is the completion of an asynchronous read of
//!   nothing (`io_submit`, `IOCB_FLAG_RESFD`), which is over before the call returns. All calls of a
//!   turn go out at once.
//!
//! Where asynchronous I/O is not to be had (a kernel without it, a system-call filter), calls are
//! written after a look at the flags; a front-end that cleared `O_NONBLOCK` is not called.

use super::reason::DisconnectReason;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create, readlinkat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::cell::RefCell;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Calls under way at a time, all of which are over when `io_submit` returns.
const BATCH: usize = 32;
/// Completions that the kernel keeps for us; they are thrown away long before that.
const EVENTS: usize = 4 * BATCH;

/// Takes a descriptor for an eventfd, if it is one.
///
/// What kind it is is asked of the kernel alone: any other descriptor could belong to a file system
/// or a socket that answers when it likes. It is made non-blocking, for the one who made it as well;
/// QEMU's are so already.
pub(super) fn adopt(fd: OwnedFd) -> Result<OwnedFd, DisconnectReason> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let kind = readlinkat(CWD, path, Vec::new());
    if !kind.is_ok_and(|kind| kind.as_bytes() == b"anon_inode:[eventfd]") {
        return Err(DisconnectReason::NotEventFd);
    }
    fcntl_setfl(&fd, OFlags::RDWR | OFlags::NONBLOCK).map_err(|_| DisconnectReason::NotEventFd)?;
    Ok(fd)
}

/// Takes note of all rings so far.
pub(super) fn silence(fd: &OwnedFd) {
    let mut counter = [0; 8];
    let mut to = [IoSliceMut::new(&mut counter)];
    // An offset of all ones: where the file stands, as for any other file that has no places.
    let got = preadv2(fd, &mut to, u64::MAX, ReadWriteFlags::NOWAIT);
    // Linux before 5.8 can't.
    if got == Err(Errno::OPNOTSUPP) && does_not_block(fd) {
        let _ = rustix::io::read(fd, &mut [0; 8]);
    }
}

fn does_not_block(fd: &OwnedFd) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

thread_local! {
    /// One for each thread that rings: giving one back takes the kernel milliseconds.
    static KERNEL: RefCell<Option<Kernel>> = RefCell::new(Kernel::new());
}

/// Rings guests' bells, all of a turn at once.
#[derive(Default)]
pub(super) struct Bells {
    due: Vec<Arc<OwnedFd>>,
}

impl Bells {
    /// To be rung with the next [`Self::ring`].
    pub(super) fn add(&mut self, fd: &Arc<OwnedFd>) {
        self.due.push(Arc::clone(fd));
    }

    /// Rings all that are due. A counter that is full has been rung, too.
    pub(super) fn ring(&mut self) {
        if self.due.is_empty() {
            return;
        }
        KERNEL.with_borrow_mut(|kernel| {
            for batch in self.due.chunks(BATCH) {
                match kernel {
                    Some(kernel) => kernel.signal(batch),
                    None => batch.iter().for_each(|fd| write_to(fd)),
                }
            }
        });
        self.due.clear();
    }
}

/// The way without the kernel's help.
fn write_to(fd: &OwnedFd) {
    if does_not_block(fd) {
        let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
    }
}

/// `aio_context_t` of `linux/aio_abi.h`.
type Context = libc::c_ulong;

/// `struct iocb`, in the order of a little-endian machine.
#[repr(C)]
#[derive(Clone, Copy)]
#[cfg(target_endian = "little")]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_file: u32,
}

const _: () = assert!(size_of::<Iocb>() == 64);

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// `IOCB_CMD_PREAD` and `IOCB_FLAG_RESFD`.
const PREAD: u16 = 0;
const RESULT_FILE: u32 = 1;

/// Asynchronous reads of nothing.
struct Kernel {
    context: Context,
    /// An empty file in memory.
    nothing: OwnedFd,
    /// Completions that are not thrown away yet, at most.
    events: usize,
}

impl Kernel {
    /// `None`: not to be had here.
    fn new() -> Option<Self> {
        let nothing = memfd_create("cinnabar-bells", MemfdFlags::CLOEXEC).ok()?;
        let mut context: Context = 0;
        // SAFETY: writes one number to `context`, which is 0 as it has to be.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, EVENTS, &raw mut context) };
        (made == 0).then_some(Self { context, nothing, events: 0 })
    }

    /// Signals all of `fds`, at most [`BATCH`].
    fn signal(&mut self, fds: &[Arc<OwnedFd>]) {
        let mut blocks: [Iocb; BATCH] = [self.block(0); BATCH];
        let mut list = [std::ptr::null_mut::<Iocb>(); BATCH];
        for (at, fd) in fds.iter().enumerate() {
            blocks[at] = self.block(fd.as_raw_fd().cast_unsigned());
        }
        for (place, block) in list.iter_mut().zip(&mut blocks) {
            *place = block;
        }
        let (mut done, mut again) = (0, true);
        while done < fds.len() {
            if self.events + BATCH > EVENTS {
                self.throw_away();
            }
            let left = &mut list[done..fds.len()];
            // SAFETY: `left` are pointers to blocks that live until the call returns; they read
            // nothing into nowhere from an empty file, which is over by then.
            let taken = unsafe {
                let count = left.len();
                libc::syscall(libc::SYS_io_submit, self.context, count, left.as_mut_ptr())
            };
            if let Ok(taken) = usize::try_from(taken) {
                self.events += taken;
                (done, again) = (done + taken, true);
            } else if Errno::from_io_error(&std::io::Error::last_os_error()) != Some(Errno::AGAIN) {
                // One that can't be signalled is passed over: its guest has made it so.
                (done, again) = (done + 1, true);
            } else if again {
                // The kernel has no room. A call must not get lost: its guest could wait without
                // end.
                self.throw_away();
                again = false;
            } else {
                write_to(&fds[done]);
                (done, again) = (done + 1, true);
            }
        }
    }

    fn block(&self, result_file: u32) -> Iocb {
        Iocb {
            data: 0,
            key: 0,
            rw_flags: 0,
            opcode: PREAD,
            priority: 0,
            file: self.nothing.as_raw_fd().cast_unsigned(),
            buffer: 0,
            bytes: 0,
            offset: 0,
            reserved: 0,
            flags: RESULT_FILE,
            result_file,
        }
    }

    /// Makes room for further completions.
    fn throw_away(&mut self) {
        let mut events = [Event::default(); EVENTS];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let to = events.as_mut_ptr();
        // SAFETY: writes at most as many events as there is room for, and waits for none.
        unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0_usize,
                EVENTS,
                to,
                &raw const now,
            );
        }
        self.events = 0;
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: set up in `new`; nothing is under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn blocking() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")
    }

    fn counter(fd: &OwnedFd) -> u64 {
        let mut counter = [0; 8];
        rustix::io::read(fd, &mut counter).expect("it was rung");
        u64::from_ne_bytes(counter)
    }

    #[test]
    fn only_eventfds_are_taken() {
        let (pipe, _end) = std::io::pipe().expect("a pipe");
        let error = adopt(pipe.into()).expect_err("a pipe is no eventfd");
        assert_eq!(error, DisconnectReason::NotEventFd);
        adopt(blocking()).expect("it is one");
    }

    #[test]
    fn neither_an_empty_nor_a_full_counter_blocks_whatever_the_flags() {
        // Any of these calls would block without end if the flags counted.
        let (empty, full) = (blocking(), Arc::new(blocking()));
        silence(&empty);
        rustix::io::write(&*full, &(u64::MAX - 1).to_ne_bytes()).expect("room");
        let mut bells = Bells::default();
        bells.add(&full);
        bells.ring();
        silence(&full);
        silence(&full);
        bells.add(&full);
        bells.ring();
        if KERNEL.with_borrow(Option::is_some) {
            assert_eq!(counter(&full), 1);
        }
    }

    #[test]
    fn no_call_is_lost_when_the_kernel_is_full() {
        let Some(mut kernel) = Kernel::new() else { return };
        let fds: Vec<_> = (0..BATCH).map(|_| Arc::new(adopt(blocking()).expect("one"))).collect();
        // It thinks that there is room, more often than there is for the completions.
        for _ in 0..1000 {
            kernel.events = 0;
            kernel.signal(&fds);
        }
        for fd in fds {
            assert_eq!(counter(&fd), 1000);
        }
    }

    #[test]
    fn all_of_many_are_rung_once_each() {
        let fds: Vec<_> =
            (0..5 * BATCH).map(|_| Arc::new(adopt(blocking()).expect("one"))).collect();
        let mut bells = Bells::default();
        for round in 1..=20 {
            for fd in &fds {
                bells.add(fd);
            }
            bells.ring();
            assert!(bells.due.is_empty());
            if round == 10 {
                // The way for kernels without asynchronous I/O.
                KERNEL.take();
            }
        }
        for fd in fds {
            assert_eq!(counter(&fd), 20);
        }
    }
}
