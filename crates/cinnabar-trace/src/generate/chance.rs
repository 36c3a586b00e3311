//! The one source of chance of all generators, the same on every machine.
//!
//! Xoshiro256++ by name, not "whatever generator is good today": a seed written down beside a figure
//! must give the same requests years later.

use rand::distr::Distribution;
use rand::{RngExt, SeedableRng};
use rand_distr::Exp1;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Seeded chance.
#[derive(Clone, Debug)]
pub(crate) struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// The random numbers of a seed; `stream` distinguishes the streams of one run.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut apart = Xoshiro256PlusPlus::seed_from_u64(stream);
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ apart.random::<u64>()))
    }

    /// 64 bits, all of them by chance.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.random()
    }

    /// Itself, for distributions that draw from it.
    pub(crate) fn source(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.0
    }

    /// A whole number below `end`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(0..end)
    }

    /// A number from 0 to just below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.random()
    }

    /// True with this probability, 0 to 1.
    pub(crate) fn with(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Exponentially distributed around a mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        let one: f64 = Exp1.sample(&mut self.0);
        one * mean
    }
}
