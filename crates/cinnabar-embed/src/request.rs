//! Requests and what comes of them.

use crate::buffer::Buffer;
use crate::error::Error;
use cinnabar_backend::Memory;
use cinnabar_engine::limits::DATA_BYTES_MAX;
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES};
use cinnabar_engine::{Op, Payload};

/// Requests under way at most.
pub const QUEUE_MAX: usize = 4096;

/// Names an attached volume; of no use after it was detached, and to other caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Volume {
    pub(crate) key: usize,
    /// Of the attaching, in whatever cache of the process: keys are used again.
    pub(crate) serial: u64,
}

/// What is asked of a volume. Offsets and lengths are bytes, multiples of 512, inside the volume.
#[derive(Debug)]
pub enum Request {
    /// Read; the completion brings the bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Length in bytes, at most 32 MiB.
        len: u64,
    },
    /// Write; the completion brings the buffer back.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes, at most 32 MiB.
        data: Buffer,
        /// Done only when durable.
        durable: bool,
    },
    /// Make durable every write that was done before this was submitted.
    Flush,
    /// These bytes are no longer needed; any length. They read as what they were, or as zeros.
    Trim {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// These bytes are to read as zeros; any length.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// These bytes were written past the cache: what is cached of them is dropped; any
    /// length. To be asked for when they have been written, before they are read.
    Invalidate {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// A request that is done.
#[derive(Debug)]
pub struct Completion {
    /// What the caller named it.
    pub tag: u64,
    /// The buffer of a read or write, nothing for the others; or why it failed. What a failed
    /// write has left in the backend is unknown, as with any disk.
    pub result: Result<Option<Buffer>, Error>,
}

impl Request {
    /// What it is called in errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Flush => "flush",
            Self::Trim { .. } => "trim",
            Self::WriteZeroes { .. } => "write of zeros",
            Self::Invalidate { .. } => "invalidation",
        }
    }

    /// The range of the volume; empty for a flush.
    pub(crate) fn span(&self) -> ByteSpan {
        match self {
            Self::Write { offset, data, .. } => ByteSpan::new(*offset, data.len() as u64),
            Self::Flush => ByteSpan::new(0, 0),
            Self::Read { offset, len }
            | Self::Trim { offset, len }
            | Self::WriteZeroes { offset, len }
            | Self::Invalidate { offset, len } => ByteSpan::new(*offset, *len),
        }
    }

    /// Refuses what the engine would refuse, saying why.
    pub(crate) fn check(&self, size_bytes: u64) -> Result<(), Error> {
        let ByteSpan { offset, len } = self.span();
        if matches!(self, Self::Flush) {
            return Ok(());
        }
        if !offset.is_multiple_of(SECTOR_BYTES) || !len.is_multiple_of(SECTOR_BYTES) {
            return Err(Error::Misaligned { offset, len });
        }
        if offset.checked_add(len).is_none_or(|end| end > size_bytes) {
            return Err(Error::PastEnd { offset, len, size: size_bytes });
        }
        let carries_data = matches!(self, Self::Read { .. } | Self::Write { .. });
        if carries_data && len > DATA_BYTES_MAX { Err(Error::TooLong(len)) } else { Ok(()) }
    }

    /// In the engine's words; `None` if there is nothing to do. It has been checked.
    pub(crate) fn into_op(self) -> Option<Op<Memory>> {
        let span = self.span();
        if span.len == 0 && !matches!(self, Self::Flush) {
            return None;
        }
        Some(match self {
            Self::Read { .. } => {
                let blocks = u32::try_from(span.blocks()).expect("at most 32 MiB");
                Op::Read { span, data: Memory::alloc(blocks) }
            }
            Self::Write { offset, data, durable } => {
                Op::Write { span, data: data.into_memory(offset), fua: durable }
            }
            Self::Flush => Op::Flush,
            Self::Trim { .. } => Op::Trim { span, fua: false },
            Self::WriteZeroes { .. } => Op::WriteZeroes { span, fua: false, may_punch: true },
            Self::Invalidate { .. } => Op::Invalidate { span },
        })
    }
}
