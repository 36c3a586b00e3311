//! Hit-ratio simulation: one trace through many caches at once, policies and the production engine.
//!
//! The trace is read once, in `portions`: requests become references to dense block numbers, and
//! each cache (`pool`) is fed portion by portion, so what is kept grows with the trace's different
//! blocks and not with its length. Belady's optimum alone needs all of it first: 4 bytes a
//! reference, and 4 more while it is worked out (`optimum`).

pub mod engine;
mod error;
mod optimum;
mod pool;
mod portions;

pub use engine::EngineCache;
pub use error::{EngineError, HitsError};
pub use portions::{Grain, Survey, survey};

use cinnabar_engine::{Admission, Endurance};
use cinnabar_policy::{Counts, Policy, UnknownName, Writes};
use cinnabar_trace::{Record, TraceError};
use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::str::FromStr;

/// Who decides what stays in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A policy alone.
    Policy(Policy),
    /// The production engine with its default settings but for [`Options::endurance`] and
    /// [`Options::admission`], without I/O.
    Engine,
}

impl Contender {
    /// Every one, in the order in which they are listed.
    pub fn all() -> impl Iterator<Item = Self> {
        Policy::ALL.into_iter().map(Self::Policy).chain([Self::Engine])
    }

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.name(),
            Self::Engine => "engine",
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Contender {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::all().find(|contender| contender.name() == name).ok_or_else(|| UnknownName {
            what: "policy",
            name: name.to_owned(),
            known: Self::all().map(Self::name).collect(),
        })
    }
}

/// One cache to be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The policy or engine that was simulated.
    pub contender: Contender,
    /// How large, in blocks.
    pub size_blocks: NonZeroU32,
}

/// What to simulate, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The caches; each sees all of the trace.
    pub runs: Vec<Run>,
    /// What writes do to them.
    pub writes: Writes,
    /// The engine's price of a flash write.
    pub endurance: Endurance,
    /// The engine's way of admission; `None`: as it decides by itself.
    pub admission: Option<Admission>,
    /// What the engine's requests are rounded to; policies see whole blocks.
    pub grain: Grain,
    /// Threads; no more are started than there is work for.
    pub jobs: NonZeroUsize,
}

/// What one cache did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The policy and size of the cache.
    pub run: Run,
    /// What it has room for, in blocks: as asked, but for the engine, which has whole segments.
    pub capacity_blocks: u64,
    /// What was counted.
    pub counts: Counts,
    /// What became of the blocks, by reason; only the engine reports it.
    pub reasons: Option<Reasons>,
}

/// Blocks that the engine kept, refused, gave up and missed again, each for a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reasons {
    /// Written to flash because there was room, or because everything is let in just now.
    pub kept_room: u64,
    /// Written to flash because they were used again while in probation.
    pub kept_used: u64,
    /// Written to flash because they came back soon after they had left.
    pub kept_returned: u64,
    /// Written to flash once more when their segment was emptied.
    pub reinserted: u64,
    /// Left probation without being used.
    pub refused_unused: u64,
    /// Written, and of a volume whose written blocks are seldom read.
    pub refused_written: u64,
    /// Written in part more than once, until they were whole.
    pub completed_partial: u64,
    /// Written in part and given up before they were whole.
    pub refused_partial: u64,
    /// There was no free buffer or segment at that moment.
    pub refused_no_space: u64,
    /// Given up by flash.
    pub evicted: u64,
    /// Read misses of blocks that had left, or had been refused, not long ago: the others were never
    /// seen, or long ago.
    pub missed_again: u64,
}

/// What all of them did.
#[derive(Clone, Debug)]
pub struct Found {
    /// What is in the trace.
    pub survey: Survey,
    /// In the order of [`Options::runs`].
    pub outcomes: Vec<Outcome>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The trace is being read; the caches are at most some portions behind.
    Reading(Survey),
    /// Belady's optimum is being computed for each size.
    Foreseeing {
        /// References gone through, all sizes together.
        done: u64,
        /// Of so many.
        of: u64,
    },
}

/// Sends `records` through every cache. `progress` is called from this thread some times a second.
///
/// # Errors
/// If the trace is damaged or has no reference, or a cache is impossible. No results are given then.
///
/// # Panics
/// If a cache does: each has a result, or there is an error.
pub fn run(
    records: impl Iterator<Item = Result<Record, TraceError>> + Send,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Found, HitsError> {
    let is_belady = |run: &Run| run.contender == Contender::Policy(Policy::Belady);
    let mut lanes = Vec::new();
    for run in options.runs.iter().filter(|run| !is_belady(run)) {
        lanes.push(pool::Runner::new(*run, options)?);
    }
    let wants_requests = options.runs.iter().any(|run| run.contender == Contender::Engine);
    let portions = portions::Portions::new(records)
        .with_requests(wants_requests.then_some(options.grain))
        .keeping_all(options.runs.iter().any(is_belady));
    let (portions, runners) = pool::run(portions, lanes, options.jobs, progress)?;
    let survey = portions.survey();
    if survey.references == 0 {
        return Err(HitsError::Empty(survey.requests));
    }
    let sizes = options.runs.iter().filter(|run| is_belady(run)).map(|run| run.size_blocks);
    let sizes: Vec<NonZeroU32> = sizes.collect();
    let all = portions.into_all();
    let mut foreseen = optimum::run(&all, &sizes, options, progress)?.into_iter();
    let mut others = runners.into_iter();
    let outcomes = options.runs.iter().map(|run| {
        if is_belady(run) {
            let counts = foreseen.next().expect("one for each size");
            return Outcome {
                run: *run,
                capacity_blocks: run.size_blocks.get().into(),
                counts,
                reasons: None,
            };
        }
        others.next().expect("one for each run").finish(*run)
    });
    Ok(Found { survey, outcomes: outcomes.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for contender in Contender::all() {
            assert_eq!(contender.to_string().parse(), Ok(contender));
        }
        let error = "lfu".parse::<Contender>().expect_err("there is none").to_string();
        for contender in Contender::all() {
            assert!(error.contains(contender.name()), "{error}");
        }
    }
}
