//! The end of a volume is answered when the device knows of it, or when nothing that the device
//! says of it is believed any more.

use super::rig::{Nothing, Rig, volume};
use crate::bounds::Bounds;
use crate::config::Config;
use crate::mutant::{Mutant, Mutants};
use crate::seam::{Answer, Command, Event, Failure, IoError, Op, Payload, RequestId};
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use crate::volume::{Belief, ProofToken, Recorded, VolumeSpec, Warmth};

const V: VolumeId = VolumeId(0);

/// A volume that was attached and detached.
fn detached(mutants: Mutants) -> Rig {
    let mut rig = Rig::open_with(Config { mutants, ..Config::default() }, 1020);
    for command in [Command::Attach(volume("v")), Command::Detach(V)] {
        let id = rig.ask(vec![command])[0];
        rig.answer(id).expect("it goes well");
    }
    rig
}

fn seal(rig: &mut Rig, proof: u8) -> RequestId {
    rig.ask(vec![Command::Seal(V, Some(ProofToken([proof; 64])))])[0]
}

/// What the device knows after a crash in the moment in which a seal is answered.
fn sealed_and_crashed(mutants: Mutants) -> Recorded {
    let mut rig = detached(mutants);
    rig.holds = true;
    let sealed = seal(&mut rig, 7);
    if !rig.is_answered(sealed) {
        rig.release();
    }
    assert!(matches!(rig.answer(sealed), Ok(Answer::Done)));
    rig.crash().engine.recorded("v").expect("it is known")
}

/// Else a power cut would bring back the record of a volume that is being written, and the window
/// in which others' writes are not noticed with it.
#[test]
fn a_seal_is_answered_when_its_record_is_durable() {
    let recorded = sealed_and_crashed(Mutants::default());
    assert_eq!(recorded, Recorded { proof: Some(ProofToken([7; 64])), written: false });
}

#[test]
fn the_mutant_that_answers_a_seal_before_is_found() {
    assert!(sealed_and_crashed(Mutants::only(Mutant::SealBeforeDurable)).written);
}

/// What a crash leaves of a volume without a proof, which is dropped.
fn recorded_of_a_dropped_volume(mutants: Mutants) -> Option<Recorded> {
    let spec = VolumeSpec { exclusive: false, ..volume("v") };
    let mut rig = Rig::open_with(Config { mutants, ..Config::default() }, 1020);
    rig.ask(vec![Command::Attach(spec)]);
    rig.ask(vec![Command::Detach(V)]);
    rig.holds = true;
    let sealed = rig.ask(vec![Command::Seal(V, None)])[0];
    let waits = !rig.is_answered(sealed);
    rig.release();
    assert!(rig.answer(sealed).is_ok());
    let recorded = rig.crash().engine.recorded("v");
    assert!(waits || recorded.is_some(), "it is durable before the answer");
    recorded
}

/// A volume without a proof is dropped, and not before that is durable.
#[test]
fn what_can_not_be_proven_is_dropped_before_the_answer() {
    assert_eq!(recorded_of_a_dropped_volume(Mutants::default()), None);
}

#[test]
fn a_volume_whose_end_is_not_recorded_is_found() {
    let recorded = recorded_of_a_dropped_volume(Mutants::only(Mutant::DropNotRecorded));
    assert!(recorded.is_some(), "the crash brings it back");
}

/// The same for one whose last flush failed.
#[test]
fn a_detach_that_failed_is_answered_when_the_volume_is_dropped_durably() {
    let mut rig = Rig::open(1020);
    rig.ask(vec![Command::Attach(volume("v"))]);
    rig.flush_fails = true;
    rig.holds = true;
    let detached = rig.ask(vec![Command::Detach(V)])[0];
    assert!(!rig.is_answered(detached));
    rig.release();
    assert_eq!(rig.answer(detached).err(), Some(Failure::Io(IoError::Io)));
    assert_eq!(rig.crash().engine.recorded("v"), None);
}

