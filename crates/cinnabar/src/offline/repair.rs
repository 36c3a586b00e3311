//! Repairing what can be repaired without a guess: the copies of each region's superblock.
//!
//! What else is damaged heals by itself: a start drops what it can't believe and writes a new
//! checkpoint.

use super::regions::Region;
use super::superblocks::Copy;
use super::{Image, OfflineError};
use cinnabar_engine::metadata::superblock::{DeviceState, Superblock, SuperblockError};

/// What a repair has done, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// Nothing: both copies are good, or one was never written.
    Nothing,
    /// A damaged copy is rewritten from the good one.
    Copy { page: usize },
    /// Both copies say that nothing on the device is to be believed.
    Cold,
}

/// What there is to do in a region of the device of path `device`; with `cold`, to make the next start empty.
///
/// # Errors
/// When it is not a cache device, or no copy of its superblock is good.
pub fn plan(region: &Region, device: &str, cold: bool) -> Result<Repair, OfflineError> {
    newest(region, device)?;
    let damaged = |copy: &Copy| matches!(copy, Copy::Bad(_) | Copy::Unreadable | Copy::Stray(_));
    Ok(match region.copies.copies.iter().position(damaged) {
        _ if cold => Repair::Cold,
        Some(page) => Repair::Copy { page },
        None => Repair::Nothing,
    })
}

/// Carries it out, durably. The good copy stays as it is until the other one is written: whenever
/// this is interrupted, at least one copy is good.
///
/// # Errors
/// As [`plan`], and when the device can't be written.
pub fn carry_out(
    image: &Image,
    region: &Region,
    device: &str,
    repair: Repair,
) -> Result<(), OfflineError> {
    let newest = newest(region, device)?;
    let write = |superblock: &Superblock| {
        let (offset, page) = superblock.encode();
        image.disk().write_pages(region.start_bytes() + offset, &[page])
    };
    match repair {
        Repair::Nothing => Ok(()),
        Repair::Copy { page } => {
            // The same words under a number that belongs to that page; then it is the newer one.
            let sequence = next_at(newest.sequence, page);
            Ok(write(&Superblock { sequence, ..newest.clone() })?)
        }
        Repair::Cold => {
            // The older copy first, so that the newer one is good until then.
            let sequence = newest.sequence + 1;
            let state = DeviceState::Cold;
            write(&Superblock { sequence, state, ..newest.clone() })?;
            Ok(write(&Superblock { sequence: sequence + 1, state, ..newest.clone() })?)
        }
    }
}

/// The copy that counts.
fn newest<'a>(region: &'a Region, device: &str) -> Result<&'a Superblock, OfflineError> {
    region.copies.newest().map_err(|error| {
        let device = device.to_owned();
        match (region.shard, region.fault(), error) {
            (Some(shard), Some(error), _) => OfflineError::Region { device, shard, error },
            (_, _, SuperblockError::Damaged) => OfflineError::NoCopy { device },
            (_, _, error) => OfflineError::Superblock { device, error },
        }
    })
}

/// The next number after `sequence` whose copy lies in `page`.
const fn next_at(sequence: u64, page: usize) -> u64 {
    let next = sequence + 1;
    if next % 2 == page as u64 { next } else { next + 1 }
}
