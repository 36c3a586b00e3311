//! When a case runs, and beside which others.
//!
//! `CINNABAR_TIER=quick|ci|nightly` takes the cases of that tier alone, `CINNABAR_LANE=ceph|kills|rest|alone`
//! those of one lane. Lanes run side by side, the cases of a lane one after the other: those on the one
//! Ceph cluster would wait for each other anyway, and those that kill daemons mostly wait for files.

use crate::Case;
use anyhow::{Result, bail};
use std::env;

/// The first run of checks in which a case takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// `cargo xtask test`.
    Quick,
    /// `cargo xtask ci`.
    Ci,
    /// `cargo xtask nightly`.
    Nightly,
}

/// Cases that run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Ceph,
    Kills,
    Rest,
    /// When nothing else runs.
    Alone,
}

/// Which cases to run; all of them without a word.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    tier: Option<Tier>,
    lane: Option<Lane>,
}

impl Selection {
    /// What the environment asks for.
    ///
    /// # Errors
    /// When it names a tier or a lane that is not there.
    pub(crate) fn from_environment() -> Result<Self> {
        let tier = match value("CINNABAR_TIER").as_deref() {
            None => None,
            Some("quick") => Some(Tier::Quick),
            Some("ci") => Some(Tier::Ci),
            Some("nightly") => Some(Tier::Nightly),
            Some(other) => bail!("no tier {other:?}\nhint: they are quick, ci, nightly"),
        };
        let lane = match value("CINNABAR_LANE").as_deref() {
            None => None,
            Some("ceph") => Some(Lane::Ceph),
            Some("kills") => Some(Lane::Kills),
            Some("rest") => Some(Lane::Rest),
            Some("alone") => Some(Lane::Alone),
            Some(other) => bail!("no lane {other:?}\nhint: they are ceph, kills, rest, alone"),
        };
        Ok(Self { tier, lane })
    }

    pub(crate) fn takes(&self, case: &Case) -> bool {
        self.tier.is_none_or(|tier| tier == case.tier)
            && self.lane.is_none_or(|lane| lane == of(case))
    }
}

fn value(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn of(case: &Case) -> Lane {
    const KILLS: [&str; 4] = ["crash_", "migration_", "nbd_backend_", "write_"];
    let begins = |prefix: &&str| case.name.starts_with(*prefix);
    if case.alone {
        Lane::Alone
    } else if case.name.starts_with("ceph_") {
        Lane::Ceph
    } else if KILLS.iter().any(begins) {
        Lane::Kills
    } else {
        Lane::Rest
    }
}
