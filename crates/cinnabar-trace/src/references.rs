//! From requests to references of single 4 KiB blocks, what hit-ratio simulators feed on.
//!
//! Reads and writes in file order, one reference for each block from `offset >> 12` to `(offset +
//! length - 1) >> 12`; flushes and discards refer to nothing.

use crate::error::TraceError;
use crate::record::{Op, Record};
use std::ops::Range;

pub(crate) const BLOCK_BITS: u32 = 12;
pub(crate) const KEY_BLOCK_BITS: u32 = 40;

/// One access to one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `(volume << 40) | block`.
    pub key: u64,
    pub write: bool,
}

/// Iterator made by [`references`].
#[derive(Debug)]
pub struct References<I> {
    records: I,
    volume: u64,
    blocks: Range<u64>,
    write: bool,
}

/// Expands records to references.
pub fn references<I: Iterator<Item = Result<Record, TraceError>>>(records: I) -> References<I> {
    References { records, volume: 0, blocks: 0..0, write: false }
}

impl Record {
    /// The 4 KiB blocks it touches, partly or wholly; none for an empty request.
    pub const fn blocks(&self) -> Range<u64> {
        let first = self.offset_bytes >> BLOCK_BITS;
        if self.length_bytes == 0 {
            return first..first;
        }
        first..((self.offset_bytes + self.length_bytes - 1) >> BLOCK_BITS) + 1
    }
}

impl<I: Iterator<Item = Result<Record, TraceError>>> Iterator for References<I> {
    type Item = Result<Reference, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(block) = self.blocks.next() {
                let key = (self.volume << KEY_BLOCK_BITS) | block;
                return Some(Ok(Reference { key, write: self.write }));
            }
            let record = match self.records.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            if matches!(record.op, Op::Read | Op::Write) {
                self.volume = u64::from(record.volume);
                self.write = record.op == Op::Write;
                self.blocks = record.blocks();
            }
        }
    }
}
