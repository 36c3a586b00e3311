//! The superblocks of a cache device, one for each region: read, or rewritten on a device that
//! is blank, or that its owner gives up.
//!
//! Called at start-up, when all else is known to be well, and for a device that takes another's
//! place; by the driver of an engine.

use crate::disk::{Disk, DiskError, DiskErrorKind};
use crate::entropy;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock, SuperblockError};
use cinnabar_engine::units::BLOCK_BYTES;
use std::io;

/// The superblocks of a fresh format with this geometry, in order, under a random identity;
/// nothing is written yet.
///
/// # Errors
/// If there are no random numbers.
pub fn fresh(geometry: Geometry) -> io::Result<Vec<Superblock>> {
    let mut uuid: [u8; 16] = entropy::bytes()?;
    // Version 4, variant 1, as others expect of a random UUID.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(Superblock::format_all(uuid, geometry))
}

/// Writes a fresh format: in each region zeros where marks will be written durably in small pieces
/// (into holes that costs 2.5 times as much) and over the heads of both checkpoints, which an older
/// format may have left; then both copies of the superblock, one of them blank. The first region
/// comes last: without it the device is not formatted.
///
/// # Errors
/// If the device fails.
pub fn write(disk: &Disk, superblocks: &[Superblock]) -> Result<(), DiskError> {
    // What an earlier format left must not be taken for the first region of this one.
    disk.write_pages(0, &[const { MetaPage::zeroed() }; 2])?;
    for superblock in superblocks.iter().rev() {
        let start = superblock.region_start();
        let (first, count) = superblock.geometry.journal;
        disk.write_zeros(start + first * BLOCK_BYTES, count * BLOCK_BYTES)?;
        for head in superblock.geometry.checkpoints.0 {
            disk.write_pages(start + head * BLOCK_BYTES, &[const { MetaPage::zeroed() }])?;
        }
        let mut copies = [const { MetaPage::zeroed() }; 2];
        let (offset, page) = superblock.encode();
        copies[(offset / BLOCK_BYTES) as usize] = page;
        disk.write_pages(start, &copies)?;
    }
    let capacity =
        |superblock: &Superblock| superblock.geometry.blocks_of(superblock.segments_used);
    let capacity_blocks: u64 = superblocks.iter().map(capacity).sum();
    let regions = superblocks.len();
    tracing::info!(path = %disk.path().display(), capacity_blocks, regions, "formatted the cache device");
    Ok(())
}

