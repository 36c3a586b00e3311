//! A volume over a fast and a slow pool, in the status.

use crate::status::raw::HybridVolumeStatus;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where the extents of a hybrid volume lie, and what moved since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HybridReport {
    /// Which planner decides.
    pub planner: String,
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// Extents that were written.
    pub extents: u32,
    /// Objects in the slow and in the fast pool, copies under way and garbage included.
    pub objects_slow: u32,
    /// See above.
    pub objects_fast: u32,
    /// Bytes of the fast pool that it may take.
    pub budget_bytes: u64,
    /// Bytes that it takes there.
    pub fast_bytes: u64,
    /// Extents on their way.
    pub moving: u64,
    /// Moves to the fast pool since the start.
    pub moved_fast: u64,
    /// Moves to the slow pool.
    pub moved_slow: u64,
    /// Moves that were given up.
    pub given_up: u64,
    /// Moves that the budget had no room for.
    pub over_budget: u64,
    /// Bytes of moves that went through this host.
    pub host_bytes: u64,
    /// Writes that waited for a move.
    pub held_writes: u64,
    /// What the moves of the last round save, in milliseconds of the devices a second.
    pub gain_ms_per_s: f64,
    /// The last move that was planned, and why, or an empty line.
    pub last_move: String,
    /// Objects under its name that it never made; they stay.
    pub foreign_objects: u64,
    /// Objects that should have been there.
    pub lost_objects: u64,
}

impl From<&HybridVolumeStatus> for HybridReport {
    fn from(status: &HybridVolumeStatus) -> Self {
        let status = status.clone();
        Self {
            planner: status.planner,
            extent_bytes: status.extent_bytes,
            extents: status.extents,
            objects_slow: status.objects_slow,
            objects_fast: status.objects_fast,
            budget_bytes: status.budget_bytes,
            fast_bytes: status.fast_bytes,
            moving: status.moving,
            moved_fast: status.moved_fast,
            moved_slow: status.moved_slow,
            given_up: status.given_up,
            over_budget: status.over_budget,
            host_bytes: status.host_bytes,
            held_writes: status.held_writes,
            gain_ms_per_s: status.gain_ms_per_s,
            last_move: status.last_move,
            foreign_objects: status.foreign_objects,
            lost_objects: status.lost_objects,
        }
    }
}
