//! Newtypes and fixed sizes of the field: blocks, sectors, slots, segments, volumes, instants.

/// Bytes of a cache line ("block") in this and every supported format version.
pub const BLOCK_BYTES: u64 = 4096;
/// Bytes of a guest sector, the alignment of every guest request.
pub const SECTOR_BYTES: u64 = 512;

/// Number of a 4 KiB block within one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u64);

/// A volume as the engine knows it while the daemon runs: an index into its volume table.
/// Given out by the command `Attach`, never reused while one of its blocks is cached.
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

    /// Its sectors in one of its blocks, bit 0 the block's first.
    ///
    /// # Panics
    /// If it does not touch the block.
    pub const fn sectors_in(self, block: u64) -> u8 {
        let start = block * BLOCK_BYTES;
        let from = self.offset.saturating_sub(start);
        let to = self.end() - start;
        let to = if to < BLOCK_BYTES { to } else { BLOCK_BYTES };
        assert!(from < to, "the span touches the block");
        ((sectors_below(to)) & !sectors_below(from)) as u8
    }

    /// Offset of the first byte within its block.
    pub const fn head_bytes(self) -> u64 {
        self.offset % BLOCK_BYTES
    }
}

const fn sectors_below(bytes: u64) -> u16 {
    (1 << (bytes / SECTOR_BYTES)) - 1
}

/// Runs of consecutive sectors of a block, bit 0 the first: first byte within the block and length in
/// bytes.
pub fn sector_runs(sectors: u8) -> impl Iterator<Item = (u64, u64)> {
    let mut left = sectors;
    std::iter::from_fn(move || {
        let first = left.trailing_zeros();
        let count = left.checked_shr(first)?.trailing_ones();
        left &= !(((1u16 << count) - 1) << first) as u8;
        Some((u64::from(first) * SECTOR_BYTES, u64::from(count) * SECTOR_BYTES))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_sectors() {
        let all = |sectors| sector_runs(sectors).collect::<Vec<_>>();
        assert_eq!(all(0xFF), [(0, 4096)]);
        assert_eq!(all(0b1000_0110), [(512, 1024), (3584, 512)]);
        assert_eq!(all(0), []);
        for sectors in 0..=255u8 {
            let sum: u64 = sector_runs(sectors).map(|(_, len)| len / 512).sum();
            assert_eq!(sum, u64::from(sectors.count_ones()));
        }
    }

    #[test]
    fn sectors_of_a_span_in_a_block() {
        let span = ByteSpan::new(3584, 4096 + 1024);
        assert_eq!([0, 1, 2].map(|block| span.sectors_in(block)), [0x80, 0xFF, 0x01]);
    }
}
