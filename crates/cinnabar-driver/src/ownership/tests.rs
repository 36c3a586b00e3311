//! Two hosts and what lies between them, in every order: no two owners.

use super::*;
use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

const KNOWN: Record = Record { epoch: 5, owned: 5, other: 0 };

fn answered(attempt: Attempt, epoch: Epoch, owned: Epoch) -> Event {
    Event::Answered(attempt, PeerAnswer::Free { epoch, owned })
}

fn hands_over(a: &mut Ownership, b: &mut Ownership) -> Trust {
    let asked = b.apply(Event::Want);
    let [Action::Hold, Action::Ask(attempt, epoch)] = asked[..] else { panic!("{asked:?}") };
    assert_eq!(a.apply(Event::Asked(epoch)), [Action::Hold, Action::Drain]);
    assert_eq!(a.apply(Event::Drained(true)), [Action::Release]);
    let given = a.apply(Event::Released);
    let [Action::Answer(Reply::Free { epoch, owned }), Action::StandBy] = given[..] else {
        panic!("{given:?}")
    };
    assert_eq!(b.apply(answered(attempt, epoch, owned)), [Action::Lock]);
    let record = b.apply(Event::Locked(true));
    let [Action::Record(record, _)] = record[..] else { panic!("{record:?}") };
    assert!(record.epoch > epoch && record.owned == record.epoch && record.other == owned);
    let attach = b.apply(Event::Recorded(true));
    let [Action::Attach(trust)] = attach[..] else { panic!("{attach:?}") };
    assert_eq!(b.apply(Event::Attached(true)), [Action::Serve]);
    assert_eq!((a.role(), b.role()), (Role::Standby, Role::Owner));
    trust
}

#[test]
fn a_volume_goes_to_and_fro() {
    let mut a = Ownership::owner(Fence::Word, KNOWN);
    let mut b = Ownership::standby(Fence::Word, Record::default());
    for _ in 0..3 {
        assert_eq!(hands_over(&mut a, &mut b), Trust::ProofOnly);
        assert_eq!(hands_over(&mut b, &mut a), Trust::ProofOnly);
    }
}

#[test]
fn the_word_holds_if_nobody_else_had_it() {
    let mut a = Ownership::owner(Fence::Word, KNOWN);
    a.apply(Event::Asked(3));
    a.apply(Event::Drained(true));
    a.apply(Event::Released);
    // The other host has not come further than asking.
    let mut b = Ownership::standby(Fence::Word, Record { epoch: 3, ..Record::default() });
    assert_eq!(takes(&mut a, &mut b), Trust::Word);
    // One that has recorded that it owns the volume may have written.
    let mut b = Ownership::standby(Fence::Word, Record { epoch: 7, owned: 7, other: 5 });
    let mut a = Ownership::standby(Fence::Word, a.record());
    assert_eq!(takes(&mut a, &mut b), Trust::ProofOnly);
    assert_eq!(a.record(), Record { epoch: 8, owned: 8, other: 7 });
    let mut a = Ownership::standby(Fence::Word, a.record());
    assert_eq!(takes(&mut a, &mut b), Trust::Word);
}

#[test]
fn one_that_took_without_an_answer_may_have_the_same_epoch() {
    // The first host dies, and the second one, which was never told of its epoch, takes by the word.
    let mut a = Ownership::owner(Fence::Word, Ownership::first_record(Record::default()));
    let mut b = Ownership::standby(Fence::Word, Record::default());
    let asked = b.apply(Event::Force);
    let [Action::Hold, Action::Ask(attempt, 0)] = asked[..] else { panic!("{asked:?}") };
    b.apply(Event::Answered(attempt, PeerAnswer::Silent));
    b.apply(Event::Locked(true));
    b.apply(Event::Recorded(true));
    b.apply(Event::Attached(true));
    assert_eq!(a.record().epoch, b.record().epoch);
    // Both are started again.
    let mut b = Ownership::standby(Fence::Word, b.record());
    a = Ownership::standby(Fence::Word, a.record());
    assert_eq!(takes(&mut a, &mut b), Trust::ProofOnly);
}