/// The lost device has the record of a volume that is being written, and may come back.
#[test]
fn a_device_lost_between_detach_and_seal_is_not_believed_any_more() {
    let mut rig = detached(Mutants::default());
    let abandoned = rig.ask(vec![Command::Abandon])[0];
    assert!(rig.answer(abandoned).is_ok());
    assert_eq!(rig.generation_bumps, 0);
    let sealed = seal(&mut rig, 7);
    assert!(rig.answer(sealed).is_ok());
    assert_eq!(rig.generation_bumps, 1, "its generation was changed first");
}

#[test]
fn a_device_lost_before_a_seal_is_durable_is_not_believed_any_more() {
    let mut rig = detached(Mutants::default());
    rig.holds = true;
    let sealed = seal(&mut rig, 7);
    let abandoned = rig.ask(vec![Command::Abandon])[0];
    assert_eq!(rig.generation_bumps, 1);
    assert!(rig.answer(sealed).is_ok(), "it does not wait for the device");
    assert!(!rig.is_answered(abandoned));
    rig.release();
    assert!(rig.answer(abandoned).is_ok());
}

/// Its last flush may never end, and its proof never come: the others are not to go without a
/// cache for that.
#[test]
fn a_volume_on_its_way_out_keeps_no_device_from_taking_anothers_place() {
    let mut rig = Rig::open(1020);
    rig.ask(vec![Command::Attach(volume("v"))]);
    rig.holds_flushes = true;
    let left = rig.ask(vec![Command::Detach(V)])[0];
    assert!(!rig.is_answered(left), "its backend is silent");
    for _ in 0..2 {
        let changed = rig
            .ask(vec![Command::Abandon, Command::Replace(Box::new(super::rig::superblock(1020)))]);
        for id in changed {
            assert!(rig.is_answered(id), "it waits for the volume");
            assert!(rig.answer(id).is_ok());
        }
        // The second time it is detached, and waits for its proof.
        rig.release();
    }
    assert_eq!(rig.generation_bumps, 2, "neither lost device is believed");
    assert!(rig.answer(left).is_ok());
    let sealed = seal(&mut rig, 7);
    assert!(rig.answer(sealed).is_ok());
    let known = Recorded { proof: Some(ProofToken([7; 64])), written: false };
    assert_eq!(rig.crash().engine.recorded("v"), Some(known));
}

/// Its backend has grown. If the command failed, the driver would serve more than the engines.
#[test]
fn a_volume_grows_although_the_device_is_lost_meanwhile() {
    let mut rig = Rig::open(1020);
    rig.ask(vec![Command::Attach(volume("v"))]);
    rig.holds = true;
    let grow = Command::Grow(V, 128 * crate::units::BLOCK_BYTES, Some(ProofToken([7; 64])));
    let grown = rig.ask(vec![grow])[0];
    assert!(!rig.is_answered(grown));
    rig.ask(vec![Command::Abandon]);
    assert!(matches!(rig.answer(grown), Ok(Answer::Done)));
}

/// One that ends inside a block doesn't grow, but has a new proof.
#[test]
fn a_proof_is_recorded_of_a_volume_of_any_size() {
    let mut rig = Rig::open(1020);
    let size = 127 * BLOCK_BYTES + 512;
    let spec = VolumeSpec { align_bytes: 512, ..VolumeSpec::new("v".into(), size) };
    rig.ask(vec![Command::Attach(spec)]);
    let reproved = rig.ask(vec![Command::Grow(V, size, Some(ProofToken([9; 64])))])[0];
    assert!(matches!(rig.answer(reproved), Ok(Answer::Done)));
    let grown = rig.ask(vec![Command::Grow(V, size + 512, Some(ProofToken([8; 64])))])[0];
    assert_eq!(rig.answer(grown).map(drop), Err(Failure::Invalid));
    let known = Recorded { proof: Some(ProofToken([9; 64])), written: true };
    assert_eq!(rig.crash().engine.recorded("v"), Some(known));
}

/// A volume with these blocks written, each of which is cached.
fn written(mutants: Mutants, blocks: &[u64]) -> Rig {
    written_with(Config { mutants, ..Config::default() }, blocks)
}

