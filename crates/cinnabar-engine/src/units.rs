//! Newtypes and fixed sizes of the field: blocks, sectors, slots, segments, volumes, instants.

/// Bytes of a cache line ("block") in this and every supported format version.
pub const BLOCK_BYTES: u64 = 4096;
/// Bytes of a guest sector, the alignment of every guest request.
pub const SECTOR_BYTES: u64 = 512;

/// Number of a 4 KiB block within one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u64);

/// A volume as the engine knows it while the daemon runs: an index into its volume table.
/// Given out by [`Command::Attach`](crate::Command::Attach), never reused while one of its blocks is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u16);

/// The incarnation of a volume that a cached block belongs to: unique within a cache device, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

/// A block-sized place in the log of one shard (header slots included).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A segment of the log of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// Nanoseconds since an origin of the driver's choice; the engine only compares and adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// This instant moved `ns` nanoseconds into the future.
    #[must_use]
    pub const fn plus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this instant, 0 if it is not later.
    pub const fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A range of bytes within a volume, in whole sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSpan {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl ByteSpan {
    /// A span from its first byte and its length in bytes.
    pub const fn new(offset: u64, len: u64) -> Self {
        Self { offset, len }
    }

    /// One past the last byte.
    pub const fn end(self) -> u64 {
        self.offset + self.len
    }

    /// First block touched.
    pub const fn first_block(self) -> u64 {
        self.offset / BLOCK_BYTES
    }

    /// One past the last block touched.
    pub const fn end_block(self) -> u64 {
        self.end().div_ceil(BLOCK_BYTES)
    }

    /// Number of blocks touched, edges included.
    pub const fn blocks(self) -> u64 {
        self.end_block() - self.first_block()
    }

    /// Offset of the first byte within its block.
    pub const fn head_bytes(self) -> u64 {
        self.offset % BLOCK_BYTES
    }
}
