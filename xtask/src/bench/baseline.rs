//! What the machine itself does in the same run: the baseline beside absolute times.

use std::hint::black_box;
use std::time::Instant;

const TABLE_WORDS: usize = 1 << 25;
const READS: u32 = 1 << 21;
const BLOCK: usize = 4096;
const COPIES: usize = 1 << 16;

/// A dependent read of DRAM, in ns: a chain through 256 MiB in an order that no prefetcher foresees.
pub(crate) fn dram_read_ns() -> f64 {
    // A linear congruential generator with these constants visits every word once.
    let step = |index: u64| (index.wrapping_mul(1_664_525) + 1_013_904_223) % TABLE_WORDS as u64;
    let table: Vec<u64> = (0..TABLE_WORDS as u64).map(step).collect();
    let begin = Instant::now();
    let end = (0..READS).fold(1_u64, |at, _| table[at as usize]);
    black_box(end);
    begin.elapsed().as_nanos() as f64 / f64::from(READS)
}

/// A copy of 4 KiB between places that are in no cache, in ns.
pub(crate) fn copy_ns() -> f64 {
    let from = vec![1_u8; COPIES * BLOCK];
    let mut to = vec![2_u8; COPIES * BLOCK];
    let begin = Instant::now();
    for index in 0..COPIES {
        // Far apart, so that one copy does not help the next.
        let at = index.wrapping_mul(40_503) % COPIES * BLOCK;
        to[at..at + BLOCK].copy_from_slice(&from[at..at + BLOCK]);
    }
    black_box(&to);
    begin.elapsed().as_nanos() as f64 / COPIES as f64
}
