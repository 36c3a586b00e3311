//! A guest or a front-end that breaks the rules is disconnected, with one reason. Nothing is lost,
//! and no other guest is disturbed.

use crate::vhost_guest::{
    EVENT_INDEX, FEATURES, HALF, INDIRECT, MEMORY, NEXT, SECOND, SIZE, USER, WRITE, descriptor,
    header, message, numbers, pair, region,
};
use crate::vhost_host::{Host, export};
use crate::vhost_pair::{DATA, HEADER, Pair, STATUS, kind};
use cinnabar_engine::seam::units::Instant;
use cinnabar_frontend::vhost::{DisconnectReason as Why, Limits};
use rustix::fs::ftruncate;
use std::os::fd::AsFd;

/// A chain as raw descriptors: address, length, flags, next.
type Raw = (u64, u32, u16, u16);

/// Offers descriptors 0.. as they are, head first, and kicks.
fn offer_raw(pair: &mut Pair, head: u16, raw: &[Raw]) {
    pair.memory.write(HEADER, &header(kind::READ, 0));
    for (index, (address, len, flags, next)) in (0..).zip(raw) {
        pair.rings[0].describe(&pair.memory, index, *address, *len, *flags, *next);
    }
    pair.rings[0].push(&pair.memory, head);
    pair.kick();
}

#[test]
fn chains_that_make_no_sense() {
    let head = (HEADER, 16, NEXT, 1);
    let data = (DATA, 512, NEXT | WRITE, 2);
    let status = (STATUS, 1, WRITE, 0);
    let cases: &[(Why, u16, Vec<Raw>)] = &[
        (Why::Descriptor, SIZE, vec![head]),
        (Why::Descriptor, u16::MAX, vec![head]),
        (Why::Descriptor, 0, vec![(HEADER, 16, NEXT, SIZE), data, status]),
        (Why::ChainTooLong, 0, vec![(HEADER, 16, NEXT, 0)]),
        (Why::ChainTooLong, 0, vec![head, (DATA, 512, NEXT | WRITE, 1)]),
        (Why::ChainTooLong, 0, vec![head, (DATA, 0, NEXT, 1)]),
        (Why::ChainAddress, 0, vec![head, (HALF, 512, NEXT | WRITE, 2), status]),
        (Why::ChainAddress, 0, vec![head, (HALF - 1, 2, NEXT | WRITE, 2), status]),
        (Why::ChainAddress, 0, vec![head, (u64::MAX, 512, NEXT | WRITE, 2), status]),
        (Why::ChainAddress, 0, vec![head, (DATA, u32::MAX, NEXT | WRITE, 2), status]),
        (Why::ChainAddress, 0, vec![head, (USER, 512, NEXT | WRITE, 2), status]),
        (Why::ChainAddress, 0, vec![head, data, (SECOND + HALF, 1, WRITE, 0)]),
        (Why::ChainOrder, 0, vec![head, data, (HEADER, 16, NEXT, 3), status]),
        (Why::RequestTooShort, 0, vec![(HEADER, 15, NEXT, 1), (STATUS, 1, WRITE, 0)]),
        (Why::RequestTooShort, 0, vec![(HEADER, 16, 0, 0)]),
        (Why::RequestTooShort, 0, vec![(STATUS, 1, WRITE, 0)]),
        (Why::RequestTooShort, 0, vec![head, (STATUS, 0, WRITE, 0)]),
    ];
    for (reason, first, raw) in cases {
        let mut pair = Pair::new();
        offer_raw(&mut pair, *first, raw);
        pair.is_cut_off(*reason);
    }
}

