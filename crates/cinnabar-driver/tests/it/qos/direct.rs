//! Short sequences by hand, for what a world would show only by chance.

use crate::qos::judge::{SECOND, Verdict};
use crate::qos::scenarios::Scenario;
use cinnabar_driver::qos::limits::{CLIENTS_MAX, DEPTH_MAX};
use cinnabar_driver::qos::mutant::Mutants;
use cinnabar_driver::qos::{
    Admitted, Client, ClientId, Config, Dispatch, Op, Phase, Refusal, Request, Scheduler, Settings,
    SettingsError, Ticket, Work,
};

/// All that find deliberate bugs, by name.
pub(crate) const ALL: &[(&str, Scenario)] = &[
    ("exempt operations pass", exempt_operations_pass),
    ("a withdrawn request leaves the others", withdrawn_leaves_others),
    ("a clock that steps back stands", clock_steps_back),
];

/// Each holds without a bug.
#[test]
fn all_hold() {
    for (name, sequence) in ALL {
        if let Err(wrong) = sequence(Mutants::default()) {
            panic!("{name}: {wrong}");
        }
    }
}

const READ: Op = Op::Read { length: 0 };

fn group(depth: usize, mutants: Mutants) -> Scheduler {
    Scheduler::new(Config { depth, mutants, ..Config::default() }).expect("it is right")
}

fn add(group: &mut Scheduler, volume: u64, settings: Settings) -> ClientId {
    group.add(0, Client { volume, work: Work::Guest }, settings).expect("it is new")
}

fn ask(group: &mut Scheduler, now_ns: u64, client: ClientId, token: u64) -> Ticket {
    match group.submit(now_ns, Request { client, op: READ, token }) {
        Ok(Admitted::Waits(ticket)) => ticket,
        other => panic!("{other:?}"),
    }
}

fn take(group: &mut Scheduler, now_ns: u64) -> Vec<Dispatch> {
    let mut begin = Vec::new();
    group.take(now_ns, &mut begin);
    begin
}

