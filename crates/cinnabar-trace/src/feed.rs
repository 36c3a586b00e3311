//! Takes a source apart into lines or records and has them parsed, one at a time.
//!
//! Knows where in the source it is, so that what is wrong can be named.

use crate::error::{Problem, TraceError};
use crate::formats::{Binary, Text};
use crate::lines::Lines;
use crate::sink::Sink;
use crate::source::Source;
use std::io::{self, Read};

pub(crate) enum Feed {
    Text {
        lines: Lines<Source>,
        parser: Box<dyn Text>,
        /// Number of the line that was read last.
        line: u64,
    },
    Binary {
        input: Source,
        parser: Box<dyn Binary>,
        record: Vec<u8>,
        /// Where the record that was read last begins.
        byte: u64,
        /// Where the next one does.
        next_byte: u64,
    },
}

impl Feed {
    pub(crate) fn text(input: Source, parser: Box<dyn Text>) -> Self {
        Self::Text { lines: Lines::new(input), parser, line: 0 }
    }

    pub(crate) fn binary(input: Source, parser: Box<dyn Binary>) -> Self {
        Self::Binary { input, parser, record: Vec::new(), byte: 0, next_byte: 0 }
    }

    /// Parses the next line or record into the sink; `false` at the end. Blank lines are skipped.
    pub(crate) fn next(&mut self, sink: &mut Sink) -> Result<bool, TraceError> {
        let parsed = match self {
            Self::Text { lines, parser, line } => {
                let Some((number, text)) = lines.next_line()? else { return Ok(false) };
                *line = number;
                if text.trim_ascii().is_empty() {
                    return Ok(true);
                }
                parser.parse(text, sink)
            }
            Self::Binary { input, parser, record, byte, next_byte } => {
                *byte = *next_byte;
                let bytes = parser.record_bytes();
                let lost = |source| TraceError::IoAfter { byte: *byte, source };
                record.clear();
                let read = input.by_ref().take(bytes as u64).read_to_end(record).map_err(lost)?;
                match read {
                    0 => return Ok(false),
                    read if read < bytes => Err(Problem::Cut { bytes: read, of: bytes }),
                    _ => match parser.parse(record, sink) {
                        Ok(behind) => {
                            *next_byte = *byte + bytes as u64 + behind;
                            let mut rest = input.by_ref().take(behind);
                            let skipped = io::copy(&mut rest, &mut io::sink()).map_err(lost)?;
                            let cut = Problem::Cut {
                                bytes: bytes + skipped as usize,
                                of: bytes + behind as usize,
                            };
                            if skipped == behind { Ok(()) } else { Err(cut) }
                        }
                        Err(problem) => Err(problem),
                    },
                }
            }
        };
        parsed.map_err(|problem| self.wrong(problem)).map(|()| true)
    }

    /// What is wrong with what was read last.
    pub(crate) fn wrong(&self, source: Problem) -> TraceError {
        match self {
            Self::Text { line, .. } => TraceError::Line { line: *line, source },
            Self::Binary { byte, .. } => TraceError::Record { byte: *byte, source },
        }
    }
}
