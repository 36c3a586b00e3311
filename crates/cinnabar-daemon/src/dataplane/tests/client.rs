//! As much of an NBD client as the tests need: simple replies, one request at a time unless told.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(super) struct Client {
    socket: UnixStream,
    cookie: u64,
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;

impl Client {
    /// Connects and goes for an export.
    pub(super) fn connect(path: &Path, export: &str) -> Self {
        match Self::try_connect(path, export) {
            Ok(client) => client,
            Err(refused) => panic!("refused: {refused}"),
        }
    }

    /// The words with which a client is turned away.
    pub(super) fn refusal(path: &Path, export: &str) -> String {
        Self::try_connect(path, export).err().expect("nobody is let in")
    }

    fn try_connect(path: &Path, export: &str) -> Result<Self, String> {
        let mut socket = UnixStream::connect(path).expect("somebody listens");
        socket.set_read_timeout(Some(Duration::from_mins(1))).expect("a time-out");
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend(7_u32.to_be_bytes());
        hello.extend((export.len() as u32 + 6).to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        hello.extend([0, 0]);
        socket.write_all(&hello).expect("it is sent");
        loop {
            let mut header = [0; 20];
            socket.read_exact(&mut header).expect("an answer");
            let kind = u32::from_be_bytes(header[12..16].try_into().expect("four bytes"));
            let len = u32::from_be_bytes(header[16..].try_into().expect("four bytes"));
            let mut data = vec![0; len as usize];
            socket.read_exact(&mut data).expect("its data");
            match kind {
                1 => break,
                3 => {}
                other => return Err(format!("{other:#x} {}", String::from_utf8_lossy(&data))),
            }
        }
        Ok(Self { socket, cookie: 0 })
    }

    /// Sends a request under a cookie of its own, which it gives: its number, from 1.
    fn send(&mut self, kind: u16, flags: u16, offset: u64, len: u32, data: &[u8]) -> u64 {
        self.cookie += 1;
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        self.socket.write_all(&request).expect("it is sent");
        self.cookie
    }

    /// The reply to the only request under way.
    fn receive(&mut self, len: usize) -> Result<Vec<u8>, u32> {
        let (cookie, result) = self.answer(len);
        assert_eq!(cookie, self.cookie);
        result
    }

    /// The next reply, with `len` bytes of data unless it is an error, and its cookie.
    pub(super) fn answer(&mut self, len: usize) -> (u64, Result<Vec<u8>, u32>) {
        self.answer_with(|_| len)
    }

    /// The same, with as many bytes as `len` says for its cookie.
    pub(super) fn answer_with(
        &mut self,
        len: impl Fn(u64) -> usize,
    ) -> (u64, Result<Vec<u8>, u32>) {
        let mut header = [0; 16];
        self.socket.read_exact(&mut header).expect("a reply");
        self.answer_of(header, len)
    }

    /// The next reply, without data; `None` at the end.
    pub(super) fn next_answer(&mut self) -> Option<(u64, Result<Vec<u8>, u32>)> {
        let mut header = [0; 16];
        self.socket.read_exact(&mut header).ok()?;
        Some(self.answer_of(header, |_| 0))
    }

    fn answer_of(
        &mut self,
        header: [u8; 16],
        len: impl Fn(u64) -> usize,
    ) -> (u64, Result<Vec<u8>, u32>) {
        assert_eq!(header[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(header[4..8].try_into().expect("four bytes"));
        let cookie = u64::from_be_bytes(header[8..].try_into().expect("eight bytes"));
        if error != 0 {
            return (cookie, Err(error));
        }
        let mut data = vec![0; len(cookie)];
        self.socket.read_exact(&mut data).expect("its data");
        (cookie, Ok(data))
    }

    pub(super) fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        self.ask(offset, len);
        self.receive(len as usize)
    }

    /// Sends a read and doesn't wait.
    pub(super) fn ask(&mut self, offset: u64, len: u32) {
        self.send(READ, 0, offset, len, &[]);
    }

    /// Sends a write and doesn't wait.
    pub(super) fn ask_to_write(&mut self, offset: u64, data: &[u8]) -> u64 {
        self.send(WRITE, 0, offset, data.len() as u32, data)
    }

    /// Sends a flush and doesn't wait.
    pub(super) fn ask_to_flush(&mut self) {
        self.send(FLUSH, 0, 0, 0, &[]);
    }

    /// Sends a trim and doesn't wait.
    pub(super) fn ask_to_trim(&mut self, offset: u64, len: u32) {
        self.send(TRIM, 0, offset, len, &[]);
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<(), u32> {
        self.send(WRITE, u16::from(fua), offset, data.len() as u32, data);
        self.receive(0).map(drop)
    }

    pub(super) fn flush(&mut self) -> Result<(), u32> {
        self.send(FLUSH, 0, 0, 0, &[]);
        self.receive(0).map(drop)
    }

    pub(super) fn trim(&mut self, offset: u64, len: u32) -> Result<(), u32> {
        self.send(TRIM, 0, offset, len, &[]);
        self.receive(0).map(drop)
    }

    pub(super) fn zero(&mut self, offset: u64, len: u32) -> Result<(), u32> {
        self.send(WRITE_ZEROES, 0, offset, len, &[]);
        self.receive(0).map(drop)
    }

    /// Says good-bye and waits for the end.
    pub(super) fn leave(mut self) {
        self.send(DISCONNECT, 0, 0, 0, &[]);
        assert!(self.is_closed());
    }

    /// Reads what there is until the server closes.
    pub(super) fn ends(&mut self) -> bool {
        let mut rest = Vec::new();
        let timed_out = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        self.socket.read_to_end(&mut rest).map_or_else(|error| !timed_out(error), |_| true)
    }

    /// Waits for the server to close.
    pub(super) fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0]), Ok(0) | Err(_))
    }
}
