//! What is known of a volume after an interval, in units of room.
//!
//! Made by `analyze` and by the live manager, read by every allocator. Allocators think in units (a
//! thousandth of the cache, say): blocks would be too many, and no measurement is that exact.

use super::engine_units::EngineUnits;
use super::write_policy::WritePolicy;
use crate::reuse::{Mix, ReadOnlyCurves, SampledCurves, WriteBackCurves};
use std::num::NonZeroU64;

/// A volume's interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Accesses and reuses by class.
    pub mix: Mix,
    /// Different blocks, in units.
    pub working_set: usize,
    /// Blocks that were used again, in units.
    pub reuse_working_set: usize,
    /// The smallest size with every hit there is (maximum TRD + 1 blocks), or with
    /// [`Units::reach_part`] of them, in units.
    pub reach: usize,
    /// The smallest size with every read hit there is (maximum URD + 1 blocks), or with
    /// [`Units::reach_part`] of them, in units.
    pub useful_reach: usize,
    /// Accesses that hit, by size in units from 0, in a cache that keeps what is written.
    pub hits: Vec<f64>,
    /// Reads that hit there.
    pub read_hits: Vec<f64>,
    /// Dirty blocks evicted there.
    pub destages: Vec<f64>,
    /// Reads that hit, by size in units from 0, in a cache that drops what is written.
    pub read_only_hits: Vec<f64>,
    /// What the engine would do, if that is known; `urd` goes by it, not by the curves above.
    pub engine: Option<EngineUnits>,
    /// How much it counts; 1 is as much as others.
    pub weight: f64,
    /// The least `urd` gives it, in units.
    pub min: usize,
    /// The most `urd` gives it, in units.
    pub max: usize,
}

/// How large units are, and how many are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// Blocks of a unit.
    pub blocks: NonZeroU64,
    /// The largest size looked at, in units: that of the cache.
    pub most: usize,
    /// The part of the hits, from 0 to 1, that a demand reaches. 1 is the maximum reuse distance, as
    /// published; over long intervals it hangs on single outliers, and .99 says more.
    pub reach_part: f64,
}

impl Units {
    /// Units that hold so many blocks.
    fn of(self, blocks: u64) -> usize {
        usize::try_from(blocks.div_ceil(self.blocks.get())).unwrap_or(usize::MAX)
    }

    /// A curve by units; no room is no cache, so nothing.
    pub(super) fn curve(self, at: impl Fn(u64) -> f64) -> Vec<f64> {
        let sizes = (1..=self.most as u64).map(|units| at(units.saturating_mul(self.blocks.get())));
        std::iter::once(0.0).chain(sizes).collect()
    }
}

impl Volume {
    pub fn exact(back: &WriteBackCurves, only: &ReadOnlyCurves, units: Units) -> Self {
        Self {
            mix: back.mix,
            working_set: units.of(back.blocks),
            reuse_working_set: units.of(back.blocks_again),
            reach: units.of(back.total.reaches(units.reach_part)),
            useful_reach: units.of(back.useful.reaches(units.reach_part)),
            hits: units.curve(|size| back.hits.at(size) as f64),
            read_hits: units.curve(|size| back.read_hits.at(size) as f64),
            destages: units.curve(|size| back.destages.at(size) as f64),
            read_only_hits: units.curve(|size| only.read_hits.at(size) as f64),
            engine: None,
            weight: 1.0,
            min: 0,
            max: usize::MAX,
        }
    }

    pub fn sampled(curves: &SampledCurves, units: Units) -> Self {
        let engine = curves.engine.as_ref().map(|engine| EngineUnits::new(engine, curves, units));
        Self {
            engine,
            mix: curves.mix,
            working_set: units.of(curves.blocks),
            reuse_working_set: units.of(curves.blocks_again),
            reach: units.of(curves.hits.reaches(units.reach_part)),
            useful_reach: units.of(curves.read_hits.reaches(units.reach_part)),
            hits: units.curve(|size| curves.hits.at(size)),
            read_hits: units.curve(|size| curves.read_hits.at(size)),
            destages: units.curve(|size| curves.destages.at(size)),
            read_only_hits: units.curve(|size| curves.read_only_hits.at(size)),
            weight: 1.0,
            min: 0,
            max: usize::MAX,
        }
    }

    /// Sizes worth looking at, in units.
    pub fn sizes(&self) -> usize {
        self.read_hits.len()
    }

    pub fn read_hits(&self, policy: WritePolicy, units: usize) -> f64 {
        if let Some(engine) = &self.engine {
            return engine.read_hits(policy, units);
        }
        match policy {
            WritePolicy::Bypass => 0.0,
            WritePolicy::ReadOnly => at(&self.read_only_hits, units),
            WritePolicy::Through | WritePolicy::Back => at(&self.read_hits, units),
        }
    }

    /// Blocks written to the SSD: reads that missed, and writes that are kept.
    pub fn ssd_writes(&self, policy: WritePolicy, units: usize) -> f64 {
        if units == 0 || policy == WritePolicy::Bypass {
            return 0.0;
        }
        if let Some(engine) = &self.engine {
            return engine.flash_writes(policy, units);
        }
        let fills = self.mix.reads as f64 - self.read_hits(policy, units);
        match policy {
            WritePolicy::Through | WritePolicy::Back => fills + self.mix.writes as f64,
            WritePolicy::Bypass | WritePolicy::ReadOnly => fills,
        }
    }

    /// Writes that are kept, so that write-back can acknowledge them from the SSD.
    pub fn kept_writes(&self, policy: WritePolicy, units: usize) -> f64 {
        if units == 0 || matches!(policy, WritePolicy::Bypass | WritePolicy::ReadOnly) {
            return 0.0;
        }
        let all = self.mix.writes as f64;
        self.engine.as_ref().map_or(all, |engine| engine.kept_writes(units))
    }

    /// Blocks written to the backend later than the guest wrote them.
    pub fn destages(&self, policy: WritePolicy, units: usize) -> f64 {
        if policy == WritePolicy::Back { at(&self.destages, units) } else { 0.0 }
    }
}

/// A curve's value; it stays what it is behind its end.
pub(super) fn at(curve: &[f64], units: usize) -> f64 {
    curve[units.min(curve.len() - 1)]
}
