//! Blocks that are written in part while they are not cached: kept by sectors, and never a sector
//! that is not the newest. Each scene also runs with the mutant that it finds.

use crate::fixture::{
    CAPACITY, TestScript, blocks, cache, cache_of, cache_over, restart, sectors, spec,
};
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES, VolumeId};
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{Bound, Bounds, Command, Config, IoId, IoOp, Op, Payload};
use cinnabar_sim::Stamp;
use cinnabar_sim::script::{cache_read, to_backend};
use cinnabar_sim::stamp::Stamped;

/// The block that scenes are about, in sectors.
const BLOCK: ByteSpan = ByteSpan::new(80 * SECTOR_BYTES, BLOCK_BYTES);

fn cache_with(mutants: Mutants) -> (TestScript, VolumeId) {
    cache_of(Config { mutants, ..Config::default() })
}

/// What the block holds: this version of each of its sectors.
fn versions(of: [u64; 8]) -> Vec<Stamp> {
    (80..88).zip(of).map(|(sector, version)| Stamp::new(0, sector, version)).collect()
}

fn part(first: u64, count: u64, version: u64) -> Vec<Stamp> {
    (first..first + count).map(|sector| Stamp::new(0, sector, version)).collect()
}

fn misses(script: &TestScript, volume: VolumeId) -> u64 {
    crate::fixture::counters(script, volume).misses
}

fn write(script: &mut TestScript, volume: VolumeId, first: u64, count: u64, version: u64) {
    script.write(volume, sectors(first, count), version).expect("a write");
}

/// A write whose end the test decides: `lands` before it fails, or not.
fn fail_write(script: &mut TestScript, volume: VolumeId, span: ByteSpan, lands: bool) {
    let id = script.submit_write(volume, span, 9, false);
    script.settle_but(to_backend);
    if lands {
        assert!(script.touch(to_backend));
    }
    assert!(script.fail(to_backend), "the backend has it");
    script.settle();
    script.answer(id).expect("answered").expect_err("it failed");
}

/// Asserts that the sound engine reads `right` and that the mutant does not.
fn tells_apart(
    mutant: Mutant,
    right: &[Stamp],
    scene: impl Fn(&mut TestScript, VolumeId) -> Vec<Stamp>,
) {
    let read = |mutants| {
        let (mut script, volume) = cache_with(mutants);
        scene(&mut script, volume)
    };
    assert_eq!(read(Mutants::default()), right);
    assert_ne!(read(Mutants::only(mutant)), right, "{mutant:?} is not found");
}

#[test]
fn writes_of_its_parts_make_a_block_whole() {
    let (mut script, volume) = cache();
    // Misaligned, one behind the other: each end of one is completed by the beginning of the next.
    for (first, version) in [(75, 1), (83, 2), (91, 3), (99, 4)] {
        write(&mut script, volume, first, 8, version);
    }
    assert_eq!(script.read(volume, BLOCK), Ok(versions([1, 1, 1, 2, 2, 2, 2, 2])));
    let span = blocks(10, 3);
    let mut all = part(80, 3, 1);
    all.extend([part(83, 8, 2), part(91, 8, 3), part(99, 5, 4)].concat());
    assert_eq!(script.read(volume, span), Ok(all.clone()));
    let seen = script.machine.cache_counters();
    assert_eq!((misses(&script, volume), seen.partials_completed, seen.partial_blocks), (0, 3, 2));
    // Whole blocks are cached like any others.
    let (volume, _) = restart(&mut script, volume);
    assert_eq!(script.read(volume, span), Ok(all));
    assert_eq!(misses(&script, volume), 0);
    assert_eq!(script.machine.cache_counters().partial_blocks, 0, "the others are gone");
}

#[test]
fn the_newest_of_overlapping_parts_counts() {
    let (mut script, volume) = cache();
    write(&mut script, volume, 81, 4, 1);
    write(&mut script, volume, 83, 2, 2);
    write(&mut script, volume, 82, 1, 3);
    assert_eq!(
        script.read(volume, sectors(81, 4)),
        Ok(versions([0, 1, 3, 2, 2, 0, 0, 0])[1..5].to_vec())
    );
    assert_eq!(misses(&script, volume), 0);
    write(&mut script, volume, 80, 2, 4);
    write(&mut script, volume, 85, 3, 5);
    assert_eq!(script.read(volume, BLOCK), Ok(versions([4, 4, 3, 2, 2, 5, 5, 5])));
    assert_eq!(misses(&script, volume), 0);
}

