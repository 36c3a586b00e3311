//! The canonical form, our own: `ts_us,vol,op,offset_bytes,length_bytes`, one request a line.
//!
//! [`mod@crate::write`] writes it. No header, no blanks; the operation is `R`, `W`, `F` (flush) or
//! `D` (discard). A line that begins with `#` is a comment; `# volume 3 vm-disk` names volume 3 and
//! stands before its requests. A program that reads five numbers passes over it as over any comment.

use crate::error::{Problem, TraceError};
use crate::lines::Lines;
use crate::names::{NAME_BYTES_MAX, VOLUMES_MAX, shown};
use crate::number::number;
use crate::record::{Op, Record};
use std::collections::BTreeMap;
use std::io::BufRead;

const FIELDS: usize = 5;
/// What a comment begins with that names a volume.
pub(crate) const NAME: &str = "# volume ";

/// Reads records from text. After an error it yields nothing more.
#[derive(Debug)]
pub struct Reader<R> {
    lines: Lines<R>,
    names: BTreeMap<u32, String>,
    failed: bool,
}

impl<R: BufRead> Reader<R> {
    /// A reader over text that is already decompressed.
    pub fn new(input: R) -> Self {
        Self { lines: Lines::new(input), names: BTreeMap::new(), failed: false }
    }

    /// A volume's name, if a comment so far told it.
    pub fn volume_name(&self, volume: u32) -> Option<&str> {
        self.names.get(&volume).map(String::as_str)
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        while let Some((line, text)) = self.lines.next_line()? {
            if !text.starts_with(b"#") {
                let wrong = |source| TraceError::Line { line, source };
                return parse(text).map(Some).map_err(wrong);
            }
            let is_room = self.names.len() < VOLUMES_MAX;
            if let Some((volume, name)) = name_in(text).filter(|_| is_room) {
                self.names.insert(volume, name);
            }
        }
        Ok(None)
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

/// The volume that a comment names, and its name.
pub(crate) fn name_in(text: &[u8]) -> Option<(u32, String)> {
    let text = text.strip_prefix(NAME.as_bytes())?;
    let blank = text.iter().position(|byte| *byte == b' ')?;
    let (volume, name) = (&text[..blank], &text[blank + 1..]);
    let volume = u32::try_from(number(volume, "vol").ok()?).ok()?;
    let fits = volume <= Record::VOLUME_MAX && (1..=NAME_BYTES_MAX).contains(&name.len());
    fits.then(|| (volume, shown(name)))
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
