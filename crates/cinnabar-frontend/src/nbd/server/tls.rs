//! From plain text to TLS: the client's socket leaves the server, the connection stays.

use super::Server;
use crate::nbd::interest::{Interest, Token, Want};
use crate::nbd::reason::DisconnectReason;
use crate::nbd::request::Buffers;
use crate::nbd::tls::{Handover, Link, StartTls};
use cinnabar_engine::seam::RawMemory;
use std::os::fd::AsRawFd;
use std::sync::Arc;

impl<M: RawMemory> Server<M> {
    /// From now on this ends TLS for clients of addresses that ask for it.
    pub fn set_tls(&mut self, tls: Arc<dyn StartTls>) {
        self.tls = Some(tls);
    }

    /// A client asked for TLS and was granted it.
    pub(super) fn start_tls(&mut self, mut key: u64, buffers: &mut impl Buffers<M>) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        self.stop_waiting(&mut connection);
        // It goes on under another key: what the loop still reports of its old socket is not of this one.
        let fd = connection.fd.as_raw_fd();
        self.interests.retain(|interest| interest.token != Token(key));
        self.interests.push(Interest { token: Token(key), fd, want: Want::Gone });
        let prelude = connection.take_prelude();
        let peer = connection.peer.to_string();
        let mut refused = None;
        match (&self.tls, Link::new()) {
            (Some(tls), Ok((link, ours, plain))) => {
                let session = Arc::clone(&link.session);
                let client = connection.go_on_over(ours, link);
                if !tls.start(Handover { client, plain, peer, prelude, session }) {
                    refused = Some(DisconnectReason::TooManyConnections);
                }
            }
            // Out of descriptors: its listener rests, too.
            _ => refused = Some(DisconnectReason::TlsFailed),
        }
        let origin = connection.peer.origin();
        let before = std::mem::replace(&mut key, self.connections.insert(connection));
        self.half_open.rename(origin, before, key);
        match refused {
            None => self.begin(key),
            Some(reason) => self.disconnect(key, reason, buffers),
        }
    }
}
