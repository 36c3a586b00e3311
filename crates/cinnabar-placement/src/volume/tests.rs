//! Moves step by step, as a back end sees them.

use super::*;
use crate::geometry::{Geometry, Object};

const EXTENT: u64 = 4 << 20;

fn object(pool: Pool, generation: u32) -> Object {
    Object { extent: 0, pool, generation }
}

fn stable() -> Record {
    Record::ABSENT.allocated(Pool::Slow, 1).settled()
}

/// Two extents, the first one written, and room for one in the fast pool.
fn volume() -> Volume {
    let geometry = Geometry::new(2 * EXTENT, 22).expect("a size");
    let header = Header::new([1; 16], geometry, EXTENT).taken_over();
    Volume::open(header, [(0, stable())], Settings::default()).expect("a sound table")
}

fn io(token: u64, op: Op, offset: u64) -> Io {
    Io { token, op, offset, length: 4096 }
}

fn begin(volume: &mut Volume, io: Io) -> (Admission, Vec<Action>) {
    let mut out = Vec::new();
    (volume.begin(io, &mut out), out)
}

fn apply(volume: &mut Volume, event: Event) -> Vec<Action> {
    let mut out = Vec::new();
    volume.apply(event, &mut out);
    out
}

fn stored(volume: &mut Volume) -> Vec<Action> {
    apply(volume, Event::Stored { extent: 0, outcome: Stored::Done })
}

fn store(expected: Record, new: Record) -> Vec<Action> {
    vec![Action::Store { extent: 0, expected, new, epoch: 2 }]
}

fn route(admission: Admission) -> Route {
    let Admission::Go(route) = admission else { panic!("it goes on: {admission:?}") };
    route
}

/// As far as the copy.
fn copying(volume: &mut Volume) {
    let mut out = Vec::new();
    volume.set_moves([(0, Pool::Fast)]);
    volume.tick(1, &mut out);
    assert_eq!(out, store(stable(), stable().copying()));
    let (from, to) = (object(Pool::Slow, 1), object(Pool::Fast, 2));
    assert_eq!(stored(volume), [Action::Probe { object: from }]);
    let probed = Event::Probed { extent: 0, exists: Some(true) };
    assert_eq!(apply(volume, probed), [Action::Copy { from, to }]);
}

const COPIED: Event = Event::Copied { extent: 0, outcome: Copied::Done };

#[test]
fn a_write_during_the_copy_is_patched_and_one_during_the_flip_waits() {
    let mut volume = volume();
    copying(&mut volume);
    let during = route(begin(&mut volume, io(1, Op::Write, 8192)).0);
    assert_eq!(during.object, object(Pool::Slow, 1));
    // The copy is made; the write may have come too late for it, and is still under way.
    assert_eq!(apply(&mut volume, COPIED), []);
    assert_eq!(begin(&mut volume, io(2, Op::Write, 0)).0, Admission::Held);
    let reading = route(begin(&mut volume, io(3, Op::Read, 0)).0);
    assert_eq!(reading.object, object(Pool::Slow, 1), "a read does not wait");
    let mut out = Vec::new();
    volume.end(during.ticket, true, &mut out);
    let (from, to) = (object(Pool::Slow, 1), object(Pool::Fast, 2));
    let ranges = std::iter::once(8192..12_288).collect();
    assert_eq!(out, [Action::Patch { from, to, ranges }]);
    let out = apply(&mut volume, Event::Patched { extent: 0, done: true });
    assert_eq!(out, store(stable().copying(), stable().copying().flipped()));
    let out = stored(&mut volume);
    let [Action::Release { token: 2, route: released }] = out[..] else { panic!("{out:?}") };
    assert_eq!(released.object, object(Pool::Fast, 2));
    // The source stays while it is read.
    let mut out = Vec::new();
    volume.end(reading.ticket, true, &mut out);
    assert_eq!(out, [Action::Delete { object: object(Pool::Slow, 1) }]);
    let out = apply(&mut volume, Event::Deleted { extent: 0, done: true });
    let flipped = stable().copying().flipped();
    assert_eq!(out, store(flipped, flipped.cleaned()));
    let outcome = MoveEnd::Moved(Pool::Fast);
    assert_eq!(stored(&mut volume), [Action::Ended { extent: 0, outcome }]);
    assert_eq!((volume.counts().held, volume.counts().patched_bytes), (1, 4096));
}

