//! Why a trace can't be replayed, each with a line that helps.

use crate::target::TargetError;
use cinnabar_trace::TraceError;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Why a trace can't be replayed, or not any further.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace can't be read.
    #[error("{}: {}", path.display(), chain(error))]
    Trace {
        /// Its file.
        path: PathBuf,
        /// Why.
        error: TraceError,
    },
    /// What is no regular file can't be read twice.
    #[error("{}: not a file; a trace is read twice, first to see whether it fits", .0.display())]
    NoFile(PathBuf),
    /// Nothing to do.
    #[error("{}: no reads and no writes in it", .0.display())]
    Empty(PathBuf),
    /// It goes back in time.
    #[error("{}: line {line} is earlier than the line before it", path.display())]
    Disorder {
        /// Its file.
        path: PathBuf,
        /// From 1.
        line: u64,
    },
    /// One request is longer than any that can be carried.
    #[error("{}: line {line} asks for {bytes} bytes at a time; the most is {most}", path.display())]
    TooLong {
        /// Its file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// Its length, in bytes.
        bytes: u64,
        /// Most, in bytes.
        most: u64,
    },
    /// More volumes than anybody names targets.
    #[error("{}: more than {most} volumes", path.display())]
    ManyVolumes {
        /// Its file.
        path: PathBuf,
        /// Most.
        most: usize,
    },
    /// Volumes and targets don't match.
    #[error("the trace has {volumes} volumes ({numbers}), and {targets} targets are named")]
    Targets {
        /// Volumes of the trace.
        volumes: usize,
        /// Their numbers, the first of them at least.
        numbers: String,
        /// Targets named.
        targets: usize,
    },
    /// A target is too small.
    #[error("volume {volume} of the trace needs {needed} bytes, and {target} has {size}")]
    Small {
        /// Its number.
        volume: u32,
        /// End of its furthest request, in bytes.
        needed: u64,
        /// As written.
        target: String,
        /// Its size, in bytes.
        size: u64,
    },
    /// A target is smaller than one request, wrapped or not.
    #[error("volume {volume} of the trace has requests of {bytes} bytes; {target} has {size}")]
    SmallerThanOne {
        /// Its number.
        volume: u32,
        /// Its longest request, in bytes.
        bytes: u64,
        /// As written.
        target: String,
        /// Its size, in bytes.
        size: u64,
    },
    /// Fewer periods than warming asks for.
    #[error(
        "the trace has {periods} periods before its last one, and {asked} are to warm the cache"
    )]
    Periods {
        /// Before the last.
        periods: u64,
        /// As asked.
        asked: u64,
    },
    /// Warming is for a cache.
    #[error("warming needs a cache")]
    NoCache,
    /// What warming left was not believed.
    #[error(
        "the cache came back empty after warming: the back end can't prove that it was not written"
    )]
    Cold,
    /// The file was changed between the passes.
    #[error("{}: changed while it was replayed", .0.display())]
    Changed(PathBuf),
    /// What the storage under test says.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The storage does not answer any more, or requests failed while the cache was warmed.
    #[error("{0}")]
    Stuck(String),
    /// Requests failed.
    #[error("{count} requests failed, the first one with: {first}")]
    Failed {
        /// How many.
        count: u64,
        /// What was said of the first.
        first: String,
    },
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

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let first = std::iter::once(error.to_string());
    first.chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}
