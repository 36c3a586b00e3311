//! A server that says what the test wants.

use super::*;
use crate::nbd::in_flight::ERRORS_MAX;
use proptest::prelude::*;

/// Requests with memory, and what came of them.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct Books {
    memory: Vec<Vec<u8>>,
    /// Which bytes of memory were written; a value of their own would not do, any may come.
    came: Vec<Vec<bool>>,
    answered: Vec<(usize, Option<u32>)>,
}

impl Reader for Books {
    fn put(&mut self, flight: &Flight, at: u32, bytes: &[u8]) {
        self.memory[flight.owner][at as usize..][..bytes.len()].copy_from_slice(bytes);
        self.came[flight.owner][at as usize..][..bytes.len()].fill(true);
    }

    fn zero(&mut self, flight: &Flight, at: u32, len: u32) {
        self.memory[flight.owner][at as usize..][..len as usize].fill(0);
        self.came[flight.owner][at as usize..][..len as usize].fill(true);
    }

    fn answered(&mut self, flight: Flight, error: Option<u32>) {
        self.answered.push((flight.owner, error));
    }
}

/// The offset of the first request on the disk.
const START: u64 = 1 << 20;
const LEN: u32 = 4096;

/// A read, a write and a flush under way, and a read that was not sent yet.
struct Rig {
    receiver: Receiver,
    in_flight: InFlight,
    cookies: [u64; 4],
    books: Books,
}

impl Rig {
    fn new(dialect: Dialect) -> Self {
        let mut in_flight = InFlight::default();
        let mut ask = |command, owner| {
            let len = if command == Command::Flush { 0 } else { LEN };
            in_flight.add(command, START, len, owner, 0)
        };
        let cookies = [
            ask(Command::Read, 0),
            ask(Command::Write, 1),
            ask(Command::Flush, 2),
            ask(Command::Read, 3),
        ];
        for cookie in &cookies[..3] {
            in_flight.was_sent(*cookie);
        }
        let books = Books {
            memory: vec![vec![0xee; LEN as usize]; 4],
            came: vec![vec![false; LEN as usize]; 4],
            answered: Vec::new(),
        };
        Self { receiver: Receiver::new(dialect), in_flight, cookies, books }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        self.receiver.take(bytes, &mut self.in_flight, &mut self.books)
    }

    /// Feeds in pieces, as a socket would.
    fn feed(&mut self, bytes: &[u8], piece: usize) -> Result<(), Violation> {
        let mut held = Vec::new();
        for part in bytes.chunks(piece) {
            held.extend(part);
            let used = self.take(&held)?;
            held.drain(..used);
            assert!(held.len() < proto::CHUNK_BYTES, "{} bytes wait for more", held.len());
        }
        Ok(())
    }
}

