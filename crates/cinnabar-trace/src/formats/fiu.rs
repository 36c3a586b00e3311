//! FIU traces: `ns pid process lba sectors W|R major minor md5`, between blanks.
//!
//! LBA and size count sectors of 512 bytes. A process may have blanks in its name, so the six fields
//! behind it are counted from the line's end. A volume is a device, `major,minor`.

use super::Text;
use crate::error::Problem;
use crate::fields::Fields;
use crate::number::number;
use crate::record::Op;
use crate::sink::Sink;

/// Fields behind the process.
const LAST_FIELDS: usize = 6;

#[derive(Debug, Default)]
pub(crate) struct Fiu {
    name: Vec<u8>,
}

impl Text for Fiu {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        let count = Fields::blanks(line).count();
        let mut fields = Fields::blanks(line);
        let ts_us = fields.number("timestamp")? / 1000;
        fields.number("pid")?;
        // At least one word of a process's name.
        let process_words = count.checked_sub(2 + LAST_FIELDS).filter(|&words| words > 0);
        for _ in 0..process_words.ok_or(Problem::Missing("md5"))? {
            fields.text("process")?;
        }
        let offset = fields.sectors("lba")?;
        let size = fields.sectors("size")?;
        let op = match fields.text("operation")? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            _ => return Err(Problem::OpOf("R, W")),
        };
        let (major, minor) = (fields.text("major")?, fields.text("minor")?);
        number(major, "major")?;
        number(minor, "minor")?;
        self.name.clear();
        self.name.extend_from_slice(major);
        self.name.push(b',');
        self.name.extend_from_slice(minor);
        sink.push(ts_us, &self.name, op, offset, size)
    }
}
