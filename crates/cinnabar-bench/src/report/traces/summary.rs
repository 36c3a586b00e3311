//! What there is to know of a trace before anything is simulated, in one pass.
//!
//! Memory is bounded: the blocks' table ([`super::footprint`]), and 160 bytes a volume, of which
//! there are as many as readers keep apart at most.

use super::footprint::{Blocks, Footprint};
use cinnabar_trace::{Counts, Op, Record, Trace};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// Most volumes, for traces that number them themselves; the readers hold named ones to the same.
pub const VOLUMES_MAX: usize = 1 << 20;
const BLOCK_BYTES: u64 = 4096;
const US_PER_SECOND: u64 = 1_000_000;

/// What was found: with the file's name and the volumes, the contract of `--json`.
#[derive(Debug, Serialize)]
pub struct Summary {
    #[serde(flatten)]
    pub(crate) counts: Counts,
    /// Blocks of 4 KiB that were read or written, each time counted.
    pub(crate) references: u64,
    #[serde(flatten)]
    pub(crate) footprint: Footprint,
    /// Or estimated, to some 0.1 % in all.
    pub(crate) footprint_exact: bool,
    /// Reads and writes that don't begin and end at multiples of 4 KiB.
    pub(crate) unaligned: u64,
    /// Reads and writes that begin where the one before of their volume ended.
    pub(crate) sequential: u64,
    pub(crate) read_size: Sizes,
    pub(crate) write_size: Sizes,
    pub(crate) first_ts_us: u64,
    pub(crate) last_ts_us: u64,
    /// Requests of the busiest second of the clock; nothing can be said if time goes back.
    pub(crate) busiest_second: Option<u64>,
    /// Requests that are earlier than the one before them. None can be told from traces that are
    /// sorted as they are read.
    pub(crate) out_of_order: Option<u64>,
    pub(crate) volume_count: u64,
    /// The busiest ones.
    pub(crate) volumes: Vec<Volume>,
}

/// Lengths of requests in bytes, to three digits.
#[derive(Debug, Serialize)]
pub(crate) struct Sizes {
    pub(crate) mean: f64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Volume {
    pub(crate) number: u32,
    /// As the trace calls it; its number, if it has no names.
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) references: u64,
    #[serde(flatten)]
    pub(crate) footprint: Footprint,
    pub(crate) sequential: u64,
    /// Where its furthest request ends: what a target needs at least.
    pub(crate) size_bytes: u64,
}

/// More volumes than are kept apart.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyVolumes;

/// A trace being summed up.
pub struct Summing {
    counts: Counts,
    blocks: Blocks,
    unaligned: u64,
    read_sizes: Histogram<u64>,
    write_sizes: Histogram<u64>,
    first_ts_us: Option<u64>,
    last_ts_us: u64,
    /// A second of the clock, its requests, and the most that one had.
    second: (u64, u64),
    busiest: u64,
    late: u64,
    previous_us: u64,
    volumes: BTreeMap<u32, Part>,
}

#[derive(Debug, Default)]
struct Part {
    counts: Counts,
    references: u64,
    sequential: u64,
    /// Where its last read or write ended.
    end_bytes: Option<u64>,
    size_bytes: u64,
}

impl Default for Summing {
    fn default() -> Self {
        let sizes = || {
            Histogram::new_with_bounds(1, Record::LENGTH_BYTES_MAX, 3)
                .expect("these bounds are valid")
        };
        Self {
            counts: Counts::default(),
            blocks: Blocks::default(),
            unaligned: 0,
            read_sizes: sizes(),
            write_sizes: sizes(),
            first_ts_us: None,
            last_ts_us: 0,
            second: (0, 0),
            busiest: 0,
            late: 0,
            previous_us: 0,
            volumes: BTreeMap::new(),
        }
    }
}

