//! One connection: requests out, replies in, straight from and to the memory of jobs.
//!
//! Never blocks.

use super::in_flight::{Command, Flight, InFlight};
use super::job::{Iovecs, Job, Piece};
use super::proto::{self, command, command_flag};
use super::receiver::{Dialect, Reader, Receiver, Violation};
use libc::iovec;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use slab::Slab;
use std::collections::VecDeque;

/// Requests under direction on one connection.
const FLIGHTS_MAX: usize = 128;
/// Replies that are read at a time, with the data of short ones.
const INPUT_BYTES: usize = 64 << 10;
/// Elements of one system call.
const IOVECS_MAX: usize = 256;
/// Calls in a row for one connection before it is the others' turn.
const ROUNDS_MAX: u32 = 8;

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The other side closed it.
    #[error("the server closed the connection")]
    Closed,
    /// The kernel says so.
    #[error("the connection failed: {0}")]
    Failed(Errno),
    /// The server does.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// An answer: the request, and the error that came, if any.
pub(super) type Answer = (Flight, Option<u32>);

/// See the module.
pub(super) struct Link {
    socket: OwnedFd,
    receiver: Receiver,
    in_flight: InFlight,
    /// Requests that are not sent, or the first of them in part.
    out: VecDeque<Outgoing>,
    input: Box<[u8]>,
    /// Bytes of `input` that wait for the rest of what they begin.
    filled: usize,
}

struct Outgoing {
    head: [u8; proto::REQUEST_BYTES],
    cookie: u64,
    /// Bytes of payload behind the head.
    payload: u32,
    sent: usize,
}

impl Link {
    pub(super) fn new(socket: OwnedFd, dialect: Dialect) -> Self {
        Self {
            socket,
            receiver: Receiver::new(dialect),
            in_flight: InFlight::default(),
            out: VecDeque::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            filled: 0,
        }
    }

    /// What to wait for.
    pub(super) fn poll(&self) -> libc::pollfd {
        let write = if self.out.is_empty() { 0 } else { libc::POLLOUT };
        let events = libc::POLLIN | libc::POLLRDHUP | write;
        libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 }
    }

    /// Requests under direction.
    pub(super) fn load(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether another request may be made.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.len() < FLIGHTS_MAX
    }

    /// Queues a request.
    pub(super) fn ask(&mut self, owner: usize, piece: Piece) {
        let Piece { command: kind, offset, len, at, fua, may_punch } = piece;
        let cookie = self.in_flight.add(kind, offset, len, owner, at);
        let (number, flags) = match kind {
            Command::Read => (command::READ, 0),
            Command::Write => (command::WRITE, if fua { command_flag::FUA } else { 0 }),
            Command::Flush => (command::FLUSH, 0),
            Command::Trim => (command::TRIM, 0),
            Command::WriteZeroes => {
                (command::WRITE_ZEROES, if may_punch { 0 } else { command_flag::NO_HOLE })
            }
        };
        let head = request(flags, number, cookie, offset, len);
        let payload = if kind == Command::Write { len } else { 0 };
        self.out.push_back(Outgoing { head, cookie, payload, sent: 0 });
    }

    /// Sends what it can of what is queued.
    pub(super) fn send(&mut self, jobs: &Slab<Job>) -> Result<(), Broken> {
        while !self.out.is_empty() {
            let (mut iovecs, total) = self.outgoing(jobs);
            match transfer(&self.socket, &mut iovecs, Direction::Send) {
                Ok(count) => {
                    self.was_sent(count);
                    if count < total {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Broken::Failed(errno)),
            }
        }
        Ok(())
    }

    /// The bytes that are next, and their number.
    fn outgoing(&self, jobs: &Slab<Job>) -> (Iovecs, usize) {
        let mut iovecs = Iovecs::new();
        for outgoing in &self.out {
            if iovecs.len() >= IOVECS_MAX {
                break;
            }
            let head = &outgoing.head[outgoing.sent.min(proto::REQUEST_BYTES)..];
            if !head.is_empty() {
                iovecs
                    .push(iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() });
            }
            if outgoing.payload > 0 {
                let flight =
                    self.in_flight.get(outgoing.cookie).expect("unanswered before it is sent");
                let done = outgoing.sent.saturating_sub(proto::REQUEST_BYTES) as u64;
                let left = u64::from(outgoing.payload) - done;
                iovecs.extend(jobs[flight.owner].memory(flight.at + done, left));
            }
        }
        iovecs.truncate(IOVECS_MAX);
        let total = iovecs.iter().map(|part| part.iov_len).sum();
        (iovecs, total)
    }

    fn was_sent(&mut self, mut count: usize) {
        while count > 0 {
            let first = self.out.front_mut().expect("no more was sent than there was");
            let left = proto::REQUEST_BYTES + first.payload as usize - first.sent;
            if count < left {
                first.sent += count;
                return;
            }
            count -= left;
            self.in_flight.was_sent(first.cookie);
            self.out.pop_front();
        }
    }

    /// Reads what is there: data to the jobs, answers to `answers`.
    pub(super) fn receive(
        &mut self,
        jobs: &mut Slab<Job>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Broken> {
        for _ in 0..ROUNDS_MAX {
            let (mut iovecs, direct) = self.incoming(jobs);
            let total: usize = iovecs.iter().map(|part| part.iov_len).sum();
            let count = match transfer(&self.socket, &mut iovecs, Direction::Receive) {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Broken::Failed(errno)),
            };
            let mut reader = ToJobs { jobs, answers };
            let put = count.min(direct);
            if put > 0 {
                self.receiver.was_put(put as u32, &mut self.in_flight, &mut reader);
            }
            self.filled += count - put;
            let input = &self.input[..self.filled];
            let used = self.receiver.take(input, &mut self.in_flight, &mut reader)?;
            self.input.copy_within(used..self.filled, 0);
            self.filled -= used;
            if count < total {
                break;
            }
        }
        Ok(())
    }

    /// Where the next bytes go: the rest of a read's data, and how many these are, then the input.
    fn incoming(&mut self, jobs: &Slab<Job>) -> (Iovecs, usize) {
        let mut iovecs = Iovecs::new();
        let mut whole = true;
        if let Some(rest) = self.receiver.rest() {
            assert!(self.filled == 0, "data that are there have been taken");
            let flight = self.in_flight.get(rest.cookie).expect("unanswered while data come");
            iovecs = jobs[flight.owner].memory(flight.at + u64::from(rest.at), rest.len.into());
            whole = iovecs.len() < IOVECS_MAX;
            iovecs.truncate(IOVECS_MAX);
        }
        let direct = iovecs.iter().map(|part| part.iov_len).sum();
        if whole {
            let free = &mut self.input[self.filled..];
            iovecs.push(iovec { iov_base: free.as_mut_ptr().cast(), iov_len: free.len() });
        }
        (iovecs, direct)
    }

    /// Says good-bye, if that is possible at once. Gives the socket, on which the server's end comes.
    pub(super) fn leave(self) -> OwnedFd {
        if self.out.is_empty() {
            let head = request(0, command::DISC, 0, 0, 0);
            let _ = rustix::net::send(&self.socket, &head, rustix::net::SendFlags::NOSIGNAL);
        }
        self.socket
    }
}

