//! A trace replayed under each allocator: what their plans come to, side by side.
//!
//! Three passes: [`survey`] measures what volumes ask for and so how large the caches are, [`plans`]
//! makes each allocator's plan for each interval from what was seen before it, as a live manager
//! must, and [`runs`] replays the trace under these plans, in two models. [`engine`] is the
//! production engine as it is; [`papers`] is what the papers assume: LRU partitions, every miss and
//! every kept write goes to the SSD. The same input gives the same figures, whatever the number of
//! threads.

pub mod claims;
pub mod engine;
pub mod error;
pub mod input;
pub mod judged;
pub mod measures;
pub mod outcome;
pub mod papers;
pub mod plans;
mod progress;
pub mod runs;
pub mod survey;
pub mod watch;

pub use claims::{ECI_CLAIMS, Gains};
pub use error::CompareError;
pub use input::Input;
pub use judged::{Judged, Premise, judge};
pub use measures::Measures;
pub use outcome::{Counts, Outcome};
pub use plans::Division;
pub use progress::Progress;

use crate::analysis::{Bounds, Every, Interval, Look, Rules};
use cinnabar_policy::named;
use cinnabar_policy::sizing::{Allocator, Goal, Weighting};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;

/// Volumes compared at most: divisions go through all pairs of them.
pub const VOLUMES_MAX: usize = 256;
/// Intervals times volumes at most: so many shares are kept for each allocator and cache.
pub const SHARES_MAX: usize = 1 << 18;
/// The largest cache, in blocks (512 GiB): one shard of the engine.
pub const CAPACITY_BLOCKS_MAX: u64 = 1 << 27;
/// The longest request, in blocks (4 GiB). What is longer is no request.
pub const REQUEST_BLOCKS_MAX: u64 = 1 << 20;

/// Who is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// No cache at all: the base line.
    NoCache,
    /// A cache that this allocator divides.
    Allocator(Allocator),
}

impl Contestant {
    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoCache => "none",
            Self::Allocator(allocator) => allocator.name(),
        }
    }

    /// All that need nothing of the operator, the base line first: `fixed` without sizes is no cache.
    pub fn all() -> Vec<Self> {
        let alone = Allocator::ALL.into_iter().filter(|one| *one != Allocator::Fixed);
        std::iter::once(Self::NoCache).chain(alone.map(Self::Allocator)).collect()
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

named! {
    /// What cache the plans are carried out by.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Model {
        /// The production engine.
        Engine = "engine",
        /// What the papers assume.
        Papers = "papers",
    }
}

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where plans change; `None`: as it suits the traces.
    pub every: Option<Every>,
    /// Who makes them, in the order of the result.
    pub contestants: Vec<Contestant>,
    /// What carries them out.
    pub models: Vec<Model>,
    /// Sizes of caches, as parts of the demand; above 0.
    pub parts: Vec<f64>,
    /// How closely volumes are looked at.
    pub look: Look,
    /// Which blocks a sample has.
    pub seed: u64,
    /// What an interval weighs in the next one, from 0 to 1.
    pub decay: f64,
    /// A block belongs to the reuse working set after so many reuses.
    pub reuses_min: u8,
    /// How room is divided, except for the allocator. All results use its prices.
    pub rules: Rules,
    /// What `urd` is to be best at.
    pub goal: Goal,
    /// Whether volumes or accesses count the same, for `eci` and `centaur`.
    pub weighting: Weighting,
    /// What the operator wants, by volume.
    pub bounds: BTreeMap<String, Bounds>,
    /// Threads; `None`: as many as there are cores.
    pub jobs: Option<NonZeroUsize>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Names of the volumes.
    pub volumes: Vec<String>,
    /// How the trace was cut.
    pub every: Every,
    /// The intervals of the trace, in order.
    pub intervals: Vec<Interval>,
    /// The largest sum, over intervals, of what `eci` wants for the volumes, in blocks.
    pub demand_blocks: u64,
    /// In the order of [`Options::parts`].
    pub caches: Vec<Cache>,
}

/// A size of cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// The part of the demand that was asked for.
    pub part: f64,
    /// Its size, whole segments of the engine's log.
    pub capacity_blocks: u64,
    /// In the order of [`Options::contestants`].
    pub entries: Vec<Entry>,
}

/// A contestant in a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The allocator that was run.
    pub contestant: Contestant,
    /// Blocks allocated, the mean over the trace's time.
    pub allocated_blocks: f64,
    /// Its plan for each interval; empty without a cache.
    pub plans: Vec<Division>,
    /// By the production engine, if asked for.
    pub engine: Option<Outcome>,
    /// By the papers' model, if asked for.
    pub papers: Option<Outcome>,
}

/// Compares; `tell` is called with the progress.
///
/// # Errors
/// What is wrong with the input, or why it can't be compared.
///
/// # Panics
/// If an option is out of its bounds.
pub fn compare(
    input: Input<'_>,
    options: &Options,
    mut tell: impl FnMut(Progress),
) -> Result<Comparison, CompareError> {
    assert!(options.parts.iter().all(|part| *part > 0.0), "a cache has a size");
    let survey = survey::survey(&input, options, &mut |requests| {
        tell(Progress::Surveying { requests });
    })?;
    let input = survey.kept.as_deref().map_or(input, Input::Records);
    let sizes = options.parts.iter().map(|part| survey.capacity_blocks(*part, options));
    let sizes: Vec<u64> = sizes.collect::<Result<_, _>>()?;
    let mut caches = plans::plan(&input, options, &survey, &sizes, &mut tell)?;
    runs::run(&input, options, &survey, &mut caches, &mut tell)?;
    let survey::Survey { volumes, every, intervals, demand_blocks, .. } = survey;
    Ok(Comparison { volumes, every, intervals, demand_blocks, caches })
}
