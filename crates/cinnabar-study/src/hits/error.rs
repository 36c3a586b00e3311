//! Why a trace can't be simulated, each with a line that helps.

use cinnabar_engine::limits::VOLUMES_MAX;
use cinnabar_policy::{TooLong, TooManyBlocks};
use cinnabar_trace::TraceError;

/// Why a simulation was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum HitsError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("the trace has no reads and no writes ({0} requests of other kinds)")]
    Empty(u64),
    #[error("the first {request} requests of the trace are too many: {source}")]
    Blocks { request: u64, source: TooManyBlocks },
    #[error(transparent)]
    Long(#[from] TooLong),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What the engine can't do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error("the engine's smallest cache has {min} blocks, {asked} are asked for")]
    Small { asked: u64, min: u64 },
    #[error("the engine is simulated up to {max} blocks, {asked} are asked for")]
    Large { asked: u64, max: u64 },
    #[error("the engine is run without a write log here: it can't write back")]
    WriteBack,
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
