//! What is replayed: files, read again in each pass, or requests in memory.
//!
//! A trace of up to [`KEPT_MAX`] requests is kept by the first pass, because unpacking it costs more
//! than replaying it; a longer one is read again, so memory stays bounded.

use super::CompareError;
use crate::analysis::run::{EVERY_REFERENCES, EVERY_TIME};
use crate::analysis::traces::Traces;
use crate::analysis::{Every, Interval, Intervals};
use cinnabar_trace::{Record, TraceError};
use std::path::PathBuf;

/// Requests kept in memory at most, of 32 bytes each.
pub const KEPT_MAX: usize = 4 << 20;
/// Requests between two words about how far a pass is.
const TELL_EVERY: u64 = 1 << 14;

/// Where requests come from, as often as they are wanted.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Traces, read as one.
    Files(&'a [PathBuf]),
    /// Requests in order of time; volumes are numbered from 0.
    Records(&'a [Record]),
}

/// What a pass meets.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The next request.
    Request(&'a Record),
    /// The end of an interval.
    End {
        /// The interval that ends.
        found: Interval,
        /// When the first request behind it comes; `None` at the end.
        next_us: Option<u64>,
    },
}

impl Input<'_> {
    /// Where to cut by default: as `analyze` does.
    ///
    /// # Errors
    /// If a trace can't be opened, or not as often as it takes.
    pub fn every(&self) -> Result<Every, CompareError> {
        let Self::Files(paths) = self else { return Ok(EVERY_TIME) };
        let other = paths.iter().find(|path| path.metadata().is_ok_and(|found| !found.is_file()));
        if let Some(path) = other.filter(|path| !path.is_dir()) {
            return Err(CompareError::Twice(path.clone()));
        }
        let mut untold = |_| {};
        let have_times = Traces::open(paths, &mut untold)?.have_times();
        Ok(if have_times { EVERY_TIME } else { EVERY_REFERENCES })
    }

    /// Goes through all requests. `tell` is called from time to time with the number of requests
    /// since the last call; an error of `each` stops the pass. Gives the volumes' names, if the input
    /// has them.
    ///
    /// # Errors
    /// What the traces say, or `each`.
    pub fn pass(
        &self,
        every: Every,
        tell: &mut dyn FnMut(u64),
        mut each: impl FnMut(Step<'_>) -> Result<(), CompareError>,
    ) -> Result<Vec<String>, CompareError> {
        match self {
            Self::Records(records) => {
                let mut records = records.iter().copied().map(Ok);
                go(&mut records, every, tell, &mut each)
                    .map_err(|stop| stop.into_error(|_| unreachable!("memory can be read")))?;
                Ok(Vec::new())
            }
            Self::Files(paths) => {
                let mut untold = |_| {};
                let mut traces = Traces::open(paths, &mut untold)?;
                go(&mut traces, every, tell, &mut each)
                    .map_err(|stop| stop.into_error(|error| traces.failure(error).into()))?;
                Ok((0..traces.volumes()).map(|volume| traces.name(volume)).collect())
            }
        }
    }
}

enum Stop {
    Trace(TraceError),
    Said(CompareError),
}

impl Stop {
    fn into_error(self, of_trace: impl FnOnce(TraceError) -> CompareError) -> CompareError {
        match self {
            Self::Trace(error) => of_trace(error),
            Self::Said(error) => error,
        }
    }
}

fn go(
    records: &mut impl Iterator<Item = Result<Record, TraceError>>,
    every: Every,
    tell: &mut dyn FnMut(u64),
    each: &mut impl FnMut(Step<'_>) -> Result<(), CompareError>,
) -> Result<(), Stop> {
    let mut intervals = Intervals::new(records, every);
    let (mut untold, mut said) = (0, Ok(()));
    loop {
        let found = intervals.next(|record| {
            untold += 1;
            if untold == TELL_EVERY {
                tell(std::mem::take(&mut untold));
            }
            if said.is_ok() {
                said = each(Step::Request(record));
            }
        });
        std::mem::replace(&mut said, Ok(())).map_err(Stop::Said)?;
        let Some(found) = found.map_err(Stop::Trace)? else { break };
        let next_us = intervals.next_us();
        each(Step::End { found, next_us }).map_err(Stop::Said)?;
    }
    tell(untold);
    Ok(())
}
