//! Plans in blocks: what allocators say in units, with the operator's bounds.
//!
//! A unit is a thousandth of the cache, or less if there are many volumes: with as many volumes as
//! units, no volume could have two.

use crate::reuse::{Estimate, SampledCurves};
use crate::sizing::{
    self, Allocator, Goal, Intensity, Plan, Prices, Share, Steadiness, Units, Volume, Weighting,
    WritePolicy, goal::Decision, steady, urd,
};
use std::num::NonZeroU64;

/// Units of a cache with few volumes.
const UNITS: u64 = 1000;
/// At least so many for each volume, as far as [`UNITS_MAX`] goes.
const UNITS_A_VOLUME: u64 = 4;
/// More would take too long.
const UNITS_MAX: u64 = 8000;
/// A shorter interval counts as so long, in seconds.
const SECONDS_MIN: f64 = 1e-6;

/// What is known of a volume, for every size of cache.
pub trait Measured {
    /// A size from which on nothing changes any more, in blocks.
    fn flat_from(&self) -> u64;

    /// The same in units, for allocators.
    fn in_units(&self, units: Units) -> Volume;

    /// The same, no longer than there is something to see.
    fn volume(&self, units: Units) -> Volume {
        let last = self.flat_from().div_ceil(units.blocks.get());
        let most = usize::try_from(last).unwrap_or(usize::MAX).min(units.most);
        self.in_units(Units { most, ..units })
    }
}

impl Measured for SampledCurves {
    fn flat_from(&self) -> u64 {
        let ends = [&self.hits, &self.read_hits, &self.destages, &self.read_only_hits];
        let last = ends.map(Estimate::flat_from).into_iter().max().unwrap_or(0);
        // The engine leaves some of a share as air, so it needs more than the distances say.
        if self.engine.is_some() { last + last / 4 } else { last }
    }

    fn in_units(&self, units: Units) -> Volume {
        Volume::sampled(self, units)
    }
}

/// How room is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Who divides it.
    pub allocator: Allocator,
    /// For `urd`, and for the size that is recommended.
    pub prices: Prices,
    /// For `urd`: blocks written to the SSD in a second, at most, in the mean of a plan.
    pub ssd_blocks_per_s: Option<f64>,
    /// For `eci`: the part of reuses that are writes, from 0 to 1, above which writes are kept out.
    pub written_part_max: f64,
    /// For `vcacheshare`: how the intensity of reuse counts.
    pub intensity: f64,
    /// The part of the hits, from 0 to 1, that a demand reaches.
    pub reach_part: f64,
    /// For `urd`: how plans follow one another.
    pub steadiness: Steadiness,
}

/// What the operator wants for a volume; only `urd` heeds minima and maxima.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// At least so many blocks.
    pub min_blocks: u64,
    /// At most so many.
    pub max_blocks: u64,
    /// How much it counts, 1 being as much as others.
    pub weight: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { min_blocks: 0, max_blocks: u64::MAX, weight: 1.0 }
    }
}

/// A volume's part of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its room, in blocks.
    pub blocks: u64,
    /// What happens to its writes.
    pub policy: WritePolicy,
}

/// Room in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub unit_blocks: NonZeroU64,
    /// How many there are.
    pub units: usize,
}

impl Scale {
    /// Room of so many blocks for so many volumes.
    pub fn new(capacity_blocks: u64, volumes: usize) -> Self {
        let wanted = (volumes as u64 * UNITS_A_VOLUME).div_ceil(UNITS) * UNITS;
        let units = wanted.clamp(UNITS, UNITS_MAX);
        let unit_blocks =
            NonZeroU64::new(capacity_blocks.div_ceil(units)).unwrap_or(NonZeroU64::MIN);
        Self { unit_blocks, units: (capacity_blocks / unit_blocks) as usize }
    }

    fn part(self, share: Share) -> Part {
        // Room that nothing is kept in is no room.
        let units = if share.policy == WritePolicy::Bypass { 0 } else { share.units as u64 };
        Part { blocks: units * self.unit_blocks.get(), policy: share.policy }
    }
}

/// The volumes as allocators see them.
pub fn volumes<M: Measured>(
    curves: &[M],
    bounds: &[Bounds],
    scale: Scale,
    reach_part: f64,
) -> Vec<Volume> {
    let unit = scale.unit_blocks.get();
    let units = Units { blocks: scale.unit_blocks, most: scale.units, reach_part };
    let room = scale.units as u64;
    let needed: u64 = bounds.iter().map(|bounds| bounds.min_blocks.div_ceil(unit)).sum();
    let fits = needed <= room;
    let floors: u64 = bounds.iter().map(|bounds| bounds.min_blocks / unit).sum();
    // Allocators take no minima that do not fit: all give up the same part.
    let cut = |min: u64| if floors > room { min.saturating_mul(room) / floors } else { min };
    let of = |(curves, bounds): (&M, &Bounds)| {
        // Rounded up, unless all of them together no longer fit.
        let min = bounds.min_blocks;
        let min = if fits { min.div_ceil(unit) } else { cut(min / unit) } as usize;
        let max = usize::try_from(bounds.max_blocks / unit).unwrap_or(usize::MAX).max(min);
        Volume { weight: bounds.weight, min, max, ..curves.volume(units) }
    };
    curves.iter().zip(bounds).map(of).collect()
}

