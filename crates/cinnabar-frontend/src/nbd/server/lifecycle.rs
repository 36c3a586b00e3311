//! Connections from entering an export to their end: admission, interest, time-outs, drain.

use super::Server;
use crate::nbd::connection::Connection;
use crate::nbd::export::ExportId;
use crate::nbd::interest::{Interest, Token, Want};
use crate::nbd::mutant::Mutant;
use crate::nbd::peer::Peer;
use crate::nbd::reason::DisconnectReason;
use crate::nbd::request::Buffers;
use crate::nbd::shared::Shared;
use cinnabar_engine::seam::RawMemory;
use cinnabar_engine::seam::units::Instant;
use std::os::fd::AsRawFd;

/// Why a client may not enter an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Gone,
    TooManyConnections,
    InUse,
}

impl Refusal {
    const fn message(self) -> &'static str {
        match self {
            Self::Gone => "the export was removed",
            Self::TooManyConnections => "too many connections to this export, or to read-only ones",
            Self::InUse => "the export is in use by another client, and not shared",
        }
    }
}

impl<M: RawMemory> Server<M> {
    /// A client wants to enter an export.
    pub(super) fn enter(&mut self, key: u64, id: ExportId, buffers: &mut impl Buffers<M>) {
        let refusal = self.admit(key, id, buffers).err();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(refusal) = refusal else {
            let Some(served) = self.shared.exports.get_mut(id) else { return };
            served.connections.push(key);
            connection.grant(&served.export);
            let (peer, export) = (connection.peer, &served.export.name);
            tracing::debug!(%peer, export, "NBD client connected");
            self.half_open.leave(connection.peer.origin(), key);
            return;
        };
        self.shared.stats.refused_clients += 1;
        let told = connection.refuse(refusal.message());
        if self.shared.warnings.allow(self.shared.now) {
            let export = self.shared.exports.get(id).map(|served| served.export.name.as_str());
            let (peer, reason) = (connection.peer, refusal.message());
            tracing::warn!(%peer, export, reason, "NBD client refused");
        }
        if !told {
            self.disconnect(key, DisconnectReason::Policy, buffers);
        }
    }

    fn admit(
        &mut self,
        key: u64,
        id: ExportId,
        buffers: &mut impl Buffers<M>,
    ) -> Result<(), Refusal> {
        let served = self.shared.exports.get(id).ok_or(Refusal::Gone)?;
        let peer = self.connections.get(key).ok_or(Refusal::Gone)?.peer;
        if served.export.read_only {
            return self.admit_reader(&peer, id);
        }
        let shared = served.export.shared;
        let others: Vec<u64> = served
            .connections
            .iter()
            .copied()
            .filter(|other| {
                let is_other = |other: &Connection<M>| !other.peer.is_same_client(&peer);
                !shared && self.connections.get(*other).is_some_and(is_other)
            })
            .collect();
        for other in others {
            let slots = &self.shared.slots;
            // A client that died may have left requests in its socket, or changes whose edges are
            // still read. They must not come after those of its successor.
            match self.connections.get(other) {
                Some(left) if left.is_deserted() => {
                    self.disconnect(other, DisconnectReason::PeerClosed, buffers);
                }
                // It has said good-bye, and the engine has all that it asked for.
                Some(left) if left.closing.is_some() && !self.jobs.holds_back(other, slots) => {}
                _ => return Err(Refusal::InUse),
            }
        }
        if self.connections(id) >= self.shared.limits.export_connections_max || !self.has_place(id)
        {
            return Err(Refusal::TooManyConnections);
        }
        Ok(())
    }

    /// Whether there is a place for one more connection to an export. What exports have beyond their floors they
    /// share.
    fn has_place(&self, id: ExportId) -> bool {
        let Shared { limits, exports, .. } = &self.shared;
        let floor = limits.connections_floor(exports.len());
        let lendable = limits.connections_max.saturating_sub(floor * exports.len());
        self.connections(id) < floor || exports.connections_beyond(floor) < lendable
    }

    /// Any number of clients may read, but none all of the server's connections: an idle one is never
    /// ended, for its guest may only be paused.
    fn admit_reader(&self, peer: &Peer, id: ExportId) -> Result<(), Refusal> {
        let (mut all, mut of_user, mut of_client) = (0, 0, 0);
        for (_, other) in self.connections.iter() {
            let Some(served) = other.export.and_then(|id| self.shared.exports.get(id)) else {
                continue;
            };
            if served.export.read_only {
                all += 1;
                of_user += usize::from(other.peer.origin() == peer.origin());
                // One host may have many guests, one process has one.
                let process = matches!(peer, Peer::Process { .. });
                let same = process && other.export == Some(id) && other.peer.is_same_client(peer);
                of_client += usize::from(same);
            }
        }
        let limits = &self.shared.limits;
        let fits = all < limits.read_only_connections_max()
            && of_user < limits.user_connections_max()
            && of_client < limits.export_connections_max
            && self.has_place(id);
        if fits { Ok(()) } else { Err(Refusal::TooManyConnections) }
    }

