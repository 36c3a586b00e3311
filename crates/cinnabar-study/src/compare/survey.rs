//! The first pass: which volumes there are, and what they ask for.
//!
//! The **demand** is `eci`'s: a volume asks for its maximum useful reuse distance and one block, as
//! the monitor measures it at the end of an interval (earlier intervals count with what they still
//! weigh), or for the smallest size that has
//! [`Rules::reach_part`](crate::analysis::Rules::reach_part) of its read hits. The demand of the
//! trace is the largest sum of these over its intervals. Caches are parts of it, the same for every
//! allocator.

use super::input::{Input, KEPT_MAX, Step};
use super::watch::{Ended, Watch, blocks_of};
use super::{
    CAPACITY_BLOCKS_MAX, CompareError, Model, Options, REQUEST_BLOCKS_MAX, SHARES_MAX, VOLUMES_MAX,
};
use crate::analysis::{Bounds, Curves, Every, Interval};
use cinnabar_engine::limits::VOLUME_BLOCKS_MAX;
use cinnabar_engine::metadata::chunk::DATA_BLOCKS_MAX;
use cinnabar_trace::Record;

/// Blocks of a segment of the engine's log, as [`CacheSetup::single`](crate::CacheSetup::single) makes
/// it.
pub(super) const SEGMENT_BLOCKS: u64 = DATA_BLOCKS_MAX as u64;
/// Units that a cache has at least where plans are made ([`cinnabar_policy::planning::plan`]).
const UNITS: u64 = 1000;
/// Segments that the engine needs for each share group, the common group included.
const SEGMENTS_A_GROUP: u64 = 8;
/// Share groups of the engine that volumes can have to themselves.
const OWN_GROUPS_MAX: usize = 63;

const _: () = assert!((VOLUMES_MAX as u64) < UNITS, "a unit a volume is not all of the cache");

/// What is known after the first pass.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Names of the volumes.
    pub volumes: Vec<String>,
    /// What the operator wants for them.
    pub bounds: Vec<Bounds>,
    /// How the trace was cut.
    pub every: Every,
    /// The intervals of the trace, in order.
    pub intervals: Vec<Interval>,
    /// Requests of any kind.
    pub requests: u64,
    /// Block reads and writes, by volume.
    pub references: Vec<[u64; 2]>,
    /// The largest sum of demands, in blocks.
    pub demand_blocks: u64,
    /// All requests, if they are few and were read from files.
    pub kept: Option<Vec<Record>>,
}

/// Reads the whole input; `tell` is called with the number of requests so far.
///
/// # Errors
/// What is wrong with the input, or why it is too much or too little.
pub fn survey(
    input: &Input<'_>,
    options: &Options,
    tell: &mut dyn FnMut(u64),
) -> Result<Survey, CompareError> {
    let suits = input.every()?;
    let every = options.every.unwrap_or(suits);
    let mut watch = Watch::new(options, every);
    let mut found = Survey {
        volumes: Vec::new(),
        bounds: Vec::new(),
        every,
        intervals: Vec::new(),
        requests: 0,
        references: Vec::new(),
        demand_blocks: 0,
        kept: matches!(input, Input::Files(_)).then(Vec::new),
    };
    let mut told = 0;
    let mut heard = |more| {
        told += more;
        tell(told);
    };
    let names = input.pass(every, &mut heard, |step| {
        if let Step::Request(record) = &step {
            found.request(record)?;
        }
        let ended = watch.step(&step);
        if let (Step::End { found: interval, .. }, Some(ended)) = (step, ended) {
            found.end(interval, &ended, options.rules.reach_part)?;
        }
        Ok(())
    })?;
    let numbers = names.len()..found.references.len();
    found.volumes = names.into_iter().chain(numbers.map(|volume| volume.to_string())).collect();
    found.check(options)?;
    let bounds = |name| options.bounds.get(name).copied().unwrap_or_default();
    found.bounds = found.volumes.iter().map(bounds).collect();
    Ok(found)
}

