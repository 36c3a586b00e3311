//! The log of dirty pages: which writes are marked, when, and which logs are refused.

use crate::vhost_bounds::sparse;
use crate::vhost_guest::{
    EVENT_INDEX, FEATURES, HALF, LOG_ALL, LOG_BYTES, Link, Memory, PROTOCOL, SECOND, USER,
    log_file, message, numbers, region,
};
use crate::vhost_host::{Host, export};
use crate::vhost_pair::{DATA, HEADER, Pair, kind};
use cinnabar_engine::seam::{Failure, IoError};
use cinnabar_frontend::vhost::{DisconnectReason, Export, ExportId, Limits, SocketSpec};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{fstat, ftruncate};
use std::os::fd::AsFd;

/// Pages of the used ring, and of the status bytes.
const USED: u64 = 0x1a;
const STATUSES: u64 = HEADER >> 12;
const NONE: [u64; 0] = [];

/// A guest that is being migrated, with one queue.
struct Logged {
    pair: Pair,
    log: OwnedFd,
}

impl Logged {
    fn new() -> Self {
        let mut logged = Self { pair: Pair::new(), log: log_file(LOG_BYTES).0 };
        logged.begin();
        logged
    }

    /// What a front-end says that starts to migrate.
    fn begin(&mut self) {
        let Self { pair, log } = self;
        pair.ack(6, &numbers(&[LOG_BYTES, 0]), &[log.as_fd()]);
        pair.ack(2, &numbers(&[pair.features | LOG_ALL]), &[]);
        self.take();
    }

    fn end(&mut self) {
        let features = self.pair.features;
        self.pair.ack(2, &numbers(&[features]), &[]);
    }

    /// The pages marked since it was last asked.
    fn take(&mut self) -> Vec<u64> {
        take(&self.log)
    }
}

fn take(log: &OwnedFd) -> Vec<u64> {
    let mut bytes = vec![0; LOG_BYTES as usize];
    rustix::io::pread(log, &mut bytes[..], 0).expect("readable");
    let set = (0..).zip(&bytes).filter(|(_, byte)| **byte != 0);
    let bits = |(at, byte): (u64, &u8)| {
        let byte = *byte;
        (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| 8 * at + bit)
    };
    let pages = set.flat_map(bits).collect();
    rustix::io::pwrite(log, &vec![0; LOG_BYTES as usize], 0).expect("writable");
    pages
}

#[test]
fn each_kind_of_write_is_marked_and_nothing_else() {
    let mut logged = Logged::new();
    let second = SECOND >> 12;
    let data = DATA >> 12;
    for direct in [false, true] {
        logged.pair.host.pool.direct = direct;
        for (kind, pieces, pages) in [
            (kind::READ, &[(DATA, 8192, true)][..], vec![data, data + 1]),
            (kind::READ, &[(DATA + 4095, 512, true)], vec![data, data + 1]),
            (kind::READ, &[(SECOND, 4096, true)], vec![second]),
            (
                kind::READ,
                &[(HALF - 512, 512, true), (SECOND + 4096, 512, true)],
                vec![(HALF >> 12) - 1, second + 1],
            ),
            (kind::GET_ID, &[(DATA + 0x5000, 20, true)], vec![data + 5]),
            (kind::WRITE, &[(DATA + 0x6000, 512, false)], vec![]),
            (kind::FLUSH, &[], vec![]),
            (99, &[], vec![]),
        ] {
            logged.pair.request(kind, 0, pieces);
            let mut expected = [vec![USED, STATUSES], pages].concat();
            expected.sort_unstable();
            assert_eq!(logged.take(), expected, "{kind} {pieces:?} {direct}");
        }
    }
    logged.end();
    logged.pair.request(kind::READ, 0, &[(DATA, 4096, true)]);
    assert_eq!(logged.take(), NONE, "it is over");
    logged.begin();
    logged.pair.request(kind::READ, 0, &[(DATA, 4096, true)]);
    assert_eq!(logged.take(), [USED, STATUSES, data], "the log is known still");
}

