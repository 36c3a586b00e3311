//! Little-endian fields in a page or sector, and the checksum that covers it.

/// Where the CRC-32C lies: in the first four bytes; it covers all others.
pub const CRC_BYTES: usize = 4;

/// Writes fields one behind the other.
pub struct Writer<'a> {
    page: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Starts behind the checksum.
    ///
    /// # Panics
    /// If the page has no room for it.
    pub fn new(page: &'a mut [u8]) -> Self {
        assert!(page.len() > CRC_BYTES, "a page has room behind its checksum");
        Self { page, at: CRC_BYTES }
    }

    /// Appends bytes; more than fit is a bug of the caller.
    ///
    /// # Panics
    /// If they don't fit.
    pub fn bytes(&mut self, bytes: &[u8]) {
        assert!(self.at + bytes.len() <= self.page.len(), "fields fit their page");
        self.page[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Bytes so far, the checksum's included.
    pub fn written(&self) -> usize {
        self.at
    }

    /// Appends a byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Computes the checksum. Nothing may be written afterwards.
    pub fn seal(self) {
        let crc = crc32c::crc32c(&self.page[CRC_BYTES..]);
        self.page[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Reads fields one behind the other; never past the page, whatever it says.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts behind the checksum, or says that it is wrong.
    pub fn verified(page: &'a [u8]) -> Option<Self> {
        let (crc, rest) = page.split_at(CRC_BYTES);
        (crc32c::crc32c(rest).to_le_bytes() == crc).then_some(Self { rest })
    }

    /// Starts behind the checksum, whatever it is.
    pub fn unverified(page: &'a [u8]) -> Self {
        Self { rest: &page[CRC_BYTES..] }
    }

    /// The next `N` bytes, zeros past the end.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let have = N.min(self.rest.len());
        out[..have].copy_from_slice(&self.rest[..have]);
        self.rest = &self.rest[have..];
        out
    }

    /// The next a byte, as a number.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes, as a number.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes, as a number.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes, as a number.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}
