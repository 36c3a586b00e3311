//! The canonical form, our own: `ts_us,vol,op,offset_bytes,length_bytes`, one request a line.
//!
//! [`mod@crate::write`] writes it. No header, no blanks; the operation is `R`, `W`, `F` (flush) or
//! `D` (discard).

use crate::error::{Problem, TraceError};
use crate::fields::number;
use crate::lines::Lines;
use crate::record::{Op, Record};
use std::io::BufRead;

const FIELDS: usize = 5;

/// Reads records from text. After an error it yields nothing more.
#[derive(Debug)]
pub struct Reader<R> {
    lines: Lines<R>,
    failed: bool,
}

impl<R: BufRead> Reader<R> {
    /// A reader over text that is already decompressed.
    pub fn new(input: R) -> Self {
        Self { lines: Lines::new(input), failed: false }
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        match self.lines.next_line()? {
            None => Ok(None),
            Some((line, text)) => {
                parse(text).map(Some).map_err(|source| TraceError::Line { line, source })
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let record = self.read();
        self.failed = record.is_err();
        record.transpose()
    }
}

pub(crate) fn parse(text: &[u8]) -> Result<Record, Problem> {
    let mut fields = text.split(|&byte| byte == b',');
    let mut next = |name| fields.next().ok_or(Problem::Missing(name));
    let ts_us = number(next("ts_us")?, "ts_us")?;
    let volume = number(next("vol")?, "vol")?;
    let op = match next("op")? {
        b"R" => Op::Read,
        b"W" => Op::Write,
        b"F" => Op::Flush,
        b"D" => Op::Discard,
        _ => return Err(Problem::Op),
    };
    let offset_bytes = number(next("offset_bytes")?, "offset_bytes")?;
    let length_bytes = number(next("length_bytes")?, "length_bytes")?;
    if fields.next().is_some() {
        return Err(Problem::Surplus(FIELDS));
    }
    let volume = u32::try_from(volume).map_err(|_| Problem::Volume)?;
    check(Record { ts_us, volume, op, offset_bytes, length_bytes })
}

/// The record, if its numbers are what a trace can hold: what is read is, and so is what is written.
pub(crate) fn check(record: Record) -> Result<Record, Problem> {
    if record.volume > Record::VOLUME_MAX {
        return Err(Problem::Volume);
    }
    let is_transfer = matches!(record.op, Op::Read | Op::Write);
    if is_transfer && record.length_bytes > Record::LENGTH_BYTES_MAX {
        return Err(Problem::Length);
    }
    match record.offset_bytes.checked_add(record.length_bytes) {
        Some(end) if end <= Record::END_BYTES_MAX => Ok(record),
        _ => Err(Problem::End),
    }
}