fn check(holds: bool, what: &str) -> Verdict {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn exempt_operations_pass(mutants: Mutants) -> Verdict {
    let mut group = group(1, mutants);
    let limited = Settings { limit_iops: Some(1), ..Settings::default() };
    let client = add(&mut group, 0, limited);
    ask(&mut group, 0, client, 1);
    take(&mut group, 0);
    // Neither depth nor limit has room.
    for op in [Op::Proof, Op::Generation] {
        let admitted = group.submit(0, Request { client, op, token: 2 });
        check(admitted == Ok(Admitted::Exempt), "an exempt operation waits")?;
    }
    let report = group.client(client).expect("it is there");
    check((report.exempt, report.waiting) == (2, 0), "exempt operations are counted apart")
}

fn withdrawn_leaves_others(mutants: Mutants) -> Verdict {
    let mut group = group(8, mutants);
    let client = add(&mut group, 0, Settings::default());
    let tickets: Vec<Ticket> = (0..4).map(|token| ask(&mut group, 0, client, token)).collect();
    check(group.withdraw(0, tickets[0]) == Some(0), "the first one can be withdrawn")?;
    check(group.withdraw(0, tickets[2]) == Some(2), "one in the middle can be withdrawn")?;
    check(group.withdraw(0, tickets[2]).is_none(), "a request is withdrawn once")?;
    let begun: Vec<u64> = take(&mut group, 0).iter().map(|begun| begun.token).collect();
    check(begun == [1, 3], "those that are left begin")?;
    ask(&mut group, 0, client, 4);
    let stale = [tickets[0], tickets[2]].map(|ticket| group.withdraw(0, ticket));
    check(stale == [None, None], "a ticket is not that of the request that has its place now")?;
    check(group.withdraw(0, tickets[1]).is_none(), "what is under way can't be withdrawn")
}

fn clock_steps_back(mutants: Mutants) -> Verdict {
    let mut group = group(8, mutants);
    let client = add(&mut group, 0, Settings::default());
    ask(&mut group, 100 * SECOND, client, 1);
    let first = take(&mut group, 100 * SECOND)[0].dispatched_ns;
    ask(&mut group, 99 * SECOND, client, 2);
    let second = take(&mut group, 99 * SECOND)[0];
    check(second.dispatched_ns >= first, "a dispatch before an earlier one")?;
    check(second.queued_ns == 0, "a wait out of nothing")
}

#[test]
fn a_clock_that_stands_stops_no_one_without_a_limit() {
    let mut group = group(4, Mutants::default());
    let free = add(&mut group, 0, Settings { reservation_iops: 10, ..Settings::default() });
    let limited = add(&mut group, 1, Settings { limit_iops: Some(1000), ..Settings::default() });
    let mut begun = [0, 0];
    for token in 0..10_000 {
        let _full = group.submit(7, Request { client: free, op: READ, token });
        let _full = group.submit(7, Request { client: limited, op: READ, token });
        for dispatch in take(&mut group, 7) {
            begun[usize::from(dispatch.client == limited)] += 1;
            group.complete(7, &[dispatch.ticket]);
        }
    }
    assert_eq!(begun, [10_000, 1], "in no time a limit lets one request through");
}

#[test]
fn a_clock_that_jumps_brings_no_burst_and_no_starvation() {
    let mut group = group(1, Mutants::default());
    let limited = Settings { reservation_iops: 1000, limit_iops: Some(1000), weight: 100 };
    let limited = add(&mut group, 0, limited);
    let other = add(&mut group, 1, Settings::default());
    for token in 0..200 {
        ask(&mut group, 0, limited, token);
        ask(&mut group, 0, other, token);
    }
    for start in [0, 3600 * SECOND, u64::MAX - SECOND] {
        let mut begun = [0, 0];
        for _ in 0..50 {
            for dispatch in take(&mut group, start) {
                begun[usize::from(dispatch.client == other)] += 1;
                group.complete(start, &[dispatch.ticket]);
            }
        }
        assert!(begun[0] <= 21, "20 ms of its limit and one request: {begun:?}");
        assert!(begun[1] >= 25, "{begun:?}");
    }
}

#[test]
fn a_clock_at_its_end_holds() {
    let mut group = group(2, Mutants::default());
    let settings = Settings { reservation_iops: 1, limit_iops: Some(1), weight: 1 };
    let client = add(&mut group, 0, settings);
    for token in 0..3 {
        ask(&mut group, u64::MAX, client, token);
    }
    for begun in take(&mut group, u64::MAX) {
        group.complete(u64::MAX, &[begun.ticket]);
    }
    group.change(u64::MAX, client, Settings::default()).expect("it is there");
    assert!(!take(&mut group, u64::MAX).is_empty());
}

#[test]
fn what_cannot_be_is_refused() {
    let mut group = group(1, Mutants::default());
    let wrong = Settings { reservation_iops: 200, limit_iops: Some(100), weight: 1 };
    let reason = SettingsError::LimitBelowReservation { limit: 100, reservation: 200 };
    let name = Client { volume: 1, work: Work::Guest };
    assert_eq!(group.add(0, name, wrong), Err(Refusal::Settings(reason)));
    let id = add(&mut group, 1, Settings::default());
    assert_eq!(group.change(0, id, wrong), Err(Refusal::Settings(reason)));
    assert_eq!(group.client(id).map(|client| client.settings), Some(Settings::default()));
    assert_eq!(group.add(0, name, Settings::default()), Err(Refusal::Known));
    assert_eq!(group.find(name), Some(id));
    let destage = Client { work: Work::Destage, ..name };
    assert!(group.add(0, destage, Settings::default()).is_ok(), "a client of its own");
    assert!(group.set_depth(0, 0).is_err() && group.set_depth(0, DEPTH_MAX + 1).is_err());

    // A former name is not the client that has its place now.
    group.remove(0, id, &mut Vec::new()).expect("it is there");
    let next = add(&mut group, 1, Settings::default());
    assert_ne!(next, id);
    let request = Request { client: id, op: READ, token: 1 };
    assert_eq!(group.submit(0, request), Err(Refusal::UnknownClient));
    assert_eq!(group.remove(0, id, &mut Vec::new()), Err(Refusal::UnknownClient));
    assert_eq!(group.change(0, id, Settings::default()), Err(Refusal::UnknownClient));
    assert!(group.client(id).is_none());
}

#[test]
fn a_group_has_a_bound() {
    let mut group = group(1, Mutants::default());
    for volume in 0..CLIENTS_MAX as u64 {
        add(&mut group, volume, Settings { reservation_iops: 2, ..Settings::default() });
    }
    let name = Client { volume: u64::MAX, work: Work::Guest };
    assert_eq!(group.add(0, name, Settings::default()), Err(Refusal::TooManyClients));
    assert_eq!(group.report().reservations.reserved_iops, 2 * CLIENTS_MAX as u64);
}

#[test]
#[should_panic(expected = "a request is completed once")]
fn a_completion_that_comes_twice_is_found() {
    let mut group = group(1, Mutants::default());
    let client = add(&mut group, 0, Settings::default());
    ask(&mut group, 0, client, 1);
    let begun = take(&mut group, 0)[0];
    group.complete(0, &[begun.ticket, begun.ticket]);
}

#[test]
fn a_request_under_way_is_no_idleness() {
    let mut group = group(2, Mutants::default());
    let light = add(&mut group, 0, Settings { weight: 1, ..Settings::default() });
    let heavy = add(&mut group, 1, Settings { weight: 10_000, ..Settings::default() });
    ask(&mut group, 0, light, 0);
    ask(&mut group, 0, heavy, 0);
    // Each has one under way for three seconds.
    let mut begun = take(&mut group, 0);
    for token in 1..40 {
        ask(&mut group, 3 * SECOND, light, token);
        ask(&mut group, 3 * SECOND, heavy, token);
    }
    for _ in 1..40 / 2 {
        let tickets: Vec<Ticket> = begun.iter().map(|begun| begun.ticket).collect();
        group.complete(3 * SECOND, &tickets);
        begun = take(&mut group, 3 * SECOND);
        // What the light one had counts still.
        assert!(begun.iter().all(|begun| begun.client == heavy && begun.phase == Phase::Weight));
    }
}

#[test]
fn who_has_just_arrived_is_not_behind() {
    let mut group = group(1, Mutants::default());
    let settings = Settings { reservation_iops: 1000, ..Settings::default() };
    let client = add(&mut group, 0, settings);
    ask(&mut group, SECOND, client, 0);
    assert_eq!(group.client(client).map(|report| report.behind_ns), Some(0));
    ask(&mut group, SECOND + 5_000_000, client, 1);
    assert_eq!(group.client(client).map(|report| report.behind_ns), Some(5_000_000));
}

#[test]
fn waits_are_told_apart() {
    let mut group = group(1, Mutants::default());
    let limited = add(&mut group, 0, Settings { limit_iops: Some(10), ..Settings::default() });
    ask(&mut group, SECOND, limited, 1);
    ask(&mut group, SECOND, limited, 2);
    let first = take(&mut group, SECOND)[0];
    group.complete(SECOND, &[first.ticket]);
    assert_eq!(take(&mut group, SECOND), []);
    // 100 ms after the first one, less 20 ms of slack; and 30 ms late.
    assert_eq!(group.wake_at(), Some(SECOND + 80_000_000));
    let second = take(&mut group, SECOND + 110_000_000)[0];
    assert_eq!((second.held_ns, second.queued_ns), (80_000_000, 30_000_000));
    let report = group.client(limited).expect("it is there");
    let queued_ns = report.reservation_queued_ns + report.weight_queued_ns;
    assert_eq!((report.held_ns, queued_ns), (80_000_000, 30_000_000));
    assert_eq!((report.waited_ns_max, report.by_weight), (110_000_000, 2));
    assert_eq!(group.wake_at(), None, "a completion comes first");
}

/// One scheduler serves all threads, behind a lock of theirs.
#[test]
fn any_thread_may_have_it() {
    fn check<T: Send>() {}
    check::<Scheduler>();
}
