//! Reads and writes of more than the engine takes at a time: they are carried out piece by piece.

use crate::client::{Client, option, request};
use crate::host::Host;
use crate::memory::{Heap, Pool};
use crate::running::{Running, both, held, memory};
use crate::sample::export;
use cinnabar_engine::seam::{Failure, IoError, Op};
use cinnabar_frontend::nbd::handshake::Agreed;
use cinnabar_frontend::nbd::proto::{self, Fields, Request, command as cmd, option as opt};
use cinnabar_frontend::nbd::transmission::{ForPiece, Load, Room, Step, Transmission};
use cinnabar_frontend::nbd::{Buffers, Command, DisconnectReason, Export, ExportId, Limits};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const MIB: usize = 1 << 20;
const DISK: usize = 110 * MIB;
/// A place that neither begins nor ends with a sector.
const ODD: u64 = 12_345;
/// What pieces of one connection hold at most, with the sectors around them.
const PIECES_BYTES: u64 = 24 << 20;

fn disk(id: u32, name: &str) -> Export {
    Export { size_bytes: DISK as u64, ..export(id, name) }
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251 + at / 5000 % 3) as u8).collect()
}

fn structured(path: &Path, name: &str) -> Client {
    let mut client = Client::greet(path);
    client.send(&option(opt::STRUCTURED_REPLY, &[]));
    client.option_reply();
    assert_eq!(client.go(name).kind, proto::option_reply::ACK);
    client
}

fn read(flags: u16, cookie: u64, offset: u64, len: usize) -> Vec<u8> {
    let len = u32::try_from(len).expect("it fits");
    Request { flags, command: cmd::READ, cookie, offset, len }.encode().to_vec()
}

/// A chunk of a structured reply.
#[derive(Debug, PartialEq, Eq)]
enum Chunk {
    Data { cookie: u64, at: u64, data: Vec<u8>, last: bool },
    Error { cookie: u64, error: u32, last: bool },
}

fn chunk(client: &mut Client) -> Chunk {
    let head = client.read::<20>();
    let mut fields = Fields(&head);
    assert_eq!(fields.u32(), Some(proto::STRUCTURED_REPLY_MAGIC));
    let last = fields.u16() == Some(proto::chunk::DONE);
    let (kind, cookie) = (fields.u16(), fields.u64().expect("8 bytes"));
    let mut data = vec![0; fields.u32().expect("4 bytes") as usize];
    client.0.read_exact(&mut data).expect("its data");
    let mut fields = Fields(&data);
    if kind == Some(proto::chunk::ERROR) {
        return Chunk::Error { cookie, error: fields.u32().expect("4 bytes"), last };
    }
    let at = fields.u64().expect("8 bytes");
    Chunk::Data { cookie, at, data: data.split_off(8), last }
}

/// Reads a structured reply to the end; its chunks cover `len` bytes from `offset` on.
fn assemble(client: &mut Client, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut covered = 0;
    loop {
        let Chunk::Data { at, data, last, .. } = chunk(client) else { panic!("an error") };
        let from = (at - offset) as usize;
        bytes[from..from + data.len()].copy_from_slice(&data);
        covered += data.len();
        if last {
            assert_eq!(covered, len);
            return bytes;
        }
    }
}

/// Sends from a thread of its own.
fn send_all(client: &Client, bytes: Vec<u8>) -> JoinHandle<std::io::Result<()>> {
    let mut stream = client.0.try_clone().expect("a second handle");
    std::thread::spawn(move || stream.write_all(&bytes))
}

fn write(cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    [
        request(cmd::WRITE, cookie, offset, u32::try_from(data.len()).expect("it fits")),
        data.to_vec(),
    ]
    .concat()
}

#[test]
fn a_hundred_mib_and_a_byte_are_written_and_read_at_any_place() {
    for server in both(&Limits::default(), &[disk(1, "vm1")], memory) {
        let mut client = Client::enter(&server.socket, "vm1");
        let data = noise(100 * MIB + 1);
        let sender = send_all(&client, [write(1, ODD, &data), write(2, 7, b"abc")].concat());
        assert_eq!((client.simple_reply(), client.simple_reply()), ((0, 1), (0, 2)));
        sender.join().expect("no panic").expect("it was read");
        assert!(client.read_at(ODD, data.len()) == Ok(data.clone()), "simple replies");
        assert_eq!(client.read_at(6, 5), Ok(b"\0abc\0".to_vec()), "and the stream goes on");
        drop(client);
        let mut client = structured(&server.socket, "vm1");
        client.send(&read(0, 3, ODD, data.len()));
        assert!(assemble(&mut client, ODD, data.len()) == data, "structured replies");
        assert_eq!(server.stats().requests, 5, "a long one counts once");
        drop(client);
        assert!(server.nothing_is_held());
    }
}

