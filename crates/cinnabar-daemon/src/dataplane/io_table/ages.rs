//! Since when volumes wait for their backends.
//!
//! Called for each status: one look at all I/Os under way, nothing is kept for it.

use super::IoTable;
use cinnabar_engine::units::Instant;

impl IoTable {
    /// When the oldest I/O under way of each volume began, by the plane's keys.
    pub(in super::super) fn oldest(&self) -> Vec<Option<Instant>> {
        let mut oldest: Vec<Option<Instant>> = vec![None; self.volumes.len()];
        for io in self.ios.iter() {
            if let Some(first) = io.of.volume.and_then(|key| oldest.get_mut(key)) {
                *first = Some(first.map_or(io.started, |first| first.min(io.started)));
            }
        }
        oldest
    }
}
