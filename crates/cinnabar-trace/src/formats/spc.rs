//! SPC traces (`.spc`, `UMass` repository): `ASU,LBA,size,r|w,seconds`, maybe with further fields.
//!
//! LBA counts sectors of 512 bytes, size bytes; the operation is a letter of any case, seconds are
//! decimal from the beginning of the trace. A volume is an ASU.

use super::Text;
use crate::error::Problem;
use crate::fields::Fields;
use crate::number::number;
use crate::record::Op;
use crate::sink::Sink;

#[derive(Debug)]
pub(crate) struct Spc;

impl Text for Spc {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        let mut fields = Fields::commas(line);
        let asu = fields.text("ASU")?;
        number(asu, "ASU")?;
        let offset = fields.sectors("LBA")?;
        let size = fields.number("size")?;
        let op = match fields.text("opcode")? {
            b"r" | b"R" => Op::Read,
            b"w" | b"W" => Op::Write,
            _ => return Err(Problem::OpOf("r, R, w, W")),
        };
        let ts_us = fields.time("timestamp", 1_000_000)?;
        // What follows is optional, and means something to its maker only.
        sink.push(ts_us, asu, op, offset, size)
    }
}
