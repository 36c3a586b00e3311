//! What an analysis found.
//!
//! Made by the analysis, shown by the command line.

use super::measure::Curves;
use super::recommend::Recommended;
use cinnabar_policy::planning::{Bounds, Every, Part};
use cinnabar_policy::reuse::Mix;
use cinnabar_policy::sizing::{Prices, WritePolicy};
use cinnabar_trace::Format;
use std::ops::Add;
use std::path::PathBuf;

/// Saves at least this part of the time that is waited for: a cache helps.
const HELPS: f64 = 0.05;
/// At least this: a little.
const HELPS_LITTLE: f64 = 0.01;

/// All that was found.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The traces, as they were named, and what they are.
    pub files: Vec<(PathBuf, Format)>,
    /// Time of the first request, in microseconds.
    pub first_us: u64,
    /// Time of the last one.
    pub last_us: u64,
    /// Requests of any kind.
    pub requests: u64,
    /// References to 4 KiB blocks.
    pub references: u64,
    /// Requests that are earlier than the one before them; a canonical trace may have some.
    pub out_of_order: u64,
    /// How it was cut.
    pub every: Every,
    /// By number: in order of their first request.
    pub volumes: Vec<Found>,
    /// Reads of all volumes that hit in the cache, if they share it without a plan.
    pub shared: Option<Expected>,
    /// The cache, in blocks: as asked for, or as recommended.
    pub cache_blocks: u64,
    /// What size would be worth having.
    pub recommended: Recommended,
    /// The intervals of the trace with their plans; empty if they were not requested.
    pub intervals: Vec<Planned>,
}

/// Results of one volume over the whole trace.
#[derive(Clone, Debug)]
pub struct Found {
    /// Name of the volume.
    pub name: String,
    /// What it does, over all of the trace.
    pub curves: Curves,
    /// What the operator wants for it.
    pub bounds: Bounds,
    /// Its share of the cache; `None` if volumes share it without a plan.
    pub part: Option<Part>,
}

/// What comes of a share, in blocks over the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    pub read_hits: f64,
    /// Written to the SSD.
    pub ssd_writes: f64,
    pub backend_reads: f64,
    /// Written to the backend.
    pub backend_writes: f64,
    /// Microseconds of waiting saved.
    pub saved_us: f64,
}

/// An interval and the plan that follows from what was seen up to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its number, from 0; one that is missing was empty.
    pub number: u64,
    /// When it begins, in microseconds of the trace.
    pub start_us: u64,
    /// When it ends.
    pub end_us: u64,
    /// Requests of any kind.
    pub requests: u64,
    /// References to 4 KiB blocks.
    pub references: u64,
    /// Of what the plan was made and what it says, as a running cache tells it of its own.
    pub digest: u64,
    /// Those that did something that still counts, or have a share.
    pub volumes: Vec<PlannedVolume>,
}

/// A volume in an interval: as the monitor knows it, earlier intervals included with what they still
/// weigh.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedVolume {
    /// Number of the volume, from 0.
    pub volume: usize,
    /// Accesses and reuses by class.
    pub mix: Mix,
    /// Different blocks of this interval.
    pub working_set: u64,
    /// Those of them used again.
    pub reuse_working_set: u64,
    /// The size that reaches the wanted part of all hits, in blocks.
    pub reach: u64,
    /// The same of read hits.
    pub useful_reach: u64,
    /// The part of the blocks in the sample.
    pub rate: f64,
    /// Its share; `None` if volumes share the cache.
    pub part: Option<Part>,
}

/// Would a cache help?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It saves 5 % of the waiting or more.
    Helps,
    /// 1 to 5 %.
    HelpsLittle,
    /// Less, or nothing.
    HelpsNot,
}

impl PlannedVolume {
    pub(super) fn new(volume: usize, curves: &Curves, part: Option<Part>, reach_part: f64) -> Self {
        Self {
            volume,
            mix: curves.mix(),
            working_set: curves.working_set(),
            reuse_working_set: curves.reuse_working_set(),
            reach: curves.reach(reach_part),
            useful_reach: curves.useful_reach(reach_part),
            rate: curves.rate(),
            part,
        }
    }

    /// Does it do anything, or have anything?
    pub(super) fn matters(&self) -> bool {
        self.mix.reads + self.mix.writes > 0 || self.part.is_some_and(|part| part.blocks > 0)
    }
}

impl Found {
    /// What comes of its share; nothing is known of one volume in a shared cache.
    pub fn expected(&self, prices: &Prices) -> Option<Expected> {
        self.part.map(|part| Expected::new(&self.curves, part, prices))
    }
}

impl Expected {
    /// What comes of a share.
    pub fn new(curves: &Curves, part: Part, prices: &Prices) -> Self {
        let Part { blocks, policy } = part;
        let mix = curves.mix();
        let read_hits = curves.read_hits(policy, blocks);
        let mut saved_us = read_hits * (prices.backend_read_us - prices.ssd_read_us);
        if policy == WritePolicy::Back && blocks > 0 {
            let gain = prices.omega * (prices.backend_write_us - prices.ssd_write_us);
            saved_us += mix.writes as f64 * gain;
        }
        Self {
            read_hits,
            ssd_writes: curves.ssd_writes(policy, blocks),
            backend_reads: mix.reads as f64 - read_hits,
            backend_writes: curves.backend_writes(policy, blocks),
            saved_us,
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            read_hits: self.read_hits + other.read_hits,
            ssd_writes: self.ssd_writes + other.ssd_writes,
            backend_reads: self.backend_reads + other.backend_reads,
            backend_writes: self.backend_writes + other.backend_writes,
            saved_us: self.saved_us + other.saved_us,
        }
    }
}

impl Analysis {
    /// How long the trace is, in seconds; `None` without times.
    pub fn seconds(&self) -> Option<f64> {
        let us = self.last_us.saturating_sub(self.first_us);
        (us > 0).then_some(us as f64 / 1e6)
    }

    /// Accesses and reuses of all volumes.
    pub fn mix(&self) -> Mix {
        let each = self.volumes.iter().map(|volume| volume.curves.mix());
        each.fold(Mix::default(), Mix::add)
    }

    /// What comes of all shares together.
    pub fn expected(&self, prices: &Prices) -> Expected {
        if let Some(shared) = self.shared {
            return shared;
        }
        let each = self.volumes.iter().filter_map(|volume| volume.expected(prices));
        each.fold(Expected::default(), Expected::plus)
    }

    /// What is waited for without a cache, in microseconds; a write's by `omega`.
    pub fn waited_us(&self, prices: &Prices) -> f64 {
        let mix = self.mix();
        mix.reads as f64 * prices.backend_read_us
            + prices.omega * mix.writes as f64 * prices.backend_write_us
    }

    /// The part of that which the cache saves, from 0 to 1.
    pub fn saved_part(&self, prices: &Prices) -> f64 {
        let waited = self.waited_us(prices);
        if waited > 0.0 { self.expected(prices).saved_us / waited } else { 0.0 }
    }

    /// Would this cache help?
    pub fn verdict(&self, prices: &Prices) -> Verdict {
        match self.saved_part(prices) {
            part if part >= HELPS => Verdict::Helps,
            part if part >= HELPS_LITTLE => Verdict::HelpsLittle,
            _ => Verdict::HelpsNot,
        }
    }
}
