//! The second pass: a stretch of a trace as I/Os on the targets.

use super::error::ReplayError;
use super::survey::{self, Survey};
use crate::drive::Timed;
use cinnabar_trace::{Op, Record, Trace};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Longer requests are played in pieces of this size, all at once.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Offsets are folded by multiples of this, so that blocks stay blocks.
const BLOCK_BYTES: u64 = 4096;

#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Sizes of the targets, in bytes: the one of the survey's n-th volume is the n-th unit.
    pub(super) sizes: Vec<u64>,
    /// Volume numbers, ascending.
    pub(super) numbers: Vec<u32>,
    /// Fold what lies beyond a target's end into it.
    pub(super) wrap: bool,
    /// Leave the writes out.
    pub(super) read_only: bool,
    /// Longer pauses are cut to this, in microseconds.
    pub(super) idle_max_us: u64,
}

/// I/Os of a stretch of time, timed from the first of them on.
pub(super) struct Source<'a> {
    path: PathBuf,
    records: Trace,
    time: Range<u64>,
    rules: &'a Rules,
    /// Time of the last I/O in the trace, and as it is played.
    last: Option<(u64, u64)>,
    /// What is left of a long request.
    rest: Option<Timed>,
}

impl Rules {
    pub(super) fn numbers(survey: &Survey) -> Vec<u32> {
        survey.volumes.iter().map(|volume| volume.number).collect()
    }

    /// Where a request goes: the unit and the first byte. `None` if it does not fit.
    fn place(&self, volume: u32, offset: u64, len: u64) -> Option<(usize, u64)> {
        let unit = self.numbers.binary_search(&volume).ok()?;
        let size = self.sizes[unit];
        let room = size.checked_sub(len)?;
        if offset <= room {
            return Some((unit, offset));
        }
        let fold = (size / BLOCK_BYTES * BLOCK_BYTES).max(1);
        self.wrap.then(|| (unit, (offset % fold).min(room)))
    }
}

impl<'a> Source<'a> {
    /// What is to be played between two times of the trace, in microseconds.
    pub(super) fn new(
        path: &Path,
        time: Range<u64>,
        rules: &'a Rules,
    ) -> Result<Self, ReplayError> {
        let records = survey::open(path)?;
        Ok(Self { path: path.to_owned(), records, time, rules, last: None, rest: None })
    }

    fn timed(&mut self, record: &Record) -> Result<Option<Timed>, ReplayError> {
        let Some((offset, len)) = survey::span(record) else { return Ok(None) };
        let write = record.op == Op::Write;
        if write && self.rules.read_only {
            return Ok(None);
        }
        let changed = || ReplayError::Changed(self.path.clone());
        let place = self.rules.place(record.volume, offset, len);
        let (unit, offset) = place.ok_or_else(changed)?;
        let at_us = match self.last {
            None => 0,
            Some((before, at_us)) => {
                let pause = record.ts_us.checked_sub(before).ok_or_else(changed)?;
                at_us + pause.min(self.rules.idle_max_us)
            }
        };
        self.last = Some((record.ts_us, at_us));
        let at_ns = at_us.saturating_mul(1000);
        Ok(Some(Timed { at_ns, unit, write, offset, len, stream: unit }))
    }

    /// Cuts off what goes at a time and keeps the rest.
    fn piece(&mut self, io: Timed) -> Timed {
        if io.len <= PIECE_BYTES_MAX {
            return io;
        }
        let (offset, len) = (io.offset + PIECE_BYTES_MAX, io.len - PIECE_BYTES_MAX);
        self.rest = Some(Timed { offset, len, ..io });
        Timed { len: PIECE_BYTES_MAX, ..io }
    }

    fn read(&mut self) -> Result<Option<Timed>, ReplayError> {
        if let Some(io) = self.rest.take() {
            return Ok(Some(self.piece(io)));
        }
        while let Some(record) = self.records.next() {
            let record = record.map_err(|error| survey::trace_error(&self.path, error))?;
            if record.ts_us >= self.time.end {
                break;
            }
            if record.ts_us < self.time.start {
                continue;
            }
            if let Some(io) = self.timed(&record)? {
                return Ok(Some(self.piece(io)));
            }
        }
        Ok(None)
    }
}

