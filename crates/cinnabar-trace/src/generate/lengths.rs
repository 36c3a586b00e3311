//! How long requests are: lengths in blocks and how often each is meant.

use super::chance::Chance;
use super::error::{Error, check_number, check_range};

/// Longest request: 16 MiB.
pub const LENGTH_BLOCKS_MAX: u64 = 4096;
/// Most different lengths.
const KINDS_MAX: u64 = 64;

/// Lengths and their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Lengths {
    /// Blocks, and the sum of the weights up to it.
    sums: Vec<(u64, f64)>,
}

impl Lengths {
    /// From pairs of blocks of 4 KiB and a weight; the weights need not add up to anything.
    ///
    /// # Errors
    /// No pair or too many, a length of nothing or above [`LENGTH_BLOCKS_MAX`], a weight that is none.
    pub fn new(weights: &[(u64, f64)]) -> Result<Self, Error> {
        check_range("different lengths", weights.len() as u64, 1, KINDS_MAX)?;
        let mut sum = 0.0;
        let mut sums = Vec::with_capacity(weights.len());
        for &(blocks, weight) in weights {
            check_range("a length in blocks", blocks, 1, LENGTH_BLOCKS_MAX)?;
            check_number("a weight", weight, 1e-9, 1e9)?;
            sum += weight;
            sums.push((blocks, sum));
        }
        Ok(Self { sums })
    }

    /// The longest, in blocks.
    pub fn most(&self) -> u64 {
        self.sums.iter().map(|&(blocks, _)| blocks).max().unwrap_or(1)
    }

    pub(super) fn pick(&self, chance: &mut Chance) -> u64 {
        let whole = self.sums[self.sums.len() - 1].1;
        let at = chance.unit() * whole;
        let place = self.sums.partition_point(|&(_, sum)| sum <= at);
        self.sums[place.min(self.sums.len() - 1)].0
    }
}

/// Four fifths are one block, the rest 16 and 64 KiB: the small requests of databases and file systems.
impl Default for Lengths {
    fn default() -> Self {
        Self { sums: vec![(1, 0.8), (4, 0.9), (16, 1.0)] }
    }
}
