//! A vhost-user front end with much memory that it has not written, which asks for a log of dirty pages late.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Memory of the ring, and all memory of the guest: together somewhat less than a volume allows.
const RING_BYTES: u64 = 1 << 20;
const SPARSE_BYTES: u64 = (2 << 40) - (1 << 31);
const SPARSE_AT: u64 = 1 << 30;
const RING_USER: u64 = 0x7f00_0000_0000;
const SPARSE_USER: u64 = 0x1000;
/// A byte of the log stands for eight pages.
const LOG_BYTES: u64 = (SPARSE_AT + SPARSE_BYTES) / (8 * 4096);

const LOG_ALL: u64 = 1 << 26;
const EVENT_INDEX: u64 = 1 << 29;
/// Flags of a message.
const VERSION_1: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;

/// One that comes again and again with the same files.
pub(super) struct FrontEnd {
    ring: OwnedFd,
    sparse: OwnedFd,
    log: OwnedFd,
    bell: OwnedFd,
}

impl FrontEnd {
    pub(super) fn new() -> Result<Self> {
        let file = |bytes| -> Result<OwnedFd> {
            let file = memfd_create("guest", MemfdFlags::CLOEXEC)?;
            ftruncate(&file, bytes)?;
            Ok(file)
        };
        Ok(Self {
            ring: file(RING_BYTES)?,
            sparse: file(SPARSE_BYTES)?,
            log: file(LOG_BYTES)?,
            bell: eventfd(0, EventfdFlags::NONBLOCK)?,
        })
    }

    /// Connects, starts a ring, has all that is written logged, and gives the log when it is late.
    pub(super) fn come_and_go(&self, socket: &Path) -> Result<()> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let features = tell(&mut stream, 1, &[], None)?;
        let protocol = tell(&mut stream, 15, &[], None)?;
        tell(&mut stream, 16, &[protocol], None)?;
        tell(&mut stream, 2, &[features & !LOG_ALL & !EVENT_INDEX], None)?;
        let table = [1, 0, RING_BYTES, RING_USER, 0];
        tell(&mut stream, 5, &table, Some(self.ring.as_fd()))?;
        tell(&mut stream, 8, &[128 << 32], None)?;
        tell(&mut stream, 10, &[0], None)?;
        let rings =
            [0, 0x1000, 0x7000, 0x5000, 0].map(|at| if at > 0 { RING_USER + at } else { 0 });
        tell(&mut stream, 9, &rings, None)?;
        tell(&mut stream, 13, &[0], Some(self.bell.as_fd()))?;
        tell(&mut stream, 12, &[0], Some(self.bell.as_fd()))?;
        tell(&mut stream, 18, &[1 << 32], None)?;
        let region = [0, SPARSE_AT, SPARSE_BYTES, SPARSE_USER, 0];
        tell(&mut stream, 37, &region, Some(self.sparse.as_fd()))?;
        tell(&mut stream, 2, &[features & !EVENT_INDEX], None)?;
        tell(&mut stream, 6, &[LOG_BYTES, 0], Some(self.log.as_fd())).map(drop)
    }
}

/// Says something and waits for the answer, a number: the acknowledgement, unless it was a question.
fn tell(
    stream: &mut UnixStream,
    kind: u32,
    words: &[u64],
    fd: Option<BorrowedFd<'_>>,
) -> Result<u64> {
    let mut message =
        [kind, VERSION_1 | NEED_REPLY, 8 * words.len() as u32].map(u32::to_ne_bytes).concat();
    message.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let fds: Vec<_> = fd.into_iter().collect();
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    sendmsg(&*stream, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
    let mut answer = [0; 20];
    stream.read_exact(&mut answer)?;
    let number = answer[12..].try_into().expect("eight bytes");
    Ok(u64::from_ne_bytes(number))
}
