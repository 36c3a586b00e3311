//! Plans as requests come: a monitor, the rule that cuts time, and a planner.
//!
//! Pure, and in integers until an interval ends: the same requests with the same settings give the same
//! plans, whether a running cache or a recording of it has them.

use super::interval::{Ended, Every, Interval};
use super::plan::{Bounds, Part, Planner, Rules};
use crate::monitor::{self, Monitor};
use crate::reuse::{Filter, SampledCurves};
use std::ops::Range;

/// Curves end at so many times the cache: beyond it no plan can go.
const SIZES: u64 = 2;
/// But not below so many blocks, which take little memory.
const SIZE_LEAST: u64 = 1 << 16;

/// See the module.
#[derive(Debug)]
pub struct Planning {
    every: Every,
    monitor: Monitor,
    planner: Planner,
    /// By volume.
    bounds: Vec<Bounds>,
    open: Option<Interval>,
    begun: u64,
    first_us: u64,
}

/// An interval that has ended, and the plan behind it.
#[derive(Debug)]
pub struct Closed {
    /// It.
    pub interval: Interval,
    pub ended: Ended,
    /// What each volume did, earlier intervals included with what they still weigh.
    pub curves: Vec<SampledCurves>,
    /// What each gets of the cache; `None`: they share it.
    pub parts: Option<Vec<Part>>,
}

impl Planning {
    /// For a cache of so many blocks; nothing was seen yet.
    pub fn new(
        every: Every,
        monitor: monitor::Settings,
        rules: Rules,
        capacity_blocks: u64,
    ) -> Self {
        let mut monitor = Monitor::new(monitor);
        monitor.set_size_max(size_max(capacity_blocks));
        Self {
            every,
            monitor,
            planner: Planner::new(rules, capacity_blocks),
            bounds: Vec::new(),
            open: None,
            begun: 0,
            first_us: u64::MAX,
        }
    }

    /// What the operator wants for a volume, from the end of this interval on. Without a word there are
    /// none.
    pub fn set_bounds(&mut self, volume: usize, bounds: Bounds) {
        if self.bounds.len() <= volume {
            self.bounds.resize(volume + 1, Bounds::default());
        }
        self.bounds[volume] = bounds;
    }

    /// A request came: blocks that it reads or writes, none for what does neither. Volumes are numbered
    /// by their first request. Gives the interval that ended with it, of which it is no part any more.
    ///
    /// # Panics
    /// If the settings' sampling rate is none.
    pub fn request(
        &mut self,
        at_us: u64,
        volume: usize,
        blocks: Range<u64>,
        is_write: bool,
    ) -> Option<Closed> {
        self.first_us = self.first_us.min(at_us);
        let behind = self.open.filter(|open| self.every.is_behind(open, at_us));
        let closed = behind.map(|interval| {
            self.open = None;
            self.close(interval, Some(at_us))
        });
        let mut open = self.open.take().unwrap_or_else(|| {
            let open = self.every.begin(self.begun, at_us);
            self.begun += 1;
            open
        });
        open.count(at_us, blocks.end.saturating_sub(blocks.start));
        self.open = Some(open);
        self.monitor.extend(volume, blocks.map(|block| (block, is_write)));
        closed
    }

    /// A reference of the interval that is open, if it is in the volume's sample: what has passed its
    /// [`filter`](Self::filter), where requests are counted elsewhere.
    ///
    /// # Panics
    /// If the settings' sampling rate is none.
    pub fn touch(&mut self, volume: usize, block: u64, is_write: bool) {
        self.monitor.touch(volume, block, is_write);
    }

    /// Ends an interval whose requests were counted elsewhere: reads and writes of each volume, those
    /// included that did neither. The first request of all came at `first_us`, the one behind the
    /// interval at `next_us` or later in the same interval.
    ///
    /// # Panics
    /// If the settings' sampling rate is none.
    pub fn end_counted(
        &mut self,
        interval: Interval,
        counts: &[[u64; 2]],
        first_us: u64,
        next_us: u64,
    ) -> Closed {
        for (volume, [reads, writes]) in counts.iter().enumerate() {
            self.monitor.count(volume, *reads, *writes);
        }
        self.first_us = self.first_us.min(first_us);
        self.close(interval, Some(next_us))
    }