/// The operator's word was wrong: the other host was the owner, and went on in its epoch until it was asked.
#[test]
fn after_a_forced_take_what_the_other_host_owned_tells_nothing() {
    for (mutants, trust) in [
        (Mutants::default(), Trust::ProofOnly),
        (Mutants::only(Mutant::ForcedTrusted), Trust::Word),
    ] {
        let known = Record { epoch: 5, owned: 3, other: 5 };
        let mut b = Ownership::standby(Fence::Word, known).with_mutants(mutants);
        b.apply(Event::Force);
        b.apply(Event::Answered(Attempt(1), PeerAnswer::Silent));
        b.apply(Event::Locked(true));
        b.apply(Event::Recorded(true));
        b.apply(Event::Attached(true));
        let mut a = Ownership::standby(Fence::Word, Record { epoch: 5, owned: 5, other: 3 });
        let mut b = Ownership::standby(Fence::Word, b.record());
        assert_eq!(takes(&mut b, &mut a), trust);
        let mut b = Ownership::standby(Fence::Word, b.record());
        assert_eq!(takes(&mut b, &mut a), Trust::Word, "it has answered since");
    }
}

#[test]
fn an_answer_to_an_older_attempt_counts_only_by_mistake() {
    for (mutants, next) in [
        (Mutants::default(), vec![]),
        (Mutants::only(Mutant::LateAnswerCounts), vec![Action::Lock]),
    ] {
        let mut b = Ownership::standby(Fence::Word, KNOWN).with_mutants(mutants);
        b.apply(Event::Want);
        assert_eq!(b.apply(Event::Answered(Attempt(1), PeerAnswer::Silent)), [Action::Retry]);
        assert_eq!(b.apply(Event::Again).len(), 2);
        let late = Event::Answered(Attempt(1), PeerAnswer::Free { epoch: 5, owned: 0 });
        assert_eq!(b.apply(late), next);
    }
}

/// Takes it from a host that does not own it.
fn takes(a: &mut Ownership, b: &mut Ownership) -> Trust {
    let asked = a.apply(Event::Want);
    let [Action::Hold, Action::Ask(attempt, epoch)] = asked[..] else { panic!("{asked:?}") };
    let answer = b.apply(Event::Asked(epoch));
    let [Action::Answer(Reply::Free { epoch, owned })] = answer[..] else { panic!("{answer:?}") };
    a.apply(answered(attempt, epoch, owned));
    a.apply(Event::Locked(true));
    let attach = a.apply(Event::Recorded(true));
    let [Action::Attach(trust)] = attach[..] else { panic!("{attach:?}") };
    a.apply(Event::Attached(true));
    trust
}

#[test]
fn without_an_answer_only_a_fence_or_the_word_takes() {
    for (fence, force, locks) in
        [(Fence::Word, false, false), (Fence::Word, true, true), (Fence::Lock, false, true)]
    {
        let mut b = Ownership::standby(fence, KNOWN);
        let asked = b.apply(if force { Event::Force } else { Event::Want });
        let [Action::Hold, Action::Ask(attempt, 5)] = asked[..] else { panic!("{asked:?}") };
        let next = b.apply(Event::Answered(attempt, PeerAnswer::Silent));
        assert_eq!(next, [if locks { Action::Lock } else { Action::Retry }]);
        if locks {
            // The word is used up.
            assert_eq!(b.apply(Event::Locked(false)), [Action::Retry]);
            let asked = b.apply(Event::Again);
            let [Action::Hold, Action::Ask(again, _)] = asked[..] else { panic!("{asked:?}") };
            assert!(b.apply(answered(attempt, 5, 0)).is_empty(), "late");
            let next = b.apply(Event::Answered(again, PeerAnswer::Silent));
            assert_eq!(next, [if fence == Fence::Lock { Action::Lock } else { Action::Retry }]);
        }
    }
}

