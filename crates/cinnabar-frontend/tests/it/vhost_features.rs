//! What a well-behaved guest gets.

use crate::vhost_guest::{
    EVENT_INDEX, FEATURES, INDIRECT, LOG_ALL, NEXT, Rings, SECOND, SIZE, WRITE, descriptor, header,
    message, numbers, pair,
};
use crate::vhost_host::{DISK, Host, export};
use crate::vhost_pair::{DATA, HEADER, Pair, STATUS, kind};
use cinnabar_engine::seam::limits::DATA_BYTES_MAX;
use cinnabar_engine::seam::units::Instant;
use cinnabar_engine::seam::{Failure, IoError};
use cinnabar_frontend::vhost::{DisconnectReason, Export, ExportId, Limits, SocketSpec};
use std::sync::atomic::Ordering;

#[test]
fn what_is_written_can_be_read_in_any_layout() {
    let mut pair = Pair::new();
    let data: Vec<u8> = (0..8192_u32).map(|at| (at % 253) as u8).collect();
    assert_eq!(pair.write(3, &data), 0);
    assert_eq!(pair.disk(3, 8192), data);
    // Odd addresses, odd lengths, both regions, pieces that follow each other.
    let pieces =
        [(DATA + 0x8001, 513, true), (SECOND + 7, 1000, true), (SECOND + 1007, 6679, true)];
    assert_eq!(pair.request(kind::READ, 3, &pieces), 0);
    let seen: Vec<u8> =
        pieces.iter().flat_map(|(at, len, _)| pair.memory.read(*at, u64::from(*len))).collect();
    assert_eq!(seen, data);
    assert!(pair.host.is_clear());
}

#[test]
fn header_data_and_status_may_share_and_split_descriptors() {
    let mut pair = Pair::new();
    // A write in one readable piece, and a read whose status follows its data directly.
    let write = [header(kind::WRITE, 8), vec![7; 512]].concat();
    pair.memory.write(HEADER, &write);
    pair.rings[0].offer(&pair.memory, &[(HEADER, 528, false), (STATUS, 1, true)]);
    pair.memory.write(DATA, &header(kind::READ, 8));
    let head = [(DATA, 1, false), (DATA + 1, 14, false), (DATA + 15, 1, false)];
    let tail = [(DATA + 0x100, 500, true), (DATA + 0x100 + 500, 13, true)];
    pair.rings[0].offer(&pair.memory, &[&head[..], &tail[..]].concat());
    // One after the other: they concern the same sector.
    pair.kick();
    assert_eq!(pair.rings[0].take_used(&pair.memory), [(0, 1), (2, 513)]);
    assert_eq!(pair.disk(8, 512), vec![7; 512]);
    assert_eq!(pair.memory.read(DATA + 0x100, 513), [vec![7; 512], vec![0]].concat());
}

#[test]
fn indirect_tables_alone_and_at_the_end_of_a_chain() {
    let mut pair = Pair::new();
    pair.memory.write(HEADER, &header(kind::READ, 5));
    let table = [
        descriptor(HEADER, 16, NEXT, 2),
        descriptor(STATUS, 1, WRITE, 0),
        descriptor(DATA, 1024, NEXT | WRITE, 1),
    ];
    pair.memory.write(DATA + 0x4000, &table.concat());
    pair.rings[0].describe(&pair.memory, 0, DATA + 0x4000, 48, INDIRECT, 0);
    pair.rings[0].push(&pair.memory, 0);
    pair.kick();
    assert_eq!(pair.rings[0].take_used(&pair.memory), [(0, 1025)]);
    assert_eq!(pair.memory.read(DATA, 1024), pair.disk(5, 1024));
    // The header outside, the rest inside.
    pair.memory.write(HEADER, &header(kind::READ, 6));
    pair.memory.write(DATA + 0x4000, &[&table[2][..], &table[1]].concat());
    pair.rings[0].describe(&pair.memory, 9, HEADER, 16, NEXT, 3);
    pair.rings[0].describe(&pair.memory, 3, DATA + 0x4000, 32, INDIRECT, 0);
    pair.rings[0].push(&pair.memory, 9);
    pair.kick();
    assert_eq!(pair.rings[0].take_used(&pair.memory), [(9, 1025)]);
    assert_eq!(pair.memory.read(DATA, 1024), pair.disk(6, 1024));
}

