//! Alibaba block traces of 2020: `device_id,R|W,offset,length,timestamp`, no header; bytes and
//! microseconds.
//!
//! A volume is a device.

use super::Text;
use crate::error::Problem;
use crate::fields::Fields;
use crate::number::number;
use crate::record::Op;
use crate::sink::Sink;

const FIELDS: usize = 5;

#[derive(Debug)]
pub(crate) struct Alibaba;

impl Text for Alibaba {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        let mut fields = Fields::commas(line);
        let device = fields.text("device_id")?;
        number(device, "device_id")?;
        let op = match fields.text("opcode")? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            _ => return Err(Problem::OpOf("R, W")),
        };
        let offset = fields.number("offset")?;
        let length = fields.number("length")?;
        let ts_us = fields.number("timestamp")?;
        fields.end(FIELDS)?;
        sink.push(ts_us, device, op, offset, length)
    }
}
