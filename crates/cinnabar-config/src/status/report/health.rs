//! How the cache device is doing, and what a start found on it, in the status.

use crate::status::raw::Loaded;
use cinnabar_engine::seam::health::{Health, LoadReport, PassThroughReason, Start};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether the cache device is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum HealthReport {
    /// Not opened yet.
    Opening,
    /// The index is being loaded; requests pass through meanwhile.
    Loading {
        /// Metadata pages read so far.
        pages: u64,
        /// Metadata pages to read in all, as far as is known.
        of: u64,
    },
    /// It is in use.
    Serving,
    /// It is not in use: requests pass through, nothing is cached.
    PassThrough {
        /// Why.
        reason: String,
    },
    /// Closed for good.
    Closed,
}

/// How the last session of the device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartKind {
    /// It is new, or was used without crash safety.
    New,
    /// By a clean stop.
    Clean,
    /// By a crash.
    Crashed,
    /// Its metadata left doubts: everything was dropped.
    Damaged,
}

/// What a start found on the device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoadedReport {
    /// How the last session ended.
    pub start: StartKind,
    /// Seconds from the opening of the device until its index was loaded.
    pub seconds: f64,
    /// Blocks that were cached then.
    pub blocks: u64,
    /// Of those, found in chunks newer than the checkpoint.
    pub replayed_blocks: u64,
    /// Copies not believed because no backend flush covers them.
    pub unflushed_blocks: u64,
    /// Copies dropped because they were in active regions.
    #[serde(default)]
    pub doubtful_blocks: u64,
    /// Copies dropped because an invalidation record names them.
    pub overwritten_blocks: u64,
    /// Metadata pages read.
    pub pages: u64,
    /// Pages that were damaged; what they described is not cached any more.
    pub damaged_pages: u64,
}

impl From<Health> for HealthReport {
    fn from(health: Health) -> Self {
        match health {
            Health::Opening => Self::Opening,
            Health::Loading { pages, of } => Self::Loading { pages, of },
            Health::Serving => Self::Serving,
            Health::PassThrough(reason) => Self::PassThrough { reason: why(reason) },
            Health::Closed => Self::Closed,
        }
    }
}

/// Why a device is not in use, as a line.
pub fn why(reason: PassThroughReason) -> String {
    match reason {
        PassThroughReason::NoDevice => "there was no cache device at the start".to_owned(),
        PassThroughReason::Failed(error) => format!("the cache device failed: {error}"),
        PassThroughReason::Abandoned => "the cache device was given up by command".to_owned(),
    }
}

impl From<Loaded> for LoadedReport {
    fn from(loaded: Loaded) -> Self {
        let LoadReport {
            start,
            blocks,
            replayed_blocks,
            unflushed_blocks,
            doubtful_blocks,
            overwritten_blocks,
            pages,
            damaged_pages,
        } = loaded.report;
        Self {
            start: start.into(),
            // To the millisecond.
            seconds: (loaded.took.as_secs_f64() * 1000.0).round() / 1000.0,
            blocks,
            replayed_blocks,
            unflushed_blocks,
            doubtful_blocks,
            overwritten_blocks,
            pages,
            damaged_pages,
        }
    }
}

impl From<Start> for StartKind {
    fn from(start: Start) -> Self {
        match start {
            Start::New => Self::New,
            Start::Clean => Self::Clean,
            Start::Crashed => Self::Crashed,
            Start::Damaged => Self::Damaged,
        }
    }
}
