//! The kernel's FUSE messages, as far as the tests need them: fields at fixed places, little endian.

/// Bytes of the header of a request and of an answer.
pub(super) const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;

/// Kinds of request.
pub(super) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
}

/// A request.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) node: u64,
    /// Behind the header.
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let header = Self { opcode: 0, unique: 0, node: 0, body: bytes.to_vec() };
        let (opcode, unique, node) = (header.u32(4), header.u64(8), header.u64(16));
        Self { opcode, unique, node, body: bytes[IN_HEADER..].to_vec() }
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.body[at..at + 4].try_into().expect("4 bytes"))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.body[at..at + 8].try_into().expect("8 bytes"))
    }

    /// A name that ends with a zero byte.
    pub(super) fn name(&self, at: usize) -> String {
        let bytes = &self.body[at..];
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// An answer's bytes.
#[derive(Default)]
pub(super) struct Out(Vec<u8>);

impl Out {
    pub(super) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Attributes of a file of that many bytes, or of the folder.
    pub(super) fn attributes(self, node: u64, size: Option<u64>) -> Self {
        let mode = if size.is_some() { 0o100_600 } else { 0o040_700 };
        let size = size.unwrap_or(0);
        let times = self.u64(node).u64(size).u64(size.div_ceil(512)).u64(1).u64(1).u64(1);
        // Three fractions, mode, links, owner, group, device, block size, flags.
        let rest = times.u32(0).u32(0).u32(0).u32(mode).u32(1).u32(0).u32(0);
        rest.u32(0).u32(4096).u32(0)
    }

    /// A name's file: nothing of it is cached by the kernel.
    pub(super) fn entry(self, node: u64, size: u64) -> Self {
        self.u64(node).u64(0).u64(0).u64(0).u32(0).u32(0).attributes(node, Some(size))
    }

    /// A handle.
    pub(super) fn open(self) -> Self {
        self.u64(1).u32(0).u32(0)
    }

    /// The message.
    pub(super) fn message(&self, unique: u64, error: i32) -> Vec<u8> {
        let len = (OUT_HEADER + self.0.len()) as u32;
        let header = Self::default().u32(len).u32((-error).cast_unsigned()).u64(unique);
        [header.0.as_slice(), &self.0].concat()
    }
}
