//! Cached blocks that rot on the cache device: counted, missed, and never served.

use crate::fixture::{CAPACITY, blocks, cache, counters, restart, sectors, version};

#[test]
fn a_rotten_block_is_a_counted_miss_once() {
    let (mut script, volume) = cache();
    let span = blocks(0, 32);
    script.read(volume, span).expect("a read");
    let (volume, _) = restart(&mut script, volume);
    script.media.cache.rot_everything();
    assert_eq!(script.read(volume, span), Ok(version(span, 0)));
    assert_eq!(script.machine.cache_counters().checksum_failures, 32);
    let seen = counters(&script, volume);
    assert_eq!((seen.blocks_read, seen.read_hits, seen.misses), (32, 0, 32));
    // The backend's copy has taken its place.
    assert_eq!(script.read(volume, span), Ok(version(span, 0)));
    assert_eq!(counters(&script, volume).read_hits, 32);
    assert_eq!(script.machine.cache_counters().checksum_failures, 32);
}

#[test]
fn a_partial_write_is_not_merged_with_a_rotten_block() {
    let (mut script, volume) = cache();
    let span = blocks(0, 4);
    script.write(volume, span, 1).expect("a write");
    script.read(volume, span).expect("a read");
    let (volume, _) = restart(&mut script, volume);
    script.media.cache.rot_everything();
    script.write(volume, sectors(3, 26), 2).expect("a write");
    let mut expected = version(span, 1);
    expected[3..29].copy_from_slice(&version(sectors(3, 26), 2));
    assert_eq!(script.read(volume, span).as_ref(), Ok(&expected));
    assert_eq!(script.machine.cache_counters().checksum_failures, 2, "both edges were rotten");
    let (volume, _) = restart(&mut script, volume);
    assert_eq!(script.read(volume, span), Ok(expected));
}

#[test]
fn a_rotten_block_is_not_reinserted() {
    let (mut script, volume) = cache();
    let span = blocks(0, 200);
    script.read(volume, span).expect("a read");
    let (volume, _) = restart(&mut script, volume);
    // Half of the segment dies, so that the cleaner takes it and wants to reinsert the rest, which
    // has been used often; then that rots.
    for _ in 0..3 {
        script.read(volume, span).expect("a read");
    }
    script.write(volume, blocks(0, 100), 1).expect("a write");
    let failures =
        |script: &crate::fixture::TestScript| script.machine.cache_counters().checksum_failures;
    assert_eq!(failures(&script), 0);
    script.media.cache.rot_everything();
    for block in (1000..1000 + 4 * CAPACITY).step_by(64) {
        for _ in 0..6 {
            script.read(volume, blocks(block, 64)).expect("a read");
        }
    }
    assert!(failures(&script) >= 90, "only {} were noticed", failures(&script));
    let rest = blocks(100, 100);
    assert_eq!(script.read(volume, rest), Ok(version(rest, 0)));
}
