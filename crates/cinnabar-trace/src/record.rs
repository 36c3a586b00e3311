//! One line of any trace, whatever format it came in.

/// What was asked of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Read,
    Write,
    /// A flush; offset and length mean nothing.
    Flush,
    /// A discard (trim).
    Discard,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was issued, in microseconds since the trace's own origin.
    pub ts_us: u64,
    /// Dense volume number; small enough for a [`crate::Reference`]'s key.
    pub volume: u32,
    /// The operation.
    pub op: Op,
    /// First byte of the request on its volume.
    pub offset_bytes: u64,
    /// Length in bytes; `offset_bytes + length_bytes` never exceeds [`Record::END_BYTES_MAX`], and a
    /// read or write is never longer than [`Record::LENGTH_BYTES_MAX`].
    pub length_bytes: u64,
}

impl Record {
    /// Largest end of a request: block numbers stay below 2^40, as a reference's key needs.
    pub const END_BYTES_MAX: u64 = 1 << 52;
    /// Longest read or write: no interface carries longer ones, and code that visits each of its
    /// blocks would never end. Discards may be as long as the disk.
    pub const LENGTH_BYTES_MAX: u64 = 4 << 30;
    /// Largest volume number: 24 bits, as a reference's key needs.
    pub const VOLUME_MAX: u32 = (1 << 24) - 1;
}
