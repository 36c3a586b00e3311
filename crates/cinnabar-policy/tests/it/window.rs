//! Working sets of windows against sets.

use crate::small_traces::{Rng, small_trace};
use cinnabar_policy::{Access, Sampled, WriteBack};
use std::collections::BTreeMap;

/// Blocks used, and those used again at least `reuses` times.
fn counted(accesses: &[Access], reuses: u32) -> (u64, u64) {
    let mut uses = BTreeMap::new();
    for access in accesses {
        *uses.entry(access.block()).or_insert(0) += 1;
    }
    (uses.len() as u64, uses.values().filter(|uses| **uses > reuses).count() as u64)
}

#[test]
fn working_sets_are_those_of_the_window() {
    for seed in 0..2_000 {
        let trace = small_trace(seed);
        let mut rng = Rng::new(seed);
        let reuses = rng.below(4);
        let mut sample = Sampled::fixed_rate(1.0, seed);
        sample.set_reuses_min(reuses as u8);
        let mut rest = trace.as_slice();
        while !rest.is_empty() {
            let (window, more) = rest.split_at(rest.len().min(1 + rng.below(120) as usize));
            sample.extend(window.iter().map(|a| (u64::from(a.block()), a.is_write())));
            let found = sample.curves();
            assert_eq!((found.blocks, found.blocks_again), counted(window, reuses), "seed {seed}");
            sample.decay(0.5);
            let found = sample.curves();
            assert_eq!((found.blocks, found.blocks_again), (0, 0), "seed {seed}");
            rest = more;
        }
    }
}

#[test]
fn the_exact_analysis_has_one_window() {
    for seed in 0..500 {
        let trace = small_trace(seed);
        let mut back = WriteBack::default();
        back.extend(&trace);
        let found = back.finish();
        assert_eq!((found.blocks, found.blocks_again), counted(&trace, 1), "seed {seed}");
    }
}
