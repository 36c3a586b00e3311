//! One step of a search: a rate, played until it is steady, then measured.

use super::run::Progress;
use super::{ASUS, BenchError, Source};
use crate::drive::{DEPTH_MAX, Observer, Pace, Played, drive};
use crate::latency::{Latencies, LatencySummary};
use crate::meter::Meter;
use crate::target::Target;
use cinnabar_trace::generate::spc1::{Generator, STREAMS};
use serde::Serialize;
use std::time::Duration;

/// Windows that two neighbours of must agree before it counts as steady, at most.
const SETTLING_MAX: u32 = 5;
/// Means that differ by less are alike, relative and in ms.
const ALIKE: f64 = 0.2;
const ALIKE_MS: f64 = 0.5;
/// Beyond so many times the limit nothing will come right any more.
const HOPELESS: f64 = 3.0;

/// A rate and what it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Business scaling units.
    pub bsu: u32,
    /// I/Os a second that were done.
    pub iops: f64,
    /// From the scheduled time.
    pub latency: LatencySummary,
    /// Read blocks found in the cache, of all.
    pub hit_ratio: Option<f64>,
    /// Share of reads that did not reach the storage.
    pub reads_cut: f64,
    /// Share of all I/Os that did not.
    pub all_cut: f64,
    /// Two windows in a row were alike before it was measured.
    pub steady: bool,
    /// No backlog was left at the end: what is under way is no more than such a mean explains. Quick
    /// hits would hide one stream that falls behind in the mean.
    pub kept_up: bool,
    /// The storage kept up, and the mean is within the limit.
    pub within: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StepPlan {
    /// Longest mean.
    pub(super) limit: Duration,
    pub(super) window: Duration,
    pub(super) measured: Duration,
}

enum Phase {
    /// Windows so far, and the last one's mean in ms.
    Settling(u32, Option<f64>),
    Measuring,
}

struct Watch<'a> {
    plan: StepPlan,
    phase: Phase,
    phase_began: Duration,
    /// Of this window of settling.
    window: Latencies,
    meter: Meter,
    /// The generator's time at the start.
    from_ns: u64,
    /// How long was measured, and how many I/Os were under way at its end.
    measured: Option<(Duration, usize)>,
    steady: bool,
    hopeless: bool,
    stopped: bool,
    told: &'static str,
    tell: &'a mut dyn FnMut(&Progress) -> bool,
}

impl Watch<'_> {
    /// When it was, since the start.
    fn submitted(&self, played: &Played) -> Duration {
        let waited_ns = played.scheduled_ns.saturating_sub(played.dispatched_ns);
        Duration::from_nanos(played.io.at_ns.saturating_sub(self.from_ns) + waited_ns)
    }
}

impl Observer for Watch<'_> {
    fn played(&mut self, played: &Played) {
        match self.phase {
            Phase::Settling(..) => self.window.record(played.scheduled_ns),
            // As the storage counts: what was submitted in the time that is measured belongs to it,
            // whenever it is done, and what was submitted before does not.
            Phase::Measuring if self.submitted(played) >= self.phase_began => {
                self.meter.count(played);
            }
            Phase::Measuring => (),
        }
    }

    fn tick(&mut self, elapsed: Duration, target: &Target) -> bool {
        let in_phase = elapsed.saturating_sub(self.phase_began);
        let (latencies, of) = match self.phase {
            Phase::Settling(..) => (&self.window, self.plan.window),
            Phase::Measuring => (&self.meter.scheduled, self.plan.measured),
        };
        let mean_ms = latencies.mean_ms();
        let progress = Progress {
            phase: self.told,
            elapsed: in_phase,
            of: Some(of),
            ios: latencies.count(),
            mean_ms,
            period: None,
        };
        self.stopped |= !(self.tell)(&progress);
        let limit_ms = self.plan.limit.as_secs_f64() * 1e3;
        self.hopeless |= in_phase >= of / 2 && mean_ms > HOPELESS * limit_ms;
        if self.stopped || self.hopeless {
            return false;
        }
        match self.phase {
            Phase::Settling(windows, before) if in_phase >= of => {
                let alike = before.is_some_and(|before| {
                    let apart = (mean_ms - before).abs();
                    apart < ALIKE_MS || apart < ALIKE * before
                });
                self.steady = alike;
                self.window = Latencies::default();
                self.phase_began = elapsed;
                self.phase = if alike || windows + 1 >= SETTLING_MAX {
                    self.meter = Meter::new(STREAMS.len(), target, ASUS);
                    Phase::Measuring
                } else {
                    Phase::Settling(windows + 1, Some(mean_ms))
                };
                true
            }
            Phase::Measuring if in_phase >= of => {
                self.measured = Some((in_phase, target.under_way()));
                false
            }
            _ => true,
        }
    }
}

