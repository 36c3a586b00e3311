//! `SSDsim` and `MQSim`: `ns device lsn sectors 0|1`, between blanks; sectors of 512 bytes, 1 is a
//! read.
//!
//! A volume is a device. [`super::disksim`] has lines that look the same: [`crate::detect`]
//! distinguishes them.

use super::Text;
use crate::error::Problem;
use crate::fields::Fields;
use crate::number::number;
use crate::record::Op;
use crate::sink::Sink;

const FIELDS: usize = 5;

#[derive(Debug)]
pub(crate) struct SsdSim;

impl Text for SsdSim {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        let mut fields = Fields::blanks(line);
        let ts_us = fields.number("time")? / 1000;
        let device = fields.text("device")?;
        number(device, "device")?;
        let offset = fields.sectors("sector")?;
        let size = fields.sectors("size")?;
        let op = match fields.text("operation")? {
            b"0" => Op::Write,
            b"1" => Op::Read,
            _ => return Err(Problem::OpOf("0 (write), 1 (read)")),
        };
        fields.end(FIELDS)?;
        sink.push(ts_us, device, op, offset, size)
    }
}
