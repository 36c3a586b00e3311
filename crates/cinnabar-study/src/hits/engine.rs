//! The production engine in place of a policy: requests of a trace, each done before the next.
//!
//! Default settings, one shard, nothing bypasses, all volumes share the whole cache. Requests are 10
//! us apart, whatever the trace's clock says: some traces have none, and the engine writes little by
//! the clock.

use super::Reasons;
use super::error::EngineError;
use crate::instant::{CacheSetup, InstantCache, plain_volume};
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::limits::{DATA_BYTES_MAX, VOLUME_BLOCKS_MAX};
use cinnabar_engine::metadata::superblock::Geometry;
use cinnabar_engine::plan::Mode;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{Answer, Command, Config};
use cinnabar_policy::{Counts, Writes};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Longest request of the engine's.
const REQUEST_BYTES_MAX: u64 = DATA_BYTES_MAX;

/// An engine, with the volumes of a trace as it meets them.
pub struct EngineCache {
    cache: InstantCache,
    capacity_blocks: u64,
    writes: Writes,
    /// By number in the trace, and by part: an engine's volume is smaller than a trace's may be.
    volumes: BTreeMap<(u32, u64), VolumeId>,
    last: Option<((u32, u64), VolumeId)>,
}

impl EngineCache {
    /// A cache of at most `size_blocks`: as many whole segments as fit, each as long as on a device of
    /// that size.
    ///
    /// # Errors
    /// If there is no such device, or writes are to be written back.
    pub fn new(size_blocks: NonZeroU32, writes: Writes) -> Result<Self, EngineError> {
        Self::with(size_blocks, writes, Config::default())
    }

    /// The same with other settings.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with(
        size_blocks: NonZeroU32,
        writes: Writes,
        config: Config,
    ) -> Result<Self, EngineError> {
        Self::check(size_blocks, writes)?;
        let setup = setup(size_blocks.get().into(), config)?;
        let mut cache = InstantCache::new(setup);
        cache.set_batch(1);
        Ok(Self {
            cache,
            capacity_blocks: setup.capacity_blocks,
            writes,
            volumes: BTreeMap::new(),
            last: None,
        })
    }

    /// Whether there can be such a cache, without making it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn check(size_blocks: NonZeroU32, writes: Writes) -> Result<(), EngineError> {
        if writes == Writes::Back {
            return Err(EngineError::WriteBack);
        }
        setup(size_blocks.get().into(), Config::default()).map(|_| ())
    }

    /// Blocks of data that it has room for on flash.
    pub const fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    /// A read or write of bytes, whole sectors; a long one is several requests.
    ///
    /// # Errors
    /// If the volume is one too many.
    pub fn request(
        &mut self,
        volume: u32,
        is_write: bool,
        span: ByteSpan,
    ) -> Result<(), EngineError> {
        let part_bytes = VOLUME_BLOCKS_MAX * BLOCK_BYTES;
        let (mut offset, end) = (span.offset, span.offset + span.len);
        while offset < end {
            let (part, within) = (offset / part_bytes, offset % part_bytes);
            // A cut is at the end of a block: it makes no partial blocks.
            let len_max = REQUEST_BYTES_MAX - within % BLOCK_BYTES;
            let len = (end - offset).min(part_bytes - within).min(len_max);
            let id = self.volume(volume, part)?;
            let span = ByteSpan::new(within, len);
            if is_write && self.writes != Writes::AsReads {
                self.cache.write_span(id, span);
            } else {
                self.cache.read_span(id, span);
            }
            offset += len;
        }
        Ok(())
    }

    fn volume(&mut self, volume: u32, part: u64) -> Result<VolumeId, EngineError> {
        let key = (volume, part);
        if let Some((last, id)) = self.last
            && last == key
        {
            return Ok(id);
        }
        let id = match self.volumes.get(&key) {
            Some(id) => *id,
            None => self.attach(key)?,
        };
        self.last = Some((key, id));
        Ok(id)
    }

    fn attach(&mut self, key: (u32, u64)) -> Result<VolumeId, EngineError> {
        let name = format!("{}.{}", key.0, key.1);
        let mode =
            if self.writes == Writes::Around { Mode::WriteAround } else { Mode::WriteThrough };
        let spec = VolumeSpec { mode, ..plain_volume(&name, VOLUME_BLOCKS_MAX) };
        match self.cache.command(Command::Attach(spec)) {
            Ok(Answer::Attached { volume, .. }) => {
                self.volumes.insert(key, volume);
                Ok(volume)
            }
            // Names and sizes are sound: there is nothing else to refuse.
            _ => Err(EngineError::Volumes),
        }
    }

    /// What was counted, with everything carried out. Flash writes are all of the device's, metadata
    /// included, in blocks, rounded up.
    ///
    /// # Panics
    /// If a request failed: nothing here gives the engine a reason.
    pub fn counts(&mut self) -> Counts {
        let all: VolumeCounters =
            self.volumes.values().map(|volume| self.cache.volume_counters(*volume)).sum();
        assert_eq!(self.cache.failures(), 0, "no request fails without a fault");
        Counts {
            references: all.blocks_read + all.blocks_written,
            misses: all.misses + all.blocks_written - all.write_hits,
            read_references: all.blocks_read,
            read_misses: all.misses,
            flash_writes: self.cache_counters().flash_written_bytes.div_ceil(BLOCK_BYTES),
            backend_writes: all.blocks_written,
            dirty: 0,
        }
    }

    /// What became of the blocks.
    pub fn reasons(&mut self) -> Reasons {
        let all: VolumeCounters =
            self.volumes.values().map(|volume| self.cache.volume_counters(*volume)).sum();
        let cache = self.cache_counters();
        Reasons {
            kept_room: cache.admitted.filling,
            kept_used: cache.admitted.referenced,
            kept_returned: cache.admitted.ghost,
            reinserted: cache.reinserted_blocks,
            refused_unused: cache.rejected_blocks,
            refused_written: all.bypassed.write_not_reused,
            completed_partial: cache.partials_completed,
            refused_partial: cache.partials_dropped,
            refused_no_space: all.bypassed.no_space,
            evicted: cache.evicted_blocks,
            missed_again: cache.returned_blocks,
        }
    }

    /// The engine's own counters, with everything carried out.
    pub fn cache_counters(&mut self) -> CacheCounters {
        self.cache.cache_counters()
    }
}

/// The smallest cache that a device can have, in blocks.
pub fn blocks_min() -> u64 {
    capacity_of(Geometry::BYTES_MIN)
}

/// The largest that one shard can have.
pub fn blocks_max() -> u64 {
    capacity_of(Geometry::BYTES_MAX)
}

fn capacity_of(device_bytes: u64) -> u64 {
    Geometry::for_device(device_bytes).expect("it is a size of a device").capacity_blocks()
}

fn setup(asked: u64, config: Config) -> Result<CacheSetup, EngineError> {
    let (min, max) = (blocks_min(), blocks_max());
    if asked < min {
        return Err(EngineError::Small { asked, min });
    }
    if asked > max {
        return Err(EngineError::Large { asked, max });
    }
    let bytes = (asked * BLOCK_BYTES).clamp(Geometry::BYTES_MIN, Geometry::BYTES_MAX);
    let device = Geometry::for_device(bytes).expect("it is a size of a device");
    let segment = device.capacity_blocks() / u64::from(device.segments);
    let setup = CacheSetup::single(asked / segment * segment, config);
    Ok(CacheSetup { segment_chunks: device.segment_chunks, ..setup })
}
