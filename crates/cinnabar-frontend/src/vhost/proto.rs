//! The vhost-user protocol's messages as bytes: pure.
//!
//! Written after "Vhost-user Protocol" of QEMU's documentation; the protocol's "front-end" is QEMU,
//! its "back-end" is this server. All numbers are in the host's byte order.

/// Bytes of a message's header: request, flags, size of the payload.
pub(super) const HEADER_BYTES: usize = 12;
/// Longest payload that any message may have: a memory table has 8 + 8 * 32 bytes, the configuration
/// space 12 + 256.
pub(super) const PAYLOAD_BYTES_MAX: usize = 512;
/// Descriptors that come with one message: those of a memory table.
pub(super) const FDS_MAX: usize = 8;
/// Regions of a memory table that comes as one message.
pub(super) const TABLE_REGIONS_MAX: usize = FDS_MAX;

/// Bits of a header's flags.
const VERSION_MASK: u32 = 0x3;
const VERSION: u32 = 0x1;
const REPLY: u32 = 0x4;
const NEED_REPLY: u32 = 0x8;

/// Kinds of messages; those that are not here are not served.
pub(super) mod request {
    pub(crate) const GET_FEATURES: u32 = 1;
    pub(crate) const SET_FEATURES: u32 = 2;
    pub(crate) const SET_OWNER: u32 = 3;
    pub(crate) const RESET_OWNER: u32 = 4;
    pub(crate) const SET_MEM_TABLE: u32 = 5;
    pub(crate) const SET_LOG_BASE: u32 = 6;
    pub(crate) const SET_LOG_FD: u32 = 7;
    pub(crate) const SET_VRING_NUM: u32 = 8;
    pub(crate) const SET_VRING_ADDR: u32 = 9;
    pub(crate) const SET_VRING_BASE: u32 = 10;
    pub(crate) const GET_VRING_BASE: u32 = 11;
    pub(crate) const SET_VRING_KICK: u32 = 12;
    pub(crate) const SET_VRING_CALL: u32 = 13;
    pub(crate) const SET_VRING_ERR: u32 = 14;
    pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(crate) const GET_QUEUE_NUM: u32 = 17;
    pub(crate) const SET_VRING_ENABLE: u32 = 18;
    pub(crate) const GET_CONFIG: u32 = 24;
    pub(crate) const SET_CONFIG: u32 = 25;
    pub(crate) const GET_INFLIGHT_FD: u32 = 31;
    pub(crate) const SET_INFLIGHT_FD: u32 = 32;
    pub(crate) const GET_MAX_MEM_SLOTS: u32 = 36;
    pub(crate) const ADD_MEM_REG: u32 = 37;
    pub(crate) const REM_MEM_REG: u32 = 38;
}

/// Bits of the protocol's own features.
pub(super) mod protocol_feature {
    pub(crate) const MQ: u64 = 1 << 0;
    pub(crate) const LOG_SHMFD: u64 = 1 << 1;
    pub(crate) const REPLY_ACK: u64 = 1 << 3;
    pub(crate) const CONFIG: u64 = 1 << 9;
    pub(crate) const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub(crate) const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    /// All that this server has. Not `RESET_DEVICE`: QEMU does not wait for its end, and memory that
    /// is being read into must not be taken back before the read is over.
    pub(crate) const OFFERED: u64 =
        MQ | LOG_SHMFD | REPLY_ACK | CONFIG | INFLIGHT_SHMFD | CONFIGURE_MEM_SLOTS;
}

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Its kind, see [`request`].
    pub(super) request: u32,
    /// The front-end waits for an answer even if this kind has none.
    pub(super) need_reply: bool,
    /// Bytes that follow.
    pub(super) size: usize,
}

impl Header {
    /// `None`: another version, a reply, or too long.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (request, flags, size) = (fields.u32()?, fields.u32()?, fields.u32()? as usize);
        let fine = flags & VERSION_MASK == VERSION && flags & REPLY == 0;
        (fine && size <= PAYLOAD_BYTES_MAX).then_some(Self {
            request,
            need_reply: flags & NEED_REPLY != 0,
            size,
        })
    }
}

/// An answer to a message of this kind.
pub(super) fn reply(request: u32, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).expect("answers are short");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend(request.to_ne_bytes());
    bytes.extend((VERSION | REPLY).to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(payload);
    bytes
}

/// Takes numbers off the front of a payload.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// What is left, if `value` was the whole payload.
    pub(super) fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }

    pub(super) const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// A queue's index and a number: size, base, enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingState {
    pub(super) index: u32,
    pub(super) value: u32,
}

impl RingState {
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let state = Self { index: fields.u32()?, value: fields.u32()? };
        fields.end(state)
    }

    pub(super) fn encode(self) -> Vec<u8> {
        [self.index.to_ne_bytes(), self.value.to_ne_bytes()].concat()
    }
}

/// Where a ring lies, in the front-end's own addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingAddresses {
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) available: u64,
    /// Where the log has the used ring, as a guest physical address, if it is to be logged.
    pub(super) log: Option<u64>,
}

impl RingAddresses {
    /// `VHOST_VRING_F_LOG`: what is written to the used ring is to be logged.
    const LOG: u32 = 1;

    /// The queue's index and its addresses.
    pub(super) fn decode(payload: &[u8]) -> Option<(u32, Self)> {
        let mut fields = Fields(payload);
        let (index, flags) = (fields.u32()?, fields.u32()?);
        let (descriptors, used, available) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let log = Some(fields.u64()?).filter(|_| flags & Self::LOG != 0);
        fields.end((index, Self { descriptors, used, available, log }))
    }
}