/// The superblocks of all regions, in order, of a device whose first region has this one.
///
/// # Errors
/// If the device fails, or a region's superblock is damaged or of another device.
pub fn superblocks(disk: &Disk, first: &Superblock) -> Result<Vec<Superblock>, DiskError> {
    let mut all = vec![first.clone()];
    for shard in 1..first.geometry.shards {
        let mut pages = [const { MetaPage::zeroed() }; 2];
        disk.read_pages(first.for_shard(shard).region_start(), &mut pages)?;
        match Superblock::decode(&pages) {
            Ok(superblock) if superblock.belongs_to(first, shard) => all.push(superblock),
            other => {
                let version =
                    |error: &SuperblockError| matches!(error, SuperblockError::Version { .. });
                let error = other.err().filter(version).unwrap_or(SuperblockError::Damaged);
                let kind = DiskErrorKind::Superblock(error);
                return Err(DiskError { path: disk.path().to_owned(), kind });
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{CacheOptions, Contents, open_cache};

    #[test]
    fn what_is_written_is_found_and_damage_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cache");
        let options = CacheOptions { size_bytes: Some(128 << 20), ..CacheOptions::default() };
        let blank = open_cache(&path, &options).expect("a new file");
        let geometry = Geometry::for_shards(blank.disk.size_bytes(), 3).expect("a good size");
        let made = fresh(geometry).expect("random numbers");
        assert_eq!(made.len(), 3);
        write(&blank.disk, &made).expect("it can be written");
        drop(blank);
        let found = open_cache(&path, &options).expect("it is there");
        let Contents::Ours(first) = &found.contents else { panic!("it is a cache") };
        assert_eq!(superblocks(&found.disk, first), Ok(made.clone()));

        let blank_page = [const { MetaPage::zeroed() }; 2];
        found.disk.write_pages(made[2].region_start(), &blank_page).expect("it can be written");
        let error = superblocks(&found.disk, first).expect_err("a region has none");
        assert!(error.kind.is_lost(true), "{error}");
        // Another region's, as if it had strayed.
        let mut copies = blank_page;
        let (offset, page) = made[1].encode();
        copies[(offset / BLOCK_BYTES) as usize] = page;
        found.disk.write_pages(made[2].region_start(), &copies).expect("it can be written");
        superblocks(&found.disk, first).expect_err("it is not this region's");
    }

    /// By this a device that is slow is distinguished from one that hangs.
    #[test]
    fn opening_and_formatting_count_their_steps() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = CacheOptions { size_bytes: Some(64 << 20), ..CacheOptions::default() };
        let progress = options.open.progress.clone();
        let cache = open_cache(&folder.path().join("cache"), &options).expect("a new file");
        let opened = progress.steps();
        assert!(opened >= 64, "each piece of a new file");
        let geometry = Geometry::for_shards(cache.disk.size_bytes(), 2).expect("a good size");
        write(&cache.disk, &fresh(geometry).expect("random numbers")).expect("it can be written");
        let pieces = (geometry.journal.1 * BLOCK_BYTES).div_ceil(1 << 20);
        assert!(progress.steps() >= opened + 2 * pieces, "each piece of each region");
    }

    /// The caller that gave it up may use the device for something else.
    #[test]
    fn an_opening_that_was_given_up_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, absent) = (folder.path().join("device"), folder.path().join("absent"));
        let content = vec![b'x'; 1 << 20];
        std::fs::write(&path, &content).expect("a file");
        let opened = |path: &std::path::Path, give_up: bool| {
            let size_bytes = Some(64 << 20);
            let options = CacheOptions { size_bytes, force: true, ..CacheOptions::default() };
            if give_up {
                options.open.progress.give_up();
            }
            open_cache(path, &options)
        };
        for path in [&path, &absent] {
            let error = opened(path, true).expect_err("it was given up");
            assert_eq!(error.kind, DiskErrorKind::Cancelled);
        }
        assert!(!absent.exists() && std::fs::read(&path).is_ok_and(|read| read == content));
        // Given up between opening and formatting.
        let cache = opened(&path, false).expect("it is a file");
        let geometry = Geometry::for_shards(cache.disk.size_bytes(), 2).expect("a good size");
        cache.disk.progress().give_up();
        let error = write(&cache.disk, &fresh(geometry).expect("random numbers"));
        assert_eq!(error.expect_err("it was given up").kind, DiskErrorKind::Cancelled);
        let error = cache.disk.write_zeros(0, 4096).expect_err("it was given up");
        assert_eq!(error.kind, DiskErrorKind::Cancelled);
        assert!(std::fs::read(&path).is_ok_and(|read| read[..1 << 20] == content));
    }

    /// An older format's checkpoints may have higher numbers, and the same era.
    #[test]
    fn a_format_leaves_no_head_and_no_mark_of_an_older_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cache");
        let options = CacheOptions { size_bytes: Some(64 << 20), ..CacheOptions::default() };
        let cache = open_cache(&path, &options).expect("a new file");
        let geometry = Geometry::for_shards(cache.disk.size_bytes(), 2).expect("a good size");
        let made = fresh(geometry).expect("random numbers");
        let places: Vec<u64> = made
            .iter()
            .flat_map(|superblock| {
                let Geometry { journal, checkpoints, .. } = superblock.geometry;
                [journal.0, journal.0 + journal.1 - 1, checkpoints.0[0], checkpoints.0[1]]
                    .map(|block| superblock.region_start() + block * BLOCK_BYTES)
            })
            .collect();
        for place in &places {
            cache.disk.write_pages(*place, &[MetaPage([7; 4096])]).expect("it can be written");
        }
        write(&cache.disk, &made).expect("it can be written");
        for place in places {
            let mut page = [MetaPage([1; 4096])];
            cache.disk.read_pages(place, &mut page).expect("it can be read");
            assert!(page[0] == MetaPage::zeroed(), "what was at byte {place} is gone");
        }
    }
}
