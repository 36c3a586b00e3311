//! Clients that agreed on no block size: they begin and end at any byte.

use crate::client::{Client, request};
use crate::host::Host;
use crate::running::{Running, held, memory};
use crate::sample::{SIZE, export};
use cinnabar_engine::seam::Op;
use cinnabar_frontend::nbd::proto::command as cmd;
use cinnabar_frontend::nbd::{Command, Export, ExportId, Incoming, Limits};

fn server() -> Running {
    Running::start(Limits::default(), vec![export(1, "vm1")], memory)
}

#[test]
fn any_bytes_can_be_written_zeroed_and_read() {
    let server = server();
    let mut client = Client::enter(&server.socket, "vm1");
    let mut model = vec![0_u8; usize::try_from(SIZE).expect("small")];
    // Numbers that wander over sectors and blocks, the same each time.
    let mut state = 12345_u64;
    let mut next = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..600_u64 {
        let len = 1 + next([3, 600, 5000][(round % 3) as usize]);
        let offset = next(SIZE - len + 1).min(next(20_000)).min(SIZE - len);
        let (at, end) = (offset as usize, (offset + len) as usize);
        match next(4) {
            0 => {
                client.send(&request(cmd::WRITE_ZEROES, 9, offset, len as u32));
                assert_eq!(client.simple_reply(), (0, 9));
                model[at..end].fill(0);
            }
            1 => assert_eq!(client.read_at(offset, len as usize), Ok(model[at..end].to_vec())),
            _ => {
                let byte = 1 + (round % 255) as u8;
                assert_eq!(client.write(offset, &vec![byte; len as usize]), 0);
                model[at..end].fill(byte);
            }
        }
    }
    let all = client.read_at(0, model.len()).expect("it reads");
    assert!(all == model, "the disk is not what it should be");
    client.send(&request(cmd::CACHE, 1, 1, 3));
    assert_eq!(client.simple_reply(), (0, 1));
    client.send(&request(cmd::TRIM, 2, 1, 5));
    assert_eq!(client.simple_reply(), (0, 2));
    assert_eq!(client.read_at(0, 8), Ok(model[..8].to_vec()), "a trim of no sector does nothing");
    drop(client);
    assert!(server.nothing_is_held());
}

/// Lets the server's turns pass, answering what is held after each, until all is answered.
fn answer_all(server: &Running) {
    for _ in 0..20 {
        server.run(|host| {
            host.turn(5);
            host.answer_held();
            host.turn(0);
        });
    }
}

#[test]
fn changes_of_one_sector_are_not_lost_to_each_other() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], held);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::enter(&server.socket, "vm1")).collect();
    // All at once: bytes of the first sector, the whole of it, and zeros across its end.
    clients[0].send(&[request(cmd::WRITE, 1, 10, 3).as_slice(), b"abc"].concat());
    server.run(|host| host.turn(50));
    clients[1].send(&[request(cmd::WRITE, 2, 20, 3).as_slice(), b"def"].concat());
    server.run(|host| host.turn(50));
    clients[2].send(&request(cmd::WRITE_ZEROES, 3, 500, 1000));
    server.run(|host| host.turn(50));
    clients[3].send(&[request(cmd::WRITE, 4, 512, 512).as_slice(), &[7; 512]].concat());
    server.run(|host| host.turn(50));
    answer_all(&server);
    for (client, cookie) in clients.iter_mut().zip(1..) {
        assert_eq!(client.simple_reply(), (0, cookie));
    }
    clients[0].send(&request(cmd::READ, 5, 0, 2048));
    answer_all(&server);
    assert_eq!(clients[0].simple_reply(), (0, 5));
    let bytes = clients[0].read::<2048>();
    assert_eq!((&bytes[10..13], &bytes[20..23]), (&b"abc"[..], &b"def"[..]));
    let sector = &bytes[512..1024];
    assert!(sector == [7; 512] || sector == [0; 512], "one of the two, whole");
    drop(clients);
    answer_all(&server);
    assert!(server.nothing_is_held());
}

