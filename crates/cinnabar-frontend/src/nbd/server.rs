//! The server: owns listeners, exports and connections, and hands requests out and replies back.

mod accept;
mod lifecycle;
mod room;
mod tls;

use super::address::Address;
use super::connection::{Connection, Outcome, Turn};
use super::export::{Export, ExportError, ExportId};
use super::half_open::HalfOpen;
use super::interest::{Interest, Ready, Token};
use super::jobs::{Finished, Jobs};
use super::limits::Limits;
use super::listener::Listener;
use super::load::{Load, Rank, Shortage};
use super::reason::DisconnectReason;
use super::request::{Body, Buffers, Incoming, Ticket};
use super::shared::{Part, Shared, Slot};
use super::socket::{ListenError, SocketAccess};
use super::starved::Starved;
use super::stats::Stats;
use super::table::Table;
use super::tls::StartTls;
use super::transmission::Expect;
use super::turns::Turns;
use cinnabar_engine::seam::units::Instant;
use cinnabar_engine::seam::{Failure, RawMemory};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Set in the tokens of listeners; keys leave this bit free.
const LISTENER: u64 = 1 << 63;

/// The NBD server: all listeners, exports and connections of a daemon.
pub struct Server<M> {
    shared: Shared,
    listeners: Table<Listener>,
    connections: Table<Connection<M>>,
    /// Those among them that are in their handshake.
    half_open: HalfOpen,
    interests: Vec<Interest>,
    /// Connections with output to be sent.
    dirty: Vec<u64>,
    /// Connections with unread data, and other work.
    turns: Turns,
    /// Listeners at which clients may wait, the next one first.
    crowded: VecDeque<u64>,
    /// Connections without room for their next request, in the order of their places: one that takes a request
    /// and waits again goes behind the others.
    paused: BTreeMap<u64, u64>,
    /// The next one's place.
    next_place: u64,
    /// The one among them that has waited longest for what all share.
    starved: Starved<u64>,
    /// When `tick` has to look at all connections.
    next_tick: Option<Instant>,
    /// Changes of parts of sectors.
    jobs: Jobs<M>,
    draining: bool,
    /// What ends TLS for its clients.
    tls: Option<Arc<dyn StartTls>>,
}

impl<M: RawMemory> Server<M> {
    /// A server without exports and listeners. Limits too small for one longest request are raised.
    pub fn new(limits: Limits) -> Self {
        let limits = limits.raised();
        let turns = Turns::new(limits.mutants);
        Self {
            shared: Shared::new(limits),
            listeners: Table::new(),
            connections: Table::new(),
            half_open: HalfOpen::default(),
            interests: Vec::new(),
            dirty: Vec::new(),
            turns,
            crowded: VecDeque::new(),
            paused: BTreeMap::new(),
            next_place: 0,
            starved: Starved::new(),
            next_tick: None,
            jobs: Jobs::new(),
            draining: false,
            tls: None,
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The server's counters, since it was made.
    pub fn stats(&self) -> Stats {
        let Load { requests, bytes } = self.shared.budget.held();
        let mut stats = self.shared.stats;
        (stats.held_requests, stats.held_bytes) = (requests, bytes);
        stats
    }

    /// Connections to one export; 0 if there is no such export.
    pub fn connections(&self, export: ExportId) -> usize {
        self.shared.exports.get(export).map_or(0, |served| served.connections.len())
    }

    /// The connections to one export, by numbers that no later connection gets.
    pub fn guests(&self, export: ExportId) -> &[u64] {
        self.shared.exports.get(export).map_or(&[], |served| &served.connections)
    }

    /// The number of the connection that an unanswered request came through, which may be gone.
    pub fn guest_of(&self, ticket: Ticket) -> Option<u64> {
        self.shared.slots.get(ticket.0).map(|slot| slot.connection)
    }

    /// Requests to one export that the server itself answered with an error: out of range, too long and
    /// the like.
    pub fn refused(&self, export: ExportId) -> u64 {
        self.shared.exports.get(export).map_or(0, |served| served.refused)
    }

    /// Makes an export known; it can be reached once a listener serves it.
    ///
    /// # Errors
    /// Impossible values, an id or name in use.
    pub fn add_export(&mut self, export: Export) -> Result<(), ExportError> {
        let (id, max) = (export.id, self.shared.limits.exports_max);
        self.shared.exports.add(export, max)?;
        self.shared.budget.open(id);
        Ok(())
    }

    /// An export has become larger: clients that connect from now on see it.
    pub fn set_size(&mut self, export: ExportId, size_bytes: u64) {
        self.shared.exports.set_size(export, size_bytes);
    }

    /// From now on clients of an export are turned away with this reason, one line. It ends with
    /// the export.
    pub fn set_unavailable(&mut self, export: ExportId, reason: String) {
        self.shared.exports.set_unavailable(export, reason);
    }

    /// Closes the export's connections and forgets it; requests in flight are still to be answered.
    /// A listener left without exports is closed. False if there is no such export.
    pub fn remove_export(&mut self, export: ExportId, buffers: &mut impl Buffers<M>) -> bool {
        let Some(served) = self.shared.exports.remove(export) else { return false };
        for key in served.connections {
            self.disconnect(key, DisconnectReason::ExportRemoved, buffers);
        }
        self.shared.budget.close(export);
        let keys: Vec<u64> = self.listeners.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(listener) = self.listeners.get_mut(key) else { continue };
            if listener.exports.remove(&export) && listener.exports.is_empty() {
                self.close_listener(key);
            }
        }
        true
    }

    /// Serves `exports` at `address`, in addition to those served there already. Returns the
    /// address with the port that the kernel chose for port 0.
    ///
    /// A unix socket gets the mode 0660. One left behind by a server that is dead is replaced.
    ///
    /// # Errors
    /// The address is in use or impossible, an export is unknown.
    pub fn listen(
        &mut self,
        address: &Address,
        exports: &[ExportId],
    ) -> Result<Address, ListenError> {
        self.listen_with(address, &SocketAccess::default(), exports)
    }

    /// The same, and says who may connect. A socket that is served already stays as it is.
    ///
    /// # Errors
    /// As above; the mode or group is impossible; TLS is required and can't be had.
    pub fn listen_with(
        &mut self,
        address: &Address,
        access: &SocketAccess,
        exports: &[ExportId],
    ) -> Result<Address, ListenError> {
        self.open_listener(address, access, exports)
    }

    /// Changes in what is to be watched, oldest first. To be applied before the loop waits.
    pub fn take_interests(&mut self) -> std::vec::Drain<'_, Interest> {
        self.interests.drain(..)
    }

