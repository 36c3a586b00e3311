//! `VMware`'s vscsi traces, versions 1 and 2: SCSI commands, little-endian.
//!
//! ```text
//! version 1, 32 bytes            version 2, 40 bytes (the last 8: response time)
//!  0 u32 serial number            0 u16 command
//!  4 u32 length, bytes            2 u16 version
//!  8 u32 scatter-gather entries   4 u32 serial number
//! 12 u16 command                  8 u32 length, bytes
//! 14 u16 version                 12 u32 scatter-gather entries
//! 16 u64 block (512 bytes)       16 u64 block (512 bytes)
//! 24 u64 time, us                24 u64 time, us
//! ```
//! The version is in the upper byte of its field. Commands that neither read, write nor flush are
//! skipped. There is one volume.

use super::{Binary, ONLY_VOLUME, u16_at, u32_at, u64_at};
use crate::error::Problem;
use crate::fields::SECTOR_BYTES;
use crate::record::Op;
use crate::sink::Sink;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vscsi {
    version: u16,
    record_bytes: usize,
    command_at: usize,
    version_at: usize,
    length_at: usize,
}

impl Vscsi {
    pub(crate) const V1: Self =
        Self { version: 1, record_bytes: 32, command_at: 12, version_at: 14, length_at: 4 };
    pub(crate) const V2: Self =
        Self { version: 2, record_bytes: 40, command_at: 0, version_at: 2, length_at: 8 };
    const BLOCK_AT: usize = 16;
    const TIME_AT: usize = 24;

    /// Do all whole records of a file's beginning say that they are of this version?
    pub(crate) fn fits(self, head: &[u8]) -> bool {
        let mut records = head.chunks_exact(self.record_bytes).peekable();
        records.peek().is_some() && records.all(|record| self.is_marked(record))
    }

    fn is_marked(self, record: &[u8]) -> bool {
        u16_at(record, self.version_at) >> 8 == self.version
    }
}

impl Binary for Vscsi {
    fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    fn parse(&mut self, record: &[u8], sink: &mut Sink) -> Result<u64, Problem> {
        if !self.is_marked(record) {
            return Err(Problem::Mark("version"));
        }
        let ts_us = u64_at(record, Self::TIME_AT);
        let op = match u16_at(record, self.command_at) {
            0x08 | 0x28 | 0xA8 | 0x88 => Op::Read,
            0x0A | 0x2A | 0xAA | 0x8A => Op::Write,
            // SYNCHRONIZE CACHE.
            0x35 | 0x91 => {
                sink.push(ts_us, ONLY_VOLUME, Op::Flush, 0, 0)?;
                return Ok(0);
            }
            _ => return Ok(0),
        };
        let block = u64_at(record, Self::BLOCK_AT);
        let offset = block.checked_mul(SECTOR_BYTES).ok_or(Problem::End)?;
        let length = u32_at(record, self.length_at);
        sink.push(ts_us, ONLY_VOLUME, op, offset, length.into())?;
        Ok(0)
    }
}
