//! What a model by itself answers in: the mean latency of random 4 KiB reads of somebody who keeps
//! so many under way and needs no time himself.
//!
//! `cargo xtask bench frontends` compares it with what a client of the daemon sees:
//!
//! ```text
//! model_mean SETTINGS DEPTH BYTES
//! ```
//!
//! SETTINGS as behind `sim:`, BYTES the size of the disk. Prints microseconds.

use cinnabar_backend::model::{OpKind, SimModel, SimSpec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const READS: u64 = 200_000;
const BLOCK: u64 = 4096;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("usage: model_mean SETTINGS DEPTH BYTES");
    let spec = SimSpec::parse(&next(), None).expect("settings as behind sim:");
    let depth: u64 = next().parse().expect("a depth");
    let bytes: u64 = next().parse().expect("a size in bytes");
    let mut model = SimModel::new(spec, bytes);
    let mut rng = 1_u64;
    // When the next read of each of the `depth` readers begins.
    let mut free: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let mut sum_ns = 0;
    for _ in 0..READS {
        let Reverse(now) = free.pop().expect("there is one for each reader");
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (rng >> 24) % (bytes / BLOCK) * BLOCK;
        let done = model.schedule(now, OpKind::Read, offset, BLOCK).complete_at_ns;
        sum_ns += done - now;
        free.push(Reverse(done));
    }
    println!("{:.3}", sum_ns as f64 / READS as f64 / 1000.0);
}
