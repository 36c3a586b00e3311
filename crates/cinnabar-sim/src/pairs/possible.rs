//! Pairs that can't be, with the reason.
//!
//! What is listed here was neither met by searches nor can be; a test fails when one of them is met.

use super::{Edge, Incident, IoKind, Moment};
use cinnabar_engine::Phase;

/// What is not looked at: a phase's own begin and end, and phases that begin or end as another one
/// does.
pub(super) fn is_trivial(moment: Moment, incident: Incident) -> bool {
    let (Incident::Begins(phase) | Incident::Ends(phase)) = incident else { return false };
    phase == moment.phase || moment.edge != Edge::Lasts
}

/// The part of a life that a phase belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Finding out what is on the device: only at a start, for a replacement is empty.
    Reading,
    /// Making a device ready, at a start or as a replacement.
    Opening,
    /// Reading the index.
    Loading,
    /// Serving with a device, or leaving it.
    Serving,
    /// Without a device.
    Without,
    /// A clean stop, behind the last request.
    Closing,
    /// Anywhere.
    Any,
}

const fn part_of(phase: Phase) -> Part {
    match phase {
        Phase::OpenReads => Part::Reading,
        Phase::OpenBlank | Phase::OpenMarks => Part::Opening,
        Phase::LoadPages | Phase::LoadHeaders | Phase::LoadReplay | Phase::LoadPassed => {
            Part::Loading
        }
        Phase::CloseQuiet
        | Phase::CloseProbation
        | Phase::CloseLog
        | Phase::CloseCheckpoint
        | Phase::CloseMarks => Part::Closing,
        Phase::NoDevice => Part::Without,
        Phase::Gate | Phase::Recording | Phase::CleanAnnounced | Phase::CleanScan => Part::Serving,
        _ => Part::Any,
    }
}

/// Whether it takes a volume that is attached, or someone who orders something.
fn needs_volumes(incident: Incident) -> bool {
    matches!(
        incident,
        Incident::Read
            | Incident::Write
            | Incident::Flush
            | Incident::Trim
            | Incident::Zeroes
            | Incident::Invalidate
            | Incident::Plan
            | Incident::Attach
            | Incident::Detach
            | Incident::Abandon
            | Incident::Replace
            | Incident::Done(IoKind::BackendRead | IoKind::BackendWrite | IoKind::BackendFlush)
    )
}

/// Why a pair can't be met; `None`: it can.
pub fn why_impossible(moment: Moment, incident: Incident) -> Option<&'static str> {
    if is_trivial(moment, incident) {
        return Some("not looked at");
    }
    let part = part_of(moment.phase);
    let lasts = moment.edge == Edge::Lasts;
    match (part, incident) {
        (Part::Closing, _) if needs_volumes(incident) && lasts => {
            Some("volumes are detached before a stop begins")
        }
        (Part::Reading, _) if needs_volumes(incident) => {
            Some("volumes come when the device is open, and a replacement is not read")
        }
        (Part::Reading, Incident::Close | Incident::Seal | Incident::Forget) => {
            Some("commands come when the device is open")
        }
        (Part::Closing, Incident::Close) if lasts => Some("it is closed once"),
        (_, Incident::Begins(other) | Incident::Ends(other)) => {
            why_apart(part, part_of(other), matches!(incident, Incident::Begins(_)))
        }
        _ => None,
    }
}

/// Why a phase of one part of a life does not last while one of another begins or ends.
fn why_apart(lasts: Part, other: Part, begins: bool) -> Option<&'static str> {
    use Part::{Closing, Loading, Opening, Reading, Serving, Without};
    match (lasts, other) {
        (Reading, Reading) | (Loading, Loading) if !begins => None,
        (Reading, Loading | Serving | Closing) | (Closing, Reading | Opening) => {
            Some("a device is opened before it is used, and used before it is closed")
        }
        (Loading | Serving, Reading) => Some("a device is read before it is used"),
        (Without, Reading | Loading) => Some("a replacement is empty"),
        (Without, Serving) if !begins => Some("what needs a device has ended with it"),
        _ => None,
    }
}
