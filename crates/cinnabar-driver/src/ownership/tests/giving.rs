//! What keeps a volume where it is.

use super::*;

#[test]
fn a_host_that_cannot_stand_by_keeps_the_volume() {
    let mut a = Ownership::owner(Fence::Word, KNOWN);
    a.apply(Event::Asked(0));
    assert_eq!(a.apply(Event::Drained(true)), [Action::Release]);
    assert!(a.may_return());
    let refused = Action::Answer(Reply::Refused(Refusal::Standby, 5));
    assert_eq!(a.apply(Event::NotReleased), [refused, Action::Attach(Trust::Word)]);
    assert_eq!(a.apply(Event::Attached(true)), [Action::Serve]);
    // One that was fenced off has nothing to go back to.
    let mut a = Ownership::owner(Fence::Lock, KNOWN);
    a.apply(Event::Lost);
    assert_eq!(a.apply(Event::Drained(false)), [Action::Release]);
    assert!(!a.may_return());
}
