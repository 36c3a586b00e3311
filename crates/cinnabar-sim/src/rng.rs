//! The one source of chance: a seeded generator, the same on every machine.
//!
//! Which generator it is, the lock file fixes: commit and seed reproduce a run.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;

/// Seeded chance.
#[derive(Debug)]
pub struct Rng(SmallRng);

impl Rng {
    /// The random numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    /// A number of the range.
    ///
    /// # Panics
    /// If it is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.within(0..end)
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.0.random_bool(probability)
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}
