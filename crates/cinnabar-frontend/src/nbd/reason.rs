//! Why a connection ended.
//!
//! Logged and counted in one place, `Server::disconnect`.

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DisconnectReason {
    /// `NBD_CMD_DISC` or `NBD_OPT_ABORT`.
    #[error("the client said good-bye")]
    Requested,
    /// The client closed the socket between two messages.
    #[error("the client closed the connection")]
    PeerClosed,
    /// The socket failed, or the client was gone before its replies.
    #[error("the connection broke")]
    Broken,
    /// The export was removed.
    #[error("the export was removed")]
    ExportRemoved,
    /// The server stops.
    #[error("the server stops")]
    Stopping,
    /// It was the oldest of too many handshakes, see [`Limits::handshakes_max`](super::Limits::handshakes_max);
    /// or TLS has too many clients.
    #[error("too many connections")]
    TooManyConnections,
    /// It was refused, and asked in a way that knows no error message: the export has a client, or waits
    /// for its back end.
    #[error("the export takes no client now")]
    Policy,
    /// The client closed the socket within a message.
    #[error("the client closed the connection within a message")]
    Truncated,
    /// [`Limits::handshake_ns_max`](super::Limits::handshake_ns_max) has passed.
    #[error("the handshake took too long")]
    HandshakeTimeout,
    /// [`Limits::request_ns_max`](super::Limits::request_ns_max) has passed.
    #[error("a request took too long to arrive")]
    RequestTimeout,
    /// [`Limits::stall_ns_max`](super::Limits::stall_ns_max) has passed.
    #[error("the client does not read its replies")]
    OutputStalled,
    /// It held memory for longest that only its client can free, while others waited for it.
    #[error(
        "the client held memory that others waited for: it reads no replies, or sends no payload"
    )]
    HeldMemory,
    /// Client flags that this server did not offer.
    #[error("unknown client flags")]
    ClientFlags,
    /// An option without its magic number.
    #[error("bad option magic")]
    OptionMagic,
    /// An option longer than this server takes.
    #[error("an option is too long")]
    OptionTooLong,
    /// [`Limits::options_max`](super::Limits::options_max) was exceeded.
    #[error("too many options")]
    TooManyOptions,
    /// `NBD_OPT_EXPORT_NAME` with a name that is not served.
    #[error("unknown export")]
    UnknownExport,
    /// An option other than `NBD_OPT_EXPORT_NAME` of a client that is not fixed newstyle.
    #[error("the client does not speak fixed newstyle")]
    NotFixedNewstyle,
    /// A request without its magic number.
    #[error("bad request magic")]
    RequestMagic,
    /// A write that can't be served, with too much payload to skip.
    #[error("a write is too long")]
    WriteTooLong,
    /// A part of a long read failed when its reply had begun, in a form that knows no error then.
    #[error("a long read failed within its reply")]
    ReadFailed,
    /// `NBD_OPT_EXPORT_NAME` before TLS, where that is required.
    #[error("the client does not use TLS, which this address requires")]
    TlsRequired,
    /// Bytes came behind `NBD_OPT_STARTTLS`, before its answer: another may have put them there.
    #[error("there was plain text behind the request for TLS")]
    TlsPlaintext,
    /// The TLS handshake failed: no certificate, a wrong one, another protocol.
    #[error("the TLS handshake failed")]
    TlsFailed,
}

impl DisconnectReason {
    /// All of them, in the order of [`Self::index`].
    pub const ALL: [Self; 24] = [
        Self::Requested,
        Self::PeerClosed,
        Self::Broken,
        Self::ExportRemoved,
        Self::Stopping,
        Self::TooManyConnections,
        Self::Policy,
        Self::Truncated,
        Self::HandshakeTimeout,
        Self::RequestTimeout,
        Self::OutputStalled,
        Self::HeldMemory,
        Self::ClientFlags,
        Self::OptionMagic,
        Self::OptionTooLong,
        Self::TooManyOptions,
        Self::UnknownExport,
        Self::NotFixedNewstyle,
        Self::RequestMagic,
        Self::WriteTooLong,
        Self::ReadFailed,
        Self::TlsRequired,
        Self::TlsPlaintext,
        Self::TlsFailed,
    ];

    /// Position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether this is how connections ordinarily end, as against something to warn of.
    #[must_use]
    pub const fn is_ordinary(self) -> bool {
        matches!(
            self,
            Self::Requested
                | Self::PeerClosed
                | Self::Broken
                | Self::ExportRemoved
                | Self::Stopping
        )
    }

    /// A name for metrics, in `snake_case`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::PeerClosed => "peer_closed",
            Self::Broken => "broken",
            Self::ExportRemoved => "export_removed",
            Self::Stopping => "stopping",
            Self::TooManyConnections => "too_many_connections",
            Self::Policy => "policy",
            Self::Truncated => "truncated",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::RequestTimeout => "request_timeout",
            Self::OutputStalled => "output_stalled",
            Self::HeldMemory => "held_memory",
            Self::ClientFlags => "client_flags",
            Self::OptionMagic => "option_magic",
            Self::OptionTooLong => "option_too_long",
            Self::TooManyOptions => "too_many_options",
            Self::UnknownExport => "unknown_export",
            Self::NotFixedNewstyle => "not_fixed_newstyle",
            Self::RequestMagic => "request_magic",
            Self::WriteTooLong => "write_too_long",
            Self::ReadFailed => "read_failed",
            Self::TlsRequired => "tls_required",
            Self::TlsPlaintext => "tls_plaintext",
            Self::TlsFailed => "tls_failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed_at_its_index() {
        for (at, reason) in DisconnectReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), at);
        }
    }
}