/// Three copies during each of which more is written than is patched; gives a write that has not ended.
fn copied_in_vain(volume: &mut Volume, outcome: Copied) -> Route {
    copying(volume);
    let (from, to) = (object(Pool::Slow, 1), object(Pool::Fast, 2));
    for copies in 1.. {
        for part in 0..65 {
            let route = route(begin(volume, io(part, Op::Write, part * 8192)).0);
            volume.end(route.ticket, true, &mut Vec::new());
        }
        let last = route(begin(volume, io(99, Op::Write, 0)).0);
        let out = apply(volume, Event::Copied { extent: 0, outcome });
        if copies == 3 {
            assert_eq!(out, [], "the write under way has to end");
            return last;
        }
        assert_eq!(out, [Action::Copy { from, to }]);
        volume.end(last.ticket, true, &mut Vec::new());
    }
    unreachable!("three copies")
}

#[test]
fn what_is_written_faster_than_copied_is_copied_while_writes_wait() {
    let (from, to) = (object(Pool::Slow, 1), object(Pool::Fast, 2));
    for outcome in [Copied::Done, Copied::Changed] {
        let mut volume = volume();
        let last = copied_in_vain(&mut volume, outcome);
        assert_eq!(begin(&mut volume, io(1, Op::Write, 0)).0, Admission::Held);
        let mut out = Vec::new();
        volume.end(last.ticket, true, &mut out);
        assert_eq!(out, [Action::Copy { from, to }]);
        assert_eq!(begin(&mut volume, io(2, Op::Write, 0)).0, Admission::Held);
        let out = apply(&mut volume, COPIED);
        assert_eq!(out, store(stable().copying(), stable().copying().flipped()));
        let released = stored(&mut volume);
        assert!(matches!(released[..], [Action::Delete { .. }, Action::Release { .. }, ..]));
    }
}

#[test]
fn writes_that_have_waited_long_enough_go_on_at_the_source() {
    let mut volume = volume();
    let last = copied_in_vain(&mut volume, Copied::Done);
    assert_eq!(begin(&mut volume, io(1, Op::Write, 0)).0, Admission::Held);
    volume.end(last.ticket, true, &mut Vec::new());
    let (start, mut out) = (5_000_000_000, Vec::new());
    assert!(volume.wake_ns().is_some_and(|at| at <= start), "the clock is looked at");
    volume.tick(start, &mut out);
    let end = start + Settings::default().hold_max_ns;
    assert_eq!((volume.wake_ns(), &out[..]), (Some(end), &[][..]));
    volume.tick(end, &mut out);
    let [Action::Release { token: 1, route: released }] = out[..] else { panic!("{out:?}") };
    assert_eq!((released.object, volume.wake_ns()), (object(Pool::Slow, 1), None));
    assert!(matches!(begin(&mut volume, io(2, Op::Write, 0)).0, Admission::Go(_)));
    // The copy may still change, and is deleted behind that.
    let out = apply(&mut volume, COPIED);
    assert_eq!(out, store(stable().copying(), stable().copying().aborted()));
    assert_eq!(stored(&mut volume), [Action::Delete { object: object(Pool::Fast, 2) }]);
}

#[test]
fn a_refused_copy_takes_nothing_of_the_rate() {
    let begins = |outcome| {
        let mut volume = volume();
        copying(&mut volume);
        let before = volume.throttle.ready_ns();
        apply(&mut volume, Event::Copied { extent: 0, outcome });
        volume.throttle.ready_ns().cmp(&before)
    };
    assert!(begins(Copied::Changed).is_eq(), "it is charged for the next copy alone");
    assert!(begins(Copied::Done).is_eq());
}

