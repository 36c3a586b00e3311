//! One simulation of a sweep: its settings, and where its requests come from.

use super::memory;
use crate::timed::{Config, Pace, RunError, Workload};
use cinnabar_trace::TraceError;
use std::fmt;

/// Opens a trace from its beginning.
pub type Open<'a> = dyn Fn() -> Result<Workload<'static>, TraceError> + Sync + 'a;

/// One simulation.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Name of the job in messages.
    pub name: String,
    /// The settings; their seed, too.
    pub config: Config,
    /// Where requests come from.
    pub load: Load<'a>,
}

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

impl Job<'_> {
    /// A simulation of requests that are made up.
    pub fn generated(name: impl Into<String>, config: Config) -> Self {
        Self { name: name.into(), config, load: Load::Generated }
    }

    /// Blocks that it reads and writes, the warm-up included.
    pub fn ios(&self) -> u64 {
        let Load::Trace { ios, .. } = self.load else {
            let config = &self.config;
            let set = config.working_set_blocks / u64::from(config.scale.max(1));
            let of_host = set as f64 * config.volume_multiple;
            #[expect(clippy::cast_sign_loss, reason = "a float below 0 becomes 0")]
            return (of_host * f64::from(config.hosts)) as u64;
        };
        ios
    }

    /// Bytes of memory that it takes at most, roughly.
    pub fn memory_bytes(&self) -> u64 {
        memory::needed_bytes(&self.config, &self.load)
    }
}
