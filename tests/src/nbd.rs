//! The smallest NBD client that can write, flush, trim, read and tell what was acknowledged.
//!
//! For tests that end the daemon under load: fio loses its books with its connection. Blocking, one
//! request at a time, unix sockets only.

use anyhow::{Context, Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_EXPORT_NAME: u32 = 1;
/// Fixed newstyle, no zeroes behind the export's flags.
const CLIENT_FLAGS: u32 = 3;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
/// In the request's flags: answer when durable.
const FUA: u16 = 1;

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    size: u64,
}

/// Whether a server listens on a unix socket, which is there a moment before.
pub fn listens(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

impl Client {
    pub fn connect(socket: &Path, export: &str) -> Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let mut hello = [0; 18];
        stream.read_exact(&mut hello)?;
        ensure!(hello[..8] == MAGIC.to_be_bytes(), "no NBD server");
        ensure!(hello[8..16] == OPTION_MAGIC.to_be_bytes(), "no newstyle NBD server");
        let mut wish = CLIENT_FLAGS.to_be_bytes().to_vec();
        wish.extend(OPTION_MAGIC.to_be_bytes());
        wish.extend(OPTION_EXPORT_NAME.to_be_bytes());
        wish.extend(u32::try_from(export.len())?.to_be_bytes());
        wish.extend(export.as_bytes());
        stream.write_all(&wish)?;
        let mut size = [0; 8];
        stream.read_exact(&mut size).context("the server refused")?;
        let mut flags = [0; 2];
        stream.read_exact(&mut flags)?;
        Ok(Self { stream, size: u64::from_be_bytes(size) })
    }

    /// Size of the export, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes `data` at `offset`; `Ok` means acknowledged.
    ///
    /// # Errors
    /// When the server is gone ([`is_gone`]) or refuses.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.request(WRITE, 0, offset, data.len() as u64, data)
    }

    /// Writes `data` at `offset`; `Ok` means durable.
    pub fn write_durably(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.request(WRITE, FUA, offset, data.len() as u64, data)
    }

    /// Reads `len` bytes at `offset`.
    pub fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.request(READ, 0, offset, len as u64, &[])?;
        let mut data = vec![0; len];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    /// Makes durable what was acknowledged before.
    pub fn flush(&mut self) -> Result<()> {
        self.request(FLUSH, 0, 0, 0, &[])
    }

    /// Gives up `len` bytes at `offset`.
    pub fn trim(&mut self, offset: u64, len: u64) -> Result<()> {
        self.request(TRIM, 0, offset, len, &[])
    }

    /// Makes `len` bytes at `offset` read as zeros.
    pub fn write_zeroes(&mut self, offset: u64, len: u64) -> Result<()> {
        self.request(WRITE_ZEROES, 0, offset, len, &[])
    }

    fn request(&mut self, kind: u16, flags: u16, at: u64, len: u64, data: &[u8]) -> Result<()> {
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(at.to_be_bytes()); // the cookie: any value will do
        request.extend(at.to_be_bytes());
        request.extend(u32::try_from(len)?.to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        ensure!(reply[..4] == REPLY_MAGIC.to_be_bytes(), "no simple reply: {reply:x?}");
        ensure!(reply[4..8] == [0; 4], "error {:x?} at offset {at}", &reply[4..8]);
        ensure!(reply[8..] == at.to_be_bytes(), "reply to another request");
        Ok(())
    }
}

/// Whether a request failed because the server is gone, not because it refused. Whether it was
/// carried out is unknown then. A server that says nothing for too long counts as one that hangs,
/// not as gone.
pub fn is_gone(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}
