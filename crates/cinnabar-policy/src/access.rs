//! One reference in four bytes: a dense block number and whether it is a write.
//!
//! Made by the interner, used by every policy and analysis.

/// A reference to one block. Blocks are numbered from 0 in the order of their first reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// Most different blocks: 2^30, 4 TiB of 4 KiB blocks.
    pub const BLOCKS_MAX: u32 = 1 << 30;

    /// A reference to `block`.
    ///
    /// # Panics
    /// If `block` is not below [`BLOCKS_MAX`](Self::BLOCKS_MAX).
    pub const fn new(block: u32, write: bool) -> Self {
        assert!(block < Self::BLOCKS_MAX, "a block number has 30 bits");
        Self(block << 1 | write as u32)
    }

    /// Number of the block.
    pub const fn block(self) -> u32 {
        self.0 >> 1
    }

    pub const fn is_write(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Blocks that `accesses` may name: one more than the largest number, 0 if there are none.
pub fn blocks_of(accesses: &[Access]) -> u32 {
    accesses.iter().map(|access| access.block() + 1).max().unwrap_or(0)
}
