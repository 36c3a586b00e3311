//! Sampled curves against exact ones, wherever a sample may not differ.

use crate::small_traces::{Rng, small_trace};
use cinnabar_policy::reuse::SampledCurves;
use cinnabar_policy::{Access, ReadOnly, Sampled, WriteBack};
use std::num::NonZeroU32;

const TRACES: u64 = 2_000;
/// More than any small trace has blocks.
const SIZES: u64 = 60;

fn references(trace: &[Access]) -> impl Iterator<Item = (u64, bool)> {
    trace.iter().map(|access| (u64::from(access.block()) << 20, access.is_write()))
}

/// Every size's counts.
fn counts(curves: &SampledCurves) -> Vec<[f64; 6]> {
    let of_size = |size| {
        [
            curves.read_misses(size),
            curves.read_only_misses(size),
            curves.hits.at(size),
            curves.destages.at(size),
            curves.blocks as f64,
            curves.blocks_again as f64,
        ]
    };
    (0..SIZES).map(of_size).collect()
}

fn assert_close(found: &[[f64; 6]], expected: &[[f64; 6]], seed: u64) {
    for (size, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close, "seed {seed}, {size} blocks: {found:?}, expected {expected:?}");
    }
}

#[test]
fn a_sample_of_everything_is_exact() {
    for seed in 0..TRACES {
        let trace = small_trace(seed);
        let (mut back, mut only) = (WriteBack::default(), ReadOnly::default());
        back.extend(&trace);
        only.extend(&trace);
        let (back, only) = (back.finish(), only.finish());
        let exact: Vec<_> = (0..SIZES)
            .map(|size| {
                let (misses, around) = (back.read_misses(size), only.read_misses(size));
                let (hits, destages) = (back.hits.at(size), back.destages.at(size));
                let counts = [misses, around, hits, destages, back.blocks, back.blocks_again];
                counts.map(|count| count as f64)
            })
            .collect();
        let room = NonZeroU32::new(back.blocks as u32).unwrap_or(NonZeroU32::MIN);
        let samples = [Sampled::fixed_rate(1.0, seed), Sampled::fixed_size(room, seed)];
        for mut sample in samples {
            // In portions, as a stream would come; asking in between changes nothing.
            for portion in trace.chunks(41) {
                sample.extend(references(portion));
                sample.curves();
            }
            let found = sample.curves();
            assert_close(&counts(&found), &exact, seed);
            assert_eq!(found.mix, back.mix, "seed {seed}");
            assert_eq!(found.read_hits.reaches(1.0), back.read_hits.flat_from(), "seed {seed}");
        }
    }
}

/// Blocks that are forgotten leave nothing behind: after each block was read once, a sample that had
/// to shrink is one that never had more.
#[test]
fn a_sample_that_shrank_is_one_that_was_small() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let blocks = 200 + rng.below(200);
        let mut trace: Vec<Access> = (0..blocks).map(|block| Access::new(block, false)).collect();
        let known = trace.len();
        for _ in 0..2_000 {
            let (spread, write) = (1 + rng.below(blocks), rng.below(3) == 0);
            trace.push(Access::new(rng.below(spread), write));
        }
        let room = NonZeroU32::new(40).expect("a size");
        let mut shrunk = Sampled::fixed_size(room, seed);
        shrunk.extend(references(&trace[..known]));
        assert!(shrunk.rate() < 0.5, "it had to shrink");
        // A hair less: the last bits of the rate must not let the block in that left last.
        let mut small = Sampled::fixed_rate(shrunk.rate() * (1.0 - 1e-13), seed);
        small.extend(references(&trace[..known]));
        // What they counted before they were the same.
        shrunk.decay(0.0);
        small.decay(0.0);
        shrunk.extend(references(&trace[known..]));
        small.extend(references(&trace[known..]));
        let (shrunk, small) = (shrunk.curves(), small.curves());
        assert_eq!(shrunk.blocks, small.blocks, "seed {seed}");
        assert_close(&counts(&shrunk), &counts(&small), seed);
    }
}

/// A hot loop while every block is in the sample, then a scan while ever fewer are: the loop's hits are
/// as many as they were.
#[test]
fn what_was_sampled_at_a_higher_rate_weighs_less() {
    for seed in 0..20 {
        let mut sample = Sampled::fixed_size(NonZeroU32::new(400).expect("a size"), seed);
        sample.extend((0..4_000).map(|read| (read % 40, false)));
        sample.extend((100..40_100).map(|block| (block, false)));
        let found = sample.curves();
        assert!(found.rate < 0.02, "it had to shrink");
        // 3960, with a deviation of a few percent.
        let hits = found.read_hits.at(40);
        assert!((3_300.0..4_700.0).contains(&hits), "seed {seed}: {hits}");
        assert!((32_000..48_000).contains(&found.blocks), "seed {seed}: {}", found.blocks);
    }
}

/// The weights of an old interval fade, its recency does not.
#[test]
fn decay_fades_counts_and_keeps_recency() {
    let reads = |blocks: std::ops::Range<u64>| blocks.map(|block| (block, false));
    let mut sample = Sampled::fixed_rate(1.0, 7);
    sample.extend(reads(0..10).chain(reads(0..10)));
    sample.decay(0.5);
    let faded = sample.curves();
    assert_eq!((faded.mix.reads, faded.mix.rar), (10, 5));
    assert_eq!((faded.read_hits.at(9), faded.read_hits.at(10)), (0.0, 5.0));
    sample.extend(reads(0..10));
    let found = sample.curves();
    assert_eq!((found.mix.reads, found.mix.rar), (20, 15));
    assert_eq!((found.read_hits.at(9), found.read_hits.at(10)), (0.0, 15.0));
}

#[test]
fn seeds_sample_other_blocks_at_about_the_rate() {
    let sizes: Vec<i64> = (0..20)
        .map(|seed| {
            let mut sample = Sampled::fixed_rate(0.01, seed);
            sample.extend((0..100_000_u64).map(|block| (block, false)));
            (sample.curves().blocks as f64 * sample.rate()).round() as i64
        })
        .collect();
    // 1000 each, with a deviation of 31.
    assert!(sizes.iter().all(|size| (850..1_150).contains(size)), "{sizes:?}");
    let mut different = sizes.clone();
    different.sort_unstable();
    different.dedup();
    assert!(different.len() > 10, "{sizes:?}");
}
