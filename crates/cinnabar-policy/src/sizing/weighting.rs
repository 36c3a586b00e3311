//! How much volumes count beside one another, for the published allocators that divide a short cache.
//!
//! Each has its own: ECI-Cache adds up hit ratios of volumes, Centaur hits. Compared by one measure, the
//! one that aims at it wins; so a comparison can have both aim at the same.

use crate::named;

named! {
    /// What counts the same.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Weighting {
        /// As published.
        #[default]
        Own = "own",
        /// Every access.
        Accesses = "accesses",
        /// Every volume.
        Volumes = "volumes",
    }
}
