//! Sizes by reuse working sets: after `CloudCache` (FAST'16).
//!
//! Published: the reuse working set as demand and as the rule of admission (a block is let in when it is
//! used again, told by a staging area of addresses), write-back, migration. Our reading: reuses are counted
//! by interval. Admission is the engine's, whose ghost is such a staging area; the papers' model admits
//! every miss, which writes more than published.
//!
//! Everything is written back. The paper moves guests to other hosts when demands do not fit; here
//! they get their proportions.

use super::split::{meet, split};
use super::volume::Volume;

/// Reuse working sets, or their proportions if they do not fit.
pub fn sizes(volumes: &[Volume], capacity: usize) -> Vec<usize> {
    let demands = volumes.iter().map(|volume| volume.reuse_working_set).collect();
    meet(demands, capacity, |demands| {
        let weights: Vec<f64> = demands.iter().map(|demand| *demand as f64).collect();
        split(&weights, demands, capacity)
    })
}
