//! Hit ratio and flash writes on real traces, against plain CLOCK at the same size.
//!
//! `cargo test --release -p cinnabar-study hit_ratio -- --nocapture` prints the table. Flash bytes
//! include all metadata; "x" are multiples of the baseline.

use crate::traces::{fixture, shared_trace};
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Config, Endurance, Eviction};
use cinnabar_policy::Writes;
use cinnabar_study::hits::EngineCache;
use cinnabar_trace::{Op, Record};
use std::num::NonZeroU32;

const SIZE_BLOCKS: NonZeroU32 = NonZeroU32::new(65_536).expect("a size");
/// The largest whole number of segments that is not above it.
const CAPACITY_BLOCKS: u64 = 65_535;
const SECTOR: u64 = 512;

/// Plain CLOCK at 65536 blocks, by an independent simulator.
struct Baseline {
    trace: &'static str,
    /// Misses when every reference is get-or-insert; each writes a block.
    misses: u64,
    /// Read misses and blocks written of write-through CLOCK with real reads and writes.
    read_misses: u64,
    flash_blocks: u64,
}

const CP_VSCSI: Baseline = Baseline {
    trace: "cp_vscsi.canon.csv.zst",
    misses: 883_946,
    read_misses: 345_423,
    flash_blocks: 1_001_592,
};
const SELF_LOOP4: Baseline = Baseline {
    trace: "self_loop4.canon.csv.zst",
    misses: 1_582_452,
    read_misses: 412_140,
    flash_blocks: 2_835_364,
};

/// What the engine is given of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    /// Every block touched is read: get-or-insert.
    AllReads,
    /// Reads and writes of the whole blocks touched, as block simulators see them.
    Blocks,
    /// Reads and writes of just the sectors touched.
    Sectors,
}

/// What a replay counted.
#[derive(Clone, Copy, Debug)]
struct Replay {
    read_misses: u64,
    flash_blocks: u64,
    carried: u64,
}

fn run(trace: &[Record], eviction: Eviction, how: As) -> Replay {
    let config = Config { eviction, ..Config::default() };
    let writes = if how == As::AllReads { Writes::AsReads } else { Writes::Through };
    let mut cache = EngineCache::with(SIZE_BLOCKS, writes, config).expect("there is such a cache");
    assert_eq!(cache.capacity_blocks(), CAPACITY_BLOCKS);
    replay(&mut cache, trace, how);
    let (counts, carried) = (cache.counts(), cache.cache_counters().reinserted_blocks);
    Replay { read_misses: counts.read_misses, flash_blocks: counts.flash_writes, carried }
}

fn replay(cache: &mut EngineCache, trace: &[Record], how: As) {
    for record in trace.iter().filter(|record| matches!(record.op, Op::Read | Op::Write)) {
        let unit = if how == As::Sectors { SECTOR } else { 4096 };
        let first = record.offset_bytes / unit * unit;
        let end = (record.offset_bytes + record.length_bytes).next_multiple_of(unit);
        let span = ByteSpan::new(first, end - first);
        cache.request(record.volume, record.op == Op::Write, span).expect("few volumes");
    }
}

/// Prints a row; gives misses and flash blocks as multiples of the baseline.
fn row(what: &str, name: &str, replay: Replay, misses: u64, flash_blocks: u64) -> (f64, f64) {
    let flash = replay.flash_blocks;
    let ratios = (replay.read_misses as f64 / misses as f64, flash as f64 / flash_blocks as f64);
    println!(
        "| {what} | {name} | {} | {:.3} x | {flash} | {:.3} x | {} |",
        replay.read_misses, ratios.0, ratios.1, replay.carried
    );
    ratios
}

/// (a) Every reference is get-or-insert.
fn get_or_insert(baseline: &Baseline) {
    let Some(trace) = shared_trace(baseline.trace) else { return };
    let replay = run(&trace, Eviction::Probation, As::AllReads);
    let (misses, flash) =
        row("(a) get-or-insert", baseline.trace, replay, baseline.misses, baseline.misses);
    assert!(misses <= 1.02, "misses are {misses:.3} x CLOCK's");
    assert!(flash <= 0.8, "flash writes are {flash:.3} x CLOCK's");
}

/// (b) Real reads and writes, the default settings.
fn reads_and_writes(baseline: &Baseline) {
    let Some(trace) = shared_trace(baseline.trace) else { return };
    let Baseline { read_misses, flash_blocks, .. } = *baseline;
    let exact = run(&trace, Eviction::Probation, As::Sectors);
    row("(b) to the sector (no bar)", baseline.trace, exact, read_misses, flash_blocks);
    let replay = run(&trace, Eviction::Probation, As::Blocks);
    let (misses, flash) =
        row("(b) reads and writes", baseline.trace, replay, read_misses, flash_blocks);
    assert!(misses <= 1.02, "read misses are {misses:.3} x write-through CLOCK's");
    assert!(flash <= 0.8, "flash writes are {flash:.3} x write-through CLOCK's");
}