#[test]
fn whole_blocks_are_read_straight_into_the_guest() {
    let mut pair = Pair::new();
    pair.host.pool.direct = true;
    assert_eq!(pair.read_to(DATA, 8, 8192), pair.disk(8, 8192));
    assert_eq!(pair.host.server.stats().direct_reads, 1);
    for (at, sector, len) in [(DATA + 512, 8, 4096), (DATA, 1, 4096), (DATA, 8, 512)] {
        assert_eq!(pair.read_to(at, sector, len), pair.disk(sector, len.into()));
    }
    let two = [(DATA, 4096, true), (DATA + 8192, 4096, true)];
    assert_eq!(pair.request(kind::READ, 8, &two), 0);
    assert_eq!(pair.memory.read(DATA + 8192, 4096), pair.disk(16, 4096));
    assert_eq!(pair.host.server.stats().direct_reads, 1, "none of these is one piece of blocks");
    assert!(pair.host.is_clear());
}

#[test]
fn a_failed_direct_read_is_told_when_its_memory_is_free() {
    let mut pair = Pair::new();
    (pair.host.pool.direct, pair.host.hold) = (true, true);
    let status = pair.offer(kind::READ, 0, &[(DATA, 4096, true)]);
    pair.kick();
    let request = pair.host.held.pop().expect("it was taken");
    // The engine answers while the I/O is still on its way into the guest's memory.
    let late = request.clone();
    let woken = pair.host.woken.load(Ordering::Relaxed);
    pair.host.fail(request, Failure::Io(IoError::TimedOut));
    pair.host.settle();
    assert_eq!(pair.rings[0].take_used(&pair.memory), []);
    drop(late);
    assert!(pair.host.woken.load(Ordering::Relaxed) > woken, "the loop was woken");
    pair.host.settle();
    assert_eq!((pair.rings[0].take_used(&pair.memory).len(), pair.status(status)), (1, 1));
    assert!(pair.host.is_clear());
}

