//! Listening sockets, unix and TCP, and connections as they come out of them.

use super::address::Address;
use super::export::ExportId;
use super::peer::Peer;
use super::socket::{ListenError, QUEUE_LEN, SocketAccess, UnixListener, stream_socket};
use super::tls::TlsAccess;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, acceptfrom_with, bind, getsockname, listen, sockopt,
};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// Send buffer asked for: the replies to a batch of reads in one call.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    pub(super) address: Address,
    pub(super) exports: BTreeSet<ExportId>,
    /// Not accepting for a moment: the process is out of descriptors.
    pub(super) resting: bool,
    /// Clients may wait, which the server knows.
    pub(super) is_crowded: bool,
    /// Whose certificates are taken, if clients must use TLS.
    pub(super) tls: Option<TlsAccess>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(OwnedFd),
}

impl Listener {
    pub(super) fn new(address: &Address, access: &SocketAccess) -> Result<Self, ListenError> {
        address.check()?;
        let (socket, address) = match address {
            Address::Unix(path) => {
                (Socket::Unix(UnixListener::new(path, access)?), address.clone())
            }
            Address::Tcp(socket) => {
                let (fd, bound) = listen_tcp(*socket).map_err(|errno| match errno {
                    Errno::ADDRINUSE => ListenError::InUse(address.clone()),
                    other => ListenError::Io { address: address.clone(), source: other.into() },
                })?;
                (Socket::Tcp(fd), Address::Tcp(bound))
            }
        };
        let tls = access.tls.clone();
        Ok(Self {
            socket,
            address,
            exports: BTreeSet::new(),
            resting: false,
            is_crowded: false,
            tls,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(listener) => listener.fd.as_fd(),
            Socket::Tcp(fd) => fd.as_fd(),
        }
    }

    /// The next connection that waits; an error of `AGAIN` if there is none.
    pub(super) fn accept(&self) -> rustix::io::Result<(OwnedFd, Peer)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (fd, address) = acceptfrom_with(self.fd(), flags)?;
        // Each is an improvement only, and none is worth losing a client for.
        let _ = sockopt::set_socket_send_buffer_size(&fd, SEND_BUFFER_BYTES);
        let peer = match self.address {
            Address::Unix(_) => Peer::of_unix(fd.as_fd()),
            Address::Tcp(_) => {
                let _ = sockopt::set_tcp_nodelay(&fd, true);
                // A host that vanished must not keep its volume locked without end.
                let _ = sockopt::set_socket_keepalive(&fd, true);
                let _ = sockopt::set_tcp_keepidle(&fd, Duration::from_secs(30));
                let _ = sockopt::set_tcp_keepintvl(&fd, Duration::from_secs(10));
                let _ = sockopt::set_tcp_keepcnt(&fd, 3);
                let address = address.and_then(|address| SocketAddr::try_from(address).ok());
                address.map_or(Peer::Unknown, Peer::Host)
            }
        };
        Ok((fd, peer))
    }
}

fn listen_tcp(address: SocketAddr) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = stream_socket(family)?;
    // Otherwise a restart has to wait for the old connections' TIME_WAIT.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    bind(&fd, &address)?;
    listen(&fd, QUEUE_LEN)?;
    let bound = SocketAddr::try_from(getsockname(&fd)?)?;
    Ok((fd, bound))
}
