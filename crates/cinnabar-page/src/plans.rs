//! What plans say of volumes: which shares move, and what another plan would change.

use crate::data::WhatIf;
use cinnabar_manager::report::{PlanReport, ShareReport};

/// A volume, as it is and as it would be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Compared {
    pub(crate) volume: String,
    /// Shares in bytes.
    pub(crate) shares: [Option<u64>; 2],
    /// The part of its reads that hit.
    pub(crate) now: f64,
    pub(crate) then: f64,
    /// Its reads, in blocks.
    pub(crate) reads: u64,
}

/// Volumes whose target is not what it was.
pub(crate) fn moves_of(plan: &PlanReport) -> impl Iterator<Item = &ShareReport> {
    plan.volumes.iter().filter(|share| share.target_bytes != share.before_bytes)
}

/// Volumes of both plans, those first that change most.
pub(crate) fn compared(what_if: &WhatIf) -> Vec<Compared> {
    let (Ok(now), Ok(then)) = (&what_if.now, &what_if.then) else { return Vec::new() };
    let one = |share: &ShareReport| {
        let other = then.volumes.iter().find(|other| other.volume == share.volume);
        Compared {
            volume: share.volume.clone(),
            shares: [share.target_bytes, other.and_then(planned)],
            now: share.expected_hits,
            then: other.map_or(f64::NAN, |other| other.planned_hits),
            reads: share.mix.reads,
        }
    };
    let mut all: Vec<Compared> = now.volumes.iter().map(one).collect();
    let change = |one: &Compared| ((one.then - one.now) * one.reads as f64).abs();
    all.sort_by(|a, b| change(b).total_cmp(&change(a)).then_with(|| a.volume.cmp(&b.volume)));
    all
}

/// What a plan that is not carried out would come to: its steps are not counted.
fn planned(share: &ShareReport) -> Option<u64> {
    share.planned_bytes.or(share.target_bytes)
}
