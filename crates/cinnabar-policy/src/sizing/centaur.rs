//! Sizes by total reuse distances: after Centaur (ICAC'15), for its goal of the least mean latency.
//!
//! Published: demands by reuse distance, miss ratio curves, write-back, the goals. Our reading: the solver,
//! and that every miss is admitted.
//!
//! Everything is written back, and reuses by reads and writes count alike: that is what ECI-Cache
//! improves on. The authors' solver is not public, and their reservations of latency or IOPS are not
//! here.

use super::divide::{Utility, divide};
use super::split::meet;
use super::volume::Volume;
use super::weighting::Weighting;

/// Maximum reuse distances, or what makes the mean latency over all accesses smallest.
pub fn sizes(volumes: &[Volume], capacity: usize, weighting: Weighting) -> Vec<usize> {
    let demands = volumes.iter().map(|volume| volume.reach).collect();
    meet(demands, capacity, |demands| {
        let utility = |(volume, demand): (&Volume, &usize)| {
            let by = match weighting {
                Weighting::Own | Weighting::Accesses => 1.0,
                Weighting::Volumes => (volume.mix.reads + volume.mix.writes).max(1) as f64,
            };
            let values = volume.hits.iter().map(|hits| hits / by).collect();
            Utility { max: *demand, ..Utility::free(values) }
        };
        let utilities: Vec<_> = volumes.iter().zip(demands).map(utility).collect();
        divide(&utilities, capacity)
    })
}
