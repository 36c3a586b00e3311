//! References a second of the sampled analysis, references in memory, on one thread.
//!
//! Called by hand: `sampled_bench [MILLIONS] [RATE]`, by default 100 million and 0.01. Half of the
//! references go to a hundredth of a million blocks, the others anywhere.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures")]

use cinnabar_policy::Sampled;
use std::time::Instant;

const BLOCKS: u64 = 1_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let millions: u64 = arguments.next().map_or(100, |text| text.parse().expect("a number"));
    let rate: f64 = arguments.next().map_or(0.01, |text| text.parse().expect("a rate"));
    let mut state = 1_u64;
    let references: Vec<(u64, bool)> = (0..millions * 1_000_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let chance = state >> 20;
            let blocks = if chance & 1 == 0 { BLOCKS / 100 } else { BLOCKS };
            ((chance >> 4) % blocks, chance & 6 == 0)
        })
        .collect();
    let samples = [
        ("fixed rate", Sampled::fixed_rate(rate, 0)),
        ("fixed size, 8192", Sampled::fixed_size(Sampled::BLOCKS, 0)),
    ];
    println!("| sample | rate | read misses at a tenth | M references/s |\n|---|---|---|---|");
    for (name, mut sample) in samples {
        let start = Instant::now();
        sample.extend(references.iter().copied());
        let speed = references.len() as f64 / start.elapsed().as_secs_f64() / 1e6;
        let misses = sample.curves().read_misses(BLOCKS / 10);
        println!("| {name} | {:.4} | {misses:.0} | {speed:.1} |", sample.rate());
    }
}
