//! The superblock: what a cache device is and whether its last session ended cleanly.
//!
//! Two copies in the first two pages are written in turn, so that a torn write leaves the other.

use crate::MetaPage;
use crate::codec::{Reader, Writer};
use crate::{checkpoint, chunk};

/// Bytes at the start of a device that decide whose it is; a driver reads them to open or format.
pub const SUPERBLOCK_BYTES: u64 = 8192;
/// First bytes of a superblock behind its checksum.
pub const MAGIC: [u8; 8] = *b"CINNABAR";
/// The newest version of everything on a device that this program writes, where all segments are used.
///
/// A device that was stopped clean has version 2. It is 1 more where fewer segments are used than the
/// device was made for, for a program that does not know of that would use more; and 2 more while a
/// session is, or was, under way in which regions may be active: a program that does not know of
/// those would believe copies which they make invalid.
pub const FORMAT_VERSION: u32 = VERSION_FIRST + VERSION_REGIONS;
const VERSION_FIRST: u32 = 2;
const VERSION_RESIZED: u32 = 1;
const VERSION_REGIONS: u32 = 2;

/// How the last session ended, or that one is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// Nothing on it is believed: just formatted, or used without crash safety.
    Cold,
    /// Started: after a crash, checkpoint, journal and newer chunks say what is cached.
    InUse {
        /// The journal may speak of active regions.
        regions: bool,
    },
    /// Stopped clean, with the checkpoint of this sequence number.
    Clean {
        /// Sequence number of the checkpoint; its slot is this number modulo 2.
        checkpoint: u64,
    },
}

/// Identity, geometry and state of a cache device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Raised with each write; the newer of the two copies counts, and lies in page `sequence % 2`.
    pub sequence: u64,
    /// Random identity given at format; also the secret seed of the key hash.
    pub uuid: [u8; 16],
    /// Where everything lies.
    pub geometry: Geometry,
    pub state: DeviceState,
    /// Incarnations below this have been used by some session of the device.
    pub next_incarnation: u32,
    /// The session at which everything before was given up. A session's number is the first of its
    /// incarnations.
    pub era: u32,
    /// Whose region it is the beginning of.
    pub shard: u32,
    /// Segments of the log that may be filled, from the first one on: the size that the device has
    /// now. [`Geometry::segments`] is what it was made for.
    pub segments_used: u32,
    /// Segments that may have room on the device: more than are used while a resize is under way, or
    /// after one that a crash has ended.
    pub segments_room: u32,
}

/// Where everything lies on a cache device, in 4 KiB blocks. Chosen at format, fixed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the region of one shard.
    pub device_blocks: u64,
    /// Logical shards, each with a region like this one.
    pub shards: u32,
    /// log2 of the blocks of a volume that stay together in one shard.
    pub shard_span_log2: u32,
    /// Chunks of 256 blocks in a segment.
    pub segment_chunks: u32,
    /// Segments of the log, at the largest size that the device may have.
    pub segments: u32,
    /// First block of the journal, and its length in blocks.
    pub journal: (u64, u64),
    /// First block of each of the two checkpoint slots, and the length of one.
    pub checkpoints: ([u64; 2], u64),
    /// First block of the log.
    pub log: u64,
}

/// Why bytes are not a Cinnabar superblock, or not one we can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// No magic number: foreign data, or nothing.
    #[error("not a Cinnabar cache device")]
    Foreign,
    /// Ours, but both copies are damaged.
    #[error("the superblock is damaged")]
    Damaged,
    /// Written by a newer version.
    #[error("format version {version} is not supported")]
    Version { version: u32, sequence: u64 },
}

/// Why a size can't be formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Less than [`Geometry::BYTES_MIN`].
    #[error("a cache device needs at least {min} bytes, this has {got}")]
    TooSmall {
        /// Bytes there are.
        got: u64,
        /// Bytes needed.
        min: u64,
    },
    /// More than one shard can index.
    #[error("a cache device may have at most {max} bytes, this has {got}")]
    TooLarge {
        /// Bytes there are.
        got: u64,
        /// Bytes allowed.
        max: u64,
    },
}

