//! All points of one volume, or of the cache.

use crate::history::point::{Level, Point};
use crate::history::ring::{Ring, Step};
use crate::history::totals::Totals;
use std::collections::VecDeque;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    rings: [Ring; Step::ALL.len()],
    /// Its counts when they were last looked at; `None`: it is not attached, or was not yet.
    last: Option<Totals>,
    level: Level,
}

impl Series {
    pub(crate) fn new() -> Self {
        Self { rings: Step::ALL.map(Ring::new), last: None, level: Level::default() }
    }

    /// With points of an earlier run.
    pub(crate) fn with(points: [VecDeque<Point>; Step::ALL.len()]) -> Self {
        let mut steps = Step::ALL.into_iter();
        let ring = |points| Ring::with(steps.next().expect("as many as steps"), points);
        Self { rings: points.map(ring), last: None, level: Level::default() }
    }

    /// Looks at its counts; gives what was added to them since the last look.
    pub(crate) fn look(&mut self, now_ms: u64, counts: &Totals, level: Level) -> Totals {
        let done = self.last.map_or_else(Totals::default, |last| counts.since(&last));
        self.last = Some(*counts);
        self.add(now_ms, &done, level);
        done
    }

    /// Something was done until now.
    pub(crate) fn add(&mut self, now_ms: u64, done: &Totals, level: Level) {
        self.level = level;
        for ring in &mut self.rings {
            ring.prune(now_ms);
            ring.add(now_ms, done, level);
        }
    }

    /// It is not attached any more, or the daemon ends: what is open ends.
    pub(crate) fn close(&mut self, now_ms: u64) {
        self.last = None;
        for ring in &mut self.rings {
            ring.close(self.level);
            ring.prune(now_ms);
        }
    }

    /// Whether it was there at the last look.
    pub(crate) const fn is_live(&self) -> bool {
        self.last.is_some()
    }

    /// The end of its newest point, in seconds since 1970; 0: it has none.
    pub(crate) fn newest_s(&self) -> u32 {
        let newest = self.rings.iter().filter_map(|ring| ring.points().back());
        newest.map(|point| point.at_s).max().unwrap_or(0)
    }

    pub(crate) const fn points(&self, step: Step) -> &VecDeque<Point> {
        self.rings[step as usize].points()
    }
}