#[test]
fn each_part_of_a_used_ring_is_marked_where_it_lies() {
    // Flags and index in the first page; entries and the index for kicks in the second.
    let index_alone = 0x1_affc_u64;
    // All in the first page but the index for kicks.
    let event_alone = 0x1_b000 - 516;
    for (event_index, used, polling, expected) in [
        (true, index_alone, true, &[0x1a, 0x1b, STATUSES][..]),
        (true, event_alone, false, &[0x1a, 0x1b, STATUSES]),
        (true, event_alone, true, &[0x1a, STATUSES]),
        (false, event_alone, false, &[0x1a, STATUSES]),
    ] {
        let features = if event_index { FEATURES | EVENT_INDEX } else { FEATURES };
        let pair = Pair::with(Limits::default(), export(), 1, features);
        let mut logged = Logged { pair, log: log_file(LOG_BYTES).0 };
        let mut addresses = logged.pair.rings[0].addresses(0);
        addresses[16..24].copy_from_slice(&(USER + used).to_ne_bytes());
        logged.pair.ack(9, &addresses, &[]);
        logged.pair.host.server.set_polling(polling);
        logged.begin();
        logged.pair.offer(kind::FLUSH, 0, &[]);
        logged.pair.kick();
        logged.pair.host.poll_rings();
        assert_eq!(logged.take(), expected, "{event_index} {used:#x} {polling}");
    }
}

#[test]
fn asking_for_kicks_and_not_is_marked_and_told() {
    for features in [FEATURES, FEATURES | EVENT_INDEX] {
        let pair = Pair::with(Limits::default(), export(), 1, features);
        let mut logged = Logged { pair, log: log_file(LOG_BYTES).0 };
        logged.begin();
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd");
        logged.pair.ack(7, &[], &[call.as_fd()]);
        let _ = rustix::io::read(&call, &mut [0; 8]);
        for polling in [true, false] {
            logged.pair.host.server.set_polling(polling);
            logged.pair.host.settle();
            assert_eq!(logged.take(), [USED]);
            assert!(rustix::io::read(&call, &mut [0; 8]).is_ok(), "it was told");
        }
        logged.pair.host.settle();
        assert!(rustix::io::read(&call, &mut [0; 8]).is_err(), "nothing new");
        logged.pair.request(kind::FLUSH, 0, &[]);
        assert!(rustix::io::read(&call, &mut [0; 8]).is_ok());
    }
}

#[test]
fn what_was_under_way_is_marked_when_it_ends() {
    let mut logged = Logged { pair: Pair::new(), log: log_file(LOG_BYTES).0 };
    logged.pair.host.hold = true;
    for (at, direct) in [(DATA, true), (DATA + 0x1000, false), (DATA + 0x2000, true)] {
        logged.pair.host.pool.direct = direct;
        logged.pair.offer(kind::READ, 0, &[(at, 4096, true)]);
        logged.pair.kick();
    }
    logged.begin();
    assert_eq!(logged.take(), NONE);
    let failed = logged.pair.host.held.pop().expect("three");
    let late = failed.clone();
    logged.pair.host.answer_held(false);
    logged.pair.host.settle();
    let data = DATA >> 12;
    assert_eq!(logged.take(), [USED, STATUSES, data, data + 1]);
    // One that is answered with an error may still be writing, until it is dropped.
    logged.pair.host.fail(failed, Failure::Io(IoError::TimedOut));
    logged.pair.host.settle();
    assert_eq!(logged.take(), NONE);
    drop(late);
    logged.pair.host.settle();
    assert_eq!(logged.take(), [USED, STATUSES, data + 2]);
}

#[test]
fn a_read_that_outlives_its_connection_is_marked_when_it_ends() {
    for fails in [false, true] {
        let mut logged = Logged::new();
        (logged.pair.host.hold, logged.pair.host.pool.direct) = (true, true);
        logged.pair.offer(kind::READ, 0, &[(DATA, 4096, true)]);
        logged.pair.kick();
        logged.take();
        let request = logged.pair.host.held.pop().expect("it was taken");
        let late = request.clone();
        let mut request = Some(request);
        if fails && let Some(request) = request.take() {
            logged.pair.host.fail(request, Failure::Io(IoError::TimedOut));
        }
        let _ = rustix::net::shutdown(&logged.pair.link.0, rustix::net::Shutdown::Both);
        logged.pair.host.settle();
        assert_eq!(logged.take(), NONE);
        drop(late);
        if let Some(request) = request {
            logged.pair.host.answer(request);
        }
        logged.pair.host.settle();
        assert_eq!(logged.take(), [DATA >> 12], "{fails}");
    }
}