#[test]
fn indirect_tables_that_make_no_sense() {
    let entry = |address, len, flags, next| descriptor(address, len, flags, next);
    let table = DATA + 0x4000;
    let whole = [entry(HEADER, 16, NEXT, 1), entry(STATUS, 1, WRITE, 0)].concat();
    let looping = [entry(HEADER, 16, NEXT, 1), entry(DATA, 512, NEXT | WRITE, 1)].concat();
    let nested = [entry(HEADER, 16, NEXT, 1), entry(table, 32, INDIRECT, 0)].concat();
    let beyond = [entry(HEADER, 16, NEXT, 2), entry(STATUS, 1, WRITE, 0)].concat();
    let cases: &[(Why, &[u8], Raw)] = &[
        (Why::Indirect, &nested, (table, 32, INDIRECT, 0)),
        (Why::Indirect, &whole, (table, 0, INDIRECT, 0)),
        (Why::Indirect, &whole, (table, 33, INDIRECT, 0)),
        (Why::Indirect, &whole, (table, 32, INDIRECT | NEXT, 1)),
        (Why::Indirect, &whole, (table, 1 << 20, INDIRECT, 0)),
        (Why::Indirect, &whole, (table, !15, INDIRECT, 0)),
        (Why::ChainTooLong, &looping, (table, 32, INDIRECT, 0)),
        (Why::ChainAddress, &whole, (HALF - 16, 32, INDIRECT, 0)),
        (Why::Descriptor, &beyond, (table, 32, INDIRECT, 0)),
    ];
    for (reason, bytes, head) in cases {
        let mut pair = Pair::new();
        pair.memory.write(table, bytes);
        offer_raw(&mut pair, 0, &[*head]);
        pair.is_cut_off(*reason);
    }
    let mut pair = Pair::with(Limits::default(), export(), 1, FEATURES & !(1 << 28));
    pair.memory.write(table, &whole);
    offer_raw(&mut pair, 0, &[(table, 32, INDIRECT, 0)]);
    pair.is_cut_off(Why::Indirect);
}

#[test]
fn more_requests_than_a_ring_holds() {
    for ahead in [SIZE + 1, 0x8000, u16::MAX] {
        let mut pair = Pair::new();
        let index = pair.rings[0].available() + 2;
        pair.memory.write(index, &ahead.to_le_bytes());
        pair.kick();
        pair.is_cut_off(Why::AvailableIndex);
    }
    // An index that goes back is one that goes far ahead.
    let mut pair = Pair::new();
    assert_eq!(pair.write(0, &[1; 512]), 0);
    pair.memory.write(pair.rings[0].available() + 2, &0_u16.to_le_bytes());
    assert!(pair.host.poll_rings());
    pair.is_cut_off(Why::AvailableIndex);
}

#[test]
fn a_chain_offered_twice_at_a_time() {
    let mut pair = Pair::new();
    pair.host.hold = true;
    pair.offer(kind::READ, 0, &[(DATA, 512, true)]);
    pair.rings[0].push(&pair.memory, 0);
    pair.kick();
    pair.is_cut_off(Why::Descriptor);
}

#[test]
fn memory_that_changes_while_it_is_used() {
    let mut pair = Pair::new();
    pair.host.hold = true;
    pair.memory.write(DATA, &[1; 512]);
    let status = pair.offer(kind::WRITE, 3, &[(DATA, 512, false)]);
    pair.kick();
    // Too late: header, chain and data were taken.
    pair.memory.write(DATA, &[2; 512]);
    pair.memory.write(HEADER, &header(kind::WRITE, 9));
    for index in 0..3 {
        pair.rings[0].describe(&pair.memory, index, u64::MAX, u32::MAX, NEXT | INDIRECT, index);
    }
    pair.host.answer_held(false);
    pair.host.settle();
    assert_eq!((pair.status(status), pair.disk(3, 512)), (0, vec![1; 512]));
    assert_ne!(pair.disk(9, 512), vec![1; 512]);
}

#[test]
fn a_memory_table_changed_in_the_middle_of_a_request() {
    for direct in [false, true] {
        let mut pair = Pair::new();
        (pair.host.hold, pair.host.pool.direct) = (true, direct);
        let status = pair.offer(kind::READ, 8, &[(SECOND + 4096, 4096, true)]);
        pair.kick();
        // The second region goes, and with it the old table.
        let gone = [numbers(&[0]), region(SECOND, HALF)].concat();
        pair.ack(38, &gone, &[]);
        pair.host.answer_held(false);
        pair.host.settle();
        assert_eq!(pair.status(status), 0, "it keeps what it began with");
        assert_eq!(pair.memory.read(SECOND + 4096, 4096), pair.disk(8, 4096));
        pair.host.hold = false;
        // New requests see the new one.
        let file = pair.memory.file.try_clone().expect("a handle");
        pair.ack(37, &[numbers(&[0]), region(SECOND << 1, HALF)].concat(), &[file.as_fd()]);
        let status = pair.offer(kind::READ, 9, &[((SECOND << 1) + 8192, 512, true)]);
        pair.kick();
        assert_eq!(pair.status(status), 0);
        assert_eq!(pair.memory.read(SECOND + 8192, 512), pair.disk(9, 512));
        pair.offer(kind::READ, 8, &[(SECOND + 4096, 512, true)]);
        pair.kick();
        pair.is_cut_off(Why::ChainAddress);
    }
}

