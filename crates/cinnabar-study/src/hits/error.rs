//! Why a trace can't be simulated, each with a line that helps.

use cinnabar_engine::limits::VOLUMES_MAX;
use cinnabar_policy::{TooLong, TooManyBlocks};
use cinnabar_trace::TraceError;

/// Why a simulation was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum HitsError {
    /// The trace can't be read, or not any further.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It has no reference to a block.
    #[error("the trace has no reads and no writes ({0} requests of other kinds)")]
    Empty(u64),
    /// More blocks than can be numbered.
    #[error("the first {request} requests of the trace are too many: {source}")]
    Blocks {
        /// Requests read.
        request: u64,
        /// What was too many.
        source: TooManyBlocks,
    },
    /// Too long for Belady.
    #[error(transparent)]
    Long(#[from] TooLong),
    /// The engine can't do that.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What the engine can't do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Smaller than its smallest device.
    #[error("the engine's smallest cache has {min} blocks, {asked} are asked for")]
    Small {
        /// What was asked for.
        asked: u64,
        /// The smallest, in blocks.
        min: u64,
    },
    /// Larger than one shard.
    #[error("the engine is simulated up to {max} blocks, {asked} are asked for")]
    Large {
        /// What was asked for.
        asked: u64,
        /// The largest, in blocks.
        max: u64,
    },
    /// It is run without a write log.
    #[error("the engine is run without a write log here: it can't write back")]
    WriteBack,
    /// More volumes than it knows at a time.
    #[error("the engine knows {VOLUMES_MAX} volumes at a time, the trace has more")]
    Volumes,
}

impl HitsError {
    /// What may help.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Trace(error) => error.hint(),
            Self::Empty(_) => "is it the file that you meant? look at its first lines",
            Self::Blocks { .. } => "split the trace by volume first",
            Self::Long(_) => "leave belady out, or cut the trace",
            Self::Engine(error) => error.hint(),
        }
    }
}

impl EngineError {
    /// What may help.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Small { .. } => "ask for a larger size, or leave engine out",
            Self::Large { .. } => "ask for a smaller size, or leave engine out",
            Self::WriteBack => "--writes through or around, or leave engine out",
            Self::Volumes => "split the trace by volume first, or leave engine out",
        }
    }
}
