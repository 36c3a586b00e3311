//! After a shift of the workload the way of admission follows within a bounded number of accesses, and
//! does not change back and forth. `cargo xtask bench phases` has more shifts and larger caches.

use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::{Admission, Config};
use cinnabar_policy::Writes;
use cinnabar_study::hits::EngineCache;
use std::num::NonZeroU32;

/// Blocks of the cache.
const CACHE: u64 = 16_384;

/// A loop of 1.3 times the cache: the less of it comes in, the better.
fn looping(step: u64) -> u64 {
    step % (CACHE * 13 / 10)
}

/// Each block is read once more 0.6 cache sizes later, and never again: all have to come in.
fn read_twice(step: u64) -> u64 {
    let again = step / 2;
    (1 << 24) + if step.is_multiple_of(2) { again + CACHE * 3 / 10 } else { again }
}

fn cache(admission: Option<Admission>) -> EngineCache {
    let size = NonZeroU32::new(CACHE as u32).expect("not empty");
    let config = Config { admission, ..Config::default() };
    EngineCache::with(size, Writes::Through, config).expect("a sound size")
}

/// Reads so many blocks; gives how many were missed.
fn read(cache: &mut EngineCache, steps: u64, block: impl Fn(u64) -> u64) -> u64 {
    let before = cache.counts().read_misses;
    for step in 0..steps {
        let span = ByteSpan::new(block(step) * BLOCK_BYTES, BLOCK_BYTES);
        cache.request(0, false, span).expect("one volume");
    }
    cache.counts().read_misses - before
}

#[test]
fn a_shift_is_followed_within_four_cache_sizes() {
    // Misses and changes of the way from the fourth to the eighth cache size after the shift.
    let after_shift = |admission| {
        let mut cache = cache(admission);
        read(&mut cache, 6 * CACHE, looping);
        let changes = cache.cache_counters().trials.changes;
        read(&mut cache, 4 * CACHE, read_twice);
        let missed = read(&mut cache, 4 * CACHE, |step| read_twice(4 * CACHE + step));
        (missed, cache.cache_counters().trials.changes - changes)
    };
    let (missed, changes) = after_shift(None);
    let (best, _) = after_shift(Some(Admission::Open));
    let (closed, _) = after_shift(Some(Admission::Closed));
    assert!(closed > best * 5 / 4, "the ways differ: {closed} missed and {best}");
    assert!(missed * 100 <= best * 105, "{missed} missed, {best} with what is best here");
    assert!((1..=4).contains(&changes), "{changes} changes of the way");
}

#[test]
fn phases_that_alternate_change_the_way_twice_each_at_most() {
    for length in [CACHE / 4, CACHE, 4 * CACHE] {
        let mut cache = cache(None);
        let phases = 24 * CACHE / length;
        for phase in 0..phases {
            let from = phase / 2 * length;
            if phase % 2 == 0 {
                read(&mut cache, length, |step| looping(from + step));
            } else {
                read(&mut cache, length, |step| read_twice(from + step));
            }
        }
        let changes = cache.cache_counters().trials.changes;
        assert!(changes <= 2 * phases, "{changes} changes in {phases} phases of {length}");
    }
}
