//! How large each volume's share is and what happens to its writes: one file an allocator.
//!
//! Once an interval, an allocator turns measurements ([`Volume`]s) into a [`Plan`], and keeps no
//! state. [`divide`](mod@divide) maximises, [`split`](mod@split) goes by demands, [`urd`] is
//! Cinnabar's own allocator, the others are published ones and baselines; [`steady`](mod@steady)
//! goes from one plan to the next.

pub mod baseline;
pub mod centaur;
pub mod cloudcache;
pub mod divide;
pub mod dominance;
pub mod eci;
pub mod engine_units;
pub mod goal;
pub mod s_cave;
pub mod split;
pub mod steady;
pub mod urd;
pub mod vcacheshare;
pub mod volume;
pub mod weighting;
pub mod write_policy;

pub use engine_units::EngineUnits;
pub use goal::Goal;
pub use steady::{Steadiness, steady};
pub use urd::{Objective, Prices};
pub use vcacheshare::Intensity;
pub use volume::{Units, Volume};
pub use weighting::Weighting;
pub use write_policy::WritePolicy;

use crate::named;

/// A volume's part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its room, in units.
    pub units: usize,
    /// What happens to its writes.
    pub policy: WritePolicy,
}

/// What is to be done in the next interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One cache, written back, that volumes fight over.
    Shared,
    /// A share for each volume.
    Divided(Vec<Share>),
}

named! {
    "allocator":
    /// Who makes the plan.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Allocator {
        /// Size and policy together, by what they save.
        #[default]
        Urd = "urd",
        /// ECI-Cache: useful reuse distance and the threshold rule.
        Eci = "eci",
        /// Centaur: total reuse distance.
        Centaur = "centaur",
        /// Inspired by S-CAVE: working sets.
        SCave = "s-cave",
        /// vCacheShare: cache utility.
        VCacheShare = "vcacheshare",
        /// `CloudCache`: reuse working sets.
        CloudCache = "cloudcache",
        /// The same for all, written back.
        Equal = "equal",
        /// By the operator's weights, written back.
        Proportional = "proportional",
        /// The operator's sizes, written back.
        Fixed = "fixed",
        /// No shares at all.
        Shared = "shared",
    }
}

/// The settings of allocators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What hits and writes are worth and cost, for `urd`.
    pub prices: Prices,
    /// For `urd`: blocks written to the SSD in an interval, at most.
    pub ssd_writes_max: Option<f64>,
    /// For `eci`: the part of reuses that are writes, from 0 to 1, above which a volume's writes are
    /// kept out.
    pub written_part_max: f64,
    /// How the intensity of reuse counts, for `vcacheshare`.
    pub intensity: Intensity,
    /// What `urd` is to be best at.
    pub goal: Goal,
    /// Whether volumes or accesses count the same, for `eci` and `centaur`.
    pub weighting: Weighting,
}

impl Allocator {
    /// Divides `capacity` units.
    ///
    /// # Panics
    /// If the volumes' minima, which only `urd` and `fixed` heed, do not fit with `urd`.
    pub fn plan(self, volumes: &[Volume], capacity: usize, settings: &Settings) -> Plan {
        use WritePolicy::{Back, ReadOnly, Through};
        let all = |sizes: Vec<usize>, policy| {
            sizes.into_iter().map(|units| Share { units, policy }).collect()
        };
        Plan::Divided(match self {
            Self::Urd => goal::decide(volumes, capacity, settings).shares,
            Self::Eci => {
                let policy = |volume: &Volume| {
                    WritePolicy::by_threshold(&volume.mix, settings.written_part_max)
                };
                let sizes = eci::sizes(volumes, capacity, settings.weighting).into_iter();
                let policies = volumes.iter().map(policy);
                sizes.zip(policies).map(|(units, policy)| Share { units, policy }).collect()
            }
            Self::Centaur => all(centaur::sizes(volumes, capacity, settings.weighting), Back),
            Self::SCave => all(s_cave::sizes(volumes, capacity), Through),
            Self::VCacheShare => {
                all(vcacheshare::sizes(volumes, capacity, settings.intensity), ReadOnly)
            }
            Self::CloudCache => all(cloudcache::sizes(volumes, capacity), Back),
            Self::Equal => all(baseline::equal(volumes, capacity), Back),
            Self::Proportional => all(baseline::proportional(volumes, capacity), Back),
            Self::Fixed => all(baseline::fixed(volumes, capacity), Back),
            Self::Shared => return Plan::Shared,
        })
    }
}
