//! Kinds of I/O, told apart by where they go: what can be held, and what events are counted by.

use crate::machine::Format;
use crate::stamp::Stamped;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{IoOp, IoRequest, Target};

/// A kind of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// A write of a superblock.
    Superblock,
    JournalRead,
    JournalWrite,
    CheckpointRead,
    CheckpointWrite,
    /// A read of a chunk's header.
    HeaderRead,
    /// A read of cached blocks.
    LogRead,
    /// A write of a chunk.
    LogWrite,
    /// A flush of the cache device.
    CacheFlush,
    BackendRead,
    BackendWrite,
    /// A trim or zeroing of a backend.
    BackendZero,
    /// A flush of a backend, with its proof or without.
    BackendFlush,
    /// A new generation of a volume.
    BumpGeneration,
}

impl Class {
    /// How many there are.
    pub const COUNT: u8 = 14;
    /// All of them, as a set.
    pub const EVERY: u16 = (1 << Self::COUNT) - 1;

    /// The set of this class alone.
    pub const fn bit(self) -> u16 {
        1 << self as u8
    }

    /// Of an I/O on a device of this format.
    pub(super) fn of(request: &IoRequest<Stamped>, format: &Format) -> Self {
        let cache = request.target == Target::Cache;
        match &request.op {
            IoOp::Read { .. } if cache => Self::LogRead,
            IoOp::Read { .. } => Self::BackendRead,
            IoOp::Write { .. } if cache => Self::LogWrite,
            IoOp::Write { .. } => Self::BackendWrite,
            IoOp::ReadMeta { offset, .. } => Self::metadata(*offset, format, false),
            IoOp::WriteMeta { offset, .. } => Self::metadata(*offset, format, true),
            IoOp::Flush | IoOp::Prove if !cache => Self::BackendFlush,
            IoOp::Flush | IoOp::Prove => Self::CacheFlush,
            IoOp::BumpGeneration { .. } => Self::BumpGeneration,
            IoOp::Trim { .. } | IoOp::MakeRoom { .. } | IoOp::WriteZeroes { .. } => {
                Self::BackendZero
            }
        }
    }

    fn metadata(offset: u64, format: &Format, writes: bool) -> Self {
        let block = offset / BLOCK_BYTES % format.region_blocks;
        let area = [2, format.checkpoints, format.log].iter().filter(|end| block >= **end).count();
        match (area, writes) {
            (0, _) => Self::Superblock,
            (1, false) => Self::JournalRead,
            (1, true) => Self::JournalWrite,
            (2, false) => Self::CheckpointRead,
            (2, true) => Self::CheckpointWrite,
            (_, false) => Self::HeaderRead,
            (_, true) => Self::LogWrite,
        }
    }
}
