//! The servers of one data thread: NBD and vhost-user connections of the volumes that it serves.
//!
//! A volume's sockets belong to one thread, and with them all of its connections and rings. What
//! becomes of their requests is for the thread to say: the first one hands them to the router,
//! others run them themselves ([`guests`](super::guests)).

use super::guest_limits::{GuestLimits, Held};
use super::plane::Pool;
use cinnabar_backend::Memory;
use cinnabar_backend::port::{Interest, Port};
use cinnabar_config::messages::CacheConfig;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Failure, IoError};
use cinnabar_frontend::nbd::{self, ExportId, Server};
use cinnabar_frontend::vhost;
use cinnabar_frontend::{Body, Incoming, Ready, Ticket, Token, Want};
use std::sync::Arc;

/// What part of the RAM clients' requests may take by default, and how much at most.
const RAM_PART: u64 = 8;
const CLIENT_MEMORY_MAX: u64 = 2 << 30;

/// See the module.
pub(super) struct Front {
    pub(super) nbd: Server<Memory>,
    pub(super) vhost: vhost::Server<Memory>,
    /// Requests that came, by server.
    pub(super) from_nbd: Vec<Incoming<Memory>>,
    pub(super) from_vhost: Vec<Incoming<Memory>>,
    /// What its guests may ask for.
    pub(super) limits: GuestLimits,
}

/// Which server a guest's request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Nbd,
    Vhost,
}

/// Who has the answer to a guest's request coming: a request's name in one server of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// The thread's number.
    pub(super) thread: usize,
    pub(super) side: Side,
    pub(super) ticket: Ticket,
}

/// What requests of clients may take of one thread, over NBD and as much again over vhost-user. (The number of
/// connections is bounded for each thread: volumes that are reached at one address are served by one of
/// them.)
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientLimits {
    threads: u32,
    bytes_max: u64,
}

impl ClientLimits {
    /// One of so many threads' part. `None`: as the machine has RAM.
    pub(super) fn of(cache: &CacheConfig) -> Self {
        let threads = cache.threads.max(1) as u32;
        let bytes = cache.client_memory_bytes.unwrap_or_else(|| {
            let host = rustix::system::sysinfo();
            // Types differ from one architecture to another.
            let ram = (host.totalram as u64).saturating_mul(u64::from(host.mem_unit));
            (ram / RAM_PART).min(CLIENT_MEMORY_MAX)
        });
        Self { threads, bytes_max: bytes / 2 / u64::from(threads) }
    }
}

impl Front {
    /// Servers without exports for one thread; its part of what requests may take.
    pub(super) fn new(waker: cinnabar_backend::Waker, part: ClientLimits) -> Self {
        let ClientLimits { threads, bytes_max } = part;
        let nbd = nbd::Limits::default();
        let requests_max = nbd.requests_max / threads;
        let nbd = nbd::Limits { requests_max, bytes_max, ..nbd };
        let vhost = vhost::Limits::default();
        let requests_max = vhost.requests_max / threads;
        let vhost = vhost::Limits { requests_max, bytes_max, ..vhost };
        Self {
            nbd: Server::new(nbd),
            vhost: vhost::Server::new(vhost, Arc::new(move || waker.wake())),
            from_nbd: Vec::new(),
            from_vhost: Vec::new(),
            limits: GuestLimits::default(),
        }
    }

    /// Has the port watch what the servers want watched.
    pub(super) fn watch(&mut self, port: &mut dyn Port) {
        for interest in self.nbd.take_interests().chain(self.vhost.take_interests()) {
            match interest.want {
                Want::Watch { read, write } => {
                    port.watch(interest.fd, interest.token.0, Interest { read, write });
                }
                Want::Gone => port.unwatch(interest.token.0),
            }
        }
    }

    /// Whether there is something to do, so that the thread must not wait.
    pub(super) fn has_backlog(&self) -> bool {
        self.nbd.has_backlog() || self.vhost.has_backlog() || !self.from_vhost.is_empty()
    }

