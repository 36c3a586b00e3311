//! A log of thousands of segments: what reclaiming finds in it, as in a small one.

use cinnabar_engine::Config;
use cinnabar_study::instant::{CacheSetup, InstantCache, plain_volume};

/// More than are compared with each other to find the one to be emptied.
const SEGMENTS: u64 = 5000;
const SEGMENT_BLOCKS: u64 = 255;
const REQUEST_BLOCKS: u64 = 255;

/// Blocks that are read twice and never again leave in the order in which they came: each segment is
/// empty when it is reclaimed, and nothing is written to flash twice.
#[test]
fn what_is_read_in_order_leaves_in_order() {
    let capacity = SEGMENTS * SEGMENT_BLOCKS;
    let setup = CacheSetup { segment_chunks: 1, ..CacheSetup::single(capacity, Config::default()) };
    let mut cache = InstantCache::new(setup);
    cache.set_batch(1);
    let volume = cache.attach(plain_volume("vm", capacity * 2));
    let mut read_on = |blocks: std::ops::Range<u64>| {
        for block in blocks.step_by(REQUEST_BLOCKS as usize) {
            cache.read(volume, block, REQUEST_BLOCKS);
            cache.read(volume, block, REQUEST_BLOCKS);
        }
        cache.cache_counters()
    };
    let full = read_on(0..capacity);
    let after = read_on(capacity..capacity * 3 / 2);
    let admitted = after.admitted.referenced - full.admitted.referenced;
    let carried = after.reinserted_blocks - full.reinserted_blocks;
    println!("{admitted} blocks to flash, {carried} of them once more");
    assert!(admitted > capacity / 3, "{admitted} blocks to flash");
    assert!(carried * 50 < admitted, "{admitted} blocks to flash, {carried} of them once more");
}