fn written_with(config: Config, blocks: &[u64]) -> Rig {
    let eviction = crate::config::Eviction::Clock;
    let mut rig = Rig::open_with(Config { eviction, ..config }, 4080);
    rig.ask(vec![Command::Attach(volume("v"))]);
    for block in blocks {
        let (span, data) = (ByteSpan::new(block * BLOCK_BYTES, BLOCK_BYTES), Nothing::alloc(1));
        let written = rig.submit(V, Op::Write { span, data, fua: false });
        rig.answer(written).expect("it is written");
    }
    rig
}

/// Blocks of the volume that a crash leaves.
fn believed_after_a_crash(rig: Rig) -> u64 {
    let mut rig = rig.crash();
    rig.ask(vec![Command::Attach(volume("v"))]);
    rig.engine.store.counters().cached_blocks
}

/// The copy of a write that its server may have lost, in the index that is found after a crash.
fn copies_of_what_a_server_lost(mutants: Mutants, discards: bool) -> u64 {
    let mut rig = written(mutants, &[0]);
    if discards {
        let discarded = rig.ask(vec![Command::Discard(V)])[0];
        assert!(rig.answer(discarded).is_ok());
    }
    // The copy goes to the device, and the server, which is back, is flushed.
    rig.wait(2_000_000_000);
    rig.wait(2_000_000_000);
    believed_after_a_crash(rig)
}

#[test]
fn no_flush_covers_what_a_server_may_have_lost() {
    assert_eq!(copies_of_what_a_server_lost(Mutants::default(), false), 1);
    assert_eq!(copies_of_what_a_server_lost(Mutants::default(), true), 0);
}

#[test]
fn a_flush_that_covers_what_a_server_may_have_lost_is_found() {
    assert_eq!(copies_of_what_a_server_lost(Mutants::only(Mutant::DiscardedCovered), true), 1);
}

/// The copies found after a crash, of two writes: one that a server may have lost, while what is to
/// drop it waits for a trim beside it, and another one.
fn copies_while_an_invalidation_waits(mutants: Mutants, ends: bool) -> u64 {
    let mut rig = written(mutants, &[0, 2]);
    rig.holds_flushes = true;
    let span = ByteSpan::new(BLOCK_BYTES, BLOCK_BYTES);
    let trimmed = rig.submit(V, Op::Trim { span, fua: true });
    let invalidated = rig.submit(V, Op::Invalidate { span: ByteSpan::new(0, 2 * BLOCK_BYTES) });
    assert!(!rig.is_answered(trimmed) && !rig.is_answered(invalidated));
    // The copies go to the device, and the proof flushes the server, which is back.
    rig.wait(2_000_000_000);
    rig.wait(2_000_000_000);
    if ends {
        rig.release();
        assert!(rig.answer(invalidated).is_ok());
        rig.wait(2_000_000_000);
        rig.wait(2_000_000_000);
    }
    believed_after_a_crash(rig)
}

#[test]
fn no_flush_covers_what_an_invalidation_waits_for() {
    assert_eq!(copies_while_an_invalidation_waits(Mutants::default(), false), 0);
    assert_eq!(copies_while_an_invalidation_waits(Mutants::default(), true), 1);
}

#[test]
fn a_flush_that_covers_what_an_invalidation_waits_for_is_found() {
    let mutants = Mutants::only(Mutant::InvalidatedCovered);
    assert_eq!(copies_while_an_invalidation_waits(mutants, false), 2);
}

/// A part of an invalidation may be still to come when the server's next flush ends.
#[test]
fn no_flush_covers_anything_while_parts_of_an_invalidation_are_to_come() {
    let copies = |announced: u32, ended: u32| {
        let mut rig = written(Mutants::default(), &[0]);
        let events = |n, event| vec![event; n as usize];
        rig.run(&mut events(announced, Event::Invalidating(V)));
        rig.wait(2_000_000_000);
        rig.wait(2_000_000_000);
        rig.run(&mut events(ended, Event::Invalidated(V)));
        rig.wait(2_000_000_000);
        rig.wait(2_000_000_000);
        believed_after_a_crash(rig)
    };
    assert_eq!(copies(0, 0), 1);
    assert_eq!(copies(1, 0), 0);
    assert_eq!(copies(2, 1), 0);
    assert_eq!(copies(2, 2), 1, "later flushes cover it again");
}