#[test]
fn a_ring_is_logged_at_the_address_it_was_given() {
    let mut logged = Logged::new();
    logged.pair.rings[0].log = Some(0x30_0000);
    let addresses = logged.pair.rings[0].addresses(0);
    logged.pair.ack(9, &addresses, &[]);
    assert_eq!(logged.take(), [0x300], "what is there may be new to the log");
    logged.pair.request(kind::FLUSH, 0, &[]);
    assert_eq!(logged.take(), [STATUSES, 0x300]);
    logged.end();
    logged.take();
    logged.pair.request(kind::FLUSH, 0, &[]);
    assert_eq!(logged.take(), [0x300], "by its own flag");
    logged.pair.rings[0].log = None;
    let addresses = logged.pair.rings[0].addresses(0);
    logged.pair.ack(9, &addresses, &[]);
    logged.pair.request(kind::FLUSH, 0, &[]);
    assert_eq!(logged.take(), NONE);
}

#[test]
fn rings_that_ran_before_there_was_a_log_make_all_pages_dirty_that_there_are() {
    let mut pair = Pair::new();
    let log = log_file(LOG_BYTES).0;
    pair.ack(2, &numbers(&[pair.features | LOG_ALL]), &[]);
    pair.request(kind::READ, 0, &[(DATA, 4096, true)]);
    pair.request(kind::READ, 0, &[(SECOND + 4096, 4096, true)]);
    let first = rustix::fs::seek(&pair.memory.file, rustix::fs::SeekFrom::Data(0));
    let first = first.expect("rings are in it") >> 12;
    pair.ack(6, &numbers(&[LOG_BYTES, 0]), &[log.as_fd()]);
    let (half, second) = (HALF >> 12, SECOND >> 12);
    let all: Vec<u64> = (first..half).chain(second + 1..second + half).collect();
    assert_eq!(take(&log), all, "nobody has written what is before these");
    pair.request(kind::READ, 0, &[(DATA, 4096, true)]);
    assert_eq!(take(&log), [USED, STATUSES, DATA >> 12]);
}

#[test]
fn another_log_takes_over_and_the_answer_comes_unasked() {
    let mut logged = Logged::new();
    logged.pair.host.hold = true;
    logged.pair.offer(kind::READ, 0, &[(DATA, 4096, true)]);
    logged.pair.kick();
    let (next, payload) = log_file(LOG_BYTES);
    logged.pair.tell(6, &payload, &[next.as_fd()]);
    assert_eq!(
        logged.pair.link.receive().map(|(kind, answer, _)| (kind, answer.len())),
        Some((6, 8))
    );
    logged.take();
    take(&next);
    logged.pair.host.answer_held(false);
    logged.pair.host.settle();
    assert_eq!((logged.take(), take(&next)), (vec![], vec![USED, STATUSES, DATA >> 12]));
    // Without the feature there is no answer of its own.
    let mut pair = Pair::new();
    pair.ack(16, &numbers(&[PROTOCOL & !2]), &[]);
    pair.tell(6, &payload, &[next.as_fd()]);
    assert!(pair.link.receive().is_none());
}

#[test]
fn a_stop_waits_for_what_is_under_way_and_marks_it() {
    let mut logged = Logged::new();
    (logged.pair.host.hold, logged.pair.host.pool.direct) = (true, true);
    logged.pair.offer(kind::READ, 0, &[(DATA, 4096, true)]);
    logged.pair.offer(kind::READ, 0, &[(DATA + 0x1000, 4096, true)]);
    logged.pair.kick();
    logged.pair.offer(kind::READ, 0, &[(DATA + 0x2000, 4096, true)]);
    logged.take();
    logged.pair.tell(11, &crate::vhost_guest::pair(0, 0), &[]);
    let first = logged.pair.host.held.remove(0);
    logged.pair.host.answer(first);
    logged.pair.host.settle();
    assert!(logged.pair.link.receive().is_none(), "one is under way still");
    let second = logged.pair.host.held.remove(0);
    let late = second.clone();
    logged.pair.host.fail(second, Failure::Io(IoError::TimedOut));
    logged.pair.host.settle();
    assert!(logged.pair.link.receive().is_none(), "it may write still");
    drop(late);
    logged.pair.host.settle();
    let data = DATA >> 12;
    let marked = logged.take();
    let answer = logged.pair.link.receive().map(|(kind, answer, _)| (kind, answer));
    assert_eq!(answer, Some((11, crate::vhost_guest::pair(0, 2))));
    assert_eq!(marked, [USED, STATUSES, data, data + 1]);
    logged.pair.host.server.set_polling(true);
    logged.pair.kick();
    assert_eq!((logged.take(), logged.pair.host.held.len()), (vec![], 0), "it is stopped");
}

