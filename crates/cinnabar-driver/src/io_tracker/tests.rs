//! Time passes, and the port is looked at now and then.

use super::*;

const BOUND: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Instant {
    Instant(seconds * 1_000_000_000)
}

#[test]
fn what_is_not_done_at_the_look_after_its_time_is_overdue_once() {
    let mut tracker = IoTracker::new();
    let token = tracker.start(at(0), 'a', BOUND);
    tracker.start(at(0), 'b', Duration::ZERO);
    assert_eq!(tracker.deadline(), Some(at(30)));
    assert!(tracker.overdue(at(29)).is_empty());
    assert!(tracker.overdue(at(30)).is_empty(), "the port may know of its end by now");
    assert_eq!(tracker.deadline(), Some(at(30)), "it is looked at again at once");
    assert_eq!(tracker.overdue(at(30)), [token]);
    assert!(tracker.get(token).overdue);
    assert!(tracker.overdue(at(99)).is_empty() && tracker.overdue(at(99)).is_empty());
    assert_eq!(tracker.deadline(), None);
}

/// A process that was stopped has no slow disk.
#[test]
fn what_was_done_while_nobody_looked_is_not_overdue() {
    let mut tracker = IoTracker::new();
    let token = tracker.start(at(0), (), BOUND);
    assert!(tracker.overdue(at(1)).is_empty());
    // A minute later the first look brings its end.
    assert!(tracker.end(at(60), token, Ok(()), Vec::new()).is_some());
    assert!(tracker.overdue(at(60)).is_empty());
    let token = tracker.start(at(60), (), BOUND);
    assert!(tracker.overdue(at(120)).is_empty());
    assert!(tracker.end(at(120), token, Ok(()), Vec::new()).is_some());
    assert!(tracker.overdue(at(120)).is_empty() && tracker.deadline().is_none());
}

#[test]
fn a_model_holds_back_and_has_the_last_word() {
    let mut tracker = IoTracker::new();
    let slow = tracker.start(at(0), (), Duration::ZERO);
    tracker.delay(slow, at(5), Some(IoError::NoSpace));
    assert!(tracker.end(at(1), slow, Ok(()), Vec::new()).is_none());
    let never_sent = tracker.start(at(1), (), Duration::ZERO);
    tracker.delay(never_sent, at(4), None);
    tracker.end_by_model(never_sent);
    assert!(tracker.take_due(at(3)).is_none());
    assert_eq!(tracker.deadline(), Some(at(4)));
    let first = tracker.take_due(at(5)).expect("it is due").done(IoId(1));
    assert_eq!(first.result, Ok(()));
    let second = tracker.take_due(at(5)).expect("it is due").done(IoId(2));
    assert_eq!(second.result, Err(IoError::NoSpace));
    assert_eq!(tracker.iter().count(), 0);
}

#[test]
fn a_proof_comes_with_success_only() {
    let mut tracker = IoTracker::new();
    for (result, generation) in [(Ok(()), Some(7)), (Err(IoError::Io), None)] {
        let token = tracker.start(at(0), (), BOUND);
        tracker.bring(token, ProofResult { proof: None, generation: Some(7) });
        tracker.end_elsewhere(at(1), token, result);
        let done = tracker.take_due(at(1)).expect("the port was looked at").done(IoId(3));
        assert_eq!((done.result, done.generation), (result, generation));
    }
}