#[test]
fn flush_discard_zeroes_and_the_serial_number() {
    let mut pair = Pair::new();
    assert_eq!(pair.request(kind::FLUSH, 0, &[]), 0);
    let range = |sector: u64, sectors: u32, flags: u32| {
        [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
    };
    for (kind, sector, flags) in [(kind::DISCARD, 2, 0), (kind::WRITE_ZEROES, 4, 1)] {
        pair.memory.write(DATA, &range(sector, 2, flags));
        assert_eq!(pair.request(kind, 0, &[(DATA, 16, false)]), 0);
        assert_eq!(pair.disk(sector, 1024), vec![0; 1024]);
    }
    assert_eq!(pair.request(kind::GET_ID, 0, &[(DATA, 20, true)]), 0);
    assert_eq!(pair.memory.read(DATA, 20), [&b"golden"[..], &[0; 14]].concat());
    assert_eq!(pair.request(99, 0, &[]), 2, "an unknown kind");
    let seen = [('f', 0, 0, false), ('t', 1024, 1024, false), ('z', 2048, 1024, false)];
    assert_eq!(pair.host.seen, seen);
    pair.host.hold = true;
    let status = pair.offer(kind::FLUSH, 0, &[]);
    pair.kick();
    let request = pair.host.held.pop().expect("it was taken");
    pair.host.fail(request, Failure::Io(IoError::Unsupported));
    pair.host.settle();
    assert_eq!(pair.status(status), 2);
}

#[test]
fn requests_that_do_not_fit_are_refused_and_others_go_on() {
    let mut pair = Pair::new();
    let last = (DISK / 512 - 1) as u64;
    for (sector, len) in [(last, 1024), (last + 1, 512), (u64::MAX, 512), (0, 511)] {
        assert_eq!(pair.request(kind::READ, sector, &[(DATA, len, true)]), 1, "{sector} {len}");
        assert_eq!(pair.request(kind::WRITE, sector, &[(DATA, len, false)]), 1);
    }
    // Far more than the engine takes, though it is all in memory: the same piece many times.
    let pieces = vec![(SECOND, 1 << 20, true); 33];
    const { assert!(33 << 20 > DATA_BYTES_MAX) };
    assert_eq!(pair.request(kind::READ, 0, &pieces), 1);
    assert_eq!(pair.read_to(DATA, last, 512), pair.disk(last, 512));
    assert_eq!(pair.host.server.stats().refused_requests, 9);
    let mut sealed = Pair::with(
        Limits::default(),
        Export { read_only: true, ..export() },
        1,
        FEATURES & !(3 << 13),
    );
    assert_eq!(sealed.write(0, &[1; 512]), 1);
    assert_eq!(sealed.read_to(DATA, 0, 512), sealed.disk(0, 512));
}

#[test]
fn the_device_describes_itself() {
    let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
    let features = pair.ask_number(1);
    assert_eq!(features & (FEATURES | LOG_ALL), FEATURES | LOG_ALL);
    assert_eq!((features >> 5 & 1, features >> 12 & 1, features >> 34), (0, 1, 0));
    assert_eq!(pair.ask_number(15), 1 | 1 << 1 | 1 << 3 | 1 << 9 | 1 << 12 | 1 << 15);
    assert_eq!((pair.ask_number(17), pair.ask_number(36)), (4, 32));
    let asked = [numbers(&[60 << 32]), vec![0; 64]].concat();
    let space = pair.ask(24, &asked).0;
    assert_eq!(space.len(), 72);
    assert_eq!(space[12..20], (DISK as u64 / 512).to_le_bytes());
    let beyond = [self::pair(200, 100), vec![0; 104]].concat();
    assert_eq!(pair.ask(24, &beyond).0, [0; 0], "no such bytes");
}

#[test]
fn a_driver_that_turns_write_back_off_gets_durable_writes() {
    let mut pair = Pair::new();
    assert_eq!(pair.write(0, &[1; 512]), 0);
    let set = |value: u8| [self::pair(32, 1), vec![0; 4], vec![value]].concat();
    pair.host.hold = true;
    pair.offer(kind::WRITE, 9, &[(DATA, 512, false)]);
    pair.kick();
    pair.link.send(&message(25, 8, &set(0)), &[]);
    pair.host.settle();
    assert_eq!(pair.host.seen.len(), 2, "a flush covers what is answered, so it waits for that");
    pair.host.answer_held(false);
    pair.host.settle();
    assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 1);
    assert!(pair.link.receive().is_none(), "what was written before is not durable yet");
    pair.host.hold = false;
    pair.host.answer_held(false);
    pair.host.settle();
    assert_eq!(pair.link.receive().map(|answer| answer.1), Some(numbers(&[0])));
    assert_eq!(pair.write(1, &[2; 512]), 0);
    pair.memory.write(DATA, &[&4_u64.to_le_bytes()[..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat());
    assert_eq!(pair.request(kind::WRITE_ZEROES, 0, &[(DATA, 16, false)]), 0);
    pair.ack(25, &set(1), &[]);
    assert_eq!(pair.write(2, &[3; 512]), 0);
    let seen = [
        ('w', 0, 512, false),
        ('w', 9 * 512, 512, false),
        ('f', 0, 0, false),
        ('w', 512, 512, true),
        ('z', 2048, 512, true),
        ('w', 1024, 512, false),
    ];
    assert_eq!(pair.host.seen, seen);
    // Nothing else of the space is the driver's to change.
    pair.link.send(&message(25, 8, &[self::pair(0, 1), vec![0; 4], vec![9]].concat()), &[]);
    pair.host.settle();
    assert_eq!(pair.link.receive().map(|answer| answer.1), Some(numbers(&[1])));
}

#[test]
fn without_flush_every_write_is_durable() {
    let features = FEATURES & !(1 << 9) & !(1 << 11);
    let mut pair = Pair::with(Limits::default(), export(), 1, features);
    assert_eq!(pair.write(0, &[1; 512]), 0);
    assert_eq!(pair.host.seen, [('w', 0, 512, true)]);
}

#[test]
fn queues_are_served_side_by_side_and_answers_come_in_any_order() {
    let mut pair = Pair::with(Limits::default(), export(), 4, FEATURES | EVENT_INDEX);
    pair.host.hold = true;
    for queue in 0..4 {
        for at in 0..4_u64 {
            let to = DATA + 0x1000 * (4 * queue as u64 + at);
            pair.offer_in(queue, kind::READ, at, &[(to, 512, true)]);
        }
        pair.rings[queue].ring_bell();
    }
    pair.host.settle();
    assert_eq!(pair.host.held.len(), 16);
    pair.host.answer_held(true);
    pair.host.settle();
    for queue in 0..4 {
        let used = pair.rings[queue].take_used(&pair.memory);
        assert_eq!(used.iter().map(|used| used.0).collect::<Vec<_>>(), [9, 6, 3, 0]);
        for at in 0..4_u64 {
            let to = DATA + 0x1000 * (4 * queue as u64 + at);
            assert_eq!(pair.memory.read(to, 512), pair.disk(at, 512));
        }
    }
    let stats = pair.host.server.stats();
    assert_eq!((stats.requests, stats.calls), (16, 4), "one call a queue and turn");
}

#[test]
fn calls_are_made_as_wanted() {
    for features in [FEATURES, FEATURES | EVENT_INDEX] {
        let mut pair = Pair::with(Limits::default(), export(), 1, features);
        assert!(pair.rings[0].was_called(), "a new queue may have missed one");
        pair.rings[0].want_call_after(&pair.memory, 2);
        assert_eq!(pair.write(0, &[1; 512]), 0);
        assert!(pair.rings[0].was_called(), "the first after a start, wanted or not");
        // Without event indices: a flag.
        pair.memory.write(pair.rings[0].available(), &1_u16.to_le_bytes());
        assert_eq!(pair.write(0, &[1; 512]), 0);
        assert!(!pair.rings[0].was_called());
        pair.memory.write(pair.rings[0].available(), &0_u16.to_le_bytes());
        assert_eq!(pair.write(0, &[1; 512]), 0);
        assert!(pair.rings[0].was_called(), "the third, as asked");
        assert_eq!(pair.write(0, &[1; 512]), 0);
        assert_eq!(pair.rings[0].was_called(), features & EVENT_INDEX == 0);
    }
}

#[test]
fn polling_needs_no_kicks_and_its_end_misses_nothing() {
    for features in [FEATURES, FEATURES | EVENT_INDEX] {
        let event_index = features & EVENT_INDEX != 0;
        let mut pair = Pair::with(Limits::default(), export(), 1, features);
        pair.offer(kind::FLUSH, 0, &[]);
        assert!(pair.rings[0].wants_kick(&pair.memory, event_index));
        pair.kick();
        pair.rings[0].take_used(&pair.memory);
        assert!(!pair.host.server.set_polling(true));
        for _ in 0..3 * SIZE {
            pair.offer(kind::FLUSH, 0, &[]);
            assert!(!pair.rings[0].wants_kick(&pair.memory, event_index));
            pair.host.settle();
            assert_eq!(pair.rings[0].take_used(&pair.memory), [], "the server did not poll");
            assert!(pair.host.poll_rings());
            assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 1);
            assert!(!pair.host.poll_rings());
        }
        pair.offer(kind::FLUSH, 0, &[]);
        assert!(pair.host.server.set_polling(false), "it came before kicks were asked for");
        pair.host.settle();
        assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 1);
        assert!(!pair.host.server.set_polling(false));
        pair.offer(kind::FLUSH, 0, &[]);
        assert!(pair.rings[0].wants_kick(&pair.memory, event_index));
    }
}

