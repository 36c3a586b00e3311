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
