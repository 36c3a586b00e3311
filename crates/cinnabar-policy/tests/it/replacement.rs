//! Every policy under every way to write counts as its plain model does.

use crate::naive::Naive;
use crate::small_traces::{Rng, small_trace};
use cinnabar_policy::{Access, Counts, Future, Policy, Simulation, Writes, simulate};
use std::collections::BTreeSet;
use std::num::NonZeroU32;

const TRACES: u64 = 2_000;

fn model(policy: Policy, capacity: u32, writes: Writes, trace: &[Access]) -> Counts {
    let mut cache = Naive::new(policy, capacity as usize, trace, writes == Writes::Around);
    let mut counts = Counts::default();
    let mut dirty = BTreeSet::new();
    for access in trace {
        let block = access.block();
        let write = access.is_write() && writes != Writes::AsReads;
        let before = cache.contains(block);
        if write && writes == Writes::Around {
            cache.remove(block);
        } else {
            cache.touch(block);
        }
        let after = cache.contains(block);
        assert!(cache.len() <= capacity as usize, "{policy}: never more than its size");
        counts.references += 1;
        counts.read_references += u64::from(!write);
        counts.misses += u64::from(!before);
        counts.read_misses += u64::from(!before && !write);
        counts.flash_writes += u64::from(after && (write || !before));
        let is_back = writes == Writes::Back;
        counts.backend_writes += u64::from(write && !(is_back && after));
        if write && is_back && after {
            dirty.insert(block);
        }
        // Whatever is dirty and no longer cached was destaged.
        let held = dirty.len();
        dirty.retain(|block| cache.contains(*block));
        counts.backend_writes += (held - dirty.len()) as u64;
    }
    counts.dirty = dirty.len() as u64;
    counts
}

fn counts(policy: Policy, capacity: u32, writes: Writes, trace: &[Access]) -> Counts {
    simulate(policy, NonZeroU32::new(capacity).expect("a size"), writes, trace)
}

#[test]
fn every_policy_counts_as_its_model() {
    for seed in 0..TRACES {
        let trace = small_trace(seed);
        let capacity = 1 + Rng::new(seed).below(24);
        for policy in Policy::ALL {
            for writes in Writes::ALL {
                let mut both = [
                    counts(policy, capacity, writes, &trace),
                    model(policy, capacity, writes, &trace),
                ];
                if policy == Policy::Belady {
                    // Among blocks that are never read again it may evict any: a dirty one or not,
                    // one that will be written around or not.
                    for counts in &mut both {
                        counts.misses = if writes == Writes::Around { 0 } else { counts.misses };
                        counts.backend_writes += std::mem::take(&mut counts.dirty);
                    }
                }
                assert_eq!(
                    both[0], both[1],
                    "{policy}, {writes:?}, {capacity} blocks, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn nothing_that_caches_every_miss_beats_belady() {
    let mut better = 0;
    for seed in 0..TRACES {
        let trace = small_trace(seed);
        let capacity = 1 + Rng::new(seed).below(24);
        let misses = |policy| counts(policy, capacity, Writes::AsReads, &trace).misses;
        let best = misses(Policy::Belady);
        // LARC may pass a block by, so it is in another game.
        for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::Larc) {
            assert!(misses(policy) >= best, "{policy}, {capacity} blocks, seed {seed}");
            better += usize::from(misses(policy) > best);
        }
    }
    assert!(better > 1_000, "the traces leave room to be better: {better}");
}

/// Long enough for rings to wrap, grow and be compacted many times over.
#[test]
fn a_long_trace_counts_as_its_model() {
    let mut rng = Rng::new(7);
    let mut trace = Vec::new();
    while trace.len() < 30_000 {
        let (first, span) = (rng.below(900), 1 + rng.below(300));
        for step in 0..span {
            trace.push(Access::new(first + step / (1 + rng.below(2)), rng.below(3) == 0));
        }
    }
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::Belady) {
        for writes in [Writes::Around, Writes::Back] {
            let expected = model(policy, 400, writes, &trace);
            assert_eq!(counts(policy, 400, writes, &trace), expected, "{policy}, {writes:?}");
            assert!(expected.misses < expected.references, "{policy}: there are hits");
        }
    }
}

/// However a trace is cut into portions, and whatever unknown blocks a portion brings.
#[test]
fn portions_count_as_the_whole() {
    for seed in 0..200 {
        let (trace, mut rng) = (small_trace(seed), Rng::new(seed));
        let capacity = NonZeroU32::new(1 + rng.below(24)).expect("a size");
        for policy in Policy::ALL {
            for writes in Writes::ALL {
                let future = Future::new(&trace, writes).expect("it is short");
                let mut simulation = Simulation::new(policy, capacity, writes)
                    .unwrap_or_else(|| Simulation::foreseeing(capacity, writes, &future));
                let mut rest = &trace[..];
                while !rest.is_empty() {
                    let (portion, behind) = rest.split_at(rest.len().min(rng.below(40) as usize));
                    simulation.feed(portion);
                    rest = behind;
                }
                let whole = simulate(policy, capacity, writes, &trace);
                assert_eq!(simulation.finish(), whole, "{policy}, {writes}, seed {seed}");
            }
        }
    }
}

#[test]
fn only_belady_needs_the_future() {
    let size = NonZeroU32::MIN;
    for policy in Policy::ALL {
        let made = Simulation::new(policy, size, Writes::Back);
        assert_eq!(made.is_none(), policy == Policy::Belady, "{policy}");
    }
}