/// (c) Plain CLOCK selected.
fn plain_clock(baseline: &Baseline) {
    let Some(trace) = shared_trace(baseline.trace) else { return };
    let replay = run(&trace, Eviction::Clock, As::AllReads);
    let (misses, _) =
        row("(c) plain CLOCK", baseline.trace, replay, baseline.misses, baseline.misses);
    assert!(misses <= 1.02, "misses are {misses:.3} x CLOCK's");
}

#[test]
fn get_or_insert_cp_vscsi() {
    get_or_insert(&CP_VSCSI);
}

#[test]
fn get_or_insert_self_loop4() {
    get_or_insert(&SELF_LOOP4);
}

#[test]
fn reads_and_writes_cp_vscsi() {
    reads_and_writes(&CP_VSCSI);
}

#[test]
fn reads_and_writes_self_loop4() {
    reads_and_writes(&SELF_LOOP4);
}

#[test]
fn plain_clock_cp_vscsi() {
    plain_clock(&CP_VSCSI);
}

#[test]
fn plain_clock_self_loop4() {
    plain_clock(&SELF_LOOP4);
}

/// The part of `self_loop4` that every clone has: plain CLOCK misses 392,827 of its references.
#[test]
fn the_fixture_meets_the_bars_too() {
    let trace = fixture();
    let replay = run(&trace, Eviction::Probation, As::AllReads);
    let (misses, flash) = row("(a) get-or-insert", "fixture", replay, 392_827, 392_827);
    assert!(misses <= 1.02 && flash <= 0.8, "{misses:.3} x misses, {flash:.3} x flash writes");
    let replay = run(&trace, Eviction::Clock, As::AllReads);
    let (misses, _) = row("(c) plain CLOCK", "fixture", replay, 392_827, 392_827);
    assert!(misses <= 1.02, "{misses:.3} x misses");
}

/// Read misses of the best of LRU, CLOCK, SIEVE, S3-FIFO and ARC with real reads and writes, by size
/// from 5 % of the fixture's footprint to 125 %, and what the engine may have of them: times, and more.
const BEST_BY_SIZE: [(u32, u64, f64, u64); 6] = [
    (11_828, 262_072, 1.02, 0),
    (23_657, 191_641, 1.02, 0),
    (59_143, 37_954, 0.95, 0),
    (118_287, 19_738, 1.30, 0),
    (236_575, 20, 1.0, 100),
    (295_718, 20, 1.0, 0),
];

#[test]
fn the_engine_is_not_much_worse_than_the_best_simple_cache_at_any_size() {
    let trace = fixture();
    for (size_blocks, best, times, more) in BEST_BY_SIZE {
        let size_blocks = NonZeroU32::new(size_blocks).expect("a size");
        let mut cache = EngineCache::new(size_blocks, Writes::Through).expect("such a cache");
        replay(&mut cache, &trace, As::Blocks);
        let counts = cache.counts();
        let ratio = counts.read_misses as f64 / best as f64;
        println!("{size_blocks} blocks: {} read misses, {ratio:.3} x", counts.read_misses);
        let bound = best as f64 * times + more as f64;
        assert!(
            counts.read_misses as f64 <= bound,
            "{size_blocks} blocks: {} misses",
            counts.read_misses
        );
    }
}

/// Flash writes rise from `save` to `hits`; what they bring shows where the cache is nearly large
/// enough.
#[test]
fn each_price_of_flash_writes_does_what_its_name_says() {
    let trace = fixture();
    for size_blocks in [59_143, 177_430] {
        let size_blocks = NonZeroU32::new(size_blocks).expect("a size");
        let [hits, balanced, save] = Endurance::ALL.map(|endurance| {
            let config = Config { endurance, ..Config::default() };
            let mut cache =
                EngineCache::with(size_blocks, Writes::Through, config).expect("such a cache");
            replay(&mut cache, &trace, As::Blocks);
            let counts = cache.counts();
            println!(
                "{size_blocks} blocks, {}: {} read misses, {} flash writes",
                endurance.name(),
                counts.read_misses,
                counts.flash_writes
            );
            counts
        });
        assert!(save.flash_writes < balanced.flash_writes * 9 / 10, "{size_blocks}: save");
        assert!(balanced.flash_writes < hits.flash_writes, "{size_blocks}: hits");
        assert!(hits.read_misses <= balanced.read_misses, "{size_blocks}: misses");
    }
}

/// The ghost then remembers just about all that a lap leaves out: if each block were let in for that,
/// none would stay for the next lap.
#[test]
fn a_loop_of_twice_the_size_leaves_a_part_of_it_in_the_cache() {
    let size_blocks = NonZeroU32::new(20_400).expect("a size");
    for footprint in [37_000, 40_800] {
        let mut cache = EngineCache::new(size_blocks, Writes::Through).expect("such a cache");
        for block in (0..9).flat_map(|_| 0..footprint) {
            cache.request(0, false, ByteSpan::new(block * 4096, 4096)).expect("one volume");
        }
        let counts = cache.counts();
        let ratio = counts.read_misses as f64 / counts.read_references as f64;
        println!("loop over {footprint} blocks: {ratio:.3} are missed");
        assert!(ratio < 0.85, "{footprint} blocks: {ratio:.3} are missed");
    }
}