#[test]
fn sectors_that_are_not_there_come_from_the_backend() {
    tells_apart(Mutant::PartialServedWhole, &part(83, 5, 0), |script, volume| {
        write(script, volume, 80, 3, 1);
        let read = script.read(volume, sectors(80, 3));
        assert_eq!((read, misses(script, volume)), (Ok(part(80, 3, 1)), 0));
        script.read(volume, sectors(83, 5)).expect("a read")
    });
    let (mut script, volume) = cache();
    write(&mut script, volume, 80, 3, 1);
    // A read with sectors of both kinds brings the whole block.
    let mixed = script.read(volume, sectors(82, 2));
    assert_eq!(mixed, Ok(versions([1, 1, 1, 0, 0, 0, 0, 0])[2..4].to_vec()));
    assert_eq!(script.machine.cache_counters().partial_blocks, 0);
    assert_eq!(script.read(volume, BLOCK), Ok(versions([1, 1, 1, 0, 0, 0, 0, 0])));
    assert_eq!(misses(&script, volume), 1);
}

#[test]
fn an_incomplete_block_is_never_taken_for_a_whole_one() {
    let right = versions([1, 1, 1, 0, 0, 0, 0, 0]);
    tells_apart(Mutant::PartialTakenForWhole, &right, |script, volume| {
        write(script, volume, 80, 3, 1);
        script.read(volume, BLOCK).expect("a read")
    });
    // Nor by way of the SSD, after a clean stop or a crash.
    tells_apart(Mutant::PartialTakenForWhole, &right, |script, volume| {
        write(script, volume, 80, 3, 1);
        let (volume, _) = restart(script, volume);
        script.read(volume, BLOCK).expect("a read")
    });
    let (mut script, volume) = cache();
    write(&mut script, volume, 80, 3, 1);
    script.wait(4_000_000_000);
    script.settle();
    script.crash();
    let (volume, _) = script.attach(0, spec());
    script.settle();
    assert_eq!(script.read(volume, sectors(80, 3)), Ok(part(80, 3, 1)));
    assert_eq!(misses(&script, volume), 1, "what RAM had is gone");
}

/// The backend has the second version of what RAM has the first one of.
#[test]
fn what_was_known_goes_when_a_write_begins() {
    tells_apart(Mutant::PartialNotTakenOut, &part(80, 3, 9), |script, volume| {
        write(script, volume, 80, 3, 1);
        fail_write(script, volume, sectors(80, 3), true);
        script.read(volume, sectors(80, 3)).expect("a read")
    });
    // Whole blocks within a write, and writes that keep nothing.
    tells_apart(Mutant::PartialNotTakenOut, &part(80, 3, 9), |script, volume| {
        write(script, volume, 80, 3, 1);
        fail_write(script, volume, blocks(9, 3), true);
        script.read(volume, sectors(80, 3)).expect("a read")
    });
}

#[test]
fn nothing_of_a_write_that_failed_is_kept() {
    let right = versions([1, 1, 1, 0, 0, 0, 0, 0])[..4].to_vec();
    tells_apart(Mutant::FailedPartialKept, &right, |script, volume| {
        write(script, volume, 80, 3, 1);
        fail_write(script, volume, sectors(82, 2), false);
        script.read(volume, sectors(80, 4)).expect("a read")
    });
}

#[test]
fn a_block_is_completed_when_the_backend_has_all_of_it() {
    let completed = |script: &TestScript| script.machine.cache_counters().partials_completed;
    let (mut script, volume) = cache();
    write(&mut script, volume, 80, 3, 1);
    fail_write(&mut script, volume, sectors(83, 5), true);
    assert_eq!(completed(&script), 0, "nothing of it is known");
    write(&mut script, volume, 80, 3, 2);
    write(&mut script, volume, 83, 5, 3);
    assert_eq!(completed(&script), 1);
    // Neither one that is cached is completed, nor one that is written whole.
    write(&mut script, volume, 81, 2, 4);
    write(&mut script, volume, 160, 3, 5);
    write(&mut script, volume, 160, 8, 6);
    assert_eq!(completed(&script), 1);
}

