//! Exports and their listeners, and connections as they come.

use super::{Backlog, Served, Server};
use crate::peer::Peer;
use crate::request::{Buffers, ExportId};
use crate::socket::{SocketAccess, UnixListener};
use crate::vhost::connection::Connection;
use crate::vhost::export::{AddError, Export, SocketSpec};
use crate::vhost::reason::DisconnectReason;
use crate::vhost::watches::Source;
use cinnabar_engine::seam::RawMemory;
use cinnabar_engine::seam::units::Instant;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

impl<M: RawMemory> Server<M> {
    /// Serves an export at a socket of its own.
    ///
    /// # Errors
    /// Impossible values, an id in use, a socket that can't be made.
    pub fn add(&mut self, export: Export, socket: SocketSpec) -> Result<(), AddError> {
        export.check()?;
        if self.draining {
            return Err(AddError::Stopping);
        }
        let full = self.exports.len() >= self.limits.exports_max;
        let id = export.id;
        if self.exports.contains_key(&id) {
            return Err(AddError::DuplicateId(id.0));
        }
        if full {
            return Err(AddError::TooMany(self.limits.exports_max));
        }
        let SocketSpec { path, mode, group } = socket;
        let listener = UnixListener::new(&path, &SocketAccess { mode, group, tls: None })?;
        let watch = self.watches.add(listener.fd.as_raw_fd(), Source::Listener(id));
        let lives = self.begin_life(&export, path);
        let served = Served {
            export,
            lives,
            listener: Some(listener),
            watch,
            resting: false,
            connections: Vec::new(),
            refused: 0,
            turn: 0,
            credit: 0,
            quantum: 0,
            is_crowded: false,
            much_until: Instant::default(),
        };
        self.exports.insert(id, served);
        Ok(())
    }

    /// Closes the export's connections and socket, and forgets it; requests in flight are still to be
    /// answered. False if there is no such export.
    pub fn remove(&mut self, export: ExportId, _buffers: &mut impl Buffers<M>) -> bool {
        let Some(served) = self.exports.get(&export) else { return false };
        for key in served.connections.clone() {
            self.disconnect(key, DisconnectReason::ExportRemoved);
        }
        self.close_listener(export);
        if let Some(served) = self.exports.remove(&export) {
            self.end_life(served.life());
        }
        true
    }

    /// No further front-end may connect.
    pub(super) fn close_listener(&mut self, export: ExportId) {
        let Some(served) = self.exports.get_mut(&export) else { return };
        if let Some(listener) = served.listener.take() {
            self.watches.remove_kept(served.watch, listener.fd.as_raw_fd());
        }
    }

    /// Takes a socket that is connected already for a new front-end of this export, as if it had come
    /// through the listener. False if there is no such export.
    pub fn adopt(&mut self, export: ExportId, socket: OwnedFd) -> bool {
        let known = self.exports.contains_key(&export);
        if known {
            self.admit(export, socket);
        }
        known
    }

    /// Accepts one that waits; others in later turns, for each costs as much as some requests.
    pub(super) fn accept(&mut self, export: ExportId) {
        let Some(served) = self.exports.get_mut(&export) else { return };
        served.is_crowded = false;
        let Some(listener) = &served.listener else { return };
        match accept_with(&listener.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => self.admit(export, socket),
            Err(Errno::AGAIN) => return,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                // Trying again at once would only burn the processor.
                served.resting = true;
                let fd = listener.fd.as_raw_fd();
                self.watches.change(served.watch, fd, false, false);
                self.arm_tick();
                if self.warnings.allow(self.now) {
                    tracing::warn!("out of descriptors or memory: vhost-user has to wait");
                }
                return;
            }
            // The front-end was gone before we came, or a signal came.
            Err(_) => {}
        }
        self.accept_later(export);
    }

    fn admit(&mut self, id: ExportId, socket: OwnedFd) {
        self.stats.accepted += 1;
        if let Err(reason) = self.make_way(id) {
            self.stats.count_disconnect(reason);
            if self.warnings.allow(self.now) {
                let peer = Peer::of_unix(socket.as_fd());
                let export = self.exports.get(&id).map(|served| served.export.name.as_str());
                tracing::warn!(%peer, export, %reason, "vhost-user front-end turned away");
            }
            return;
        }
        let Some(served) = self.exports.get(&id) else { return };
        let (fd, held, life) = (socket.as_raw_fd(), self.has_leases(served), served.life());
        let account = self.lives.get(life).map(|life| Arc::clone(&life.account));
        let account = account.unwrap_or_default();
        let connection = Connection::new(socket, &served.export, life, &account, held);
        let key = self.connections.insert(connection);
        let Some(served) = self.exports.get_mut(&id) else { return };
        served.connections.push(key);
        let watch = self.watches.add(fd, Source::Socket(key));
        self.stats.connections += 1;
        if let Some(connection) = self.connections.get_mut(key) {
            connection.watch = watch;
            let (peer, export) = (connection.peer, &served.export.name);
            tracing::debug!(%peer, export, "vhost-user front-end connected");
        }
        // It may have spoken before it was watched.
        self.messages_later(key);
    }

    /// Whether one more front-end may come. One that is gone unnoticed makes way.
    fn make_way(&mut self, id: ExportId) -> Result<(), DisconnectReason> {
        let Some(served) = self.exports.get(&id) else {
            return Err(DisconnectReason::ExportRemoved);
        };
        let read_only = served.export.read_only;
        for key in served.connections.clone() {
            if self.connections.get(key).is_some_and(Connection::is_deserted) {
                self.disconnect(key, DisconnectReason::PeerClosed);
            }
        }
        let max = if read_only { self.limits.export_connections_max } else { 1 };
        if self.connections(id) >= max {
            return Err(DisconnectReason::InUse);
        }
        if self.connections.len() >= self.limits.connections_max {
            return Err(DisconnectReason::TooManyConnections);
        }
        Ok(())
    }

    /// Tries again with listeners that were out of descriptors.
    pub(super) fn wake_listeners(&mut self) {
        for (id, served) in &mut self.exports {
            if std::mem::take(&mut served.resting)
                && let Some(listener) = &served.listener
            {
                self.watches.change(served.watch, listener.fd.as_raw_fd(), true, false);
                // Edge-triggered polls won't tell about those that came meanwhile.
                if !std::mem::replace(&mut served.is_crowded, true) {
                    self.backlog.push_back(Backlog::Listener(*id));
                }
            }
        }
    }
}
