//! Warming a cache before it is measured.
//!
//! Called by the search. Models in front of the storage are left out and nothing is paced: what the
//! cache holds afterwards is the same, hours sooner.

use super::run::Progress;
use super::{ASUS, BenchError, Plan, Source};
use crate::bench::drive::{Observer, Pace, Played, drive};
use crate::bench::meter::Snapshot;
use crate::bench::target::{Target, UnitSpec};
use cinnabar_trace::generate::spc1::Generator;
use serde::Serialize;
use std::time::Duration;

/// I/Os under way while warming.
const DEPTH: usize = 32;
/// Windows whose hit ratios differ by less are alike.
const ALIKE: f64 = 0.005;
/// Windows before it may count as warm, and at most.
const WINDOWS: (usize, usize) = (4, 60);
/// Fewest I/Os of a window.
const WINDOW_IOS_MIN: u64 = 5000;

/// How a cache was warmed.
#[derive(Clone, Debug, Serialize)]
pub struct Warming {
    /// I/Os that it took.
    pub ios: u64,
    /// In s.
    pub seconds: f64,
    /// Read blocks found, window by window.
    pub hit_ratios: Vec<f64>,
    /// The last two windows were alike.
    pub steady: bool,
}

struct Watch<'a> {
    before: Snapshot,
    window_ios: u64,
    in_window: u64,
    ios: u64,
    hit_ratios: Vec<f64>,
    steady: bool,
    stopped: bool,
    failed: Option<String>,
    tell: &'a mut dyn FnMut(&Progress) -> bool,
}

impl Observer for Watch<'_> {
    fn played(&mut self, played: &Played) {
        self.in_window += 1;
        self.ios += 1;
        if let Some(failure) = &played.failure {
            self.failed.get_or_insert_with(|| failure.clone());
        }
    }

    fn tick(&mut self, elapsed: Duration, target: &Target) -> bool {
        let progress = Progress {
            phase: "warming the cache",
            elapsed,
            of: None,
            ios: self.ios,
            mean_ms: 0.0,
            period: None,
        };
        self.stopped |= !(self.tell)(&progress);
        if self.in_window >= self.window_ios {
            let now = Snapshot::of(target, ASUS);
            let ratio = now.hit_ratio_since(&self.before).unwrap_or(0.0);
            // Rises that are noise, twice: it is as warm as it gets.
            let rises = |before: &f64| ratio - before > ALIKE;
            let windows = self.hit_ratios.len();
            self.steady =
                windows + 1 >= WINDOWS.0 && !self.hit_ratios.iter().rev().take(2).any(rises);
            self.hit_ratios.push(ratio);
            (self.before, self.in_window) = (now, 0);
        }
        !self.stopped && !self.steady && self.failed.is_none() && self.hit_ratios.len() < WINDOWS.1
    }
}

/// Plays the workload until the hit ratio rises no more.
pub(super) fn warm(
    plan: &Plan,
    generator: &mut Generator,
    tell: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Warming, BenchError> {
    let units = plan.units().map(|unit: UnitSpec| unit.bare());
    let mut target = Target::open(&units, plan.cache.as_ref())?;
    let before = Snapshot::of(&target, ASUS);
    let capacity = before.cache.map_or(0, |cache| cache.cache.capacity_blocks);
    let mut watch = Watch {
        before,
        window_ios: (capacity / 2).max(WINDOW_IOS_MIN),
        in_window: 0,
        ios: 0,
        hit_ratios: Vec::new(),
        steady: false,
        stopped: false,
        failed: None,
        tell,
    };
    // The log is not cached: it would only take time.
    let mut source = Source { generator, until_ns: u64::MAX, without_log: true };
    let elapsed = drive(&mut target, &mut source, Pace::Closed { depth: DEPTH }, &mut watch)?;
    let Watch { ios, hit_ratios, steady, stopped, failed, .. } = watch;
    target.close()?;
    if stopped {
        return Err(BenchError::Interrupted);
    }
    if let Some(first) = failed {
        return Err(BenchError::Failed { failures: 1, first });
    }
    Ok(Warming { ios, seconds: elapsed.all.as_secs_f64(), hit_ratios, steady })
}