impl Rules {
    fn settings(&self, scale: Scale, seconds: f64, goal: Goal) -> sizing::Settings {
        let seconds = seconds.max(SECONDS_MIN);
        sizing::Settings {
            prices: self.prices,
            ssd_writes_max: self.ssd_blocks_per_s.map(|blocks| blocks * seconds),
            written_part_max: self.written_part_max,
            intensity: Intensity {
                factor: self.intensity,
                interval_s: seconds,
                unit_blocks: scale.unit_blocks.get() as f64,
            },
            goal: goal.by_units(scale.unit_blocks.get()),
            weighting: Weighting::Own,
        }
    }

    /// Divides room among volumes that did this in so many seconds; `None`: they share it.
    pub fn plan<M: Measured>(
        &self,
        curves: &[M],
        bounds: &[Bounds],
        capacity_blocks: u64,
        seconds: f64,
    ) -> Option<Vec<Part>> {
        self.plan_for(Goal::default(), curves, bounds, capacity_blocks, seconds)
    }

    fn plan_for<M: Measured>(
        &self,
        goal: Goal,
        curves: &[M],
        bounds: &[Bounds],
        capacity_blocks: u64,
        seconds: f64,
    ) -> Option<Vec<Part>> {
        let scale = Scale::new(capacity_blocks, curves.len());
        let volumes = volumes(curves, bounds, scale, self.reach_part);
        let settings = self.settings(scale, seconds, goal);
        match self.allocator.plan(&volumes, scale.units, &settings) {
            Plan::Shared => None,
            Plan::Divided(shares) => {
                Some(shares.into_iter().map(|share| scale.part(share)).collect())
            }
        }
    }
}

/// Makes the plan of each interval from what it was, and from the one before.
#[derive(Debug)]
pub struct Planner {
    rules: Rules,
    goal: Goal,
    weighting: Weighting,
    capacity_blocks: u64,
    before: Vec<Share>,
    before_unit: u64,
    /// For how long what is counted was counted, in seconds, with decay.
    seconds: f64,
}

impl Planner {
    /// One for a cache of so many blocks, without a plan.
    pub const fn new(rules: Rules, capacity_blocks: u64) -> Self {
        Self {
            rules,
            goal: Goal::PRICES,
            weighting: Weighting::Own,
            capacity_blocks,
            before: Vec::new(),
            before_unit: 1,
            seconds: 0.0,
        }
    }

    /// Has `eci` and `centaur` count volumes another way than published.
    pub const fn set_weighting(&mut self, weighting: Weighting) {
        self.weighting = weighting;
    }

    /// Changes that from the next plan on; otherwise it goes by prices alone.
    pub const fn set_goal(&mut self, goal: Goal) {
        self.goal = goal;
    }

    /// The plan behind an interval of so many seconds; `None`: volumes share the cache.
    pub fn plan<M: Measured>(
        &mut self,
        curves: &[M],
        bounds: &[Bounds],
        seconds: f64,
    ) -> Option<Vec<Part>> {
        self.seconds += seconds;
        let scale = Scale::new(self.capacity_blocks, curves.len());
        let volumes = volumes(curves, bounds, scale, self.rules.reach_part);
        let mut settings = self.rules.settings(scale, self.seconds, self.goal);
        settings.weighting = self.weighting;
        let unit = scale.unit_blocks.get();
        for share in &mut self.before {
            share.units = (share.units as u64 * self.before_unit / unit) as usize;
        }
        self.before_unit = unit;
        self.before = if self.rules.allocator == Allocator::Urd {
            let found = sizing::goal::decide(&volumes, scale.units, &settings);
            self.steady(found, scale.units, settings.ssd_writes_max)
        } else {
            match self.rules.allocator.plan(&volumes, scale.units, &settings) {
                Plan::Shared => return None,
                Plan::Divided(shares) => shares,
            }
        };
        Some(self.before.iter().map(|share| scale.part(*share)).collect())
    }

    /// The same, without a step from the plan before it and without taking note of it: what there
    /// would be now.
    pub fn preview<M: Measured>(
        &self,
        rules: &Rules,
        curves: &[M],
        bounds: &[Bounds],
        seconds: f64,
    ) -> Option<Vec<Part>> {
        let seconds = self.seconds + seconds;
        rules.plan_for(self.goal, curves, bounds, self.capacity_blocks, seconds)
    }

    /// How room is divided from now on.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Changes that.
    pub const fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// The room that there is, in blocks.
    pub const fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    /// Changes that.
    pub const fn set_capacity(&mut self, blocks: u64) {
        self.capacity_blocks = blocks;
    }

    /// What was counted so far has faded to this part.
    pub fn fade(&mut self, factor: f64) {
        self.seconds *= factor;
    }

    fn steady(&self, found: Decision, capacity: usize, ssd_writes_max: Option<f64>) -> Vec<Share> {
        let Decision { shares: wanted, objective, volumes } = found;
        let steadiness = self.rules.steadiness;
        let next = steady(&volumes, &self.before, wanted.clone(), capacity, &objective, steadiness);
        // Going slowly must not break the budget.
        let fits = |most| urd::ssd_writes(&volumes, &next) <= most;
        if ssd_writes_max.is_none_or(fits) { next } else { wanted }
    }
}
