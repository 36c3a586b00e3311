//! One connection: its socket, where its stream stands, what it holds.

mod pieces;
mod receive;

pub(super) use receive::{Outcome, Turn};

use super::export::{Export, ExportId};
use super::handshake::{self, Handshake};
use super::limits::Limits;
use super::load::{Load, Shortage};
use super::mutant::{Mutant, Mutants};
use super::output::{Entry, Output};
use super::peer::Peer;
use super::reason::DisconnectReason;
use super::reply;
use super::request::{Body, Buffers};
use super::shared::Shared;
use super::tls::Link;
use super::transmission::{Pending, Transmission};
use cinnabar_engine::seam::units::Instant;
use cinnabar_engine::seam::{Failure, RawMemory};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// The stream's phase.
enum Phase<M> {
    Handshake(Handshake),
    Transmission(Transmission<M>),
}

pub(super) struct Connection<M> {
    pub(super) fd: OwnedFd,
    pub(super) peer: Peer,
    /// Key of the listener it came from.
    pub(super) listener: u64,
    /// The export it entered.
    pub(super) export: Option<ExportId>,
    /// Everything reserved whose reply has not left.
    pub(super) load: Load,
    /// The part of it that the engine has to answer.
    pub(super) in_engine: Load,
    /// Set once no more requests are read: it closes when all are answered.
    pub(super) closing: Option<DisconnectReason>,
    /// The socket may have data.
    pub(super) readable: bool,
    /// The peer is gone in both directions; what it sent before may still be unread.
    pub(super) hung_up: bool,
    /// The socket took less than it was offered.
    pub(super) blocked: bool,
    /// Reading stopped for want of room.
    pub(super) paused: bool,
    /// Room that its next request lacks, beyond its own bounds.
    pub(super) short: Option<(Shortage, Load)>,
    /// Its place among the server's paused connections, and since when.
    pub(super) waits: Option<(u64, Instant)>,
    /// Already in the server's list of connections to be flushed.
    pub(super) in_dirty: bool,
    /// Already in its backlog.
    pub(super) in_backlog: bool,
    /// What the loop watches it for: reading, writing.
    pub(super) watched: (bool, bool),
    /// Pieces of long requests that it holds.
    pieces: u32,
    phase: Phase<M>,
    /// Bytes received and not taken, from `leftover_at` on.
    leftover: Vec<u8>,
    leftover_at: usize,
    pub(super) output: Output<M>,
    opened_at: Instant,
    /// Since when a message is incomplete.
    message_since: Option<Instant>,
    /// Messages taken.
    pub(super) messages: u64,
    /// If it goes over TLS.
    pub(super) tls: Option<Link>,
    /// What is still to be sent in plain text before it does.
    prelude: Vec<u8>,
}

impl<M: RawMemory> Connection<M> {
    /// A connection that was just accepted; the greeting is queued.
    pub(super) fn new(
        fd: OwnedFd,
        peer: Peer,
        listener: u64,
        now: Instant,
        limits: &Limits,
    ) -> Self {
        let mut output = Output::new();
        output.push(Entry::handshake(handshake::greeting().to_vec()));
        Self {
            fd,
            peer,
            listener,
            export: None,
            load: Load::default(),
            in_engine: Load::default(),
            closing: None,
            readable: true,
            hung_up: false,
            blocked: false,
            paused: false,
            short: None,
            waits: None,
            in_dirty: false,
            in_backlog: false,
            watched: (false, false),
            pieces: 0,
            phase: Phase::Handshake(Handshake::new(limits.options_max)),
            leftover: Vec::new(),
            leftover_at: 0,
            output,
            opened_at: now,
            message_since: None,
            messages: 0,
            tls: None,
            prelude: Vec::new(),
        }
    }

    /// Its client must use TLS.
    pub(super) fn require_tls(&mut self, limits: &Limits) {
        self.phase = Phase::Handshake(Handshake::new(limits.options_max).requiring_tls());
    }

