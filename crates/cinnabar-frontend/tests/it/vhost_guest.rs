//! A front-end and a driver for tests and fuzzing: raw messages, rings written byte by byte,
//! nothing checked. `vhost_library` uses the `vhost` crate's instead.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Bytes of guest memory, in two regions.
pub(crate) const MEMORY: u64 = 4 << 20;
/// Bytes of either region.
pub(crate) const HALF: u64 = MEMORY / 2;
/// Guest address of the second region; the first begins at 0.
pub(crate) const SECOND: u64 = 1 << 32;
/// Where the front-end has the regions in its own addresses, as it claims.
pub(crate) const USER: u64 = 0x7000_0000_0000;
/// Entries of a ring.
pub(crate) const SIZE: u16 = 64;

/// Features: `VERSION_1`, the protocol's features, indirect tables, flush, write-back, discards.
pub(crate) const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 28 | 1 << 9 | 1 << 11 | 3 << 13;
pub(crate) const EVENT_INDEX: u64 = 1 << 29;
/// `VHOST_F_LOG_ALL`: written pages are to be marked.
pub(crate) const LOG_ALL: u64 = 1 << 26;
/// Protocol features: queues, log of dirty pages, acknowledgements, configuration, in-flight notes,
/// memory slots.
pub(crate) const PROTOCOL: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 9 | 1 << 12 | 1 << 15;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Guest memory, which outlives connections and servers.
pub(crate) struct Memory {
    pub(crate) file: OwnedFd,
    first: *mut u8,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, MEMORY).expect("room");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let first = unsafe {
            mmap(std::ptr::null_mut(), MEMORY as usize, access, MapFlags::SHARED, &file, 0)
        };
        Self { file, first: first.expect("mapped").cast() }
    }

    /// The beginning of a larger file.
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn over(file: &OwnedFd) -> Self {
        let file = file.try_clone().expect("a handle");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let first = unsafe {
            mmap(std::ptr::null_mut(), MEMORY as usize, access, MapFlags::SHARED, &file, 0)
        };
        Self { file, first: first.expect("mapped").cast() }
    }

    /// Where a guest address lies in the file.
    fn at(address: u64, len: u64) -> usize {
        let at = if address >= SECOND { address - SECOND + HALF } else { address };
        assert!(at + len <= MEMORY, "the test's own memory");
        at as usize
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let at = Self::at(address, bytes.len() as u64);
        // SAFETY: within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.first.add(at), bytes.len()) };
    }

    pub(crate) fn read(&self, address: u64, len: u64) -> Vec<u8> {
        let at = Self::at(address, len);
        let mut bytes = vec![0; len as usize];
        // SAFETY: within the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(self.first.add(at), bytes.as_mut_ptr(), len as usize);
        }
        bytes
    }

    /// Another mapping of it.
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn map(&self) -> Self {
        Self::over(&self.file)
    }

    /// Words of it, to be shared with other threads.
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn words(&self, at: usize, count: u64) -> &[AtomicU64] {
        assert!(at.is_multiple_of(8) && at as u64 + 8 * count <= MEMORY, "the test's own memory");
        // SAFETY: within the mapping, and aligned; all access by this handle is atomic.
        unsafe { std::slice::from_raw_parts(self.first.add(at).cast(), count as usize) }
    }

    fn index(&self, address: u64) -> &AtomicU16 {
        // SAFETY: within the mapping, and even.
        unsafe { AtomicU16::from_ptr(self.first.add(Self::at(address, 2)).cast()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nothing else has its address.
        let _ = unsafe { munmap(self.first.cast(), MEMORY as usize) };
    }
}

/// A message to be sent.
pub(crate) fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).expect("short");
    let header = [request, 1 | flags, size].map(u32::to_ne_bytes).concat();
    [header, payload.to_vec()].concat()
}