#[test]
fn the_longest_ordinary_request_may_begin_within_a_sector() {
    let server = Running::start(Limits::default(), vec![disk(1, "vm1")], memory);
    let mut client = Client::enter(&server.socket, "vm1");
    let data = noise(32 * MIB);
    let sender = send_all(&client, write(1, ODD, &data));
    assert_eq!(client.simple_reply(), (0, 1));
    sender.join().expect("no panic").expect("it was read");
    assert!(client.read_at(ODD, data.len()) == Ok(data.clone()));
    drop(client);
    let mut client = structured(&server.socket, "vm1");
    client.send(&read(proto::command_flag::DF, 3, ODD, data.len()));
    let whole = chunk(&mut client);
    assert!(whole == Chunk::Data { cookie: 3, at: ODD, data, last: true }, "in one chunk");
    // More than that in one chunk is refused, as the protocol allows.
    client.send(&read(proto::command_flag::DF, 4, 0, 32 * MIB + 1));
    assert_eq!(chunk(&mut client), Chunk::Error { cookie: 4, error: 75, last: true });
    drop(client);
    assert!(server.nothing_is_held());
}

/// Answers with an error what `fails` picks, and the rest of what is held as it should be.
fn answer(host: &mut Host, fails: impl Fn(u64) -> bool) {
    let mut failed = Vec::new();
    for request in std::mem::take(&mut host.held) {
        match request.command {
            Command::Engine(Op::Read { span, data } | Op::Write { span, data, .. })
                if fails(span.offset) =>
            {
                host.pool.give(data);
                failed.push(request.ticket);
            }
            command => host.held.push(cinnabar_frontend::nbd::Incoming { command, ..request }),
        }
    }
    host.answer_held();
    for ticket in failed {
        host.server.reply(ticket, Err(Failure::Io(IoError::NoSpace)), &mut host.pool);
    }
}

/// Lets turns pass, answering what is held, until `done`. Returns the most pieces and bytes held.
fn drive(
    server: &Running,
    fails: fn(u64) -> bool,
    done: impl Fn(&mut Host) -> bool + Clone + Send + 'static,
) -> (usize, u64) {
    let mut most = (0, 0);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let done = done.clone();
        let (held, bytes, done) = server.run(move |host| {
            host.turn(1);
            let seen = (host.held.len(), host.server.stats().held_bytes);
            answer(host, fails);
            host.turn(0);
            (seen.0, seen.1, done(host))
        });
        most = (most.0.max(held), most.1.max(bytes));
        if done {
            return most;
        }
        assert!(std::time::Instant::now() < deadline, "it does not go on");
    }
}

fn requests(count: u64) -> impl Fn(&mut Host) -> bool + Clone + Send + 'static {
    // Counted is not answered.
    move |host| host.server.stats().requests == count && host.held.is_empty()
}

#[test]
fn a_long_write_that_fails_in_its_middle_is_answered_once_and_holds_three_pieces() {
    let server = Running::start(Limits::default(), vec![disk(1, "vm1")], held);
    let mut client = Client::enter(&server.socket, "vm1");
    let data = noise(70 * MIB);
    let sender = send_all(&client, [write(1, ODD, &data), write(2, 0, &[9; 512])].concat());
    let (pieces, bytes) = drive(&server, |at| at == 32 << 20, requests(2));
    assert!(pieces <= 3, "{pieces} at a time");
    assert!((8 << 20..=PIECES_BYTES + (64 << 10)).contains(&bytes), "{bytes} bytes at a time");
    sender.join().expect("no panic").expect("it was read to its end");
    assert_eq!((client.simple_reply(), client.simple_reply()), ((28, 1), (0, 2)));
    client.send(&read(0, 3, 69 << 20, 512));
    drive(&server, |_| false, requests(3));
    assert_eq!(client.simple_reply(), (0, 3));
    assert_eq!(client.read::<512>(), [0; 512], "what came after the error was thrown away");
    drop(client);
    assert!(server.nothing_is_held());
}