impl Survey {
    fn request(&mut self, record: &Record) -> Result<(), CompareError> {
        self.requests += 1;
        let volume = record.volume as usize;
        if volume >= VOLUMES_MAX {
            return Err(CompareError::ManyVolumes { found: volume + 1, most: VOLUMES_MAX });
        }
        if volume >= self.references.len() {
            self.references.resize(volume + 1, [0; 2]);
        }
        if let Some((blocks, is_write)) = blocks_of(record) {
            let count = blocks.end - blocks.start;
            if count > REQUEST_BLOCKS_MAX {
                return Err(CompareError::LongRequest(count));
            }
            if blocks.end > VOLUME_BLOCKS_MAX {
                return Err(CompareError::FarRequest(blocks.start));
            }
            self.references[volume][usize::from(is_write)] += count;
        }
        if let Some(kept) = &mut self.kept {
            kept.push(*record);
            if kept.len() > KEPT_MAX {
                self.kept = None;
            }
        }
        Ok(())
    }

    fn end(
        &mut self,
        interval: Interval,
        ended: &Ended,
        reach_part: f64,
    ) -> Result<(), CompareError> {
        self.intervals.push(interval);
        let (intervals, volumes) = (self.intervals.len(), self.references.len());
        if intervals * volumes > SHARES_MAX {
            return Err(CompareError::ManyShares { intervals, volumes });
        }
        let demand = |curves: &Curves| curves.useful_reach(reach_part);
        self.demand_blocks = self.demand_blocks.max(ended.curves.iter().map(demand).sum());
        Ok(())
    }

    fn check(&self, options: &Options) -> Result<(), CompareError> {
        if self.intervals.len() < 2 {
            return Err(CompareError::FewIntervals(self.intervals.len()));
        }
        let (found, most) = (self.volumes.len(), OWN_GROUPS_MAX);
        if options.models.contains(&Model::Engine) && found > most {
            return Err(CompareError::ManyVolumes { found, most });
        }
        if let Some(name) = options.bounds.keys().find(|name| !self.volumes.contains(name)) {
            return Err(CompareError::NoVolume(name.clone()));
        }
        if self.demand_blocks == 0 { Err(CompareError::NoDemand) } else { Ok(()) }
    }

    /// The size of a cache of this part of the demand, in whole segments of the engine's log. A unit of
    /// the cache is added for each volume: plans are made in units, and 100 % of the demand must not be
    /// too little because each volume's was rounded up to them.
    ///
    /// # Errors
    /// If there can be no such cache.
    pub fn capacity_blocks(&self, part: f64, options: &Options) -> Result<u64, CompareError> {
        let volumes = self.volumes.len();
        let wanted = part_of(self.demand_blocks, part);
        let unit = (wanted + SEGMENT_BLOCKS).div_ceil(UNITS - volumes as u64);
        let capacity_blocks = (wanted + volumes as u64 * unit).next_multiple_of(SEGMENT_BLOCKS);
        if wanted == 0 {
            let (percent, demand_blocks) = (part * 100.0, self.demand_blocks);
            return Err(CompareError::Nothing { percent, demand_blocks });
        }
        if capacity_blocks > CAPACITY_BLOCKS_MAX {
            return Err(CompareError::Large(capacity_blocks));
        }
        let needed_blocks = (volumes as u64 + 1) * SEGMENTS_A_GROUP * SEGMENT_BLOCKS;
        if options.models.contains(&Model::Engine) && capacity_blocks < needed_blocks {
            return Err(CompareError::Small { capacity_blocks, volumes, needed_blocks });
        }
        let sum = |sum: u64, bounds: &Bounds| sum.saturating_add(bounds.min_blocks);
        let minima_blocks = self.bounds.iter().fold(0, sum);
        if minima_blocks > capacity_blocks {
            return Err(CompareError::Minima { capacity_blocks, minima_blocks });
        }
        Ok(capacity_blocks)
    }
}

#[allow(clippy::cast_sign_loss, reason = "a part of a size is never below zero")]
fn part_of(blocks: u64, part: f64) -> u64 {
    (blocks as f64 * part) as u64
}
