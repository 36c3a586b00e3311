//! Kicks and calls: eventfds that guest and device ring each other's bell with.
//!
//! Called by the connection and its queues.

use super::reason::DisconnectReason;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, OFlags, fcntl_setfl, readlinkat};
use std::os::fd::AsRawFd;

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

/// Rings. A counter that is full has been rung, too.
pub(super) fn ring(fd: &OwnedFd) {
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

/// Takes note of all rings so far.
pub(super) fn silence(fd: &OwnedFd) {
    let _ = rustix::io::read(fd, &mut [0; 8]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn only_eventfds_are_taken_and_none_blocks() {
        let (pipe, _end) = std::io::pipe().expect("a pipe");
        let error = adopt(pipe.into()).expect_err("a pipe is no eventfd");
        assert_eq!(error, DisconnectReason::NotEventFd);
        let fd = adopt(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")).expect("it is one");
        silence(&fd);
        rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).expect("room");
        // Either would block for ever in a blocking one.
        ring(&fd);
        silence(&fd);
        assert!(rustix::io::read(&fd, &mut [0; 8]).is_err());
    }
}
