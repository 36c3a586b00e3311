//! What the engine writes to flash beside data: headers of chunks, the journal, checkpoints.

use cinnabar_engine::{Bounds, Config};
use cinnabar_study::instant::{CacheSetup, InstantCache, plain_volume};

const SEGMENTS: u64 = 64;
const CAPACITY: u64 = SEGMENTS * 255;
/// What fits beside air.
const USED: u64 = CAPACITY * 3 / 4;

fn cache(bounds: Bounds) -> InstantCache {
    let config = Config { bounds, ..Config::default() };
    let setup = CacheSetup { segment_chunks: 1, ..CacheSetup::single(CAPACITY, config) };
    let mut cache = InstantCache::new(setup);
    cache.set_batch(1);
    cache
}

/// Blocks written to flash that hold no data.
fn metadata(cache: &mut InstantCache) -> u64 {
    let counters = cache.cache_counters();
    let admitted = counters.admitted;
    let data = admitted.filling + admitted.referenced + admitted.ghost + counters.reinserted_blocks;
    counters.flash_written_bytes / 4096 - data
}

/// The index is written when an eighth of the log is new; later where the headers of what is new are
/// few.
#[test]
fn a_checkpoint_waits_for_many_new_segments_while_few_headers_have_to_be_read() {
    for (replayed_chunks, least, most) in [(1, 5, 7), (16, 2, 3), (4096, 1, 1)] {
        let mut cache = cache(Bounds { replayed_chunks, ..Bounds::default() });
        let volume = cache.attach(plain_volume("vm", CAPACITY));
        for block in (0..USED).step_by(255) {
            cache.read(volume, block, 255);
        }
        let checkpoints = cache.cache_counters().checkpoints;
        assert!(
            (least..=most).contains(&checkpoints),
            "{checkpoints} checkpoints, where {replayed_chunks} headers are few"
        );
        let pages = metadata(&mut cache);
        assert!(
            replayed_chunks < 4096 || pages * 100 < USED * 2,
            "{pages} pages for {USED} blocks"
        );
    }
}

/// A block that is cached and written again costs its record in the journal, a page where requests come
/// one at a time, and its part of a checkpoint.
#[test]
fn a_block_written_again_costs_a_page_of_the_journal_and_little_of_a_checkpoint() {
    let mut cache = cache(Bounds::default());
    let volume = cache.attach(plain_volume("vm", CAPACITY));
    for block in 0..USED {
        cache.write(volume, block, 1);
    }
    let before = metadata(&mut cache);
    for step in 0..USED {
        cache.write(volume, step * 7919 % USED, 1);
    }
    let pages = metadata(&mut cache) - before;
    assert!(pages >= USED / 2, "{pages} pages for {USED} blocks: records were not written");
    assert!(pages * 100 <= USED * 150, "{pages} pages for {USED} blocks");
}
