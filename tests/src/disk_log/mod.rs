//! The history of a disk, and what a power cut may have left of it.
//!
//! QEMU's block driver `blklogwrites` records every write of a disk, in the format of the kernel's
//! dm-log-writes. It records order, not loss: a disk has a volatile cache, so after a power cut it
//! holds everything that the last flush covers, and any part of what was written since, sector by
//! sector. [`Replay`] makes such images from a log.

mod format;
mod replay;
mod survivors;

pub use format::{Change, DiskLog, Entry, entries_so_far};
pub use replay::{Replay, copy_sparse};
pub use survivors::{Piece, survivors};

/// Bytes of a sector of the disk: what a power cut leaves whole.
pub const SECTOR: u64 = 512;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