impl Geometry {
    /// Smallest device: 16 segments of 1 MiB and their metadata.
    pub const BYTES_MIN: u64 = 20 << 20;
    /// Largest region: what 28-bit slot numbers index, less room for RAM slots (just under 1 TiB).
    pub const BYTES_MAX: u64 = ((1 << 28) - (1 << 20)) * 4096;
    /// Largest number of chunks in a segment (8 MiB).
    pub const SEGMENT_CHUNKS_MAX: u32 = 8;
    /// Most shards.
    pub const SHARDS_MAX: u32 = 64;
    /// Blocks of a stripe: 4 MiB, so that few requests are split, and a discard is worth its while.
    pub const SPAN_LOG2: u32 = 10;
    const SPAN_LOG2_MAX: u32 = 20;
    const SEGMENTS_MIN: u32 = 4;
    /// Segments of a region that a resize leaves at least: as many as the smallest device has.
    pub const SEGMENTS_USED_MIN: u32 = 16;
    /// The journal takes 1/2048 of the log, at least 256 KiB: invalidation records of 1 % of the
    /// blocks, dense, fill a ninth of it, so that records written one a page seldom need to be
    /// rewritten.
    const JOURNAL_SHARE: u64 = 2048;
    const JOURNAL_MIN: u64 = 64;
    /// Smallest ring that a device is accepted with: a rebase has a quarter of it to itself.
    const JOURNAL_LEAST: u64 = 16;

    /// Shards of a device of `bytes` by default: so many that some threads can share
    /// the work where there is much of it, and as many as it takes to index a large one.
    pub const fn shards_for(bytes: u64) -> u32 {
        let usual = if bytes < 8 << 30 { 1 } else { 4 };
        let needed = bytes.div_ceil(Self::BYTES_MAX);
        if needed > usual as u64 { needed as u32 } else { usual }
    }

    /// The geometry of each region of a device of `bytes` that `shards` share.
    ///
    /// # Errors
    /// [`GeometryError`] if the size of a region is out of range; the sizes told are the device's.
    ///
    /// # Panics
    /// If there is no shard.
    pub fn for_shards(bytes: u64, shards: u32) -> Result<Self, GeometryError> {
        assert!(shards > 0, "a cache has a shard");
        let all = |region: u64| region * u64::from(shards);
        let region = bytes / u64::from(shards);
        if shards > Self::SHARDS_MAX {
            let max = Self::BYTES_MAX * u64::from(Self::SHARDS_MAX);
            return Err(GeometryError::TooLarge { got: bytes, max });
        }
        match Self::for_device(region) {
            Ok(geometry) => Ok(geometry.divided(shards, Self::SPAN_LOG2)),
            Err(GeometryError::TooSmall { min, .. }) => {
                Err(GeometryError::TooSmall { got: bytes, min: all(min) })
            }
            Err(GeometryError::TooLarge { max, .. }) => {
                Err(GeometryError::TooLarge { got: bytes, max: all(max) })
            }
        }
    }

    /// The geometry for a device of `bytes` that is one region.
    ///
    /// # Errors
    /// [`GeometryError`] if the size is out of range.
    ///
    /// # Panics
    /// Never: what is laid out for a good size is sound.
    pub fn for_device(bytes: u64) -> Result<Self, GeometryError> {
        if bytes < Self::BYTES_MIN {
            return Err(GeometryError::TooSmall { got: bytes, min: Self::BYTES_MIN });
        }
        if bytes > Self::BYTES_MAX {
            return Err(GeometryError::TooLarge { got: bytes, max: Self::BYTES_MAX });
        }
        // At least some hundred segments, so that eviction and shares are finely grained.
        let segment_chunks = (bytes >> 20 >> 8).clamp(1, 4) as u32;
        let device_blocks = bytes / 4096;
        let segment_blocks = u64::from(segment_chunks) * u64::from(chunk::CHUNK_BLOCKS);
        let mut segments = (device_blocks / segment_blocks) as u32;
        loop {
            let geometry = Self::with(segments, segment_chunks);
            if geometry.device_blocks <= device_blocks {
                assert!(geometry.is_sound(), "a device is laid out so that it is accepted again");
                return Ok(geometry);
            }
            segments -= 1;
        }
    }

    /// A geometry whose log holds exactly `capacity_blocks` blocks, or the next multiple of what a
    /// segment holds; for simulation.
    pub fn for_capacity(capacity_blocks: u32, segment_chunks: u32) -> Self {
        let segment = segment_chunks * chunk::DATA_BLOCKS_MAX;
        let segments = capacity_blocks.div_ceil(segment).max(Self::SEGMENTS_MIN);
        Self::with(segments, segment_chunks)
    }

