//! Whatever SSD and backend do, what was asked is answered: scripted silence.

use super::guest_memory::{Blocks, Rig, VOLUME};
use super::rig::{superblock, volume};
use crate::health::{Health, PassThroughReason};
#[cfg(feature = "mutants")]
use crate::mutant::Mutant;
use crate::mutant::Mutants;
use crate::seam::{Answer, Command, Event, Failure, IoError, IoId, IoOp, Op, Request, RequestId};
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};

impl Rig {
    fn write(&mut self, block: u64, value: u64) -> RequestId {
        let data = Blocks::new(1, true);
        data.set(0, value);
        let span = ByteSpan::new(block * BLOCK_BYTES, BLOCK_BYTES);
        let id = self.id();
        let op = Op::Write { span, data, fua: false };
        self.run(vec![Event::Submit(Request { id, volume: VOLUME, op })]);
        id
    }

    fn order(&mut self, command: Command) -> RequestId {
        let id = self.id();
        self.run(vec![Event::Control(id, command)]);
        id
    }

    /// The driver's bound for everything that is held is over.
    fn all_overdue(&mut self) {
        let events = self.held.iter().map(|io| Event::Overdue(io.id)).collect();
        self.run(events);
        self.engine.check_invariants();
    }

    /// What was held ends after all.
    fn all_end(&mut self) {
        (self.holds_device, self.holds_backend, self.holds_writes) = (false, false, false);
        while !self.held.is_empty() {
            let io = self.held.remove(0);
            let done = self.carry_out(io, Ok(()));
            self.run(vec![done]);
        }
        self.engine.check_invariants();
    }

    fn went_well(&mut self, id: RequestId) -> bool {
        self.answers.remove(&id).is_some_and(|answer| answer.is_ok())
    }

    /// The first block of a read that was answered.
    fn value(&mut self, id: RequestId) -> Option<u64> {
        match self.answers.remove(&id)? {
            Ok(Answer::Data(data)) => Some(data.get(0)),
            _ => None,
        }
    }

    fn failure(&mut self, id: RequestId) -> Option<Failure> {
        self.answers.remove(&id)?.err()
    }
}

const TIMED_OUT: Failure = Failure::Io(IoError::TimedOut);

/// A read, a write behind it and commands, on a device that is silent from now on; whether each is
/// answered.
fn on_a_silent_device(mutants: Mutants) -> Result<(), &'static str> {
    let mut rig = Rig::warm_with(mutants);
    let read = rig.read(5, 1, &Blocks::new(1, true));
    let written = rig.write(5, 7);
    rig.holds_device = true;
    let abandoned = rig.order(Command::Abandon);
    rig.all_overdue();
    if rig.value(read) != Some(105) {
        return Err("the read is not answered");
    }
    if !rig.went_well(written) {
        return Err("what waited behind it is not answered");
    }
    if !rig.went_well(abandoned) {
        return Err("the command is not answered");
    }
    let lost = PassThroughReason::Abandoned;
    assert_eq!(rig.engine.health(), Health::PassThrough(lost));
    // The driver has another device by now.
    rig.holds_device = false;
    let replaced = rig.order(Command::Replace(Box::new(superblock(1020))));
    if !rig.went_well(replaced) {
        return Err("there is no other device");
    }
    rig.all_end();
    let again = rig.read(5, 1, &Blocks::new(1, true));
    assert_eq!(rig.value(again), Some(7));
    Ok(())
}

#[test]
fn a_silent_device_keeps_no_request_waiting() {
    assert_eq!(on_a_silent_device(Mutants::default()), Ok(()));
}

#[cfg(feature = "mutants")]
#[test]
fn a_silent_device_that_is_waited_for_is_found() {
    on_a_silent_device(Mutants::only(Mutant::SilentDeviceAwaited)).expect_err("it is found");
}

#[test]
fn what_was_given_up_is_never_in_an_answer() {
    let mut rig = Rig::warm_with(Mutants::default());
    let read = rig.read(5, 2, &Blocks::new(2, true));
    let late = rig.held.remove(0);
    rig.run(vec![Event::Overdue(late.id)]);
    let Some(Ok(Answer::Data(answer))) = rig.answers.remove(&read) else { panic!("no answer") };
    assert_eq!(*answer.values.borrow(), [105, 106]);
    // Frontends send from it now.
    let IoOp::Read { data: old, .. } = &late.op else { panic!("a read") };
    old[0].data.set(0, 1);
    old[0].data.set(1, 2);
    assert_eq!(*answer.values.borrow(), [105, 106]);
    let done = rig.carry_out(late, Err(IoError::Io));
    rig.run(vec![done]);
    rig.engine.check_invariants();
}

