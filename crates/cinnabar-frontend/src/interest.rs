//! The descriptors that a server asks the event loop to watch, and the loop's events for the
//! server.

use std::os::fd::RawFd;

/// Names a descriptor of a server; never reused, though descriptor numbers are. Those of the two
/// servers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// Set in the tokens of the vhost-user server.
    pub(crate) const VHOST: u64 = 1 << 62;

    /// Whether it belongs to `vhost::Server`, otherwise to
    /// [`nbd::Server`](crate::nbd::Server).
    #[must_use]
    pub const fn is_vhost(self) -> bool {
        self.0 & Self::VHOST != 0
    }
}

/// A change in what is to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// To be handed back with [`nbd::Server::on_ready`](crate::nbd::Server::on_ready) or
    /// `vhost::Server::on_ready`.
    pub token: Token,
    /// The descriptor; may be closed already if `want` is [`Want::Gone`].
    pub fd: RawFd,
    /// What to watch it for from now on.
    pub want: Want,
}

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Watch for this; hang-up and errors always count, even if both are false.
    Watch {
        /// Until it can be read.
        read: bool,
        /// Until it can be written.
        write: bool,
    },
    /// Forget it: cancel a pending poll.
    Gone,
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Data, a connection, or the end of the stream.
    pub read: bool,
    /// Room in the send buffer.
    pub write: bool,
    /// The peer is gone in both directions, or the socket failed (`POLLHUP`, `POLLERR`).
    pub hangup: bool,
}

impl Ready {
    /// Translates the result bits of `poll(2)`, which `io_uring` and epoll share.
    #[must_use]
    pub const fn from_poll_bits(bits: u32) -> Self {
        const IN: u32 = 0x1;
        const OUT: u32 = 0x4;
        const ERR: u32 = 0x8;
        const HUP: u32 = 0x10;
        const RDHUP: u32 = 0x2000;
        Self {
            read: bits & (IN | RDHUP) != 0,
            write: bits & OUT != 0,
            hangup: bits & (ERR | HUP) != 0,
        }
    }
}