#[test]
fn a_log_that_is_too_small_is_refused() {
    // One byte, of eight pages, too little.
    let (short, payload) = log_file(LOG_BYTES - 1);
    let mut pair = Pair::new();
    pair.tell(6, &payload, &[short.as_fd()]);
    pair.is_cut_off(DisconnectReason::LogTooSmall);
    // More memory than the log has bits for.
    let file = |logged: &Logged| logged.pair.memory.file.try_clone().expect("a handle");
    let more = [numbers(&[0]), region(SECOND + HALF, 0)].concat();
    let mut logged = Logged::new();
    let memory = file(&logged);
    logged.pair.tell(37, &more, &[memory.as_fd()]);
    logged.pair.is_cut_off(DisconnectReason::LogTooSmall);
    // That is fine when nothing is logged, until something is.
    let mut logged = Logged::new();
    logged.end();
    logged.pair.ack(37, &more, &[memory.as_fd()]);
    let features = logged.pair.features | LOG_ALL;
    logged.pair.tell(2, &numbers(&[features]), &[]);
    logged.pair.is_cut_off(DisconnectReason::LogTooSmall);
    // A used ring beyond the log, or around the end of all addresses.
    for address in [LOG_BYTES * 8 * 4096 - 517, u64::MAX - 4] {
        let mut logged = Logged::new();
        logged.pair.rings[0].log = Some(address);
        let addresses = logged.pair.rings[0].addresses(0);
        logged.pair.tell(9, &addresses, &[]);
        logged.pair.is_cut_off(DisconnectReason::LogTooSmall);
    }
}

#[test]
fn a_log_that_is_not_there_or_malformed_is_refused() {
    let (file, payload) = log_file(LOG_BYTES);
    let (pipe, _end) = std::io::pipe().expect("a pipe");
    let (file, pipe) = (file.as_fd(), pipe.as_fd());
    for (kind, payload, fds, reason) in [
        (6, numbers(&[LOG_BYTES + 1, 0]), vec![file], DisconnectReason::LogMemory),
        (6, numbers(&[LOG_BYTES, 1]), vec![file], DisconnectReason::LogMemory),
        (6, numbers(&[u64::MAX, 8]), vec![file], DisconnectReason::LogMemory),
        (6, numbers(&[0, 0]), vec![file], DisconnectReason::LogMemory),
        (6, payload.clone(), vec![pipe], DisconnectReason::LogMemory),
        (6, payload.clone(), vec![], DisconnectReason::Descriptors),
        (6, payload.clone(), vec![file, file], DisconnectReason::Descriptors),
        (6, numbers(&[LOG_BYTES]), vec![file], DisconnectReason::Payload),
        (7, vec![], vec![file], DisconnectReason::NotEventFd),
        (7, vec![], vec![], DisconnectReason::Descriptors),
        (7, numbers(&[0]), vec![file], DisconnectReason::Payload),
    ] {
        let mut pair = Pair::new();
        pair.tell(kind, &payload, &fds);
        pair.is_cut_off(reason);
    }
}

#[test]
fn a_log_that_is_truncated_costs_its_guest_the_connection_and_nobody_else() {
    let mut logged = Logged::new();
    ftruncate(&logged.log, 0).expect("it is not sealed");
    logged.pair.offer(kind::READ, 0, &[(DATA, 4096, true)]);
    logged.pair.rings[0].ring_bell();
    logged.pair.is_cut_off(DisconnectReason::LogGone);
    // The next one is served.
    let mut next = Pair::strangers(logged.pair.host, 1);
    next.set_up(|_| 0);
    assert_eq!(next.read_to(DATA, 8, 4096), next.disk(8, 4096));
}