/// The copies found after a crash, of a write that a server lost while guests had all places for
/// requests: what is to drop it comes before the server's next flush ends.
fn copies_of_what_a_full_engine_was_told_of(mutants: Mutants) -> u64 {
    let bounds = Bounds { requests: 2, ..Bounds::default() };
    let mut rig = written_with(Config { bounds, mutants, ..Config::default() }, &[0]);
    let span = ByteSpan::new(0, BLOCK_BYTES);
    rig.holds_flushes = true;
    let flushes = [(); 2].map(|()| rig.submit(V, Op::Flush));
    let invalidated = rig.submit(V, Op::Invalidate { span });
    assert!(!flushes.iter().any(|flush| rig.is_answered(*flush)), "they have all places");
    let refused = rig.submit(V, Op::Flush);
    assert_eq!(rig.answer(refused).err(), Some(Failure::Limit), "guests have no more");
    rig.wait(2_000_000_000);
    rig.release();
    rig.wait(2_000_000_000);
    rig.wait(2_000_000_000);
    assert_eq!(rig.answer(invalidated).is_err(), mutants.is(Mutant::InvalidationRefused));
    believed_after_a_crash(rig)
}

#[test]
fn an_invalidation_is_not_refused_for_want_of_room() {
    assert_eq!(copies_of_what_a_full_engine_was_told_of(Mutants::default()), 0);
}

#[test]
fn an_invalidation_that_is_refused_for_want_of_room_is_found() {
    let mutants = Mutants::only(Mutant::InvalidationRefused);
    assert_eq!(copies_of_what_a_full_engine_was_told_of(mutants), 1);
}

/// The copy of a write that its server lost, of which the volume hears while it is flushed for the
/// last time, after a crash before the end of the volume is recorded.
fn copies_of_what_was_lost_at_the_end(mutants: Mutants) -> u64 {
    let mut rig = written(mutants, &[0]);
    rig.holds_flushes = true;
    let detached = rig.ask(vec![Command::Detach(V)])[0];
    assert!(!rig.is_answered(detached), "the last flush is under way");
    let invalidated = rig.submit(V, Op::Invalidate { span: ByteSpan::new(0, BLOCK_BYTES) });
    assert_eq!(rig.answer(invalidated).err(), Some(Failure::NoVolume));
    rig.release();
    rig.answer(detached).expect("it is flushed");
    rig.wait(2_000_000_000);
    believed_after_a_crash(rig)
}

#[test]
fn what_is_refused_at_a_volumes_end_is_not_kept() {
    assert_eq!(copies_of_what_was_lost_at_the_end(Mutants::default()), 0);
}

#[test]
fn what_is_kept_of_what_was_refused_is_found() {
    let mutants = Mutants::only(Mutant::LastInvalidationForgotten);
    assert_eq!(copies_of_what_was_lost_at_the_end(mutants), 1);
}

/// A server that restarts brings thousands at once; guests can't be refused for that.
#[test]
fn invalidations_take_no_places_of_guests() {
    let bounds = Bounds { requests: 4, ..Bounds::default() };
    let mut rig = Rig::open_with(Config { bounds, ..Config::default() }, 1020);
    rig.ask(vec![Command::Attach(volume("v"))]);
    rig.holds_flushes = true;
    let span = ByteSpan::new(0, BLOCK_BYTES);
    let trimmed = rig.submit(V, Op::Trim { span, fua: true });
    let waiting: Vec<_> = (0..8).map(|_| rig.submit(V, Op::Invalidate { span })).collect();
    let flushes = [(); 3].map(|()| rig.submit(V, Op::Flush));
    let all = || waiting.iter().chain(&flushes).chain([&trimmed]);
    assert!(!all().any(|id| rig.is_answered(*id)), "they wait, and nothing is refused");
    rig.engine.check_invariants();
    let refused = rig.submit(V, Op::Flush);
    assert_eq!(rig.answer(refused).err(), Some(Failure::Limit));
    // One is called late before it has its blocks, and makes no room.
    rig.late(waiting[0]);
    assert_eq!(rig.answer(waiting[0]).err(), Some(Failure::Io(IoError::TimedOut)));
    rig.engine.check_invariants();
    let refused = rig.submit(V, Op::Flush);
    assert_eq!(rig.answer(refused).err(), Some(Failure::Limit));
    rig.release();
    for id in waiting[1..].iter().chain(&flushes).chain([&trimmed]) {
        assert!(rig.answer(*id).is_ok());
    }
    rig.engine.check_invariants();
    let flushed = rig.submit(V, Op::Flush);
    assert!(rig.answer(flushed).is_ok(), "there is room again");
}