#[test]
fn a_host_that_was_fenced_off_becomes_a_standby() {
    let mut a = Ownership::owner(Fence::Lock, KNOWN);
    assert_eq!(a.apply(Event::Lost), [Action::Hold, Action::Drain]);
    assert!(a.apply(Event::Lost).is_empty() && a.is_lost(), "told again");
    let refused = Action::Answer(Reply::Refused(Refusal::Lost, 9));
    assert_eq!(a.apply(Event::Asked(9)), [refused]);
    // Its flush fails, as it must.
    assert_eq!(a.apply(Event::Drained(false)), [Action::Release]);
    assert_eq!(a.apply(Event::Released), [Action::StandBy]);
    assert!(a.reads_through() && !a.is_lost());
    // While it gives the volume: the other host is told, and asks again.
    let mut a = Ownership::owner(Fence::Lock, KNOWN);
    a.apply(Event::Asked(5));
    assert_eq!(a.apply(Event::Lost), [Action::Answer(Reply::Refused(Refusal::Lost, 5))]);
    assert_eq!(a.apply(Event::Drained(true)), [Action::Release]);
    assert_eq!(a.apply(Event::Released), [Action::StandBy]);
    // And while it comes back after a failed flush.
    let mut a = Ownership::owner(Fence::Lock, KNOWN);
    for event in [Event::Asked(5), Event::Drained(false), Event::Attached(false)] {
        a.apply(event);
    }
    assert_eq!(a.apply(Event::Lost), [Action::Release]);
}

#[test]
fn a_lock_is_broken_by_the_word_alone() {
    for (event, answer, breaks) in [
        (Event::Force, PeerAnswer::Silent, true),
        (Event::Want, PeerAnswer::Silent, false),
        (Event::Force, PeerAnswer::Free { epoch: 5, owned: 0 }, false),
    ] {
        let mut b = Ownership::standby(Fence::Lock, KNOWN);
        let asked = b.apply(event);
        let [Action::Hold, Action::Ask(attempt, 5)] = asked[..] else { panic!("{asked:?}") };
        assert_eq!(b.apply(Event::Answered(attempt, answer)), [Action::Lock]);
        assert_eq!(b.may_break(), breaks, "{event:?} {answer:?}");
        // The next attempt has no word.
        b.apply(Event::Locked(false));
        let asked = b.apply(Event::Again);
        let [Action::Hold, Action::Ask(attempt, _)] = asked[..] else { panic!("{asked:?}") };
        b.apply(Event::Answered(attempt, PeerAnswer::Silent));
        assert!(!b.may_break());
    }
}

#[test]
fn a_failed_flush_keeps_the_volume() {
    let mut a = Ownership::owner(Fence::Word, KNOWN);
    a.apply(Event::Asked(0));
    let refused = Action::Answer(Reply::Refused(Refusal::Flush, 5));
    assert_eq!(a.apply(Event::Drained(false)), [refused, Action::Attach(Trust::Word)]);
    assert_eq!(a.apply(Event::Attached(false)), [Action::Retry]);
    assert_eq!(a.apply(Event::Again), [Action::Attach(Trust::Word)]);
    assert_eq!(a.apply(Event::Attached(true)), [Action::Serve]);
}

#[test]
fn reads_wait_for_a_write_that_waits() {
    let mut b = Ownership::standby(Fence::Word, KNOWN);
    assert!(b.reads_through());
    let asked = b.apply(Event::Want);
    let [Action::Hold, Action::Ask(attempt, _)] = asked[..] else { panic!("{asked:?}") };
    b.apply(Event::Answered(attempt, PeerAnswer::Refused(EPOCH_MAX + 9)));
    assert!(!b.reads_through());
    assert_eq!(b.apply(Event::Unwanted), [Action::StandBy]);
    assert!(b.reads_through());
    assert!(b.apply(Event::Again).is_empty(), "nothing wants it");
    assert_eq!(b.record(), KNOWN, "it is none");
}

// ---- both hosts, the network and what may happen, in every order ----------------------------------

