//! More than fits: in flight, in a turn, in the socket; under level- and edge-triggered polling.

use crate::client::{Client, option, reads, request};
use crate::host::Host;
use crate::running::{both, held, memory};
use crate::sample::export;
use cinnabar_frontend::nbd::proto::{command as cmd, option as opt};
use cinnabar_frontend::nbd::{Export, Limits};
use rustix::net::sockopt;
use std::io::Read;
use std::time::{Duration, Instant};

#[test]
fn requests_beyond_the_bound_wait_in_the_socket() {
    let limits = Limits { connection_requests_max: 4, ..Limits::default() };
    for server in both(&limits, &[export(1, "vm1")], held) {
        let mut client = Client::enter(&server.socket, "vm1");
        client.send(&reads(100, 512));
        assert!(server.until(|host| host.held.len() == 4));
        // No request is answered: nothing moves, and the loop rests, whatever waits in the socket.
        client.send(&reads(100, 512));
        std::thread::sleep(Duration::from_millis(20));
        let rested = server.run(|host| {
            assert_eq!((host.held.len(), host.server.has_backlog()), (4, false));
            let started = Instant::now();
            host.turn(50);
            started.elapsed()
        });
        assert!(rested > Duration::from_millis(40), "it was woken after {rested:?}");
        let mut seen = 0;
        while seen < 200 {
            let answered = server.run(|host| {
                let held = host.held.len();
                host.answer_held();
                held
            });
            assert!(answered <= 4);
            for _ in 0..answered {
                assert_eq!(client.simple_reply(), (0, seen % 100));
                client.read::<512>();
                seen += 1;
            }
        }
        assert_eq!(server.stats().requests, 200);
        assert!(server.stats().pauses > 0);
    }
}

#[test]
fn a_slow_reader_gets_everything_in_order() {
    let large = Export { size_bytes: 8 << 20, ..export(1, "vm1") };
    for server in both(&Limits::default(), &[large], memory) {
        let mut client = Client::enter(&server.socket, "vm1");
        let data: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 3 % 251) as u8).collect();
        assert_eq!(client.write(512, &data), 0);
        for cookie in 0..40 {
            client.send(&request(cmd::READ, cookie, 512, 4 << 20));
        }
        for cookie in 0..40 {
            assert_eq!(client.simple_reply(), (0, cookie));
            for piece in data.chunks(70_001) {
                let mut seen = vec![0; piece.len()];
                client.0.read_exact(&mut seen).expect("the data");
                assert_eq!(seen, piece);
            }
        }
        assert!(server.nothing_is_held());
    }
}

#[test]
fn the_longest_write_can_be_read_back() {
    let large = Export { size_bytes: 40 << 20, ..export(1, "vm1") };
    for server in both(&Limits::default(), &[large], memory) {
        let mut client = Client::enter(&server.socket, "vm1");
        let data: Vec<u8> = (0..32 << 20).map(|at: u32| (at / 5 % 253) as u8).collect();
        let mut stream = client.0.try_clone().expect("a second handle");
        // Small ones around it, all in one stream.
        let mut bytes = request(cmd::WRITE, 1, 0, 512);
        bytes.extend([9; 512]);
        bytes.extend(request(cmd::WRITE, 2, 512, 32 << 20));
        bytes.extend(&data);
        bytes.extend(request(cmd::WRITE, 3, 512 + (32 << 20), 512));
        bytes.extend([8; 512]);
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stream, &bytes));
        for cookie in 1..4 {
            assert_eq!(client.simple_reply(), (0, cookie));
        }
        writer.join().expect("the writer").expect("it was read");
        assert_eq!(client.read_at(512, 32 << 20).expect("in range"), data);
        assert_eq!(client.read_at(0, 512), Ok(vec![9; 512]));
        assert_eq!(client.read_at(512 + (32 << 20), 1024), Ok([[8; 512], [0; 512]].concat()));
    }
}

/// Whatever was sent in one go, and nothing after it: under edge-triggered polling there is one
/// event only, and a turn of the loop does not read that much.
#[test]
fn what_a_turn_leaves_unread_is_read_in_the_next() {
    let limits = Limits { connection_requests_max: 4000, ..Limits::default() };
    let large = Export { size_bytes: 8 << 20, ..export(1, "vm1") };
    for server in both(&limits, &[large], memory) {
        for (count, len) in [(700_u64, 4096_u32), (3, 1 << 20)] {
            let mut client = Client::enter(&server.socket, "vm1");
            // Otherwise the socket holds less than the server takes at once.
            let _ = sockopt::set_socket_send_buffer_size_force(&client.0, 16 << 20);
            let data = vec![5; len as usize];
            let write = |cookie| [request(cmd::WRITE, cookie, cookie * 512, len), data.clone()];
            let bytes: Vec<u8> = (0..count).flat_map(write).flatten().collect();
            let mut client = server.run(move |_| {
                client.send(&bytes);
                client
            });
            for cookie in 0..count {
                assert_eq!(client.simple_reply(), (0, cookie));
            }
        }
    }
}

#[test]
fn answers_to_options_wait_until_they_are_read() {
    let exports: Vec<Export> = (0..100)
        .map(|id| Export { description: "x".repeat(255), ..export(id, &format!("vm{id}")) })
        .collect();
    for server in both(&Limits::default(), &exports, memory) {
        let mut client = Client::greet(&server.socket);
        // Their answers are far more than a socket holds.
        client.send(&option(opt::LIST, &[]).repeat(200));
        assert!(server.until(|host| host.server.stats().pauses > 0));
        std::thread::sleep(Duration::from_millis(50));
        client.send(&option(opt::LIST, &[]).repeat(100));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(server.stats().received_bytes, 4 + 200 * 16, "the rest is not even read");
        for _ in 0..300 {
            let answers = std::iter::repeat_with(|| client.option_reply().kind);
            assert_eq!(answers.take_while(|kind| *kind == 2).count(), 100);
        }
        assert_eq!(client.go("vm7").kind, 1);
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_for_room_is_gone_at_once() {
    let limits = Limits { connection_requests_max: 4, ..Limits::default() };
    for server in both(&limits, &[export(1, "vm1")], held) {
        let mut client = Client::enter(&server.socket, "vm1");
        client.send(&reads(100, 512));
        assert!(server.until(|host| host.held.len() == 4));
        drop(client);
        assert!(server.until(|host| host.server.stats().connections == 0));
        server.run(Host::answer_held);
        assert!(server.nothing_is_held());
    }
}
