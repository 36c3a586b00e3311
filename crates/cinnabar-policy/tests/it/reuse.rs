//! Distances and curves against caches of every size, simulated one by one.

use crate::small_traces::{Rng, small_trace};
use cinnabar_policy::reuse::{Distances, Mix, ReadOnlyCurves, WriteBackCurves};
use cinnabar_policy::{Access, Policy, ReadOnly, WriteBack, Writes, simulate};
use std::num::NonZeroU32;

const TRACES: u64 = 3_000;
/// More than any small trace has blocks.
const SIZES: u32 = 60;

fn write_back(trace: &[Access]) -> WriteBackCurves {
    let mut analysis = WriteBack::default();
    // In portions, as a stream would come.
    trace.chunks(37).for_each(|portion| analysis.extend(portion));
    analysis.finish()
}

fn read_only(trace: &[Access]) -> ReadOnlyCurves {
    let mut analysis = ReadOnly::default();
    trace.chunks(37).for_each(|portion| analysis.extend(portion));
    analysis.finish()
}

/// Every size's counts are those of an LRU cache of that size.
fn check_sizes(trace: &[Access], sizes: impl Iterator<Item = u32>, what: &str) {
    let (back, only) = (write_back(trace), read_only(trace));
    for size in sizes {
        let capacity = NonZeroU32::new(size).expect("a size");
        let lru = |writes| simulate(Policy::Lru, capacity, writes, trace);
        let (blocks, what) = (u64::from(size), format!("{what}, {size} blocks"));
        assert_eq!(back.misses(blocks), lru(Writes::AsReads).misses, "misses, {what}");
        let counts = lru(Writes::Back);
        assert_eq!(back.read_misses(blocks), counts.read_misses, "read misses, {what}");
        assert_eq!(back.ssd_writes(blocks), counts.flash_writes, "SSD writes, {what}");
        assert_eq!(back.destages.at(blocks), counts.backend_writes, "destages, {what}");
        assert_eq!(back.dirty.at(blocks), counts.dirty, "dirty, {what}");
        let counts = lru(Writes::Around);
        assert_eq!(only.read_misses(blocks), counts.read_misses, "read-only misses, {what}");
        assert_eq!(only.ssd_writes(blocks), counts.flash_writes, "read-only SSD writes, {what}");
    }
}

#[test]
fn curves_are_those_of_caches_of_every_size() {
    for seed in 0..TRACES {
        check_sizes(&small_trace(seed), 1..SIZES, &format!("seed {seed}"));
    }
}

/// Long enough to run out of places many times, with few blocks and with many.
#[test]
fn curves_of_long_traces_are_those_of_caches() {
    for (blocks, length) in [(50, 40_000), (3_000, 60_000)] {
        let mut rng = Rng::new(u64::from(blocks));
        let mut trace = Vec::new();
        while trace.len() < length {
            let (first, span) = (rng.below(blocks), 1 + rng.below(blocks / 4));
            let write_percent = [0, 5, 80][rng.below(3) as usize];
            trace.extend(
                (first..first + span)
                    .map(|block| Access::new(block % blocks, rng.below(100) < write_percent)),
            );
        }
        let step = blocks as usize / 25;
        check_sizes(&trace, (1..blocks + 10).step_by(step), &format!("{blocks} different"));
    }
}

/// Distances and classes as they are defined, looking back from each access.
#[test]
fn distances_and_classes_are_as_defined() {
    for seed in 0..TRACES {
        let trace = small_trace(seed);
        let (mut mix, mut total, mut useful) = (Mix::default(), [0; 64], [0; 64]);
        for (now, access) in trace.iter().enumerate() {
            let same = |earlier: &Access| earlier.block() == access.block();
            let kind = if access.is_write() { &mut mix.writes } else { &mut mix.reads };
            *kind += 1;
            let Some(last) = trace[..now].iter().rposition(same) else { continue };
            let mut between: Vec<u32> = trace[last + 1..now].iter().map(|a| a.block()).collect();
            between.sort_unstable();
            between.dedup();
            total[between.len()] += 1;
            useful[between.len()] += u64::from(!access.is_write());
            let class = match (trace[last].is_write(), access.is_write()) {
                (false, false) => &mut mix.rar,
                (true, false) => &mut mix.raw,
                (false, true) => &mut mix.war,
                (true, true) => &mut mix.waw,
            };
            *class += 1;
        }
        let found = write_back(&trace);
        let counts = |distances: &Distances| std::array::from_fn(|at| distances.at(at as u32));
        assert_eq!(found.mix, mix, "seed {seed}");
        assert_eq!(counts(&found.total), total, "seed {seed}");
        assert_eq!(counts(&found.useful), useful, "seed {seed}");
    }
}

/// ECI-Cache's own example: W1 W2 R1 R3 R5 R6 R2 needs five blocks.
#[test]
fn the_slides_example_needs_five_blocks() {
    let trace = [(1, true), (2, true), (1, false), (3, false), (5, false), (6, false), (2, false)];
    let trace = trace.map(|(block, write)| Access::new(block, write));
    let found = write_back(&trace);
    assert_eq!(found.useful.max(), Some(4));
    assert_eq!(found.read_hits.flat_from(), 5);
    assert_eq!((found.read_misses(4), found.read_misses(5)), (4, 3));
    assert_eq!((found.mix.raw, found.mix.reuses(), found.blocks), (2, 2, 5));
}

/// A full loop of writes: every size below the loop's destages each write but the last ones.
#[test]
fn a_loop_of_writes_destages_until_it_fits() {
    let trace: Vec<Access> = (0..100).map(|at| Access::new(at % 10, true)).collect();
    let found = write_back(&trace);
    assert_eq!((found.destages.at(9), found.dirty.at(9)), (91, 9));
    assert_eq!((found.destages.at(10), found.dirty.at(10)), (0, 10));
    assert_eq!((found.destages.at(0), found.ssd_writes(0)), (0, 0));
    assert!((found.mix.written_part() - 1.0).abs() < f64::EPSILON);
}
