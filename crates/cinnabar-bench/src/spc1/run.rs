//! A single run at one rate.

use super::report::{self, Report};
use super::{ASUS, BenchError, Plan, Source};
use crate::drive::{Observer, Pace, Played, drive};
use crate::meter::{Meter, Period, Periods};
use crate::target::{Target, TargetError};
use cinnabar_trace::generate::spc1::{Generator, STREAMS};
use std::time::Duration;

/// I/Os that may fail before a run is given up.
const FAILURES_MAX: u64 = 1000;

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What it is doing.
    pub phase: &'static str,
    /// Time since the phase began.
    pub elapsed: Duration,
    /// How long it takes, if that is known.
    pub of: Option<Duration>,
    /// I/Os done in it.
    pub ios: u64,
    /// Their mean latency in ms.
    pub mean_ms: f64,
    /// A row that has just ended.
    pub period: Option<&'a Period>,
}

struct Watch<'a> {
    meter: Meter,
    periods: Periods,
    length: Duration,
    tell: &'a mut dyn FnMut(&Progress) -> bool,
    stopped: bool,
}

impl Observer for Watch<'_> {
    fn played(&mut self, played: &Played) {
        self.meter.count(played);
        self.periods.count(played);
    }

    fn tick(&mut self, elapsed: Duration, target: &Target) -> bool {
        let period = self.periods.cut(elapsed, false, || self.meter.snapshot(target));
        let progress = Progress {
            phase: "running",
            elapsed,
            of: Some(self.length),
            ios: self.meter.scheduled.count(),
            mean_ms: self.meter.scheduled.mean_ms(),
            period: period.as_ref(),
        };
        self.stopped |= !(self.tell)(&progress);
        !self.stopped && self.meter.failures < FAILURES_MAX
    }
}

/// Runs a plan. `tell` hears of it ten times a second, and ends it by `false`.
///
/// # Errors
/// [`BenchError`]; nothing was written if it could not be begun.
pub fn run(plan: &Plan, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<Report, BenchError> {
    let settings = plan.check()?;
    let mut generator = Generator::new(settings.clone())?;
    let mut target = Target::open(&plan.units(), plan.cache.as_ref())?;
    let meter = Meter::new(STREAMS.len(), &target, ASUS);
    let periods = Periods::new(plan.period, *meter.begun());
    let mut watch = Watch { meter, periods, length: plan.length, tell, stopped: false };
    let mut source = Source {
        generator: &mut generator,
        until_ns: plan.length.as_nanos() as u64,
        without_log: false,
    };
    let cpu = report::cpu_time();
    let pace = Pace::Open { from_ns: 0, speed: 1.0 };
    let elapsed = drive(&mut target, &mut source, pace, &mut watch)?;
    let cpu = report::cpu_time().saturating_sub(cpu);
    if let Some(reason) = target.degraded() {
        return Err(TargetError::Degraded(reason).into());
    }
    let Watch { meter, mut periods, stopped, .. } = watch;
    // The last row is as long as it is.
    periods.cut(elapsed.all, true, || meter.snapshot(&target));
    let report = report::Report::new(plan, &settings, &target, &meter, periods.rows, elapsed, cpu);
    target.close()?;
    if stopped {
        return Err(BenchError::Interrupted);
    }
    match meter.first_failure {
        Some(first) => Err(BenchError::Failed { failures: meter.failures, first }),
        None => Ok(report),
    }
}
