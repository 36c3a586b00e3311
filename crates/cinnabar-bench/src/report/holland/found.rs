//! What the experiments found: the contract of `--json`. Keys are only ever added.
//!
//! Made by the command; printed and drawn by its other files.

use cinnabar_study::holland::{
    Check, Experiment, Figure, Measured, Point, Quantity, Setup, Target,
};
use cinnabar_study::timed::Outcome;
use cinnabar_text::Unit;
use serde::Serialize;
use std::time::Duration;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Found {
    pub(crate) scale: u32,
    pub(crate) seed: u64,
    pub(crate) configurations: usize,
    pub(crate) block_ios: u64,
    pub(crate) seconds: f64,
    /// Of all cores, since the program began.
    pub(crate) cpu_seconds: f64,
    pub(crate) block_ios_per_second: f64,
    /// Of every event of every run: the same for the same version, scale and seed.
    pub(crate) digest: String,
    pub(crate) experiments: Vec<FoundExperiment>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FoundExperiment {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) published: &'static str,
    pub(crate) claim: Option<u8>,
    /// Whether all its bounds hold; null without any.
    pub(crate) holds: Option<bool>,
    pub(crate) checks: Vec<FoundCheck>,
    pub(crate) figures: Vec<FoundFigure>,
    pub(crate) targets: Vec<FoundTarget>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FoundCheck {
    pub(crate) what: String,
    pub(crate) quantity: &'static str,
    pub(crate) value: f64,
    /// Is the value a share, and not a number of times?
    pub(crate) is_share: bool,
    pub(crate) bound: Option<&'static str>,
    pub(crate) limit: Option<f64>,
    pub(crate) holds: Option<bool>,
}

/// A figure drawn again, with the checks of its lines.
#[derive(Debug, Serialize)]
pub(crate) struct FoundFigure {
    pub(crate) slug: &'static str,
    pub(crate) title: String,
    pub(crate) across: &'static str,
    pub(crate) quantity: &'static str,
    pub(crate) lines: Vec<FoundLine>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FoundLine {
    pub(crate) name: String,
    pub(crate) points: Vec<FoundPoint>,
}

/// One run, with more than its figure shows.
#[derive(Debug, Serialize)]
pub(crate) struct FoundPoint {
    pub(crate) at: String,
    pub(crate) value: f64,
    pub(crate) read_latency_us: f64,
    pub(crate) read_p99_us: f64,
    pub(crate) write_latency_us: f64,
    pub(crate) write_p99_us: f64,
    pub(crate) ram_share: f64,
    pub(crate) flash_share: f64,
    pub(crate) miss_share: f64,
    pub(crate) invalidation_share: f64,
    pub(crate) ios_per_second: f64,
    pub(crate) filer_writes_per_write: f64,
    pub(crate) digest: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct FoundTarget {
    pub(crate) what: String,
    pub(crate) quantity: &'static str,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) measured: f64,
    /// Beyond the range: as a share of its end, or in points of 1 if it is a share.
    pub(crate) difference: f64,
    pub(crate) within: bool,
}

/// An experiment that was not run.
#[derive(Debug, Serialize)]
pub struct Listed {
    pub(crate) name: &'static str,
    pub(crate) claim: Option<u8>,
    pub(crate) title: &'static str,
    pub(crate) published: &'static str,
    pub(crate) configurations: usize,
    pub(crate) figures: Vec<String>,
}

impl Listed {
    /// What an experiment is, before it is run.
    pub fn new(experiment: &Experiment) -> Self {
        Self {
            name: experiment.name,
            claim: experiment.claim,
            title: experiment.title,
            published: experiment.published,
            configurations: experiment.configs().len(),
            figures: experiment.figures.iter().map(|figure| figure.title.clone()).collect(),
        }
    }
}

impl Found {
    /// What was measured of each experiment, judged; `took` is how long all of them ran.
    pub fn new(setup: Setup, chosen: &[Experiment], measured: &Measured, took: Duration) -> Self {
        let seconds = took.as_secs_f64();
        Self {
            scale: setup.scale,
            seed: setup.seed,
            configurations: measured.rows().len(),
            block_ios: measured.block_ios(),
            seconds: short(seconds),
            cpu_seconds: short(cpu_seconds()),
            block_ios_per_second: (measured.block_ios() as f64 / seconds.max(1e-9)).round(),
            digest: hex(measured.digest()),
            experiments: chosen.iter().map(|one| FoundExperiment::new(one, measured)).collect(),
        }
    }

    /// Checks whose bounds do not hold, told in a line each.
    pub fn missed(&self) -> impl Iterator<Item = String> {
        let checks = self.experiments.iter().flat_map(|experiment| &experiment.checks);
        checks.filter(|check| check.holds == Some(false)).map(|check| {
            format!("{} is {}, not {}", check.what, check.shown(), check.bound_shown())
        })
    }

    /// Values of the other model, of all experiments.
    pub(crate) fn targets(&self) -> impl Iterator<Item = (&FoundExperiment, &FoundTarget)> {
        let experiments = self.experiments.iter();
        experiments.flat_map(|one| one.targets.iter().map(move |target| (one, target)))
    }
}

impl FoundExperiment {
    fn new(experiment: &Experiment, measured: &Measured) -> Self {
        let checks: Vec<_> =
            experiment.checks.iter().map(|check| FoundCheck::new(check, measured)).collect();
        let bounded: Vec<_> = checks.iter().filter_map(|check| check.holds).collect();
        Self {
            name: experiment.name,
            title: experiment.title,
            published: experiment.published,
            claim: experiment.claim,
            holds: (!bounded.is_empty()).then(|| bounded.into_iter().all(|holds| holds)),
            checks,
            figures: experiment
                .figures
                .iter()
                .map(|figure| FoundFigure::new(figure, measured))
                .collect(),
            targets: experiment
                .targets
                .iter()
                .map(|target| FoundTarget::new(target, measured))
                .collect(),
        }
    }
}

impl FoundCheck {
    fn new(check: &Check, measured: &Measured) -> Self {
        let (bound, limit) = check.bound.map(cinnabar_study::holland::Bound::parts).unzip();
        Self {
            what: check.what.clone(),
            quantity: check.quantity.key(),
            value: check.value(measured),
            is_share: check.is_share(),
            bound,
            limit,
            holds: check.holds(measured),
        }
    }

    pub(crate) fn shown(&self) -> String {
        self.number(self.value)
    }

    /// The bound for people; a hyphen without one.
    pub(crate) fn bound_shown(&self) -> String {
        let (Some(bound), Some(limit)) = (self.bound, self.limit) else { return "-".to_owned() };
        format!("{bound} {}", self.number(limit))
    }

    fn number(&self, value: f64) -> String {
        if self.is_share {
            Unit::Ratio.show(value)
        } else {
            format!("{} x", Unit::Count.show(value))
        }
    }
}

impl FoundFigure {
    fn new(figure: &Figure, measured: &Measured) -> Self {
        let line = |line: &cinnabar_study::holland::Line| FoundLine {
            name: line.name.clone(),
            points: line
                .points
                .iter()
                .map(|point| FoundPoint::new(point, figure.quantity, measured.of(&point.config)))
                .collect(),
        };
        Self {
            slug: figure.slug,
            title: figure.title.clone(),
            across: figure.across.label(),
            quantity: figure.quantity.key(),
            lines: figure.lines.iter().map(line).collect(),
        }
    }
}

impl FoundPoint {
    fn new(point: &Point, quantity: Quantity, outcome: &Outcome) -> Self {
        let p99_us =
            |latency: &cinnabar_study::timed::Latency| latency.percentile_ns(99.0) as f64 / 1e3;
        Self {
            at: point.label.clone(),
            value: quantity.of(outcome),
            read_latency_us: Quantity::ReadLatency.of(outcome),
            read_p99_us: p99_us(&outcome.reads),
            write_latency_us: Quantity::WriteLatency.of(outcome),
            write_p99_us: p99_us(&outcome.writes),
            ram_share: Quantity::RamHits.of(outcome),
            flash_share: Quantity::FlashHits.of(outcome),
            miss_share: Quantity::Misses.of(outcome),
            invalidation_share: Quantity::Invalidations.of(outcome),
            ios_per_second: Quantity::Rate.of(outcome),
            filer_writes_per_write: Quantity::FilerWrites.of(outcome),
            digest: hex(outcome.digest),
        }
    }
}

impl FoundTarget {
    fn new(target: &Target, measured: &Measured) -> Self {
        let nearness = target.judge(measured);
        Self {
            what: target.what.clone(),
            quantity: target.quantity.key(),
            low: target.low,
            high: target.high,
            measured: nearness.measured,
            difference: nearness.difference,
            within: nearness.within,
        }
    }

    /// The values for people: the other model's, ours, the difference.
    pub(crate) fn shown(&self) -> [String; 3] {
        let us = self.quantity.ends_with("_us");
        let number =
            |value: f64| if us { Unit::Micros.show(value) } else { Unit::Ratio.show(value) };
        let range = if self.low < self.high {
            format!("{} to {}", number(self.low), number(self.high))
        } else {
            number(self.low)
        };
        let difference = match (self.difference, us) {
            (0.0, _) => "within".to_owned(),
            (difference, true) => format!("{:+.1} %", difference * 100.0),
            // Without a minus before a zero.
            (difference, false) => {
                format!("{:+.1} points", (difference * 1000.0).round() / 10.0 + 0.0)
            }
        };
        [range, number(self.measured), difference]
    }
}

/// Two decimals: more are noise.
fn short(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// JSON has no whole numbers of 64 bits that every reader keeps.
fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}
