//! oracleGeneral, the binary form of libCacheSim: accesses to objects, each with its next access.
//!
//! [`crate::write_oracle`] writes it.
//! ```text
//!  0 u32 time, seconds
//!  4 u64 object
//! 12 u32 size, bytes
//! 16 i64 number of the record with the next access to the object, from 0; -1 or i64::MAX: none
//! ```
//! Packed and little-endian, 24 bytes. An object becomes the block of which its number is the key
//! ([`crate::Reference`]): its lower 40 bits the block, its upper 24 the volume. So every object is
//! a block of its own, objects keep apart, and what our writer wrote reads back. An object is one
//! reference there and one here: a size above a block counts as a block. There is no operation: all
//! are reads. Volumes keep their numbers, and have no names.

use super::{Binary, u32_at, u64_at};
use crate::error::Problem;
use crate::record::{Op, Record};
use crate::references::{BLOCK_BITS, KEY_BLOCK_BITS};
use crate::sink::Sink;

pub(crate) const RECORD_BYTES: usize = 24;
/// No next access.
pub(crate) const NEVER: i64 = -1;
/// No trace has as many: 24 TiB. A larger value is not the number of a record.
const RECORDS_MAX: i64 = 1 << 40;
pub(crate) const NEXT_AT: usize = 16;
pub(crate) const OBJECT_AT: usize = 4;
pub(crate) const SIZE_AT: usize = 12;

#[derive(Debug)]
pub(crate) struct Oracle;

impl Oracle {
    /// Do all whole records of a file's beginning make sense? Times go forward, and the next access is
    /// behind the access.
    pub(crate) fn fits(head: &[u8]) -> bool {
        let records = head.chunks_exact(RECORD_BYTES);
        let mut before = 0;
        let mut sensible = (0_i64..).zip(records).map(|(number, record)| {
            let time = u32_at(record, 0);
            let in_order = std::mem::replace(&mut before, time) <= time;
            let next = u64_at(record, NEXT_AT).cast_signed();
            let is_none = next == NEVER || next == i64::MAX;
            in_order && (is_none || (number < next && next < RECORDS_MAX))
        });
        head.len() >= RECORD_BYTES && sensible.all(|fits| fits)
    }
}

/// What a record is an access to.
pub(crate) fn object(record: &[u8]) -> u64 {
    u64_at(record, OBJECT_AT)
}

impl Binary for Oracle {
    fn record_bytes(&self) -> usize {
        RECORD_BYTES
    }

    fn parse(&mut self, record: &[u8], sink: &mut Sink) -> Result<u64, Problem> {
        let object = object(record);
        let size = u64::from(u32_at(record, SIZE_AT));
        sink.push_numbered(Record {
            ts_us: u64::from(u32_at(record, 0)) * 1_000_000,
            volume: (object >> KEY_BLOCK_BITS) as u32,
            op: Op::Read,
            offset_bytes: (object & ((1 << KEY_BLOCK_BITS) - 1)) << BLOCK_BITS,
            length_bytes: size.min(1 << BLOCK_BITS),
        })?;
        Ok(0)
    }
}
