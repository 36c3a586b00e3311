//! Deliberate bugs that tests must find. Without the feature `mutants` none can be switched on.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Chunks are destaged that are not durable on the log's device.
    UndurableDestaged,
    /// Pages read for the destage are not compared with their checksums.
    DestageUnverified,
    /// The back end is not flushed between two epochs.
    NoFlushBetweenEpochs,
}

/// The bugs that are switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutants(Option<Mutant>);

impl Mutants {
    /// One of them.
    #[cfg(feature = "mutants")]
    pub const fn only(mutant: Mutant) -> Self {
        Self(Some(mutant))
    }

    /// Whether a bug is switched on.
    pub fn is(self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.0 == Some(mutant)
    }
}
