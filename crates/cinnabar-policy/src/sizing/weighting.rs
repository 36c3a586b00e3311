//! How much volumes count beside one another, for the published allocators that divide a short cache.
//!
//! Each has its own: ECI-Cache adds up hit ratios of volumes, Centaur hits. Compared by one measure, the
//! one that aims at it wins; so a comparison can have both aim at the same.

/// What counts the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weighting {
    /// As published.
    #[default]
    Own,
    /// Every access.
    Accesses,
    /// Every volume.
    Volumes,
}

impl Weighting {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Own, Self::Accesses, Self::Volumes];

    /// As reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Accesses => "accesses",
            Self::Volumes => "volumes",
        }
    }
}
