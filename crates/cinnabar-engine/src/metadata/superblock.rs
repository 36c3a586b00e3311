//! The superblock: what a cache device is and whether its last life ended cleanly.
//!
//! Called by drivers before an engine exists (format, open), and by the engine (state changes).

use super::MetaPage;

/// Bytes at the start of a device that decide whose it is; a driver reads them to open or format.
pub const SUPERBLOCK_BYTES: u64 = 8192;

/// Whether the checkpoint may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// Formatted, or started: nothing on it is believed after a crash.
    InUse,
    /// Stopped clean: the checkpoint of this sequence number is the whole truth.
    Clean {
        /// Sequence number of the checkpoint.
        checkpoint: u64,
    },
}

/// Identity, geometry and state of a cache device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Raised with each write; the newer of the two copies counts.
    pub sequence: u64,
    /// Random identity given at format.
    pub uuid: [u8; 16],
    /// Where everything lies.
    pub geometry: Geometry,
    /// State.
    pub state: DeviceState,
}

/// Where everything lies on a cache device, in 4 KiB blocks. Chosen at format, fixed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the device that is used.
    pub device_blocks: u64,
    /// Logical shards (1 in this version).
    pub shards: u32,
    /// log2 of the blocks of a volume that stay together in one shard.
    pub shard_span_log2: u32,
    /// Chunks of 256 blocks in a segment.
    pub segment_chunks: u32,
    /// Segments of the log.
    pub segments: u32,
    /// First block of the marks area, and its length.
    pub marks: (u64, u64),
    /// First block of each of the two checkpoint slots, and the length of one.
    pub checkpoints: ([u64; 2], u64),
    /// First block of the log.
    pub log: u64,
}

/// Why bytes are not a superblock of ours, or not one we can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// No magic number: somebody else's data, or nothing.
    #[error("not a Cinnabar cache device")]
    Foreign,
    /// Ours, but both copies are damaged.
    #[error("the superblock is damaged")]
    Damaged,
    /// Written by a newer version.
    #[error("format version {0} is not supported")]
    Version(u32),
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

impl Superblock {
    /// Reads the newer valid one of the two copies at the start of a device.
    ///
    /// # Errors
    /// [`SuperblockError`] if neither copy can be used.
    pub fn decode(_pages: &[MetaPage; 2]) -> Result<Self, SuperblockError> {
        Err(SuperblockError::Foreign)
    }
}