#[test]
fn zeroes_trims_and_invalidations_drop_what_was_known() {
    let zeroed = [vec![Stamp::ZERO], part(81, 2, 1)].concat();
    tells_apart(Mutant::PartialOutlivesTrim, &zeroed, |script, volume| {
        write(script, volume, 80, 3, 1);
        let op = Op::WriteZeroes { span: sectors(80, 1), fua: false, may_punch: false };
        let id = script.submit(volume, op);
        script.settle();
        script.answer(id).expect("answered").expect("well");
        script.read(volume, sectors(80, 3)).expect("a read")
    });
    tells_apart(Mutant::PartialOutlivesTrim, &part(80, 3, 7), |script, volume| {
        write(script, volume, 80, 3, 1);
        script.media.backends[0].write_behind(80, &part(80, 3, 7));
        let id = script.submit(volume, Op::Invalidate { span: sectors(80, 1) });
        script.settle();
        script.answer(id).expect("answered").expect("well");
        script.read(volume, sectors(80, 3)).expect("a read")
    });
    let (mut script, volume) = cache();
    write(&mut script, volume, 80, 3, 1);
    let id = script.submit(volume, Op::Trim { span: sectors(0, 800), fua: false });
    script.settle();
    script.answer(id).expect("answered").expect("well");
    assert_eq!(script.machine.cache_counters().partial_blocks, 0);
}

/// Another host writes while the volume is away; its next attachment gets the same index.
#[test]
fn what_was_known_goes_with_its_volume() {
    tells_apart(Mutant::PartialOutlivesVolume, &part(80, 3, 7), |script, volume| {
        write(script, volume, 80, 3, 1);
        script.detach(volume);
        script.media.backends[0].write_behind(80, &part(80, 3, 7));
        let (volume, _) = script.attach(0, spec());
        script.read(volume, sectors(80, 3)).expect("a read")
    });
}

#[test]
fn a_rest_that_rots_is_not_merged() {
    let right = versions([1, 1, 1, 2, 2, 1, 1, 1]);
    tells_apart(Mutant::EdgeNotVerified, &right, |script, volume| {
        script.write(volume, blocks(8, 8), 1).expect("a write");
        script.read(volume, blocks(8, 8)).expect("a read");
        let (volume, _) = restart(script, volume);
        script.media.cache.rot_everything();
        let id = script.submit_write(volume, sectors(83, 2), 2, false);
        assert!(script.held().any(cache_read), "the rest is read from the SSD");
        script.settle();
        script.answer(id).expect("answered").expect("well");
        script.read(volume, BLOCK).expect("a read")
    });
}

#[test]
fn parts_in_flight_wait_for_each_other() {
    let (mut script, volume) = cache();
    let first = script.submit_write(volume, sectors(80, 3), 1, false);
    let second = script.submit_write(volume, sectors(83, 5), 2, false);
    let read = script.submit_read(volume, BLOCK);
    assert_eq!(script.held().filter(|io| to_backend(io)).count(), 1);
    // The first one fails: what it wrote is not known, nor is it merged.
    assert!(script.touch(to_backend) && script.fail(to_backend));
    script.answer(first).expect("answered").expect_err("it failed");
    assert!(!script.is_answered(second) && !script.is_answered(read));
    assert!(script.complete(to_backend));
    script.answer(second).expect("answered").expect("well");
    script.settle();
    assert_eq!(script.values(read, BLOCK), Ok(versions([1, 1, 1, 2, 2, 2, 2, 2])));
    assert_eq!(misses(&script, volume), 1);
}

#[test]
fn nothing_of_a_late_write_is_kept_whenever_it_ends() {
    let (mut script, volume) = cache();
    write(&mut script, volume, 80, 3, 1);
    let id = script.submit_write(volume, sectors(82, 6), 2, false);
    let late: IoId = script.held().find(|io| to_backend(io)).expect("it is under way").id;
    script.overdue(late);
    script.answer(id).expect("its time is over").expect_err("so");
    let read = script.submit_read(volume, BLOCK);
    assert!(!script.is_answered(read), "the write may still land");
    script.settle();
    assert_eq!(script.values(read, BLOCK), Ok(versions([1, 1, 2, 2, 2, 2, 2, 2])));
    let seen = script.machine.cache_counters();
    assert_eq!((misses(&script, volume), seen.partials_read), (1, 0));
}

