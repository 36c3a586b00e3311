//! Tests: what is written while the index is being loaded is not in it afterwards, whenever it comes.

use super::Engine;
use super::rig::{Nothing, Rig};
use crate::bounds::Bounds;
use crate::config::{Config, Eviction};
use crate::descriptors::Key;
use crate::health::Health;
use crate::mutant::{Mutant, Mutants};
use crate::seam::{Command, Op, Payload};
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use crate::volume::VolumeSpec;

const VOLUME: VolumeId = VolumeId(0);

fn spec() -> VolumeSpec {
    VolumeSpec { exclusive: true, ..VolumeSpec::new("vm".into(), 100_000 * BLOCK_BYTES) }
}

fn span(blocks: std::ops::Range<u64>) -> ByteSpan {
    ByteSpan::new(blocks.start * BLOCK_BYTES, (blocks.end - blocks.start) * BLOCK_BYTES)
}

fn zero(blocks: std::ops::Range<u64>) -> Op<Nothing> {
    Op::WriteZeroes { span: span(blocks), fua: false, may_punch: true }
}

fn write(blocks: std::ops::Range<u64>) -> Op<Nothing> {
    let data = Nothing::alloc((blocks.end - blocks.start) as u32);
    Op::Write { span: span(blocks), data, fua: true }
}

fn is_cached(engine: &Engine<Nothing>, block: u64) -> bool {
    engine.store.find(Key { volume: 0, block }).is_some()
}

/// Small steps, so that loading takes many of them.
fn config(mutants: Mutants, passed_ranges: usize) -> Config {
    let bounds =
        Bounds { replay_blocks: 4, invalidate_lookups: 100, passed_ranges, ..Bounds::default() };
    Config { eviction: Eviction::Clock, bounds, mutants, ..Config::default() }
}

/// A session in which `cached` were read, and the next one, in which `first` is written before the index
/// is there. Loading stands still behind that.
fn loading(config: Config, cached: &[u64], first: &[std::ops::Range<u64>]) -> Rig {
    let mut rig = Rig::open_with(config, 1020);
    rig.ask(vec![Command::Attach(spec())]);
    for block in cached {
        let op = Op::Read { span: span(*block..block + 1), data: Nothing::alloc(1) };
        let id = rig.submit(VOLUME, op);
        rig.answer(id).expect("a read");
    }
    rig.ask(vec![Command::Detach(VOLUME)]);
    rig.ask(vec![Command::Seal(VOLUME, None)]);
    let mut rig = rig.next_session(config);
    rig.holds_wakes = true;
    rig.open_and_hold_the_index();
    let attach = rig.ask(vec![Command::Attach(spec())])[0];
    rig.answer(attach).expect("it is attached while the index is loaded");
    for blocks in first {
        let id = rig.submit(VOLUME, zero(blocks.clone()));
        rig.answer(id).expect("it passes through");
    }
    rig.release();
    assert!(matches!(rig.engine.health(), Health::Loading { .. }), "steps are left");
    rig
}

/// Goes on to the end, and gives the number of steps; `each` is called before every one.
fn finish(rig: &mut Rig, mut each: impl FnMut(&mut Rig, u32)) -> u32 {
    let mut steps = 0;
    while matches!(rig.engine.health(), Health::Loading { .. }) {
        steps += 1;
        each(rig, steps);
        assert!(rig.wake(), "it asked to be woken");
    }
    rig.holds_wakes = false;
    steps
}

/// A run that grows in the `at`th step of loading by the blocks behind it; whether the last one of
/// these is still cached.
fn grows(run: u64, at: u32, mutants: Mutants) -> bool {
    let victim = run + 5;
    let mut rig = loading(config(mutants, 100), &[victim, 3, 7], std::slice::from_ref(&(0..run)));
    let steps = finish(&mut rig, |rig, step| {
        if step == at {
            let id = rig.submit(VOLUME, write(run..victim + 1));
            rig.answer(id).expect("acknowledged");
        }
    });
    assert!(steps > at, "it was written while the index was loaded, {steps} steps");
    assert!(!is_cached(&rig.engine, 3) && !is_cached(&rig.engine, 7));
    is_cached(&rig.engine, victim)
}

#[test]
fn a_run_may_grow_while_it_is_taken_out() {
    // By lookups, by slots, and from the one to the other.
    for run in [90, 200, 98] {
        for at in 1..4 {
            assert!(!grows(run, at, Mutants::default()), "a run of {run}, step {at}");
        }
    }
}

#[test]
fn a_run_that_grows_into_what_was_looked_at_is_found() {
    assert!(grows(200, 3, Mutants::only(Mutant::PassedRunGrows)));
}

/// Ranges kept apart coarsely take out blocks that were not written. Their copies are invalid
/// nowhere but in RAM, so a later write to one of them must append an invalidation record.
#[test]
fn what_goes_with_coarse_ranges_does_not_come_back() {
    let apart: Vec<_> = (0..20).map(|i| i * 40..i * 40 + 1).collect();
    let mut rig = loading(config(Mutants::default(), 3), &[1, 50_000], &apart);
    finish(&mut rig, |_, _| {});
    assert!(!is_cached(&rig.engine, 1), "it lies between two that were written");
    assert!(is_cached(&rig.engine, 50_000));
    assert_eq!(rig.engine.cache_counters().checkpoints, 1, "and a checkpoint says so at once");
    let mut rig = loading(config(Mutants::default(), 100), &[1, 50_000], &apart);
    finish(&mut rig, |_, _| {});
    assert!(is_cached(&rig.engine, 1));
    assert_eq!(rig.engine.cache_counters().checkpoints, 0, "where nothing else went, none is due");
}