#[test]
fn a_queue_that_starts_while_the_host_polls_is_told() {
    let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
    pair.host.server.set_polling(true);
    pair.set_up(|_| 0);
    pair.offer(kind::FLUSH, 0, &[]);
    assert!(!pair.rings[0].wants_kick(&pair.memory, true));
    assert!(pair.host.poll_rings());
}

#[test]
fn requests_beyond_the_bound_wait_in_the_ring() {
    let limits = Limits { connection_requests_max: 4, ..Limits::default() };
    let mut pair = Pair::with(limits, export(), 1, FEATURES | EVENT_INDEX);
    pair.host.hold = true;
    for _ in 0..20 {
        pair.offer(kind::READ, 0, &[(DATA, 512, true)]);
    }
    pair.kick();
    assert_eq!((pair.host.held.len(), pair.host.server.has_backlog()), (4, false));
    pair.kick();
    assert!(!pair.host.poll_rings(), "there is no room: polling does not help");
    let mut done = 0;
    while done < 20 {
        assert!(pair.host.held.len() <= 4);
        pair.host.answer_held(false);
        pair.host.settle();
        done += pair.rings[0].take_used(&pair.memory).len();
    }
    assert!(pair.host.server.stats().pauses > 0);
    assert!(pair.host.is_clear());
}

#[test]
fn bytes_are_bounded_and_one_longest_request_always_fits() {
    let limits = Limits { connection_bytes_max: 1, bytes_max: 1, ..Limits::default() };
    let mut pair = Pair::with(limits, export(), 1, FEATURES | EVENT_INDEX);
    pair.host.hold = true;
    let bound = pair.host.server.limits().connection_bytes_max;
    for _ in 0..12 {
        pair.offer(kind::WRITE, 0, &[(SECOND, 1 << 20, false); 1]);
    }
    // A mebibyte each; make the bound bite with the largest requests there are.
    for _ in 0..3 {
        let pieces = [(SECOND, 1 << 20, false)];
        pair.offer(kind::WRITE, 1, &pieces);
    }
    pair.kick();
    let held = pair.host.server.stats().held_bytes;
    assert!(held <= bound, "{held} of {bound}");
    while !pair.host.held.is_empty() {
        pair.host.answer_held(true);
        pair.host.settle();
    }
    assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 15);
    assert!(pair.host.is_clear());
}