    /// A connection was accepted: watch it, and send the greeting with the next flush.
    pub(super) fn begin(&mut self, key: u64) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.in_dirty = true;
            self.dirty.push(key);
            self.update_interest(key);
            self.arm_tick();
        }
    }

    /// After anything happened to a connection: queue its output, end it if it is done, tell the
    /// loop what to watch it for, start the clock.
    pub(super) fn settle(&mut self, key: u64, buffers: &mut impl Buffers<M>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if let Some(reason) = connection.is_finished() {
            self.disconnect(key, reason, buffers);
            return;
        }
        if connection.has_output()
            && !connection.blocked
            && !std::mem::replace(&mut connection.in_dirty, true)
        {
            self.dirty.push(key);
        }
        let (may_go_on, has_timer) = (connection.may_go_on(), connection.has_timer());
        if may_go_on {
            self.serve_later(key);
        }
        if has_timer {
            self.arm_tick();
        }
        self.update_interest(key);
    }

    fn update_interest(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        // What it sends while it has work is received in one of its turns.
        let read = !connection.paused && !connection.in_backlog && connection.closing.is_none();
        let write = connection.blocked;
        if connection.watched != (read, write) {
            connection.watched = (read, write);
            let fd = connection.fd.as_raw_fd();
            let want = Want::Watch { read, write };
            self.interests.push(Interest { token: Token(key), fd, want });
        }
    }

    /// Ends a connection at once. Its requests in flight go on; their replies will be dropped.
    pub(super) fn disconnect(
        &mut self,
        key: u64,
        reason: DisconnectReason,
        buffers: &mut impl Buffers<M>,
    ) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        self.stop_waiting(&mut connection);
        connection.abandon(buffers);
        if let Some(export) = connection.export {
            // What the engine has of it is held until it is answered.
            let mut held = connection.load;
            held -= connection.in_engine;
            self.shared.release(export, held);
            for load in self.jobs.abandon(key, &mut self.shared.slots, buffers) {
                self.shared.release(export, load);
            }
        }
        self.starved.ends(|starved| starved == key);
        self.shared.stats.connections -= 1;
        self.shared.stats.count_disconnect(reason);
        let export = connection.export.and_then(|id| self.shared.exports.get_mut(id));
        let keeps = self.shared.limits.mutants.is(Mutant::PlaceKept)
            && self.listeners.iter().any(|(_, listener)| listener.resting);
        if let Some(served) = export.filter(|_| !keeps) {
            served.connections.retain(|other| *other != key);
        }
        if connection.in_handshake() {
            self.half_open.leave(connection.peer.origin(), key);
        }
        let export = connection.export.and_then(|id| self.shared.exports.get(id));
        let export = export.map(|served| served.export.name.as_str());
        let peer = connection.peer;
        let detail = connection.tls.as_ref().and_then(|link| link.session.failure());
        if reason.is_ordinary() {
            tracing::debug!(%peer, export, %reason, detail, "NBD connection ended");
        } else if self.shared.warnings.allow(self.shared.now) {
            tracing::warn!(%peer, export, %reason, detail, "NBD client disconnected");
        }
        // Changes that the loop has not received yet are void: the descriptor is closed now.
        self.interests.retain(|interest| interest.token != Token(key));
        let fd = connection.fd.as_raw_fd();
        self.interests.push(Interest { token: Token(key), fd, want: Want::Gone });
    }

    pub(super) fn arm_tick(&mut self) {
        let tick_ns = self.shared.limits.tick_ns();
        self.next_tick.get_or_insert(self.shared.now.plus_ns(tick_ns));
    }

    /// When [`Self::tick`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Ends connections that took too long, and turns that came to nothing.
    pub fn tick(&mut self, now: Instant, buffers: &mut impl Buffers<M>) {
        self.shared.now = now;
        if self.next_tick.is_none_or(|at| now < at) {
            return;
        }
        self.next_tick = None;
        self.wake_listeners();
        let limits = &self.shared.limits;
        let overdue: Vec<(u64, DisconnectReason)> = self
            .connections
            .iter()
            .filter_map(|(key, connection)| Some((key, connection.overdue(now, limits)?)))
            .collect();
        for (key, reason) in overdue {
            self.disconnect(key, reason, buffers);
        }
        self.shared.released |= self.starved.pass_over(now);
        self.make_room(buffers);
        let is_due = |connection: &Connection<M>| connection.has_timer() || connection.lacks_room();
        if self.connections.iter().any(|(_, connection)| is_due(connection)) {
            self.arm_tick();
        }
    }

    /// It is not among the paused connections any more.
    pub(super) fn stop_waiting(&mut self, connection: &mut Connection<M>) {
        if let Some((place, _)) = connection.waits.take() {
            self.paused.remove(&place);
        }
    }

    /// Stops in an orderly way: no new connections or requests, those in flight are answered, long
    /// reads to their last piece, then each connection is closed.
    pub fn drain(&mut self, buffers: &mut impl Buffers<M>) {
        self.draining = true;
        self.stop_accepting();
        let keys: Vec<u64> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.stop(&mut self.shared, buffers);
            if connection.in_handshake() {
                self.disconnect(key, DisconnectReason::Stopping, buffers);
            } else {
                self.settle(key, buffers);
            }
        }
    }

    /// After [`Self::drain`]: every request is answered and every connection closed.
    pub fn is_drained(&self) -> bool {
        self.draining
            && self.connections.len() == 0
            && self.shared.slots.len() == 0
            && self.jobs.is_empty()
    }
}