/// A host: its machine, what is durable, and the step under way.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Host {
    machine: Ownership,
    durable: Record,
    step: Option<Action>,
    owns: bool,
    /// What it has cached may be older than what the other host wrote.
    is_old: bool,
    /// Requests of the other host, by its run, that are yet to be answered; the newest is refused first.
    asked: Vec<(u8, Attempt)>,
    /// Runs of its daemon: an answer to an earlier one goes nowhere.
    run: u8,
    crashes: u8,
    wants: u8,
    /// Its lock was broken: it neither writes nor serves.
    fenced: bool,
    forces: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    hosts: [Host; 2],
    /// On their way to a host: what the other one has said, by run and attempt.
    asks: [VecDeque<(u8, Attempt, Epoch)>; 2],
    answers: [VecDeque<(u8, Attempt, Reply)>; 2],
    /// Who holds the back end's lock, if it has one.
    lock: Option<usize>,
    fence: Fence,
    bug: Option<Bug>,
    /// Two owners, or an epoch that is not above the last one.
    broken: bool,
    /// The operator has vouched for the death of a host.
    forced: bool,
}

/// What the search must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bug {
    /// A host that takes the volume tells the other one that it does not own it.
    TakingSaysFree,
    /// An answer counts for whatever attempt is under way.
    LateAnswerCounts,
    /// The lock is let go of, and the other host told, before the volume is drained.
    ReleasedEarly,
    /// A lock is broken, and the host that had it goes on with its cache.
    NoFence,
    /// A host says that it was never the owner.
    NeverOwned,
    /// What may not be believed is dropped when the record is durable already.
    DroppedLate,
}

impl World {
    fn new(fence: Fence, bug: Option<Bug>) -> Self {
        let host = |machine, durable, owns: bool| {
            let (step, asked, fenced) = (None, Vec::new(), false);
            let (run, crashes, wants, forces, is_old) = (0, 0, 0, 0, !owns);
            Host {
                machine,
                durable,
                step,
                owns,
                is_old,
                asked,
                run,
                crashes,
                wants,
                fenced,
                forces,
            }
        };
        let known = Record { epoch: 1, owned: 1, other: 0 };
        Self {
            hosts: [
                host(Ownership::owner(fence, known), known, true),
                host(Ownership::standby(fence, Record::default()), Record::default(), false),
            ],
            asks: Default::default(),
            answers: Default::default(),
            lock: (fence == Fence::Lock).then_some(0),
            fence,
            bug,
            broken: false,
            forced: false,
        }
    }

    fn tell(&mut self, at: usize, event: Event) {
        for action in self.hosts[at].machine.apply(event) {
            self.act(at, action);
        }
    }

    fn act(&mut self, at: usize, action: Action) {
        let host = &mut self.hosts[at];
        match action {
            Action::Hold | Action::StandBy => {}
            Action::Ask(attempt, epoch) => {
                let own_run = host.run;
                self.asks[1 - at].push_back((own_run, attempt, epoch));
            }
            Action::Answer(reply) => {
                let (run, attempt) = host.asked.pop().expect("it was asked");
                let reply = match reply {
                    Reply::Refused(Refusal::Taking, epoch)
                        if self.bug == Some(Bug::TakingSaysFree) =>
                    {
                        Reply::Free { epoch, owned: 0 }
                    }
                    Reply::Free { epoch, .. } if self.bug == Some(Bug::NeverOwned) => {
                        Reply::Free { epoch, owned: 0 }
                    }
                    reply => reply,
                };
                self.answers[1 - at].push_back((run, attempt, reply));
            }
            Action::Serve => {
                (host.owns, host.is_old) = (!host.fenced, false);
                self.broken |= self.hosts[at].owns && self.hosts[1 - at].owns;
                self.hosts[1 - at].is_old |= self.hosts[at].owns;
                let highest = self.hosts[1 - at].durable.epoch;
                // Who takes without an answer does not know of an epoch that no host could be asked for.
                let record = self.hosts[at].durable;
                let asked = self.fence == Fence::Word && !self.forced;
                self.broken |= asked && record.epoch < highest;
            }
            Action::Drain
            | Action::Release
            | Action::Lock
            | Action::Record(..)
            | Action::Attach(_)
            | Action::Retry => {
                // The word ends a pause, and so does the loss of the lock.
                let pauses = host.step == Some(Action::Retry);
                assert!(host.step.is_none() || pauses, "one step at a time: {action:?}");
                // A host that has been the owner all along has nothing old. One that was fenced off serves
                // none of it.
                let serves = !host.fenced;
                self.broken |= serves && host.is_old && action == Action::Attach(Trust::Word);
                host.step = Some(action);
            }
        }
    }

