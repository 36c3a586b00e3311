//! A client made of bytes, which can say everything, wrong things too.

use cinnabar_frontend::nbd::proto::{self, Fields, Request, command};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An option as sent.
pub(crate) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = proto::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).expect("short").to_be_bytes());
    bytes.extend(data);
    bytes
}

/// A string as in options.
pub(crate) fn string(text: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).expect("short").to_be_bytes().to_vec();
    bytes.extend(text);
    bytes
}

/// The data of GO and INFO.
pub(crate) fn info_data(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut bytes = string(name.as_bytes());
    bytes.extend(u16::try_from(infos.len()).expect("few").to_be_bytes());
    bytes.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
    bytes
}

/// The data of the metadata context options.
pub(crate) fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = string(name.as_bytes());
    bytes.extend(u32::try_from(queries.len()).expect("few").to_be_bytes());
    bytes.extend(queries.iter().flat_map(|query| string(query.as_bytes())));
    bytes
}

/// A reply to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OptionReply {
    pub(crate) option: u32,
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
}

/// Takes a reply off the front of `bytes`.
pub(crate) fn take_option_reply(bytes: &mut &[u8]) -> Option<OptionReply> {
    let mut fields = Fields(bytes);
    assert_eq!(fields.u64()?, proto::OPTION_REPLY_MAGIC);
    let (option, kind) = (fields.u32()?, fields.u32()?);
    let data = fields.string()?.to_vec();
    *bytes = fields.0;
    Some(OptionReply { option, kind, data })
}

/// A request as sent.
pub(crate) fn request(command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    Request { flags: 0, command, cookie, offset, len }.encode().to_vec()
}

/// `count` reads of `len` bytes, one after the other.
pub(crate) fn reads(count: u64, len: u32) -> Vec<u8> {
    (0..count).flat_map(|cookie| request(command::READ, cookie, 0, len)).collect()
}

/// A connection to a server.
pub(crate) struct Client(pub(crate) UnixStream);

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).expect("the server listens"))
    }

    /// A connection that is open already.
    pub(crate) fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a valid time");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a valid time");
        Self(stream)
    }

    /// Reads the greeting and sends flags.
    pub(crate) fn greet(path: &Path) -> Self {
        let mut client = Self::connect(path);
        client.answer_greeting();
        client
    }

    /// The same on a fresh connection.
    pub(crate) fn answer_greeting(&mut self) {
        assert_eq!(self.read::<18>()[..8], *b"NBDMAGIC");
        self.send(&3_u32.to_be_bytes());
    }

    /// Enters an export; the simple way, without structured replies.
    pub(crate) fn enter(path: &Path, name: &str) -> Self {
        let mut client = Self::greet(path);
        let last = client.go(name);
        assert_eq!(last.kind, proto::option_reply::ACK, "{last:?}");
        client
    }

    /// Asks to enter; returns the last reply.
    pub(crate) fn go(&mut self, name: &str) -> OptionReply {
        self.send(&option(proto::option::GO, &info_data(name, &[])));
        loop {
            let reply = self.option_reply();
            if reply.kind != proto::option_reply::INFO {
                return reply;
            }
        }
    }

    pub(crate) fn option_reply(&mut self) -> OptionReply {
        let mut bytes = self.read::<20>().to_vec();
        let len = u32::from_be_bytes(bytes[16..].try_into().expect("4 bytes"));
        let at = bytes.len();
        bytes.resize(at + len as usize, 0);
        self.0.read_exact(&mut bytes[at..]).expect("the reply's data");
        take_option_reply(&mut bytes.as_slice()).expect("a whole reply")
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
    }

    /// Sends bytes that the server may not read to the end.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    pub(crate) fn read<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    /// Reads a simple reply; returns error and cookie.
    pub(crate) fn simple_reply(&mut self) -> (u32, u64) {
        let bytes = self.read::<16>();
        let mut fields = Fields(&bytes);
        assert_eq!(fields.u32(), Some(proto::SIMPLE_REPLY_MAGIC));
        (fields.u32().expect("4 bytes"), fields.u64().expect("8 bytes"))
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        let len = u32::try_from(data.len()).expect("short");
        self.send(&[request(command::WRITE, 1, offset, len).as_slice(), data].concat());
        self.simple_reply().0
    }

    pub(crate) fn read_at(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        let request = request(command::READ, 2, offset, u32::try_from(len).expect("short"));
        self.send(&request);
        match self.simple_reply() {
            (0, 2) => {
                let mut data = vec![0; len];
                self.0.read_exact(&mut data).expect("the data");
                Ok(data)
            }
            (error, _) => Err(error),
        }
    }

    /// Whether the server closes the connection within so many seconds, though nothing is read.
    pub(crate) fn is_thrown_out(&self, seconds: i64) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let wait = Timespec { tv_sec: seconds, tv_nsec: 0 };
        poll(&mut fds, Some(&wait)).is_ok_and(|count| count == 1)
    }

    /// Whether the server closes the connection soon; reads what comes before.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
