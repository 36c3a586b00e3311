//! Which completions of a cell count, and what they add up to.
//!
//! Pure.

use super::plan::{Cell, OPERATIONS_MAX, OPERATIONS_MIN, Op, STRETCH_MAX};
use hdrhistogram::Histogram;
use std::time::Duration;

/// Longest latency told apart, in ns (1000 s); what is longer counts as this.
const LATENCY_NS_MAX: u64 = 1_000_000_000_000;

/// A latency of which one part in so many was lost does not count.
const LOST_MAX: u64 = 20;

/// A time on a clock, and what was lost until then, both in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at: u64,
    pub(super) lost_ns: u64,
}

/// What was measured of a cell.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which.
    pub cell: Cell,
    /// Latencies in ns, three significant digits.
    pub latencies: Histogram<u64>,
    /// Their exact sum, in ns.
    pub sum_ns: u64,
    /// Operations that completed, with those whose latency does not count.
    pub completed: u64,
    /// Time in which they completed, in ns, without that in which the device had nothing to do.
    pub window_ns: u64,
}

impl Measured {
    /// Operations whose latencies count.
    pub fn operations(&self) -> u64 {
        self.latencies.len()
    }

    /// Operations a second. Of flushes: if there were nothing between them.
    pub fn iops(&self) -> f64 {
        let (count, ns) = match self.cell.op {
            Op::Flush => (self.operations(), self.sum_ns),
            Op::Read | Op::Write => (self.completed, self.window_ns),
        };
        count as f64 / (ns.max(1) as f64 / 1e9)
    }

    /// Bytes a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.iops() * self.cell.size_bytes as f64
    }

    /// Mean latency in ns; 0 without operations.
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.operations().max(1) as f64
    }
}

/// Follows one cell. The time that counts begins and ends with a completion, so that `n` operations
/// one after the other have `n` latencies between them.
#[derive(Debug)]
pub(super) struct Window {
    measured: Measured,
    warm_up: u64,
    time: u64,
    began: u64,
    /// When the warm-up was over.
    opened: Option<u64>,
    /// Time since then in which the device had nothing to do, in ns.
    idle_ns: u64,
    warmed: u64,
    closed: bool,
    /// Least operations that count.
    least: u64,
}