    /// All that may happen next.
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            all.push(world);
        };
        for at in 0..2 {
            if self.hosts[at].wants < 2 {
                with(&|world| {
                    world.hosts[at].wants += 1;
                    world.tell(at, Event::Want);
                });
            }
            if self.hosts[at].crashes < 1 {
                with(&|world| world.crash(at));
            }
            // The word is true: the other host has just been started again, and does nothing.
            let other = &self.hosts[1 - at];
            let dead = other.crashes == 1 && other.machine.state == State::Standby;
            if !self.forced && dead && !self.hosts[at].owns {
                with(&|world| {
                    world.forced = true;
                    // It does not wait for the end of a pause.
                    let step = &mut world.hosts[at].step;
                    step.take_if(|step| *step == Action::Retry);
                    world.tell(at, Event::Force);
                });
            }
            if self.hosts[at].step.is_some() {
                with(&|world| world.finish(at, true));
                with(&|world| world.finish(at, false));
            }
            // A request is carried out if it arrives at all; its asker may have given up by then.
            if !self.asks[at].is_empty() {
                with(&|world| {
                    let (run, attempt, epoch) = world.asks[at].pop_front().expect("there is one");
                    world.hosts[at].asked.push((run, attempt));
                    world.tell(at, Event::Asked(epoch));
                });
                with(&|world| {
                    let _ = world.asks[at].pop_front();
                });
            }
            if !self.answers[at].is_empty() {
                with(&|world| {
                    let (run, attempt, reply) =
                        world.answers[at].pop_front().expect("there is one");
                    let answer = match reply {
                        Reply::Free { epoch, owned } => PeerAnswer::Free { epoch, owned },
                        Reply::Refused(_, epoch) => PeerAnswer::Refused(epoch),
                    };
                    let attempt = match world.hosts[at].machine.state {
                        State::Asking(own) if world.bug == Some(Bug::LateAnswerCounts) => own,
                        _ => attempt,
                    };
                    if run == world.hosts[at].run {
                        world.tell(at, Event::Answered(attempt, answer));
                    }
                });
            }
            if let State::Asking(attempt) = self.hosts[at].machine.state {
                with(&|world| world.tell(at, Event::Answered(attempt, PeerAnswer::Silent)));
            }
        }
        all.extend((0..2).flat_map(|at| self.next_of_lock(at)));
        all
    }

    /// What may happen to a lock: it is broken by the word, which may be wrong here, and the host that had it
    /// learns of that.
    fn next_of_lock(&self, at: usize) -> Vec<Self> {
        let mut all = Vec::new();
        if self.fence == Fence::Lock && self.hosts[at].forces < 1 {
            let mut world = self.clone();
            world.hosts[at].forces += 1;
            world.tell(at, Event::Force);
            all.push(world);
        }
        if self.hosts[at].fenced {
            let mut world = self.clone();
            world.tell(at, Event::Lost);
            all.push(world);
        }
        all
    }

    fn finish(&mut self, at: usize, good: bool) {
        let step = self.hosts[at].step.take().expect("one is under way");
        let event = match step {
            Action::Drain => Event::Drained(good && !self.hosts[at].fenced),
            // It could not stand by: it has been the owner all along.
            Action::Release if !good && self.hosts[at].machine.may_return() => Event::NotReleased,
            Action::Release => {
                self.hosts[at].fenced = false;
                self.hosts[at].owns = self.bug == Some(Bug::ReleasedEarly);
                self.lock = self.lock.filter(|holder| *holder != at);
                Event::Released
            }
            Action::Lock => {
                let breaks = self.hosts[at].machine.may_break();
                if good && let Some(other) = self.lock.filter(|other| breaks && *other != at) {
                    self.lock = None;
                    self.hosts[other].fenced = true;
                    self.hosts[other].owns &= self.bug == Some(Bug::NoFence);
                }
                let free = self.fence == Fence::Word || self.lock.is_none();
                if good && free && self.fence == Fence::Lock {
                    self.lock = Some(at);
                }
                Event::Locked(good && free)
            }
            Action::Record(record, trust) => {
                // A record that is said to have failed is durable, too.
                self.hosts[at].durable = record;
                let late = self.bug == Some(Bug::DroppedLate);
                self.hosts[at].is_old &= trust == Trust::Word || late;
                Event::Recorded(good)
            }
            Action::Attach(_) => Event::Attached(good),
            Action::Retry if good => Event::Again,
            Action::Retry => Event::Unwanted,
            other => panic!("{other:?} is no step"),
        };
        // A pause that ends without a wish is over all the same.
        let returns = self.hosts[at].machine.state == State::Returning(true);
        self.tell(at, if returns && event == Event::Unwanted { Event::Again } else { event });
    }

    fn crash(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.machine = Ownership::standby(self.fence, host.durable);
        (host.step, host.owns, host.fenced) = (None, false, false);
        host.asked.clear();
        (host.run, host.crashes) = (host.run + 1, host.crashes + 1);
        self.lock = self.lock.filter(|holder| *holder != at);
    }
}