#[test]
fn a_front_end_that_logs_from_the_start_may_say_so_in_any_order() {
    for log_first in [false, true] {
        let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
        pair.features |= LOG_ALL;
        let (log, payload) = log_file(LOG_BYTES);
        pair.tell(16, &numbers(&[PROTOCOL]), &[]);
        if log_first {
            pair.tell(6, &payload, &[log.as_fd()]);
            assert_eq!(pair.link.receive().map(|answer| answer.0), Some(6));
        }
        pair.set_up(|_| 0);
        if !log_first {
            pair.link.send(&message(6, 8, &payload), &[log.as_fd()]);
            pair.host.settle();
            assert_eq!(
                pair.link.receive().map(|answer| (answer.0, answer.1)),
                Some((6, numbers(&[0])))
            );
        }
        take(&log);
        pair.request(kind::READ, 0, &[(SECOND, 4096, true)]);
        assert_eq!(take(&log), [USED, STATUSES, SECOND >> 12]);
    }
}

/// A guest whose log comes late, with something in each of 512 pieces of its memory.
fn begin_late_log(pair: &mut Pair) -> OwnedFd {
    pair.features |= LOG_ALL;
    pair.tell(16, &numbers(&[PROTOCOL]), &[]);
    pair.set_up(|_| 0);
    let memory = sparse(64 << 30);
    for window in 0..512 {
        rustix::io::pwrite(&memory, &[1], window * (128 << 20)).expect("room");
    }
    let region = [numbers(&[0]), numbers(&[1 << 40, 64 << 30, 1 << 50, 0])].concat();
    pair.ack(37, &region, &[memory.as_fd()]);
    sparse(((1_u64 << 40) + (64 << 30)) / 4096 / 8)
}

fn send_late_log(link: &Link, log: &OwnedFd) {
    let bytes = fstat(log).expect("its size").st_size.cast_unsigned();
    link.send(&message(6, 8, &numbers(&[bytes, 0])), &[log.as_fd()]);
}

/// Pieces that are marked: each has a page of the log.
fn pieces_marked(log: &OwnedFd) -> i64 {
    fstat(log).expect("its size").st_blocks / 8
}

/// Marking 480 MiB of log took a second, in which no other guest was served.
#[test]
fn a_log_that_comes_late_is_marked_in_turns() {
    let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
    let log = begin_late_log(&mut pair);
    send_late_log(&pair.link, &log);
    let mut turns = 0;
    while pieces_marked(&log) < 512 {
        pair.host.turn(0);
        turns += 1;
        assert!(turns < 100);
    }
    assert!(turns >= 2, "all in one turn");
    pair.host.settle();
    let answer = pair.link.receive().map(|answer| (answer.0, answer.1));
    assert_eq!(answer, Some((6, numbers(&[0]))));
}

/// Each guest of a data thread has some of the turn, all of them together no more than one alone.
#[test]
fn logs_of_all_guests_are_marked_in_turns_together() {
    let mut host = Host::serving(Limits::default(), export());
    let mut guests = Vec::new();
    for id in 1..=3 {
        if id > 1 {
            let export = Export { id: ExportId(id), name: format!("vm{id}"), ..export() };
            let path = host.socket().with_extension(format!("{id}"));
            host.server.add(export, SocketSpec { path, mode: None, group: None }).expect("valid");
        }
        let link = host.connect(ExportId(id));
        let mut pair = Pair::around(host, Memory::new(), link);
        let log = begin_late_log(&mut pair);
        let (back, memory, link, rings) = pair.apart();
        host = back;
        guests.push((log, link, (memory, rings)));
    }
    for (log, link, _) in &guests {
        send_late_log(link, log);
    }
    let marked = || guests.iter().map(|(log, ..)| pieces_marked(log)).sum::<i64>();
    let mut before = marked();
    while marked() < 3 * 512 {
        host.turn(0);
        let now = marked();
        assert!((1..=256).contains(&(now - before)), "{} in a turn", now - before);
        before = now;
    }
    host.settle();
    for (_, link, _) in &guests {
        let answer = link.receive().map(|answer| (answer.0, answer.1));
        assert_eq!(answer, Some((6, numbers(&[0]))));
    }
}