#[test]
fn a_whole_sector_written_while_a_part_is_changed_stays() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], held);
    let mut client = Client::enter(&server.socket, "vm1");
    client.send(&[request(cmd::WRITE, 1, 10, 3).as_slice(), b"abc"].concat());
    server.run(|host| host.turn(50));
    client.send(&[request(cmd::WRITE, 2, 0, 512).as_slice(), &[7; 512]].concat());
    server.run(|host| host.turn(50));
    answer_all(&server);
    assert_eq!(client.simple_reply(), (0, 1));
    assert_eq!(client.simple_reply(), (0, 2));
    client.send(&request(cmd::READ, 3, 0, 512));
    answer_all(&server);
    assert_eq!(client.simple_reply(), (0, 3));
    let sector = client.read::<512>();
    let expected = [[7; 10].as_slice(), b"abc", &[7; 499]].concat();
    assert!(sector == [7; 512] || sector[..] == expected[..], "what it held before is back");
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_change_leaves_nothing() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], held);
    let mut client = Client::enter(&server.socket, "vm1");
    client.send(&[request(cmd::WRITE, 1, 10, 3).as_slice(), b"abc"].concat());
    client.send(&[request(cmd::WRITE, 2, 11, 3).as_slice(), b"abc"].concat());
    server.run(|host| host.turn(50));
    drop(client);
    server.run(|host| host.turn(50));
    answer_all(&server);
    assert!(server.nothing_is_held());
}

/// Answers what is held but reads, until nothing else is.
fn answer_changes(server: &Running) {
    for _ in 0..20 {
        server.run(|host| {
            host.turn(5);
            let is_read =
                |held: &Incoming<_>| matches!(held.command, Command::Engine(Op::Read { .. }));
            let (reads, others) = std::mem::take(&mut host.held).into_iter().partition(is_read);
            host.held = others;
            host.answer_held();
            host.held = reads;
            host.turn(0);
        });
    }
}

#[test]
fn what_a_client_that_left_did_not_get_through_never_lands_on_its_successors_writes() {
    let write = |cookie, offset, data: &[u8]| {
        [request(cmd::WRITE, cookie, offset, data.len() as u32).as_slice(), data].concat()
    };
    let part = write(1, 10, b"abc");
    for sent in [
        // A change of sectors whose edges are read, and what waits for one.
        write(1, 10, &[7; 2000]),
        request(cmd::WRITE_ZEROES, 1, 10, 2000),
        [part.clone(), write(2, 0, &[7; 4096])].concat(),
        [part.clone(), write(2, 20, &[7; 4000])].concat(),
        [part, request(cmd::WRITE_ZEROES, 2, 20, 4000)].concat(),
    ] {
        let server = Running::start(Limits::default(), vec![export(1, "vm1")], held);
        let mut first = Client::enter(&server.socket, "vm1");
        first.send(&sent);
        assert!(server.until(|host| !host.held.is_empty()));
        drop(first);
        assert!(server.until(|host| host.server.connections(ExportId(1)) == 0));
        let mut second = Client::enter(&server.socket, "vm1");
        second.send(&write(3, 1024, &[9; 512]));
        answer_changes(&server);
        assert_eq!(second.simple_reply(), (0, 3));
        answer_all(&server);
        second.send(&request(cmd::READ, 4, 1024, 512));
        answer_all(&server);
        assert_eq!(second.simple_reply(), (0, 4));
        assert!(second.read::<512>() == [9; 512], "an acknowledged write is gone");
        drop(second);
        answer_all(&server);
        assert!(server.nothing_is_held());
    }
}

#[test]
fn a_change_that_was_read_when_its_client_left_is_given_up() {
    for sent in [
        [request(cmd::WRITE, 1, 10, 2000).as_slice(), &[7; 2000]].concat(),
        request(cmd::WRITE_ZEROES, 1, 10, 2000),
    ] {
        let server = Running::start(Limits::default(), vec![export(1, "vm1")], held);
        let mut client = Client::enter(&server.socket, "vm1");
        client.send(&sent);
        assert!(server.until(|host| host.held.len() == 2));
        drop(client);
        let handed_over = server.run(|host| {
            host.answer_held();
            host.server.remove_export(ExportId(1), &mut host.pool);
            host.turn(0);
            host.turn(0);
            host.held.len()
        });
        assert_eq!(handed_over, 0, "the export's id may be another volume's by now");
        assert!(server.nothing_is_held());
    }
}