pub(super) fn step(
    target: &mut Target,
    generator: &mut Generator,
    bsu: u32,
    plan: StepPlan,
    told: &'static str,
    tell: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Step, BenchError> {
    generator.set_bsu(bsu)?;
    let from_ns = generator.now_ns();
    let mut watch = Watch {
        plan,
        phase: Phase::Settling(0, None),
        phase_began: Duration::ZERO,
        window: Latencies::default(),
        meter: Meter::new(STREAMS.len(), target, ASUS),
        from_ns,
        measured: None,
        steady: false,
        hopeless: false,
        stopped: false,
        told,
        tell,
    };
    let mut source = Source { generator, until_ns: u64::MAX, without_log: false };
    drive(target, &mut source, Pace::Open { from_ns, speed: 1.0 }, &mut watch)?;
    if watch.stopped {
        return Err(BenchError::Interrupted);
    }
    if let Some(first) = watch.meter.first_failure {
        return Err(BenchError::Failed { failures: watch.meter.failures, first });
    }
    let limit_ms = plan.limit.as_secs_f64() * 1e3;
    let Some((length, under_way)) = watch.measured else {
        // Given up: the window that was under way tells why.
        let latencies =
            if watch.window.count() > 0 { &watch.window } else { &watch.meter.scheduled };
        return Ok(Step {
            bsu,
            iops: 0.0,
            latency: latencies.summary(),
            hit_ratio: None,
            reads_cut: 0.0,
            all_cut: 0.0,
            steady: false,
            kept_up: false,
            within: false,
        });
    };
    // All that was submitted is done.
    let now = watch.meter.snapshot(target);
    let server = super::ServerReport::new(&watch.meter, &now);
    let latency = watch.meter.summary();
    let iops = latency.count as f64 / length.as_secs_f64();
    let kept_up = kept_up(under_way, iops, plan.limit);
    Ok(Step {
        bsu,
        iops,
        latency,
        hit_ratio: now.hit_ratio_since(watch.meter.begun()),
        reads_cut: server.reads_cut,
        all_cut: server.all_cut,
        steady: watch.steady,
        kept_up,
        within: kept_up && latency.count > 0 && latency.mean_ms <= limit_ms,
    })
}

/// Whether so many I/Os under way are no backlog: Little's law has the rate times the limit on
/// average, and a burst some times that.
fn kept_up(under_way: usize, iops: f64, limit: Duration) -> bool {
    under_way < DEPTH_MAX && under_way as f64 <= 16.0 + 4.0 * iops * limit.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_told_from_what_is_under_way() {
        let limit = Duration::from_millis(30);
        // 900 I/Os a second: 27 at a time if each takes 30 ms.
        assert!(kept_up(27, 900.0, limit) && kept_up(120, 900.0, limit));
        assert!(!kept_up(130, 900.0, limit), "a log that falls behind by 7 a second for 20 s");
        assert!(!kept_up(DEPTH_MAX, 1e6, limit), "more would be under way if they could");
    }
}
