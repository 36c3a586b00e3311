//! Reuse classes: what an access does after what was done to the same block before.
//!
//! Counted by the write-back analysis. Two write-heavy volumes may want opposite policies: who reads
//! what was written (RAW) is served by keeping writes, who overwrites it (WAW) is not.

use std::ops::Add;

/// Accesses by kind, and reuses by (previous, this) access of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Mix {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Reads after a read.
    pub rar: u64,
    /// Reads after a write.
    pub raw: u64,
    /// Writes after a read.
    pub war: u64,
    /// Writes after a write.
    pub waw: u64,
}

impl Add for Mix {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            rar: self.rar + other.rar,
            raw: self.raw + other.raw,
            war: self.war + other.war,
            waw: self.waw + other.waw,
        }
    }
}

impl Mix {
    pub const fn reuses(&self) -> u64 {
        self.rar + self.raw + self.war + self.waw
    }

    /// The part of reuses that are writes, from 0 to 1; 0 without reuses. ECI-Cache compares it with
    /// a threshold.
    pub fn written_part(&self) -> f64 {
        (self.war + self.waw) as f64 / self.reuses().max(1) as f64
    }

    /// Counts an access; `was_write` is of the block's previous access.
    pub(crate) fn count(&mut self, was_write: Option<bool>, is_write: bool) {
        let kind = if is_write { &mut self.writes } else { &mut self.reads };
        *kind += 1;
        let class = match (was_write, is_write) {
            (None, _) => return,
            (Some(false), false) => &mut self.rar,
            (Some(true), false) => &mut self.raw,
            (Some(false), true) => &mut self.war,
            (Some(true), true) => &mut self.waw,
        };
        *class += 1;
    }
}