#[test]
fn a_table_without_the_rings_ends_the_connection() {
    let mut pair = Pair::new();
    let file = pair.memory.file.try_clone().expect("a handle");
    pair.tell(5, &[self::pair(1, 0), region(SECOND, HALF)].concat(), &[file.as_fd()]);
    pair.is_cut_off(Why::RingAddress);
}

#[test]
fn memory_whose_file_is_truncated() {
    // While it is idle, with a request under way, and with one being answered.
    for (held, direct) in [(false, false), (true, false), (true, true)] {
        let mut pair = Pair::new();
        (pair.host.hold, pair.host.pool.direct) = (held, direct);
        let before = pair.host.disk.clone();
        pair.memory.write(SECOND, &[9; 4096]);
        pair.offer(kind::READ, 0, &[(DATA, 4096, true)]);
        if held {
            pair.kick();
        }
        ftruncate(&pair.memory.file, 0).expect("smaller");
        pair.rings[0].ring_bell();
        pair.host.settle();
        pair.host.answer_held(false);
        pair.host.poll_rings();
        pair.host.settle();
        assert_eq!(pair.host.disk, before);
        pair.is_cut_off(Why::MemoryGone);
    }
    // A write whose data vanish is not carried out.
    let mut pair = Pair::new();
    let before = pair.host.disk.clone();
    pair.memory.write(HEADER, &header(kind::WRITE, 0));
    pair.offer(kind::WRITE, 0, &[(SECOND, 4096, false)]);
    ftruncate(&pair.memory.file, HALF).expect("smaller");
    pair.kick();
    assert_eq!(pair.host.disk, before);
    pair.is_cut_off(Why::MemoryGone);
}

/// A front-end that sends these messages right after connecting is disconnected.
#[test]
fn messages_that_make_no_sense() {
    let whole = message(5, 0, &[self::pair(1, 0), region(0, 0)].concat());
    let raw =
        |request: u32, flags: u32, size: u32| [request, flags, size].map(u32::to_ne_bytes).concat();
    let one = numbers(&[1]);
    let cases: Vec<(Why, Vec<u8>)> = vec![
        (Why::Header, raw(1, 2, 0)),
        (Why::Header, raw(1, 5, 0)),
        (Why::Header, raw(2, 1, u32::MAX)),
        (Why::UnknownMessage, message(0, 0, &[])),
        (Why::Descriptors, message(6, 0, &numbers(&[4096, 0]))),
        (Why::UnknownMessage, message(34, 0, &[])),
        (Why::UnknownMessage, message(u32::MAX, 8, &[])),
        (Why::Payload, message(1, 0, &one)),
        (Why::Payload, message(2, 0, &[0; 7])),
        (Why::Features, message(2, 0, &numbers(&[1 << 27]))),
        (Why::Features, message(2, 0, &numbers(&[1 << 34]))),
        (Why::Features, message(16, 0, &numbers(&[1 << 2]))),
        (Why::NoQueue, message(8, 0, &self::pair(4, 64))),
        (Why::NoQueue, message(18, 0, &self::pair(u32::MAX, 1))),
        (Why::NoQueue, message(12, 0, &numbers(&[0x104]))),
        (Why::RingSize, message(8, 0, &self::pair(0, 0))),
        (Why::RingSize, message(8, 0, &self::pair(0, 63))),
        (Why::RingSize, message(8, 0, &self::pair(0, 2048))),
        (Why::RingSize, message(8, 0, &self::pair(0, 1 << 16))),
        (Why::Payload, message(10, 0, &self::pair(0, 1 << 16))),
        (Why::NoKick, message(12, 0, &numbers(&[0x100]))),
        (Why::Descriptors, message(12, 0, &numbers(&[0]))),
        (Why::Descriptors, whole),
        (Why::Payload, message(5, 0, &self::pair(9, 0))),
        (Why::Region, message(38, 0, &[numbers(&[0]), region(0, 0)].concat())),
        (Why::Descriptors, message(37, 0, &[numbers(&[0]), region(0, 0)].concat())),
        (Why::Inflight, message(31, 0, &numbers(&[0, 0, 0]))),
        (Why::Inflight, message(31, 0, &numbers(&[0, 0, 0x1_0011]))),
        (Why::Descriptors, message(32, 0, &numbers(&[0, 0, 64 << 16 | 1]))),
        (Why::Payload, message(24, 0, &self::pair(0, 60))),
        (Why::Payload, message(25, 0, &[self::pair(u32::MAX, 1), vec![0; 5]].concat())),
    ];
    for (reason, bytes) in cases {
        let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
        pair.link.send(&bytes, &[]);
        pair.is_cut_off(reason);
    }
}

