//! Who is at the other end, and who counts as one client.
//!
//! Called when a connection is accepted and when it wants to enter an export.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process on this host, as it was when it connected.
    Process { pid: i32, uid: u32 },
    /// A TCP client, by its address and port.
    Host(SocketAddr),
    /// A process that this one can't see (another PID namespace).
    Unknown,
}

/// A user or a host, as far as it can be told. Who is unknown is taken for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// A user of this host, by number.
    User(u32),
    /// A host, by its IPv4 address.
    Address(Ipv4Addr),
    /// A host, by the first 64 bits of its IPv6 address: it chooses the others as it likes.
    Network(u64),
    /// See [`Peer::Unknown`].
    Unknown,
}

impl Peer {
    /// The peer of a unix socket.
    pub(crate) fn of_unix(fd: BorrowedFd<'_>) -> Self {
        // Not rustix's function: its `Pid` can't be 0, which the kernel gives for a process in a
        // PID namespace that we don't see into.
        let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the descriptor is open; the buffer is a `ucred`, as SO_PEERCRED wants, and `len`
        // its size.
        let result = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut len,
            )
        };
        if result == 0 && credentials.pid > 0 {
            Self::Process { pid: credentials.pid, uid: credentials.uid }
        } else {
            Self::Unknown
        }
    }

    /// Whose it is: many clients may be of one origin.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Process { uid, .. } => Origin::User(*uid),
            Self::Host(address) => match address.ip().to_canonical() {
                IpAddr::V4(address) => Origin::Address(address),
                IpAddr::V6(address) => Origin::Network((address.to_bits() >> 64) as u64),
            },
            Self::Unknown => Origin::Unknown,
        }
    }

    /// Whether both are connections of one client. An unknown peer equals no other.
    pub(crate) fn is_same_client(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Process { pid, .. }, Self::Process { pid: other, .. }) => pid == other,
            (Self::Host(address), Self::Host(other)) => {
                address.ip().to_canonical() == other.ip().to_canonical()
            }
            _ => false,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, uid } => write!(f, "process {pid} of user {uid}"),
            Self::Host(address) => write!(f, "{address}"),
            Self::Unknown => f.write_str("unknown process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Peer {
        Peer::Host(text.parse().expect("an address"))
    }

    #[test]
    fn one_client_is_one_process_or_one_ip() {
        let vm = Peer::Process { pid: 7, uid: 0 };
        assert!(vm.is_same_client(&Peer::Process { pid: 7, uid: 1 }));
        assert!(!vm.is_same_client(&Peer::Process { pid: 8, uid: 0 }));
        assert!(host("10.0.0.1:5").is_same_client(&host("10.0.0.1:6")));
        assert!(host("10.0.0.1:5").is_same_client(&host("[::ffff:10.0.0.1]:6")));
        assert!(!host("10.0.0.1:5").is_same_client(&host("10.0.0.2:5")));
        assert!(!vm.is_same_client(&host("10.0.0.1:5")));
        assert!(!Peer::Unknown.is_same_client(&Peer::Unknown));
    }

    #[test]
    fn one_user_may_be_many_clients() {
        let vm = |pid, uid| Peer::Process { pid, uid }.origin();
        assert_eq!(vm(7, 5), vm(8, 5));
        assert_ne!(vm(7, 5), vm(7, 6));
        assert_eq!(host("10.0.0.1:5").origin(), host("[::ffff:10.0.0.1]:6").origin());
        assert_ne!(host("10.0.0.1:5").origin(), host("10.0.0.2:5").origin());
        assert_eq!(host("[2001:db8::1]:5").origin(), host("[2001:db8::2:0:0:1]:5").origin());
        assert_ne!(host("[2001:db8::1]:5").origin(), host("[2001:db8:0:1::1]:5").origin());
        assert_eq!(Peer::Unknown.origin(), Peer::Unknown.origin());
    }

    #[test]
    fn a_unix_peer_is_this_process() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let pid = i32::try_from(std::process::id()).expect("a pid");
        let peer = Peer::of_unix(std::os::fd::AsFd::as_fd(&ours));
        assert!(matches!(peer, Peer::Process { pid: seen, .. } if seen == pid), "{peer}");
    }
}
