//! Plans: sizes and write policies of volumes, made by the operator now and by the policy later.

use crate::seam::units::VolumeId;

/// What a volume's requests do with the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Reads and writes are cached; a write is acknowledged when the backend has it.
    #[default]
    WriteThrough,
    /// Reads are cached, writes invalidate.
    WriteAround,
    /// Nothing is cached; writes still invalidate.
    PassThrough,
}

/// New settings of one volume; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug)]
pub struct VolumePlan {
    pub volume: VolumeId,
    pub mode: Option<Mode>,
    /// Blocks it keeps whatever others do. The minimums of all volumes sum to at most 80 % of the
    /// capacity; a plan beyond that is cut back proportionally by the engine.
    pub share_min_blocks: Option<u64>,
    /// Blocks it may hold at most.
    pub share_max_blocks: Option<u64>,
    /// Blocks that are its own while others want them, beyond its minimum; what it leaves idle is lent.
    /// [`NO_TARGET`](Self::NO_TARGET) takes the target back: it has an equal part of the rest.
    pub share_target_blocks: Option<u64>,
    /// Bytes of its blocks that may go to flash a second; 0: as many as there are. Blocks beyond it stay in
    /// RAM as long as probation keeps them.
    pub fill_limit_bytes: Option<u64>,
}

impl VolumePlan {
    /// In place of a target: none.
    pub const NO_TARGET: u64 = u64::MAX;

    /// One that leaves everything as it is.
    pub const fn unchanged(volume: VolumeId) -> Self {
        Self {
            volume,
            mode: None,
            share_min_blocks: None,
            share_max_blocks: None,
            share_target_blocks: None,
            fill_limit_bytes: None,
        }
    }
}

/// Settings that take effect together, between two events.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The volumes that change.
    pub volumes: Vec<VolumePlan>,
    /// Whether blocks may go to flash from now on; `None` leaves it as it is. While they may not, what is
    /// missed stays in RAM as long as probation keeps it, hits go on, and only what moves within the log
    /// is written: the throttle behind a budget of SSD writes.
    pub admits: Option<bool>,
}
