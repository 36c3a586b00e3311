//! Every maximum of the NBD server. Defaults suit a host with some hundred guests.

use super::load::{Bounds, Load};
use super::proto;
use cinnabar_seam::limits::{DATA_BLOCKS_MAX, DATA_BYTES_MAX, REQUESTS_MAX};
use cinnabar_seam::units::BLOCK_BYTES;

/// One second, in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Bounds that an operator may want to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Exports of the server.
    pub exports_max: usize,
    /// Connections of the server, those in the handshake included; one more is closed at once.
    pub connections_max: usize,
    /// Connections of one writable export, and of one process to a read-only one.
    pub export_connections_max: usize,
    /// Connections of one listener that are still in the handshake; one more is closed at once.
    pub handshakes_max: usize,
    /// Options in one handshake.
    pub options_max: u32,
    /// A handshake must be over after this long, in nanoseconds.
    pub handshake_ns_max: u64,
    /// A request must have come whole this long after its first byte, in nanoseconds.
    pub request_ns_max: u64,
    /// A reply must have left this long after its predecessor, in nanoseconds.
    pub stall_ns_max: u64,
    /// Requests of one connection whose reply has not left.
    pub connection_requests_max: u32,
    /// Bytes of their buffers.
    pub connection_bytes_max: u64,
    /// Requests of all connections, closed ones included whose requests are still being answered.
    pub requests_max: u32,
    /// Bytes of their buffers.
    pub bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            exports_max: 4096,
            connections_max: 1024,
            export_connections_max: 64,
            handshakes_max: 128,
            options_max: 4096,
            handshake_ns_max: 10 * SECOND_NS,
            request_ns_max: 60 * SECOND_NS,
            stall_ns_max: 60 * SECOND_NS,
            connection_requests_max: 512,
            connection_bytes_max: 96 << 20,
            requests_max: 8192,
            bytes_max: 1 << 30,
        }
    }
}

impl Limits {
    /// The same, but large enough for one longest request: a connection may hold half of what is
    /// free.
    #[must_use]
    pub(super) fn raised(self) -> Self {
        // With a block for each edge of one that begins and ends within sectors.
        let request_bytes = (DATA_BLOCKS_MAX + 2) * BLOCK_BYTES;
        Self {
            options_max: self.options_max.max(1),
            connection_requests_max: self.connection_requests_max.max(REQUEST_PARTS_MAX),
            connection_bytes_max: self.connection_bytes_max.max(request_bytes),
            requests_max: self.requests_max.max(2 * REQUEST_PARTS_MAX),
            bytes_max: self.bytes_max.max(2 * request_bytes),
            ..self
        }
    }

    /// Connections to read-only exports, which any number of clients may have: three quarters of all, so
    /// that others still come in to their own disks, however many are in the handshake besides.
    pub(super) const fn read_only_connections_max(&self) -> usize {
        self.connections_max - self.connections_max / 4
    }

    /// The part of them that one user, or one host, may have.
    pub(super) const fn user_connections_max(&self) -> usize {
        self.connections_max / 2
    }

    pub(super) fn bounds(&self) -> Bounds {
        let requests = u64::from(self.connection_requests_max);
        let connection = Load { requests, bytes: self.connection_bytes_max };
        let total = Load { requests: u64::from(self.requests_max), bytes: self.bytes_max };
        Bounds { connection, total }
    }

    /// How often connections are looked at whose time is running, in nanoseconds.
    pub(super) fn tick_ns(&self) -> u64 {
        let shortest = self.handshake_ns_max.min(self.request_ns_max).min(self.stall_ns_max);
        (shortest / 4).clamp(SECOND_NS / 100, SECOND_NS)
    }
}

/// What the engine has at most of one client's request at a time: both edges of one that begins and
/// ends within sectors, and what is between.
const REQUEST_PARTS_MAX: u32 = 3;
/// Bytes of one option's data; a longer one ends the connection. The longest sensible one, a GO
/// with a name of 4096 bytes, is far below.
pub const OPTION_BYTES_MAX: u32 = 16 << 10;
/// Bytes received at a time, at most.
pub const RECEIVE_BYTES: usize = 256 << 10;
/// Rounds of receiving for one connection in one turn of the loop; the rest is backlog.
pub const RECEIVES_PER_TURN: u32 = 4;
/// Connections accepted from one listener in one turn.
pub const ACCEPTS_PER_TURN: u32 = 16;
/// Pieces gathered in one `sendmsg` (the kernel's own bound is 1024).
pub const GATHER_MAX: usize = 512;
/// Extents in one reply to a block status request.
pub const EXTENTS_MAX: usize = 1024;

const _: () = assert!(proto::OPTION_HEADER_BYTES + (OPTION_BYTES_MAX as usize) < RECEIVE_BYTES);
const _: () = assert!(DATA_BYTES_MAX <= u32::MAX as u64);
// The engine refuses requests beyond its own bound; a guest should wait instead.
const _: () = assert!(8192 < REQUESTS_MAX);
