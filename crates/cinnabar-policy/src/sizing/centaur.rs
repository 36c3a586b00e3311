//! Sizes by total reuse distances: after Centaur (ICAC'15), for its goal of the least mean latency.
//!
//! Everything is written back, and reuses by reads and writes count alike: that is what ECI-Cache
//! improves on. The authors' solver is not public, and their reservations of latency or IOPS are not
//! here.

use super::divide::{Utility, divide};
use super::split::meet;
use super::volume::Volume;

/// Maximum reuse distances, or what makes the mean latency over all accesses smallest.
pub fn sizes(volumes: &[Volume], capacity: usize) -> Vec<usize> {
    let demands = volumes.iter().map(|volume| volume.reach).collect();
    meet(demands, capacity, |demands| {
        let utility = |(volume, demand): (&Volume, &usize)| Utility {
            max: *demand,
            ..Utility::free(volume.hits.clone())
        };
        let utilities: Vec<_> = volumes.iter().zip(demands).map(utility).collect();
        divide(&utilities, capacity)
    })
}
