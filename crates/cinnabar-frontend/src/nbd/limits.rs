//! Every maximum of the NBD server. Defaults suit a host with some hundred guests.

use super::load::Load;
use super::mutant::{Mutant, Mutants};
use super::proto;
use cinnabar_engine::seam::limits::{DATA_BLOCKS_MAX, DATA_BYTES_MAX, REQUESTS_MAX};
use cinnabar_engine::seam::units::BLOCK_BYTES;

/// One second, in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Bounds that an operator may want to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Exports of the server.
    pub exports_max: usize,
    /// Connections that have entered an export.
    pub connections_max: usize,
    /// Connections of one writable export, and of one process to a read-only one.
    pub export_connections_max: usize,
    /// Connections that are still in the handshake; for one more the oldest of the origin that has most is ended.
    pub handshakes_max: usize,
    /// Those of one user, or one host; for one more its oldest is ended. Many guests that come back at once
    /// after a restart are to find room.
    pub origin_handshakes_max: usize,
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
    /// Requests of all exports, closed connections included whose requests are still being answered. What one
    /// export may have of them depends on the others.
    pub requests_max: u32,
    /// Bytes of their buffers.
    pub bytes_max: u64,
    /// For tests of the tests.
    pub mutants: Mutants,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            exports_max: 4096,
            connections_max: 4096,
            export_connections_max: 64,
            handshakes_max: 1024,
            origin_handshakes_max: 512,
            options_max: 4096,
            handshake_ns_max: 10 * SECOND_NS,
            request_ns_max: 60 * SECOND_NS,
            stall_ns_max: 60 * SECOND_NS,
            connection_requests_max: 512,
            requests_max: 8192,
            bytes_max: 1 << 30,
            mutants: Mutants::NONE,
        }
    }
}

impl Limits {
    /// The same, but large enough for one longest request: an export may hold half of what is free, and
    /// three quarters at least are.
    #[must_use]
    pub(super) fn raised(self) -> Self {
        // With a block for each edge of one that begins and ends within sectors.
        let request_bytes = (DATA_BLOCKS_MAX + 2) * BLOCK_BYTES;
        Self {
            options_max: self.options_max.max(1),
            handshakes_max: self.handshakes_max.max(1),
            origin_handshakes_max: self.origin_handshakes_max.max(1),
            connection_requests_max: self.connection_requests_max.max(REQUEST_PARTS_MAX),
            requests_max: self.requests_max.max(3 * REQUEST_PARTS_MAX),
            bytes_max: self.bytes_max.max(3 * request_bytes),
            ..self
        }
    }

    /// Connections that each of so many exports may have, whatever the others have.
    pub(super) fn connections_floor(&self, exports: usize) -> usize {
        if self.mutants.is(Mutant::FloorLent) {
            return 0;
        }
        (self.connections_max / exports.max(1)).min(CONNECTIONS_FLOOR)
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

    /// What all exports may hold.
    pub(super) fn total(&self) -> Load {
        Load { requests: u64::from(self.requests_max), bytes: self.bytes_max }
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
/// Connections that an export may have whatever the others have, as long as there are enough for all.
const CONNECTIONS_FLOOR: usize = 4;
/// Bytes received at a time, at most. A connection that waits for room keeps that much.
pub const RECEIVE_BYTES: usize = 64 << 10;
/// A write gets its buffer when that much of its payload has come, or all of it.
pub const PAYLOAD_BEGUN_BYTES: usize = 4 << 10;
/// One that has waited for room for that long has others end, in nanoseconds.
pub const WAIT_NS_MAX: u64 = SECOND_NS;
/// Those are connections that have held memory for that long which only their client can free: replies that
/// it does not read, a payload that it does not send.
pub const HOLD_NS_MIN: u64 = 3 * SECOND_NS;
/// Rounds of receiving for one connection in one turn of the loop; the rest is backlog.
pub const RECEIVES_PER_TURN: u32 = 4;
/// Pieces gathered in one `sendmsg` (the kernel's own bound is 1024).
pub const GATHER_MAX: usize = 512;
/// Extents in one reply to a block status request.
pub const EXTENTS_MAX: usize = 1024;

const _: () = assert!(proto::OPTION_HEADER_BYTES + (OPTION_BYTES_MAX as usize) < RECEIVE_BYTES);
const _: () = assert!(DATA_BYTES_MAX <= u32::MAX as u64);
// The engine refuses requests beyond its own bound; a guest should wait instead.
const _: () = assert!(8192 < REQUESTS_MAX);
