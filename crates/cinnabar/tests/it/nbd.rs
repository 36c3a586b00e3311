//! Just enough of an NBD client to read and write blocks.
//!
//! Wrong bytes are sent by `garbage`.

use super::rig::PATIENCE;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_FLUSH: u16 = 3;
const CMD_TRIM: u16 = 4;
const CMD_WRITE_ZEROES: u16 = 6;

/// A client in the transmission phase.
pub(crate) struct Client {
    stream: UnixStream,
    pub(crate) size_bytes: u64,
    next: u64,
}

/// Connects, and reads the greeting.
pub(crate) fn greet(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    if &greeting[..16] != b"NBDMAGICIHAVEOPT" {
        return Err(io::Error::other(format!("greeted with {greeting:?}")));
    }
    Ok(stream)
}

/// The client's flags: fixed newstyle, no zeroes.
pub(crate) const FLAGS: [u8; 4] = 3_u32.to_be_bytes();

/// The bytes of an option.
pub(crate) fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(kind.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).expect("short").to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The bytes of a request, without payload.
pub(crate) fn request(kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

impl Client {
    /// Attaches to an export by its name.
    pub(crate) fn attach(socket: &Path, name: &str) -> io::Result<Self> {
        let mut stream = greet(socket)?;
        stream.write_all(&FLAGS)?;
        // EXPORT_NAME: the answer is size and flags, or the end of the connection.
        stream.write_all(&option(1, name.as_bytes()))?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        let size_bytes = u64::from_be_bytes(answer[..8].try_into().expect("8 bytes"));
        Ok(Self { stream, size_bytes, next: 1 })
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> io::Result<Vec<u8>> {
        self.call(CMD_READ, offset, len, &[])?;
        let mut data = vec![0; len as usize];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.call(CMD_WRITE, offset, u32::try_from(data.len()).expect("short"), data)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.call(CMD_FLUSH, 0, 0, &[])
    }

    pub(crate) fn trim(&mut self, offset: u64, len: u32) -> io::Result<()> {
        self.call(CMD_TRIM, offset, len, &[])
    }

    pub(crate) fn zero(&mut self, offset: u64, len: u32) -> io::Result<()> {
        self.call(CMD_WRITE_ZEROES, offset, len, &[])
    }

    fn call(&mut self, kind: u16, offset: u64, len: u32, data: &[u8]) -> io::Result<()> {
        let cookie = self.next;
        self.next += 1;
        self.stream.write_all(&request(kind, cookie, offset, len))?;
        self.stream.write_all(data)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!(word(0), REPLY_MAGIC, "a simple reply");
        assert_eq!(reply[8..], cookie.to_be_bytes(), "the cookie of the request");
        match word(4) {
            0 => Ok(()),
            error => Err(io::Error::other(format!("NBD error {error}"))),
        }
    }
}
