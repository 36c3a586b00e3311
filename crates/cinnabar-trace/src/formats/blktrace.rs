//! The binary stream of blktrace: 48 bytes an event, then as many as it says of its own.
//!
//! ```text
//!  0 u32 magic 0x65617407    24 u32 bytes          36 u32 device
//!  4 u32 sequence            28 u32 action         40 u32 cpu
//!  8 u64 time, ns            32 u32 pid            44 u16 error
//! 16 u64 sector                                    46 u16 bytes that follow
//! ```
//! Little-endian. As in [`super::blkparse`], a request counts when it is queued, or, if the first
//! events have none of these, when it is issued. Streams of several CPUs that were joined one behind
//! the other are out of order for longer than any window: `blkparse -d` merges them.

use super::{Binary, u16_at, u32_at, u64_at};
use crate::error::Problem;
use crate::fields::SECTOR_BYTES;
use crate::record::Op;
use crate::sink::Sink;

const RECORD_BYTES: usize = 48;
const MAGIC: u32 = 0x6561_7407;
const ACTION_AT: usize = 28;
const QUEUED: u16 = 1;
const ISSUED: u16 = 7;
/// Set in an action when the first bytes behind it name a control group.
const WITH_GROUP: u16 = 1 << 8;
/// Categories, in the upper half of an action.
const WRITE: u16 = 1 << 1;
const FLUSH: u16 = 1 << 2;
const COMMAND: u16 = 1 << 9;
const NOTE: u16 = 1 << 10;
const DISCARD: u16 = 1 << 13;
/// Bits of a device's minor number.
const MINOR_BITS: u32 = 20;

#[derive(Debug)]
pub(crate) struct BlkTrace {
    action: u16,
}

impl BlkTrace {
    /// For a stream that begins so.
    pub(crate) fn new(head: &[u8]) -> Self {
        let mut rest = head;
        let mut action = QUEUED;
        while let Some(record) = rest.get(..RECORD_BYTES) {
            match (action_of(record), category(record) & NOTE) {
                (QUEUED, 0) => return Self { action: QUEUED },
                (ISSUED, 0) => action = ISSUED,
                _ => {}
            }
            let event_bytes = RECORD_BYTES + usize::from(u16_at(record, 46));
            rest = rest.get(event_bytes..).unwrap_or_default();
        }
        Self { action }
    }

    /// Begins as such a stream does?
    pub(crate) fn fits(head: &[u8]) -> bool {
        head.starts_with(&MAGIC.to_le_bytes())
    }
}

fn action_of(record: &[u8]) -> u16 {
    u32_at(record, ACTION_AT) as u16 & !WITH_GROUP
}

fn category(record: &[u8]) -> u16 {
    (u32_at(record, ACTION_AT) >> 16) as u16
}

impl Binary for BlkTrace {
    fn record_bytes(&self) -> usize {
        RECORD_BYTES
    }

    fn parse(&mut self, record: &[u8], sink: &mut Sink) -> Result<u64, Problem> {
        if u32_at(record, 0) != MAGIC {
            return Err(Problem::Mark("magic number"));
        }
        let behind = u64::from(u16_at(record, 46));
        let category = category(record);
        let is_other = action_of(record) != self.action;
        if is_other || category & (NOTE | COMMAND) != 0 {
            return Ok(behind);
        }
        let ts_us = u64_at(record, 8) / 1000;
        let device = u32_at(record, 36);
        let (major, minor) = (device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1));
        let name = format!("{major},{minor}");
        if category & FLUSH != 0 {
            sink.push(ts_us, name.as_bytes(), Op::Flush, 0, 0)?;
        }
        let length = u64::from(u32_at(record, 24));
        if length > 0 {
            let op = if category & DISCARD != 0 {
                Op::Discard
            } else if category & WRITE != 0 {
                Op::Write
            } else {
                Op::Read
            };
            let offset = u64_at(record, 16).checked_mul(SECTOR_BYTES).ok_or(Problem::End)?;
            sink.push(ts_us, name.as_bytes(), op, offset, length)?;
        }
        Ok(behind)
    }
}
