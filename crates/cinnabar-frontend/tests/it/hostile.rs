//! Clients that break every rule, beside one that keeps them and must not notice.

use crate::client::{Client, info_data, meta_data, option, request};
use crate::running::{Running, memory};
use crate::sample::export;
use cinnabar_frontend::nbd::limits::SECOND_NS;
use cinnabar_frontend::nbd::proto::{command as cmd, option as opt};
use cinnabar_frontend::nbd::{DisconnectReason as Reason, Export, Limits};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Attack = fn(&Path);

/// What is done, and how it must end. Each at the bait, which has room for much.
const ATTACKS: &[(&str, Attack, Reason)] = &[
    ("garbage", |socket| send_fresh(socket, &[0xa5; 70_000]), Reason::ClientFlags),
    ("http", |socket| send_fresh(socket, b"GET / HTTP/1.1\r\n\r\n"), Reason::ClientFlags),
    ("garbage for an option", |socket| send_greeted(socket, &[0; 16]), Reason::OptionMagic),
    ("giant option", |socket| send_greeted(socket, &giant_option()), Reason::OptionTooLong),
    ("options without end", |socket| send_greeted(socket, &options()), Reason::TooManyOptions),
    (
        "unknown export",
        |socket| send_greeted(socket, &option(opt::EXPORT_NAME, b"none")),
        Reason::UnknownExport,
    ),
    ("half an option", |socket| leave_greeted(socket, &giant_option()[..10]), Reason::Truncated),
    ("silence", |socket| send_fresh(socket, &[]), Reason::HandshakeTimeout),
    (
        "unread options",
        |socket| flood_greeted(socket, &options()[..1600]),
        Reason::HandshakeTimeout,
    ),
    ("garbage for a request", |socket| send_entered(socket, &[1; 28]), Reason::RequestMagic),
    (
        "giant write",
        |socket| send_entered(socket, &request(cmd::WRITE, 0, 0, u32::MAX)),
        Reason::WriteTooLong,
    ),
    ("half a request", |socket| leave_entered(socket, &half_write()[..20]), Reason::Truncated),
    ("half a write", |socket| leave_entered(socket, &half_write()), Reason::Truncated),
    (
        "a write that never comes",
        |socket| send_entered(socket, &half_write()),
        Reason::RequestTimeout,
    ),
    ("a request that never comes", |socket| send_entered(socket, &[0x25]), Reason::RequestTimeout),
    ("unread replies", flood_reads, Reason::OutputStalled),
    ("unread errors", flood_errors, Reason::OutputStalled),
    ("wild requests", wild_requests, Reason::Requested),
];

fn giant_option() -> Vec<u8> {
    let mut bytes = option(opt::GO, &[]);
    bytes[12..].copy_from_slice(&u32::MAX.to_be_bytes());
    bytes
}

fn options() -> Vec<u8> {
    option(99, &[]).repeat(2000)
}

fn half_write() -> Vec<u8> {
    [request(cmd::WRITE, 0, 0, 32 << 20), vec![7; 100_000]].concat()
}

/// Sends at once, then waits to be thrown out.
fn send_fresh(socket: &Path, bytes: &[u8]) {
    let mut client = Client::connect(socket);
    client.try_send(bytes);
    assert!(client.is_closed());
}

fn send_greeted(socket: &Path, bytes: &[u8]) {
    let mut client = Client::greet(socket);
    client.try_send(bytes);
    assert!(client.is_closed());
}

fn send_entered(socket: &Path, bytes: &[u8]) {
    let mut client = Client::enter(socket, "bait");
    client.try_send(bytes);
    assert!(client.is_closed());
}

/// Leaves in the middle of a message.
fn leave_greeted(socket: &Path, bytes: &[u8]) {
    Client::greet(socket).send(bytes);
}

fn leave_entered(socket: &Path, bytes: &[u8]) {
    Client::enter(socket, "bait").send(bytes);
}

/// Sends `bytes` over and over, never reads; whenever nothing more is taken, asks whether to go on.
fn flood(client: &mut Client, bytes: &[u8], go_on: impl Fn(&Client) -> bool) {
    client.0.set_write_timeout(Some(Duration::from_millis(300))).expect("a valid time");
    let mut at = 0;
    loop {
        match client.0.write(&bytes[at..]) {
            Ok(sent) => at = (at + sent) % bytes.len(),
            Err(_) if go_on(client) => {}
            Err(_) => return,
        }
    }
}

fn flood_until_thrown_out(socket: &Path, bytes: &[u8]) {
    let mut client = Client::enter(socket, "bait");
    let deadline = Instant::now() + Duration::from_secs(30);
    flood(&mut client, bytes, |client| !client.is_thrown_out(0) && Instant::now() < deadline);
    assert!(client.is_thrown_out(0));
}

fn flood_greeted(socket: &Path, bytes: &[u8]) {
    let mut client = Client::greet(socket);
    // Many questions with long answers, though not too many of them.
    client.try_send(bytes);
    let list = option(opt::LIST_META_CONTEXT, &meta_data("bait", &["base:"; 100]));
    client.try_send(&[list, option(opt::LIST, &[])].concat());
    assert!(client.is_thrown_out(20));
}

fn flood_reads(socket: &Path) {
    flood_until_thrown_out(socket, &request(cmd::READ, 0, 0, 1 << 20).repeat(1000));
}

fn flood_errors(socket: &Path) {
    flood_until_thrown_out(socket, &request(cmd::READ, 0, 1, 0).repeat(1000));
}

