//! Why traces can't be compared.
//!
//! Made by every pass, shown by the command.

use super::{CAPACITY_BLOCKS_MAX, REQUEST_BLOCKS_MAX, SHARES_MAX};
use crate::analysis::InputError;
use std::path::PathBuf;

/// Why a comparison was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The traces can't be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// What is no file can't be read again and again.
    #[error("{}: not a file, and a comparison reads it more than once", .0.display())]
    Twice(PathBuf),
    /// A volume that is not in the traces.
    #[error("no volume is called {0:?}")]
    NoVolume(String),
    /// There is nothing to plan from: the plan of an interval comes from the ones before.
    #[error("the trace has {0} intervals, and plans need two at least")]
    FewIntervals(usize),
    /// More plans than are kept.
    #[error("{intervals} intervals of {volumes} volumes: the most is {SHARES_MAX} shares")]
    ManyShares {
        /// Intervals so far.
        intervals: usize,
        /// Volumes so far.
        volumes: usize,
    },
    /// More volumes than shares can be kept for.
    #[error("{found} volumes: the most is {most}")]
    ManyVolumes {
        /// Volumes of the trace.
        found: usize,
        /// What is possible.
        most: usize,
    },
    /// Nothing is read twice.
    #[error("nothing is read again within an interval, so there is no demand for a cache")]
    NoDemand,
    /// The engine's log has too few segments for so many shares.
    #[error(
        "a cache of {capacity_blocks} blocks is too small for {volumes} shares: the engine needs {needed_blocks}"
    )]
    Small {
        /// Blocks of the cache.
        capacity_blocks: u64,
        /// Volumes of the trace.
        volumes: usize,
        /// Blocks it would take.
        needed_blocks: u64,
    },
    /// A cache without a block.
    #[error("{percent} % of a demand of {demand_blocks} blocks is no cache")]
    Nothing {
        /// The part asked for.
        percent: f64,
        /// What it is a part of.
        demand_blocks: u64,
    },
    /// The volumes' minima don't fit.
    #[error("a cache of {capacity_blocks} blocks: the minima of the volumes are {minima_blocks}")]
    Minima {
        /// Blocks of the cache.
        capacity_blocks: u64,
        /// Blocks that volumes are to have at least.
        minima_blocks: u64,
    },
    /// The demand is more than is simulated.
    #[error("a cache of {0} blocks: the most is {CAPACITY_BLOCKS_MAX}")]
    Large(u64),
    /// A request is longer than any.
    #[error("a request of {0} blocks: the most is {REQUEST_BLOCKS_MAX}")]
    LongRequest(u64),
    /// A request is beyond what a volume can have.
    #[error("a request at block {0}, beyond the largest volume")]
    FarRequest(u64),
    /// More different blocks than can be numbered.
    #[error(transparent)]
    ManyBlocks(#[from] cinnabar_policy::TooManyBlocks),
    /// The engine refused requests.
    #[error("the engine refused {0} requests")]
    Refused(u64),
}

impl CompareError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Input(error) => error.hint(),
            Self::Twice(_) => "write it to a file first",
            Self::NoVolume(_) => "volumes are called as in the trace, behind FILE: with several",
            Self::FewIntervals(_) => "cut it finer with --interval, or give a longer trace",
            Self::ManyShares { .. } => "cut it coarser with --interval",
            Self::ManyVolumes { .. } => "choose some of them: cinnabar-lab trace convert --volumes",
            Self::NoDemand => "a longer --interval may see blocks come back",
            Self::Small { .. } => {
                "give a larger part of the demand, or leave the engine out: --model papers"
            }
            Self::Nothing { .. } => "give a larger part of the demand",
            Self::Minima { .. } => "lower a --min, or give a larger part of the demand",
            Self::Large(_) => "give a smaller part of the demand, or a smaller --reach-part",
            Self::LongRequest(_) | Self::FarRequest(_) => {
                "is the trace in the format it looks like?"
            }
            Self::ManyBlocks(_) => "compare fewer volumes at a time",
            Self::Refused(_) => "this is a mistake in cinnabar; please report it",
        }
    }
}
