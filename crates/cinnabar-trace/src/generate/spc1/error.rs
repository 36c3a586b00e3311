//! What can't be generated, and why.

use super::{BSU_MAX, BSU_PER_CONTEXT, Settings, sequential, walk};
use crate::record::Record;

/// Bytes of leaf states of all contexts at most.
const STATE_BYTES_MAX: u64 = 2 << 30;

/// Why settings give no workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Spc1Error {
    #[error("{0} business scaling units: from 1 to {BSU_MAX} can be asked for")]
    Units(u32),
    #[error(
        "ASU{asu} has {blocks} blocks of 4 KiB, which leaves a region of the walk without a leaf"
    )]
    NoLeaf {
        /// 1 to 3.
        asu: usize,
        blocks: u64,
    },
    #[error("ASU3 has {blocks} blocks of 4 KiB, which leaves its runs without room")]
    NoRun { blocks: u64 },
    #[error("ASU1 has {asu1} blocks of 4 KiB and ASU2 {asu2}: they must be of one size")]
    Unequal { asu1: u64, asu2: u64 },
    /// The log must have its part of the space: 10 % where each of the others has 45 %.
    #[error("ASU3 has {asu3} blocks of 4 KiB; it needs at least 2/9 of ASU1's, {needed}")]
    SmallLog { asu3: u64, needed: u64 },
    #[error("ASU{asu} has {blocks} blocks of 4 KiB: too many")]
    TooLarge {
        /// 1 to 3.
        asu: usize,
        blocks: u64,
    },
    /// The states of the leaves would not fit into RAM.
    #[error(
        "{contexts} contexts over ASUs of {blocks} blocks would need {bytes} bytes of RAM for the walk"
    )]
    State {
        /// Groups of 100 units.
        contexts: u32,
        blocks: u64,
        bytes: u64,
    },
}

impl Spc1Error {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Units(_) => "one unit is 50 I/Os a second",
            Self::NoLeaf { .. } => {
                "the walk needs 640 KiB at least, and 80 MiB to be what it should be"
            }
            Self::NoRun { .. } | Self::Unequal { .. } | Self::SmallLog { .. } => {
                "SPC-1 divides its space 45 : 45 : 10, for example 4500 MiB, 4500 MiB, 1000 MiB"
            }
            Self::TooLarge { .. } | Self::State { .. } => {
                "ask for fewer units, or name less storage"
            }
        }
    }
}

pub(super) fn check(settings: &Settings) -> Result<(), Spc1Error> {
    let Settings { bsu, asu_blocks: [asu1, asu2, asu3], .. } = *settings;
    if !(1..=BSU_MAX).contains(&bsu) {
        return Err(Spc1Error::Units(bsu));
    }
    for (asu, blocks) in [(1, asu1), (2, asu2), (3, asu3)] {
        if blocks > Record::END_BYTES_MAX / super::BLOCK_BYTES {
            return Err(Spc1Error::TooLarge { asu, blocks });
        }
        if asu < 3 && walk::leaves(blocks) == 0 {
            return Err(Spc1Error::NoLeaf { asu, blocks });
        }
    }
    if asu1 != asu2 {
        return Err(Spc1Error::Unequal { asu1, asu2 });
    }
    let needed = (2 * asu1).div_ceil(9);
    // Sizes in whole MiB seldom divide by nine.
    if asu3 < needed.saturating_sub(1) {
        return Err(Spc1Error::SmallLog { asu3, needed });
    }
    if sequential::percent(asu3, 30) <= sequential::BLOCKS_MAX {
        return Err(Spc1Error::NoRun { blocks: asu3 });
    }
    let contexts = bsu.div_ceil(BSU_PER_CONTEXT);
    let bytes = 3 * walk::leaves(asu1) * u64::from(contexts);
    if bytes > STATE_BYTES_MAX {
        return Err(Spc1Error::State { contexts, blocks: asu1, bytes });
    }
    Ok(())
}