    /// A descriptor is ready: its clients, or what they have sent, are for [`Self::resume`].
    pub fn on_ready(&mut self, token: Token, ready: Ready) {
        if token.0 & LISTENER != 0 {
            self.crowd(token.0 & !LISTENER);
            return;
        }
        let Some(connection) = self.connections.get_mut(token.0) else { return };
        connection.readable |= ready.read || ready.hangup;
        connection.hung_up |= ready.hangup;
        connection.blocked &= !ready.write && !ready.hangup;
        self.serve_later(token.0);
    }

    /// A connection has work for the next turn.
    fn serve_later(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !std::mem::replace(&mut connection.in_backlog, true) {
            self.turns.add(connection.export, key);
        }
    }

    /// Turns are short until then, for an export that asks for little.
    pub fn short_until(&self) -> Instant {
        self.turns.length.short_until()
    }

    /// Turns are short until then, for an export of a server beside this one.
    pub fn follow(&mut self, short_until: Instant) {
        self.turns.length.follow(short_until);
    }

    /// Whether [`Self::resume`] has something to do now, so that the loop must not wait.
    pub fn has_backlog(&self) -> bool {
        !self.crowded.is_empty()
            || !self.turns.is_empty()
            || !self.dirty.is_empty()
            || (self.shared.released && !self.paused.is_empty())
            || self.jobs.has_backlog()
    }

