//! Writes fio's iolog, versions 2 and 3, which `fio --read_iolog` replays.
//!
//! Version 3 (fio 3.31 and later) has every time; version 2 has pauses of 100 us and more, since fio
//! ignores shorter ones: what is left of a pause counts for the next.

use crate::canonical;
use crate::formats::fio::HEADERS;
use crate::names::NAME_BYTES_MAX;
use crate::record::{Op, Record};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};

/// fio ignores shorter ones.
const WAIT_US_MIN: u64 = 100;
/// fio keeps lengths in 32 bits: longer requests are written in pieces of this size.
const PIECE_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Times by `wait`.
    V2,
    /// A time in every line.
    V3,
}

/// Writes records as text to any stream.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: W,
    version: Version,
    files: BTreeSet<String>,
    /// Time of the last line, and in version 2 that of the last `wait`.
    now_us: u64,
}

impl<W: Write> Writer<W> {
    /// Begins an iolog; the stream should be buffered.
    ///
    /// # Errors
    /// What the stream says.
    pub fn new(mut output: W, version: Version) -> io::Result<Self> {
        writeln!(output, "{}", HEADERS[usize::from(version == Version::V3)])?;
        Ok(Self { output, version, files: BTreeSet::new(), now_us: 0 })
    }

    /// Writes a request of a volume, which is replayed on the file of the name given here. Blanks in
    /// it become `_`.
    ///
    /// # Errors
    /// `InvalidInput` if the record is none that a reader takes, is earlier than the one before, or its
    /// file has no name or one too long for fio; else what the stream says.
    pub fn write(&mut self, record: &Record, file: &str) -> io::Result<()> {
        let record = canonical::check(*record)
            .map_err(|problem| io::Error::new(ErrorKind::InvalidInput, problem))?;
        let invalid = |what| Err(io::Error::new(ErrorKind::InvalidInput, what));
        let blank = |letter: char| letter.is_whitespace() || letter.is_control();
        let file = file.replace(blank, "_");
        if file.is_empty() || file.len() > NAME_BYTES_MAX {
            return invalid("the name of a file to replay on is empty or longer than 256 bytes");
        }
        self.pass_time(record.ts_us, &file)?;
        if !self.files.contains(&file) {
            self.line(&file, "add")?;
            self.line(&file, "open")?;
            self.files.insert(file.clone());
        }
        let action = match record.op {
            Op::Flush => return self.line(&file, "sync 0 0"),
            Op::Read => "read",
            Op::Write => "write",
            Op::Discard => "trim",
        };
        let end = record.offset_bytes + record.length_bytes;
        let mut offset = record.offset_bytes;
        while offset < end {
            let length = (end - offset).min(PIECE_BYTES_MAX);
            self.line(&file, &format!("{action} {offset} {length}"))?;
            offset += length;
        }
        Ok(())
    }

    /// Closes the files; the stream, with all lines written to it.
    ///
    /// # Errors
    /// What the stream says.
    pub fn finish(mut self) -> io::Result<W> {
        for file in std::mem::take(&mut self.files) {
            self.line(&file, "close")?;
        }
        Ok(self.output)
    }

    fn pass_time(&mut self, ts_us: u64, file: &str) -> io::Result<()> {
        let Some(pause_us) = ts_us.checked_sub(self.now_us) else {
            // Less than a pause may have been rounded, but never up.
            let what = format!("time goes back by {} us", self.now_us - ts_us);
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        };
        match self.version {
            Version::V3 => self.now_us = ts_us,
            Version::V2 if pause_us >= WAIT_US_MIN => {
                self.now_us = ts_us;
                self.line(file, &format!("wait {pause_us} 0"))?;
            }
            Version::V2 => {}
        }
        Ok(())
    }

    fn line(&mut self, file: &str, rest: &str) -> io::Result<()> {
        match self.version {
            Version::V2 => writeln!(self.output, "{file} {rest}"),
            Version::V3 => writeln!(self.output, "{} {file} {rest}", self.now_us),
        }
    }
}
