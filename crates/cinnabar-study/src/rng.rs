//! The one source of chance here: a seeded generator, the same on every machine.
//!
//! The lock file fixes which generator it is: commit and seed reproduce a figure. The fault simulation
//! has its own, because its seeds must keep their meaning whatever a figure needs.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Seeded chance.
#[derive(Debug)]
pub struct Rng(SmallRng);

impl Rng {
    /// The random numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(0..end)
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