/// Impossible requests are answered with errors, and the connection goes on.
fn wild_requests(socket: &Path) {
    let mut client = Client::enter(socket, "bait");
    for offset in [0, 1, 511, 512, 1 << 40, u64::MAX - 511, u64::MAX] {
        for len in [0, 65 << 20, 128 << 20, u32::MAX - 511, u32::MAX] {
            for command in [cmd::READ, cmd::TRIM, cmd::CACHE, cmd::WRITE_ZEROES, 8, 999] {
                client.send(&request(command, 5, offset, len));
                let (error, cookie) = client.simple_reply();
                assert!(error != 0 && cookie == 5, "{command} {offset} {len}");
            }
        }
    }
    assert_eq!(client.read_at(0, 512).map(|data| data.len()), Ok(512));
    client.send(&request(cmd::DISC, 0, 0, 0));
    assert!(client.is_closed());
}

/// Writes and reads back without a pause; returns how often.
fn well_behaved(socket: &Path, stop: &AtomicBool) -> u64 {
    let mut client = Client::enter(socket, "vm1");
    let mut rounds = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let data = vec![rounds as u8; 8192];
        let offset = rounds % 64 * 512;
        assert_eq!(client.write(offset, &data), 0);
        assert_eq!(client.read_at(offset, 8192), Ok(data));
        rounds += 1;
    }
    rounds
}

fn limits() -> Limits {
    Limits {
        options_max: 1000,
        // All attacks are at one export: each is to find room there.
        connection_requests_max: 64,
        handshake_ns_max: 2 * SECOND_NS,
        request_ns_max: 2 * SECOND_NS,
        stall_ns_max: 2 * SECOND_NS,
        ..Limits::default()
    }
}

#[test]
fn nobody_else_notices_a_hostile_client() {
    let bait = Export { shared: true, size_bytes: 64 << 20, ..export(2, "bait") };
    let server = Running::start(limits(), vec![export(1, "vm1"), bait], memory);
    let stop = Arc::new(AtomicBool::new(false));
    let victim = {
        let (socket, stop) = (server.socket.clone(), stop.clone());
        std::thread::spawn(move || well_behaved(&socket, &stop))
    };
    let attackers: Vec<_> = ATTACKS
        .iter()
        .map(|(name, attack, _)| {
            let socket: PathBuf = server.socket.clone();
            let thread = std::thread::Builder::new().name((*name).into());
            thread.spawn(move || attack(&socket)).expect("a thread")
        })
        .collect();
    for (attacker, (name, ..)) in attackers.into_iter().zip(ATTACKS) {
        assert!(attacker.join().is_ok(), "{name}");
    }
    for reason in Reason::ALL {
        let expected = ATTACKS.iter().filter(|(_, _, end)| *end == reason).count() as u64;
        let seen = server.ended(reason, expected);
        assert!(seen, "{reason}: {} and not {expected}", server.stats().disconnects(reason));
    }
    assert_eq!(server.stats().connections, 1, "the victim's");
    stop.store(true, Ordering::Relaxed);
    assert!(victim.join().expect("the victim noticed nothing") > 100);
    assert!(server.nothing_is_held());
}

#[test]
fn those_who_only_connect_do_not_fill_the_server() {
    let limits = Limits { handshakes_max: 4, connections_max: 6, ..limits() };
    let server = Running::start(limits, vec![export(1, "vm1")], memory);
    let mut entered = [(); 2].map(|()| Client::enter(&server.socket, "vm1"));
    let idle: Vec<_> = (0..20).map(|_| Client::connect(&server.socket)).collect();
    assert!(server.ended(Reason::TooManyConnections, 16));
    assert_eq!(entered[0].write(0, &[1; 512]), 0);
    assert!(server.ended(Reason::HandshakeTimeout, 4), "the others make room in time");
    assert_eq!(Client::enter(&server.socket, "vm1").read_at(0, 512), Ok(vec![1; 512]));
    drop(idle);
}

/// The greedy may have half of what is free each, so there is always room for one more.
#[test]
fn the_greedy_leave_room() {
    let limits = Limits { bytes_max: 128 << 20, stall_ns_max: 3600 * SECOND_NS, ..limits() };
    let bait = Export { shared: true, size_bytes: 64 << 20, ..export(2, "bait") };
    let server = Running::start(limits, vec![export(1, "vm1"), bait], memory);
    let greedy: Vec<Client> = (0..12)
        .map(|_| {
            let mut client = Client::enter(&server.socket, "bait");
            flood(&mut client, &request(cmd::READ, 0, 0, 1 << 20).repeat(100), |_| false);
            client
        })
        .collect();
    assert!(server.stats().pauses > 0, "they reached the bound");
    let mut late = Client::enter(&server.socket, "vm1");
    for round in 0..100 {
        assert_eq!(late.write(0, &[round; 4096]), 0);
        assert_eq!(late.read_at(0, 4096), Ok(vec![round; 4096]));
    }
    drop(greedy);
    assert!(server.nothing_is_held());
}

#[test]
fn go_is_answered_though_many_names_are_tried() {
    let server = Running::start(limits(), vec![export(1, "vm1")], memory);
    let mut client = Client::greet(&server.socket);
    for _ in 0..500 {
        client.send(&option(opt::INFO, &info_data("none", &[])));
        client.option_reply();
    }
    assert_eq!(client.go("vm1").kind, 1);
}