#[test]
fn a_read_into_a_guests_memory_lets_others_by_and_ends_with_its_io() {
    let mut rig = Rig::warm_with(Mutants::default());
    let guest = Blocks::new(1, false);
    let read = rig.read(5, 1, &guest);
    let written = rig.write(5, 7);
    rig.all_overdue();
    assert!(rig.went_well(written), "it does not wait");
    assert!(!rig.answers.contains_key(&read), "the SSD may still write there");
    rig.run(vec![Event::Late(read)]);
    assert!(!rig.answers.contains_key(&read), "still so");
    let other = rig.read(6, 1, &guest);
    assert!(rig.went_well(other), "it goes to the backend");

    let mut rig = Rig::warm_with(Mutants::default());
    let read = rig.read(5, 1, &guest);
    let written = rig.write(5, 7);
    rig.all_overdue();
    assert!(rig.went_well(written));
    rig.all_end();
    assert!(rig.went_well(read));
    assert_eq!(guest.get(0), 7, "as it is now");
}

#[test]
fn a_volume_goes_although_the_device_may_write_to_its_guest() {
    let mut rig = Rig::warm_with(Mutants::default());
    let read = rig.read(5, 1, &Blocks::new(1, false));
    rig.all_overdue();
    for command in [Command::Detach(VOLUME), Command::Seal(VOLUME, None)] {
        let id = rig.order(command);
        assert!(rig.went_well(id));
    }
    let other = rig.order(Command::Attach(volume("other")));
    assert!(rig.went_well(other));
    rig.all_end();
    assert_eq!(rig.failure(read), Some(Failure::NoVolume));
}

#[test]
fn marks_that_never_reach_the_device_keep_no_write_waiting() {
    let mut rig = Rig::warm_with(Mutants::default());
    rig.holds_device = true;
    let written = rig.write(5, 7);
    let attached = rig.order(Command::Attach(volume("other")));
    assert!(
        rig.held.iter().any(|io| matches!(io.op, IoOp::WriteMeta { .. })),
        "its invalidation record"
    );
    assert!(!rig.answers.contains_key(&written));
    rig.all_overdue();
    assert!(rig.went_well(written) && rig.went_well(attached));
    rig.holds_device = false;
    let replaced = rig.order(Command::Replace(Box::new(superblock(1020))));
    assert!(rig.went_well(replaced));
    let old = std::mem::take(&mut rig.held);
    let read = rig.read(5, 1, &Blocks::new(1, true));
    assert!(rig.went_well(read));
    rig.engine.now = rig.engine.now.plus_ns(10_000_000_000);
    rig.run(vec![Event::Wake]);
    rig.holds_device = true;
    let written = rig.write(5, 8);
    assert!(
        !rig.answers.contains_key(&written) && !rig.held.is_empty(),
        "it waits for its invalidation record"
    );
    // Taken for the new device's, the old journal's write would let it by.
    for io in old {
        let done = rig.carry_out(io, Ok(()));
        rig.run(vec![done]);
    }
    assert!(!rig.answers.contains_key(&written));
    rig.all_end();
    assert!(rig.went_well(written));
}

#[test]
fn a_device_that_falls_silent_while_it_is_opened_is_not_waited_for() {
    let mut rig = Rig::warm_with(Mutants::default());
    let abandoned = rig.order(Command::Abandon);
    assert!(rig.went_well(abandoned));
    rig.holds_device = true;
    let replaced = rig.order(Command::Replace(Box::new(superblock(1020))));
    assert_eq!(rig.held.len(), 1, "a first I/O");
    rig.all_overdue();
    assert_eq!(rig.failure(replaced), Some(TIMED_OUT));
    let abandoned = rig.order(Command::Abandon);
    assert!(rig.went_well(abandoned));
    rig.holds_device = false;
    let replaced = rig.order(Command::Replace(Box::new(superblock(1020))));
    assert!(rig.went_well(replaced));
    rig.all_end();
}

#[test]
fn a_device_that_falls_silent_in_a_clean_stop_is_not_waited_for() {
    let mut rig = Rig::warm_with(Mutants::default());
    for command in [Command::Detach(VOLUME), Command::Seal(VOLUME, None)] {
        let id = rig.order(command);
        assert!(rig.went_well(id));
    }
    rig.holds_device = true;
    let closed = rig.order(Command::Close);
    assert!(!rig.answers.contains_key(&closed));
    rig.all_overdue();
    assert!(rig.failure(closed).is_some());
}