#[test]
fn a_ring_is_stopped_when_its_requests_are_done() {
    let mut pair = Pair::new();
    pair.host.hold = true;
    pair.offer(kind::READ, 0, &[(DATA, 512, true)]);
    pair.kick();
    pair.tell(11, &self::pair(0, 0), &[]);
    pair.tell(17, &[], &[]);
    pair.offer(kind::FLUSH, 0, &[]);
    pair.host.settle();
    assert!(pair.link.receive().is_none(), "one is under way");
    pair.host.answer_held(false);
    pair.host.settle();
    let base = pair.link.receive().map(|answer| (answer.0, answer.1));
    assert_eq!(base, Some((11, self::pair(0, 1))));
    assert_eq!(pair.link.receive().map(|answer| answer.0), Some(17), "and then the next message");
    assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 1);
    // It goes on where it stopped.
    pair.host.hold = false;
    let base = self::pair(0, 1);
    pair.ack(10, &base, &[]);
    let kick = pair.rings[0].kick.try_clone().expect("a handle");
    pair.ack(12, &numbers(&[0]), &[std::os::fd::AsFd::as_fd(&kick)]);
    assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 1, "without a kick");
}

#[test]
fn a_stop_that_takes_too_long_costs_the_connection() {
    let mut pair = Pair::new();
    pair.host.hold = true;
    pair.offer(kind::READ, 0, &[(DATA, 512, true)]);
    pair.kick();
    pair.tell(11, &self::pair(0, 0), &[]);
    let deadline = pair.host.server.deadline().expect("time is running");
    pair.host.now = deadline;
    pair.host.settle();
    assert_eq!(pair.host.server.connections(ExportId(1)), 1, "not yet");
    pair.host.now = Instant(u64::MAX / 2);
    pair.is_cut_off(DisconnectReason::StopTimeout);
}

#[test]
fn a_disabled_queue_is_not_served() {
    let mut pair = Pair::new();
    pair.ack(18, &self::pair(0, 0), &[]);
    pair.offer(kind::FLUSH, 0, &[]);
    pair.kick();
    assert!(!pair.host.poll_rings());
    assert_eq!(pair.rings[0].take_used(&pair.memory), []);
    pair.ack(18, &self::pair(0, 1), &[]);
    assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 1);
}

#[test]
fn one_guest_writes_many_read() {
    let mut pair = Pair::new();
    let second = pair.host.connect(ExportId(1));
    pair.host.settle();
    assert!(second.is_closed());
    assert_eq!(pair.host.server.stats().disconnects(DisconnectReason::InUse), 1);
    assert_eq!(pair.write(0, &[1; 512]), 0, "the first goes on");
    // A connection that is gone, although the server has not noticed, makes way.
    let left = std::mem::replace(&mut pair.link.0, pair.host.connect(ExportId(1)).0);
    drop(left);
    let third = pair.host.connect(ExportId(1));
    pair.host.settle();
    assert!(!third.is_closed());
    let sealed = Export { read_only: true, ..export() };
    let mut host = Host::serving(Limits::default(), sealed);
    let links: Vec<_> = (0..3).map(|_| host.connect(ExportId(1))).collect();
    host.settle();
    assert!(links.iter().all(|link| !link.is_closed()));
}

#[test]
fn exports_come_and_go() {
    let mut pair = Pair::new();
    let (socket, directory) = (pair.host.socket(), tempfile::tempdir().expect("a folder"));
    let path = directory.path().join("other.sock");
    let spec = |path: &std::path::Path| SocketSpec { path: path.into(), mode: None, group: None };
    let other = |id, path| (Export { id: ExportId(id), ..export() }, spec(path));
    let mut add =
        |(export, spec)| pair.host.server.add(export, spec).map_err(|error| error.to_string());
    assert!(add(other(1, &path)).is_err(), "the id is in use");
    assert!(add(other(2, &socket)).is_err(), "the socket is in use");
    let wrong = Export { queues_max: 17, id: ExportId(2), ..export() };
    assert!(add((wrong, spec(&path))).is_err());
    assert_eq!(add(other(2, &path)), Ok(()));
    assert!(pair.host.server.remove(ExportId(2), &mut pair.host.pool));
    assert!(!path.exists());
    pair.host.hold = true;
    pair.offer(kind::READ, 0, &[(DATA, 512, true)]);
    pair.kick();
    assert!(pair.host.server.remove(ExportId(1), &mut pair.host.pool));
    assert!(!pair.host.server.remove(ExportId(1), &mut pair.host.pool));
    pair.host.settle();
    assert!(pair.link.is_closed() && !socket.exists());
    assert_eq!(pair.host.server.stats().disconnects(DisconnectReason::ExportRemoved), 1);
    pair.host.answer_held(false);
    assert!(pair.host.is_clear());
}

