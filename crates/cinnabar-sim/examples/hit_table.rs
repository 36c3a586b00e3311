//! Hit ratio and flash writes of the engine on real traces, beside CLOCK's golden counts.
//!
//! Called by `cargo xtask bench hits`. Arguments: the traces' folder, then optionally one trace's
//! name. Prints the table that `docs/benchmarks.md` keeps.

use cinnabar_engine::units::VolumeId;
use cinnabar_engine::{Config, Eviction};
use cinnabar_sim::instant::{InstantCache, plain_volume};
use cinnabar_sim::machine::CacheSetup;
use cinnabar_trace::{Reference, open, references};
use std::path::Path;

/// Name, CLOCK's misses of get-or-insert, write-through CLOCK's read misses and flash blocks.
const TRACES: [(&str, u64, u64, u64); 2] =
    [("cp_vscsi", 883_946, 345_423, 1_001_592), ("self_loop4", 1_582_452, 412_140, 2_835_364)];
/// 257 segments of 255 blocks: as many as fit into 65536.
const CAPACITY_BLOCKS: u64 = 65_535;
const VOLUME_BLOCKS: u64 = 1 << 36;

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "../shared/traces".to_owned());
    let only = std::env::args().nth(2);
    println!("| trace | run | misses | x CLOCK | flash blocks | x CLOCK | carried | seconds |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, clock, read_misses, flash) in TRACES {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let path = Path::new(&folder).join(format!("{name}.canon.csv.zst"));
        let records = open(&path).expect("the trace opens");
        let all: Vec<Reference> = references(records).map(|r| r.expect("a good trace")).collect();
        let probation = Config::default();
        let plain = Config { eviction: Eviction::Clock, ..probation };
        row(name, "(a) get-or-insert", &all, probation, false, (clock, clock));
        row(name, "(b) reads and writes", &all, probation, true, (read_misses, flash));
        row(name, "(c) plain CLOCK", &all, plain, false, (clock, clock));
    }
}

fn row(trace: &str, run: &str, all: &[Reference], config: Config, writes: bool, bar: (u64, u64)) {
    let start = std::time::Instant::now();
    let setup = CacheSetup::single(CAPACITY_BLOCKS, config);
    let mut cache = InstantCache::new(setup);
    cache.set_batch(1);
    let count = all.iter().map(|r| r.key >> 40).max().map_or(0, |last| last + 1);
    let volumes: Vec<VolumeId> =
        (0..count).map(|v| cache.attach(plain_volume(&format!("v{v}"), VOLUME_BLOCKS))).collect();
    for reference in all {
        let volume = volumes[(reference.key >> 40) as usize];
        let block = reference.key & ((1 << 40) - 1);
        if reference.write && writes {
            cache.write(volume, block, 1);
        } else {
            cache.read(volume, block, 1);
        }
    }
    let misses: u64 = volumes.iter().map(|v| cache.volume_counters(*v).misses).sum();
    let counters = cache.cache_counters();
    let flash = counters.flash_written_bytes / 4096;
    println!(
        "| {trace} | {run} | {misses} | {:.3} | {flash} | {:.3} | {} | {:.1} |",
        misses as f64 / bar.0 as f64,
        flash as f64 / bar.1 as f64,
        counters.carried_blocks,
        start.elapsed().as_secs_f64(),
    );
}