#[test]
fn the_engine_never_has_more_than_all_clients_may_ask_for() {
    let limits = Limits { requests_max: 64, ..Limits::default() };
    let server = Running::start(limits, vec![export(1, "vm1")], held);
    let mut clients: Vec<Client> = (0..6).map(|_| Client::enter(&server.socket, "vm1")).collect();
    for (at, client) in (0_u64..).zip(&mut clients) {
        let zeroes = |one| request(cmd::WRITE_ZEROES, one, (at * 40 + one) * 4096 + 10, 2000);
        client.send(&(0..40).flat_map(zeroes).collect::<Vec<u8>>());
    }
    let mut most = 0;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while server.stats().requests < 240 || server.stats().held_requests > 0 {
        most = most.max(server.run(|host| {
            for _ in 0..10 {
                host.turn(0);
            }
            let held = host.held.len();
            host.answer_held();
            host.turn(0);
            held
        }));
        assert!(std::time::Instant::now() < deadline, "it does not go on");
    }
    assert!((20..=64).contains(&most), "{most} at a time");
    for client in &mut clients {
        let mut cookies: Vec<u64> = (0..40).map(|_| client.simple_reply().1).collect();
        cookies.sort_unstable();
        assert!(cookies.into_iter().eq(0..40));
    }
}

#[test]
fn who_waits_for_its_own_does_not_hold_up_others() {
    let disk = |id, name| Export { size_bytes: 32 << 20, ..export(id, name) };
    let limits = Limits { bytes_max: 0, ..Limits::default() };
    let server = Running::start(limits, vec![disk(1, "vm1"), disk(2, "vm2")], held);
    let long = |cookie| request(cmd::READ, cookie, 0, 30 << 20);
    let mut hung = Client::enter(&server.socket, "vm1");
    hung.send(&long(1));
    assert!(server.until(|host| host.held.len() == 1));
    // There is not enough for this one, for its own export holds too much.
    let mut starved = Client::enter(&server.socket, "vm1");
    starved.send(&long(2));
    assert!(server.until(|host| host.server.stats().pauses == 1));
    // What its export's first client leaves behind is its own now, and comes to no end.
    drop(hung);
    assert!(server.until(|host| host.server.connections(ExportId(1)) == 1));
    let mut other = Client::enter(&server.socket, "vm2");
    let more = [request(cmd::READ, 3, 0, 4 << 20), request(cmd::READ, 4, 0, 4 << 20)].concat();
    other.send(&more);
    assert!(server.until(|host| host.held.len() == 3), "it borrows more and more");
    drop((starved, other));
    assert!(server.until(|host| host.server.stats().connections == 0));
    server.run(Host::answer_held);
    assert!(server.nothing_is_held());
}

/// Disks of 32 MiB among so many that 24 KiB are each one's own, and 72 MiB can be borrowed.
fn four_of_many() -> Vec<Export> {
    let disk = |id| Export { size_bytes: 32 << 20, ..export(id, &format!("vm{id}")) };
    let other = |id| export(id, &format!("other{id}"));
    (1..=4).map(disk).chain((5..=1000).map(other)).collect()
}