#[test]
fn a_server_that_drains_answers_what_it_has_and_closes() {
    let mut pair = Pair::new();
    pair.host.hold = true;
    let status = pair.offer(kind::READ, 0, &[(DATA, 512, true)]);
    pair.kick();
    pair.host.server.drain(&mut pair.host.pool);
    pair.offer(kind::FLUSH, 0, &[]);
    pair.kick();
    assert!(!pair.host.server.is_drained());
    assert!(!pair.host.socket().exists(), "no other front-end can connect");
    pair.host.answer_held(false);
    pair.host.settle();
    assert!(pair.host.server.is_drained());
    assert_eq!((pair.rings[0].take_used(&pair.memory).len(), pair.status(status)), (1, 0));
    pair.is_cut_off(DisconnectReason::Stopping);
}

#[test]
fn rings_of_a_second_queue_need_not_be_the_first() {
    // A front-end may set up any of its queues, in any order, and leave out some.
    let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
    pair.rings = vec![Rings::new(0), Rings::new(1)];
    pair.set_up(|_| 0);
    pair.offer_in(1, kind::FLUSH, 0, &[]);
    pair.rings[1].ring_bell();
    pair.host.settle();
    assert_eq!(pair.rings[1].take_used(&pair.memory).len(), 1);
}

/// Requests taken of each of a few short turns: two queues of small ones, then one large one as well.
#[test]
fn queues_have_one_turn_together_and_what_is_large_is_owed() {
    let mut pair = Pair::with(Limits::default(), export(), 2, FEATURES | EVENT_INDEX);
    pair.host.server.follow(Instant(u64::MAX));
    let taken = |pair: &mut Pair, turns: usize| -> Vec<usize> {
        let turn = |_| {
            pair.host.turn(0);
            std::mem::take(&mut pair.host.seen).len()
        };
        (0..turns).map(turn).collect()
    };
    for queue in [0, 1] {
        for sector in 0..6 {
            pair.offer_in(queue, kind::READ, sector, &[(DATA, 512, true)]);
        }
        pair.rings[queue].ring_bell();
    }
    assert_eq!(taken(&mut pair, 4), [4, 4, 4, 0]);
    pair.offer_in(0, kind::WRITE, 0, &[(0, 1 << 20, false)]);
    for queue in [0, 1] {
        pair.offer_in(queue, kind::READ, 0, &[(DATA, 512, true)]);
        pair.rings[queue].ring_bell();
    }
    // Sixteen for a mebibyte: what one may have in four turns.
    assert_eq!(taken(&mut pair, 6), [1, 0, 0, 0, 2, 0]);
}

/// A bell that rings in each turn does not bring a queue before those that wait for theirs.
#[test]
fn a_queue_that_is_kicked_all_the_time_keeps_no_other_waiting() {
    let mut pair = Pair::with(Limits::default(), export(), 2, FEATURES | EVENT_INDEX);
    pair.host.server.follow(Instant(u64::MAX));
    let mut waited = None;
    for turn in 0..12 {
        // As much as one may have in a turn, and the other one asks once.
        for _ in 0..4 {
            pair.offer_in(0, kind::READ, 0, &[(DATA, 512, true)]);
        }
        pair.rings[0].ring_bell();
        if turn == 2 {
            pair.offer_in(1, kind::READ, 8, &[(DATA, 512, true)]);
            pair.rings[1].ring_bell();
        }
        pair.host.turn(0);
        let is_served = pair.host.seen.iter().any(|(_, offset, ..)| *offset == 8 * 512);
        waited = waited.or(is_served.then_some(turn - 2));
        pair.rings[0].take_used(&pair.memory);
    }
    assert!(waited.is_some_and(|turns| turns <= 2), "{waited:?}");
}
