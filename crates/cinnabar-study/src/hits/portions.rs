//! The trace in portions: what is read once and then handed to every cache.
//!
//! Blocks get dense numbers here, once for all caches. A portion ends with a request, so the engine
//! gets requests as they were.

use super::error::HitsError;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES};
use cinnabar_policy::{Access, Future, Interner, TooLong};
use cinnabar_trace::{Op, Record, TraceError};
use std::collections::BTreeSet;

/// References after which a portion ends: 1 MiB of them, and as much as the longest request has, 4 MiB.
const PORTION: usize = 1 << 18;
const KEY_BLOCK_BITS: u32 = 40;

/// What is in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Requests of all kinds.
    pub requests: u64,
    /// References to 4 KiB blocks by reads and writes.
    pub references: u64,
    /// Of those, by reads.
    pub read_references: u64,
    /// Different blocks: the footprint.
    pub blocks: u32,
    /// Volumes that are read or written.
    pub volumes: u32,
}

/// A read or write, as the engine gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) volume: u32,
    pub(super) is_write: bool,
    pub(super) span: ByteSpan,
}

/// What a request's ends are rounded to for the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grain {
    /// Whole blocks of 4 KiB: what policies see, too.
    #[default]
    Blocks,
    /// Sectors of 512 bytes: what a guest asks of a disk.
    Sectors,
}

impl Grain {
    const fn bytes(self) -> u64 {
        match self {
            Self::Blocks => BLOCK_BYTES,
            Self::Sectors => SECTOR_BYTES,
        }
    }

    /// The smallest span of whole grains around a request.
    fn around(self, record: &Record) -> ByteSpan {
        let start = record.offset_bytes / self.bytes() * self.bytes();
        let end = (record.offset_bytes + record.length_bytes).next_multiple_of(self.bytes());
        ByteSpan::new(start, end - start)
    }
}

#[derive(Debug, Default)]
pub(super) struct Portion {
    pub(super) accesses: Vec<Access>,
    /// The same as requests, if a cache needs them.
    pub(super) requests: Vec<Request>,
}

#[derive(Debug)]
pub(super) struct Portions<I> {
    records: I,
    interner: Interner,
    /// Keys of the portion that is being read: looked up together, so that cache misses overlap.
    keys: Vec<(u64, bool)>,
    volumes: BTreeSet<u32>,
    last_volume: Option<u32>,
    survey: Survey,
    /// How requests are given, if they are wanted.
    requests: Option<Grain>,
    /// All accesses so far, if they are kept.
    all: Option<Vec<Access>>,
}

impl<I: Iterator<Item = Result<Record, TraceError>>> Portions<I> {
    pub(super) fn new(records: I) -> Self {
        Self {
            records,
            interner: Interner::default(),
            keys: Vec::new(),
            volumes: BTreeSet::new(),
            last_volume: None,
            survey: Survey::default(),
            requests: None,
            all: None,
        }
    }

    /// Portions have requests, too.
    pub(super) fn with_requests(self, requests: Option<Grain>) -> Self {
        Self { requests, ..self }
    }

    /// All accesses are kept for [`into_all`](Self::into_all): 4 bytes each.
    pub(super) fn keeping_all(self, keep: bool) -> Self {
        Self { all: keep.then(Vec::new), ..self }
    }

    /// The next portion; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Portion>, HitsError> {
        let mut portion = Portion::default();
        self.keys.clear();
        while self.keys.len() < PORTION {
            let Some(record) = self.records.next().transpose()? else { break };
            self.survey.requests += 1;
            self.take(&record, &mut portion);
        }
        portion.accesses.reserve_exact(self.keys.len());
        self.interner
            .extend(self.keys.iter().copied(), &mut portion.accesses)
            .map_err(|source| HitsError::Blocks { request: self.survey.requests, source })?;
        if let Some(all) = &mut self.all {
            if all.len() + portion.accesses.len() > Future::ACCESSES_MAX {
                return Err(TooLong.into());
            }
            all.extend_from_slice(&portion.accesses);
        }
        Ok((!portion.accesses.is_empty()).then_some(portion))
    }

    fn take(&mut self, record: &Record, portion: &mut Portion) {
        let blocks = record.blocks();
        let count = blocks.end - blocks.start;
        if !matches!(record.op, Op::Read | Op::Write) || count == 0 {
            return;
        }
        let (volume, is_write) = (record.volume, record.op == Op::Write);
        if let Some(grain) = self.requests {
            portion.requests.push(Request { volume, is_write, span: grain.around(record) });
        }
        let key = |block| (u64::from(volume) << KEY_BLOCK_BITS | block, is_write);
        self.keys.extend(blocks.map(key));
        // Requests of a volume come in runs.
        if self.last_volume.replace(volume) != Some(volume) {
            self.volumes.insert(volume);
        }
        self.survey.references += count;
        self.survey.read_references += if is_write { 0 } else { count };
    }

    pub(super) fn survey(&self) -> Survey {
        let volumes = self.volumes.len() as u32;
        Survey { blocks: self.interner.blocks(), volumes, ..self.survey }
    }

    /// All accesses, if they were kept.
    pub(super) fn into_all(self) -> Vec<Access> {
        self.all.unwrap_or_default()
    }
}

/// Reads a trace for what is in it: sizes as parts of the footprint need it first. `progress` is
/// called after each portion.
///
/// # Errors
/// As [`run`](super::run).
pub fn survey(
    records: impl Iterator<Item = Result<Record, TraceError>>,
    mut progress: impl FnMut(Survey),
) -> Result<Survey, HitsError> {
    let mut portions = Portions::new(records);
    while portions.next()?.is_some() {
        progress(portions.survey());
    }
    let survey = portions.survey();
    if survey.references == 0 {
        return Err(HitsError::Empty(survey.requests));
    }
    Ok(survey)
}