pub(crate) fn numbers(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub(crate) fn pair(index: u32, value: u32) -> Vec<u8> {
    [index.to_ne_bytes(), value.to_ne_bytes()].concat()
}

/// A front-end's end of a connection.
pub(crate) struct Link(pub(crate) OwnedFd);

impl Link {
    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        }
        // The server may have closed already: then that is what the test is about.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, flags);
    }

    /// An answer's kind and payload, if there is one, and its descriptor.
    pub(crate) fn receive(&self) -> Option<(u32, Vec<u8>, Option<OwnedFd>)> {
        let mut header = [0; 12];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut to = [IoSliceMut::new(&mut header)];
        let got = recvmsg(&self.0, &mut to, &mut ancillary, flags).ok()?.bytes;
        if got == 0 {
            return None;
        }
        assert_eq!(got, 12, "a whole header");
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let [request, flags, size] =
            [0, 4, 8].map(|at| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four")));
        assert_eq!(flags, 5, "a reply of version 1");
        let mut payload = vec![0; size as usize];
        if size > 0 {
            let (got, _) = rustix::net::recv(&self.0, &mut payload[..], RecvFlags::DONTWAIT)
                .expect("the payload came with its header");
            assert_eq!(got, size as usize);
        }
        Some((request, payload, fd))
    }

    /// Whether the server has closed.
    pub(crate) fn is_closed(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.0, &mut [0; 1], flags) {
            Ok((_, got)) => got == 0,
            Err(errno) => errno != rustix::io::Errno::AGAIN,
        }
    }
}

/// One queue's rings in guest memory, in the first region.
pub(crate) struct Rings {
    base: u64,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
    /// Next free descriptor; they are never given back one by one.
    pub(crate) next: u16,
    seen: u16,
    /// Where the used ring is to be logged, if it is.
    pub(crate) log: Option<u64>,
}

impl Rings {
    pub(crate) fn new(queue: u32) -> Self {
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd");
        let base = 0x10000 * (u64::from(queue) + 1);
        Self { base, kick: bell(), call: bell(), next: 0, seen: 0, log: None }
    }

    pub(crate) fn descriptors(&self) -> u64 {
        self.base
    }

    pub(crate) fn available(&self) -> u64 {
        self.base + 0x8000
    }

    pub(crate) fn used(&self) -> u64 {
        self.base + 0xa000
    }

    /// As in the front-end's message: index, flags, descriptors, used, available, log.
    pub(crate) fn addresses(&self, queue: u32) -> Vec<u8> {
        let places = [self.descriptors(), self.used(), self.available()].map(|at| USER + at);
        let flags = u32::from(self.log.is_some());
        [pair(queue, flags), numbers(&places), numbers(&[self.log.unwrap_or(0)])].concat()
    }

    pub(crate) fn describe(
        &self,
        memory: &Memory,
        index: u16,
        address: u64,
        len: u32,
        flags: u16,
        next: u16,
    ) {
        let at = self.descriptors() + 16 * u64::from(index);
        memory.write(at, &descriptor(address, len, flags, next));
    }

    /// Makes a chain of (address, length, writable) and offers it; returns its head.
    pub(crate) fn offer(&mut self, memory: &Memory, pieces: &[(u64, u32, bool)]) -> u16 {
        let head = self.next % SIZE;
        for (at, (address, len, writable)) in pieces.iter().enumerate() {
            let index = self.next % SIZE;
            self.next += 1;
            let last = at + 1 == pieces.len();
            let flags = u16::from(!last) * NEXT + u16::from(*writable) * WRITE;
            self.describe(memory, index, *address, *len, flags, self.next % SIZE);
        }
        self.push(memory, head);
        head
    }

    /// Offers a chain's head.
    pub(crate) fn push(&self, memory: &Memory, head: u16) {
        let index = memory.index(self.available() + 2);
        let at = index.load(Ordering::Relaxed);
        let entry = self.available() + 4 + 2 * u64::from(at % SIZE);
        memory.index(entry).store(head, Ordering::Relaxed);
        index.store(at.wrapping_add(1), Ordering::Release);
    }

