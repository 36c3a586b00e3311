//! Listening sockets: bound, restricted, taken over from the dead, removed at the end.
//!
//! Called by the server.

use super::address::{Address, AddressError};
use super::export::ExportId;
use super::peer::Peer;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, connect,
    getsockname, listen, socket_with, sockopt,
};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections that wait to be accepted.
const QUEUE_LEN: i32 = 128;
/// Owner and group may connect: give QEMU the socket's group, nobody else can open the disk.
const UNIX_MODE: Mode = Mode::from_raw_mode(0o660);
/// Send buffer asked for: the replies to a batch of reads in one call.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Why a server can't listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address itself is impossible.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Somebody listens there.
    #[error("address in use: {0}")]
    InUse(Address),
    /// A file that is no socket is in the way.
    #[error("{0} exists and is not a socket")]
    NotASocket(PathBuf),
    /// An export that was not added.
    #[error("no export has the id {0}")]
    NoExport(u32),
    /// Anything else.
    #[error("can't listen at {address}")]
    Io {
        /// Where.
        address: Address,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) fd: OwnedFd,
    pub(super) address: Address,
    pub(super) exports: BTreeSet<ExportId>,
    /// Connections in their handshake.
    pub(super) handshakes: usize,
    /// Not accepting for a moment: the process is out of descriptors.
    pub(super) resting: bool,
    /// Device and inode of the unix socket, to remove only what is ours.
    inode: Option<(u64, u64)>,
}

impl Listener {
    pub(super) fn new(address: &Address) -> Result<Self, ListenError> {
        address.check()?;
        let listening = match address {
            Address::Unix(path) => listen_unix(address, path)?,
            Address::Tcp(socket) => listen_tcp(*socket),
        };
        let (fd, address, inode) = listening.map_err(|errno| {
            if errno == Errno::ADDRINUSE {
                ListenError::InUse(address.clone())
            } else {
                ListenError::Io { address: address.clone(), source: errno.into() }
            }
        })?;
        let exports = BTreeSet::new();
        Ok(Self { fd, address, exports, handshakes: 0, resting: false, inode })
    }

    /// The next connection that waits; an error of `AGAIN` if there is none.
    pub(super) fn accept(&self) -> rustix::io::Result<(OwnedFd, Peer)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (fd, address) = acceptfrom_with(&self.fd, flags)?;
        // Each is an improvement only, and none is worth losing a client for.
        let _ = sockopt::set_socket_send_buffer_size(&fd, SEND_BUFFER_BYTES);
        let peer = match self.address {
            Address::Unix(_) => Peer::of_unix(fd.as_fd()),
            Address::Tcp(_) => {
                let _ = sockopt::set_tcp_nodelay(&fd, true);
                // A host that vanished must not keep its volume locked for ever.
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

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address
            && self.inode.is_some()
            && inode(path).ok() == self.inode
        {
            let _ = rustix::fs::unlink(path);
        }
    }
}

type Listening = (OwnedFd, Address, Option<(u64, u64)>);

fn listen_tcp(address: SocketAddr) -> rustix::io::Result<Listening> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = stream_socket(family)?;
    // Otherwise a restart has to wait for the old connections' TIME_WAIT.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    bind(&fd, &address)?;
    listen(&fd, QUEUE_LEN)?;
    let bound = SocketAddr::try_from(getsockname(&fd)?)?;
    Ok((fd, Address::Tcp(bound), None))
}

fn listen_unix(
    address: &Address,
    path: &Path,
) -> Result<rustix::io::Result<Listening>, ListenError> {
    let first = try_listen_unix(address, path);
    if !matches!(first, Err(Errno::ADDRINUSE)) {
        return Ok(first);
    }
    match rustix::fs::lstat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) if !is_dead(path) => return Err(ListenError::InUse(address.clone())),
        Ok(_) => {
            tracing::info!(%address, "replacing the socket of a server that is gone");
            let _ = rustix::fs::unlink(path);
        }
        Err(_) => {}
    }
    Ok(try_listen_unix(address, path))
}

fn try_listen_unix(address: &Address, path: &Path) -> rustix::io::Result<Listening> {
    let fd = stream_socket(AddressFamily::UNIX)?;
    // The mode of the socket itself limits that of the file made by `bind`, so there is no moment
    // in which others could connect; the second call undoes what the umask took away.
    rustix::fs::fchmod(&fd, UNIX_MODE)?;
    bind(&fd, &SocketAddrUnix::new(path)?)?;
    rustix::fs::chmod(path, UNIX_MODE)?;
    listen(&fd, QUEUE_LEN)?;
    Ok((fd, address.clone(), inode(path).ok()))
}

/// Whether nobody listens at this socket.
fn is_dead(path: &Path) -> bool {
    let try_connect = || connect(stream_socket(AddressFamily::UNIX)?, &SocketAddrUnix::new(path)?);
    try_connect() == Err(Errno::CONNREFUSED)
}

fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn inode(path: &Path) -> rustix::io::Result<(u64, u64)> {
    let stat = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((stat.st_dev, stat.st_ino))
}
