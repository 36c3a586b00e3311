//! The SPC-1-like workload through the production engine, once warm: read hits beside plain LRU's at
//! the same size, and what is left for the back end.
//!
//! `cargo test --release -p cinnabar-study spc1 -- --nocapture` prints the table.

use cinnabar_engine::Config;
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::plan::Mode;
use cinnabar_engine::units::VolumeId;
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_policy::replacement::{Lru, Outcome as Found, Replacement};
use cinnabar_study::instant::plain_volume;
use cinnabar_study::{CacheSetup, InstantCache};
use cinnabar_trace::generate::spc1::{Generator, Mix, Settings};
use std::num::NonZeroU32;

/// 1 GiB each, and the log.
const ASU_BLOCKS: [u64; 3] = [262_144, 262_144, 58_255];
const WARM_IOS: usize = 2_000_000;
const TEST_IOS: usize = 1_000_000;

struct Outcome {
    /// Read blocks found, of all.
    hit_ratio: f64,
    lru_hit_ratio: f64,
    /// Read requests of which LRU lacks a block, of all.
    lru_reads_left: f64,
    /// Back-end operations per guest's.
    reads_left: f64,
    all_left: f64,
    flash_blocks: u64,
}

fn run(percent: u64, bsu: u32, seed: u64) -> Outcome {
    let capacity = (ASU_BLOCKS[0] + ASU_BLOCKS[1]) * percent / 100 / 255 * 255;
    let settings = Settings { bsu, mix: Mix::Pblio, asu_blocks: ASU_BLOCKS, seed };
    let mut generator = Generator::new(settings).expect("sound settings");
    let mut cache = InstantCache::new(CacheSetup::single(capacity, Config::default()));
    cache.set_batch(8);
    cache.set_request_ns(1_000_000_000 / u64::from(bsu * 50));
    let log = VolumeSpec { mode: Mode::PassThrough, ..plain_volume("asu3", ASU_BLOCKS[2]) };
    let specs = [plain_volume("asu1", ASU_BLOCKS[0]), plain_volume("asu2", ASU_BLOCKS[1]), log];
    let volumes = specs.map(|spec| cache.attach(spec));
    let mut lru = Lru::new(NonZeroU32::new(capacity as u32).expect("some blocks"));
    lru.reserve((ASU_BLOCKS[0] + ASU_BLOCKS[1]) as u32);
    let mut before = (VolumeCounters::default(), 0);
    let (mut lru_hits, mut read_blocks, mut lru_reads) = (0_u64, 0_u64, 0_u64);
    for index in 0..WARM_IOS + TEST_IOS {
        if index == WARM_IOS {
            before = counters(&mut cache, volumes);
        }
        let io = generator.next_io();
        let volume = volumes[usize::from(io.asu)];
        if io.write {
            cache.write(volume, io.block, u64::from(io.blocks));
        } else {
            cache.read(volume, io.block, u64::from(io.blocks));
        }
        if io.asu == 2 {
            continue;
        }
        let blocks = io.block..io.block + u64::from(io.blocks);
        let first = u64::from(io.asu) * ASU_BLOCKS[0];
        let found = |block: &u64| lru.touch((first + block) as u32, |_| ()) == Found::Hit;
        let hits = blocks.filter(found).count();
        if index >= WARM_IOS && !io.write {
            lru_hits += hits as u64;
            read_blocks += u64::from(io.blocks);
            lru_reads += u64::from(hits < io.blocks as usize);
        }
    }
    let (after, flash) = counters(&mut cache, volumes);
    let (before, flash_before) = before;
    let part = |of: fn(&VolumeCounters) -> u64| (of(&after) - of(&before)) as f64;
    Outcome {
        hit_ratio: part(|all| all.read_hits) / part(|all| all.blocks_read),
        lru_hit_ratio: lru_hits as f64 / read_blocks as f64,
        lru_reads_left: lru_reads as f64 / part(|all| all.reads),
        reads_left: part(|all| all.backend_reads) / part(|all| all.reads),
        all_left: part(|all| all.backend_reads + all.backend_writes)
            / part(|all| all.reads + all.writes),
        flash_blocks: (flash - flash_before) / 4096,
    }
}

fn counters(cache: &mut InstantCache, volumes: [VolumeId; 3]) -> (VolumeCounters, u64) {
    let sum = volumes.map(|volume| cache.volume_counters(volume)).into_iter().sum();
    (sum, cache.cache_counters().flash_written_bytes)
}

/// At 25 and 50 % a log can't hold as many live blocks as a list can: of what walks rewrite, the old
/// copies keep a fifth of the slots until their segments are emptied. Hence the allowances.
#[test]
fn it_hits_about_as_lru_does_and_spares_the_back_end() {
    for (percent, allowance) in [(10, -0.10), (25, 0.025), (50, 0.065)] {
        for (bsu, seed) in [(50, 1), (10, 2)] {
            let outcome = run(percent, bsu, seed);
            let Outcome { hit_ratio, lru_hit_ratio, reads_left, lru_reads_left, .. } = outcome;
            println!(
                "cache {percent} %, {bsu} BSU: read hits {hit_ratio:.3}, LRU {lru_hit_ratio:.3}; \
                 reads cut by {:.1} %, LRU {:.1} %; all by {:.1} %; {} flash blocks",
                100.0 - reads_left * 100.0,
                100.0 - lru_reads_left * 100.0,
                100.0 - outcome.all_left * 100.0,
                outcome.flash_blocks,
            );
            assert!(hit_ratio >= lru_hit_ratio - allowance, "{hit_ratio} for {lru_hit_ratio}");
            assert!(percent < 25 || reads_left <= 0.25, "{reads_left} of the reads are left");
        }
    }
}
