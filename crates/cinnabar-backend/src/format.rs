//! Formatting a cache device that is blank, or that its owner gives up.
//!
//! Called at start-up, when all else is known to be well, and for a device that takes another's
//! place; by whoever drives an engine.

use crate::disk::{Disk, DiskError};
use crate::entropy;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::units::BLOCK_BYTES;
use std::io;

/// The superblock of a fresh format with this geometry, under a random identity; nothing is
/// written yet.
///
/// # Errors
/// If there are no random numbers.
pub fn fresh(geometry: Geometry) -> io::Result<Superblock> {
    let mut uuid: [u8; 16] = entropy::bytes()?;
    // Version 4, variant 1, as others expect of a random UUID.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(Superblock::format(uuid, geometry))
}

/// Writes a fresh format: zeros where marks will be written durably in small pieces (into holes
/// that costs 2.5 times as much), then both copies of the superblock, one of them blank.
///
/// # Errors
/// If the device fails.
pub fn write(disk: &Disk, superblock: &Superblock) -> Result<(), DiskError> {
    let (first, count) = superblock.geometry.marks;
    disk.write_zeros(first * BLOCK_BYTES, count * BLOCK_BYTES)?;
    let mut copies = [const { MetaPage::zeroed() }; 2];
    let (offset, page) = superblock.encode();
    copies[(offset / BLOCK_BYTES) as usize] = page;
    disk.write_pages(0, &copies)?;
    let capacity_blocks = superblock.geometry.capacity_blocks();
    tracing::info!(path = %disk.path().display(), capacity_blocks, "formatted the cache device");
    Ok(())
}