fn simple(cookie: u64, error: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = proto::SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(error.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(data);
    bytes
}

fn chunked(cookie: u64, flags: u16, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = proto::CHUNK_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn data(cookie: u64, flags: u16, at: u64, bytes: &[u8]) -> Vec<u8> {
    let payload = [&START.wrapping_add(at).to_be_bytes(), bytes].concat();
    chunked(cookie, flags, chunk::OFFSET_DATA, &payload)
}

fn hole(cookie: u64, flags: u16, at: u64, len: u32) -> Vec<u8> {
    let payload = [&START.wrapping_add(at).to_be_bytes()[..], &len.to_be_bytes()].concat();
    chunked(cookie, flags, chunk::OFFSET_HOLE, &payload)
}

fn error(cookie: u64, flags: u16, number: u32, text: &[u8]) -> Vec<u8> {
    let head = [&number.to_be_bytes()[..], &(text.len() as u16).to_be_bytes()].concat();
    chunked(cookie, flags, chunk::ERROR + 1, &[&head, text].concat())
}

#[test]
fn simple_replies_are_taken_however_they_are_cut() {
    for piece in [1, 3, 7, 16, 5000] {
        let mut rig = Rig::new(Dialect::Simple);
        let [read, write, flush, _] = rig.cookies;
        let said =
            [simple(flush, 5, &[]), simple(read, 0, &[7; LEN as usize]), simple(write, 0, &[])];
        rig.feed(&said.concat(), piece).expect("all is well");
        assert_eq!(rig.books.answered, [(2, Some(5)), (0, None), (1, None)]);
        assert_eq!(rig.books.memory[0], [7; LEN as usize]);
        assert_eq!(rig.in_flight.len(), 1, "the one that was not sent");
    }
}

#[test]
fn chunks_come_in_any_order() {
    for piece in [1, 19, 33, 10_000] {
        let mut rig = Rig::new(Dialect::Structured);
        let [read, write, flush, _] = rig.cookies;
        let said = [
            data(read, 0, 3072, &[3; 1024]),
            simple(write, 0, &[]),
            hole(read, 0, 1024, 2048),
            chunked(flush, chunk::DONE, chunk::NONE, &[]),
            data(read, chunk::DONE, 0, &[1; 1024]),
        ];
        rig.feed(&said.concat(), piece).expect("all is well");
        assert_eq!(rig.books.answered, [(1, None), (2, None), (0, None)]);
        let expected = [vec![1; 1024], vec![0; 2048], vec![3; 1024]].concat();
        assert_eq!(rig.books.memory[0], expected);
    }
}

#[test]
fn an_error_may_come_amid_data() {
    let mut rig = Rig::new(Dialect::Structured);
    let [read, write, ..] = rig.cookies;
    let said = [
        data(read, 0, 0, &[1; 512]),
        error(read, 0, 5, b"sector 1"),
        error(write, chunk::DONE, 0, b""),
        chunked(read, chunk::DONE, chunk::NONE, &[]),
    ];
    rig.feed(&said.concat(), 9).expect("all is well");
    assert_eq!(rig.books.answered, [(1, Some(1)), (0, Some(5))], "an error of 0 is one");
}

/// They cost a part of a processor for as long as the server sent them.
#[test]
fn errors_of_a_request_have_an_end() {
    let flood = |count: usize| {
        let mut rig = Rig::new(Dialect::Structured);
        let one = error(rig.cookies[0], 0, 5, b"sector");
        (rig.feed(&one.repeat(count), 7), rig.books.answered.len())
    };
    let most = usize::from(ERRORS_MAX);
    assert_eq!(flood(most), (Ok(()), 0), "a read of bad sectors");
    assert_eq!(flood(most + 1).0, Err(Violation("error after error, without an end")));
}

#[test]
fn data_are_read_to_where_they_belong() {
    let mut rig = Rig::new(Dialect::Structured);
    let read = rig.cookies[0];
    let said = data(read, chunk::DONE, 0, &[9; LEN as usize]);
    assert_eq!(rig.take(&said[..128]), Ok(128));
    let rest = Rest { cookie: read, at: 100, len: LEN - 100 };
    assert_eq!(rig.receiver.rest(), Some(rest));
    rig.receiver.was_put(LEN - 100, &mut rig.in_flight, &mut rig.books);
    assert_eq!(rig.receiver.rest(), None);
    assert_eq!(rig.books.answered, [(0, None)]);
}

/// Each of these ends the connection, and answers nothing that is not answered.
#[test]
fn violations() {
    let mut rig = Rig::new(Dialect::Structured);
    let [read, write, flush, unsent] = rig.cookies;
    let long = |len: u32| {
        let mut bytes = data(read, chunk::DONE, 0, &[0; 4]);
        bytes[16..20].copy_from_slice(&len.to_be_bytes());
        bytes
    };
    let many: Vec<u8> = (0..2048).flat_map(|index| data(read, 0, index * 2, &[1])).collect();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("garbage", vec![0x5a; 32]),
        ("an unknown cookie", simple(12345, 0, &[])),
        ("a cookie off by one", chunked(write ^ 1 << 32, chunk::DONE, chunk::NONE, &[])),
        ("an unsent request", data(unsent, chunk::DONE, 0, &[0; LEN as usize])),
        ("a reply twice", [simple(write, 0, &[]), simple(write, 0, &[])].concat()),
        ("a simple reply to a read", simple(read, 0, &[0; LEN as usize])),
        ("a simple reply amid chunks", [error(write, 0, 5, b""), simple(write, 0, &[])].concat()),
        ("an empty chunk that goes on", chunked(write, 0, chunk::NONE, &[])),
        ("an empty chunk with bytes", chunked(write, chunk::DONE, chunk::NONE, &[1])),
        ("a read without data", chunked(read, chunk::DONE, chunk::NONE, &[])),
        ("data for a write", data(write, chunk::DONE, 0, &[1; 512])),
        ("a hole for a flush", hole(flush, chunk::DONE, 0, 512)),
        ("data before the request", data(read, 0, u64::MAX - 511, &[1; 512])),
        ("data behind the request", data(read, 0, 3584, &[1; 1024])),
        ("data far behind", data(read, 0, u64::from(u32::MAX), &[1; 512])),
        ("a hole too long", hole(read, chunk::DONE, 0, u32::MAX)),
        ("a hole of nothing", hole(read, 0, 0, 0)),
        ("a hole of a wrong length", chunked(read, 0, chunk::OFFSET_HOLE, &[0; 13])),
        ("data of nothing", data(read, 0, 0, &[])),
        ("data without an offset", chunked(read, 0, chunk::OFFSET_DATA, &[0; 7])),
        ("a wild length", long(u32::MAX)),
        ("a length of one too many", long(LEN + 9)),
        ("overlap", [data(read, 0, 0, &[1; 1024]), data(read, 0, 512, &[2; 1024])].concat()),
        ("the same again", [hole(read, 0, 0, 512), hole(read, 0, 0, 512)].concat()),
        ("a gap", [data(read, 0, 0, &[1; 512]), hole(read, chunk::DONE, 1024, 3072)].concat()),
        ("a gap at the end", data(read, chunk::DONE, 0, &[1; 4095])),
        ("too many pieces", many),
        ("extents", chunked(read, 0, 5, &[0; 12])),
        ("an unknown kind", chunked(read, chunk::DONE, 77, &[0; 12])),
        ("an error without a number", chunked(read, chunk::DONE, chunk::ERROR + 1, &[0; 5])),
        ("an endless error", {
            let mut bytes = error(read, chunk::DONE, 5, b"");
            bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
            bytes
        }),
    ];
    for (what, said) in cases {
        for piece in [1, 10_000] {
            rig = Rig::new(Dialect::Structured);
            assert!(rig.feed(&said, piece).is_err(), "{what}");
            assert!(!rig.books.answered.iter().any(|(owner, _)| *owner == 0), "{what}");
        }
    }
    let mut rig = Rig::new(Dialect::Simple);
    let said = data(rig.cookies[0], chunk::DONE, 0, &[0; LEN as usize]);
    assert!(rig.take(&said).is_err(), "chunks that were not agreed on");
}

/// One thing that a server may say, sensible or not.
fn saying() -> impl Strategy<Value = (u8, usize, u64, u32, bool)> {
    (0_u8..8, 0_usize..5, 0_u64..5000, 0_u32..5000, any::<bool>())
}

fn say(rig: &Rig, (what, whose, at, len, last): (u8, usize, u64, u32, bool)) -> Vec<u8> {
    let cookie = rig.cookies.get(whose).copied().unwrap_or(at);
    let flags = if last { chunk::DONE } else { 0 };
    // Half of them in round numbers, so that some fit.
    let (at, len) = if at % 2 == 0 { (at / 1024 * 1024, len / 1024 * 1024) } else { (at, len) };
    match what {
        0 => simple(cookie, len, &[]),
        1 => simple(cookie, 0, &vec![1; len as usize]),
        2 => hole(cookie, flags, at, len),
        3 => error(cookie, flags, len, b"text"),
        4 => chunked(cookie, flags, chunk::NONE, &[]),
        5 => chunked(cookie, flags, at as u16, &vec![2; len as usize]),
        _ => data(cookie, flags, at, &vec![3; len as usize]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever a server says: no panic; each request answered at most once; a read answered well
    /// only with every byte of it there; and the same however the stream is cut.
    #[test]
    fn any_saying_is_survived(
        structured: bool,
        sayings in prop::collection::vec(saying(), 0..12),
        piece in 1_usize..600,
    ) {
        let dialect = if structured { Dialect::Structured } else { Dialect::Simple };
        let mut rig = Rig::new(dialect);
        let said: Vec<u8> = sayings.into_iter().flat_map(|one| say(&rig, one)).collect();
        let whole = rig.feed(&said, usize::MAX);
        let mut cut = Rig::new(dialect);
        let result = cut.feed(&said, piece);
        prop_assert_eq!(result, whole);
        prop_assert_eq!(&cut.books.answered, &rig.books.answered);
        let mut owners: Vec<usize> = rig.books.answered.iter().map(|(owner, _)| *owner).collect();
        prop_assert_eq!(owners.len() + rig.in_flight.len(), 4);
        owners.sort_unstable();
        owners.dedup();
        prop_assert_eq!(owners.len(), rig.books.answered.len());
        prop_assert!(!owners.contains(&3), "an answer before the question");
        if rig.books.answered.contains(&(0, None)) {
            prop_assert!(!rig.books.came[0].contains(&false), "bytes that never came");
        }
    }
}
