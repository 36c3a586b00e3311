//! Room for connections that wait: those end that have held it longest.
//!
//! A client that reads no replies, or sends no payload, keeps memory for as long as its time-outs allow. As soon
//! as another one has waited for a second, that is enough. What the engine has is never taken: it is not the
//! client that keeps it.

use super::Server;
use crate::load::Rank;
use crate::nbd::connection::Connection;
use crate::nbd::export::ExportId;
use crate::nbd::limits::{HOLD_NS_MIN, WAIT_NS_MAX};
use crate::nbd::peer::Peer;
use crate::nbd::reason::DisconnectReason;
use crate::nbd::request::Buffers;
use cinnabar_engine::seam::RawMemory;
use std::collections::BTreeSet;

/// A connection, and whose it is.
#[derive(Clone, Copy)]
struct Party {
    key: u64,
    export: ExportId,
    peer: Peer,
}

impl Party {
    fn of<M>(key: u64, connection: &Connection<M>) -> Option<Self> {
        connection.export.map(|export| Self { key, export, peer: connection.peer })
    }
}

impl<M: RawMemory> Server<M> {
    /// Ends connections that have held memory for long, the oldest hold first, until there is room for those
    /// that have waited for it. One of each export counts, the one that has waited longest.
    pub(super) fn make_room(&mut self, buffers: &mut impl Buffers<M>) {
        let waiters = self.long_waiters();
        if waiters.is_empty() {
            return;
        }
        let mut holders = self.long_holders();
        for waiter in waiters {
            while self.lacks_room(waiter.key) {
                let budget = &self.shared.budget;
                let makes_room = |holder: &Party| {
                    // A slow client is not to be ended for its own requests.
                    let is_same = holder.export == waiter.export;
                    budget.may_make_room(holder.export, waiter.export)
                        && !(is_same && holder.peer.is_same_client(&waiter.peer))
                };
                let Some(at) = holders.iter().position(makes_room) else { break };
                let holder = holders.remove(at);
                self.disconnect(holder.key, DisconnectReason::HeldMemory, buffers);
            }
        }
    }

    fn long_waiters(&self) -> Vec<Party> {
        let mut exports = BTreeSet::new();
        let now = self.shared.now;
        let long = self.paused.values().filter_map(|key| {
            let connection = self.connections.get(*key).filter(|one| one.lacks_room())?;
            connection.waits.filter(|(_, since)| now.since_ns(*since) >= WAIT_NS_MAX)?;
            Party::of(*key, connection)
        });
        long.filter(|waiter| exports.insert(waiter.export)).collect()
    }

    /// The one that has held memory longest comes first.
    fn long_holders(&self) -> Vec<Party> {
        let (now, mutants) = (self.shared.now, self.shared.limits.mutants);
        let long = self.connections.iter().filter_map(|(key, connection)| {
            let since = connection.holds_since(mutants)?;
            let is_long = now.since_ns(since) >= HOLD_NS_MIN;
            is_long.then_some(()).and_then(|()| Some((since, Party::of(key, connection)?)))
        });
        let mut long: Vec<_> = long.collect();
        long.sort_by_key(|(since, _)| *since);
        long.into_iter().map(|(_, holder)| holder).collect()
    }

    /// Whether there is still no room for what a connection waits with.
    fn lacks_room(&self, key: u64) -> bool {
        let Some(connection) = self.connections.get(key) else { return false };
        let (Some(export), Some((_, more))) = (connection.export, connection.short) else {
            return false;
        };
        let rank = if self.starved.is(key) { Rank::Starved } else { Rank::Free };
        self.shared.budget.fits(export, connection.load, more, rank).is_err()
    }
}
