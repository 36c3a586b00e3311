//! Ids of I/Os that contain their shard, for drivers that have one table for all shards.

use crate::IoId;

/// Upper bits of an I/O's id: its shard. Engines' own ids are places in a table.
const SHARD_SHIFT: u32 = 56;

/// A shard's I/O as one of the whole.
///
/// # Panics
/// If there are more shards, or I/Os of one, than an id has room for.
pub const fn name_io(shard: u32, id: IoId) -> IoId {
    assert!(id.0 >> SHARD_SHIFT == 0, "a place in a table leaves the shard's bits alone");
    assert!(shard < 1 << (u64::BITS - SHARD_SHIFT), "a shard fits its bits");
    IoId(id.0 | (shard as u64) << SHARD_SHIFT)
}

/// Whose it is, and what its shard calls it.
pub(super) const fn shard_of(id: IoId) -> (u32, IoId) {
    ((id.0 >> SHARD_SHIFT) as u32, IoId(id.0 & ((1 << SHARD_SHIFT) - 1)))
}
