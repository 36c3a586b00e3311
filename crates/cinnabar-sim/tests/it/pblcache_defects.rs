//! The ten defects of pblcache, one test each: what they did must not happen here.

use crate::fixture::{
    CAPACITY, TestScript, blocks, cache, cache_over, counters, push_out, restart, sectors, spec,
    version,
};
use cinnabar_engine::metadata::superblock::{Geometry, GeometryError};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::volume::Warmth;
use cinnabar_engine::{Failure, IoError, IoOp, Op};
use cinnabar_sim::Stamp;
use cinnabar_sim::script::{cache_read, cache_write, to_backend};

#[test]
fn defect_01_a_partial_hit_waits_for_every_missing_run() {
    let (mut script, volume) = cache();
    for block in [3, 4, 9] {
        script.read(volume, blocks(block, 1)).expect("a read");
    }
    for last in 0..3 {
        let span = blocks(16 * last, 16);
        let read = script.submit_read(volume, span);
        let runs = script.held().filter(|io| to_backend(io)).count();
        assert_eq!(runs, if last == 0 { 3 } else { 1 }, "runs that are missing");
        // In another order than the one they were asked for in.
        let is_read = |io: &&_| to_backend(io) && matches!(io.op, IoOp::Read { .. });
        while let Some(newest) = script.held().filter(is_read).map(|io| io.id).last() {
            assert!(!script.is_answered(read), "answered with {newest:?} under way");
            assert!(script.complete(|io| io.id == newest));
        }
        assert_eq!(script.values(read, span), Ok(version(span, 0)));
    }
}

#[test]
fn defect_02_a_slow_read_miss_does_not_bury_a_newer_write() {
    for read_first in [true, false] {
        let (mut script, volume) = cache();
        let span = blocks(7, 1);
        let read = script.submit_read(volume, span);
        assert!(script.touch(to_backend), "the miss has read the old block, but is slow");
        let write = script.submit_write(volume, span, 1, false);
        let is_write = |io: &_| to_backend(io) && matches!(io.op, IoOp::Write { .. });
        if read_first || !script.complete(is_write) {
            assert!(script.complete(|io| matches!(io.op, IoOp::Read { .. })));
        }
        script.settle();
        assert!(script.answer(write).expect("an answer").is_ok());
        let old_or_new = script.values(read, span).expect("a read");
        assert!(old_or_new == version(span, 0) || old_or_new == version(span, 1));
        for _ in 0..3 {
            assert_eq!(script.read(volume, span), Ok(version(span, 1)));
        }
        let (volume, _) = restart(&mut script, volume);
        assert_eq!(script.read(volume, span), Ok(version(span, 1)));
    }
}

#[test]
fn defect_03_a_clean_restart_keeps_a_segment_that_was_partly_filled() {
    let (mut script, volume) = cache();
    for block in 0..10 {
        script.write(volume, blocks(block, 1), 1).expect("a write");
        script.read(volume, blocks(block, 1)).expect("a read");
    }
    let (volume, warmth) = restart(&mut script, volume);
    assert_eq!(warmth, Warmth::Warm { blocks: 10 });
    for block in 0..10 {
        let span = blocks(block, 1);
        assert_eq!(script.read(volume, span), Ok(version(span, 1)));
    }
    assert_eq!((counters(&script, volume).read_hits, counters(&script, volume).misses), (10, 0));
    // What is filled next must not overwrite what was there.
    script.read(volume, blocks(100, 200)).expect("a read");
    let (volume, warmth) = restart(&mut script, volume);
    assert_eq!(warmth, Warmth::Warm { blocks: 210 });
    assert_eq!(script.read(volume, blocks(0, 10)), Ok(version(blocks(0, 10), 1)));
    assert_eq!(counters(&script, volume).misses, 0);
}

