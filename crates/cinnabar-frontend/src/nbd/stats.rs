//! What the server counts.

use super::reason::DisconnectReason;

/// Counters since the server was made, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections open now.
    pub connections: u64,
    /// Requests held now: those being carried out, and replies that have not left.
    pub held_requests: u64,
    /// Bytes of their buffers.
    pub held_bytes: u64,
    /// Connections ever accepted.
    pub accepted: u64,
    /// Requests received, refused ones included.
    pub requests: u64,
    /// Requests answered by the server itself with an error: misaligned, out of range and the like.
    pub refused_requests: u64,
    /// Second clients turned away from a writable export.
    pub refused_clients: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Times that a connection was not read on because of [`Limits`](super::Limits).
    pub pauses: u64,
    disconnects: [u64; DisconnectReason::ALL.len()],
}

impl Stats {
    /// Connections that ended for this reason.
    #[must_use]
    pub const fn disconnects(&self, reason: DisconnectReason) -> u64 {
        self.disconnects[reason.index()]
    }

    pub(super) const fn count_disconnect(&mut self, reason: DisconnectReason) {
        self.disconnects[reason.index()] += 1;
    }
}