#[test]
fn a_long_read_that_fails_says_so_as_long_as_it_can() {
    let server = Running::start(Limits::default(), vec![disk(1, "vm1")], held);
    let mut client = Client::enter(&server.socket, "vm1");
    client.send(&read(0, 1, 0, 70 * MIB));
    drive(&server, |at| at == 0, requests(1));
    assert_eq!(client.simple_reply(), (28, 1));
    client.send(&read(0, 2, 0, 512));
    drive(&server, |_| false, requests(2));
    assert_eq!(client.simple_reply(), (0, 2), "the stream goes on");
    client.read::<512>();
    client.send(&read(0, 3, 0, 70 * MIB));
    let reader = std::thread::spawn(move || {
        assert_eq!(client.simple_reply(), (0, 3));
        client.is_closed()
    });
    let ended =
        |host: &mut Host| host.server.stats().disconnects(DisconnectReason::ReadFailed) == 1;
    drive(&server, |at| at == 32 << 20, ended);
    assert!(reader.join().expect("no panic"));
    // Chunks can tell.
    let mut client = structured(&server.socket, "vm1");
    client.send(&read(0, 4, 0, 70 * MIB));
    let reader = std::thread::spawn(move || {
        loop {
            match chunk(&mut client) {
                Chunk::Data { last, .. } => assert!(!last),
                error @ Chunk::Error { .. } => return (client, error),
            }
        }
    });
    drive(&server, |at| at == 32 << 20, requests(3));
    let (client, error) = reader.join().expect("no panic");
    assert_eq!(error, Chunk::Error { cookie: 4, error: 28, last: true });
    drop(client);
    assert!(server.nothing_is_held());
}

#[test]
fn small_requests_are_answered_beside_long_ones() {
    beside(Limits::default(), true);
    // As little room as possible: those behind a long one wait for its pieces, others don't.
    beside(Limits { bytes_max: 0, ..Limits::default() }, false);
}

fn beside(limits: Limits, interleaved: bool) {
    let exports = vec![disk(1, "vm1"), disk(2, "vm2"), disk(3, "vm3")];
    let server = Running::start(limits, exports, held);
    let mut long: Vec<Client> =
        ["vm1", "vm2"].map(|name| structured(&server.socket, name)).into_iter().collect();
    for client in &mut long {
        client.send(&[read(0, 1, ODD, 100 * MIB), read(0, 2, 0, 512)].concat());
    }
    // The client does not read the long replies: little is sent, and what is held is bounded.
    let mut other = Client::enter(&server.socket, "vm3");
    let small = std::thread::spawn(move || {
        for round in 0..20 {
            other.send(&read(0, round, 0, 4096));
            assert_eq!(other.simple_reply(), (0, round));
            other.read::<4096>();
        }
    });
    let small = Arc::new(Mutex::new(Some(small)));
    let watched = Arc::clone(&small);
    let done = move |_: &mut Host| {
        watched.lock().expect("no panic").as_ref().is_none_or(JoinHandle::is_finished)
    };
    drive(&server, |_| false, done);
    let small = small.lock().expect("no panic").take().expect("it was begun");
    small.join().expect("all were answered");
    assert!(server.stats().held_bytes <= 2 * (PIECES_BYTES + (64 << 10)));
    let readers: Vec<_> = long
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                // The small one's reply comes between the chunks of the long one.
                let mut covered = 0;
                let mut interleaved = false;
                loop {
                    match chunk(&mut client) {
                        Chunk::Data { cookie: 2, .. } => interleaved = true,
                        Chunk::Data { data, last, .. } => {
                            covered += data.len();
                            if last {
                                break;
                            }
                        }
                        Chunk::Error { .. } => panic!("an error"),
                    }
                }
                if !interleaved {
                    assert!(matches!(chunk(&mut client), Chunk::Data { cookie: 2, .. }));
                }
                (covered, interleaved, client)
            })
        })
        .collect();
    // Counted is not answered: the loop turns until they have it all.
    let readers = Arc::new(Mutex::new(readers));
    let watched = Arc::clone(&readers);
    drive(
        &server,
        |_| false,
        move |_: &mut Host| watched.lock().expect("no panic").iter().all(JoinHandle::is_finished),
    );
    assert_eq!(server.stats().requests, 24);
    for reader in std::mem::take(&mut *readers.lock().expect("no panic")) {
        let (covered, was_interleaved, _client) = reader.join().expect("no panic");
        assert_eq!(covered, 100 * MIB);
        assert!(
            was_interleaved || !interleaved,
            "the small one had to wait for the long one's end"
        );
    }
    assert!(server.nothing_is_held());
}

