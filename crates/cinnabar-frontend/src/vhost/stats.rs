//! What the server counts.

use super::reason::DisconnectReason;

/// Counters since the server was made, and what it holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Connections open now.
    pub connections: u64,
    /// Requests held now.
    pub held_requests: u64,
    /// Bytes of their private buffers.
    pub held_bytes: u64,
    /// Connections ever accepted.
    pub accepted: u64,
    /// Requests taken from rings, refused ones included.
    pub requests: u64,
    /// Descriptor chains followed; more than requests where a chain had to wait for room.
    pub chains: u64,
    /// Requests answered by the server itself with an error: misaligned, out of range and the like.
    pub refused_requests: u64,
    /// Requests that an earlier server, or an earlier connection, had taken and not completed.
    pub replayed_requests: u64,
    /// Reads that went straight into guest memory.
    pub direct_reads: u64,
    /// Bytes copied out of guest memory.
    pub received_bytes: u64,
    /// Bytes read for guests.
    pub sent_bytes: u64,
    /// Kicks that came.
    pub kicks: u64,
    /// Calls (interrupts) sent to guests.
    pub calls: u64,
    /// Times that a ring was not read on because of [`Limits`](super::Limits).
    pub pauses: u64,
    disconnects: [u64; DisconnectReason::ALL.len()],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            connections: 0,
            held_requests: 0,
            held_bytes: 0,
            accepted: 0,
            requests: 0,
            chains: 0,
            refused_requests: 0,
            replayed_requests: 0,
            direct_reads: 0,
            received_bytes: 0,
            sent_bytes: 0,
            kicks: 0,
            calls: 0,
            pauses: 0,
            disconnects: [0; DisconnectReason::ALL.len()],
        }
    }
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
