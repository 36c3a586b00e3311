//! Why traces can't be analyzed, each with a line that helps.
//!
//! Made by the analysis, shown by the command line.

use super::traces::InputError;
use cinnabar_policy::TooManyBlocks;
use std::path::PathBuf;

/// Why an analysis was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{}: not a file; to recommend a size and plan for it, a trace is read twice", .0.display())]
    Twice(PathBuf),
    #[error("{}: no reads and no writes in it", .0.display())]
    Empty(PathBuf),
    #[error(transparent)]
    Blocks(#[from] TooManyBlocks),
    #[error("the trace has too many intervals for its length and its volumes")]
    ManyIntervals,
    #[error("no volume is called {name:?}: there are {}", .names.join(", "))]
    NoVolume {
        name: String,
        /// Those there are, the first of them at least.
        names: Vec<String>,
    },
    #[error("an SSD budget is for a time, and the trace has no times")]
    NoTimes,
}

impl AnalysisError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Input(error) => error.hint(),
            Self::Twice(_) => "write it to a file first, or give a size with --cache",
            Self::Empty(_) => "a cache can only be sized by reads and writes; record for longer",
            Self::Blocks(_) => "look at a sample: leave --exact out",
            Self::ManyIntervals => "make them longer with --interval",
            Self::NoVolume { .. } => {
                "volumes are called as in the trace, behind FILE: with several"
            }
            Self::NoTimes => "leave --ssd-budget out",
        }
    }
}