    /// What is to be sent in plain text before TLS.
    pub(super) fn take_prelude(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.prelude)
    }

    /// Goes on over another socket, as a connection that the loop does not know yet; gives the one before.
    pub(super) fn go_on_over(&mut self, socket: OwnedFd, link: Link) -> OwnedFd {
        assert!(
            self.leftover.is_empty() && self.output.is_empty(),
            "nothing of the plain text is left"
        );
        self.tls = Some(link);
        self.watched = (false, false);
        (self.readable, self.blocked, self.paused) = (true, false, false);
        (self.in_dirty, self.in_backlog) = (false, false);
        std::mem::replace(&mut self.fd, socket)
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(super) fn in_handshake(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// Why it ends, if it has nothing more to do.
    pub(super) fn is_finished(&self) -> Option<DisconnectReason> {
        if self.hung_up && self.paused {
            // Level-triggered polls would report it without end, and the replies can't be sent.
            return Some(DisconnectReason::Broken);
        }
        let answered =
            self.in_engine.requests == 0 && self.output.is_empty() && !self.in_long_read();
        if answered || self.hung_up { self.closing } else { None }
    }

    /// Lets the client enter the export it asked for.
    pub(super) fn grant(&mut self, export: &Export) {
        let Phase::Handshake(handshake) = &mut self.phase else { return };
        let mut output = Vec::new();
        let agreed = handshake.grant(export, &mut output);
        self.output.push(Entry::handshake(output));
        self.export = Some(export.id);
        self.phase = Phase::Transmission(Transmission::new(export, agreed));
    }

    /// Turns the client away from it; false if it has to be disconnected.
    pub(super) fn refuse(&mut self, message: &str) -> bool {
        let Phase::Handshake(handshake) = &mut self.phase else { return false };
        let mut output = Vec::new();
        let step = handshake.refuse(message, &mut output);
        self.output.push(Entry::handshake(output));
        step == handshake::Step::Continue
    }

    /// Queues the reply to a request; returns a buffer that is not part of it.
    pub(super) fn reply(
        &mut self,
        pending: &Pending,
        result: Result<Body<M>, Failure>,
    ) -> Option<M> {
        self.in_engine -= pending.load();
        let Phase::Transmission(stream) = &self.phase else { return None };
        let result = result.map_err(reply::errno);
        let (entry, spare) = reply::encode(stream.agreed(), pending, result);
        self.output.push(entry);
        spare
    }

    /// Sends up to `bytes_max` of what is queued, as far as the socket takes it; how many bytes that were.
    pub(super) fn send(
        &mut self,
        bytes_max: usize,
        shared: &mut Shared,
        buffers: &mut impl Buffers<M>,
    ) -> Result<u64, DisconnectReason> {
        let mut released = Load::default();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = self.output.send(shared.now, bytes_max, &mut released, buffers, |pieces| {
            let send = || sendmsg(&self.fd, pieces, &mut SendAncillaryBuffer::default(), flags);
            match retry_on_intr(send) {
                Err(Errno::AGAIN) => Ok(0),
                result => result,
            }
        });
        self.load -= released;
        if let Some(export) = self.export {
            shared.budget.release(export, released);
        }
        let sent = sent.map_err(|_| DisconnectReason::Broken)?;
        shared.stats.sent_bytes += sent.bytes;
        self.pieces -= sent.pieces;
        // A connection that waits for room, this one or another, may find it now.
        shared.released |= released.requests > 0 || (self.paused && sent.bytes > 0);
        self.blocked = sent.blocked;
        Ok(sent.bytes)
    }

    /// Whether time is running for something, so that `overdue` has to be asked now and then.
    pub(super) fn has_timer(&self) -> bool {
        self.in_handshake() || self.message_since.is_some() || self.output.waiting_since().is_some()
    }

    /// Whether it waits for room that others hold.
    pub(super) fn lacks_room(&self) -> bool {
        self.paused && self.short.is_some()
    }

    /// Since when it has held memory that only its client can free: replies that are not read, or a payload
    /// that is not whole.
    pub(super) fn holds_since(&self, mutants: Mutants) -> Option<Instant> {
        if self.load == self.in_engine {
            return None;
        }
        let Phase::Transmission(stream) = &self.phase else { return None };
        let payload = self.message_since.filter(|_| stream.in_payload());
        let reply = if mutants.is(Mutant::HoldRestarts) {
            self.output.waiting_since()
        } else {
            self.output.oldest_since()
        };
        [payload, reply].into_iter().flatten().min()
    }

    /// What took too long.
    pub(super) fn overdue(&self, now: Instant, limits: &Limits) -> Option<DisconnectReason> {
        let late = |since: Option<Instant>, max| since.is_some_and(|at| now.since_ns(at) > max);
        let handshake_since = self.in_handshake().then_some(self.opened_at);
        if late(handshake_since, limits.handshake_ns_max) {
            Some(DisconnectReason::HandshakeTimeout)
        } else if late(self.output.waiting_since(), limits.stall_ns_max) {
            Some(DisconnectReason::OutputStalled)
        } else if late(self.message_since, limits.request_ns_max) {
            Some(DisconnectReason::RequestTimeout)
        } else {
            None
        }
    }

    /// Takes no more requests: it closes when all are answered. What it asked for before is answered
    /// whole.
    pub(super) fn stop(&mut self, shared: &mut Shared, buffers: &mut impl Buffers<M>) {
        if self.closing.is_some() {
            return;
        }
        self.closing = Some(DisconnectReason::Stopping);
        self.forget_leftover();
        self.message_since = None;
        if let Phase::Transmission(stream) = &mut self.phase
            && let Some(load) = stream.forget_payload(buffers)
            && let Some(export) = self.export
        {
            // Nothing is left to hold up the pieces of a long read.
            self.load -= load;
            shared.release(export, load);
        }
    }

    /// Gives up everything it holds, and shuts the socket: the loop may still hold a reference.
    pub(super) fn abandon(&mut self, buffers: &mut impl Buffers<M>) {
        self.output.clear(buffers);
        if let Phase::Transmission(stream) = &mut self.phase {
            stream.abandon(buffers);
        }
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }

    /// Whether the other end has closed or died, although the loop has not reported it yet.
    pub(super) fn is_deserted(&self) -> bool {
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let polled = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_ok() && fds[0].revents().intersects(gone)
    }
}
