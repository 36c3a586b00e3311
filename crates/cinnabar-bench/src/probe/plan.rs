//! What is measured: cells of an operation, a size and a depth each, in which order and how long.

use cinnabar_engine::units::BLOCK_BYTES;
use serde::Serialize;
use std::time::Duration;

/// Largest operation, in bytes; memory up to here is recycled.
pub const SIZE_BYTES_MAX: u64 = 4 << 20;
/// Most operations under way.
pub const DEPTH_MAX: u32 = 256;
/// Most bytes under way.
pub const IN_FLIGHT_BYTES_MAX: u64 = 256 << 20;
/// Most sizes, and most depths.
pub const LIST_MAX: usize = 16;
/// A cell goes on until it has so many operations, be its time over or not.
pub const OPERATIONS_MIN: u64 = 64;
/// A cell ends with so many operations.
pub const OPERATIONS_MAX: u64 = 4_000_000;
/// A cell ends after so many times its time, however few operations it has.
pub const STRETCH_MAX: u32 = 8;

/// Operations that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Reads.
    Read,
    /// Writes, without FUA.
    Write,
    /// Flushes, each behind a write of a block that is not counted.
    Flush,
}

/// Where one operation goes after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Anywhere.
    #[default]
    Random,
    /// Behind the one before it.
    Sequential,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Which operation.
    pub op: Op,
    /// Its size in bytes; 0 for a flush.
    pub size_bytes: u64,
    /// How many are under way.
    pub depth: u32,
}

/// All there is to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sizes in bytes, rising, multiples of a block.
    pub sizes: Vec<u64>,
    /// Depths, rising.
    pub depths: Vec<u32>,
    /// Where operations go.
    pub pattern: Pattern,
    /// How long each cell is measured, after its warm-up.
    pub time: Duration,
    /// Seed of offsets and data.
    pub seed: u64,
    /// Measure writes and flushes, too.
    pub write: bool,
}

impl Plan {
    /// The cells in the order in which they are measured. Reads come first: they find the device as
    /// it was.
    pub fn cells(&self) -> Vec<Cell> {
        let ops: &[Op] = if self.write { &[Op::Read, Op::Write] } else { &[Op::Read] };
        let mut cells = Vec::new();
        for &op in ops {
            for &size_bytes in &self.sizes {
                cells.extend(self.depths.iter().map(|&depth| Cell { op, size_bytes, depth }));
            }
        }
        cells.extend(self.write.then_some(Cell { op: Op::Flush, size_bytes: 0, depth: 1 }));
        cells
    }

    /// What each cell takes before it is measured.
    pub fn warm_up(&self) -> Duration {
        (self.time / 4).min(Duration::from_millis(500))
    }

    /// What all cells take if none has to be stretched.
    pub fn duration(&self) -> Duration {
        (self.time + self.warm_up()) * u32::try_from(self.cells().len()).unwrap_or(u32::MAX)
    }

    /// Whether a preset can be made of what is measured.
    pub fn makes_a_preset(&self) -> bool {
        self.sizes.contains(&BLOCK_BYTES) && self.depths.contains(&1)
    }

    /// The largest operation, in bytes.
    pub fn size_max(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Most operations under way.
    pub fn depth_max(&self) -> u32 {
        self.depths.iter().copied().max().unwrap_or(0)
    }
}

impl Op {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_all_cells_reads_first() {
        let mut plan = Plan {
            sizes: vec![4096, 65_536],
            depths: vec![1, 8],
            pattern: Pattern::Random,
            time: Duration::from_secs(4),
            seed: 0,
            write: false,
        };
        assert_eq!(plan.cells().len(), 4);
        assert_eq!(plan.duration(), Duration::from_secs(18));
        plan.write = true;
        let cells = plan.cells();
        let ops: Vec<&str> = cells.iter().map(|cell| cell.op.name()).collect();
        assert_eq!(
            ops,
            [["read"; 4], ["write"; 4]].concat().into_iter().chain(["flush"]).collect::<Vec<_>>()
        );
        assert_eq!((cells[3].size_bytes, cells[3].depth), (65_536, 8));
        assert!(plan.makes_a_preset());
        plan.depths = vec![2];
        assert!(!plan.makes_a_preset());
    }
}
