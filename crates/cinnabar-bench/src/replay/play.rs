//! One run: warms a cache, if there is one to warm, and plays the test.

use super::error::ReplayError;
use super::outcome::{Run, Warmed};
use super::source::{Rules, Source};
use super::{Progress, Row, Watch};
use crate::drive::{DriveError, Elapsed, Observer, Pace, Played, drive};
use crate::meter::{Meter, Periods, Snapshot};
use crate::target::{CacheOptions, Target, UnitSpec};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Requests under way while the cache is warmed: as fast as it goes.
const WARMING_DEPTH: usize = 32;

pub(super) struct Stage<'a> {
    pub(super) trace: &'a Path,
    pub(super) units: &'a [UnitSpec],
    pub(super) rules: &'a Rules,
    /// Time of the test in the trace, in microseconds.
    pub(super) test: Range<u64>,
    /// How the test is played.
    pub(super) pace: Pace,
    /// Length of a row.
    pub(super) row: Duration,
}

/// A cache, and the time of the trace that warms it before the test; `None`: as it is.
pub(super) type Warming<'a> = (&'a CacheOptions, Option<Range<u64>>);

impl Stage<'_> {
    /// Plays the test without a cache, or with one.
    pub(super) fn run(
        &self,
        label: String,
        cache: Option<Warming>,
        watch: &mut dyn Watch,
    ) -> Result<Run, ReplayError> {
        let (mut target, warmed) = match cache {
            None => (Target::open(self.units, None)?, None),
            Some((options, None)) => (Target::open(self.units, Some(options))?, None),
            Some((options, Some(time))) => {
                let (target, warmed) = self.warm(&label, options, time, watch)?;
                (target, Some(warmed))
            }
        };
        let units = self.units.len();
        let mut source = Source::new(self.trace, self.test.clone(), self.rules)?;
        let meter = Meter::new(units, &target, units);
        let rows = Periods::new(self.row, *meter.begun());
        let mut counter = Counter { label: &label, meter, rows, watch };
        let elapsed = drive(&mut target, &mut source, self.pace, &mut counter)?;
        counter.row(elapsed.all, true, &target);
        let Counter { meter, rows, .. } = counter;
        let end = meter.snapshot(&target);
        if let Some(reason) = target.degraded() {
            return Err(ReplayError::Stuck(format!("the cache was given up: {reason}")));
        }
        target.close()?;
        Ok(Run::new(label, warmed, &meter, &end, elapsed, rows.rows))
    }

    /// A target with a cache that was empty and has seen a stretch of the trace.
    fn warm(
        &self,
        label: &str,
        options: &CacheOptions,
        time: Range<u64>,
        watch: &mut dyn Watch,
    ) -> Result<(Target, Warmed), ReplayError> {
        // Models in front of the storage would only make warming slow.
        let bare: Vec<UnitSpec> = self.units.iter().map(UnitSpec::bare).collect();
        let empty = CacheOptions { fresh: true, ..options.clone() };
        let mut target = Target::open(&bare, Some(&empty))?;
        let mut source = Source::new(self.trace, time, self.rules)?;
        let before = Snapshot::of(&target, bare.len());
        let mut warmer = Warmer { label, ios: 0, failure: None, watch };
        let pace = Pace::Closed { depth: WARMING_DEPTH };
        let Elapsed { all, .. } = drive(&mut target, &mut source, pace, &mut warmer)?;
        let Warmer { ios, failure, .. } = warmer;
        if let Some(failure) = failure {
            return Err(ReplayError::Stuck(format!("a request failed during warming: {failure}")));
        }
        let server = Snapshot::of(&target, bare.len()).server - before.server;
        let warmed = Warmed::new(ios, all, server);
        if bare == self.units {
            return Ok((target, warmed));
        }
        let cached = target.cache_counts().is_some_and(|counts| counts.cache.cached_blocks > 0);
        target.close()?;
        let warm = CacheOptions { fresh: false, ..empty };
        let target = Target::open(self.units, Some(&warm))?;
        if cached && target.began_empty() == Some(true) {
            return Err(ReplayError::Cold);
        }
        Ok((target, warmed))
    }
}

struct Counter<'a> {
    label: &'a str,
    meter: Meter,
    rows: Periods,
    watch: &'a mut dyn Watch,
}

impl Counter<'_> {
    fn row(&mut self, elapsed: Duration, at_end: bool, target: &Target) {
        let Self { label, meter, rows, watch } = self;
        if let Some(row) = rows.cut(elapsed, at_end, || meter.snapshot(target)) {
            watch.row(&Row { run: (*label).to_owned(), period: row });
        }
    }
}

impl Observer for Counter<'_> {
    fn played(&mut self, played: &Played) {
        self.meter.count(played);
        self.rows.count(played);
    }

    fn tick(&mut self, elapsed: Duration, target: &Target) -> bool {
        self.row(elapsed, false, target);
        let ios = self.meter.scheduled.count();
        let mean_ms = self.meter.scheduled.mean_ms();
        self.watch.progress(&Progress::Playing { run: self.label, ios, mean_ms, elapsed });
        true
    }
}

struct Warmer<'a> {
    label: &'a str,
    ios: u64,
    failure: Option<String>,
    watch: &'a mut dyn Watch,
}

impl Observer for Warmer<'_> {
    fn played(&mut self, played: &Played) {
        self.ios += 1;
        if let Some(failure) = &played.failure {
            self.failure.get_or_insert_with(|| failure.clone());
        }
    }

    fn tick(&mut self, _: Duration, _: &Target) -> bool {
        self.watch.progress(&Progress::Warming { run: self.label, ios: self.ios });
        self.failure.is_none()
    }
}

impl From<DriveError<Self>> for ReplayError {
    fn from(error: DriveError<Self>) -> Self {
        match error {
            DriveError::Source(error) => error,
            DriveError::Target(error) => Self::Target(error),
            hung @ DriveError::Hung(_) => Self::Stuck(hung.to_string()),
        }
    }
}