impl Iterator for Source<'_> {
    type Item = Result<Timed, ReplayError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 10 << 20;

    fn rules() -> Rules {
        Rules {
            sizes: vec![SIZE, SIZE],
            numbers: vec![3, 9],
            wrap: false,
            read_only: false,
            idle_max_us: u64::MAX,
        }
    }

    fn play(text: &str, time: Range<u64>, rules: &Rules) -> Result<Vec<Timed>, ReplayError> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("a trace");
        Source::new(file.path(), time, rules)?.collect()
    }

    fn io(at_us: u64, unit: usize, write: bool, offset: u64, len: u64) -> Timed {
        Timed { at_ns: at_us * 1000, unit, write, offset, len, stream: unit }
    }

    const TEXT: &str = "10,3,R,0,4096\n20,9,W,100,100\n25,3,F,0,0\n50,3,D,0,512\n\
        1050,3,W,8192,512\n2000,9,R,0,512\n";

    #[test]
    fn a_stretch_is_timed_from_its_first_request() {
        let all = play(TEXT, 0..u64::MAX, &rules()).expect("it plays");
        let expected = [
            io(0, 0, false, 0, 4096),
            io(10, 1, true, 0, 512),
            io(1040, 0, true, 8192, 512),
            io(1990, 1, false, 0, 512),
        ];
        assert_eq!(all, expected);
        let part = play(TEXT, 20..2000, &rules()).expect("it plays");
        assert_eq!(part, [io(0, 1, true, 0, 512), io(1030, 0, true, 8192, 512)]);
        assert!(play(TEXT, 21..1050, &rules()).expect("it plays").is_empty());
    }

    #[test]
    fn pauses_are_cut_and_writes_left_out() {
        let short = Rules { idle_max_us: 100, ..rules() };
        let times: Vec<u64> =
            play(TEXT, 0..u64::MAX, &short).expect("plays").iter().map(|io| io.at_ns).collect();
        assert_eq!(times, [0, 10_000, 110_000, 210_000]);
        let reads = Rules { read_only: true, ..rules() };
        let all = play(TEXT, 0..u64::MAX, &reads).expect("it plays");
        assert_eq!(all, [io(0, 0, false, 0, 4096), io(1990, 1, false, 0, 512)]);
    }

    #[test]
    fn long_requests_go_in_pieces() {
        let text = "0,3,R,512,2621440\n7,3,R,0,512\n";
        let all = play(text, 0..u64::MAX, &rules()).expect("it plays");
        let mib = 1 << 20;
        let expected = [
            io(0, 0, false, 512, mib),
            io(0, 0, false, 512 + mib, mib),
            io(0, 0, false, 512 + 2 * mib, mib / 2),
            io(7, 0, false, 0, 512),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_lies_beyond_is_folded_or_refused() {
        let text = format!("0,3,R,{},4096\n1,3,R,{},8192\n", 3 * SIZE + 4096, 2 * SIZE - 4096);
        let error = play(&text, 0..u64::MAX, &rules()).expect_err("beyond the end");
        assert!(matches!(error, ReplayError::Changed(_)), "{error}");
        let wrap = Rules { wrap: true, ..rules() };
        let all = play(&text, 0..u64::MAX, &wrap).expect("it plays");
        assert_eq!(all, [io(0, 0, false, 4096, 4096), io(1, 0, false, SIZE - 8192, 8192)]);
        // Longer than the whole target, a volume nobody knows, back in time: not what was surveyed.
        for text in ["0,3,R,0,11534336\n", "0,4,R,0,512\n", "5,3,R,0,512\n4,3,R,0,512\n"] {
            assert!(play(text, 0..u64::MAX, &wrap).is_err(), "{text}");
        }
    }
}
