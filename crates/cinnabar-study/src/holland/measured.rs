//! What came out, by configuration.
//!
//! Filled by the code that runs experiments; read by checks, targets and figures.

use super::Quantity;
use crate::timed::{Config, Outcome};

/// Outcomes of configurations.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    rows: Vec<(Config, Outcome)>,
}

impl Measured {
    /// Outcomes in the order of their configurations.
    ///
    /// # Panics
    /// If there are more or fewer of them.
    pub fn new(configs: Vec<Config>, outcomes: Vec<Outcome>) -> Self {
        assert_eq!(configs.len(), outcomes.len(), "an outcome for each configuration");
        Self { rows: configs.into_iter().zip(outcomes).collect() }
    }

    /// The outcome of a configuration.
    ///
    /// # Panics
    /// If the point was not run: the caller must run every point that its experiment names.
    pub fn of(&self, config: &Config) -> &Outcome {
        let found = self.rows.iter().find(|(run, _)| run == config);
        &found.expect("every configuration of an experiment was run").1
    }

    /// A quantity of its outcome.
    ///
    /// # Panics
    /// As [`Measured::of`].
    pub fn value(&self, quantity: Quantity, config: &Config) -> f64 {
        quantity.of(self.of(config))
    }

    /// Every run.
    pub fn rows(&self) -> &[(Config, Outcome)] {
        &self.rows
    }

    /// Blocks read and written in all of them, the warm-ups included.
    pub fn block_ios(&self) -> u64 {
        self.rows.iter().map(|(_, outcome)| outcome.block_ios).sum()
    }

    /// All digests folded into one: equal if every event of every run was.
    pub fn digest(&self) -> u64 {
        self.rows.iter().fold(0, |sum: u64, (_, outcome)| {
            (sum.rotate_left(7) ^ outcome.digest).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        })
    }
}