/// What waits behind a backend's write that does not end.
fn behind_a_silent_write(mutants: Mutants) -> Result<(), &'static str> {
    let mut rig = Rig::warm_with(mutants);
    rig.holds_writes = true;
    let first = rig.write(40, 1);
    let (second, read) = (rig.write(40, 2), rig.read(40, 1, &Blocks::new(1, true)));
    rig.run(vec![Event::Late(first), Event::Late(second)]);
    assert_eq!(rig.failure(first), Some(TIMED_OUT));
    if rig.failure(second) != Some(TIMED_OUT) {
        return Err("a write that waits is not answered");
    }
    assert!(!rig.answers.contains_key(&read), "its time is not over");
    rig.run(vec![Event::Late(read)]);
    if rig.failure(read) != Some(TIMED_OUT) {
        return Err("a read that waits is not answered");
    }
    assert_eq!(rig.held.len(), 1, "the second write never ran");
    let third = rig.write(40, 3);
    rig.all_end();
    assert!(rig.went_well(third), "after the first one");
    let read = rig.read(40, 1, &Blocks::new(1, true));
    assert_eq!(rig.value(read), Some(3));
    rig.run(vec![Event::Late(read), Event::Overdue(IoId(9999))]);
    Ok(())
}

#[test]
fn what_waits_behind_a_silent_backend_is_answered_in_time() {
    assert_eq!(behind_a_silent_write(Mutants::default()), Ok(()));
}

#[cfg(feature = "mutants")]
#[test]
fn what_waits_behind_a_silent_backend_for_good_is_found() {
    behind_a_silent_write(Mutants::only(Mutant::LateWaiterKept)).expect_err("it is found");
}

/// A long trim whose time is over while its blocks are being taken out, then a write of one of
/// them. The backend never hears of the trim, but the index knows of the copies no more: if the
/// write did not wait, a crash would bring back what was there before it.
/// Whether a write waits until what a late trim took out before it is durably recorded as invalid.
fn waits_for_a_late_trims_records(mutants: Mutants) -> bool {
    let mut rig = Rig::warm_with(mutants);
    rig.engine.config.bounds.zero_blocks = 4;
    rig.holds_device = true;
    let id = rig.id();
    let op = Op::Trim { span: ByteSpan::new(0, 64 * BLOCK_BYTES), fua: false };
    rig.run(vec![Event::Submit(Request { id, volume: VOLUME, op }), Event::Late(id)]);
    assert_eq!(rig.failure(id), Some(TIMED_OUT));
    assert_eq!(rig.engine.in_flight().0, 0, "it has ended");
    let written = rig.write(1, 7);
    let waits = !rig.answers.contains_key(&written);
    rig.all_end();
    assert!(rig.went_well(written));
    waits
}

#[test]
fn what_a_late_trim_has_taken_out_is_invalid_before_it_is_written() {
    assert!(waits_for_a_late_trims_records(Mutants::default()), "the old copy may come back");
}

#[cfg(feature = "mutants")]
#[test]
fn a_late_trim_that_leaves_no_record_is_found() {
    assert!(!waits_for_a_late_trims_records(Mutants::only(Mutant::LateTrimNotRecorded)));
}

/// Its server is back and may have lost what is cached: guests' requests that are refused can be
/// asked again, what is not dropped is served.
#[test]
fn what_must_go_is_dropped_however_much_is_late() {
    let mut rig = Rig::warm_with(Mutants::default());
    rig.engine.config.bounds.volume_late = 4;
    rig.holds_writes = true;
    for n in 0..5 {
        let id = rig.write(n, n);
        rig.run(vec![Event::Late(id)]);
        assert_eq!(rig.failure(id), Some(TIMED_OUT));
    }
    let id = rig.id();
    let span = ByteSpan::new(40 * BLOCK_BYTES, BLOCK_BYTES);
    let op = Op::Invalidate { span };
    rig.run(vec![Event::Submit(Request { id, volume: VOLUME, op })]);
    assert!(rig.went_well(id));
    rig.all_end();
}

/// Else one tenant's backend would fill the engine for all.
#[test]
fn a_silent_backend_hurts_its_own_volume_only() {
    let mut rig = Rig::warm_with(Mutants::default());
    let other = rig.order(Command::Attach(volume("other")));
    assert!(rig.went_well(other));
    rig.holds_writes = true;
    let mut refused = 0;
    for n in 0..1536 {
        let id = rig.write(n % 64, n);
        rig.run(vec![Event::Late(id)]);
        refused += u64::from(rig.failure(id) == Some(TIMED_OUT));
    }
    assert_eq!(refused, 1536);
    rig.holds_writes = false;
    let id = rig.id();
    let span = ByteSpan::new(0, BLOCK_BYTES);
    let op = Op::Write { span, data: Blocks::new(1, true), fua: false };
    rig.run(vec![Event::Submit(Request { id, volume: VolumeId(1), op })]);
    assert!(rig.went_well(id));
    rig.all_end();
    let id = rig.write(1, 1);
    assert!(rig.went_well(id), "the backend answers again");
}
