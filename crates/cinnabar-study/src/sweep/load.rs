//! Where the requests of a simulation come from.

use crate::timed::{Pace, RunError, Workload};
use cinnabar_trace::TraceError;
use std::fmt;

/// Opens a trace from its beginning.
pub type Open<'a> = dyn Fn() -> Result<Workload<'static>, TraceError> + Sync + 'a;

/// Where the requests of a job come from.
#[derive(Clone, Copy)]
pub enum Load<'a> {
    /// Made up, as the settings say.
    Generated,
    /// A trace, read again for each job.
    Trace {
        /// Opens the trace.
        open: &'a Open<'a>,
        /// When its requests are asked for.
        pace: Pace,
        /// Blocks that all its requests read and write, each counted as often as it comes.
        ios: u64,
        /// Different blocks among them.
        blocks: u64,
    },
}

impl fmt::Debug for Load<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generated => f.write_str("Generated"),
            Self::Trace { pace, ios, blocks, .. } => {
                let mut shown = f.debug_struct("Trace");
                shown.field("pace", pace).field("ios", ios).field("blocks", blocks);
                shown.finish_non_exhaustive()
            }
        }
    }
}

impl Load<'_> {
    pub(super) fn workload(&self) -> Result<Workload<'static>, RunError> {
        match self {
            Self::Generated => Ok(Workload::Generated),
            Self::Trace { open, .. } => Ok(open()?),
        }
    }
}
