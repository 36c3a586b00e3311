//! Page references of the ARC paper (`.lis`): `start count ignored request`, between blanks.
//!
//! Pages are taken as blocks of 4 KiB of one volume. There is neither an operation nor a time: every
//! line is a read at time 0, in the order of the file.

use super::{ONLY_VOLUME, Text};
use crate::error::Problem;
use crate::fields::Fields;
use crate::record::Op;
use crate::sink::Sink;

const FIELDS: usize = 4;
const PAGE_BYTES: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Arc;

impl Text for Arc {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        let mut fields = Fields::blanks(line);
        let start = fields.number("start")?.checked_mul(PAGE_BYTES).ok_or(Problem::End)?;
        let bytes = fields.number("count")?.checked_mul(PAGE_BYTES).ok_or(Problem::End)?;
        fields.number("ignored")?;
        fields.number("request")?;
        fields.end(FIELDS)?;
        sink.push(0, ONLY_VOLUME, Op::Read, start, bytes)
    }
}