impl Window {
    /// A cell that begins now.
    pub(super) fn new(cell: Cell, now: u64, warm_up: Duration, time: Duration) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 16);
        let latencies = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("the bounds are constants that fit each other");
        Self {
            measured: Measured { cell, latencies, sum_ns: 0, completed: 0, window_ns: 0 },
            warm_up: ns(warm_up),
            time: ns(time),
            began: now,
            opened: None,
            idle_ns: 0,
            warmed: 0,
            closed: false,
            least: OPERATIONS_MIN.max(2 * u64::from(cell.depth)),
        }
    }

    /// The probe was kept from looking for so long. The device went on with what it had, which takes
    /// it as long as an operation usually takes; only then it was idle.
    pub(super) fn lost(&mut self, ns: u64) {
        if self.opened.is_some() && self.measured.operations() > 0 {
            let usual = self.measured.sum_ns / self.measured.operations();
            self.idle_ns += ns.saturating_sub(usual);
        }
    }

    /// An operation has ended. Its latency does not count if a part of it that matters was lost.
    pub(super) fn ended(&mut self, began: Moment, now: Moment) {
        let Some(opened) = self.opened else {
            self.warmed += 1;
            // All that were begun at once have gone, and what comes is spread out.
            let warm = self.warmed >= u64::from(self.measured.cell.depth);
            if warm && now.at - self.began >= self.warm_up {
                self.opened = Some(now.at);
            }
            return;
        };
        if self.closed {
            return;
        }
        let ns = now.at.saturating_sub(began.at);
        let lost_ns = now.lost_ns.saturating_sub(began.lost_ns);
        let measured = &mut self.measured;
        measured.completed += 1;
        let passed = now.at - opened;
        measured.window_ns = passed.saturating_sub(self.idle_ns);
        if lost_ns.saturating_mul(LOST_MAX) <= ns {
            measured.latencies.saturating_record(ns.max(1));
            measured.sum_ns = measured.sum_ns.saturating_add(ns);
        }
        let count = measured.operations();
        self.closed = measured.completed >= OPERATIONS_MAX
            || measured.window_ns >= self.time && count >= self.least
            || passed >= self.time.saturating_mul(u64::from(STRETCH_MAX));
    }

    /// Whether there is enough.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// What there is.
    pub(super) fn into_measured(self) -> Measured {
        self.measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn window(depth: u32, time_ms: u64) -> Window {
        let cell = Cell { op: Op::Read, size_bytes: 4096, depth };
        let (warm_up, time) = (Duration::from_millis(10), Duration::from_millis(time_ms));
        Window::new(cell, 5 * MS, warm_up, time)
    }

    fn at(at: u64) -> Moment {
        Moment { at, lost_ns: 0 }
    }

    /// Operations of 1 ms one after the other, until there is enough.
    fn run(window: &mut Window, latency: u64) -> u64 {
        let mut now = 5 * MS;
        while !window.is_closed() {
            now += latency;
            window.ended(at(now - latency), at(now));
        }
        now
    }

    #[test]
    fn warm_up_does_not_count_and_the_rest_adds_up() {
        let mut window = window(1, 100);
        let end = run(&mut window, MS);
        assert_eq!(end, (5 + 10 + 100) * MS);
        let measured = window.into_measured();
        assert_eq!(measured.operations(), 100);
        assert!((measured.iops() - 1000.0).abs() < 1e-6, "{}", measured.iops());
        assert!((measured.mean_ns() - 1e6).abs() < 1e-6);
        assert!((measured.bytes_per_s() - 4_096_000.0).abs() < 1e-3);
    }

    #[test]
    fn few_operations_stretch_the_time_within_bounds() {
        let mut slow = window(1, 100);
        let end = run(&mut slow, 5 * MS);
        assert_eq!(slow.into_measured().operations(), OPERATIONS_MIN);
        assert_eq!(end, (5 + 10 + 5 * OPERATIONS_MIN) * MS);
        let mut slower = window(1, 100);
        run(&mut slower, 50 * MS);
        let measured = slower.into_measured();
        assert_eq!(measured.operations(), 800 / 50, "eight times the time and no more");
    }

    #[test]
    fn as_many_as_are_begun_at_once_warm_up() {
        let mut deep = window(32, 1);
        for end in 0..31 {
            deep.ended(at(5 * MS), at((20 + end) * MS));
        }
        assert_eq!(deep.opened, None);
        deep.ended(at(5 * MS), at(60 * MS));
        assert_eq!(deep.opened, Some(60 * MS));
        assert_eq!(deep.into_measured().operations(), 0);
    }

    #[test]
    fn flushes_are_counted_by_their_own_time() {
        let cell = Cell { op: Op::Flush, size_bytes: 0, depth: 1 };
        let mut window = Window::new(cell, 0, Duration::ZERO, Duration::from_millis(300));
        let mut now = 0;
        while !window.is_closed() {
            // 3 ms for the write before it.
            now += 4 * MS;
            window.ended(at(now - MS), at(now));
        }
        let measured = window.into_measured();
        assert!((measured.iops() - 1000.0).abs() < 1e-6, "{}", measured.iops());
    }

    #[test]
    fn what_is_lost_does_not_count() {
        let mut window = window(1, 100);
        let (mut now, mut lost_ns) = (5 * MS, 0);
        while !window.is_closed() {
            let began = Moment { at: now, lost_ns };
            // One in ten is seen 4 ms later than it could be; less than one part in twenty is nothing.
            let lost = if (now / MS).is_multiple_of(10) { 4 * MS } else { MS / 100 };
            now += MS + lost;
            lost_ns += lost;
            window.lost(if lost > MS { MS + lost } else { 0 });
            window.ended(began, Moment { at: now, lost_ns });
        }
        let measured = window.into_measured();
        assert!(measured.completed > measured.operations());
        assert!(measured.latencies.max() < 2 * MS, "{}", measured.latencies.max());
        assert!((measured.iops() / 1000.0 - 1.0).abs() < 0.02, "{}", measured.iops());
    }

    #[test]
    fn a_device_that_is_busy_meanwhile_is_not_idle() {
        let mut window = window(32, 100);
        for operation in 0..200 {
            let now = at((40 + operation) * MS);
            // Kept from looking for 4 ms, with 32 ms of work for the device.
            if operation % 10 == 0 {
                window.lost(4 * MS);
            }
            window.ended(at(now.at - 32 * MS), now);
        }
        let measured = window.into_measured();
        assert!((measured.iops() - 1000.0).abs() < 1.0, "{}", measured.iops());
    }
}