#[test]
fn defect_04_saved_metadata_are_believed_once() {
    let (mut script, volume) = cache();
    script.read(volume, blocks(0, 64)).expect("a read");
    let (volume, warmth) = restart(&mut script, volume);
    assert_eq!(warmth, Warmth::Warm { blocks: 64 });
    // The second session writes over the first one's log and over its blocks, then dies.
    script.write(volume, blocks(0, 32), 1).expect("a write");
    push_out(&mut script, volume, 100, None);
    script.crash();
    let (volume, _) = script.attach(0, spec());
    assert_eq!(script.read(volume, blocks(0, 32)), Ok(version(blocks(0, 32), 1)));
    assert_eq!(script.read(volume, blocks(32, 1000)), Ok(version(blocks(32, 1000), 0)));
}

#[test]
fn defect_04_a_write_right_before_a_crash_is_not_undone_by_saved_metadata() {
    let (mut script, volume) = cache();
    script.read(volume, blocks(0, 64)).expect("a read");
    let (volume, _) = restart(&mut script, volume);
    script.write(volume, blocks(0, 16), 1).expect("a write");
    script.crash();
    let (volume, warmth) = script.attach(0, spec());
    assert_eq!(warmth, Warmth::Warm { blocks: 48 }, "all but what was written");
    assert_eq!(script.read(volume, blocks(0, 16)), Ok(version(blocks(0, 16), 1)));
    assert_eq!(script.read(volume, blocks(16, 48)), Ok(version(blocks(16, 48), 0)));
    assert_eq!(counters(&script, volume).read_hits, 48);
}

#[test]
fn defect_05_a_cache_filled_to_any_point_starts_again() {
    for fill in [1, 254, 255, 256, CAPACITY - 255, CAPACITY - 1, CAPACITY, CAPACITY + 1, 1500] {
        let (mut script, volume) = cache();
        for block in 0..fill {
            script.read(volume, blocks(block, 1)).expect("a read");
        }
        let (volume, warmth) = restart(&mut script, volume);
        assert!(matches!(warmth, Warmth::Warm { blocks } if blocks > 0), "{fill}: {warmth:?}");
        for first in (0..fill).step_by(64) {
            assert_eq!(script.read(volume, blocks(first, 64)), Ok(version(blocks(first, 64), 0)));
        }
        restart(&mut script, volume);
    }
}

#[test]
fn defect_06_any_size_and_alignment_works() {
    // An odd last block; and a backend that only takes whole blocks.
    for (size, align) in [(40 * 8 + 3, 512), (40 * 8, 4096)] {
        let (mut script, volume) = cache_over(size, align);
        let mut model = version(sectors(0, size), 0);
        let mut newest = 0;
        for first in (0..20).chain(size - 20..size) {
            for count in [1, 2, 7, 8, 9, 15, 17] {
                let count = count.min(size - first);
                let span = sectors(first, count);
                newest += 1;
                script.write(volume, span, newest).expect("a write");
                model[first as usize..(first + count) as usize]
                    .copy_from_slice(&version(span, newest));
                let around = sectors(first.saturating_sub(9), 26.min(size - first));
                let expected =
                    &model[(around.offset / 512) as usize..(around.end() / 512) as usize];
                assert_eq!(script.read(volume, around).as_deref(), Ok(expected), "{span:?}");
            }
        }
        assert_eq!(script.read(volume, sectors(0, size)), Ok(model));
    }
}

#[test]
fn defect_06_an_impossible_size_is_an_error() {
    let too_small = Geometry::for_device(Geometry::BYTES_MIN - 1);
    assert!(matches!(too_small, Err(GeometryError::TooSmall { .. })), "{too_small:?}");
    let too_large = Geometry::for_device(u64::MAX);
    assert!(matches!(too_large, Err(GeometryError::TooLarge { .. })), "{too_large:?}");
    for odd in [1, 511, 4095, 4097, 1 << 20] {
        let geometry = Geometry::for_device(Geometry::BYTES_MIN + odd).expect("it is enough");
        assert!(geometry.device_blocks * BLOCK_BYTES <= Geometry::BYTES_MIN + odd);
    }
}

