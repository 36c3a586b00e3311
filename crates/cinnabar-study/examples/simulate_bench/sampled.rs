//! The sampled analysis of references in memory: half of them go to a hundredth of a million blocks,
//! the others anywhere.

use crate::{cpu_seconds, peak_kib};
use cinnabar_policy::Sampled;
use std::hint::black_box;

const BLOCKS: u64 = 1_000_000;
const RATE: f64 = 0.01;

pub(crate) fn measure(kind: &str, millions: &str) -> Vec<f64> {
    let millions: u64 = millions.parse().expect("a number");
    let mut sample = match kind {
        "rate" => Sampled::fixed_rate(RATE, 0),
        "size" => Sampled::fixed_size(Sampled::BLOCKS, 0),
        _ => panic!("rate or size, not {kind}"),
    };
    let mut state = 1_u64;
    let references: Vec<(u64, bool)> = (0..millions * 1_000_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let chance = state >> 20;
            let blocks = if chance & 1 == 0 { BLOCKS / 100 } else { BLOCKS };
            ((chance >> 4) % blocks, chance & 6 == 0)
        })
        .collect();
    let start = cpu_seconds();
    sample.extend(references.iter().copied());
    black_box(sample.curves());
    let seconds = cpu_seconds() - start;
    vec![references.len() as f64, seconds, peak_kib()]
}