    /// The same with a journal of `pages`, 16 at least and 2^32 at most; for simulation.
    #[must_use]
    pub fn with_journal(self, pages: u64) -> Self {
        let pages = pages.clamp(Self::JOURNAL_LEAST, 1 << 32);
        Self::laid_out(self.segments, self.segment_chunks, pages)
            .divided(self.shards, self.shard_span_log2)
    }

    fn with(segments: u32, segment_chunks: u32) -> Self {
        let slots = u64::from(segments) * u64::from(segment_chunks * chunk::CHUNK_BLOCKS);
        Self::laid_out(
            segments,
            segment_chunks,
            (slots / Self::JOURNAL_SHARE).max(Self::JOURNAL_MIN),
        )
    }

    fn laid_out(segments: u32, segment_chunks: u32, journal: u64) -> Self {
        let slots = u64::from(segments) * u64::from(segment_chunks * chunk::CHUNK_BLOCKS);
        let checkpoint = checkpoint::pages_max(slots as u32, segments);
        let first = 2 + journal;
        // The log starts on a 1 MiB boundary, so that chunks match the SSD's own units.
        let log = (first + 2 * checkpoint).next_multiple_of(256);
        Self {
            device_blocks: log + slots,
            shards: 1,
            shard_span_log2: Self::SPAN_LOG2,
            segment_chunks,
            segments,
            journal: (2, journal),
            checkpoints: ([first, first + checkpoint], checkpoint),
            log,
        }
    }

    /// Slots in a segment, headers included.
    #[inline]
    pub const fn segment_slots(&self) -> u32 {
        self.segment_chunks * chunk::CHUNK_BLOCKS
    }

    /// Slots of the log, headers included.
    pub const fn slots(&self) -> u32 {
        self.segments * self.segment_slots()
    }

    /// Blocks of data that fit on flash.
    pub const fn capacity_blocks(&self) -> u64 {
        self.segments as u64 * self.segment_chunks as u64 * chunk::DATA_BLOCKS_MAX as u64
    }

    /// Bytes of a shard's region.
    pub const fn region_bytes(&self) -> u64 {
        self.device_blocks * 4096
    }

    /// Bytes of the device that are used.
    pub const fn device_bytes(&self) -> u64 {
        self.region_bytes() * self.shards as u64
    }

    /// Bytes of the device that are used while each region uses so many segments.
    pub const fn used_bytes(&self, segments: u32) -> u64 {
        let slots = segments as u64 * self.segment_slots() as u64;
        (self.log + slots) * 4096 * self.shards as u64
    }

    /// Blocks of data that fit into so many segments of a region.
    pub const fn blocks_of(&self, segments: u32) -> u64 {
        segments as u64 * self.segment_chunks as u64 * chunk::DATA_BLOCKS_MAX as u64
    }

    /// The segments that each region uses when the device has `bytes`.
    ///
    /// # Errors
    /// [`GeometryError`] if that is less than a region needs, or more than the device was made for;
    /// the limits told are the device's.
    pub fn segments_for(&self, bytes: u64) -> Result<u32, GeometryError> {
        let min = self.used_bytes(Self::SEGMENTS_USED_MIN.min(self.segments));
        if bytes < min {
            return Err(GeometryError::TooSmall { got: bytes, min });
        }
        // A size is rounded down to whole segments; up to the next one it is the same size.
        let next = Self::laid_out(self.segments + 1, self.segment_chunks, self.journal.1 + 1);
        if bytes / u64::from(self.shards) >= next.region_bytes() {
            return Err(GeometryError::TooLarge { got: bytes, max: self.device_bytes() });
        }
        let blocks = bytes / u64::from(self.shards) / 4096 - self.log;
        let segments = (blocks / u64::from(self.segment_slots())) as u32;
        Ok(segments.min(self.segments))
    }

    /// Bytes of the device, from one to the other, that hold segments `from` to `to` of each region;
    /// with `from` 0, all before them, too.
    ///
    /// # Panics
    /// If there are no such segments.
    pub fn room(&self, from: u32, to: u32) -> Vec<std::ops::Range<u64>> {
        assert!(from <= to && to <= self.segments, "segments of the log");
        let at = |segment: u32| (self.log + u64::from(segment * self.segment_slots())) * 4096;
        let start = if from == 0 { 0 } else { at(from) };
        let regions = (0..u64::from(self.shards)).map(|shard| shard * self.region_bytes());
        regions.map(|region| region + start..region + at(to)).collect()
    }

    /// The same with another way of dividing volumes among shards.
    #[must_use]
    pub const fn divided(self, shards: u32, shard_span_log2: u32) -> Self {
        Self { shards, shard_span_log2, ..self }
    }

