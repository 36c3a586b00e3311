//! Replays a block trace on real storage, with and without the cache, at its own pace or as fast as it
//! goes; and Mercury's desktop experiment: the same test period after more and more warming.
//!
//! Never touches the terminal itself. The trace is read twice and never held: a first pass finds out
//! whether it fits before anything is opened for I/O, the second one plays.

mod error;
mod footprint;
pub mod outcome;
mod periods;
mod play;
mod source;
mod survey;
#[cfg(test)]
mod tests;

pub use error::ReplayError;
pub use outcome::{Outcome, Run};
pub use survey::{Survey, Volume};

use super::drive::Pace;
use super::meter::Period;
use super::target::{self, CacheOptions, UnitSpec};
use periods::Periods;
use play::Stage;
use serde::Serialize;
use source::Rules;
use std::path::PathBuf;
use std::time::Duration;

/// What to replay, on what, how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A file in canonical form, plain or compressed.
    pub trace: PathBuf,
    /// One for each volume of the trace, in the order of their numbers.
    pub targets: Vec<String>,
    /// Fold what lies beyond a target's end into it.
    pub wrap: bool,
    /// Leave the writes out.
    pub read_only: bool,
    /// Write even to a block device that holds something.
    pub overwrite: bool,
    /// How the test is played.
    pub pace: Pace,
    /// Longer pauses of the trace are cut to this.
    pub idle_max: Option<Duration>,
    /// Runs; none: one run of the whole trace.
    pub warm: Vec<Warm>,
    /// Length of a period of warming or test, in time of the trace.
    pub period: Duration,
    /// The cache, for all runs but those without.
    pub cache: Option<CacheOptions>,
    /// Length of a row of time.
    pub row: Duration,
}

/// What comes before the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warm {
    /// No cache at all.
    Without,
    /// An empty cache, and so many periods.
    Periods(u64),
}

/// How far it is: records of the trace, or requests of a run so far.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    Surveying { records: u64 },
    Warming { run: &'a str, ios: u64 },
    Playing { run: &'a str, ios: u64, mean_ms: f64, elapsed: Duration },
}

/// A row of time of one run, as it is told while it plays.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub run: String,
    /// What happened.
    #[serde(flatten)]
    pub period: Period,
}

/// Who is told while it goes on.
pub trait Watch {
    /// How far it is, often.
    fn progress(&mut self, progress: &Progress);
    /// A row of time has ended.
    fn row(&mut self, row: &Row);
}

/// A trace that was found to fit what it is to be played on.
#[derive(Debug)]
pub struct Replay {
    plan: Plan,
    survey: Survey,
    units: Vec<UnitSpec>,
    rules: Rules,
}

impl Replay {
    /// The first pass, and every check. Nothing is written, and no cache is touched.
    ///
    /// # Errors
    /// [`ReplayError`], with a hint: the trace or a target is not what the plan needs.
    pub fn prepare(plan: Plan, watch: &mut dyn Watch) -> Result<Self, ReplayError> {
        let survey = survey::survey(&plan.trace, |records| {
            if records.is_multiple_of(1 << 16) {
                watch.progress(&Progress::Surveying { records });
            }
        })?;
        check_warming(&plan, &survey)?;
        let units = units(&plan, &survey)?;
        let sizes = target::survey(&units)?;
        for ((volume, target), size) in survey.volumes.iter().zip(&plan.targets).zip(&sizes) {
            let (number, size, target) = (volume.number, *size, target.clone());
            if volume.longest_bytes > size {
                let bytes = volume.longest_bytes;
                return Err(ReplayError::SmallerThanOne { volume: number, bytes, target, size });
            }
            if volume.end_bytes > size && !plan.wrap {
                let needed = volume.end_bytes;
                return Err(ReplayError::Small { volume: number, needed, target, size });
            }
        }
        if survey.writes > 0 {
            target::guard(&units, plan.overwrite)?;
        }
        let idle_max_us = plan.idle_max.map_or(u64::MAX, |idle| idle.as_micros() as u64);
        let rules = Rules {
            sizes,
            numbers: Rules::numbers(&survey),
            wrap: plan.wrap,
            read_only: plan.read_only,
            idle_max_us,
        };
        Ok(Self { plan, survey, units, rules })
    }

    /// What the first pass found.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Whether the contents of the targets will be overwritten.
    pub fn overwrites(&self) -> bool {
        self.survey.writes > 0 && !self.plan.read_only
    }

    /// Plays every run.
    ///
    /// # Errors
    /// [`ReplayError`]; what was played until then is lost.
    pub fn run(&self, watch: &mut dyn Watch) -> Result<Outcome, ReplayError> {
        let Self { plan, survey, units, rules } = self;
        let periods = Periods::new(plan.period, survey);
        let test = if plan.warm.is_empty() { 0..u64::MAX } else { periods.test() };
        let (trace, pace, row) = (plan.trace.as_path(), plan.pace, plan.row);
        let stage = Stage { trace, units, rules, test, pace, row };
        let mut outcome = Outcome::new(plan.trace.clone(), &plan.targets, survey);
        if plan.warm.is_empty() {
            let cache = plan.cache.as_ref().map(|cache| (cache, None));
            let label = if cache.is_some() { "as it is" } else { outcome::WITHOUT };
            outcome.runs.push(stage.run(label.to_owned(), cache, watch)?);
        }
        for warm in &plan.warm {
            outcome.runs.push(match warm {
                Warm::Without => stage.run(outcome::WITHOUT.to_owned(), None, watch)?,
                Warm::Periods(count) => {
                    let cache = plan.cache.as_ref().ok_or(ReplayError::NoCache)?;
                    let time = periods.warming(*count)?;
                    stage.run(count.to_string(), Some((cache, Some(time))), watch)?
                }
            });
            outcome.published = Some(&outcome::MERCURY);
        }
        outcome.compare();
        Ok(outcome)
    }
}

fn units(plan: &Plan, survey: &Survey) -> Result<Vec<UnitSpec>, ReplayError> {
    let (volumes, targets) = (survey.volumes.len(), plan.targets.len());
    if volumes != targets {
        let mut numbers: Vec<String> =
            survey.volumes.iter().take(8).map(|volume| volume.number.to_string()).collect();
        if volumes > numbers.len() {
            numbers.push("...".to_owned());
        }
        return Err(ReplayError::Targets { volumes, numbers: numbers.join(", "), targets });
    }
    let unit = |(volume, target): (&Volume, &String)| UnitSpec {
        name: format!("volume{}", volume.number),
        places: vec![target.clone()],
        read_only: plan.read_only,
        cached: true,
    };
    Ok(survey.volumes.iter().zip(&plan.targets).map(unit).collect())
}

fn check_warming(plan: &Plan, survey: &Survey) -> Result<(), ReplayError> {
    let periods = Periods::new(plan.period, survey);
    for warm in &plan.warm {
        if let Warm::Periods(count) = warm {
            periods.warming(*count)?;
            if plan.cache.is_none() {
                return Err(ReplayError::NoCache);
            }
        }
    }
    Ok(())
}