    pub(crate) fn ring_bell(&self) {
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    /// Whether the device has asked for a kick with the entry just offered.
    pub(crate) fn wants_kick(&self, memory: &Memory, event_index: bool) -> bool {
        if !event_index {
            return memory.index(self.used()).load(Ordering::SeqCst) & 1 == 0;
        }
        let event = memory.index(self.used() + 4 + 8 * u64::from(SIZE)).load(Ordering::SeqCst);
        let new = memory.index(self.available() + 2).load(Ordering::SeqCst);
        new.wrapping_sub(event).wrapping_sub(1) < 1
    }

    /// Asks for a call when the used index passes `event`.
    pub(crate) fn want_call_after(&self, memory: &Memory, event: u16) {
        memory.index(self.available() + 4 + 2 * u64::from(SIZE)).store(event, Ordering::SeqCst);
    }

    /// The chains given back since it was asked last: head and length.
    pub(crate) fn take_used(&mut self, memory: &Memory) -> Vec<(u32, u32)> {
        let now = memory.index(self.used() + 2).load(Ordering::Acquire);
        let mut taken = Vec::new();
        while self.seen != now {
            let entry = self.used() + 4 + 8 * u64::from(self.seen % SIZE);
            let bytes = memory.read(entry, 8);
            let part = |at| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
            taken.push((part(0), part(4)));
            self.seen = self.seen.wrapping_add(1);
        }
        taken
    }

    /// Whether the device has called since it was asked last.
    pub(crate) fn was_called(&self) -> bool {
        rustix::io::read(&self.call, &mut [0; 8]).is_ok()
    }
}

pub(crate) fn descriptor(address: u64, len: u32, flags: u16, next: u16) -> Vec<u8> {
    let ends = [flags.to_le_bytes(), next.to_le_bytes()].concat();
    [&address.to_le_bytes()[..], &len.to_le_bytes(), &ends].concat()
}

/// A request's header.
pub(crate) fn header(kind: u32, sector: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat()
}

/// The messages that set a guest up, with their descriptors, in the order of QEMU's.
pub(crate) fn set_up(
    link: &Link,
    memory: &Memory,
    rings: &[Rings],
    features: u64,
    base: impl Fn(u32) -> u32,
    send: &mut impl FnMut(&Link, u32, &[u8], &[BorrowedFd<'_>]),
) {
    let table = [pair(2, 0), region(0, 0), region(SECOND, HALF)].concat();
    let file = memory.file.as_fd();
    send(link, 2, &numbers(&[features]), &[]);
    send(link, 5, &table, &[file, file]);
    for (queue, rings) in (0..).zip(rings) {
        send(link, 8, &pair(queue, SIZE.into()), &[]);
        send(link, 10, &pair(queue, base(queue)), &[]);
        send(link, 9, &rings.addresses(queue), &[]);
        send(link, 12, &numbers(&[queue.into()]), &[rings.kick.as_fd()]);
        send(link, 13, &numbers(&[queue.into()]), &[rings.call.as_fd()]);
        send(link, 18, &pair(queue, 1), &[]);
    }
}

/// Bytes of a log that covers both regions, and where the second one's part begins.
pub(crate) const LOG_BYTES: u64 = SECOND_LOG + HALF / 4096 / 8;
pub(crate) const SECOND_LOG: u64 = SECOND / 4096 / 8;

/// A file for a log of dirty pages, and the message's payload.
pub(crate) fn log_file(len: u64) -> (OwnedFd, Vec<u8>) {
    let file = memfd_create("log", MemfdFlags::CLOEXEC).expect("a memfd");
    ftruncate(&file, len).expect("room");
    (file, numbers(&[len, 0]))
}

/// A region of the table: half of the memory.
pub(crate) fn region(guest: u64, offset: u64) -> Vec<u8> {
    numbers(&[guest, HALF, USER + offset, offset])
}
