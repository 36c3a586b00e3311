//! Writes in active regions wait for no record, and a crash costs what is cached of these.

use super::rig::{Nothing, Rig, volume};
use crate::bounds::Bounds;
use crate::config::{Config, Eviction};
use crate::mutant::{Mutant, Mutants};
use crate::seam::{Command, Op, Payload, RequestId};
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use crate::volume::VolumeSpec;

const V: VolumeId = VolumeId(0);
const SECOND: u64 = 1_000_000_000;

/// A volume in a cache with regions, of which so many blocks may be in doubt.
fn rig(mutants: Mutants, doubt_blocks: u64) -> Rig {
    let bounds = Bounds { regions: 4, doubt_blocks, ..Bounds::default() };
    let eviction = Eviction::Clock;
    let mut rig = Rig::open_with(Config { eviction, bounds, mutants, ..Config::default() }, 4080);
    let spec = VolumeSpec { size_bytes: 4096 * BLOCK_BYTES, ..volume("v") };
    rig.ask(vec![Command::Attach(spec)]);
    rig
}

fn submit(rig: &mut Rig, block: u64) -> RequestId {
    let (span, data) = (ByteSpan::new(block * BLOCK_BYTES, BLOCK_BYTES), Nothing::alloc(1));
    rig.submit(V, Op::Write { span, data, fua: false })
}

fn write(rig: &mut Rig, block: u64) {
    let id = submit(rig, block);
    rig.answer(id).expect("it is written");
}

/// All copies are on flash, and flushes cover what they hold.
fn settle(rig: &mut Rig) {
    for _ in 0..2 {
        rig.wait(SECOND);
    }
}

/// Blocks 0 to 9 on flash. The second write to them makes their region active.
fn active(mutants: Mutants, doubt_blocks: u64) -> Rig {
    let mut rig = rig(mutants, doubt_blocks);
    (0..10).for_each(|block| write(&mut rig, block));
    settle(&mut rig);
    write(&mut rig, 0);
    write(&mut rig, 1);
    assert_eq!(rig.engine.cache_counters().active_regions, 1, "the second one opens it");
    rig
}

fn trim(rig: &mut Rig, block: u64) {
    let span = ByteSpan::new(block * BLOCK_BYTES, BLOCK_BYTES);
    let id = rig.submit(V, Op::Trim { span, fua: false });
    rig.answer(id).expect("it is trimmed");
}

fn after_a_crash(rig: Rig) -> u64 {
    let mut rig = rig.crash();
    rig.ask(vec![Command::Attach(VolumeSpec { size_bytes: 4096 * BLOCK_BYTES, ..volume("v") })]);
    rig.engine.check_invariants();
    rig.engine.store.counters().cached_blocks
}

#[test]
fn a_write_in_an_active_region_waits_for_no_record() {
    let mut rig = active(Mutants::default(), 4096);
    rig.holds = true;
    let in_region = submit(&mut rig, 2);
    assert!(rig.is_answered(in_region), "although the device does not answer");
    let counters = rig.engine.volume_counters(V).expect("attached");
    assert_eq!((counters.invalidation_waits, counters.region_writes), (2, 1));
    rig.release();
}

#[test]
fn a_crash_costs_what_is_cached_of_active_regions_and_no_more() {
    let mut rig = active(Mutants::default(), 4096);
    (300..310).for_each(|block| write(&mut rig, block));
    settle(&mut rig);
    assert_eq!(after_a_crash(rig), 10, "those of the other region");
}

#[test]
fn regions_that_are_idle_or_of_a_volume_that_has_left_are_not_in_doubt() {
    let mut rig = active(Mutants::default(), 4096);
    trim(&mut rig, 5);
    settle(&mut rig);
    rig.wait(5 * SECOND);
    assert_eq!(rig.engine.cache_counters().active_regions, 0);
    assert_eq!(after_a_crash(rig), 9, "all but the one that was trimmed");
    let mut rig = active(Mutants::default(), 4096);
    settle(&mut rig);
    rig.ask(vec![Command::Detach(V)]);
    rig.ask(vec![Command::Seal(V, None)]);
    assert_eq!(after_a_crash(rig), 10);
}

/// The blocks found after a crash, where the newer copy of block 0 has gone with its segment, or is
/// still there.
fn copies_of_what_was_superseded(mutants: Mutants, evicts: bool) -> u64 {
    let mut rig = active(mutants, 4096);
    // The newer copy comes to flash in a segment of its own, and the region ends.
    settle(&mut rig);
    rig.wait(6 * SECOND);
    assert_eq!(rig.engine.cache_counters().active_regions, 0);
    if evicts {
        let slot = rig.engine.store.find(crate::descriptors::Key { volume: 0, block: 0 });
        let slot = slot.expect("it is cached");
        let segment = rig.engine.store.log.segment_of(slot);
        let version = rig.engine.store.log.sequence;
        // What emptying its chunk would record.
        let first = segment * rig.engine.store.log.geometry.segment_slots();
        let header =
            (first..slot).rev().find(|slot| rig.engine.store.descriptors.key(*slot).is_none());
        let record = crate::metadata::journal::Record::ChunkInvalidation {
            slot: header.expect("a chunk has a header"),
            version,
        };
        rig.engine.store.journal.append(record);
        settle(&mut rig);
    }
    after_a_crash(rig)
}

#[test]
fn older_copies_do_not_come_back_when_the_newer_one_has_gone() {
    let none = Mutants::default();
    assert_eq!(copies_of_what_was_superseded(none, false), 10);
    assert_eq!(copies_of_what_was_superseded(none, true), 8);
}

#[test]
fn older_copies_without_a_record_are_found() {
    let mutants = Mutants::only(Mutant::OldCopiesNotSuperseded);
    assert_eq!(copies_of_what_was_superseded(mutants, true), 9, "one is stale");
}

#[test]
fn a_record_that_means_the_newer_copy_too_is_found() {
    let mutants = Mutants::only(Mutant::NewCopySuperseded);
    assert_eq!(copies_of_what_was_superseded(mutants, false), 9);
}

/// Blocks in doubt at most, while five regions of 60 cached blocks are written at once.
fn most_in_doubt(mutants: Mutants) -> u64 {
    let mut rig = rig(mutants, 100);
    for region in 0..5 {
        (0..60).for_each(|block| write(&mut rig, region * 256 + block));
    }
    settle(&mut rig);
    let mut most = 0;
    for block in 0..40 {
        for region in 0..5 {
            write(&mut rig, region * 256 + block);
            most = most.max(rig.engine.cache_counters().doubt_blocks);
        }
    }
    most
}

#[test]
fn what_is_in_doubt_is_bounded() {
    let bounded = most_in_doubt(Mutants::default());
    assert!((30..=100).contains(&bounded), "{bounded}");
    let found = most_in_doubt(Mutants::only(Mutant::DoubtNotBounded));
    assert!(found > 150, "the mutant is found: {found}");
}

#[test]
fn without_regions_every_write_to_a_copy_on_flash_waits() {
    let bounds = Bounds { regions: 0, ..Bounds::default() };
    let config = Config { eviction: Eviction::Clock, bounds, ..Config::default() };
    let mut rig = Rig::open_with(config, 4080);
    rig.ask(vec![Command::Attach(VolumeSpec { size_bytes: 4096 * BLOCK_BYTES, ..volume("v") })]);
    (0..10).for_each(|block| write(&mut rig, block));
    settle(&mut rig);
    (0..10).for_each(|block| write(&mut rig, block));
    let counters = rig.engine.volume_counters(V).expect("attached");
    assert_eq!((counters.invalidation_waits, counters.region_writes), (10, 0));
}