    /// Whether a device may have this geometry: checked of what is read.
    fn is_sound(&self) -> bool {
        self.is_laid_out() && self.region_bytes() <= Self::BYTES_MAX + (1 << 30)
    }

    /// Whether its parts are where they belong: asserted of what is used. A simulated device may be
    /// larger than a real one.
    pub fn is_laid_out(&self) -> bool {
        (1..=Self::SEGMENT_CHUNKS_MAX).contains(&self.segment_chunks)
            && (Self::SEGMENTS_MIN..=1 << 20).contains(&self.segments)
            && (1..=Self::SHARDS_MAX).contains(&self.shards)
            && self.shard_span_log2 <= Self::SPAN_LOG2_MAX
            && (Self::JOURNAL_LEAST..=1 << 32).contains(&self.journal.1)
            && *self
                == Self::laid_out(self.segments, self.segment_chunks, self.journal.1)
                    .divided(self.shards, self.shard_span_log2)
    }
}

impl Superblock {
    /// A new device's superblock. `uuid` must be random.
    pub fn format(uuid: [u8; 16], geometry: Geometry) -> Self {
        Self {
            sequence: 1,
            uuid,
            geometry,
            state: DeviceState::Cold,
            next_incarnation: 1,
            era: 0,
            shard: 0,
            segments_used: geometry.segments,
            segments_room: geometry.segments,
        }
    }

    /// The same, of a device that is smaller than it is made for: so many segments of a region are
    /// used.
    ///
    /// # Panics
    /// If these are more than there are, or too few to use.
    #[must_use]
    pub fn with_segments(self, segments: u32) -> Self {
        let sound = Geometry::SEGMENTS_MIN..=self.geometry.segments;
        assert!(sound.contains(&segments), "segments of the log");
        Self { segments_used: segments, segments_room: segments, ..self }
    }

    /// Whether the device is, or may be, smaller than it was made for.
    pub const fn is_resized(&self) -> bool {
        let all = self.geometry.segments;
        self.segments_used != all || self.segments_room != all
    }

    /// The version of the format that it is written with.
    pub fn version(&self) -> u32 {
        let resized = if self.is_resized() { VERSION_RESIZED } else { 0 };
        let regions = matches!(self.state, DeviceState::InUse { regions: true });
        VERSION_FIRST + resized + if regions { VERSION_REGIONS } else { 0 }
    }

    /// New superblocks for all regions of a device. To be written last to first: a device whose
    /// first region has none is not formatted.
    pub fn format_all(uuid: [u8; 16], geometry: Geometry) -> Vec<Self> {
        Self::format(uuid, geometry).for_all_shards()
    }

    /// The first region's as those of all regions, in order.
    pub fn for_all_shards(&self) -> Vec<Self> {
        let first = self;
        (0..self.geometry.shards).map(|shard| first.for_shard(shard)).collect()
    }

    /// The first region's as another region's. Each has an identity of its own, so that nothing
    /// that strays from one region to another is believed there.
    #[must_use]
    pub fn for_shard(&self, shard: u32) -> Self {
        let mut uuid = self.uuid;
        for (byte, more) in uuid.iter_mut().zip(shard.to_le_bytes()) {
            *byte ^= more;
        }
        Self { uuid, shard, ..self.clone() }
    }

    /// First byte of its region.
    pub const fn region_start(&self) -> u64 {
        self.geometry.region_bytes() * self.shard as u64
    }

    /// Whether it is of the same device as `first`, and its region's number `shard`.
    pub fn belongs_to(&self, first: &Self, shard: u32) -> bool {
        let expected = first.for_shard(shard);
        (self.uuid, self.geometry, self.shard) == (expected.uuid, expected.geometry, shard)
    }

