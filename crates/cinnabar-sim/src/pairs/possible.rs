//! Pairs that can't be, with the reason.

use super::{Edge, Incident, Moment};

/// What is not looked at: a phase's own begin and end, and phases that begin or end as another one
/// does.
pub(super) fn is_trivial(moment: Moment, incident: Incident) -> bool {
    let (Incident::Begins(phase) | Incident::Ends(phase)) = incident else { return false };
    phase == moment.phase || moment.edge != Edge::Lasts
}

/// Why a pair can't be met; `None`: it can.
pub fn why_impossible(moment: Moment, incident: Incident) -> Option<&'static str> {
    if is_trivial(moment, incident) {
        return Some("not looked at");
    }
    None
}