    /// Which blocks of a volume are in its sample now.
    pub fn filter(&self, volume: usize) -> Filter {
        self.monitor.filter(volume)
    }

    /// A volume is gone: its number may be another one's.
    pub fn forget(&mut self, volume: usize) {
        self.monitor.forget(volume);
        self.set_bounds(volume, Bounds::default());
    }

    /// How room is divided from the end of this interval on.
    pub const fn set_rules(&mut self, rules: Rules) {
        self.planner.set_rules(rules);
    }

    /// How room is divided.
    pub const fn rules(&self) -> &Rules {
        self.planner.rules()
    }

    /// The cache is that large from now on, in blocks.
    pub fn set_capacity(&mut self, blocks: u64) {
        self.planner.set_capacity(blocks);
        self.monitor.set_size_max(size_max(blocks));
    }

    /// Previews are for a cache of so many blocks until the next
    /// [`set_capacity`](Self::set_capacity). What was seen stays as it is, and reaches as far as before.
    pub const fn plan_for(&mut self, blocks: u64) {
        self.planner.set_capacity(blocks);
    }

    /// The size of the cache that is planned for, in blocks.
    pub const fn capacity_blocks(&self) -> u64 {
        self.planner.capacity_blocks()
    }

    /// What these rules would make of what was seen so far, with so many references of the open interval
    /// counted elsewhere, which has lasted for so many seconds. Nothing is changed.
    pub fn preview(
        &self,
        rules: &Rules,
        counts: &[[u64; 2]],
        seconds: f64,
    ) -> (Vec<SampledCurves>, Option<Vec<Part>>) {
        let curves: Vec<SampledCurves> = self.monitor.curves_with(counts).collect();
        let mut bounds = self.bounds.clone();
        bounds.resize(curves.len(), Bounds::default());
        let parts = self.planner.preview(rules, &curves, &bounds, seconds);
        (curves, parts)
    }

    /// About how many bytes of RAM it takes.
    pub fn ram_bytes(&self) -> usize {
        self.monitor.ram_bytes()
    }

    /// There are no more requests: ends the interval that is open, if one is.
    pub fn finish(&mut self) -> Option<Closed> {
        self.open.take().map(|interval| self.close(interval, None))
    }

    fn close(&mut self, interval: Interval, next_us: Option<u64>) -> Closed {
        let ended = self.every.end(&interval, self.first_us, next_us);
        let curves: Vec<SampledCurves> = self.monitor.curves().collect();
        if self.bounds.len() < curves.len() {
            self.bounds.resize(curves.len(), Bounds::default());
        }
        let parts = self.planner.plan(&curves, &self.bounds[..curves.len()], ended.seconds);
        self.planner.fade(self.monitor.end_intervals(ended.passed));
        Closed { interval, ended, curves, parts }
    }
}

