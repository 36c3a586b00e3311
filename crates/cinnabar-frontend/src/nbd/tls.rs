//! TLS of connections, as the server sees it: to whom it gives a client's socket, and what it learns of the
//! client.
//!
//! The server has no cryptography. When a client has asked for TLS, its socket goes to a [`StartTls`] with
//! all that is still to be sent in plain text, and the connection goes on over one end of a pair of sockets
//! that carries the plain text. What the client's certificate says is in a [`TlsSession`] before the first
//! byte of it.

use crate::peer::Peer;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What a client gets as an answer whose certificate names no host of the volume.
pub(super) const NOT_ALLOWED: &str =
    "the client's certificate is valid, but none of its names is in tls_allow of this volume";

/// Ends TLS for a server's clients.
pub trait StartTls: fmt::Debug + Send + Sync {
    /// Takes a client over, without waiting. False if too many handshakes are under way, or none is
    /// possible any more.
    fn start(&self, client: Handover) -> bool;
}

/// A client that asked for TLS.
#[derive(Debug)]
pub struct Handover {
    /// Its socket. Nothing that came behind its request for TLS was taken from it.
    pub client: OwnedFd,
    /// The other end of the connection that the server goes on with.
    pub plain: OwnedFd,
    /// Who it is, for the log.
    pub peer: String,
    /// To be sent to it first, before TLS.
    pub prelude: Vec<u8>,
    /// What is learnt of it.
    pub session: Arc<TlsSession>,
}

/// What is known of a client that uses TLS.
#[derive(Debug, Default)]
pub struct TlsSession {
    names: OnceLock<Vec<String>>,
    failure: OnceLock<String>,
}

impl TlsSession {
    /// The handshake is over: the client proved that these names are its own. To be called before its first
    /// byte is passed on.
    pub fn established(&self, names: Vec<String>) {
        let _is_first = self.names.set(names);
    }

    /// It failed, or the connection ended otherwise than TLS says. To be called before the plain end is
    /// closed.
    pub fn failed(&self, why: String) {
        let _is_first = self.failure.set(why);
    }

    /// The names in the client's certificate, once the handshake is over.
    pub fn names(&self) -> Option<&[String]> {
        self.names.get().map(Vec::as_slice)
    }

    /// What went wrong, one line.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}

/// Whose certificates are taken at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsAccess {
    /// Names of which a client's certificate must have one; none: any certificate that is valid.
    pub allow: Vec<String>,
}

impl TlsAccess {
    /// Whether a client with these names may come in. Case does not count, as in DNS, and a wildcard is only
    /// equal to itself.
    pub fn allows(&self, names: &[String]) -> bool {
        let is_listed = |name: &String| self.allow.iter().any(|one| one.eq_ignore_ascii_case(name));
        self.allow.is_empty() || names.iter().any(is_listed)
    }
}

/// A connection's part of TLS.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) session: Arc<TlsSession>,
    /// Whether it was looked at who the client is.
    pub(super) judged: bool,
}

impl Link {
    /// A link and both ends of what carries its plain text: the server's and the other one's.
    pub(super) fn new() -> Result<(Self, OwnedFd, OwnedFd), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((Self { session: Arc::default(), judged: false }, ours, theirs))
    }

    /// Whether the client may come in, by what its certificate says.
    pub(super) fn admits(&self, access: Option<&TlsAccess>, peer: Peer) -> Result<(), String> {
        // Plain text without a session would be a mistake of whatever ends TLS; it lets no client in.
        let names = self.session.names().unwrap_or_default();
        if self.session.names().is_some() && access.is_some_and(|access| access.allows(names)) {
            tracing::debug!(%peer, names = names.join(", "), "NBD client uses TLS");
            return Ok(());
        }
        Err(names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_name_in_the_list_is_enough_and_no_list_takes_all() {
        let access = TlsAccess { allow: names(&["host-a", "Host-B.example", "*.example"]) };
        assert!(access.allows(&names(&["other", "host-b.EXAMPLE"])));
        assert!(access.allows(&names(&["*.example"])));
        assert!(!access.allows(&names(&["host-a.example", "host", "host-a2", ""])));
        assert!(!access.allows(&[]));
        assert!(TlsAccess::default().allows(&[]));
    }

    #[test]
    fn a_client_of_whom_nothing_is_known_is_not_let_in() {
        let (link, _ours, _theirs) = Link::new().expect("a pair");
        let any = TlsAccess::default();
        assert!(link.admits(Some(&any), Peer::Unknown).is_err());
        link.session.established(names(&["a"]));
        assert!(link.admits(Some(&any), Peer::Unknown).is_ok());
        assert!(link.admits(None, Peer::Unknown).is_err(), "its listener is gone");
    }
}
