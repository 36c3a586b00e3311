//! Looks through a trace before it is simulated: how long it is, how many blocks it knows, and which
//! trace it is.

use super::TraceInput;
use crate::sweep::{Job, Load};
use crate::timed::{Config, Pace, Workload};
use cinnabar_policy::{Access, Interner, TooManyBlocks};
use cinnabar_trace::{Op, Record, TraceError};
use std::path::Path;

/// Requests between two words about progress.
const PROGRESS_EVERY: u64 = 1 << 16;
/// Blocks of a request that are numbered together.
const RUN: u64 = 1024;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Reads and writes, those of no length left out.
    pub requests: u64,
    /// Of them, writes.
    pub writes: u64,
    /// Blocks that they touch, each as often as it is touched.
    pub ios: u64,
    /// Different blocks.
    pub blocks: u64,
    /// Volumes: the largest number, and 1.
    pub volumes: u32,
    /// From the first request to the last, in microseconds.
    pub duration_us: u64,
    /// Of all that matters: two traces with the same digest give the same results.
    pub digest: u64,
}

/// Why there is no survey.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Blocks(#[from] TooManyBlocks),
    #[error("it has neither reads nor writes")]
    Empty,
}

/// Reads all of it. `tell` hears the requests so far, and the part that was read, 0 to 1, if it is
/// known.
///
/// # Errors
/// If it can't be read to its end, or if there is nothing in it.
pub fn survey(path: &Path, tell: &mut dyn FnMut(u64, Option<f64>)) -> Result<Survey, SurveyError> {
    let mut trace = cinnabar_trace::open(path)?;
    let mut found = Survey { digest: 0xcbf2_9ce4_8422_2325, ..Survey::default() };
    let mut interner = Interner::default();
    let mut numbered: Vec<Access> = Vec::new();
    let mut first_us = None;
    while let Some(record) = trace.next() {
        let record = record?;
        if !counts(&record) {
            continue;
        }
        found.note(&record);
        let first = *first_us.get_or_insert(record.ts_us);
        found.duration_us = found.duration_us.max(record.ts_us.saturating_sub(first));
        let base = u64::from(record.volume) << 40;
        let mut blocks = record.blocks();
        while !blocks.is_empty() {
            let end = blocks.end.min(blocks.start + RUN);
            numbered.clear();
            interner
                .extend((blocks.start..end).map(|block| (base | block, false)), &mut numbered)?;
            blocks.start = end;
        }
        if found.requests.is_multiple_of(PROGRESS_EVERY) {
            let part = trace.size_bytes().map(|all| trace.bytes_read() as f64 / all.max(1) as f64);
            tell(found.requests, part);
        }
    }
    found.blocks = u64::from(interner.blocks());
    if found.requests == 0 { Err(SurveyError::Empty) } else { Ok(found) }
}

/// Whether the simulator asks for it.
fn counts(record: &Record) -> bool {
    matches!(record.op, Op::Read | Op::Write) && !record.blocks().is_empty()
}

impl Survey {
    fn note(&mut self, record: &Record) {
        let blocks = record.blocks();
        self.requests += 1;
        self.writes += u64::from(record.op == Op::Write);
        self.ios += blocks.end - blocks.start;
        self.volumes = self.volumes.max(record.volume + 1);
        let op = u64::from(record.op == Op::Write);
        for word in [record.ts_us, u64::from(record.volume), op, blocks.start, blocks.end] {
            // FNV-1a, eight bytes at a time.
            self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        }
    }

    /// What a simulation with this trace takes.
    pub fn memory_bytes(&self, config: &Config, pace: Pace) -> u64 {
        let open = || unreachable!("only its size is asked for");
        let load = Load::Trace { open: &open, pace, ios: self.ios, blocks: self.blocks };
        Job { name: String::new(), config: *config, load }.memory_bytes()
    }

    /// The requests, to be simulated; the first of them, by the share of the warm-up, are not measured.
    ///
    /// # Errors
    /// If the trace can't be opened.
    pub fn open(
        &self,
        trace: &TraceInput,
        warm_up_share: f64,
    ) -> Result<Workload<'static>, TraceError> {
        let records = cinnabar_trace::open(&trace.path)?;
        #[expect(clippy::cast_sign_loss, reason = "checked to be a share")]
        let warm_up = (self.requests as f64 * warm_up_share).round() as u64;
        Ok(Workload::Records {
            records: Box::new(records),
            pace: trace.pace,
            warm_up,
            expected: Some(self.requests),
        })
    }
}
