//! How the cache is doing: what a start found, and whether the device is in use.

use crate::seam::IoError;

/// Whether the cache device is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not opened yet.
    Opening,
    /// The index is being loaded: requests pass through, and each write appends an invalidation record.
    Loading {
        /// Metadata pages read so far.
        pages: u64,
        /// Metadata pages to read in all, as far as is known.
        of: u64,
    },
    /// All is well.
    Serving,
    /// The device is not used: requests pass through, nothing is cached.
    PassThrough(PassThroughReason),
    Closed,
}

impl Health {
    /// Of several shards: as the one that is worst off.
    pub fn of_all(all: impl IntoIterator<Item = Self>) -> Self {
        let rank = |health: &Self| match health {
            Self::PassThrough(PassThroughReason::Failed(_)) => 5,
            Self::PassThrough(_) => 4,
            Self::Opening => 3,
            Self::Loading { .. } => 2,
            Self::Serving => 1,
            Self::Closed => 0,
        };
        let both = |one, other| match (one, other) {
            (Self::Loading { pages, of }, Self::Loading { pages: more, of: also }) => {
                Self::Loading { pages: pages + more, of: of + also }
            }
            (one, other) if rank(&other) > rank(&one) => other,
            (one, _) => one,
        };
        all.into_iter().reduce(both).unwrap_or(Self::Closed)
    }
}

/// Why the device is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassThroughReason {
    /// There was none at the start.
    NoDevice,
    /// It could not record what it has to.
    Failed(IoError),
    /// The operator asked for it ([`Command::Abandon`](crate::seam::Command::Abandon)).
    Abandoned,
}

/// What a start found on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// How the last session ended.
    pub start: Start,
    /// Blocks that are cached now.
    pub blocks: u64,
    /// Blocks found in chunks newer than the checkpoint.
    pub replayed_blocks: u64,
    /// Copies not believed because no backend flush covers them.
    pub unflushed_blocks: u64,
    /// Copies not believed because their region was being written at the crash.
    pub doubtful_blocks: u64,
    /// Copies dropped because an invalidation record names them.
    pub overwritten_blocks: u64,
    /// Metadata pages read.
    pub pages: u64,
    /// Pages that were damaged; what they described is not cached any more.
    pub damaged_pages: u64,
}

/// How the last session of a device ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The device is new, or was used without crash safety.
    #[default]
    New,
    /// By a clean stop.
    Clean,
    /// By a crash: checkpoint, journal and newer chunks were put together.
    Crashed,
    /// The metadata were damaged in a way that leaves doubt: everything was dropped.
    Damaged,
}