/// The number that comes with an eventfd: the queue's index, or none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingFd {
    pub(super) index: u32,
    /// There is no descriptor: poll instead.
    pub(super) absent: bool,
}

impl RingFd {
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let value = fields.u64()?;
        let index = (value & 0xff) as u32;
        fields.end(Self { index, absent: value & 0x100 != 0 })
    }
}

/// A piece of guest memory, and where to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionSpec {
    /// Guest physical address.
    pub(super) guest: u64,
    /// Length in bytes.
    pub(super) len: u64,
    /// Address in the front-end's process.
    pub(super) user: u64,
    /// Offset within the file that comes with it.
    pub(super) offset: u64,
}

impl RegionSpec {
    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            guest: fields.u64()?,
            len: fields.u64()?,
            user: fields.u64()?,
            offset: fields.u64()?,
        })
    }

    /// A whole table: at most [`TABLE_REGIONS_MAX`] regions.
    pub(super) fn decode_table(payload: &[u8]) -> Option<Vec<Self>> {
        let mut fields = Fields(payload);
        let (count, _padding) = (fields.u32()? as usize, fields.u32()?);
        if count > TABLE_REGIONS_MAX {
            return None;
        }
        let regions = (0..count).map(|_| Self::take(&mut fields)).collect::<Option<_>>()?;
        fields.end(regions)
    }

    /// One region to be added or removed.
    pub(super) fn decode_one(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        fields.u64()?;
        let region = Self::take(&mut fields)?;
        fields.end(region)
    }
}

/// The memory of the log of dirty pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogSpec {
    /// Its length in bytes, of eight pages each.
    pub(super) len: u64,
    /// Where it begins in the file that comes with it.
    pub(super) offset: u64,
}

impl LogSpec {
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let spec = Self { len: fields.u64()?, offset: fields.u64()? };
        fields.end(spec)
    }
}

/// A part of the configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConfigSpan {
    pub(super) offset: u32,
    pub(super) size: u32,
    pub(super) flags: u32,
}

impl ConfigSpan {
    /// The span and the bytes, of which there are as many as the span says.
    pub(super) fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields(payload);
        let span = Self { offset: fields.u32()?, size: fields.u32()?, flags: fields.u32()? };
        let bytes = fields.rest();
        (bytes.len() == span.size as usize).then_some((span, bytes))
    }

    pub(super) fn encode(self, bytes: &[u8]) -> Vec<u8> {
        let mut payload = Vec::with_capacity(12 + bytes.len());
        for field in [self.offset, self.size, self.flags] {
            payload.extend(field.to_ne_bytes());
        }
        payload.extend(bytes);
        payload
    }
}

/// The memory in which requests under way are noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InflightSpec {
    /// Bytes to be mapped.
    pub(super) len: u64,
    /// From where on.
    pub(super) offset: u64,
    pub(super) queues: u16,
    /// Descriptors of a queue.
    pub(super) queue_size: u16,
}

impl InflightSpec {
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let spec = Self {
            len: fields.u64()?,
            offset: fields.u64()?,
            queues: fields.u16()?,
            queue_size: fields.u16()?,
        };
        // The C structure ends with padding, which front-ends send or not.
        (fields.0.is_empty() || fields.0.len() == 4).then_some(spec)
    }

    /// As many bytes as came: the front-end knows whether there is padding.
    pub(super) fn encode(self, bytes: usize) -> Vec<u8> {
        let mut payload = Vec::with_capacity(24);
        payload.extend(self.len.to_ne_bytes());
        payload.extend(self.offset.to_ne_bytes());
        payload.extend(self.queues.to_ne_bytes());
        payload.extend(self.queue_size.to_ne_bytes());
        payload.resize(bytes, 0);
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(request: u32, flags: u32, size: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&request.to_ne_bytes());
        bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..].copy_from_slice(&size.to_ne_bytes());
        bytes
    }

    #[test]
    fn headers_of_other_versions_replies_and_long_ones_are_refused() {
        let fine = Header { request: 5, need_reply: true, size: 512 };
        assert_eq!(Header::decode(&header(5, 0x9, 512)), Some(fine));
        for (flags, size) in [(0, 8), (2, 8), (3, 8), (5, 8), (1, 513), (1, u32::MAX)] {
            assert_eq!(Header::decode(&header(5, flags, size)), None, "{flags} {size}");
        }
    }

    #[test]
    fn payloads_have_exactly_their_length() {
        let table = [&[1_u8, 0, 0, 0, 0, 0, 0, 0][..], &[7; 32]].concat();
        assert_eq!(RegionSpec::decode_table(&table).map(|regions| regions.len()), Some(1));
        assert_eq!(RegionSpec::decode_table(&table[..39]), None);
        assert_eq!(RegionSpec::decode_table(&[&table[..], &[0]].concat()), None);
        let many = [&[9_u8, 0, 0, 0, 0, 0, 0, 0][..], &[7; 32 * 9]].concat();
        assert_eq!(RegionSpec::decode_table(&many), None);
        assert!(RingState::decode(&[0; 8]).is_some());
        assert!(RingState::decode(&[0; 9]).is_none());
        assert!(ConfigSpan::decode(&[0; 13]).is_none());
        assert!(LogSpec::decode(&[0; 16]).is_some());
        assert!([8, 15, 17].iter().all(|len| LogSpec::decode(&vec![0; *len]).is_none()));
        let inflight = InflightSpec { len: 4096, offset: 0, queues: 2, queue_size: 128 };
        for bytes in [20, 24] {
            assert_eq!(InflightSpec::decode(&inflight.encode(bytes)), Some(inflight));
        }
        assert_eq!(InflightSpec::decode(&inflight.encode(22)), None);
    }
}
