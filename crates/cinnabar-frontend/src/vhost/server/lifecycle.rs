//! Connections to their end: interest, time-outs, drain.

use super::Server;
use super::replies::{Parked, Unlogged};
use crate::request::Buffers;
use crate::vhost::connection::Connection;
use crate::vhost::log::Log;
use crate::vhost::reason::DisconnectReason;
use crate::vhost::slot::Delivery;
use cinnabar_engine::seam::RawMemory;
use cinnabar_engine::seam::units::Instant;
use std::os::fd::AsRawFd;
use std::sync::Arc;

impl<M: RawMemory> Server<M> {
    /// After anything happened to a connection: tell the loop what to watch it for, start the clock.
    pub(super) fn settle(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let want = (connection.listens(), connection.channel.blocked_since.is_some());
        if connection.watched != want {
            connection.watched = want;
            let (fd, watch) = (connection.channel.fd.as_raw_fd(), connection.watch);
            self.watches.change(watch, fd, want.0, want.1);
        }
        if self.connections.get(key).is_some_and(Connection::has_timer) {
            self.arm_tick();
        }
    }

    /// Ends a connection at once. Its requests in flight go on; their answers will be dropped.
    pub(super) fn disconnect(&mut self, key: u64, reason: DisconnectReason) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        self.stats.connections -= 1;
        self.stats.count_disconnect(reason);
        connection.leave();
        self.stop_waiting(key, None);
        self.change_past(connection.life, |life| life.load += connection.load);
        self.orphan_reads(key, connection.life, connection.log());
        for queue in &mut connection.queues {
            if let Some((fd, watch)) = queue.kick.take() {
                self.watches.remove(watch, fd);
            }
        }
        let served = self.exports.get_mut(&connection.export);
        if let Some(served) = served {
            served.connections.retain(|other| *other != key);
        }
        let served = self.exports.get(&connection.export);
        let export = served.map(|served| served.export.name.as_str());
        let peer = connection.peer;
        if reason.is_ordinary() {
            tracing::debug!(%peer, export, %reason, "vhost-user connection ended");
        } else if self.warnings.allow(self.now) {
            tracing::warn!(%peer, export, %reason, "vhost-user front-end disconnected");
        }
        // The other end learns of it now; the number is free for others once the loop knows.
        let _ = rustix::net::shutdown(&connection.channel.fd, rustix::net::Shutdown::Both);
        self.watches.remove(connection.watch, connection.channel.fd);
    }

    /// Reads into guest memory of a connection that ends: the next connection has to wait for them.
    fn orphan_reads(&mut self, key: u64, life: u64, log: Option<&Arc<Log>>) {
        let mut leases = 0;
        let keys: Vec<u64> = self
            .slots
            .iter()
            .filter(|(_, slot)| {
                slot.connection == key && matches!(slot.delivery, Delivery::Direct(_))
            })
            .map(|(ticket, _)| ticket)
            .collect();
        for ticket in keys {
            let Some(slot) = self.slots.get_mut(ticket) else { continue };
            if let Delivery::Direct(lease) =
                std::mem::replace(&mut slot.delivery, Delivery::Nothing)
            {
                leases += 1;
                let unlogged = Unlogged::new(log, slot);
                let place = self.parked.insert(Parked::Orphan { life, unlogged });
                lease.await_return(place);
            }
        }
        let mine: Vec<u64> = self
            .parked
            .iter()
            .filter(|(_, parked)| matches!(parked, Parked::Failed(slot) if slot.connection == key))
            .map(|(place, _)| place)
            .collect();
        for place in mine {
            let Some(parked) = self.parked.get_mut(place) else { continue };
            let Parked::Failed(slot) = parked else { continue };
            let orphan = Parked::Orphan { life, unlogged: Unlogged::new(log, slot) };
            if let Parked::Failed(slot) = std::mem::replace(parked, orphan) {
                leases += 1;
                self.load -= slot.load();
                self.change_past(life, |past| past.load -= slot.load());
                self.released = true;
            }
        }
        self.change_past(life, |past| past.leases += leases);
    }

    pub(super) fn arm_tick(&mut self) {
        let tick_ns = self.limits.tick_ns();
        self.next_tick.get_or_insert(self.now.plus_ns(tick_ns));
    }

    /// When [`Self::tick`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Ends connections that took too long, and turns that came to nothing.
    pub fn tick(&mut self, now: Instant, _buffers: &mut impl Buffers<M>) {
        self.now = now;
        if self.next_tick.is_none_or(|at| now < at) {
            return;
        }
        self.next_tick = None;
        self.wake_listeners();
        let limits = &self.limits;
        let overdue: Vec<(u64, DisconnectReason)> = self
            .connections
            .iter()
            .filter_map(|(key, connection)| {
                let silent = connection.channel.waits_since();
                let stopping = connection.waiting.map(|(_, since)| since);
                if silent.is_some_and(|since| now.since_ns(since) >= limits.message_ns_max) {
                    Some((key, DisconnectReason::MessageTimeout))
                } else if stopping.is_some_and(|since| now.since_ns(since) >= limits.stop_ns_max) {
                    Some((key, DisconnectReason::StopTimeout))
                } else {
                    None
                }
            })
            .collect();
        for (key, reason) in overdue {
            self.disconnect(key, reason);
        }
        self.released |= self.starved.pass_over(now);
        let has_timer = self.connections.iter().any(|(_, connection)| connection.has_timer());
        if has_timer || self.starved.is_any() {
            self.arm_tick();
        }
    }

    /// Stops in an orderly way: no new connections or requests, those in flight are answered, then
    /// each connection is closed. A front-end that comes back finds the next server, or none.
    pub fn drain(&mut self, _buffers: &mut impl Buffers<M>) {
        self.draining = true;
        let ids: Vec<_> = self.exports.keys().copied().collect();
        for id in ids {
            self.close_listener(id);
        }
        let keys: Vec<u64> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.closing.get_or_insert(DisconnectReason::Stopping);
            self.mark_dirty(key);
            self.settle(key);
        }
    }

    /// After [`Self::drain`]: every request is answered and every connection closed.
    pub fn is_drained(&self) -> bool {
        self.draining && self.connections.len() == 0 && self.slots.len() == 0
    }
}
