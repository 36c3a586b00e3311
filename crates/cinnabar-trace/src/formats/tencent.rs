//! Tencent CBS: `timestamp,offset,size,0|1,volume`; whole seconds, sectors of 512 bytes, 1 is a write.
//!
//! Rows are out of order by some seconds. A second has thousands of requests, all of the same time
//! then: they stay in the order of the file.

use super::Text;
use crate::error::Problem;
use crate::fields::Fields;
use crate::number::number;
use crate::record::Op;
use crate::sink::Sink;

const FIELDS: usize = 5;

#[derive(Debug)]
pub(crate) struct Tencent;

impl Text for Tencent {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        let mut fields = Fields::commas(line);
        let seconds = fields.number("timestamp")?;
        let ts_us = seconds.checked_mul(1_000_000).ok_or(Problem::Number("timestamp"))?;
        let offset = fields.sectors("offset")?;
        let size = fields.sectors("size")?;
        let op = match fields.text("ioType")? {
            b"0" => Op::Read,
            b"1" => Op::Write,
            _ => return Err(Problem::OpOf("0 (read), 1 (write)")),
        };
        let volume = fields.text("volumeID")?;
        number(volume, "volumeID")?;
        fields.end(FIELDS)?;
        sink.push(ts_us, volume, op, offset, size)
    }
}
