//! Systor '17: a header, then `Timestamp,Response,IOType,LUN,Offset,Size`; decimal seconds, bytes.
//!
//! Rows are in order of their response, so times are out of order. Response may be empty. The header
//! is skipped wherever it is: files are published by the hour and get joined.

use super::Text;
use crate::error::Problem;
use crate::fields::Fields;
use crate::number::number;
use crate::record::Op;
use crate::sink::Sink;

const FIELDS: usize = 6;
const HEADER: &[u8] = b"Timestamp,Response,IOType,LUN,Offset,Size";

#[derive(Debug)]
pub(crate) struct Systor;

impl Text for Systor {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        if line.trim_ascii().eq_ignore_ascii_case(HEADER) {
            return Ok(());
        }
        let mut fields = Fields::commas(line);
        let ts_us = fields.time("Timestamp", 1_000_000)?;
        let mut rest = fields.clone();
        if fields.text("Response")?.is_empty() {
            rest = fields;
        } else {
            rest.time("Response", 1_000_000)?;
        }
        let op = match rest.text("IOType")? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            _ => return Err(Problem::OpOf("R, W")),
        };
        let lun = rest.text("LUN")?;
        number(lun, "LUN")?;
        let offset = rest.number("Offset")?;
        let size = rest.number("Size")?;
        rest.end(FIELDS)?;
        sink.push(ts_us, lun, op, offset, size)
    }
}
