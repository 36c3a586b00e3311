//! Allocators that measure nothing: what the others must beat.

use super::split::split;
use super::volume::Volume;

/// The same for all.
pub fn equal(volumes: &[Volume], capacity: usize) -> Vec<usize> {
    split(&vec![1.0; volumes.len()], &vec![usize::MAX; volumes.len()], capacity)
}

/// By the weights that the operator gave.
pub fn proportional(volumes: &[Volume], capacity: usize) -> Vec<usize> {
    let weights: Vec<f64> = volumes.iter().map(|volume| volume.weight).collect();
    split(&weights, &vec![usize::MAX; volumes.len()], capacity)
}

/// What the operator gave each volume as its minimum, and no more; a volume without one gets nothing. If
/// it does not fit, the last volumes get what is left.
pub fn fixed(volumes: &[Volume], capacity: usize) -> Vec<usize> {
    let mut free = capacity;
    let mut take = |volume: &Volume| {
        let units = volume.min.min(free);
        free -= units;
        units
    };
    volumes.iter().map(&mut take).collect()
}
