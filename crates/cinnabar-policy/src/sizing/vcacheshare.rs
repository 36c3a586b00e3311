//! Sizes by cache utility: after vCacheShare (ATC'14).
//!
//! Published: the utility, and write-around, where a miss of a read is admitted and a write is not.
//!
//! Everything is written around. A volume's utility is latency x read ratio x (hit ratio + a x reuse
//! intensity). The last term does not depend on the size, so as a summand it would move nothing:
//! here it is a weight of the volume, 1 + a x reuse intensity, which is this implementation's
//! choice.

use super::divide::{Utility, divide};
use super::volume::Volume;

/// How the intensity of reuse counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intensity {
    /// `a`; 0 leaves it out.
    pub factor: f64,
    /// The interval, in seconds.
    pub interval_s: f64,
    /// Blocks of a unit, to know the unique ones.
    pub unit_blocks: f64,
}

/// Sizes of the largest weighted sum of utilities. A backend that all share is equally slow for all.
pub fn sizes(volumes: &[Volume], capacity: usize, intensity: Intensity) -> Vec<usize> {
    let utilities: Vec<_> = volumes
        .iter()
        .map(|volume| {
            let reads = volume.mix.reads as f64;
            let accesses = reads + volume.mix.writes as f64;
            let unique = (volume.working_set as f64 * intensity.unit_blocks).max(1.0);
            let reuse = accesses / (intensity.interval_s * unique);
            let weight = volume.weight * (1.0 + intensity.factor * reuse);
            // Read ratio x hit ratio is hits per access.
            let scale = weight / accesses.max(1.0);
            let values = volume.read_only_hits.iter().map(|hits| hits * scale).collect();
            Utility::free(values)
        })
        .collect();
    divide(&utilities, capacity)
}
