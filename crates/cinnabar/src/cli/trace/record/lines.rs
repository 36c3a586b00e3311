//! The daemon's answer, piece by piece, as what it means.
//!
//! What comes from outside is bounded: a line that does not end, or is neither a request nor a word,
//! is an error.

use cinnabar_control::recordings::Word;
use cinnabar_trace::{Record, TraceError, canonical};

/// Longest line: the names of 4096 volumes, with room.
const LINE_BYTES_MAX: usize = 2 << 20;

/// A line of the answer.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Request(Record),
    Word(Word),
}

/// Why an answer can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Gibberish {
    #[error("{0}")]
    Request(#[from] TraceError),
    #[error("{0}")]
    Word(#[from] serde_json::Error),
    #[error("a line without an end")]
    Endless,
}

/// Puts lines together that come in pieces.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line.
    rest: Vec<u8>,
}

impl Lines {
    /// Takes a piece; calls `take` with each line that is whole now, until it fails.
    pub(super) fn push<E: From<Gibberish>>(
        &mut self,
        piece: &[u8],
        mut take: impl FnMut(Line) -> Result<(), E>,
    ) -> Result<(), E> {
        self.rest.extend_from_slice(piece);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut text = &self.rest[..whole];
        while !text.is_empty() {
            let (part, others) = text.split_at(part_of_one_kind(text));
            text = others;
            if part.starts_with(b"{") {
                take(Line::Word(serde_json::from_slice(part).map_err(Gibberish::from)?))?;
                continue;
            }
            for record in canonical::Reader::new(part) {
                take(Line::Request(record.map_err(Gibberish::from)?))?;
            }
        }
        self.rest.drain(..whole);
        if self.rest.len() > LINE_BYTES_MAX {
            return Err(Gibberish::Endless.into());
        }
        Ok(())
    }
}

/// Length of a word at the beginning of some lines, or of the requests before one.
fn part_of_one_kind(lines: &[u8]) -> usize {
    if lines.starts_with(b"{") {
        return lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |at| at + 1);
    }
    lines.windows(2).position(|pair| pair == b"\n{").map_or(lines.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_config::messages::recording::Ending;
    use cinnabar_trace::Op;

    const ANSWER: &str = "{\"word\":\"began\",\"id\":1,\"volumes\":[\"vm1\"]}\n\
        5,0,R,4096,512\n6,0,F,0,0\n{\"word\":\"dropped\",\"requests\":9}\n\
        {\"word\":\"removed\",\"volume\":0}\n7,0,D,0,8192\n\
        {\"word\":\"ended\",\"reason\":\"removed\"}\n";

    fn read(pieces: &[&[u8]]) -> Result<Vec<Line>, Gibberish> {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, |line| {
                all.push(line);
                Ok::<(), Gibberish>(())
            })?;
        }
        Ok(all)
    }

    #[test]
    fn lines_are_put_together_wherever_they_are_cut() {
        let whole = read(&[ANSWER.as_bytes()]).expect("it is an answer");
        let request = |ts_us, op, offset_bytes, length_bytes| {
            Line::Request(Record { ts_us, volume: 0, op, offset_bytes, length_bytes })
        };
        let expected = [
            Line::Word(Word::Began {
                id: 1,
                volumes: vec!["vm1".into()],
                intervals: None,
                cache_bytes: None,
            }),
            request(5, Op::Read, 4096, 512),
            request(6, Op::Flush, 0, 0),
            Line::Word(Word::Dropped { requests: 9 }),
            Line::Word(Word::Removed { volume: 0 }),
            request(7, Op::Discard, 0, 8192),
            Line::Word(Word::Ended { reason: Ending::Removed }),
        ];
        assert_eq!(whole, expected);
        for at in 0..ANSWER.len() {
            let (one, two) = ANSWER.as_bytes().split_at(at);
            assert_eq!(read(&[one, two]).expect("the same"), expected, "cut at {at}");
        }
        let (bytes, mut last) = (ANSWER.as_bytes(), Vec::new());
        last.extend(bytes.chunks(1));
        assert_eq!(read(&last).expect("the same"), expected);
    }

    #[test]
    fn anything_else_is_an_error() {
        for text in [
            "hello\n",
            "\n",
            "1,0,R,0\n",
            "1,0,X,0,0\n",
            "1,99999999,R,0,512\n",
            "1,0,R,9999999999999999,512\n",
            "{}\n",
            "{\"word\":\"sang\"}\n",
            "{\"word\":\"began\"\n",
            "1,0,R,0,512\n{\"word\":1}\n",
        ] {
            assert!(read(&[text.as_bytes()]).is_err(), "{text:?}");
        }
        let endless = vec![b'1'; 1 << 20];
        let error = read(&[&endless, &endless, &endless]).expect_err("it is too long");
        assert!(matches!(error, Gibberish::Endless), "{error}");
    }
}
