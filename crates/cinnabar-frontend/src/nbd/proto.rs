//! Numbers and layouts of the NBD protocol; pure. All integers are big-endian.

/// First 8 bytes of a connection.
pub const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second 8 bytes of a connection, and the first of each option.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// First 8 bytes of the reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First 4 bytes of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First 4 bytes of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First 4 bytes of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of the server's greeting: two magics and flags.
pub const GREETING_BYTES: usize = 18;
/// Bytes of the client's flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes before an option's data: magic, option, length.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of a request before its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply before its payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a structured reply chunk before its payload.
pub const CHUNK_BYTES: usize = 20;
/// Zeros behind the reply to `EXPORT_NAME`, unless both sides left them out.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Handshake flags of server and client.
pub mod handshake_flag {
    /// Errors to options are possible.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The zeros after `EXPORT_NAME` may be left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Option numbers of the handshake (`NBD_OPT_*`).
pub mod option {
    /// Enter an export; knows no error reply.
    pub const EXPORT_NAME: u32 = 1;
    /// End the handshake.
    pub const ABORT: u32 = 2;
    /// List exports.
    pub const LIST: u32 = 3;
    /// Go on over TLS.
    pub const STARTTLS: u32 = 5;
    /// Ask about an export.
    pub const INFO: u32 = 6;
    /// Enter an export.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub mod option_reply {
    /// The option succeeded, or the last reply to it.
    pub const ACK: u32 = 1;
    /// One export.
    pub const SERVER: u32 = 2;
    /// One piece of information about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Unknown option.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// Not allowed to this client.
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    /// Malformed option.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// Not without TLS.
    pub const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
}

/// Types of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// `NBD_INFO_NAME`: the export's canonical name.
    pub const NAME: u16 = 1;
    /// `NBD_INFO_DESCRIPTION`: a text for people.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes: smallest, best, largest.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub mod export_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Knows FLUSH.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Knows FUA.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Knows TRIM.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Knows `WRITE_ZEROES`.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Knows DF.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers writes replied to on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Knows CACHE.
    pub const SEND_CACHE: u16 = 1 << 10;
}

/// Request types of the transmission phase (`NBD_CMD_*`).
pub mod command {
    /// Read a range.
    pub const READ: u16 = 0;
    /// Write the payload to a range.
    pub const WRITE: u16 = 1;
    /// End the connection.
    pub const DISC: u16 = 2;
    /// Make durable.
    pub const FLUSH: u16 = 3;
    /// Give up a range.
    pub const TRIM: u16 = 4;
    /// Read ahead.
    pub const CACHE: u16 = 5;
    /// Zero a range.
    pub const WRITE_ZEROES: u16 = 6;
    /// Ask what is allocated.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub mod command_flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Zero without deallocating.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Answer in one chunk.
    pub const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub const REQ_ONE: u16 = 1 << 3;
}

/// Structured reply chunks.
pub mod chunk {
    /// Flag: the last chunk of a reply.
    pub const DONE: u16 = 1 << 0;
    /// Data and their offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error, with an empty message.
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// The metadata context `base:allocation`.
pub mod allocation {
    /// Name of the context, as the client requests it.
    pub const NAME: &[u8] = b"base:allocation";
    /// Its namespace, which in a list query stands for all of it.
    pub const NAMESPACE: &[u8] = b"base:";
    /// Its number in this server.
    pub const ID: u32 = 1;
    /// Extent flag: not allocated.
    pub const HOLE: u32 = 1 << 0;
    /// Extent flag: reads as zeros.
    pub const ZERO: u32 = 1 << 1;
}

/// Errors of requests: the protocol's own numbers, equal to Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// `EPERM`: a write to a read-only export.
    NotPermitted = 1,
    /// `EIO`.
    Io = 5,
    /// `ENOMEM`.
    NoMemory = 12,
    /// `EINVAL`.
    Invalid = 22,
    /// `ENOSPC`: also a write past the end.
    NoSpace = 28,
    /// `EOVERFLOW`: longer than the server takes.
    Overflow = 75,
    /// `ENOTSUP`.
    Unsupported = 95,
    /// `ESHUTDOWN`.
    Shutdown = 108,
}

/// A request's fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flags of the request, see [`command_flag`].
    pub flags: u16,
    /// Type of the request, see [`command`].
    pub command: u16,
    /// The client's name for it.
    pub cookie: u64,
    /// First byte of the range in the export.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

impl Request {
    /// The request in these bytes; `None` if its magic is wrong.
    #[must_use]
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        })
    }

    /// As a client sends it.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Takes fields off the front of a message; `None` where it is too short.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    /// The next 2 bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 4 bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 8 bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length of 4 bytes and as many bytes.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_encoding() {
        let request =
            Request { flags: 9, command: command::TRIM, cookie: 1 << 60, offset: 77, len: 512 };
        assert_eq!(Request::decode(&request.encode()), Some(request));
        let mut wrong = request.encode();
        wrong[0] ^= 1;
        assert_eq!(Request::decode(&wrong), None);
    }

    #[test]
    fn fields_end_where_the_message_ends() {
        let mut fields = Fields(&[0, 0, 0, 2, b'a', b'b', 1]);
        assert_eq!(fields.string(), Some(&b"ab"[..]));
        assert_eq!(fields.u16(), None);
        assert!(!fields.is_empty());
        assert_eq!(Fields(&[0xff, 0xff, 0xff, 0xff, 0]).string(), None);
    }
}
