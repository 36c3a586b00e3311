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

/// Three hosts, each with one of the others as its peer; requests and answers come, late or not.
struct Three {
    hosts: [Ownership; 3],
    peers: [usize; 3],
    owns: [bool; 3],
    steps: [Vec<Action>; 3],
    /// Who has asked a host and is yet to be answered.
    asked: [Vec<(usize, Attempt)>; 3],
    asks: Vec<(usize, Attempt, Epoch)>,
    answers: Vec<(usize, Attempt, PeerAnswer)>,
    /// A daemon that asks is taken for the peer, whichever it is.
    anybody: bool,
}

impl Three {
    fn new(peers: [usize; 3], anybody: bool) -> Self {
        let standby = || Ownership::standby(Fence::Word, Record::default());
        Self {
            hosts: [Ownership::owner(Fence::Word, KNOWN), standby(), standby()],
            peers,
            owns: [true, false, false],
            steps: Default::default(),
            asked: Default::default(),
            asks: Vec::new(),
            answers: Vec::new(),
            anybody,
        }
    }

    fn tell(&mut self, at: usize, event: Event) {
        for action in self.hosts[at].apply(event) {
            match action {
                Action::Hold | Action::StandBy => {}
                Action::Ask(attempt, epoch) => self.asks.push((at, attempt, epoch)),
                Action::Answer(reply) => {
                    let (asker, attempt) = self.asked[at].pop().expect("it was asked");
                    let answer = match reply {
                        Reply::Free { epoch, owned } => PeerAnswer::Free { epoch, owned },
                        Reply::Refused(_, epoch) => PeerAnswer::Refused(epoch),
                    };
                    self.answers.push((asker, attempt, answer));
                }
                Action::Serve => self.owns[at] = true,
                step => self.steps[at].push(step),
            }
        }
    }

    fn is_asked(&mut self, (asker, attempt, epoch): (usize, Attempt, Epoch)) {
        let at = self.peers[asker];
        let who = if self.peers[at] == asker { Asker::Peer } else { Asker::Stranger };
        if self.anybody || self.hosts[at].may_ask(who) {
            self.asked[at].push((asker, attempt));
            return self.tell(at, Event::Asked(epoch));
        }
        self.answers.push((asker, attempt, PeerAnswer::Refused(0)));
    }

    fn finish(&mut self, at: usize) {
        let event = match self.steps[at].remove(0) {
            Action::Drain => Event::Drained(true),
            Action::Release => {
                self.owns[at] = false;
                Event::Released
            }
            Action::Lock => Event::Locked(true),
            Action::Record(..) => Event::Recorded(true),
            Action::Attach(_) => Event::Attached(true),
            Action::Retry => Event::Again,
            other => panic!("{other:?} is no step"),
        };
        self.tell(at, event);
    }
}

/// Whether two hosts owned the volume at a time, and how often another than the first one did.
fn walk_of_three(peers: [usize; 3], anybody: bool) -> (bool, usize) {
    let mut moved = 0;
    for seed in 1..=2_000_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut three = Three::new(peers, anybody);
        for _ in 0..80 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let pick = (random >> 8) as usize;
            match random % 4 {
                0 => three.tell(pick % 3, Event::Want),
                1 if !three.asks.is_empty() => {
                    let ask = three.asks.swap_remove(pick % three.asks.len());
                    three.is_asked(ask);
                }
                2 if !three.answers.is_empty() => {
                    let late = pick % three.answers.len();
                    let (at, attempt, answer) = three.answers.swap_remove(late);
                    three.tell(at, Event::Answered(attempt, answer));
                }
                _ if !three.steps[pick % 3].is_empty() => three.finish(pick % 3),
                _ => {}
            }
            moved += usize::from(three.owns[1] || three.owns[2]);
            if three.owns.iter().filter(|owns| **owns).count() > 1 {
                return (true, moved);
            }
        }
    }
    (false, moved)
}

#[test]
fn a_third_host_makes_no_second_owner() {
    // A pair and one that names the first of them, or the second; a ring either way.
    for (peers, moves) in
        [([1, 0, 0], true), ([1, 0, 1], true), ([1, 2, 0], false), ([2, 0, 1], false)]
    {
        let (broken, moved) = walk_of_three(peers, false);
        assert!(!broken && (moved > 0) == moves, "{peers:?}: {broken}, {moved}");
        assert!(walk_of_three(peers, true).0, "{peers:?}: the search finds nothing");
    }
    let standby = |fence| Ownership::standby(fence, Record::default());
    assert!(standby(Fence::Lock).may_ask(Asker::Unknown), "its lock keeps the wrong one out");
    assert!(!standby(Fence::Word).may_ask(Asker::Unknown));
    assert!(!standby(Fence::Lock).may_ask(Asker::Stranger));
}
