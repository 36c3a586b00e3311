//! Listeners, and connections as they come.

use super::{LISTENER, Server};
use crate::nbd::address::Address;
use crate::nbd::connection::Connection;
use crate::nbd::export::ExportId;
use crate::nbd::interest::{Interest, Token, Want};
use crate::nbd::listener::Listener;
use crate::nbd::mutant::Mutant;
use crate::nbd::reason::DisconnectReason;
use crate::nbd::request::Buffers;
use crate::socket::{ListenError, SocketAccess};
use cinnabar_engine::seam::RawMemory;
use rustix::io::Errno;
use std::os::fd::AsRawFd;

impl<M: RawMemory> Server<M> {
    pub(super) fn open_listener(
        &mut self,
        address: &Address,
        access: &SocketAccess,
        exports: &[ExportId],
    ) -> Result<Address, ListenError> {
        if let Some(id) = exports.iter().find(|id| self.shared.exports.get(**id).is_none()) {
            return Err(ListenError::NoExport(id.0));
        }
        if access.tls.is_some() && self.tls.is_none() {
            return Err(ListenError::NoTls(address.clone()));
        }
        let known = self.listeners.iter().find(|(_, known)| known.address == *address);
        let key = if let Some((key, known)) = known {
            // Who comes in by one rule must not find what another one guards.
            if known.tls != access.tls {
                return Err(ListenError::NoTls(address.clone()));
            }
            key
        } else {
            let key = self.listeners.insert(Listener::new(address, access)?);
            self.watch_listener(key, true);
            key
        };
        let listener = self.listeners.get_mut(key).expect("it was just found or made");
        listener.exports.extend(exports);
        Ok(listener.address.clone())
    }

    fn watch_listener(&mut self, key: u64, read: bool) {
        if let Some(listener) = self.listeners.get(key) {
            let fd = listener.fd().as_raw_fd();
            let want = Want::Watch { read, write: false };
            self.interests.push(Interest { token: Token(key | LISTENER), fd, want });
        }
    }

    pub(super) fn close_listener(&mut self, key: u64) {
        if let Some(listener) = self.listeners.remove(key) {
            let fd = listener.fd().as_raw_fd();
            self.interests.push(Interest { token: Token(key | LISTENER), fd, want: Want::Gone });
        }
    }

    /// Clients may wait at a listener.
    pub(super) fn crowd(&mut self, key: u64) {
        if let Some(listener) = self.listeners.get_mut(key)
            && !std::mem::replace(&mut listener.is_crowded, true)
        {
            self.crowded.push_back(key);
        }
    }

    /// Accepts a client that waits, of one listener after the other; each costs as much as some requests.
    pub(super) fn accept(&mut self, buffers: &mut impl Buffers<M>) {
        if let Some(key) = self.crowded.pop_front()
            && self.accept_from(key, buffers)
        {
            self.crowd(key);
        }
    }

    /// Accepts a client; whether others may wait.
    fn accept_from(&mut self, key: u64, buffers: &mut impl Buffers<M>) -> bool {
        let Some(listener) = self.listeners.get_mut(key) else { return false };
        listener.is_crowded = false;
        match listener.accept() {
            Ok((fd, peer)) => {
                self.shared.stats.accepted += 1;
                let now = self.shared.now;
                let mut new = Connection::new(fd, peer, key, now, &self.shared.limits);
                if listener.tls.is_some() {
                    new.require_tls(&self.shared.limits);
                }
                let origin = peer.origin();
                let in_the_way = self.half_open.in_the_way(origin, &self.shared.limits);
                if let Some(other) = in_the_way {
                    self.disconnect(other, DisconnectReason::TooManyConnections, buffers);
                }
                let key = self.connections.insert(new);
                self.half_open.enter(origin, key);
                self.shared.stats.connections += 1;
                self.begin(key);
                true
            }
            Err(Errno::AGAIN) => false,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                // Trying again at once would only burn the processor.
                listener.resting = true;
                self.watch_listener(key, false);
                self.arm_tick();
                if self.shared.warnings.allow(self.shared.now) {
                    tracing::warn!("out of descriptors or memory: NBD clients have to wait");
                }
                false
            }
            // The client was gone before we came, or a signal came.
            Err(_) => true,
        }
    }

    /// Tries again with listeners that were out of descriptors.
    pub(super) fn wake_listeners(&mut self) {
        let resting: Vec<u64> = self
            .listeners
            .iter()
            .filter_map(|(key, listener)| listener.resting.then_some(key))
            .collect();
        for key in resting {
            if let Some(listener) = self.listeners.get_mut(key) {
                listener.resting = false;
            }
            self.watch_listener(key, true);
            // Edge-triggered polls won't tell about those that came meanwhile.
            if !self.shared.limits.mutants.is(Mutant::ListenerForgotten) {
                self.crowd(key);
            }
        }
    }

    /// Closes the listeners, removing unix sockets; connections go on, those in their handshake
    /// excepted.
    pub fn stop_accepting(&mut self) {
        let keys: Vec<u64> = self.listeners.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.close_listener(key);
        }
    }
}
