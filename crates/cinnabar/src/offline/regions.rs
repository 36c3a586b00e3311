//! The regions of a device, one for each logical shard: where each begins, and whether its
//! superblock is what it must be.
//!
//! What each looks at further is one region, which reads like a device of its own.

pub use super::error::RegionError;
use super::superblocks::{Copy, Superblocks};
use super::{OfflineError, Source};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock, SuperblockError};
use cinnabar_engine::units::BLOCK_BYTES;

/// All regions of a device, at least one: what can't be read as ours counts as one.
#[derive(Debug)]
pub struct Regions {
    /// In the order of their shards.
    pub all: Vec<Region>,
}

/// One of them.
#[derive(Debug)]
pub struct Region {
    /// Its shard, if the device has several.
    pub shard: Option<u32>,
    pub copies: Superblocks,
    start: u64,
    blocks: u64,
}

impl Regions {
    /// Finds them by the first one's superblock; if that is damaged, by another one's.
    pub fn read(source: &(impl Source + ?Sized)) -> Self {
        let copies = Superblocks::read(source);
        let first = match copies.newest() {
            // Even if it strayed here from another region.
            Ok(superblock) => Some(first_by(superblock)),
            Err(SuperblockError::Damaged) => infer(source),
            Err(_) => None,
        };
        let shards = first.as_ref().map_or(1, |first| first.geometry.shards);
        let Some(first) = first.filter(|_| shards > 1) else {
            return Self {
                all: vec![Region { shard: None, copies, start: 0, blocks: source.blocks() }],
            };
        };
        let mut all = Vec::with_capacity(shards as usize);
        for shard in 0..shards {
            let start = first.for_shard(shard).region_start() / BLOCK_BYTES;
            let blocks = source.blocks().saturating_sub(start).min(first.geometry.device_blocks);
            let view = View { source, start, blocks };
            let copies = Superblocks::read(&view).of(&first, shard);
            all.push(Region { shard: Some(shard), copies, start, blocks });
        }
        Self { all }
    }

    /// Why this is no cache device that can be looked at: nothing of ours where it begins.
    ///
    /// # Errors
    /// Then, or when another version wrote it.
    pub fn known(&self, device: &str) -> Result<(), OfflineError> {
        match self.all[0].copies.newest() {
            Ok(_) | Err(SuperblockError::Damaged) => Ok(()),
            // Of several, another one said what this is.
            Err(_) if self.all.len() > 1 => Ok(()),
            Err(error) => Err(OfflineError::Superblock { device: device.to_owned(), error }),
        }
    }
}

impl Region {
    /// The region as a device of its own.
    pub fn view<'a, S: Source + ?Sized>(&self, source: &'a S) -> View<'a, S> {
        View { source, start: self.start, blocks: self.blocks }
    }

    /// First byte of it on the device.
    pub const fn start_bytes(&self) -> u64 {
        self.start * BLOCK_BYTES
    }

    /// Why nothing is known of it, if so.
    pub fn fault(&self) -> Option<RegionError> {
        let error = self.copies.newest().err()?;
        let stray = self.copies.copies.iter().any(|copy| matches!(copy, Copy::Stray(_)));
        Some(match error {
            SuperblockError::Version { version, .. } => RegionError::Version(version),
            SuperblockError::Damaged => RegionError::Damaged,
            SuperblockError::Foreign if stray => RegionError::Stray,
            SuperblockError::Foreign if self.blocks == 0 => RegionError::Beyond,
            SuperblockError::Foreign => RegionError::Missing(self.start_bytes()),
        })
    }
}

/// What the first superblock would say of the device, by any other region's. Where those begin
/// follows from the size and the number of shards: some thousand places at most are looked at.
fn infer(source: &(impl Source + ?Sized)) -> Option<Superblock> {
    (2..=Geometry::SHARDS_MAX).find_map(|shards| {
        let geometry = Geometry::for_shards(source.blocks() * BLOCK_BYTES, shards).ok()?;
        (1..shards).find_map(|shard| {
            let start = u64::from(shard) * geometry.device_blocks;
            let view = View { source, start, blocks: geometry.device_blocks };
            let copies = Superblocks::read(&view);
            let found = copies.newest().ok()?;
            let place = (found.shard, found.geometry.shards, found.geometry.device_blocks);
            (place == (shard, shards, geometry.device_blocks)).then(|| first_by(found))
        })
    })
}

/// The first region's superblock by that of any: what turned the one identity into the other is its
/// own inverse.
fn first_by(any: &Superblock) -> Superblock {
    Superblock { shard: 0, ..any.for_shard(any.shard) }
}

/// A part of a device, with block numbers that count from its own start.
#[derive(Debug)]
pub struct View<'a, S: ?Sized> {
    source: &'a S,
    start: u64,
    blocks: u64,
}

impl<S: Source + ?Sized> Source for View<'_, S> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, first: u64, pages: &mut [MetaPage]) -> u64 {
        let count = self.blocks.saturating_sub(first).min(pages.len() as u64) as usize;
        let (inside, outside) = pages.split_at_mut(count);
        for page in outside {
            page.0.fill(0);
        }
        // Another region's bytes are never taken for this one's.
        if inside.is_empty() { 0 } else { self.source.read(self.start + first, inside) }
    }
}
