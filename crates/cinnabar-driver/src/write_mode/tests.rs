//! The steps in their order, and where requests go meanwhile.

use super::*;

const PLACE: LogVolumeId = LogVolumeId(3);

fn on(served: bool) -> WriteMode {
    let mut mode = WriteMode::default();
    assert_eq!(mode.join(served), Step::Claim);
    assert_eq!(mode.claimed(Ok(())), Step::Attach);
    let step = mode.attached(Ok(PLACE), (true, true));
    if served {
        assert_eq!((step, mode.route()), (Step::Hold, Route::Wait));
        assert_eq!((mode.awaits_idle(), mode.idle()), (true, Step::Flush));
        assert_eq!(mode.flushed(Ok(())), Step::Joined(PLACE));
    } else {
        assert_eq!(step, Step::Joined(PLACE));
    }
    assert_eq!((mode.route(), mode.place()), (Route::Log(PLACE), Some(PLACE)));
    mode
}

#[test]
fn a_volume_joins_before_guests_come_or_while_they_are_there() {
    on(false);
    on(true);
}

#[test]
fn one_that_the_log_does_not_know_is_flushed_before_guests_come() {
    let mut mode = WriteMode::default();
    mode.join(false);
    mode.claimed(Ok(()));
    assert_eq!(mode.attached(Ok(PLACE), (true, false)), Step::Serve);
    assert_eq!((mode.route(), mode.place()), (Route::Wait, Some(PLACE)));
    assert_eq!((mode.serves(), mode.serves()), (Some(Step::Flush), None));
    assert_eq!(mode.route(), Route::Wait);
    assert_eq!(mode.flushed(Ok(())), Step::Joined(PLACE));
    assert_eq!((mode.route(), mode.serves()), (Route::Log(PLACE), None));
}

#[test]
fn guests_go_on_until_little_is_left_to_drain() {
    let mut mode = on(true);
    assert_eq!(mode.leave(true, false), Some(Step::Ask(Command::Drain(PLACE))));
    assert_eq!((mode.route(), mode.leave(true, false)), (Route::Log(PLACE), None));
    assert_eq!((mode.answered(Ok(()), true), mode.route()), (Step::Hold, Route::Wait));
    assert_eq!(mode.idle(), Step::Ask(Command::Drain(PLACE)));
    let remove = Command::Remove { place: PLACE, discard: false };
    assert_eq!(mode.answered(Ok(()), true), Step::Ask(remove.clone()));
    assert_eq!(mode.answered(Err(Refusal::Busy), true), Step::AskLater(remove.clone()));
    // A request that was answered as late has written after all.
    assert_eq!(mode.answered(Err(Refusal::Dirty), true), Step::Ask(Command::Drain(PLACE)));
    assert_eq!(mode.answered(Ok(()), true), Step::Ask(remove));
    assert_eq!((mode.answered(Ok(()), true), mode.route()), (Step::Unclaim, Route::Wait));
    assert_eq!((mode.unclaimed(), mode.route()), (Step::Left(None), Route::Engine));
}

#[test]
fn it_is_drained_again_until_little_is_left_and_stays_if_that_does_not_come() {
    let mut mode = on(true);
    let drain = Step::Ask(Command::Drain(PLACE));
    assert_eq!(mode.leave(true, false), Some(drain.clone()));
    for _ in 0..3 {
        assert_eq!(
            (mode.answered(Ok(()), false), mode.route()),
            (drain.clone(), Route::Log(PLACE))
        );
    }
    assert_eq!(mode.stay(), Some(Step::Stays(Failed::BackEnd)));
    assert_eq!((mode.route(), mode.changes(), mode.stay()), (Route::Log(PLACE), false, None));
    // The next try, with its writes held: reads go on.
    mode.leave(true, false);
    assert_eq!(mode.answered(Ok(()), true), Step::Hold);
    assert_eq!((mode.route(), mode.read_route()), (Route::Wait, Route::Log(PLACE)));
    assert_eq!(mode.idle(), drain);
    assert_eq!(mode.stay(), Some(Step::Stays(Failed::BackEnd)));
    // Without guests it is waited for.
    mode.leave(false, false);
    assert_eq!(mode.stay(), None);
    let remove = Command::Remove { place: PLACE, discard: false };
    assert_eq!(mode.answered(Ok(()), false), Step::Ask(remove));
}

