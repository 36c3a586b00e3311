//! The tiers of checks, each of which contains the one before it.

/// The first run of checks in which a test takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// `cargo xtask test`.
    Quick,
    /// `cargo xtask ci`.
    Ci,
    /// `cargo xtask nightly`.
    Nightly,
}

impl Tier {
    /// Its name, as a chore and as `CINNABAR_TIER` of the end-to-end tests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Ci => "ci",
            Self::Nightly => "nightly",
        }
    }
}