#[test]
fn defect_07_an_error_of_the_cache_device_costs_nothing_but_time() {
    let (mut script, volume) = cache();
    let span = blocks(0, 16);
    script.read(volume, span).expect("a read");
    let (volume, _) = restart(&mut script, volume);
    let read = script.submit_read(volume, span);
    assert!(script.fail(cache_read), "the blocks are on the cache device");
    script.settle();
    assert_eq!(script.values(read, span), Ok(version(span, 0)));
    assert!(script.machine.cache_counters().device_errors > 0);
    // A cache device that takes no more writes: reads and writes go on all the same.
    for block in 100..1000 {
        let (span, value) = (blocks(block, 1), block % 2);
        let write = (value == 1).then(|| script.submit_write(volume, span, 1, false));
        while script.fail(cache_write) || script.complete(to_backend) {}
        let read = script.submit_read(volume, span);
        while script.fail(cache_write) || script.complete(|_| true) {}
        assert_eq!(script.values(read, span), Ok(version(span, value)));
        assert!(write.is_none_or(|id| script.answer(id).is_some_and(|a| a.is_ok())));
    }
}

#[test]
fn defect_07_an_error_of_the_backend_is_told_and_nothing_of_it_is_cached() {
    let failure = Failure::Io(IoError::Io);
    let (mut script, volume) = cache();
    let span = blocks(0, 16);
    let read = script.submit_read(volume, span);
    assert!(script.fail(to_backend));
    script.settle();
    assert_eq!(script.values(read, span), Err(failure));
    assert_eq!(script.read(volume, span), Ok(version(span, 0)));
    assert_eq!(counters(&script, volume).read_hits, 0, "nothing was cached of the failed read");

    // A failed write may have happened or not: only the backend knows.
    for happened in [false, true] {
        let write = script.submit_write(volume, span, 1, false);
        let is_write = |io: &_| to_backend(io) && matches!(io.op, IoOp::Write { .. });
        if happened {
            assert!(script.touch(is_write));
        }
        assert!(script.fail(is_write));
        script.settle();
        assert_eq!(script.answer(write).expect("an answer").map(|_| ()), Err(failure));
        let hits = counters(&script, volume).read_hits;
        assert_eq!(script.read(volume, span), Ok(version(span, u64::from(happened))));
        assert_eq!(counters(&script, volume).read_hits, hits, "the blocks were dropped");
    }
}

#[test]
fn defect_08_two_misses_of_one_block_make_one_copy() {
    for first_first in [true, false] {
        let (mut script, volume) = cache();
        let span = blocks(5, 1);
        let reads = [script.submit_read(volume, span), script.submit_read(volume, span)];
        if !first_first && script.held().count() > 1 {
            let newest = script.held().last().map(|io| io.id);
            assert!(script.complete(|io| Some(io.id) == newest));
        }
        script.settle();
        for read in reads {
            assert_eq!(script.values(read, span), Ok(version(span, 0)));
        }
        let cached = |script: &TestScript| script.machine.cache_counters().cached_blocks;
        assert_eq!(cached(&script), 1);
        script.machine.check_invariants();
        // A write leaves no copy behind, and pushing one out takes no mapping with it.
        script.write(volume, span, 1).expect("a write");
        assert_eq!(script.read(volume, span), Ok(version(span, 1)));
        push_out(&mut script, volume, 100, None);
        script.settle();
        assert_eq!(script.read(volume, span), Ok(version(span, 1)));
        script.machine.check_invariants();
    }
}

#[test]
fn defect_09_a_slot_is_not_reused_while_it_is_read() {
    let (mut script, volume) = cache();
    let span = blocks(0, 4);
    script.read(volume, span).expect("a read");
    let (volume, _) = restart(&mut script, volume);
    let read = script.submit_read(volume, span);
    let held = script.held().find(|io| cache_read(io)).map(|io| io.id);
    assert!(held.is_some(), "the blocks are on the cache device");
    let segments_freed = script.machine.cache_counters().segments_freed;
    // The medium itself checks that nothing is written over what is being read.
    push_out(&mut script, volume, 100, held);
    let cached = script.machine.cache_counters().cached_blocks;
    assert!(cached > CAPACITY / 2, "the cache fills up meanwhile: {cached} blocks");
    assert!(!script.is_answered(read));
    assert!(script.complete(cache_read));
    script.settle();
    assert_eq!(script.values(read, span), Ok(version(span, 0)));
    // Now the hand passes.
    push_out(&mut script, volume, 100, None);
    let freed = script.machine.cache_counters().segments_freed - segments_freed;
    assert!(freed >= 16, "only {freed} segments were freed");
    script.machine.check_invariants();
}

