//! Pairs that can't be, with the reason.

use super::{Incident, Moment};

/// A phase's own begin and end.
pub(super) fn is_trivial(moment: Moment, incident: Incident) -> bool {
    matches!(incident, Incident::Begins(phase) | Incident::Ends(phase) if phase == moment.phase)
}

/// Why a pair can't be met; `None`: it can.
pub fn why_impossible(moment: Moment, incident: Incident) -> Option<&'static str> {
    if is_trivial(moment, incident) {
        return Some("a phase is not apart from itself");
    }
    None
}
