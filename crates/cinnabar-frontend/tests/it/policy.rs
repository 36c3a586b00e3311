//! Who may use a writable export.

use crate::client::{Client, info_data, option, request};
use crate::host::Host;
use crate::running::{Running, held, memory};
use crate::sample::export;
use cinnabar_frontend::nbd::proto::{command as cmd, option as opt, option_reply as rep};
use cinnabar_frontend::nbd::{Address, DisconnectReason, Export, ExportId, Limits};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SOCKET: &str = "NBD_TEST_SOCKET";

/// Not a test of its own: another process, in the role of a second client.
#[test]
#[ignore = "run by other tests, in a process of its own"]
fn as_second_client() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let mut client = Client::greet(Path::new(&socket));
    println!("answer {}", client.go("vm1").kind);
}

/// How a second process is answered when it wants to enter.
fn second_process(socket: &Path) -> u32 {
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "policy::as_second_client", "--ignored", "--nocapture"])
        .env(SOCKET, socket)
        .output()
        .expect("this test can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let answer = text.lines().find_map(|line| line.split_once("answer ")).map(|(_, kind)| kind);
    answer.and_then(|kind| kind.parse().ok()).unwrap_or_else(|| panic!("no answer: {text}"))
}

#[test]
fn a_second_process_waits_until_the_first_is_gone() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], memory);
    let first = Client::enter(&server.socket, "vm1");
    let mut second_connection = Client::enter(&server.socket, "vm1");
    assert_eq!(second_process(&server.socket), rep::ERR_POLICY);
    assert_eq!(server.stats().refused_clients, 1);
    assert_eq!(second_connection.write(0, &[7; 512]), 0, "the first does not notice");
    drop(first);
    assert_eq!(second_process(&server.socket), rep::ERR_POLICY, "one connection is left");
    drop(second_connection);
    assert_eq!(second_process(&server.socket), rep::ACK);
}

#[test]
fn shared_and_read_only_exports_take_several_clients() {
    for export in [
        Export { shared: true, ..export(1, "vm1") },
        Export { read_only: true, ..export(1, "vm1") },
    ] {
        let server = Running::start(Limits::default(), vec![export], memory);
        let _first = Client::enter(&server.socket, "vm1");
        assert_eq!(second_process(&server.socket), rep::ACK);
    }
}

#[test]
fn readers_leave_connections_to_others() {
    let image = || Export { read_only: true, ..export(1, "image") };
    for (export_connections_max, of_image) in [(4, 4), (100, 8)] {
        let limits = Limits { connections_max: 16, export_connections_max, ..Limits::default() };
        let server = Running::start(limits, vec![image(), export(2, "vm2")], memory);
        let mut readers = Vec::new();
        for _ in 0..of_image {
            readers.push(Client::enter(&server.socket, "image"));
        }
        let mut more = Client::greet(&server.socket);
        assert_eq!(more.go("image").kind, rep::ERR_POLICY, "one process, one user");
        drop(more);
        let mut writer = Client::enter(&server.socket, "vm2");
        assert_eq!(writer.write(0, &[1; 512]), 0);
        // Who leaves makes room.
        readers.pop();
        let mut again = Client::greet(&server.socket);
        while again.go("image").kind != rep::ACK {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_client_that_knows_no_errors_is_disconnected() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], memory);
    let address = listen_tcp(&server);
    let _first = Client::enter(&server.socket, "vm1");
    let mut second = tcp_from("127.0.0.2:0", address);
    second.answer_greeting();
    second.send(&option(opt::EXPORT_NAME, b"vm1"));
    assert!(second.is_closed());
    assert!(server.ended(DisconnectReason::Policy, 1));
}

fn listen_tcp(server: &Running) -> SocketAddr {
    let any: Address = "tcp:127.0.0.1:0".parse().expect("an address");
    let bound = server.run(move |host| host.server.listen(&any, &[ExportId(1)]));
    match bound.expect("a free port") {
        Address::Tcp(address) => address,
        other @ Address::Unix(_) => panic!("{other}"),
    }
}

/// A connection whose peer is seen as `from`.
fn tcp_from(from: &str, to: SocketAddr) -> Client {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&fd, &from.parse::<SocketAddr>().expect("an address")).expect("loopback is large");
    connect(&fd, &to).expect("the server listens");
    // A socket is a socket: reading and writing work alike.
    Client::over(UnixStream::from(fd))
}

#[test]
fn over_tcp_one_ip_is_one_client() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], memory);
    let address = listen_tcp(&server);
    let mut clients =
        [("127.0.0.1:0", rep::ACK), ("127.0.0.1:0", rep::ACK), ("127.0.0.2:0", rep::ERR_POLICY)]
            .map(|(from, answer)| {
                let mut client = tcp_from(from, address);
                client.answer_greeting();
                let reply = client.go("vm1");
                assert_eq!(reply.kind, answer, "{from}");
                client
            });
    clients[2].send(&option(opt::INFO, &info_data("vm1", &[])));
    assert_eq!(clients[2].option_reply().kind, rep::INFO, "asking is allowed");
    assert_eq!(clients[1].write(512, &[1; 512]), 0);
}

