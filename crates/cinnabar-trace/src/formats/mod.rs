//! The formats, one file each: bytes of one line or record to requests.
//!
//! A parser knows one line; time's order, its origin and volumes' numbers are not its concern.

use crate::error::Problem;
use crate::sink::Sink;

pub(crate) mod alibaba;
pub(crate) mod arc;
pub(crate) mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod disksim;
pub(crate) mod fio;
pub(crate) mod fiu;
pub(crate) mod msr;
pub(crate) mod oracle;
pub(crate) mod spc;
pub(crate) mod ssdsim;
pub(crate) mod systor;
pub(crate) mod tencent;
pub(crate) mod tracefs;
pub(crate) mod vscsi;

mod rwbs;

/// A format of lines.
pub(crate) trait Text: Send {
    /// Puts what a line (no end, not blank) says into the sink: nothing, if it is to be skipped.
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem>;
}

/// A format of records with a fixed size, and maybe bytes behind each that don't matter.
pub(crate) trait Binary: Send {
    fn record_bytes(&self) -> usize;

    /// Puts what a record of that size says into the sink; returns how many bytes behind it to skip.
    fn parse(&mut self, record: &[u8], sink: &mut Sink) -> Result<u64, Problem>;
}

/// The only volume of a format that has no names for volumes.
const ONLY_VOLUME: &[u8] = b"0";

/// A little-endian number within a record.
fn number_at<const BYTES: usize>(record: &[u8], at: usize) -> [u8; BYTES] {
    *record[at..].first_chunk().expect("a record is as long as its format says")
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(number_at(record, at))
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number_at(record, at))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number_at(record, at))
}
