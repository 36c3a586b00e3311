//! The points of one resolution, the newest ones.

use crate::history::point::{Level, Point};
use crate::history::totals::Totals;
use std::collections::VecDeque;

/// A resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// 10 seconds, for an hour.
    Fine,
    /// 5 minutes, for a day.
    Coarse,
}

impl Step {
    /// All of them, the finest first.
    pub const ALL: [Self; 2] = [Self::Fine, Self::Coarse];

    /// Its length in seconds.
    pub const fn seconds(self) -> u32 {
        match self {
            Self::Fine => 10,
            Self::Coarse => 300,
        }
    }

    /// Points kept at most.
    pub const fn points_max(self) -> usize {
        match self {
            Self::Fine => 360,
            Self::Coarse => 288,
        }
    }

    /// How far its points reach back, in milliseconds.
    pub const fn reach_ms(self) -> u64 {
        self.seconds() as u64 * 1000 * self.points_max() as u64
    }

    pub fn of_seconds(seconds: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|step| u64::from(step.seconds()) == seconds)
    }

    /// The finest that reaches back so far; else the one that reaches back most.
    pub fn reaching(back_ms: u64) -> Self {
        Self::ALL.into_iter().find(|step| step.reach_ms() >= back_ms).unwrap_or(Self::Coarse)
    }
}

/// Points, the newest last, and what the next one will be made of.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    step: Step,
    points: VecDeque<Point>,
    open: Option<Open>,
}

/// What the next point will be made of; times are in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Open {
    since_ms: u64,
    until_ms: u64,
    sum: Totals,
}

impl Ring {
    pub(crate) const fn new(step: Step) -> Self {
        Self { step, points: VecDeque::new(), open: None }
    }

    /// With points of an earlier run, in their order.
    pub(crate) fn with(step: Step, points: VecDeque<Point>) -> Self {
        assert!(points.len() <= step.points_max(), "a file has as many points as a ring");
        Self { step, points, open: None }
    }

    pub(crate) const fn points(&self) -> &VecDeque<Point> {
        &self.points
    }

    /// Something was done until `now_ms`. The open point ends if its time is over.
    pub(crate) fn add(&mut self, now_ms: u64, done: &Totals, level: Level) {
        let new = Open { since_ms: now_ms, until_ms: now_ms, sum: Totals::default() };
        let open = self.open.get_or_insert(new);
        open.sum = open.sum.plus(done);
        open.until_ms = now_ms;
        let step_ms = u64::from(self.step.seconds()) * 1000;
        if now_ms / step_ms != open.since_ms / step_ms {
            let point = Point::new(open.since_ms, now_ms, &open.sum, level);
            self.open = Some(new);
            self.push(point);
        }
    }

    /// The open point ends with the last look; what comes next begins with another base.
    pub(crate) fn close(&mut self, level: Level) {
        if let Some(open) = self.open.take()
            && open.until_ms > open.since_ms
        {
            self.push(Point::new(open.since_ms, open.until_ms, &open.sum, level));
        }
    }

    /// Drops what is too old, and what is of a time that is still to come: the clock was set back.
    pub(crate) fn prune(&mut self, now_ms: u64) {
        let oldest = now_ms.saturating_sub(self.step.reach_ms()) / 1000;
        while self.points.front().is_some_and(|point| u64::from(point.at_s) < oldest) {
            self.points.pop_front();
        }
        while self.points.back().is_some_and(|point| u64::from(point.at_s) > now_ms / 1000) {
            self.points.pop_back();
        }
        if self.open.is_some_and(|open| open.until_ms > now_ms) {
            self.open = None;
        }
    }

    fn push(&mut self, point: Point) {
        // Points of one second cannot be told apart: the volume left, or the daemon stopped.
        if let Some(last) = self.points.back_mut().filter(|last| last.at_s >= point.at_s) {
            last.absorb(&point);
            return;
        }
        let most = self.step.points_max();
        if self.points.len() == most {
            self.points.pop_front();
        }
        if self.points.len() == self.points.capacity() {
            // Twice as many, but never more than there can be.
            let more = self.points.len().max(16).min(most - self.points.len());
            self.points.reserve_exact(more);
        }
        self.points.push_back(point);
        assert!(self.points.len() <= most, "a ring is bounded");
    }
}