#[test]
fn a_client_that_died_unnoticed_does_not_lock_out_its_successor() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], memory);
    let address = listen_tcp(&server);
    // The successor has the older connection, so the server learns of it first.
    let mut successor = tcp_from("127.0.0.2:0", address);
    successor.answer_greeting();
    let predecessor = Client::enter(&server.socket, "vm1");
    // The server does nothing while one client dies and the other asks.
    server
        .run(move |_| {
            drop(predecessor);
            successor.send(&option(opt::GO, &info_data("vm1", &[])));
            std::thread::sleep(Duration::from_millis(20));
            std::thread::spawn(move || {
                assert_eq!(successor.option_reply().kind, rep::INFO);
                assert_eq!(successor.option_reply().kind, rep::INFO);
                assert_eq!(successor.option_reply().kind, rep::ACK);
                // Keeps the connection.
                std::thread::sleep(Duration::from_millis(200));
            })
        })
        .join()
        .expect("the successor is let in");
    assert!(server.ended(DisconnectReason::PeerClosed, 2));
    assert_eq!(server.stats().refused_clients, 0);
}

#[test]
fn a_client_that_said_good_bye_does_not_lock_out_its_successor() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], held);
    let address = listen_tcp(&server);
    let mut leaving = Client::enter(&server.socket, "vm1");
    leaving.send(&[request(cmd::FLUSH, 5, 0, 0), request(cmd::DISC, 0, 0, 0)].concat());
    assert!(server.until(|host| host.held.len() == 1));
    let mut successor = tcp_from("127.0.0.2:0", address);
    successor.answer_greeting();
    assert_eq!(successor.go("vm1").kind, rep::ACK);
    server.run(Host::answer_held);
    assert_eq!(leaving.simple_reply(), (0, 5), "what was asked before is answered");
    assert!(leaving.is_closed());
}

#[test]
fn connections_of_one_export_are_bounded() {
    let limits = Limits { export_connections_max: 2, ..Limits::default() };
    let server = Running::start(limits, vec![export(1, "vm1"), export(2, "vm2")], memory);
    let _first = Client::enter(&server.socket, "vm1");
    let _second = Client::enter(&server.socket, "vm1");
    let mut third = Client::greet(&server.socket);
    assert_eq!(third.go("vm1").kind, rep::ERR_POLICY);
    assert_eq!(third.go("vm2").kind, rep::ACK, "others have room");
}

#[test]
fn what_a_client_that_closed_had_not_read_yet_never_lands_on_its_successors_writes() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], held);
    let address = listen_tcp(&server);
    let enter = |from| {
        let mut client = tcp_from(from, address);
        client.answer_greeting();
        assert_eq!(client.go("vm1").kind, rep::ACK);
        client
    };
    let mut first = enter("127.0.0.2:0");
    // Its first and last sector are read before all of it is written.
    first.send(&[request(cmd::WRITE, 1, 10, 2000).as_slice(), &[7; 2000]].concat());
    assert!(server.until(|host| host.held.len() == 2));
    drop(first);
    // The server sees it close, and waits for the engine.
    server.run(|host| (0..5).for_each(|_| host.turn(20)));
    let mut second = enter("127.0.0.3:0");
    second.send(&[request(cmd::WRITE, 2, 512, 512).as_slice(), &[9; 512]].concat());
    assert!(server.until(|host| host.held.len() == 3));
    server.run(|host| {
        let reads = host.held.drain(..2).collect();
        host.answer_held();
        host.held = reads;
        host.turn(0);
    });
    assert_eq!(second.simple_reply(), (0, 2));
    let answer_all = || {
        for _ in 0..5 {
            server.run(|host| {
                host.turn(10);
                host.answer_held();
                host.turn(0);
            });
        }
    };
    answer_all();
    second.send(&request(cmd::READ, 4, 512, 512));
    answer_all();
    assert_eq!(second.simple_reply(), (0, 4));
    assert!(second.read::<512>() == [9; 512], "an acknowledged write is gone");
    drop(second);
    assert!(server.nothing_is_held());
}

#[test]
fn a_client_that_said_good_bye_is_waited_for_while_its_change_is_not_with_the_engine() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], held);
    let address = listen_tcp(&server);
    let mut leaving = Client::enter(&server.socket, "vm1");
    let change = [request(cmd::WRITE, 1, 10, 2000).as_slice(), &[7; 2000]].concat();
    leaving.send(&[change, request(cmd::DISC, 0, 0, 0)].concat());
    assert!(server.until(|host| host.held.len() == 2));
    let mut successor = tcp_from("127.0.0.2:0", address);
    successor.answer_greeting();
    assert_eq!(successor.go("vm1").kind, rep::ERR_POLICY, "it would land on what this one writes");
    for _ in 0..3 {
        server.run(|host| {
            host.answer_held();
            host.turn(0);
            host.turn(0);
        });
    }
    assert_eq!(leaving.simple_reply(), (0, 1));
    assert!(leaving.is_closed());
    assert_eq!(successor.go("vm1").kind, rep::ACK);
}