/// Without a cache yet, curves are as long as they come.
const fn size_max(capacity_blocks: u64) -> u64 {
    let size = capacity_blocks.saturating_mul(SIZES);
    match size {
        0 => u64::MAX,
        1..SIZE_LEAST => SIZE_LEAST,
        _ => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Sampling;
    use crate::sizing::{Allocator, Prices, Steadiness};

    fn planning(allocator: Allocator) -> Planning {
        let rules = Rules {
            allocator,
            prices: Prices {
                ssd_read_us: 100.0,
                ssd_write_us: 50.0,
                backend_read_us: 5000.0,
                backend_write_us: 5000.0,
                omega: 1.0,
                lambda_us: 0.0,
                mu_us: 0.0,
            },
            ssd_blocks_per_s: None,
            written_part_max: 0.5,
            intensity: 1.0,
            reach_part: 0.99,
            steadiness: Steadiness::default(),
        };
        let monitor =
            monitor::Settings { sampling: Sampling::Rate(1.0), ..monitor::Settings::default() };
        Planning::new(Every::Time(1_000_000), monitor, rules, 4000)
    }

    /// Two volumes read again and again, one of them a tenth of the other.
    fn run(planning: &mut Planning, seconds: Range<u64>) -> Vec<Closed> {
        let requests = seconds.flat_map(|second| {
            (0..400_u64).map(move |n| (second * 1_000_000 + n * 2500, n % 2, n / 2))
        });
        let one = |(at_us, volume, n): (u64, u64, u64)| {
            let first = if volume == 0 { n % 100 * 8 } else { n % 10 * 8 };
            planning.request(at_us, volume as usize, first..first + 8, false)
        };
        requests.filter_map(one).collect()
    }

    #[test]
    fn an_interval_ends_with_the_first_request_behind_it() {
        let mut planning = planning(Allocator::Urd);
        let mut closed = run(&mut planning, 0..3);
        // Then nothing for three seconds.
        closed.extend(run(&mut planning, 6..7));
        closed.extend(planning.finish());
        let numbers: Vec<_> = closed.iter().map(|closed| closed.interval.number).collect();
        assert_eq!(numbers, [0, 1, 2, 6], "an empty one has no plan");
        let passed: Vec<_> = closed.iter().map(|closed| closed.ended.passed).collect();
        assert_eq!(passed, [1, 1, 4, 1], "and is counted as one that fades");
        assert!(closed.iter().all(|closed| closed.interval.requests == 400));
        let parts = closed[2].parts.as_ref().expect("the cache is divided");
        assert!(parts[0].blocks >= 800 && parts[1].blocks >= 80, "{parts:?}");
        assert!(planning.finish().is_none(), "nothing is open");
    }

    /// What a running cache does: counts on one side, what passes a stale filter on the other.
    #[test]
    fn requests_counted_elsewhere_give_the_same_plans() {
        let mut whole = planning(Allocator::Urd);
        let mut expected = run(&mut whole, 0..3);
        expected.extend(run(&mut whole, 6..8));
        let mut fed = planning(Allocator::Urd);
        let mut found = Vec::new();
        let numbers = [0_u64, 1, 2, 6, 7];
        for (at, number) in numbers.iter().enumerate().take(4) {
            let filters = [fed.filter(0), fed.filter(1)];
            let mut counts = [[0; 2]; 2];
            for n in 0..400_u64 {
                let volume = (n % 2) as usize;
                let first = if volume == 0 { n / 2 % 100 * 8 } else { n / 2 % 10 * 8 };
                counts[volume][0] += 8;
                let passing = (first..first + 8).filter(|block| filters[volume].takes(*block));
                passing.for_each(|block| fed.touch(volume, block, false));
            }
            let start_us = number * 1_000_000;
            let (last_us, references) = (start_us + 399 * 2500, 3200);
            let number = *number;
            let interval = Interval { number, start_us, last_us, requests: 400, references };
            found.push(fed.end_counted(interval, &counts, 0, numbers[at + 1] * 1_000_000));
        }
        let told = |all: &[Closed]| format!("{all:?}");
        assert_eq!(expected.len(), 4, "the last one is open");
        assert_eq!(told(&expected), told(&found));
    }

    #[test]
    fn the_same_requests_give_the_same_plans_and_bounds_hold() {
        let plans = |planning: &mut Planning| -> Vec<_> {
            run(planning, 0..5).into_iter().map(|closed| closed.parts).collect()
        };
        let free = plans(&mut planning(Allocator::Urd));
        assert_eq!(free, plans(&mut planning(Allocator::Urd)));
        let mut bound = planning(Allocator::Urd);
        bound.set_bounds(1, Bounds { min_blocks: 3000, ..Bounds::default() });
        let bound = plans(&mut bound);
        let last = bound.last().and_then(Option::as_ref).expect("the cache is divided");
        assert!(last[1].blocks >= 3000 && last[0].blocks + last[1].blocks <= 4000, "{last:?}");
        assert_ne!(free, bound);
        assert!(plans(&mut planning(Allocator::Shared)).iter().all(Option::is_none));
    }
}
