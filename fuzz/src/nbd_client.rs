//! A server that says anything, to the client of the back ends: no panic, no request answered twice,
//! no read answered without its bytes, and the same however the stream is cut.

use crate::input::Input;
use cinnabar_backend::nbd::export_info::ExportInfo;
use cinnabar_backend::nbd::receiver::{Dialect, Reader, Receiver};
use cinnabar_backend::nbd::{Command, InFlight, handshake};
use std::io::{self, Cursor, Read, Write};

/// What a request's memory holds before anything arrives.
const UNTOUCHED: u8 = 0xee;
const LEN: u32 = 2048;

/// A server that has said all it will say beforehand.
struct Said<'a>(Cursor<&'a [u8]>);

impl Read for Said<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Said<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Requests under way, and what came of them.
struct Client {
    receiver: Receiver,
    in_flight: InFlight,
    books: Books,
}

#[derive(Debug, PartialEq)]
struct Books {
    memory: Vec<Vec<u8>>,
    answered: Vec<(usize, Option<u32>)>,
}

impl Reader for Books {
    fn put(&mut self, flight: &cinnabar_backend::nbd::Flight, at: u32, bytes: &[u8]) {
        self.memory[flight.owner][at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn zero(&mut self, flight: &cinnabar_backend::nbd::Flight, at: u32, len: u32) {
        self.memory[flight.owner][at as usize..][..len as usize].fill(0);
    }

    fn answered(&mut self, flight: cinnabar_backend::nbd::Flight, error: Option<u32>) {
        self.answered.push((flight.owner, error));
    }
}

impl Client {
    fn new(dialect: Dialect) -> Self {
        let mut in_flight = InFlight::default();
        // The first are found by their cookies' simple pattern: n << 32 | n - 1.
        for (owner, command) in
            [Command::Read, Command::Read, Command::Write, Command::Flush].into_iter().enumerate()
        {
            let len = if command == Command::Flush { 0 } else { LEN };
            let cookie = in_flight.add(command, 0, len, owner, 0);
            in_flight.was_sent(cookie);
        }
        let memory = vec![vec![UNTOUCHED; LEN as usize]; 4];
        let books = Books { memory, answered: Vec::new() };
        Self { receiver: Receiver::new(dialect), in_flight, books }
    }

    /// All of it, in pieces as a socket would bring it; whether the server broke the protocol.
    fn hear<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut held = Vec::new();
        for piece in pieces {
            held.extend(piece);
            match self.receiver.take(&held, &mut self.in_flight, &mut self.books) {
                Ok(used) => drop(held.drain(..used)),
                Err(_) => return true,
            }
            assert!(held.len() < 20, "{} bytes wait for more", held.len());
        }
        false
    }
}

/// Which replies were agreed on (a flag), where the stream is cut (`u8`), and the stream; whether it is a handshake
/// or answers something.
///
/// # Panics
/// When something is answered twice, without its bytes, or otherwise in pieces.
pub fn run(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let (structured, cut, bytes) = (input.flag(), input.u8(), input.rest());
    let has_entered = enters(bytes, cut.is_multiple_of(2));
    let answered = is_answered(structured, cut, bytes);
    has_entered || answered
}

/// Takes the stream for a handshake.
fn enters(bytes: &[u8], read_only: bool) -> bool {
    let entered = handshake::enter(&mut Said(Cursor::new(bytes)), "disk");
    let Ok(export) = entered else { return false };
    let Ok(info) = ExportInfo::judge(&export, read_only) else { return false };
    let align = u64::from(info.align_bytes);
    assert!(matches!(align, 512 | 4096));
    assert!(info.size_bytes > 0 && info.size_bytes.is_multiple_of(align));
    assert!(info.payload_bytes_max > 0);
    assert!(info.payload_bytes_max.is_multiple_of(info.align_bytes));
    true
}

/// Takes the stream for replies.
fn is_answered(structured: bool, cut: u8, bytes: &[u8]) -> bool {
    let dialect = if structured { Dialect::Structured } else { Dialect::Simple };
    let mut whole = Client::new(dialect);
    let broken = whole.hear(std::iter::once(bytes));
    let mut pieces = Client::new(dialect);
    let broken_in_pieces = pieces.hear(bytes.chunks(usize::from(cut).max(1)));
    assert_eq!(broken, broken_in_pieces);
    assert_eq!(whole.books.answered, pieces.books.answered);
    let answered = &whole.books.answered;
    assert_eq!(answered.len() + whole.in_flight.len(), 4, "answered twice, or lost");
    for owner in [0, 1] {
        let well = answered.contains(&(owner, None));
        // The byte may be what the server sent: an input that holds it proves nothing.
        if well && !bytes.contains(&UNTOUCHED) {
            assert!(!whole.books.memory[owner].contains(&UNTOUCHED), "bytes that never came");
        }
    }
    !answered.is_empty()
}