fn digest(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// States seen, how often the second host owned the volume, and whether some order breaks the rules.
fn search(fence: Fence, bug: Option<Bug>, states_max: usize) -> (usize, usize, bool) {
    let mut seen = BTreeSet::new();
    let mut queue = VecDeque::from([World::new(fence, bug)]);
    let mut moved = 0;
    while let Some(world) = queue.pop_front() {
        for next in world.next() {
            if next.broken {
                return (seen.len(), moved, true);
            }
            if seen.len() < states_max && seen.insert(digest(&next)) {
                moved += usize::from(next.hosts[1].owns);
                queue.push_back(next);
            }
        }
    }
    (seen.len(), moved, false)
}

/// Walks far into the orders, at random; whether one of them breaks the rules, and how often the second
/// host owned the volume.
fn walk(fence: Fence, bug: Option<Bug>, walks: u64) -> (usize, bool) {
    let mut moved = 0;
    for seed in 1..=walks {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut world = World::new(fence, bug);
        for _ in 0..60 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut all = world.next();
            if all.is_empty() {
                break;
            }
            world = all.swap_remove((random % all.len() as u64) as usize);
            moved += usize::from(world.hosts[1].owns);
            if world.broken {
                return (moved, true);
            }
        }
    }
    (moved, false)
}

#[test]
fn there_are_never_two_owners() {
    for fence in [Fence::Word, Fence::Lock] {
        let (states, moved, broken) = search(fence, None, 50_000);
        assert!(!broken && states >= 50_000 && moved > 100, "{fence:?}: {states}, {moved} moved");
        let (moved, broken) = walk(fence, None, 20_000);
        assert!(!broken && moved > 1000, "{fence:?}: {moved} moved");
    }
}

#[test]
fn the_search_finds_bugs() {
    for bug in [
        Bug::TakingSaysFree,
        Bug::LateAnswerCounts,
        Bug::ReleasedEarly,
        Bug::NeverOwned,
        Bug::DroppedLate,
    ] {
        assert!(walk(Fence::Word, Some(bug), 20_000).1, "{bug:?}");
    }
    assert!(walk(Fence::Lock, Some(Bug::NoFence), 20_000).1, "a broken lock");
}

#[test]
fn what_a_crash_leaves_unproven_is_the_hosts_own_only_if_no_other_had_the_volume() {
    for written in [false, true] {
        let record = Recorded { proof: None, written };
        assert_eq!(Trust::Word.weigh(&record).written, written);
        assert!(!Trust::ProofOnly.weigh(&record).written);
    }
}

mod giving;
