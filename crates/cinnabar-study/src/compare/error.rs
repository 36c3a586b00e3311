//! Why traces can't be compared.
//!
//! Made by every pass, shown by the command.

use super::{CAPACITY_BLOCKS_MAX, REQUEST_BLOCKS_MAX, SHARES_MAX};
use crate::analysis::InputError;
use std::path::PathBuf;

/// Why a comparison was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{}: not a file, and a comparison reads it more than once", .0.display())]
    Twice(PathBuf),
    #[error("no volume is called {0:?}")]
    NoVolume(String),
    /// There is nothing to plan from: the plan of an interval comes from the ones before.
    #[error("the trace has {0} intervals, and plans need two at least")]
    FewIntervals(usize),
    #[error("{intervals} intervals of {volumes} volumes: the most is {SHARES_MAX} shares")]
    ManyShares { intervals: usize, volumes: usize },
    #[error("{found} volumes: the most is {most}")]
    ManyVolumes { found: usize, most: usize },
    #[error("nothing is read again within an interval, so there is no demand for a cache")]
    NoDemand,
    /// The engine's log has too few segments for so many shares.
    #[error(
        "a cache of {capacity_blocks} blocks is too small for {volumes} shares: the engine needs {needed_blocks}"
    )]
    Small { capacity_blocks: u64, volumes: usize, needed_blocks: u64 },
    #[error("{percent} % of a demand of {demand_blocks} blocks is no cache")]
    Nothing { percent: f64, demand_blocks: u64 },
    #[error("a cache of {capacity_blocks} blocks: the minima of the volumes are {minima_blocks}")]
    Minima { capacity_blocks: u64, minima_blocks: u64 },
    #[error("a cache of {0} blocks: the most is {CAPACITY_BLOCKS_MAX}")]
    Large(u64),
    #[error("a request of {0} blocks: the most is {REQUEST_BLOCKS_MAX}")]
    LongRequest(u64),
    #[error("a request at block {0}, beyond the largest volume")]
    FarRequest(u64),
    #[error(transparent)]
    ManyBlocks(#[from] cinnabar_policy::TooManyBlocks),
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