#[test]
fn the_budget_counts_a_copy_before_it_is_marked_and_garbage_until_it_is_gone() {
    let mut volume = volume();
    assert_eq!(volume.fast_bytes(), 0);
    volume.set_moves([(0, Pool::Fast)]);
    volume.tick(1, &mut Vec::new());
    assert_eq!(volume.fast_bytes(), EXTENT);
    let outcome = Stored::Failed;
    let out = apply(&mut volume, Event::Stored { extent: 0, outcome });
    let given_up = MoveEnd::GivenUp(GivenUp::Table);
    assert_eq!(out, [Action::Ended { extent: 0, outcome: given_up }]);
    assert_eq!((volume.fast_bytes(), volume.moving()), (0, 0));
}

#[test]
fn an_extent_of_a_full_pool_leaves_it_at_once() {
    let geometry = Geometry::new(2 * EXTENT, 22).expect("a size");
    let header = Header::new([1; 16], geometry, EXTENT).taken_over();
    let fast = stable().copying().flipped().cleaned();
    let settings = Settings { copy_bytes_per_s: 0, ..Settings::default() };
    let mut volume = Volume::open(header, [(0, fast)], settings).expect("a sound table");
    let mut out = Vec::new();
    assert!(volume.leave_fast(0, &mut out), "whatever the rate");
    assert_eq!(out, store(fast, fast.copying()));
    assert!(volume.leave_fast(0, &mut Vec::new()), "it is on its way");
    assert!(!volume.leave_fast(1, &mut Vec::new()), "it is not there");
}

#[test]
fn another_owner_ends_it_all() {
    let mut volume = volume();
    let (admission, out) = begin(&mut volume, io(7, Op::Write, EXTENT));
    assert_eq!((admission, out.len()), (Admission::Held, 1));
    let out = apply(&mut volume, Event::Stored { extent: 1, outcome: Stored::NotOwner });
    let why = Refusal::Fenced;
    assert_eq!(out, [Action::Fail { token: 7, why }, Action::Fenced]);
    assert_eq!(begin(&mut volume, io(8, Op::Read, 0)).0, Admission::Refused(why));
    assert_eq!(volume.resize(EXTENT, &mut Vec::new()), Err(ResizeError::Fenced));
}

#[test]
fn what_was_never_written_takes_nothing() {
    let mut volume = volume();
    assert_eq!(begin(&mut volume, io(1, Op::Read, EXTENT)).0, Admission::Zeros);
    assert_eq!((volume.table().present(), volume.requests()), (1, 0));
    volume.set_moves([(1, Pool::Fast)]);
    let mut out = Vec::new();
    volume.tick(1, &mut out);
    assert_eq!(out, [], "and does not move");
}

#[test]
fn requests_outside_and_tables_that_cannot_be_are_refused() {
    let mut volume = volume();
    for (offset, length) in [(EXTENT - 512, 1024), (2 * EXTENT, 512), (0, 0), (u64::MAX, 512)] {
        let io = Io { token: 1, op: Op::Read, offset, length };
        assert_eq!(begin(&mut volume, io).0, Admission::Refused(Refusal::Range), "{offset}");
    }
    let header = *volume.header();
    let open = |extent, record| Volume::open(header, [(extent, record)], Settings::default()).err();
    assert_eq!(open(2, stable()), Some(OpenError::Extent(2)));
    assert_eq!(open(1, stable().dropping()), Some(OpenError::Extent(1)));
    let settings = Settings { moves: 0, ..Settings::default() };
    assert!(Volume::open(header, [], settings).is_err());
    assert_eq!(volume.resize(EXTENT + 512, &mut Vec::new()), Err(ResizeError::NotWhole(EXTENT)));
}
