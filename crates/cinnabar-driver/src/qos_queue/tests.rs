//! Doors of one thread and of two, over one scheduler.

use super::*;
use crate::qos::{Client, Config, Settings, Work};

const MS: u64 = 1_000_000;
const READ: Op = Op::Read { length: 0 };

/// Of a turn: what begins, with its place, what is given up, and turns of other threads.
type Passed = (Vec<(QosPermit, u32)>, Vec<u32>, Vec<(usize, Turn)>);

struct Rig {
    group: Scheduler,
    qos_queues: Vec<QosQueue<u32>>,
    clients: Vec<ClientId>,
}

impl Rig {
    fn new(threads: usize, depth: usize, settings: &[Settings]) -> Self {
        let config = Config { depth, waiting_max: 4, ..Config::default() };
        let mut group = Scheduler::new(config).expect("it is right");
        let add = |(volume, settings): (u64, &Settings)| {
            group.add(0, Client { volume, work: Work::Guest }, *settings).expect("it is new")
        };
        let clients = (0..).zip(settings).map(add).collect();
        let qos_queues =
            (0..threads).map(|thread| QosQueue::new(thread, Mutants::default())).collect();
        Self { group, qos_queues, clients }
    }

    fn arrive(&mut self, ms: u64, thread: usize, client: usize, io: u32, patience: Option<u64>) {
        let patience_ns = patience.map(|ms| ms * MS);
        let request = QosRequest { client: self.clients[client], op: READ, patience_ns };
        self.qos_queues[thread].arrive(Instant(ms * MS), request, io);
    }