/// An operator's takes too long for a journal that is stuck: it is counted once.
#[test]
fn an_invalidation_that_is_late_at_its_gate_is_counted_once() {
    let bounds = Bounds { requests: 1, ..Bounds::default() };
    let mut rig = written_with(Config { bounds, ..Config::default() }, &[0]);
    let span = ByteSpan::new(0, BLOCK_BYTES);
    rig.wait(2_000_000_000);
    rig.wait(2_000_000_000);
    rig.holds = true;
    let invalidated = rig.submit(V, Op::Invalidate { span });
    assert!(!rig.is_answered(invalidated), "its record is on its way");
    rig.late(invalidated);
    assert_eq!(rig.answer(invalidated).err(), Some(Failure::Io(IoError::TimedOut)));
    rig.engine.check_invariants();
    rig.release();
    rig.engine.check_invariants();
    let flushed = rig.submit(V, Op::Flush);
    assert!(rig.answer(flushed).is_ok());
}

/// Between the seal and a command to forget, a crash would have them believed: `exclusive` keeps
/// blocks without a proof, too.
#[test]
fn what_is_discarded_is_not_sealed() {
    for (before, proof) in [(true, None), (false, None), (false, Some(ProofToken([7; 64])))] {
        let mut rig = Rig::open(1020);
        rig.ask(vec![Command::Attach(volume("v"))]);
        let order = if before {
            [Command::Discard(V), Command::Detach(V)]
        } else {
            [Command::Detach(V), Command::Discard(V)]
        };
        for id in rig.ask(order.into()) {
            assert!(rig.answer(id).is_ok());
        }
        let sealed = rig.ask(vec![Command::Seal(V, proof)])[0];
        assert!(rig.answer(sealed).is_ok());
        let late = rig.ask(vec![Command::Discard(V)])[0];
        assert_eq!(rig.answer(late).err(), Some(Failure::NoVolume));
        assert_eq!(rig.crash().engine.recorded("v"), None);
    }
}

/// Blocks that count as cached on flash, and those that a crash brings back, once a volume with
/// three blocks was found to be changed, and was given one more.
fn counted_beside_what_was_dropped(mutants: Mutants) -> (u64, u64) {
    let mut rig = written(mutants, &[0, 1, 2]);
    rig.wait(2_000_000_000);
    rig.ask(vec![Command::Detach(V)]);
    let sealed = seal(&mut rig, 7);
    assert!(rig.answer(sealed).is_ok());
    let changed = VolumeSpec { belief: Belief::Changed, ..volume("v") };
    let attached = rig.ask(vec![Command::Attach(changed)])[0];
    let Ok(Answer::Attached { volume, warmth }) = rig.answer(attached) else { panic!("attached") };
    assert!(matches!(warmth, Warmth::Dropped { blocks: 3, .. }), "{warmth:?}");
    let (span, data) = (ByteSpan::new(5 * BLOCK_BYTES, BLOCK_BYTES), Nothing::alloc(1));
    let write = rig.submit(volume, Op::Write { span, data, fua: false });
    assert!(rig.answer(write).is_ok());
    rig.wait(2_000_000_000);
    rig.wait(2_000_000_000);
    let counters = rig.engine.cache_counters();
    (counters.cached_blocks - counters.ram_blocks, believed_after_a_crash(rig))
}

/// What counts as cached is what an operator expects to be warm after a crash.
#[test]
fn what_was_dropped_does_not_count_as_cached() {
    assert_eq!(counted_beside_what_was_dropped(Mutants::default()), (1, 1));
}

#[test]
fn counting_what_was_dropped_is_found() {
    let mutant = Mutants::only(Mutant::DeadBlocksCounted);
    assert_eq!(counted_beside_what_was_dropped(mutant), (4, 1));
}