#[test]
fn what_comes_after_a_long_read_in_one_piece_waits_for_its_end() {
    for server in both(&Limits::default(), &[disk(1, "vm1")], memory) {
        let mut client = Client::enter(&server.socket, "vm1");
        let many: Vec<u8> = (0..4)
            .flat_map(|one| [read(0, 10 + one, 0, 512), read(0, one, ODD, 40 * MIB)].concat())
            .collect();
        client.send(&[many, request(cmd::DISC, 0, 0, 0)].concat());
        for one in 0..4 {
            for (cookie, len) in [(10 + one, 512), (one, 40 * MIB)] {
                assert_eq!(client.simple_reply(), (0, cookie));
                client.0.read_exact(&mut vec![0; len]).expect("the data");
            }
        }
        assert!(client.is_closed());
        assert!(server.nothing_is_held());
    }
}

#[test]
fn a_client_that_stops_sending_gets_its_long_read() {
    for server in both(&Limits::default(), &[disk(1, "vm1")], memory) {
        for good_bye in [true, false] {
            let mut client = structured(&server.socket, "vm1");
            client.send(&read(0, 1, ODD, 100 * MIB));
            if good_bye {
                client.send(&request(cmd::DISC, 0, 0, 0));
            }
            client.0.shutdown(Shutdown::Write).expect("it is open");
            assemble(&mut client, ODD, 100 * MIB);
            assert!(client.is_closed());
            assert!(server.nothing_is_held());
        }
    }
}

#[test]
fn of_a_client_that_left_within_a_long_request_nothing_more_is_done() {
    let half = [request(cmd::WRITE, 1, ODD, 70 << 20), vec![7; 20 * MIB]].concat();
    for (sent, asked) in [(half, 3), (read(0, 1, ODD, 70 * MIB), 3)] {
        for chunks in [false, true] {
            let server = Running::start(Limits::default(), vec![disk(1, "vm1")], held);
            let enter = if chunks { structured } else { Client::enter };
            let mut client = enter(&server.socket, "vm1");
            client.send(&sent);
            assert!(server.until(move |host| host.held.len() + 1 >= asked));
            drop(client);
            assert!(server.until(|host| host.server.connections(ExportId(1)) == 0));
            let more = server.run(|host| {
                host.answer_held();
                for _ in 0..5 {
                    host.turn(0);
                }
                host.held.len()
            });
            assert_eq!(more, 0, "it could land on what its successor writes");
            assert!(server.nothing_is_held());
        }
    }
}

#[test]
fn a_server_that_stops_answers_a_long_read_whole() {
    let half = [request(cmd::WRITE, 2, 0, 4096), vec![7; 1000]].concat();
    let refused = [request(cmd::WRITE, 2, DISK as u64, 4096), vec![7; 1000]].concat();
    for (chunks, behind) in [(false, Vec::new()), (true, Vec::new()), (true, half), (true, refused)]
    {
        let server = Running::start(Limits::default(), vec![disk(1, "vm1")], held);
        let enter = if chunks { structured } else { Client::enter };
        let mut client = enter(&server.socket, "vm1");
        let sent = server.stats().received_bytes + 28 + behind.len() as u64;
        client.send(&[read(0, 1, ODD, 70 * MIB), behind].concat());
        // Of a request whose payload is not whole nothing will come.
        let received = move |host: &mut Host| host.server.stats().received_bytes == sent;
        assert!(server.until(received) && server.until(|host| host.held.len() == 3));
        server.run(|host| host.server.drain(&mut host.pool));
        let reader = std::thread::spawn(move || {
            if chunks {
                assemble(&mut client, ODD, 70 * MIB);
            } else {
                assert_eq!(client.simple_reply(), (0, 1));
                client.0.read_exact(&mut vec![0; 70 * MIB]).expect("the data");
            }
            client.is_closed()
        });
        drive(&server, |_| false, |host| host.server.is_drained());
        assert!(reader.join().expect("no panic"));
        assert!(server.nothing_is_held());
    }
}

#[test]
fn a_server_that_stops_tells_of_a_long_read_that_fails() {
    let server = Running::start(Limits::default(), vec![disk(1, "vm1")], held);
    let mut client = structured(&server.socket, "vm1");
    client.send(&read(0, 1, 0, 70 * MIB));
    assert!(server.until(|host| host.held.len() == 3));
    server.run(|host| host.server.drain(&mut host.pool));
    let reader = std::thread::spawn(move || {
        loop {
            match chunk(&mut client) {
                Chunk::Data { last, .. } => assert!(!last),
                error @ Chunk::Error { .. } => return (error, client.is_closed()),
            }
        }
    });
    drive(&server, |at| at == 32 << 20, |host| host.server.is_drained());
    let error = Chunk::Error { cookie: 1, error: 28, last: true };
    assert_eq!(reader.join().expect("no panic"), (error, true));
    assert!(server.nothing_is_held());
}