    /// When [`look`](Self::look) or [`next_held`](Self::next_held) has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let dues = [self.nbd.deadline(), self.vhost.deadline(), self.limits.deadline()];
        dues.into_iter().flatten().min()
    }

    /// A descriptor is ready.
    pub(super) fn on_ready(&mut self, now: Instant, token: u64, ready: Ready) {
        let token = Token(token);
        if token.is_vhost() {
            self.vhost.on_ready(token, ready, now, &mut self.from_vhost);
        } else {
            self.nbd.on_ready(token, ready);
        }
    }

    /// Goes on with what earlier turns have left, and ends what took too long.
    pub(super) fn look(&mut self, now: Instant) {
        if self.nbd.has_backlog() {
            self.nbd.resume(now, &mut Pool, &mut self.from_nbd);
        }
        // While guests are told not to kick, completions must not keep us from looking.
        self.vhost.poll(now);
        if self.vhost.has_backlog() {
            self.vhost.resume(now, &mut Pool, &mut self.from_vhost);
        }
        self.nbd.follow(self.vhost.short_until());
        self.vhost.follow(self.nbd.short_until());
        if self.nbd.deadline().is_some_and(|at| at <= now) {
            self.nbd.tick(now, &mut Pool);
        }
        if self.vhost.deadline().is_some_and(|at| at <= now) {
            self.vhost.tick(now, &mut Pool);
        }
    }

    /// Where requests of one server come.
    pub(super) fn incoming(&mut self, side: Side) -> &mut Vec<Incoming<Memory>> {
        match side {
            Side::Nbd => &mut self.from_nbd,
            Side::Vhost => &mut self.from_vhost,
        }
    }

    /// A request that was held and goes on now. Those whose clients have gone go nowhere: a later client,
    /// here or on another host, may have written since.
    pub(super) fn next_held(&mut self, now: Instant) -> Option<Held> {
        loop {
            let first = self.limits.first_due(now)?;
            let gone = !self.is_waited_for(first.side, first.request.ticket);
            let Some(held) = self.limits.take_due(now, gone) else { continue };
            if !gone && !held.is_late(now) {
                return Some(held);
            }
            self.reply(held.side, held.request.ticket, Err(Failure::Io(IoError::TimedOut)));
        }
    }

    /// Answers a guest.
    pub(super) fn reply(
        &mut self,
        side: Side,
        ticket: Ticket,
        result: Result<Body<Memory>, Failure>,
    ) {
        match side {
            Side::Nbd => self.nbd.reply(ticket, result, &mut Pool),
            Side::Vhost => self.vhost.reply(ticket, result, &mut Pool),
        }
    }

    /// Whether the client of a request that is not answered yet is still there.
    pub(super) fn is_waited_for(&self, side: Side, ticket: Ticket) -> bool {
        match side {
            Side::Nbd => self.nbd.is_waited_for(ticket),
            Side::Vhost => self.vhost.is_waited_for(ticket),
        }
    }

    /// Sends what there is.
    pub(super) fn flush(&mut self, now: Instant) {
        self.nbd.flush(now, &mut Pool);
        self.vhost.flush(now, &mut Pool);
    }

    /// Closes an export to all clients. What is held of their requests goes nowhere.
    pub(super) fn remove(&mut self, export: ExportId) {
        self.nbd.remove_export(export, &mut Pool);
        self.vhost.remove(export, &mut Pool);
        for held in self.limits.remove(export) {
            self.reply(held.side, held.request.ticket, Err(Failure::NoVolume));
        }
    }

    /// Guests that connect from now on see a disk of this size.
    pub(super) fn set_size(&mut self, export: ExportId, size_bytes: u64) {
        self.nbd.set_size(export, size_bytes);
        self.vhost.set_size(export, size_bytes);
    }

    pub(super) fn connections(&self, export: ExportId) -> u32 {
        let all = self.nbd.connections(export) + self.vhost.connections(export);
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// Who is connected to an export, by the connections' own numbers.
    pub(super) fn guests(&self, export: ExportId) -> Vec<(Side, u64)> {
        let nbd = self.nbd.guests(export).iter().map(|guest| (Side::Nbd, *guest));
        nbd.chain(self.vhost.guests(export).iter().map(|guest| (Side::Vhost, *guest))).collect()
    }

    /// Through which connection a request came that is not answered.
    pub(super) fn guest_of(&self, side: Side, ticket: Ticket) -> Option<u64> {
        match side {
            Side::Nbd => self.nbd.guest_of(ticket),
            Side::Vhost => self.vhost.guest_of(ticket),
        }
    }

    /// Requests to an export that the servers have refused themselves.
    pub(super) fn refused(&self, export: ExportId) -> u64 {
        self.nbd.refused(export) + self.vhost.refused(export)
    }

    /// No new clients and requests; those under way, held or not, are answered, then connections end.
    pub(super) fn drain(&mut self, now: Instant) {
        self.limits.lift(now);
        self.nbd.drain(&mut Pool);
        self.vhost.drain(&mut Pool);
    }

    /// After [`drain`](Self::drain): all have ended.
    pub(super) fn is_drained(&self) -> bool {
        self.nbd.is_drained() && self.vhost.is_drained()
    }
}