    /// A turn: receives, and appends requests to `incoming`, of each export a bounded number.
    pub fn resume(
        &mut self,
        now: Instant,
        buffers: &mut impl Buffers<M>,
        incoming: &mut Vec<Incoming<M>>,
    ) {
        self.shared.now = now;
        self.jobs.go_on(&mut self.shared.slots, buffers, incoming);
        self.accept(buffers);
        if std::mem::take(&mut self.shared.released) {
            let paused: Vec<u64> = self.paused.values().copied().collect();
            for key in paused {
                self.serve_later(key);
            }
        }
        for (tenant, connections) in self.turns.begin(now) {
            for _ in 0..connections {
                let Some((key, mut credit)) = self.turns.next(tenant) else { break };
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.in_backlog = false;
                    self.pump(key, &mut credit, buffers, incoming);
                    self.turns.leave(tenant, credit);
                }
            }
            self.turns.end(tenant);
        }
    }

    /// Receives on one connection and sees to what follows from it.
    fn pump(
        &mut self,
        key: u64,
        credit: &mut i64,
        buffers: &mut impl Buffers<M>,
        incoming: &mut Vec<Incoming<M>>,
    ) {
        let nothing = BTreeSet::new();
        self.shared.released |= self.starved.pass_over(self.shared.now);
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let (was_paused, messages) = (connection.paused, connection.messages);
            let listener = self.listeners.get(connection.listener);
            let rank = self.starved.rank(key);
            connection.short = None;
            let mut turn = Turn {
                shared: &mut self.shared,
                rank,
                credit: &mut *credit,
                jobs: &mut self.jobs,
                served: listener.map_or(&nothing, |listener| &listener.exports),
                tls: listener.and_then(|listener| listener.tls.as_ref()),
                buffers: &mut *buffers,
                incoming: &mut *incoming,
            };
            let outcome = connection.pump(key, &mut turn);
            if rank == Rank::Starved && (turn.rank != rank || outcome != Outcome::Paused) {
                self.shared.released |= self.starved.ends(|starved| starved == key);
            }
            let has_gone_on = connection.messages != messages;
            if (has_gone_on || outcome != Outcome::Paused)
                && let Some((place, _)) = connection.waits.take()
            {
                self.paused.remove(&place);
            }
            match outcome {
                Outcome::Idle => break,
                Outcome::Backlog => {
                    self.serve_later(key);
                    break;
                }
                Outcome::Paused => {
                    self.shared.stats.pauses += u64::from(!was_paused);
                    if !self.wait(key, has_gone_on) {
                        break;
                    }
                }
                Outcome::Enter(export) => self.enter(key, export, buffers),
                Outcome::StartTls => {
                    self.start_tls(key, buffers);
                    return;
                }
                Outcome::Close(reason) => {
                    self.disconnect(key, reason, buffers);
                    return;
                }
            }
        }
        self.settle(key, buffers);
    }

    /// A connection has no room for its next request. Whether it may try again at once: it has waited longest.
    fn wait(&mut self, key: u64, has_gone_on: bool) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if !matches!(connection.short, Some((Shortage::Total, _))) {
            self.shared.released |= self.starved.steps_back(key);
        } else if has_gone_on {
            // It is behind others that wait.
            self.shared.released |= !self.starved.is_any();
        } else if self.starved.waits(key, self.shared.now) {
            return true;
        }
        if connection.waits.is_none() {
            connection.waits = Some((self.next_place, self.shared.now));
            self.paused.insert(self.next_place, key);
            self.next_place += 1;
        }
        if connection.short.is_some() {
            self.arm_tick();
        }
        false
    }

    /// Whether the client of a request that is not answered yet is still there.
    pub fn is_waited_for(&self, ticket: Ticket) -> bool {
        let slot = self.shared.slots.get(ticket.0);
        slot.is_some_and(|slot| self.connections.get(slot.connection).is_some())
    }

    /// Answers a request, each once (debug builds check it, others ignore what is answered again).
    pub fn reply(
        &mut self,
        ticket: Ticket,
        result: Result<Body<M>, Failure>,
        buffers: &mut impl Buffers<M>,
    ) {
        let Some(slot) = self.shared.slots.remove(ticket.0) else {
            debug_assert!(false, "{ticket:?} is answered twice");
            return;
        };
        if matches!(slot.part, Part::Whole) {
            self.answer(&slot, result, buffers);
            return;
        }
        let slots = &mut self.shared.slots;
        if let Some(finished) = self.jobs.part_done(slot.part, result, slots, buffers) {
            let Finished { connection, export, pending, result } = finished;
            let slot = Slot { connection, export, pending, part: Part::Whole };
            self.answer(&slot, result.map(|()| Body::Done), buffers);
        }
    }

    /// Answers a whole request.
    fn answer(
        &mut self,
        slot: &Slot,
        result: Result<Body<M>, Failure>,
        buffers: &mut impl Buffers<M>,
    ) {
        let Some(connection) = self.connections.get_mut(slot.connection) else {
            // The client left: no connection waits for this reply.
            if let Ok(Body::Data(buffer)) = result {
                buffers.give(buffer);
            }
            self.shared.release(slot.export, slot.pending.load());
            return;
        };
        if let Expect::Piece(_) = slot.pending.expect {
            let shared = &mut self.shared;
            if let Err(reason) = connection.piece_done(&slot.pending, result, shared, buffers) {
                self.disconnect(slot.connection, reason, buffers);
                return;
            }
        } else if let Some(buffer) = connection.reply(&slot.pending, result) {
            buffers.give(buffer);
        }
        if !std::mem::replace(&mut connection.in_dirty, true) {
            self.dirty.push(slot.connection);
        }
    }

    /// Sends what is queued, of each export a bounded part if others have work, too; buffers that were sent go
    /// back to `buffers`.
    pub fn flush(&mut self, now: Instant, buffers: &mut impl Buffers<M>) {
        self.shared.now = now;
        self.turns.begin_sending();
        let mut dirty = std::mem::take(&mut self.dirty);
        // Those that were not served are the first next time.
        dirty.retain(|key| !self.send(*key, buffers));
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    /// Sends what a connection has queued; false if its export has sent enough in this turn.
    fn send(&mut self, key: u64, buffers: &mut impl Buffers<M>) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return true };
        let tenant = connection.export;
        let bytes_max = self.turns.may_send(self.shared.now, tenant);
        if bytes_max == 0 && !connection.blocked {
            return false;
        }
        connection.in_dirty = false;
        if connection.blocked {
            connection.output.wait(self.shared.now);
            return true;
        }
        match connection.send(bytes_max, &mut self.shared, buffers) {
            Ok(bytes) => {
                self.turns.has_sent(tenant, bytes);
                self.settle(key, buffers);
            }
            Err(reason) => self.disconnect(key, reason, buffers),
        }
        true
    }
}
