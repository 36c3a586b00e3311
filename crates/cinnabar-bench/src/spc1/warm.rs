//! Warming a cache before it is measured.
//!
//! Models in front of the storage are left out and nothing is paced: what the cache holds afterwards
//! is the same, hours sooner.

use super::run::Progress;
use super::{ASUS, BenchError, Plan, Source};
use crate::drive::{Observer, Pace, Played, drive};
use crate::meter::Snapshot;
use crate::target::{Target, UnitSpec};
use cinnabar_trace::generate::spc1::Generator;
use serde::Serialize;
use std::time::Duration;

/// I/Os under way while warming.
const DEPTH: usize = 32;
/// A hit ratio that rises by less is steady.
const ALIKE: f64 = 0.005;
/// Windows that two hit ratios are compared over: one alone is moved by where the sequential streams
/// happen to be.
const COMPARED: usize = 3;
/// Fewest I/Os of a window; as many as the cache has blocks, otherwise.
const WINDOW_IOS_MIN: u64 = 20_000;

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
    longest: Duration,
    tell: &'a mut dyn FnMut(&Progress) -> bool,
}

/// Whether the last windows rise no more against the ones before them.
fn is_steady(hit_ratios: &[f64]) -> bool {
    let Some(first) = hit_ratios.len().checked_sub(2 * COMPARED) else { return false };
    let (before, last) = hit_ratios[first..].split_at(COMPARED);
    let mean = |of: &[f64]| of.iter().sum::<f64>() / COMPARED as f64;
    mean(last) - mean(before) < ALIKE
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
            of: Some(self.longest),
            ios: self.ios,
            mean_ms: 0.0,
            period: None,
        };
        self.stopped |= !(self.tell)(&progress);
        if self.in_window >= self.window_ios {
            let now = Snapshot::of(target, ASUS);
            let ratio = now.hit_ratio_since(&self.before).unwrap_or(0.0);
            self.hit_ratios.push(ratio);
            self.steady = is_steady(&self.hit_ratios);
            (self.before, self.in_window) = (now, 0);
        }
        !self.stopped && !self.steady && self.failed.is_none() && elapsed < self.longest
    }
}

/// Plays the workload until the hit ratio rises no more.
pub(super) fn warm(
    plan: &Plan,
    generator: &mut Generator,
    longest: Duration,
    tell: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Warming, BenchError> {
    let units = plan.units().map(|unit: UnitSpec| unit.bare());
    let mut target = Target::open(&units, plan.cache.as_ref())?;
    let before = Snapshot::of(&target, ASUS);
    let capacity = before.cache.map_or(0, |cache| cache.cache.capacity_blocks);
    let mut watch = Watch {
        before,
        window_ios: capacity.max(WINDOW_IOS_MIN),
        in_window: 0,
        ios: 0,
        hit_ratios: Vec::new(),
        steady: false,
        stopped: false,
        failed: None,
        longest,
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

#[cfg(test)]
mod tests {
    use super::is_steady;

    #[test]
    fn it_is_warm_when_hits_rise_no_more() {
        let rising = [0.1, 0.2, 0.3, 0.4, 0.45, 0.5];
        assert!(!is_steady(&rising));
        assert!(!is_steady(&[0.5; 5]), "too few to tell");
        assert!(is_steady(&[0.1, 0.2, 0.5, 0.61, 0.58, 0.6, 0.59, 0.62, 0.585]));
        assert!(!is_steady(&[0.1, 0.2, 0.5, 0.58, 0.58, 0.6, 0.59, 0.62, 0.63]));
    }
}