    /// The page to write, and its byte offset.
    ///
    /// # Panics
    /// If it is no region's of its device.
    pub fn encode(&self) -> (u64, MetaPage) {
        assert!(self.shard < self.geometry.shards, "a region of the device");
        let mut page = MetaPage::zeroed();
        let mut w = Writer::new(&mut page.0);
        w.bytes(&MAGIC);
        w.u32(self.version());
        w.u64(self.sequence);
        w.bytes(&self.uuid);
        let (state, checkpoint) = match self.state {
            DeviceState::Cold => (0, 0),
            DeviceState::InUse { .. } => (1, 0),
            DeviceState::Clean { checkpoint } => (2, checkpoint),
        };
        w.u32(state);
        w.u64(checkpoint);
        w.u32(self.next_incarnation);
        w.u32(self.era);
        let g = &self.geometry;
        w.u64(g.device_blocks);
        w.u32(g.shards);
        w.u32(g.shard_span_log2);
        w.u32(g.segment_chunks);
        w.u32(g.segments);
        for value in [
            g.journal.0,
            g.journal.1,
            g.checkpoints.0[0],
            g.checkpoints.0[1],
            g.checkpoints.1,
            g.log,
        ] {
            w.u64(value);
        }
        w.u32(self.shard);
        if self.is_resized() {
            assert!(self.segments_used <= self.segments_room, "what is used has room");
            assert!(self.segments_room <= self.geometry.segments, "segments of the log");
            w.u32(self.segments_used);
            w.u32(self.segments_room);
        }
        w.seal();
        (self.sequence % 2 * 4096, page)
    }

    /// Reads the newer valid one of the two copies at the start of a device.
    ///
    /// # Errors
    /// [`SuperblockError`] if neither copy can be used, or the newer one is of another version: what
    /// the older one says may be true no more.
    pub fn decode(pages: &[MetaPage; 2]) -> Result<Self, SuperblockError> {
        let copies = [Self::decode_page(&pages[0]), Self::decode_page(&pages[1])];
        let newest = copies.iter().filter_map(|c| c.as_ref().ok()).max_by_key(|s| s.sequence);
        if let Some(superblock) = newest {
            let newer = copies.iter().find_map(|copy| match copy {
                Err(error @ SuperblockError::Version { sequence, .. }) => {
                    (*sequence > superblock.sequence).then_some(*error)
                }
                _ => None,
            });
            return newer.map_or_else(|| Ok(superblock.clone()), Err);
        }
        let errors = copies.map(|c| c.expect_err("no copy is valid"));
        let version = SuperblockError::Version { version: 0, sequence: 0 };
        for wanted in [version, SuperblockError::Damaged] {
            let same = |e: &&SuperblockError| {
                std::mem::discriminant(*e) == std::mem::discriminant(&wanted)
            };
            if let Some(error) = errors.iter().find(same) {
                return Err(*error);
            }
        }
        Err(SuperblockError::Foreign)
    }

    fn decode_page(page: &MetaPage) -> Result<Self, SuperblockError> {
        if page.0[4..12] != MAGIC {
            return Err(SuperblockError::Foreign);
        }
        let mut r = Reader::verified(&page.0).ok_or(SuperblockError::Damaged)?;
        let _magic: [u8; 8] = r.array();
        let version = r.u32();
        let features = version.wrapping_sub(VERSION_FIRST);
        // Every version has it here.
        let sequence = r.u64();
        if features > VERSION_RESIZED + VERSION_REGIONS {
            return Err(SuperblockError::Version { version, sequence });
        }
        let uuid = r.array();
        let (state, checkpoint) = (r.u32(), r.u64());
        let (next_incarnation, era) = (r.u32(), r.u32());
        let geometry = Geometry {
            device_blocks: r.u64(),
            shards: r.u32(),
            shard_span_log2: r.u32(),
            segment_chunks: r.u32(),
            segments: r.u32(),
            journal: (r.u64(), r.u64()),
            checkpoints: ([r.u64(), r.u64()], r.u64()),
            log: r.u64(),
        };
        let shard = r.u32();
        let (segments_used, segments_room) = if features & VERSION_RESIZED != 0 {
            (r.u32(), r.u32())
        } else {
            (geometry.segments, geometry.segments)
        };
        let state = match state {
            0 => DeviceState::Cold,
            1 => DeviceState::InUse { regions: features & VERSION_REGIONS != 0 },
            2 => DeviceState::Clean { checkpoint },
            _ => return Err(SuperblockError::Damaged),
        };
        // Numbers that no device lives long enough to reach.
        let worn = sequence > 1 << 56 || next_incarnation > u32::MAX - (1 << 20);
        let bounded = segments_used <= segments_room
            && (Geometry::SEGMENTS_MIN..=geometry.segments).contains(&segments_used)
            && segments_room <= geometry.segments;
        if !geometry.is_sound() || shard >= geometry.shards || worn || !bounded {
            return Err(SuperblockError::Damaged);
        }
        Ok(Self {
            sequence,
            uuid,
            geometry,
            state,
            next_incarnation,
            era,
            shard,
            segments_used,
            segments_room,
        })
    }
}

#[cfg(test)]
mod tests;
