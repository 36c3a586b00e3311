//! Numbers and layouts of the NBD protocol, as a client needs them; pure. All integers are
//! big-endian.

/// First 8 bytes of a connection.
pub(super) const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second 8 bytes of a connection, and the first of each option.
pub(super) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Second 8 bytes of a server of the last century.
pub(super) const OLD_STYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// First 8 bytes of the reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First 4 bytes of a request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First 4 bytes of a simple reply.
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First 4 bytes of a structured reply chunk.
pub(super) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Bytes of a request before its payload.
pub(super) const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply before its payload.
pub(super) const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a structured reply chunk before its payload.
pub(super) const CHUNK_BYTES: usize = 20;
/// Zeros behind the reply to `EXPORT_NAME`, unless both sides left them out.
pub(super) const EXPORT_NAME_ZEROES: usize = 124;
/// Longest name of an export.
pub(super) const NAME_BYTES_MAX: usize = 4096;

/// Handshake flags, the server's and the client's: errors to options are possible.
pub(super) const FIXED_NEWSTYLE: u16 = 1 << 0;
/// The zeros after `EXPORT_NAME` may be left out.
pub(super) const NO_ZEROES: u16 = 1 << 1;

pub(super) mod option {
    /// Enter an export; knows no error reply.
    pub(in crate::nbd) const EXPORT_NAME: u32 = 1;
    /// Enter an export.
    pub(in crate::nbd) const GO: u32 = 7;
    /// Use structured replies.
    pub(in crate::nbd) const STRUCTURED_REPLY: u32 = 8;
}

/// Types of replies to options.
pub(super) mod option_reply {
    /// Done.
    pub(in crate::nbd) const ACK: u32 = 1;
    /// One piece of information about an export.
    pub(in crate::nbd) const INFO: u32 = 3;
    /// The bit of errors.
    pub(in crate::nbd) const ERROR: u32 = 1 << 31;
    /// Unknown option.
    pub(in crate::nbd) const ERR_UNSUP: u32 = ERROR + 1;
    /// Not allowed to this client.
    pub(in crate::nbd) const ERR_POLICY: u32 = ERROR + 2;
    /// TLS first.
    pub(in crate::nbd) const ERR_TLS_REQD: u32 = ERROR + 5;
    /// No such export.
    pub(in crate::nbd) const ERR_UNKNOWN: u32 = ERROR + 6;
    /// It is about to end.
    pub(in crate::nbd) const ERR_SHUTDOWN: u32 = ERROR + 7;
}

/// Types of information about an export.
pub(super) mod info {
    /// Size and transmission flags.
    pub(in crate::nbd) const EXPORT: u16 = 0;
    /// Block sizes: smallest, best, largest.
    pub(in crate::nbd) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub(super) mod export_flag {
    /// Always set.
    pub(in crate::nbd) const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub(in crate::nbd) const READ_ONLY: u16 = 1 << 1;
    /// Knows FLUSH.
    pub(in crate::nbd) const SEND_FLUSH: u16 = 1 << 2;
    /// Knows FUA.
    pub(in crate::nbd) const SEND_FUA: u16 = 1 << 3;
    /// Knows TRIM.
    pub(in crate::nbd) const SEND_TRIM: u16 = 1 << 5;
    /// Knows `WRITE_ZEROES`.
    pub(in crate::nbd) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// A flush on one connection covers writes replied to on all.
    pub(in crate::nbd) const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Requests.
pub(super) mod command {
    pub(in crate::nbd) const READ: u16 = 0;
    pub(in crate::nbd) const WRITE: u16 = 1;
    /// Good-bye.
    pub(in crate::nbd) const DISC: u16 = 2;
    /// Make durable.
    pub(in crate::nbd) const FLUSH: u16 = 3;
    /// Give up a range.
    pub(in crate::nbd) const TRIM: u16 = 4;
    /// Zero a range.
    pub(in crate::nbd) const WRITE_ZEROES: u16 = 6;
}

/// Flags of requests.
pub(super) mod command_flag {
    /// Durable before the reply.
    pub(in crate::nbd) const FUA: u16 = 1 << 0;
    /// Zero without deallocating.
    pub(in crate::nbd) const NO_HOLE: u16 = 1 << 1;
}

/// Structured reply chunks.
pub(super) mod chunk {
    /// Flag: the last chunk of a reply.
    pub(in crate::nbd) const DONE: u16 = 1 << 0;
    /// Nothing.
    pub(in crate::nbd) const NONE: u16 = 0;
    /// Data and their offset.
    pub(in crate::nbd) const OFFSET_DATA: u16 = 1;
    /// A range of zeros.
    pub(in crate::nbd) const OFFSET_HOLE: u16 = 2;
    /// The bit of errors.
    pub(in crate::nbd) const ERROR: u16 = 1 << 15;
}

/// `ESHUTDOWN`: the server is about to end; the only error that says nothing of the request.
pub(super) const SHUTDOWN: u32 = 108;

/// A big-endian field. `bytes` holds it: callers have counted.
pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// As [`be16`].
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|index| bytes[at + index]))
}

/// As [`be16`].
pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|index| bytes[at + index]))
}