/// Descriptors that have no business there, too many of them, or of a wrong kind.
#[test]
fn messages_with_descriptors_that_make_no_sense() {
    let whole = message(5, 0, &[self::pair(1, 0), region(0, 0)].concat());
    let memory = crate::vhost_guest::Memory::new();
    let (file, pipe) = (memory.file.as_fd(), std::io::pipe().expect("a pipe"));
    let outside = numbers(&[0, HALF, USER, MEMORY]);
    let table = |count, regions: &[Vec<u8>]| {
        message(5, 0, &[self::pair(count, 0), regions.concat()].concat())
    };
    let cases = [
        (Why::Descriptors, message(1, 0, &[]), vec![file]),
        (Why::Descriptors, whole.clone(), vec![file; 2]),
        (Why::Descriptors, whole.clone(), vec![file; 9]),
        (Why::Descriptors, whole.clone(), vec![file; 20]),
        (Why::Descriptors, message(12, 0, &numbers(&[0])), vec![file; 2]),
        (Why::Descriptors, message(13, 0, &numbers(&[0x100])), vec![file]),
        (Why::NotEventFd, message(12, 0, &numbers(&[0])), vec![file]),
        (Why::NotEventFd, message(13, 0, &numbers(&[0])), vec![pipe.1.as_fd()]),
        (Why::NotShared, whole, vec![pipe.0.as_fd()]),
        (Why::TooShort, table(1, std::slice::from_ref(&outside)), vec![file]),
        (Why::Region, table(1, &[numbers(&[0, 0, USER, 0])]), vec![file]),
        (Why::Region, table(1, &[numbers(&[u64::MAX, 4096, USER, 0])]), vec![file]),
        (Why::MemoryMax, table(1, &[numbers(&[0, u64::MAX, USER, 0])]), vec![file]),
        (Why::Region, table(2, &[region(0, 0), region(4096, HALF)]), vec![file; 2]),
        (Why::TooShort, message(32, 0, &numbers(&[1 << 40, 0, 64 << 16 | 1])), vec![file]),
        (Why::Inflight, message(32, 0, &numbers(&[64, 0, 64 << 16 | 1])), vec![file]),
        (Why::Inflight, message(32, 0, &numbers(&[1 << 20, 1, 64 << 16 | 1])), vec![file]),
    ];
    for (at, (reason, bytes, fds)) in cases.into_iter().enumerate() {
        let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
        pair.link.send(&bytes, &fds);
        println!("case {at}");
        pair.is_cut_off(reason);
    }
}

#[test]
fn rings_that_are_nowhere_or_askew() {
    let base = 0x10000_u64;
    for (descriptors, used, available) in [
        (USER + HALF * 3, USER + base + 0xa000, USER + base + 0x8000),
        (USER + base + 8, USER + base + 0xa000, USER + base + 0x8000),
        (USER + base, USER + base + 0xa002, USER + base + 0x8000),
        (USER + base, USER + base + 0xa000, USER + base + 0x8001),
        (USER + HALF - 16, USER + base + 0xa000, USER + base + 0x8000),
        (0, 0, 0),
        (u64::MAX - 15, USER + base, USER + base),
    ] {
        let mut pair = Pair::new();
        let places = [self::pair(0, 0), numbers(&[descriptors, used, available, 0])].concat();
        pair.tell(9, &places, &[]);
        pair.is_cut_off(Why::RingAddress);
    }
}

