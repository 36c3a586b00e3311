//! Searches for the highest rate whose mean response time stays within a limit: SPC-1's figure of
//! merit, by itself.
//!
//! Doubles the rate until the storage no longer keeps up, then halves the gap. With a cache, the
//! search is made without it first, and then with it, warm.

use super::report::{self, VERSION};
use super::run::Progress;
use super::steps::{Step, StepPlan, step};
use super::warm::{Warming, warm};
use super::{BenchError, Plan};
use crate::target::{CacheOptions, Target};
use cinnabar_trace::generate::spc1::{BLOCK_BYTES, BSU_MAX, Generator, Settings};
use serde::Serialize;
use std::time::Duration;

/// Rates that lie closer together than this share are not told apart.
const FINE: u32 = 32;

#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Longest mean response time.
    pub limit: Duration,
    /// Where to begin, in business scaling units.
    pub start: u32,
    /// A window of settling; each step has two to five.
    pub window: Duration,
    pub cache_only: bool,
    /// Longest warming of the cache.
    pub warm_max: Duration,
}

/// What a search found.
#[derive(Clone, Debug, Serialize)]
pub struct Maximum {
    /// `none`, or the cache device.
    pub cache: String,
    /// The highest rate within the limit, in business scaling units; 0: none is.
    pub bsu_max: u32,
    /// I/Os a second at it.
    pub iops: f64,
    /// Mean response time at it, in ms.
    pub mean_ms: f64,
    /// How the cache was warmed.
    pub warming: Option<Warming>,
    /// Every rate that was played, in ascending order.
    pub steps: Vec<Step>,
}

/// A search without and with a cache: the contract of `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct MaxReport {
    /// Of this form.
    pub version: u32,
    /// `spc1-max`.
    pub benchmark: &'static str,
    /// Longest mean, in ms.
    pub limit_ms: f64,
    /// `pblio` or `spc1`.
    pub mix: &'static str,
    /// What gives the same I/Os again.
    pub seed: u64,
    /// Sizes of ASU1 to ASU3 in bytes.
    pub asu_bytes: [u64; 3],
    /// Blocks that fit into the cache; `null` without one.
    pub cache_blocks: Option<u64>,
    /// Without a cache.
    pub without: Option<Maximum>,
    /// With it.
    pub with: Option<Maximum>,
    /// Rate with the cache over rate without.
    pub ratio: Option<f64>,
}

/// Searches.
///
/// # Errors
/// [`BenchError`].
pub fn find_max(
    plan: &Plan,
    search: Search,
    tell: &mut dyn FnMut(&Progress) -> bool,
) -> Result<MaxReport, BenchError> {
    let settings = plan.check()?;
    let without = if search.cache_only && plan.cache.is_some() {
        None
    } else {
        let plain = Plan { cache: None, ..plan.clone() };
        Some(maximum(&plain, &settings, search, "without the cache", tell)?.0)
    };
    let with = match &plan.cache {
        None => None,
        Some(_) => Some(maximum(plan, &settings, search, "with the cache", tell)?),
    };
    let (with, cache_blocks) = with.map_or((None, None), |(max, blocks)| (Some(max), blocks));
    let ratio = without
        .as_ref()
        .zip(with.as_ref())
        .filter(|(without, _)| without.bsu_max > 0)
        .map(|(without, with)| f64::from(with.bsu_max) / f64::from(without.bsu_max));
    Ok(MaxReport {
        version: VERSION,
        benchmark: "spc1-max",
        limit_ms: search.limit.as_secs_f64() * 1e3,
        mix: report::mix_name(plan.mix),
        seed: plan.seed,
        asu_bytes: settings.asu_blocks.map(|blocks| blocks * BLOCK_BYTES),
        cache_blocks,
        without,
        with,
        ratio,
    })
}

fn maximum(
    plan: &Plan,
    settings: &Settings,
    search: Search,
    told: &'static str,
    tell: &mut dyn FnMut(&Progress) -> bool,
) -> Result<(Maximum, Option<u64>), BenchError> {
    let mut generator = Generator::new(settings.clone())?;
    let mut warming = None;
    let mut plan = plan.clone();
    if plan.cache.is_some() {
        generator.set_bsu(search.start.max(1))?;
        warming = Some(warm(&plan, &mut generator, search.warm_max, tell)?);
        // What has been warmed is to be used.
        plan.cache = plan.cache.map(|cache| CacheOptions { fresh: false, ..cache });
    }
    let mut target = Target::open(&plan.units(), plan.cache.as_ref())?;
    let step_plan = StepPlan { limit: search.limit, window: search.window, measured: plan.length };
    let mut steps: Vec<Step> = Vec::new();
    let mut bounds = Bounds { within: 0, beyond: BSU_MAX + 1 };
    let mut bsu = search.start.clamp(1, BSU_MAX);
    loop {
        let played = step(&mut target, &mut generator, bsu, step_plan, told, tell)?;
        bounds.learn(bsu, played.within);
        steps.push(played);
        match bounds.next() {
            Some(next) => bsu = next,
            None => break,
        }
    }
    let cache_blocks = target.cache_counts().map(|counts| counts.cache.capacity_blocks);
    target.close()?;
    steps.sort_by_key(|step| step.bsu);
    let best = steps.iter().rev().find(|step| step.bsu == bounds.within);
    let maximum = Maximum {
        cache: plan.cache.map_or("none".into(), |cache| cache.device.display().to_string()),
        bsu_max: bounds.within,
        iops: best.map_or(0.0, |step| step.iops),
        mean_ms: best.map_or(0.0, |step| step.latency.mean_ms),
        warming,
        steps,
    };
    Ok((maximum, cache_blocks))
}

/// Between what has been kept up with and what has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    within: u32,
    beyond: u32,
}

impl Bounds {
    fn learn(&mut self, bsu: u32, within: bool) {
        if within {
            self.within = bsu;
        } else {
            self.beyond = bsu;
        }
    }

    /// The next rate to play; `None` if the bounds are close enough.
    fn next(self) -> Option<u32> {
        let Self { within, beyond } = self;
        let gap = beyond - within;
        if gap <= (within / FINE).max(1) {
            return None;
        }
        if beyond > BSU_MAX {
            return (within < BSU_MAX).then(|| (within * 2).clamp(1, BSU_MAX));
        }
        Some(within + gap / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(start: u32, maximum: u32) -> (u32, usize) {
        let mut bounds = Bounds { within: 0, beyond: BSU_MAX + 1 };
        let (mut bsu, mut steps) = (start, 0);
        loop {
            bounds.learn(bsu, bsu <= maximum);
            steps += 1;
            match bounds.next() {
                Some(next) => bsu = next,
                None => return (bounds.within, steps),
            }
        }
    }

    #[test]
    fn it_finds_the_maximum_in_few_steps() {
        for maximum in [0, 1, 2, 3, 7, 31, 32, 33] {
            for start in [1, 5, 40] {
                let (found, steps) = search(start, maximum);
                assert_eq!(found, maximum, "from {start}");
                assert!(steps <= 12, "{steps} steps from {start} to {maximum}");
            }
        }
        for maximum in [100, 777, 5000, 19_999, 20_000] {
            let (found, _) = search(1, maximum);
            assert!(found <= maximum && maximum - found <= found / FINE, "{found} for {maximum}");
        }
    }
}
