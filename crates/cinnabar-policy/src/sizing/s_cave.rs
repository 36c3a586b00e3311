//! Sizes by working sets: inspired by S-CAVE (PACT'13), whose own formula is not public.
//!
//! Published: that working sets are measured, and write-through. Our reading: proportions instead of its
//! formula, and that every miss is admitted.
//!
//! Everything is written through. A large working set says nothing about reuse: a scan gets most.

use super::split::{meet, split};
use super::volume::Volume;

/// Working sets, or their proportions if they do not fit.
pub fn sizes(volumes: &[Volume], capacity: usize) -> Vec<usize> {
    let demands = volumes.iter().map(|volume| volume.working_set).collect();
    meet(demands, capacity, |demands| {
        let weights: Vec<f64> = demands.iter().map(|demand| *demand as f64).collect();
        split(&weights, demands, capacity)
    })
}
