//! A backend that loses what it had acknowledged, and tells one of those who ask: what fails, and
//! what is still believed.
//!
//! Linux reports what it could not write back once for each open file, to the first flush; the next
//! one succeeds.

use crate::fixture::{TestScript, blocks, cache, cache_of, push_out, spec, version};
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::VolumeId;
use cinnabar_engine::{Config, Failure, IoError, IoOp, IoRequest, Op};
use cinnabar_sim::stamp::Stamped;

const PERIOD_NS: u64 = 2_000_000_000;
const LOST: Failure = Failure::Io(IoError::Io);

fn is_proof(io: &IoRequest<Stamped>) -> bool {
    matches!(io.op, IoOp::Prove)
}

fn is_flush(io: &IoRequest<Stamped>) -> bool {
    matches!(io.op, IoOp::Flush) && cinnabar_sim::script::to_backend(io)
}

fn flush(script: &mut TestScript, volume: VolumeId) -> Result<(), Failure> {
    let id = script.submit(volume, Op::Flush);
    script.settle();
    script.answer(id).expect("the flush was answered").map(drop)
}

/// A block is written, flushed, written again, and the second version is lost by the backend, which
/// says so to the heartbeat.
fn lose_a_write(script: &mut TestScript, volume: VolumeId) {
    let span = blocks(0, 4);
    script.write(volume, span, 1).expect("a write");
    script.read(volume, span).expect("a read, so that it is cached");
    flush(script, volume).expect("a flush");
    script.write(volume, span, 2).expect("a write");
    script.media.backends[0].write_behind(0, &version(span, 1));
    script.wait(PERIOD_NS);
    assert!(script.fail(is_proof), "no proof was asked for");
}

#[test]
fn no_flush_succeeds_over_what_the_heartbeat_was_told_is_lost() {
    let (mut script, volume) = cache();
    lose_a_write(&mut script, volume);
    assert_eq!(flush(&mut script, volume), Err(LOST));
    assert_eq!(flush(&mut script, volume), Err(LOST), "and the next one neither");
    let id = script.submit(volume, Op::Trim { span: blocks(9, 1), fua: true });
    script.settle();
    assert_eq!(script.answer(id).expect("answered").map(drop), Err(LOST), "a durable trim");
}

#[test]
fn a_flush_under_way_hears_of_anothers_failure() {
    let (mut script, volume) = cache();
    script.write(volume, blocks(0, 4), 1).expect("a write");
    let both = [script.submit(volume, Op::Flush), script.submit(volume, Op::Flush)];
    assert!(script.fail(is_flush));
    script.settle();
    for id in both {
        assert_eq!(script.answer(id).expect("answered").map(drop), Err(LOST));
    }
}

#[test]
fn a_flush_that_takes_too_long_has_lost_nothing() {
    let (mut script, volume) = cache();
    let id = script.submit(volume, Op::Flush);
    let io = script.held().find(|io| is_flush(io)).expect("a flush").id;
    script.overdue(io);
    assert!(script.answer(id).expect("answered").is_err());
    script.settle();
    assert_eq!(flush(&mut script, volume), Ok(()));
}

/// Whether no copy of a lost write is seen any more, now, when blocks come and go, and after a
/// crash.
fn lost_copies_are_gone(mutants: Mutants) -> bool {
    let (mut script, volume) = cache_of(Config { mutants, ..Config::default() });
    let span = blocks(0, 4);
    lose_a_write(&mut script, volume);
    let mut seen = vec![script.read(volume, span)];
    // What is not whole in it must not come back by way of a partial write.
    let _ = flush(&mut script, volume);
    script.write(volume, blocks(100, 4), 3).expect("writes go on");
    assert_eq!(script.read(volume, blocks(100, 4)), Ok(version(blocks(100, 4), 3)));
    push_out(&mut script, volume, 1000, None);
    seen.push(script.read(volume, span));
    script.wait(PERIOD_NS);
    script.settle();
    script.crash();
    let (volume, _) = script.attach(0, spec());
    seen.push(script.read(volume, span));
    seen.iter().all(|seen| *seen == Ok(version(span, 1)))
}

#[test]
fn no_cached_copy_of_a_lost_write_survives() {
    assert!(lost_copies_are_gone(Mutants::default()));
    assert!(!lost_copies_are_gone(Mutants::only(Mutant::FailedSyncForgotten)));
}

/// The operator's assertion that no one else writes it does not bring back what is lost.
#[test]
fn a_volume_that_leaves_after_a_failed_flush_is_dropped() {
    let (mut script, volume) = cache();
    lose_a_write(&mut script, volume);
    let detached = script.command(cinnabar_engine::Command::Detach(volume));
    assert!(detached.is_err(), "{detached:?}");
    script.media.detach(volume);
    let exclusive = cinnabar_engine::volume::VolumeSpec { exclusive: true, ..spec() };
    let (volume, warmth) = script.attach(0, exclusive);
    assert_eq!(warmth, cinnabar_engine::volume::Warmth::New);
    let span = blocks(0, 4);
    assert_eq!(script.read(volume, span), Ok(version(span, 1)));
    assert_eq!(flush(&mut script, volume), Ok(()), "a new attachment starts again");
}
