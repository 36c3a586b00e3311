//! The connection's socket: messages with their descriptors coming in, answers going out.
//!
//! It never blocks: what is incomplete waits for more.

use super::limits::OUTPUT_BYTES_MAX;
use super::proto::{FDS_MAX, HEADER_BYTES, Header};
use super::reason::DisconnectReason;
use cinnabar_engine::seam::units::Instant;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// Room for more descriptors than any message has, so that too many are noticed.
const FDS_ROOM: usize = FDS_MAX + 1;

/// A whole message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// An answer on its way.
#[derive(Debug)]
struct Answer {
    bytes: Vec<u8>,
    sent: usize,
    /// Goes with the first byte.
    fd: Option<OwnedFd>,
}

/// What receiving came to.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message),
    /// Not whole yet.
    Nothing,
    /// The peer has closed; nothing is incomplete.
    Closed,
}

/// A socket with what is incomplete in either direction.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) fd: OwnedFd,
    /// The message that is coming in, and when its first byte came.
    input: Vec<u8>,
    header: Option<Header>,
    fds: Vec<OwnedFd>,
    since: Option<Instant>,
    output: VecDeque<Answer>,
    output_bytes: usize,
    /// A descriptor was sent, and it is not yet known whether it was received.
    fd_sent: bool,
    /// The socket takes no more since then.
    pub(super) blocked_since: Option<Instant>,
}

impl Channel {
    pub(super) const fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            input: Vec::new(),
            header: None,
            fds: Vec::new(),
            since: None,
            output: VecDeque::new(),
            output_bytes: 0,
            fd_sent: false,
            blocked_since: None,
        }
    }

    /// Receives one message, if it is whole.
    pub(super) fn receive(&mut self, now: Instant) -> Result<Received, DisconnectReason> {
        loop {
            // Never more than is missing of this message: the next one's descriptors are its own.
            let wanted = HEADER_BYTES + self.header.map_or(0, |header| header.size);
            let have = self.input.len();
            if have == wanted {
                let Some(header) = self.header.take() else {
                    let bytes = self.input.first_chunk().expect("a header's length");
                    self.header = Some(Header::decode(bytes).ok_or(DisconnectReason::Header)?);
                    continue;
                };
                self.since = None;
                let payload = self.input.split_off(HEADER_BYTES);
                self.input.clear();
                let fds = std::mem::take(&mut self.fds);
                return Ok(Received::Message(Message { header, payload, fds }));
            }
            self.input.resize(wanted, 0);
            let got = receive_into(&self.fd, &mut self.input[have..], &mut self.fds);
            self.input.truncate(have + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) if have == 0 => return Ok(Received::Closed),
                Ok(0) => return Err(DisconnectReason::Truncated),
                Ok(_) if self.fds.len() > FDS_MAX => return Err(DisconnectReason::Descriptors),
                Ok(_) => self.since = self.since.or(Some(now)),
                Err(Receiving::Errno(Errno::AGAIN)) => return Ok(Received::Nothing),
                Err(Receiving::Errno(_)) => return Err(DisconnectReason::Broken),
                Err(Receiving::TooManyFds) => return Err(DisconnectReason::Descriptors),
            }
        }
    }

    /// Queues an answer.
    pub(super) fn answer(&mut self, bytes: Vec<u8>, fd: Option<OwnedFd>) {
        self.output_bytes += bytes.len();
        self.output.push_back(Answer { bytes, sent: 0, fd });
    }

    /// Whether so many answers are unread that no more messages are to be taken.
    pub(super) const fn is_full(&self) -> bool {
        self.output_bytes > OUTPUT_BYTES_MAX
    }

    /// Whether a descriptor may not have been received yet: it is queued, or bytes that were sent
    /// are unread.
    pub(super) fn has_unread_fd(&mut self) -> bool {
        self.fd_sent = self.fd_sent && unread_bytes(&self.fd) > 0;
        self.fd_sent || self.output.iter().any(|answer| answer.fd.is_some())
    }

    /// Whether there is something to send.
    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Since when the peer owes us something: the rest of a message, or reading its answers.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.since.into_iter().chain(self.blocked_since).min()
    }

    /// Sends what the socket takes.
    pub(super) fn send(&mut self, now: Instant) -> Result<(), DisconnectReason> {
        while let Some(answer) = self.output.front_mut() {
            match retry_on_intr(|| send_from(&self.fd, answer)) {
                Ok(sent) => {
                    self.blocked_since = None;
                    self.fd_sent |= answer.fd.take().is_some();
                    answer.sent += sent;
                    self.output_bytes -= sent;
                    if answer.sent == answer.bytes.len() {
                        self.output.pop_front();
                    }
                }
                Err(Errno::AGAIN) => {
                    self.blocked_since = self.blocked_since.or(Some(now));
                    return Ok(());
                }
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(DisconnectReason::PeerClosed),
                Err(_) => return Err(DisconnectReason::Broken),
            }
        }
        Ok(())
    }
}

/// What the peer has not taken from the socket.
fn unread_bytes(socket: &OwnedFd) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: writes one number; the descriptor is open.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if asked == 0 { bytes } else { 0 }
}

enum Receiving {
    Errno(Errno),
    TooManyFds,
}

fn receive_into(
    socket: &OwnedFd,
    to: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> Result<usize, Receiving> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_ROOM))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut to = [IoSliceMut::new(to)];
    let got = retry_on_intr(|| recvmsg(socket, &mut to, &mut ancillary, flags));
    let got = got.map_err(Receiving::Errno)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Receiving::TooManyFds);
    }
    Ok(got.bytes)
}

fn send_from(socket: &OwnedFd, answer: &Answer) -> rustix::io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    let fds = answer.fd.as_ref().map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)), "there is room for one");
    }
    let bytes = [IoSlice::new(&answer.bytes[answer.sent..])];
    sendmsg(socket, &bytes, &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}
