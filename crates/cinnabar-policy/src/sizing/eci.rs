//! ECI-Cache (SIGMETRICS 2018) as its authors' slides have it.
//!
//! Published: the size, the classes of reuse, the threshold rule, write-back and read-only. Our reading:
//! what is made small when demands don't fit, the threshold's value, and that every miss is admitted.
//!
//! Each volume asks for its maximum useful reuse distance and one block; policies follow from the
//! threshold rule. If that does not fit, the sum over volumes of h T(SSD) + (1 - h) T(backend) is
//! made small, h being a volume's read hit ratio: so a volume counts the same whether it reads a lot
//! or hardly at all.

use super::divide::{Utility, divide};
use super::split::meet;
use super::volume::Volume;
use super::weighting::Weighting;

/// Demands, or what makes the sum of latencies smallest.
pub fn sizes(volumes: &[Volume], capacity: usize, weighting: Weighting) -> Vec<usize> {
    let demands = volumes.iter().map(|volume| volume.useful_reach).collect();
    meet(demands, capacity, |demands| {
        let utility = |(volume, demand): (&Volume, &usize)| {
            let by = match weighting {
                Weighting::Own | Weighting::Volumes => volume.mix.reads.max(1) as f64,
                Weighting::Accesses => 1.0,
            };
            let values = volume.read_hits.iter().map(|hits| hits / by).collect();
            Utility { max: *demand, ..Utility::free(values) }
        };
        let utilities: Vec<_> = volumes.iter().zip(demands).map(utility).collect();
        divide(&utilities, capacity)
    })
}