#[test]
fn who_waits_in_vain_does_not_hold_up_others_for_as_long_as_back_ends_hang() {
    let limits = Limits { bytes_max: 0, ..Limits::default() };
    let server = Running::start(limits, four_of_many(), held);
    let mut hung = Client::enter(&server.socket, "vm1");
    hung.send(&[request(cmd::READ, 1, 0, 30 << 20), request(cmd::READ, 1, 0, 5 << 20)].concat());
    assert!(server.until(|host| host.held.len() == 2));
    let mut hung_too = Client::enter(&server.socket, "vm4");
    hung_too.send(&request(cmd::READ, 1, 0, 18 << 20));
    assert!(server.until(|host| host.held.len() == 3));
    // What is left is not enough for this one, whatever others do.
    let mut starved = Client::enter(&server.socket, "vm2");
    starved.send(&request(cmd::READ, 2, 0, 30 << 20));
    assert!(server.until(|host| host.server.stats().pauses == 1));
    let mut other = Client::enter(&server.socket, "vm3");
    let reads = (3..8).flat_map(|one| request(cmd::READ, one, 0, 32 << 10));
    other.send(&reads.collect::<Vec<u8>>());
    assert!(server.until(|host| host.server.stats().pauses == 2));
    let answered = |host: &mut Host| {
        let is_other = |held: &Incoming<_>| held.export == ExportId(3);
        let (others, rest) = std::mem::take(&mut host.held).into_iter().partition(is_other);
        host.held = others;
        host.answer_held();
        host.held = rest;
        for _ in 0..3 {
            host.turn(0);
        }
        host.held.len()
    };
    assert_eq!(server.run(answered), 4, "the hung ones, and one at a time");
    let later = server.run(move |host| {
        host.skipped_ns += 11_000_000_000;
        answered(host)
    });
    assert_eq!(later, 6, "the hung ones, and all that it asks for");
    server.run(answered);
    for cookie in 3..8 {
        assert_eq!(other.simple_reply(), (0, cookie));
        other.read::<{ 32 << 10 }>();
    }
    server.run(|host| {
        host.answer_held();
        host.turn(0);
    });
    assert_eq!(hung.simple_reply(), (0, 1));
    drop((hung, hung_too, starved, other));
    assert!(server.until(|host| host.server.stats().connections == 0));
    server.run(Host::answer_held);
    assert!(server.nothing_is_held());
}

#[test]
fn who_waits_in_vain_is_passed_over_though_nothing_else_happens() {
    let limits = Limits { bytes_max: 0, ..Limits::default() };
    let server = Running::start(limits, four_of_many(), held);
    let mut hung = Client::enter(&server.socket, "vm1");
    hung.send(&[request(cmd::READ, 1, 0, 30 << 20), request(cmd::READ, 1, 0, 5 << 20)].concat());
    assert!(server.until(|host| host.held.len() == 2));
    let mut hung_too = Client::enter(&server.socket, "vm4");
    hung_too.send(&request(cmd::READ, 1, 0, 18 << 20));
    assert!(server.until(|host| host.held.len() == 3));
    let mut starved = Client::enter(&server.socket, "vm2");
    starved.send(&request(cmd::READ, 2, 0, 30 << 20));
    assert!(server.until(|host| host.server.stats().pauses == 1));
    // The first of these hangs, too: the second has to wait.
    let mut other = Client::enter(&server.socket, "vm3");
    other.send(&[request(cmd::READ, 3, 0, 32 << 10), request(cmd::READ, 4, 0, 32 << 10)].concat());
    assert!(server.until(|host| host.server.stats().pauses == 2));
    let passed = server.run(|host| {
        let before = host.held.len();
        host.skipped_ns += 11_000_000_000;
        for _ in 0..3 {
            host.turn(0);
        }
        (before, host.held.len())
    });
    assert_eq!(passed, (4, 5));
    drop((hung, hung_too, starved, other));
    assert!(server.until(|host| host.server.stats().connections == 0));
    server.run(Host::answer_held);
    assert!(server.nothing_is_held());
}

#[test]
fn a_change_whose_sector_can_not_be_read_fails() {
    let server = server();
    let mut client = Client::enter(&server.socket, "vm1");
    // The disk is gone: whatever is asked of it fails.
    server.run(|host| host.forget_disk(ExportId(1)));
    assert_ne!(client.write(1, &[1; 3]), 0);
    client.send(&request(cmd::WRITE_ZEROES, 1, 1, 3000));
    assert_ne!(client.simple_reply().0, 0);
    drop(client);
    assert!(server.nothing_is_held());
}

#[test]
fn what_is_refused_is_counted_by_export() {
    let server =
        Running::start(Limits::default(), vec![export(1, "vm1"), export(2, "vm2")], memory);
    let mut client = Client::enter(&server.socket, "vm1");
    for _ in 0..3 {
        assert!(client.read_at(SIZE, 512).is_err());
        assert_eq!(client.read_at(0, 1), Ok(vec![0]));
    }
    let refused = |id| server.run(move |host| host.server.refused(ExportId(id)));
    assert_eq!((refused(1), refused(2)), (3, 0));
    assert_eq!(server.stats().refused_requests, 3);
}