#[test]
fn one_that_leaves_for_good_is_drained_or_its_data_are_given_up() {
    let mut mode = on(false);
    assert_eq!(mode.leave(false, false), Some(Step::Ask(Command::Drain(PLACE))));
    let remove = Command::Remove { place: PLACE, discard: false };
    assert_eq!(mode.answered(Ok(()), true), Step::Ask(remove));
    let mut mode = on(false);
    let remove = Command::Remove { place: PLACE, discard: true };
    assert_eq!(mode.leave(false, true), Some(Step::Ask(remove)));
    // Also if the log's device is gone.
    assert_eq!(mode.answered(Err(Refusal::Lost), true), Step::Unclaim);
    assert_eq!(mode.unclaimed(), Step::Left(None));
}

#[test]
fn a_refusal_leaves_it_where_it_was() {
    let mut mode = WriteMode::default();
    mode.join(true);
    let failed = Failed::Claim("another host's".to_owned());
    assert_eq!(mode.claimed(Err("another host's".to_owned())), Step::Stays(failed));
    assert_eq!(mode.route(), Route::Engine);
    // Without a place in the log its claim goes; with one it stays.
    for holds in [true, false] {
        mode.join(false);
        mode.claimed(Ok(()));
        let step = mode.attached(Err(Refusal::NoPlace), (holds, false));
        if holds {
            assert_eq!(step, Step::Stays(Refusal::NoPlace.into()));
        } else {
            assert_eq!(step, Step::Unclaim);
            assert_eq!(mode.unclaimed(), Step::Left(Some(Refusal::NoPlace.into())));
        }
    }
    let mut mode = on(false);
    mode.leave(true, false);
    assert_eq!(mode.answered(Err(Refusal::Damaged), true), Step::Stays(Refusal::Damaged.into()));
    assert_eq!(mode.route(), Route::Log(PLACE));
}

#[test]
fn a_back_end_that_can_t_be_flushed_keeps_a_volume_out() {
    let mut mode = WriteMode::default();
    mode.join(true);
    mode.claimed(Ok(()));
    mode.attached(Ok(PLACE), (true, false));
    mode.idle();
    let failure = cinnabar_engine::Failure::Io(cinnabar_engine::IoError::Io);
    let remove = Command::Remove { place: PLACE, discard: false };
    assert_eq!(mode.flushed(Err(failure)), Step::Ask(remove));
    assert_eq!(mode.answered(Ok(()), true), Step::Unclaim);
    assert_eq!(mode.unclaimed(), Step::Left(Some(Failed::Flush(failure))));
}

#[test]
fn one_that_is_being_drained_may_be_given_up() {
    for served in [false, true] {
        let mut mode = on(false);
        mode.leave(served, false);
        if served {
            assert_eq!(mode.answered(Ok(()), true), Step::Hold);
        }
        let remove = Command::Remove { place: PLACE, discard: true };
        assert_eq!(mode.give_up(), Some(Step::Ask(remove)));
        assert_eq!((mode.give_up(), mode.awaits_idle()), (None, false));
        assert_eq!(mode.answered(Ok(()), true), Step::Unclaim);
        assert_eq!(mode.unclaimed(), Step::Left(None));
    }
}

/// An operator's flush was answered by the log, which had nothing yet, while the back end was still to
/// be flushed.
#[test]
fn it_has_joined_when_its_back_end_is_flushed() {
    let mut mode = WriteMode::default();
    mode.join(true);
    mode.claimed(Ok(()));
    mode.attached(Ok(PLACE), (true, false));
    assert!(!mode.has_joined());
    mode.idle();
    assert!(!mode.has_joined());
    mode.flushed(Ok(()));
    assert!(mode.has_joined());
}
