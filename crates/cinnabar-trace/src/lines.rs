//! Lines of bounded length, numbered, from any buffered reader.
//!
//! The buffer is reused: no allocation a line.

use crate::error::{Problem, TraceError};
use std::io::{BufRead, Read};

/// Longest line of any text format, in bytes, its end included.
pub(crate) const LINE_BYTES_MAX: usize = 1024;

/// Yields one line at a time.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: Vec::with_capacity(LINE_BYTES_MAX), number: 0 }
    }

    /// The next line's number (from 1) and its bytes without the line's end; `None` at the end.
    pub(crate) fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, TraceError> {
        self.line.clear();
        // One byte beyond the bound distinguishes a line of exactly that length from a longer one.
        let mut bounded = self.input.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        let read = bounded
            .read_until(b'\n', &mut self.line)
            .map_err(|source| TraceError::Io { line: self.number, source })?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if read > LINE_BYTES_MAX {
            return Err(TraceError::Line {
                line: self.number,
                source: Problem::TooLong(LINE_BYTES_MAX),
            });
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some((self.number, line.strip_suffix(b"\r").unwrap_or(line))))
    }
}