impl Summing {
    /// Takes the next request.
    ///
    /// # Errors
    /// If that is one volume more than are kept apart; the request is then not counted to a volume.
    pub fn add(&mut self, record: &Record) -> Result<(), TooManyVolumes> {
        self.counts.add(record);
        self.time(record.ts_us);
        if self.volumes.len() == VOLUMES_MAX && !self.volumes.contains_key(&record.volume) {
            return Err(TooManyVolumes);
        }
        let part = self.volumes.entry(record.volume).or_default();
        part.counts.add(record);
        let end = record.offset_bytes + record.length_bytes;
        if record.op != Op::Flush {
            part.size_bytes = part.size_bytes.max(end);
        }
        let sizes = match record.op {
            Op::Read => &mut self.read_sizes,
            Op::Write => &mut self.write_sizes,
            Op::Flush | Op::Discard => return Ok(()),
        };
        sizes.saturating_record(record.length_bytes);
        let is_aligned =
            record.offset_bytes.is_multiple_of(BLOCK_BYTES) && end.is_multiple_of(BLOCK_BYTES);
        self.unaligned += u64::from(!is_aligned);
        part.sequential += u64::from(part.end_bytes == Some(record.offset_bytes));
        part.end_bytes = Some(end);
        let blocks = record.blocks();
        part.references += blocks.end - blocks.start;
        let volume = u64::from(record.volume) << 40;
        for block in blocks {
            self.blocks.add(volume | block, record.op == Op::Write);
        }
        Ok(())
    }

    fn time(&mut self, ts_us: u64) {
        self.late += u64::from(ts_us < self.previous_us);
        self.previous_us = ts_us;
        self.first_ts_us = Some(self.first_ts_us.map_or(ts_us, |first| first.min(ts_us)));
        self.last_ts_us = self.last_ts_us.max(ts_us);
        let second = ts_us / US_PER_SECOND;
        if second != self.second.0 {
            self.second = (second, 0);
        }
        self.second.1 += 1;
        self.busiest = self.busiest.max(self.second.1);
    }

    /// What was found, with the `most` busiest volumes.
    pub fn finish(self, trace: &Trace, most: usize) -> Summary {
        let (footprint, mut footprints) = self.blocks.count();
        let mut parts: Vec<(u32, Part)> = self.volumes.into_iter().collect();
        let volume_count = parts.len() as u64;
        let references = parts.iter().map(|(_, part)| part.references).sum();
        let sequential = parts.iter().map(|(_, part)| part.sequential).sum();
        parts.sort_by_key(|(number, part)| (u64::MAX - part.counts.requests, *number));
        parts.truncate(most);
        let volume = |(number, part): (u32, Part)| Volume {
            number,
            name: trace.volume_name(number).into_owned(),
            counts: part.counts,
            references: part.references,
            footprint: footprints.remove(&number).unwrap_or_default(),
            sequential: part.sequential,
            size_bytes: part.size_bytes,
        };
        let format = trace.format();
        Summary {
            references,
            footprint,
            footprint_exact: self.blocks.is_exact(),
            unaligned: self.unaligned,
            sequential,
            read_size: Sizes::of(&self.read_sizes, self.counts.read_bytes),
            write_size: Sizes::of(&self.write_sizes, self.counts.write_bytes),
            first_ts_us: self.first_ts_us.unwrap_or(0),
            last_ts_us: self.last_ts_us,
            busiest_second: (self.late == 0 && format.has_times()).then_some(self.busiest),
            out_of_order: (!format.is_sorted_here()).then_some(self.late),
            volume_count,
            volumes: parts.into_iter().map(volume).collect(),
            counts: self.counts,
        }
    }
}

impl Sizes {
    fn of(sizes: &Histogram<u64>, bytes: u64) -> Self {
        // The least that counts as the same: sizes mostly are round numbers, from below.
        let quantile = |part| match sizes.len() {
            0 => 0,
            _ => sizes.lowest_equivalent(sizes.value_at_quantile(part)),
        };
        let mean = bytes as f64 / sizes.len().max(1) as f64;
        Self { mean: mean.round(), p50: quantile(0.5), p99: quantile(0.99), max: quantile(1.0) }
    }
}
