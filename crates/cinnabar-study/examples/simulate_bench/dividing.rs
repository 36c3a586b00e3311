//! The time to divide a cache of 1024 units among 16 volumes with loops and hot sets.

use crate::cpu_seconds;
use cinnabar_policy::sizing::divide::{Utility, divide};

const VOLUMES: usize = 16;
const UNITS: usize = 1024;
const ROUNDS: u32 = 100;

pub(crate) fn measure() -> Vec<f64> {
    let utilities: Vec<Utility> = (0..VOLUMES)
        .map(|volume| {
            let value = |size: usize| {
                let hot = 1.0 - (-(size as f64) / (20.0 + 11.0 * volume as f64)).exp();
                let cliff = if size > 40 * volume { 0.7 } else { 0.0 };
                (hot + cliff) * (1.0 + (volume * 7 % 5) as f64)
            };
            Utility::free((0..=UNITS).map(value).collect())
        })
        .collect();
    let mut worst_ms = 0.0_f64;
    let begin = cpu_seconds();
    for _ in 0..ROUNDS {
        let start = cpu_seconds();
        let sizes = divide(&utilities, UNITS);
        worst_ms = worst_ms.max((cpu_seconds() - start) * 1e3);
        assert!(sizes.iter().sum::<usize>() <= UNITS, "it fits");
    }
    let mean_ms = (cpu_seconds() - begin) * 1e3 / f64::from(ROUNDS);
    vec![mean_ms, worst_ms]
}