#[test]
fn defect_09_a_pin_ends_with_its_read() {
    let (mut script, volume) = cache();
    script.read(volume, blocks(0, 400)).expect("a read");
    let (volume, _) = restart(&mut script, volume);
    // Reads of all kinds: hits, and the old content for partial writes.
    for block in (0..400).step_by(7) {
        script.read(volume, blocks(block, 2)).expect("a read");
        script.write(volume, sectors(block * 8 + 19, 3), 1).expect("a write");
    }
    push_out(&mut script, volume, 1000, None);
    let freed = script.machine.cache_counters().segments_freed;
    assert!(freed >= 16, "only {freed} segments were freed: one is pinned without end");
}

#[test]
fn defect_10_overlapping_writes_have_one_order() {
    for newest_first in [false, true] {
        let (mut script, volume) = cache();
        script.read(volume, blocks(0, 4)).expect("a read");
        let spans = [sectors(0, 20), sectors(4, 20), sectors(12, 3), sectors(3, 29)];
        let writes: Vec<_> = (1..)
            .zip(spans)
            .map(|(version, span)| script.submit_write(volume, span, version, false))
            .collect();
        loop {
            let ids: Vec<_> = script.held().map(|io| io.id).collect();
            let next = if newest_first { ids.last() } else { ids.first() };
            let Some(next) = next else { break };
            assert!(script.complete(|io| io.id == *next));
        }
        script.settle();
        for write in writes {
            assert!(script.answer(write).expect("an answer").is_ok());
        }
        let backend: Vec<_> =
            (0..32).map(|sector| script.media.backends[0].sector(sector)).collect();
        assert_eq!(script.read(volume, blocks(0, 4)), Ok(backend.clone()));
        let (volume, _) = restart(&mut script, volume);
        assert_eq!(script.read(volume, blocks(0, 4)), Ok(backend));
    }
}

#[test]
fn defect_10_flush_fua_trim_and_zeroes_mean_what_they_say() {
    let (mut script, volume) = cache();
    let lost = |script: &TestScript, span: ByteSpan| {
        (span.offset / 512..span.end() / 512)
            .any(|sector| script.media.backends[0].not_durable(sector).is_some())
    };
    let (plain, span) = (blocks(0, 4), blocks(8, 4));
    script.write(volume, plain, 1).expect("a write");
    assert!(lost(&script, plain), "without a flush, a power cut may take it back");
    let flush = script.submit(volume, Op::Flush);
    assert!(!script.is_answered(flush), "answered before the backend has flushed");
    script.settle();
    assert!(script.answer(flush).expect("an answer").is_ok());
    assert!(!lost(&script, plain), "a flush makes durable what was answered before");

    let fua = script.submit_write(volume, span, 1, true);
    script.settle();
    assert!(script.answer(fua).expect("an answer").is_ok());
    assert!(!lost(&script, span), "FUA");

    script.read(volume, span).expect("a read");
    let zeroes = script
        .submit(volume, Op::WriteZeroes { span: sectors(66, 13), fua: true, may_punch: true });
    script.settle();
    assert!(script.answer(zeroes).expect("an answer").is_ok());
    assert!(!lost(&script, span), "FUA of zeroes");
    let mut expected = version(span, 1);
    expected[2..15].fill(Stamp::ZERO);
    assert_eq!(script.read(volume, span), Ok(expected));

    let trim = script.submit(volume, Op::Trim { span, fua: false });
    script.settle();
    assert!(script.answer(trim).expect("an answer").is_ok());
    let backend: Vec<_> = (64..96).map(|sector| script.media.backends[0].sector(sector)).collect();
    assert_eq!(script.read(volume, span), Ok(backend), "a trimmed block is not cached");
}