    fn turn(&mut self, ms: u64, thread: usize) -> Passed {
        let mut passed = Vec::new();
        self.qos_queues[thread].turn(Instant(ms * MS), &mut self.group, &mut passed);
        let (mut begun, mut late, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for one in passed {
            match one {
                Admission::Begins(place, io) => begun.push((place, io)),
                Admission::GivenUp(io) => late.push(io),
                Admission::Elsewhere(thread, turn) => others.push((thread, turn)),
            }
        }
        (begun, late, others)
    }
}

fn ios(begun: &[(QosPermit, u32)]) -> Vec<u32> {
    begun.iter().map(|(_, io)| *io).collect()
}

#[test]
fn what_ends_lets_the_next_one_begin() {
    let mut rig = Rig::new(1, 2, &[Settings::default()]);
    assert_eq!(rig.qos_queues[0].deadline(), None);
    for io in 0..3 {
        rig.arrive(0, 0, 0, io, None);
    }
    assert!(rig.qos_queues[0].is_due(Instant(0)));
    let (begun, ..) = rig.turn(0, 0);
    assert_eq!(ios(&begun), [0, 1]);
    assert_eq!(rig.turn(1, 0).0, []);
    rig.qos_queues[0].end(begun[1].0);
    assert!(rig.qos_queues[0].is_due(Instant(MS)));
    assert_eq!(ios(&rig.turn(1, 0).0), [2]);
    assert_eq!((rig.qos_queues[0].waiting(), rig.group.report().under_way), (0, 2));
}

#[test]
fn a_limit_wakes_the_thread_that_took_turns_last() {
    let limit = Settings { limit_iops: Some(10), ..Settings::default() };
    let mut rig = Rig::new(2, 1, &[limit]);
    rig.arrive(0, 0, 0, 0, None);
    rig.arrive(0, 0, 0, 1, None);
    let (begun, ..) = rig.turn(0, 0);
    assert_eq!(ios(&begun), [0]);
    // The depth is used up, so nothing wakes it but the end of what is under way.
    assert_eq!(rig.qos_queues[0].wake_at, None);
    rig.qos_queues[0].end(begun[0].0);
    assert_eq!(rig.turn(1, 0).0, []);
    let at = rig.qos_queues[0].deadline().expect("a limit lets it through");
    assert_eq!(at, Instant(100 * MS));
    // A turn of the other thread's has it know the same, and it takes the turn.
    rig.arrive(50, 1, 0, 2, None);
    assert_eq!(rig.turn(50, 1).0, []);
    assert_eq!(rig.qos_queues[1].deadline(), Some(at));
    let (begun, _, others) = rig.turn(100, 1);
    assert_eq!(begun, []);
    let [(0, turn)] = others[..] else { panic!("{others:?}") };
    let (place, io) = rig.qos_queues[0].admit(at, turn).expect("it waits");
    assert_eq!(io, 1);
    rig.qos_queues[0].end(place);
    assert_eq!(rig.turn(100, 0).0, []);
    let (_, _, others) = rig.turn(200, 0);
    let [(1, turn)] = others[..] else { panic!("{others:?}") };
    assert_eq!(rig.qos_queues[1].admit(at, turn).map(|(_, io)| io), Some(2));
}

#[test]
fn what_waits_too_long_is_given_up() {
    let limit = Settings { limit_iops: Some(1), ..Settings::default() };
    let mut rig = Rig::new(1, 4, &[limit]);
    for io in 0..4 {
        rig.arrive(0, 0, 0, io, (io != 2).then_some(500));
    }
    assert_eq!(ios(&rig.turn(0, 0).0), [0]);
    let deadline = rig.qos_queues[0].deadline();
    assert_eq!(deadline, Some(Instant(500 * MS)));
    let (begun, late, _) = rig.turn(500, 0);
    assert_eq!((begun, late), (vec![], vec![1, 3]));
    let report = rig.group.client(rig.clients[0]).expect("it is there");
    assert_eq!((report.waiting, report.withdrawn), (1, 2));
    // What has no end of its patience stays, and begins in its time.
    assert_eq!(ios(&rig.turn(1000, 0).0), [2]);
}

#[test]
fn a_turn_under_way_is_not_given_up() {
    let mut rig = Rig::new(2, 1, &[Settings::default()]);
    rig.arrive(0, 0, 0, 0, Some(1));
    rig.arrive(0, 1, 0, 1, None);
    let (begun, ..) = rig.turn(0, 1);
    rig.arrive(0, 0, 0, 2, Some(1));
    assert_eq!(rig.turn(0, 0).0, []);
    rig.qos_queues[1].end(begun[0].0);
    let (.., others) = rig.turn(1, 1);
    // Of two that are late by now one may begin: the word is on its way.
    let (_, late, _) = rig.turn(1, 0);
    assert_eq!(late, [2]);
    let [(0, turn)] = others[..] else { panic!("{others:?}") };
    assert_eq!(rig.qos_queues[0].admit(Instant(MS), turn).map(|(_, io)| io), Some(0));
    assert!(rig.turn(5, 0).1.is_empty() && rig.qos_queues[0].waiting() == 0);
}

#[test]
fn what_hangs_gives_up_its_place() {
    let mut rig = Rig::new(1, 1, &[Settings::default()]);
    rig.arrive(0, 0, 0, 0, None);
    rig.arrive(0, 0, 0, 1, None);
    let (first, ..) = rig.turn(0, 0);
    let hang_ms = PLACE_NS_MAX / MS;
    assert_eq!(rig.qos_queues[0].deadline(), Some(Instant(PLACE_NS_MAX)));
    assert_eq!(rig.turn(hang_ms - 1, 0).0, []);
    let (second, ..) = rig.turn(hang_ms, 0);
    assert_eq!(ios(&second), [1]);
    // By its own time-out, earlier.
    rig.arrive(hang_ms, 0, 0, 2, None);
    assert_eq!(rig.turn(hang_ms, 0).0, []);
    rig.qos_queues[0].free(second[0].0);
    let (third, ..) = rig.turn(hang_ms, 0);
    assert_eq!(ios(&third), [2]);
    // They end after all, once.
    for (place, _) in first.into_iter().chain(second).chain(third) {
        rig.qos_queues[0].end(place);
    }
    rig.turn(hang_ms, 0);
    assert!(rig.qos_queues[0].is_idle() && rig.group.report().under_way == 0);
}

#[test]
fn a_full_queue_is_asked_again() {
    let mut rig = Rig::new(1, 1, &[Settings::default()]);
    for io in 0..8 {
        rig.arrive(0, 0, 0, io, None);
    }
    let (mut begun, ..) = rig.turn(0, 0);
    let mut order = ios(&begun);
    for ms in 1..100 {
        if let Some((place, _)) = begun.pop() {
            rig.qos_queues[0].end(place);
        }
        begun = rig.turn(ms, 0).0;
        order.extend(ios(&begun));
    }
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_volume_that_leaves_waits_for_nothing() {
    let mut rig = Rig::new(2, 1, &[Settings::default(), Settings::default()]);
    for (thread, io) in [(0, 0), (0, 1), (1, 2)] {
        rig.arrive(0, thread, 0, io, None);
        rig.turn(0, thread);
    }
    // The scheduler has not heard of this one yet.
    rig.arrive(0, 1, 0, 3, None);
    let mut tokens = Vec::new();
    rig.group.remove(0, rig.clients[0], &mut tokens).expect("it is there");
    let begun: Vec<_> = turns_of_left(&tokens)
        .map(|(thread, turn)| {
            (thread, rig.qos_queues[thread].admit(Instant(0), turn).expect("it waits"))
        })
        .map(|(thread, (_, io))| (thread, io))
        .collect();
    assert_eq!(begun, [(0, 1), (1, 2)]);
    assert_eq!(ios(&rig.turn(0, 1).0), [3]);
    assert_eq!(rig.qos_queues.iter().map(QosQueue::waiting).sum::<usize>(), 0);
}
