//! Every maximum of the vhost-user server. Defaults suit a host with some hundred guests.

use cinnabar_engine::seam::limits::{
    DATA_BLOCKS_MAX, DATA_BYTES_MAX, EXTRA_PARTS_MAX, REQUESTS_MAX,
};
use cinnabar_engine::seam::units::BLOCK_BYTES;

/// One second, in nanoseconds.
const SECOND_NS: u64 = 1_000_000_000;

/// Bounds that an operator may want to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Exports of the server.
    pub exports_max: usize,
    /// Connections of the server; one more is closed at once.
    pub connections_max: usize,
    /// Connections of one read-only export; a writable one has one.
    pub export_connections_max: usize,
    /// A message must have come whole this long after its first byte, and answers must have been
    /// read this long after they were sent, in nanoseconds.
    pub message_ns_max: u64,
    /// When a ring is stopped, its requests must be done within this time, in nanoseconds. QEMU
    /// stands still meanwhile.
    pub stop_ns_max: u64,
    /// Requests of one export under way; beyond that each connection may have one.
    pub connection_requests_max: u32,
    /// Bytes of their private buffers; reads into guest memory don't count.
    pub connection_bytes_max: u64,
    /// Requests of all connections, closed ones included whose requests are still being answered.
    pub requests_max: u32,
    /// Bytes of their private buffers.
    pub bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            exports_max: 4096,
            connections_max: 1024,
            export_connections_max: 64,
            message_ns_max: 10 * SECOND_NS,
            stop_ns_max: 60 * SECOND_NS,
            connection_requests_max: 1024,
            connection_bytes_max: 96 << 20,
            requests_max: 6144,
            bytes_max: 1 << 30,
        }
    }
}

impl Limits {
    /// The same, but large enough for one longest request: a connection may hold half of what is
    /// free.
    #[must_use]
    pub(super) fn raised(self) -> Self {
        let request_bytes = DATA_BLOCKS_MAX * BLOCK_BYTES;
        Self {
            connections_max: self.connections_max.max(1),
            export_connections_max: self.export_connections_max.max(1),
            connection_requests_max: self.connection_requests_max.max(1),
            connection_bytes_max: self.connection_bytes_max.max(request_bytes),
            requests_max: self.requests_max.max(2),
            bytes_max: self.bytes_max.max(2 * request_bytes),
            ..self
        }
    }

    /// How often connections are looked at whose time is running, in nanoseconds.
    pub(super) fn tick_ns(&self) -> u64 {
        (self.message_ns_max.min(self.stop_ns_max) / 4).clamp(SECOND_NS / 100, SECOND_NS)
    }
}

/// Queues of one export.
pub const QUEUES_MAX: u16 = 16;
/// Descriptors of one queue; QEMU's own bound.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// Descriptors of one request, those of an indirect table included.
pub(super) const CHAIN_MAX: u32 = 1024;
/// Most data segments of a request, as announced to the driver: a request has a header and a status
/// besides, and fits in a queue of 128.
pub(super) const SEGMENTS_MAX: u32 = 126;
/// Most bytes of a segment, as announced to the driver.
pub(super) const SEGMENT_BYTES_MAX: u32 = 256 << 10;
/// Most sectors of 512 bytes in one discard or zeroing, as announced to the driver (2 GiB).
pub(super) const ZERO_SECTORS_MAX: u32 = 1 << 22;
/// Regions of guest memory of one connection.
pub(super) const REGIONS_MAX: usize = 32;
/// Guest memory of one connection, in bytes (16 TiB): more than any guest has, and little enough of
/// the addresses a process has.
pub(super) const MEMORY_BYTES_MAX: u64 = 16 << 40;
/// Mappings of guest memory in this process: 1024 connections with four regions each four times over.
pub(super) const PLACES_MAX: usize = 16_384;
/// What the queues of an export have together in a long turn of the loop: as many requests, or 4 MiB of data (some
/// 2 ms to copy). What the last request has beyond that is owed.
pub(super) const QUANTUM: i64 = 64;
/// Descriptors of the chains followed for one queue before others have their turn; the last chain may
/// go beyond.
pub(super) const DESCRIPTORS_PER_TURN: u32 = 4096;
/// Pieces of 128 MiB of guest memory that are marked in logs of dirty pages in one turn (some 1 ms).
pub(super) const MARKS_PER_TURN: u32 = 256;
/// Messages taken from one connection before others have their turn.
pub(super) const MESSAGES_PER_TURN: u32 = 64;
/// Bytes of answers that a front-end may leave unread before it is not listened to any more.
pub(super) const OUTPUT_BYTES_MAX: usize = 16 << 10;

// A driver that respects the announced limits never requests more than the engine takes.
const _: () = assert!(SEGMENTS_MAX as u64 * SEGMENT_BYTES_MAX as u64 <= DATA_BYTES_MAX);
const _: () = assert!(CHAIN_MAX >= QUEUE_SIZE_MAX as u32);
// Together with the NBD server's 8192, and whatever these are split into, below what an engine takes:
// of each request it has one part at most beside those that are counted apart.
const _: () = assert!(6144 + 8192 + EXTRA_PARTS_MAX as usize + 512 < REQUESTS_MAX);
