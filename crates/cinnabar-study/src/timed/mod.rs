//! Timed simulation: what reads and writes take with a flash cache on the storage client.
//!
//! The model is that of Holland, Angelino, Wald and Seltzer, "Flash caching on the storage client"
//! (USENIX ATC 2013); `docs/design/timed-simulator.md` has it whole, with what the paper leaves
//! open. Virtual time is whole nanoseconds, and what chance decides comes from a seed: the same
//! settings give the same [`Outcome::digest`] on every machine.
//!
//! `model` holds the hosts and the loop over events, `read` and `write` are the ways of a block
//! through them, `syncer` writes what is dirty, `fetch` reads ahead; [`config`] and [`check`] say
//! what can be chosen, [`outcome`] what is found; `cinnabar` has the production engine. The others
//! are their tools: `agenda` (events), `jobs` (what is under way), `recency` (LRU order), `station`
//! (what takes time), `source` (what is asked for), `latency` (what was measured).

mod agenda;
pub mod check;
mod cinnabar;
pub mod config;
mod config_error;
mod fetch;
mod host;
mod jobs;
mod latency;
mod model;
pub mod outcome;
mod read;
mod recency;
mod source;
mod station;
mod syncer;
mod write;

pub use cinnabar::report::{EngineReport, Recovery};
pub use config::{Config, WritePolicy};
pub use config_error::ConfigError;
pub use outcome::{Latency, Outcome};

use cinnabar_trace::generate::Error as WorkloadError;
use cinnabar_trace::{Record, TraceError};
use std::fmt;

/// What hosts ask for.
pub enum Workload<'a> {
    /// Accesses to working sets, made up as [`Config`] says: each of its threads asks for the next
    /// when it has the last.
    Generated,
    /// Requests of a trace; volume `v` is on host `v` modulo [`Config::hosts`]. Working sets, shares
    /// and sizes of operations in [`Config`] mean nothing then.
    Records {
        /// The requests, in order.
        records: Box<dyn Iterator<Item = Result<Record, TraceError>> + 'a>,
        /// When each is asked for.
        pace: Pace,
        /// So many of them come before measuring begins.
        warm_up: u64,
        /// How many there are, if it is known, for showing progress.
        expected: Option<u64>,
    },
}

impl fmt::Debug for Workload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Generated => "Generated",
            Self::Records { .. } => "Records",
        })
    }
}

/// When the requests of a trace are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each by the next thread that has nothing to wait for, of [`Config::threads`] a host.
    Threads,
    /// When they were recorded, whatever became of those before.
    Recorded,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the workload can't be made up")]
    Workload(#[from] WorkloadError),
    #[error("the trace can't be read")]
    Trace(#[from] TraceError),
    #[error("the trace names too many blocks")]
    Blocks(#[from] cinnabar_policy::TooManyBlocks),
    /// Requests come faster than they are answered.
    #[error(
        "more than {0} requests are under way after {1} s: they come faster than they are answered"
    )]
    Overrun(usize, u64),
}

impl RunError {
    /// What would help.
    pub fn hint(&self) -> &str {
        match self {
            Self::Config(error) => &error.hint,
            Self::Workload(error) => error.hint(),
            Self::Trace(_) => "cinnabar-lab trace info TRACE says how far it can be read",
            Self::Blocks(_) => "choose some of its volumes",
            Self::Overrun(..) => "let threads ask for the requests, one after the other",
        }
    }
}

/// Simulates. `progress` is called from time to time with the share done, 0 to 1, if it is known.
///
/// # Errors
/// Settings that make no sense; a trace that can't be read, or whose requests can't be kept up with.
pub fn run(
    config: &Config,
    workload: Workload<'_>,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, RunError> {
    config.check()?;
    model::Model::new(config, workload)?.run(progress)
}
