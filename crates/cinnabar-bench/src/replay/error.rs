//! Why a trace can't be replayed, each with a line that helps.

use crate::target::TargetError;
use cinnabar_text::chain;
use cinnabar_trace::TraceError;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Why a trace can't be replayed, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("{}: {}", path.display(), chain(error))]
    Trace { path: PathBuf, error: TraceError },
    #[error("{}: not a file; a trace is read twice, first to see whether it fits", .0.display())]
    NoFile(PathBuf),
    #[error("{}: no reads and no writes in it", .0.display())]
    Empty(PathBuf),
    #[error("{}: line {line} is earlier than the line before it", path.display())]
    Disorder { path: PathBuf, line: u64 },
    #[error("{}: line {line} asks for {bytes} bytes at a time; the most is {most}", path.display())]
    TooLong { path: PathBuf, line: u64, bytes: u64, most: u64 },
    #[error("{}: more than {most} volumes", path.display())]
    ManyVolumes { path: PathBuf, most: usize },
    #[error("the trace has {volumes} volumes ({numbers}), and {targets} targets are named")]
    Targets {
        volumes: usize,
        /// Their numbers, the first of them at least.
        numbers: String,
        targets: usize,
    },
    #[error("volume {volume} of the trace needs {needed} bytes, and {target} has {size}")]
    Small {
        volume: u32,
        /// End of its furthest request, in bytes.
        needed: u64,
        target: String,
        size: u64,
    },
    #[error("volume {volume} of the trace has requests of {bytes} bytes; {target} has {size}")]
    SmallerThanOne { volume: u32, bytes: u64, target: String, size: u64 },
    #[error(
        "the trace has {periods} periods before its last one, and {asked} are to warm the cache"
    )]
    Periods { periods: u64, asked: u64 },
    #[error("warming needs a cache")]
    NoCache,
    #[error(
        "the cache came back empty after warming: the back end can't prove that it was not written"
    )]
    Cold,
    #[error("{}: changed while it was replayed", .0.display())]
    Changed(PathBuf),
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The storage does not answer any more, or requests failed while the cache was warmed.
    #[error("{0}")]
    Stuck(String),
    #[error("{count} requests failed, the first one with: {first}")]
    Failed { count: u64, first: String },
}

impl ReplayError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Trace { error: TraceError::Io { line: 0, source }, .. }
                if source.kind() == ErrorKind::NotFound =>
            {
                "check the path; cinnabar-lab trace generate desktop makes a trace"
            }
            Self::NoFile(_) => "write it to a file first: cinnabar-lab trace convert - --out FILE",
            Self::Trace { error, .. } => error.hint(),
            Self::Empty(_) => "cinnabar-lab trace info tells what is in it",
            Self::Disorder { .. } => "sort it by time: sort -s -n -t, -k1,1",
            Self::TooLong { .. } => "split such requests in the trace",
            Self::ManyVolumes { .. } => {
                "cinnabar-lab trace convert --volume writes a trace of some of its volumes"
            }
            Self::Targets { .. } => {
                "name one --target for each volume, in the order of their numbers; \
                cinnabar-lab trace info lists them"
            }
            Self::Small { .. } => "name a larger target, or fold offsets into it with --wrap",
            Self::SmallerThanOne { .. } => "name a larger target",
            Self::Periods { .. } => "ask for fewer, or for shorter ones with --period",
            Self::NoCache => "name one with --cache, or leave --warm out",
            Self::Cold => "leave sim: out in front of this back end, or replay on a file",
            Self::Changed(_) => "replay it when nobody writes it",
            Self::Target(error) => error.hint(),
            Self::Stuck(_) | Self::Failed { .. } => "see the back end's own log",
        }
    }

    /// Whether trying again without a change can't help: what was asked for is wrong.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Changed(_) | Self::Cold | Self::Stuck(_) | Self::Failed { .. })
    }
}