#[test]
fn changes_of_a_ring_that_runs() {
    for (kind, value) in [(8, 32), (10, 7)] {
        let mut pair = Pair::new();
        pair.tell(kind, &self::pair(0, value), &[]);
        pair.is_cut_off(Why::RingRuns);
    }
}

#[test]
fn a_driver_of_the_old_kind() {
    let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
    pair.tell(2, &numbers(&[1 << 9 | 1 << 30]), &[]);
    let file = pair.memory.file.try_clone().expect("a handle");
    pair.tell(5, &[self::pair(1, 0), region(0, 0)].concat(), &[file.as_fd()]);
    pair.tell(8, &self::pair(0, 64), &[]);
    let addresses = pair.rings[0].addresses(0);
    pair.tell(9, &addresses, &[]);
    let kick = pair.rings[0].kick.try_clone().expect("a handle");
    pair.tell(12, &numbers(&[0]), &[kick.as_fd()]);
    assert!(!pair.link.is_closed(), "it may say so until it starts");
    pair.tell(18, &self::pair(0, 1), &[]);
    pair.is_cut_off(Why::Legacy);
}

#[test]
fn a_front_end_that_closes_within_a_message() {
    let bytes = message(2, 0, &numbers(&[FEATURES]));
    for cut in [1, 11, 12, 19] {
        let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
        pair.link.send(&bytes[..cut], &[]);
        pair.host.settle();
        rustix::net::shutdown(&pair.link.0, rustix::net::Shutdown::Write).expect("open");
        pair.is_cut_off(Why::Truncated);
    }
}

#[test]
fn a_message_may_come_in_pieces_but_not_for_ever() {
    let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
    for byte in message(1, 0, &[]) {
        assert!(pair.link.receive().is_none());
        pair.link.send(&[byte], &[]);
        pair.host.settle();
    }
    assert!(pair.link.receive().is_some());
    pair.link.send(&message(1, 0, &[])[..5], &[]);
    pair.host.settle();
    pair.host.now = Instant(u64::MAX / 2);
    pair.is_cut_off(Why::MessageTimeout);
}

#[test]
fn a_front_end_that_reads_no_answers_is_not_listened_to_and_then_cut_off() {
    let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
    let asked = message(24, 0, &[self::pair(0, 256), vec![0; 260]].concat());
    for _ in 0..10_000 {
        pair.link.send(&asked, &[]);
        pair.host.turn(0);
    }
    pair.host.settle();
    assert!(!pair.link.is_closed());
    pair.host.now = Instant(u64::MAX / 2);
    pair.host.settle();
    assert_eq!(pair.host.server.stats().disconnects(Why::MessageTimeout), 1);
}

#[test]
fn a_guest_that_is_cut_off_disturbs_nobody() {
    let mut host = Host::serving(Limits::default(), export());
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("other.sock");
    let socket = cinnabar_frontend::vhost::SocketSpec { path, mode: None, group: None };
    let other = cinnabar_frontend::vhost::ExportId(2);
    host.server
        .add(cinnabar_frontend::vhost::Export { id: other, ..export() }, socket)
        .expect("a valid export");
    let mut pair = Pair::strangers(host, 1);
    pair.features = FEATURES | EVENT_INDEX;
    pair.set_up(|_| 0);
    pair.host.hold = true;
    let status = pair.offer(kind::READ, 3, &[(DATA, 512, true)]);
    pair.kick();
    let hostile = pair.host.connect(other);
    hostile.send(&message(99, 0, &[]), &[]);
    pair.host.settle();
    assert!(hostile.is_closed());
    pair.host.answer_held(false);
    pair.host.settle();
    assert_eq!((pair.status(status), pair.memory.read(DATA, 512)), (0, pair.disk(3, 512)));
}