#[test]
fn a_backend_of_whole_blocks_leaves_nothing_incomplete() {
    let (mut script, volume) = cache_over(8 * CAPACITY * 8, 4096);
    write(&mut script, volume, 83, 2, 1);
    let seen = script.machine.cache_counters();
    assert_eq!((seen.partial_blocks, seen.cached_blocks), (0, 1), "its rest has been read");
    assert_eq!(script.read(volume, BLOCK), Ok(versions([0, 0, 0, 1, 1, 0, 0, 0])));
    assert_eq!(misses(&script, volume), 0);
}

/// The backend may have lost the older part: it must not come back with the newer one.
#[test]
fn after_a_flush_that_failed_parts_are_not_put_together() {
    let (mut script, volume) = cache();
    write(&mut script, volume, 80, 3, 1);
    let id = script.submit(volume, Op::Flush);
    assert!(script.fail(|io| to_backend(io) && matches!(io.op, IoOp::Flush)));
    script.answer(id).expect("answered").expect_err("it failed");
    script.media.backends[0].write_behind(80, &part(80, 3, 0));
    write(&mut script, volume, 83, 5, 2);
    assert_eq!(script.machine.cache_counters().partials_completed, 0);
    assert_eq!(script.read(volume, BLOCK), Ok(versions([0, 0, 0, 2, 2, 2, 2, 2])));
}

#[test]
fn a_full_table_gives_up_the_oldest_block() {
    let bounds = Bounds { partial_blocks: 2, ..Bounds::default() };
    let (mut script, volume) = cache_of(Config { bounds, ..Config::default() });
    for first in [80, 160, 240] {
        write(&mut script, volume, first, 3, 1);
    }
    let seen = script.machine.cache_counters();
    assert_eq!((seen.partial_blocks, seen.partials_dropped), (2, 1));
    assert_eq!(script.machine.crossings().of(Bound::PartialBlocks), 1);
    for (first, missed) in [(160, 0), (240, 0), (80, 1)] {
        assert_eq!(script.read(volume, sectors(first, 3)), Ok(part(first, 3, 1)));
        assert_eq!(misses(&script, volume), missed, "sector {first}");
    }
}

#[test]
fn the_last_block_of_a_volume_that_ends_within_it_becomes_whole() {
    let (mut script, volume) = cache_over(8 * CAPACITY * 8 + 3, 512);
    let first = 8 * CAPACITY * 8;
    write(&mut script, volume, first + 1, 2, 1);
    assert_eq!(script.machine.cache_counters().partial_blocks, 1);
    write(&mut script, volume, first, 1, 2);
    let read = script.read(volume, sectors(first, 3));
    assert_eq!(read, Ok([part(first, 1, 2), part(first + 1, 2, 1)].concat()));
    let seen = script.machine.cache_counters();
    assert_eq!((misses(&script, volume), seen.partials_completed), (0, 1));
}

#[test]
fn without_a_device_nothing_is_known() {
    let (mut script, volume) = cache();
    write(&mut script, volume, 80, 3, 1);
    script.command(Command::Abandon).expect("it goes on without");
    assert_eq!(script.machine.cache_counters().partial_blocks, 0);
    write(&mut script, volume, 81, 1, 2);
    let right = versions([1, 2, 1, 0, 0, 0, 0, 0])[..3].to_vec();
    assert_eq!(script.read(volume, sectors(80, 3)), Ok(right));
    assert_eq!(misses(&script, volume), 1);
}

/// The guest may use its own memory's other sectors for something else.
#[test]
fn only_the_sectors_asked_for_are_copied() {
    let (mut script, volume) = cache();
    write(&mut script, volume, 80, 6, 1);
    let data = Stamped::alloc(1);
    data.set(0, &versions([5; 8]));
    let op = Op::Read { span: sectors(82, 2), data: data.clone() };
    let id = script.submit(volume, op);
    script.answer(id).expect("at once").expect("well");
    assert_eq!(data.get(0, 8), versions([5, 5, 1, 1, 5, 5, 5, 5]));
}

/// Modes that keep nothing still take out what was known.
#[test]
fn a_volume_that_keeps_no_writes_leaves_no_older_parts() {
    let (mut script, volume) = cache();
    write(&mut script, volume, 80, 3, 1);
    script.detach(volume);
    let around = VolumeSpec { mode: cinnabar_engine::plan::Mode::WriteAround, ..spec() };
    let (volume, _) = script.attach(0, around);
    write(&mut script, volume, 80, 3, 2);
    assert_eq!(script.machine.cache_counters().partial_blocks, 0);
    assert_eq!(script.read(volume, sectors(80, 3)), Ok(part(80, 3, 2)));
}