/// A stop does that when half of its time is over.
#[test]
fn a_long_read_is_cut_with_its_export() {
    for enter in [structured, Client::enter] {
        let server = Running::start(Limits::default(), vec![disk(1, "vm1")], held);
        let mut client = enter(&server.socket, "vm1");
        client.send(&read(0, 1, 0, 100 * MIB));
        assert!(server.until(|host| host.held.len() == 3));
        server.run(|host| host.server.drain(&mut host.pool));
        assert!(server.run(|host| host.server.remove_export(ExportId(1), &mut host.pool)));
        assert!(client.is_closed());
        let more = server.run(|host| {
            host.answer_held();
            (0..3).for_each(|_| host.turn(0));
            host.held.len()
        });
        assert_eq!(more, 0);
        assert!(server.run(|host| host.server.is_drained()));
        assert!(server.nothing_is_held());
    }
}

#[test]
fn a_server_that_stops_rests_while_a_long_read_is_in_the_engine() {
    let server = Running::start(Limits::default(), vec![disk(1, "vm1")], held);
    let mut client = structured(&server.socket, "vm1");
    // The first piece is short and leaves at once, so there is room for a fourth.
    client.send(&read(0, 1, (8 << 20) - 512, 100 * MIB));
    assert!(server.until(|host| host.held.len() == 3));
    let (busy, held) = server.run(|host| {
        host.server.drain(&mut host.pool);
        let rest = host.held.split_off(1);
        host.answer_held();
        host.held = rest;
        for _ in 0..3 {
            host.turn(0);
        }
        (host.server.has_backlog(), host.held.len())
    });
    assert_eq!((busy, held), (false, 3));
    let reader = std::thread::spawn(move || {
        assemble(&mut client, (8 << 20) - 512, 100 * MIB);
        client.is_closed()
    });
    drive(&server, |_| false, |host| host.server.is_drained());
    assert!(reader.join().expect("no panic"));
    assert!(server.nothing_is_held());
}

/// Room for requests, and what there is for pieces.
struct Pieces(ForPiece);

impl Room for Pieces {
    fn reserve(&mut self, more: Load) -> bool {
        assert_eq!(more.requests, 1);
        assert!(more.bytes > 0, "a long write holds nothing when it waits for room");
        true
    }

    fn reserve_piece(&mut self, _more: Load) -> ForPiece {
        self.0
    }

    fn is_quiet(&self) -> bool {
        true
    }
}

fn stream() -> Transmission<Heap> {
    let agreed = Agreed { structured: true, block_status: false };
    Transmission::new(&disk(1, "vm1"), agreed)
}

#[test]
fn a_payload_comes_in_though_a_long_read_waits_for_room() {
    let (mut stream, mut pool) = (stream(), Pool::default());
    let mut step = |bytes: &[u8], piece| stream.step(bytes, &mut Pieces(piece), &mut pool);
    let header = read(0, 1, 0, 40 * MIB);
    assert!(matches!(step(&header, ForPiece::Enough), (28, Step::GoOn)));
    let write = write(2, 0, &[7; 8192]);
    // It has a buffer, and would keep it for as long as the piece waits; no time runs for it then.
    let (taken, begun) = step(&write[..5028], ForPiece::Enough);
    assert!(matches!((taken, begun), (5028, Step::NeedMore)));
    let (taken, done) = step(&write[5028..], ForPiece::NoRoom);
    let Step::Request(pending, Command::Engine(Op::Write { data, .. })) = done else {
        panic!("{done:?}")
    };
    assert_eq!((taken, pending.cookie), (3192, 2));
    assert!(matches!(step(&[], ForPiece::NoRoom), (0, Step::Wait)));
    pool.give(data);
    assert_eq!(pool.out(), 0);
}

#[test]
fn a_long_write_that_waits_for_room_takes_none_from_others() {
    let (mut stream, mut pool) = (stream(), Pool::default());
    let header = request(cmd::WRITE, 1, ODD, 40 << 20);
    let mut step = |bytes: &[u8]| stream.step(bytes, &mut Pieces(ForPiece::NoRoom), &mut pool);
    assert!(matches!(step(&header), (28, Step::GoOn)));
    assert!(matches!(step(&[7; 4095]), (0, Step::NeedMore)), "it does not even ask");
    assert!(matches!(step(&[7; 4096]), (0, Step::Wait)));
}
