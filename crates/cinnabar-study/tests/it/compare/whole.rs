//! Whole comparisons: sizes, plans, and the same figures however many threads.

use super::mixture::{INTERVAL_US, VOLUMES, mixture, options};
use cinnabar_policy::sizing::{Allocator, WritePolicy};
use cinnabar_study::analysis::Look;
use cinnabar_study::compare::{
    Comparison, Contestant, Division, Entry, Input, Model, Options, Progress, compare,
};
use cinnabar_trace::{Op, Record};
use std::num::NonZeroUsize;

fn run(trace: &[Record], options: &Options) -> Comparison {
    compare(Input::Records(trace), options, |_| {}).expect("it can be compared")
}

fn entry(found: &Comparison, cache: usize, allocator: Allocator) -> &Entry {
    let entries = &found.caches[cache].entries;
    let wanted = Contestant::Allocator(allocator);
    entries.iter().find(|entry| entry.contestant == wanted).expect("it took part")
}

#[test]
fn the_same_whatever_the_number_of_threads() {
    let trace = mixture(7, 60_000, 8000);
    let with = |jobs| {
        let options = Options { jobs: NonZeroUsize::new(jobs), parts: vec![1.0, 0.5], ..options() };
        let mut last = None;
        let found = compare(Input::Records(&trace), &options, |told| last = Some(told));
        let Some(Progress::Running { requests, of, runs, runs_of }) = last else {
            panic!("the last word is of the runs, not {last:?}")
        };
        assert_eq!((requests, runs), (of, runs_of), "all of it");
        assert_eq!(runs, 2 * 10 * 2, "caches, contestants, models");
        found.expect("it can be compared")
    };
    let one = with(1);
    assert_eq!(one, with(3));
    assert_eq!(one.volumes.len(), VOLUMES);
    assert_eq!(one.intervals.len(), 30);
}

/// A loop of ten blocks has a useful reuse distance of nine, and wants ten blocks; a volume that only
/// writes wants none.
#[test]
fn the_demand_is_the_useful_reuse_distance() {
    let request = |at: u64| Record {
        ts_us: at * INTERVAL_US / 100,
        volume: (at % 2) as u32,
        op: if at.is_multiple_of(2) { Op::Read } else { Op::Write },
        offset_bytes: at / 2 % 10 * 4096,
        length_bytes: 4096,
    };
    let trace: Vec<Record> = (0..300).map(request).collect();
    let options = Options { models: vec![Model::Papers], ..options() };
    let found = run(&trace, &options);
    assert_eq!(found.demand_blocks, 10);
    let capacities: Vec<u64> = found.caches.iter().map(|cache| cache.capacity_blocks).collect();
    assert_eq!(capacities, [255; 2], "whole segments");
    let Division::Divided(parts) = &entry(&found, 0, Allocator::Eci).plans[1] else {
        panic!("it divides")
    };
    let sizes: Vec<u64> = parts.iter().map(|part| part.blocks).collect();
    assert_eq!(sizes, [10, 0]);
    assert_eq!(parts[1].policy, WritePolicy::ReadOnly, "all of its reuses are writes");
}

#[test]
fn a_feasible_cache_has_room_for_every_demand() {
    let trace = mixture(8, 20_000, 5000);
    let options = Options { models: vec![Model::Papers], ..options() };
    let found = run(&trace, &options);
    let capacity = found.caches[0].capacity_blocks;
    assert!(capacity >= found.demand_blocks, "{capacity} of {}", found.demand_blocks);
    assert!(capacity as f64 <= found.demand_blocks as f64 * 1.01 + 2.0 * 255.0, "{capacity}");
    let part = found.caches[1].capacity_blocks as f64 / capacity as f64;
    assert!((0.29..0.32).contains(&part), "{part}");
    // The demands of one interval are the largest: all of them are met then, so more is never asked.
    let eci = entry(&found, 0, Allocator::Eci);
    let given = |plan: &Division| plan.blocks(capacity);
    let most = eci.plans[1..].iter().map(given).max().expect("plans");
    assert!(most <= capacity);
    let lacking = found.demand_blocks.saturating_sub(most);
    // The plan that follows the last interval is never made; the demand may have been that one's.
    assert!(lacking < found.demand_blocks / 10, "{most} blocks of {}", found.demand_blocks);
    for cache in &found.caches {
        for entry in &cache.entries {
            let plans = if entry.contestant == Contestant::NoCache { 0 } else { 10 };
            assert_eq!(entry.plans.len(), plans);
            for plan in &entry.plans {
                let given = plan.blocks(cache.capacity_blocks);
                assert!(given <= cache.capacity_blocks, "{}: {given}", entry.contestant);
            }
            let first = entry.plans.first().map(|plan| plan.blocks(cache.capacity_blocks));
            assert!(first.is_none_or(|first| first + VOLUMES as u64 > cache.capacity_blocks));
        }
    }
}

/// The baselines: no cache, and the same first interval for all allocators that divide.
#[test]
fn the_base_line_has_no_cache() {
    let trace = mixture(9, 8000, 3000);
    let found = run(&trace, &Options { models: vec![Model::Papers], ..options() });
    let blocks = |wanted| -> u64 {
        let of = trace.iter().filter(|record| record.op == wanted);
        of.map(|record| record.blocks().count() as u64).sum()
    };
    let none = &found.caches[0].entries[0];
    let total = none.papers.as_ref().expect("asked for").total();
    assert_eq!((total.reads, total.writes), (blocks(Op::Read), blocks(Op::Write)));
    assert_eq!((total.read_hits, total.writes_back), (0, 0));
    assert!(none.allocated_blocks.abs() < 1e-9 && none.engine.is_none());
    let shared = entry(&found, 1, Allocator::Shared);
    let capacity = found.caches[1].capacity_blocks as f64;
    assert!((shared.allocated_blocks - capacity).abs() < 1e-6);
    assert!(shared.plans.iter().all(|plan| *plan == Division::Shared));
    assert!(shared.papers.as_ref().expect("asked for").total().read_hits > 0);
}

/// Sampled or exact, the same plan is asked of the same planner as by `analyze`; a sample of everything
/// is exact.
#[test]
fn a_large_sample_is_exact() {
    let trace = mixture(10, 6000, 500);
    let with = |look| run(&trace, &Options { look, models: vec![Model::Papers], ..options() });
    let all = cinnabar_policy::reuse::Sampled::BLOCKS;
    let sampled = Look::Sampled(cinnabar_policy::monitor::Sampling::Blocks(all));
    assert_eq!(with(Look::Exact), with(sampled));
}