/// Puts what arrives into the memory of jobs.
struct ToJobs<'a> {
    jobs: &'a mut Slab<Job>,
    answers: &'a mut Vec<Answer>,
}

impl Reader for ToJobs<'_> {
    fn put(&mut self, flight: &Flight, at: u32, bytes: &[u8]) {
        let mut from = bytes;
        let memory = self.jobs[flight.owner].memory(flight.at + u64::from(at), bytes.len() as u64);
        for part in memory {
            let (now, later) = from.split_at(part.iov_len);
            // SAFETY: the part is memory of a job that is not done; nothing else touches it, and
            // `bytes` is the link's own.
            unsafe {
                std::ptr::copy_nonoverlapping(now.as_ptr(), part.iov_base.cast(), now.len());
            }
            from = later;
        }
    }

    fn zero(&mut self, flight: &Flight, at: u32, len: u32) {
        for part in self.jobs[flight.owner].memory(flight.at + u64::from(at), len.into()) {
            // SAFETY: as above.
            unsafe { part.iov_base.cast::<u8>().write_bytes(0, part.iov_len) };
        }
    }

    fn answered(&mut self, flight: Flight, error: Option<u32>) {
        self.answers.push((flight, error));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Send,
    Receive,
}

/// One system call over a list of buffers; each is either live memory of a job or the link's own.
fn transfer(socket: &OwnedFd, iovecs: &mut [iovec], direction: Direction) -> Result<usize, Errno> {
    // SAFETY: all zeros is a message without address and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iovecs.as_mut_ptr();
    message.msg_iovlen = iovecs.len() as _;
    let fd = socket.as_raw_fd();
    // SAFETY: the list is live and of that length, and so is each buffer: the link's own, or of a
    // job that is not done and whose memory nothing else touches.
    let count = unsafe {
        match direction {
            Direction::Send => {
                libc::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
            }
            Direction::Receive => libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT),
        }
    };
    usize::try_from(count)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

fn request(
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    len: u32,
) -> [u8; proto::REQUEST_BYTES] {
    let mut head = [0; proto::REQUEST_BYTES];
    head[..4].copy_from_slice(&proto::REQUEST_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..24].copy_from_slice(&offset.to_be_bytes());
    head[24..].copy_from_slice(&len.to_be_bytes());
    head
}
