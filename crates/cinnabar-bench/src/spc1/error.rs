//! Why a benchmark can't be run, or not to its end.

use crate::drive::DriveError;
use crate::target::TargetError;
use cinnabar_trace::generate::spc1::Spc1Error;
use std::convert::Infallible;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Settings(#[from] Spc1Error),
    #[error("{0}")]
    Hung(String),
    #[error("{failures} I/Os failed, the first with: {first}")]
    Failed { failures: u64, first: String },
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Target(error) => error.hint(),
            Self::Settings(error) => error.hint(),
            Self::Hung(_) | Self::Failed { .. } => "see the storage's own log, and dmesg",
            Self::Interrupted => "the contents of the ASUs are overwritten as far as it got",
        }
    }

    /// A mistake in the request, rather than a failure of the storage.
    pub fn of_usage(&self) -> bool {
        match self {
            Self::Settings(_) => true,
            Self::Target(error) => error.of_usage(),
            Self::Hung(_) | Self::Failed { .. } | Self::Interrupted => false,
        }
    }
}

impl From<DriveError<Infallible>> for BenchError {
    fn from(error: DriveError<Infallible>) -> Self {
        match error {
            DriveError::Target(error) => Self::Target(error),
            DriveError::Source(never) => match never {},
            hung @ DriveError::Hung(_) => Self::Hung(hung.to_string()),
        }
    }
}
