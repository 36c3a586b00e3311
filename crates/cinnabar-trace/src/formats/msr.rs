//! MSR Cambridge: `FILETIME,host,disk,Read|Write,offset,size,response`, no header; offset and size
//! in bytes, times in units of 100 ns since 1601.
//!
//! A volume is a disk of a host: `hm_0`, as the published files are named.

use super::Text;
use crate::error::Problem;
use crate::fields::Fields;
use crate::number::number;
use crate::record::Op;
use crate::sink::Sink;

const FIELDS: usize = 7;
const TICKS_PER_US: u64 = 10;

#[derive(Debug, Default)]
pub(crate) struct Msr {
    name: Vec<u8>,
}

impl Text for Msr {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        let mut fields = Fields::commas(line);
        let ts_us = fields.number("timestamp")? / TICKS_PER_US;
        let host = fields.text("host")?;
        let disk = fields.text("disk")?;
        number(disk, "disk")?;
        let op = match fields.text("type")? {
            b"Read" => Op::Read,
            b"Write" => Op::Write,
            _ => return Err(Problem::OpOf("Read, Write")),
        };
        let offset = fields.number("offset")?;
        let size = fields.number("size")?;
        fields.number("response")?;
        fields.end(FIELDS)?;
        self.name.clear();
        self.name.extend_from_slice(host);
        self.name.push(b'_');
        self.name.extend_from_slice(disk);
        sink.push(ts_us, &self.name, op, offset, size)
    }
}
