//! A vhost-user front end: with much memory that it has not written, of which it asks for a log of dirty pages late;
//! or with requests without a pause.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use std::io::{ErrorKind, IoSlice, Read, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Memory of the ring, and all memory of the guest: together somewhat less than a volume allows.
const RING_BYTES: u64 = 64 << 20;
const SPARSE_BYTES: u64 = (2 << 40) - (1 << 31);
const SPARSE_AT: u64 = 1 << 30;
const RING_USER: u64 = 0x7f00_0000_0000;
const SPARSE_USER: u64 = 0x1000;
/// A byte of the log stands for eight pages.
const LOG_BYTES: u64 = (SPARSE_AT + SPARSE_BYTES) / (8 * 4096);

/// Descriptors, and where all is.
const RING: u64 = 256;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x5000;
const USED: u64 = 0x7000;
const HEADERS: u64 = 0x8000;
const STATUSES: u64 = 0x9000;
const DATA: u64 = 0x10000;
/// Requests of a flood at a time.
const REQUESTS: u16 = 32;

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
    answered: OwnedFd,
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
            answered: eventfd(0, EventfdFlags::NONBLOCK)?,
        })
    }

    /// Connects, and starts a ring; the features are returned, too.
    fn start(&self, socket: &Path) -> Result<(UnixStream, u64)> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let features = tell(&mut stream, 1, &[], None)?;
        let protocol = tell(&mut stream, 15, &[], None)?;
        tell(&mut stream, 16, &[protocol], None)?;
        tell(&mut stream, 2, &[features & !LOG_ALL & !EVENT_INDEX], None)?;
        let table = [1, 0, RING_BYTES, RING_USER, 0];
        tell(&mut stream, 5, &table, Some(self.ring.as_fd()))?;
        tell(&mut stream, 8, &[RING << 32], None)?;
        tell(&mut stream, 10, &[0], None)?;
        let rings = [DESCRIPTORS, USED, AVAILABLE].map(|at| RING_USER + at);
        tell(&mut stream, 9, &[&[0], &rings[..], &[0]].concat(), None)?;
        tell(&mut stream, 13, &[0], Some(self.answered.as_fd()))?;
        tell(&mut stream, 12, &[0], Some(self.bell.as_fd()))?;
        tell(&mut stream, 18, &[1 << 32], None)?;
        Ok((stream, features))
    }

    /// Connects, has all that is written logged, and gives the log when it is late.
    pub(super) fn come_and_go(&self, socket: &Path) -> Result<()> {
        let (mut stream, features) = self.start(socket)?;
        let region = [0, SPARSE_AT, SPARSE_BYTES, SPARSE_USER, 0];
        tell(&mut stream, 37, &region, Some(self.sparse.as_fd()))?;
        tell(&mut stream, 2, &[features & !EVENT_INDEX], None)?;
        tell(&mut stream, 6, &[LOG_BYTES, 0], Some(self.log.as_fd())).map(drop)
    }

    /// Connects, and reads from the start of the disk until that is over: requests of so many pieces of 4 KiB or, if
    /// there are several, of 256 KiB.
    pub(super) fn flood(&self, socket: &Path, pieces: u16, over: &AtomicBool) -> Result<()> {
        // What is left of an earlier connection.
        pwrite(&self.ring, &vec![0; (DATA - DESCRIPTORS) as usize], DESCRIPTORS)?;
        let piece_bytes = if pieces == 1 { 4096 } else { 256 << 10 };
        for head in 0..REQUESTS {
            let (header, status) = (HEADERS + 16 * u64::from(head), STATUSES + u64::from(head));
            let sector = u64::from(head) * u64::from(pieces) * u64::from(piece_bytes) / 512;
            // The kind 0 is a read.
            pwrite(&self.ring, &[0_u64, sector].map(u64::to_ne_bytes).concat(), header)?;
            let data = |at| (DATA + at * u64::from(piece_bytes), piece_bytes, 2);
            let data = (u64::from(head * pieces)..).take(usize::from(pieces)).map(data);
            let all = [(header, 16, 0)].into_iter().chain(data).chain([(status, 1, 2)]);
            let first = head * (pieces + 2);
            for (at, (address, len, flags)) in (first..).zip(all) {
                let flags = if address == status { flags } else { flags | 1 };
                let rest = [flags, at + 1].map(u16::to_ne_bytes).concat();
                let descriptor =
                    [&address.to_ne_bytes()[..], &u32::to_ne_bytes(len), &rest].concat();
                pwrite(&self.ring, &descriptor, DESCRIPTORS + 16 * u64::from(at))?;
            }
        }
        let (stream, _) = self.start(socket)?;
        let mut free: Vec<u16> = (0..REQUESTS).map(|head| head * (pieces + 2)).collect();
        let (mut offered, mut seen) = (0_u16, 0_u16);
        while !over.load(Ordering::Relaxed) {
            for head in free.drain(..) {
                let place = 4 + 2 * (u64::from(offered) % RING);
                pwrite(&self.ring, &head.to_ne_bytes(), AVAILABLE + place)?;
                offered = offered.wrapping_add(1);
            }
            pwrite(&self.ring, &offered.to_ne_bytes(), AVAILABLE + 2)?;
            rustix::io::write(&self.bell, &1_u64.to_ne_bytes())?;
            while free.is_empty() && !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
                let mut used = [0; 4 + 8 * RING as usize];
                pread(&self.ring, &mut used, USED)?;
                let done = u16::from_ne_bytes([used[2], used[3]]);
                while seen != done {
                    let at = 4 + 8 * (usize::from(seen) % RING as usize);
                    free.push(u16::from_ne_bytes([used[at], used[at + 1]]));
                    seen = seen.wrapping_add(1);
                }
                // Nothing more is said, but for the end.
                if recv(&stream, &mut [0; 8], RecvFlags::DONTWAIT) != Err(Errno::AGAIN) {
                    return Err(ErrorKind::ConnectionReset.into());
                }
            }
        }
        Ok(())
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
