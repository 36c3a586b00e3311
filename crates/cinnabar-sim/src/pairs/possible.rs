//! Pairs that can't be, with the reason.
//!
//! What is listed here follows from how the engine and its driver are made, not from what searches
//! happened to leave out; a test fails when one of them is met.

use super::{Edge, Incident, IoKind, Moment};
use cinnabar_engine::Phase;

/// What is not looked at: a phase's own begin and end, and phases that begin or end as another one
/// does.
pub(super) fn is_trivial(moment: Moment, incident: Incident) -> bool {
    let (Incident::Begins(phase) | Incident::Ends(phase)) = incident else { return false };
    phase == moment.phase || moment.edge != Edge::Lasts
}

/// The part of a session that a phase belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Finding out what is on the device: only at a start, for a replacement is empty.
    Reading,
    /// Making a device ready, at a start or as a replacement.
    Opening,
    /// Waiting for what a replacement needs.
    Replacing,
    /// Reading the index.
    Loading,
    /// Keeping a cache: ends with the device.
    Caching,
    /// Without a device.
    Without,
    /// A clean stop, behind the last request.
    Closing,
    /// Of requests and volumes, with a device or without.
    Serving,
}

const fn part_of(phase: Phase) -> Part {
    match phase {
        Phase::OpenReads => Part::Reading,
        Phase::OpenBlank | Phase::OpenMarks => Part::Opening,
        Phase::Replacing | Phase::Reopening => Part::Replacing,
        Phase::LoadPages | Phase::LoadHeaders | Phase::LoadReplay | Phase::LoadPassed => {
            Part::Loading
        }
        Phase::CloseQuiet
        | Phase::CloseProbation
        | Phase::CloseLog
        | Phase::CloseCheckpoint
        | Phase::CloseMarks => Part::Closing,
        Phase::NoDevice | Phase::Draining => Part::Without,
        Phase::Paused
        | Phase::Prove
        | Phase::BumpGeneration
        | Phase::DetachWaits
        | Phase::DetachFlush
        | Phase::Detached => Part::Serving,
        _ => Part::Caching,
    }
}

/// Phases of which one is on at a time: those of a checkpoint, of loading, of a rebase, of cleaning,
/// and of a session.
const ONE_AT_A_TIME: &[&[Phase]] = &[
    &[
        Phase::CheckpointChunks,
        Phase::CheckpointPages,
        Phase::CheckpointFlush,
        Phase::CheckpointHead,
    ],
    &[Phase::LoadPages, Phase::LoadHeaders, Phase::LoadReplay, Phase::LoadPassed],
    &[Phase::Rebase, Phase::RebaseLast],
    &[Phase::CleanScan, Phase::CleanReads],
    &[
        Phase::OpenReads,
        Phase::OpenBlank,
        Phase::OpenMarks,
        Phase::NoDevice,
        Phase::CloseQuiet,
        Phase::CloseProbation,
        Phase::CloseLog,
        Phase::CloseCheckpoint,
        Phase::CloseMarks,
    ],
];

const fn is_checkpoint(phase: Phase) -> bool {
    let (first, last) = (Phase::CheckpointChunks as u8, Phase::CheckpointHead as u8);
    first <= phase as u8 && phase as u8 <= last
}

const fn is_cleaning(phase: Phase) -> bool {
    let (first, last) = (Phase::CleanAnnounced as u8, Phase::CleanParked as u8);
    first <= phase as u8 && phase as u8 <= last
}

/// It is on only while a command or a request is under way.
const fn is_waited_for(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::Gate
            | Phase::Paused
            | Phase::Recording
            | Phase::DetachWaits
            | Phase::DetachFlush
            | Phase::Detached
            | Phase::Replacing
            | Phase::Reopening
    )
}

/// Whether it takes a volume that is attached, or someone who orders something.
const fn needs_volumes(incident: Incident) -> bool {
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
    match incident {
        Incident::Begins(other) => why_no_begin(moment.phase, other),
        Incident::Ends(other) => why_apart(moment.phase, other),
        Incident::Done(kind) => {
            why_no_volumes(moment, incident).or_else(|| why_no_io(moment, kind))
        }
        _ => why_no_volumes(moment, incident).or_else(|| why_no_command(moment, incident)),
    }
}

/// Before the first volume comes, and after the last one has gone.
fn why_no_volumes(moment: Moment, incident: Incident) -> Option<&'static str> {
    let late = match incident {
        Incident::Overdue | Incident::BackendFails => moment.edge == Edge::Lasts,
        Incident::Seal | Incident::Forget => true,
        _ => needs_volumes(incident),
    };
    // A device that is silent while it is read is given up.
    let early = matches!(incident, Incident::Close | Incident::BackendFails)
        || matches!(
            incident,
            Incident::Done(IoKind::Prove | IoKind::BumpGeneration | IoKind::CacheRead)
        )
        || matches!(incident, Incident::Seal | Incident::Forget)
        || incident == Incident::Done(IoKind::ChunkWrite)
        || needs_volumes(incident);
    match part_of(moment.phase) {
        Part::Closing if late => Some("volumes are detached before a stop begins"),
        Part::Reading if early => {
            Some("volumes and commands come when the device is open, and a replacement is not read")
        }
        _ => None,
    }
}

/// Commands that their giver does not give then.
fn why_no_command(moment: Moment, incident: Incident) -> Option<&'static str> {
    let Moment { phase, edge } = moment;
    let (lasts, ends) = (edge == Edge::Lasts, edge == Edge::Ends);
    let part = part_of(phase);
    match incident {
        Incident::Close if part == Part::Closing && lasts => Some("it is closed once"),
        Incident::Close if !ends && (is_waited_for(phase) || part == Part::Opening) => {
            Some("a stop begins when every request and command was answered")
        }
        Incident::Replace if matches!(part, Part::Caching | Part::Loading) && !ends => {
            Some("a device is replaced when it is not in use any more")
        }
        Incident::Replace if lasts && (is_waited_for(phase) && part == Part::Replacing) => {
            Some("a device is replaced once in a session")
        }
        Incident::Replace if lasts && (part == Part::Opening || phase == Phase::Draining) => {
            Some("a device is replaced once in a session, when the old one has been waited for")
        }
        _ => None,
    }
}

/// I/O that is not under way then.
fn why_no_io(moment: Moment, kind: IoKind) -> Option<&'static str> {
    use IoKind::{CacheRead, CheckpointWrite, ChunkWrite, JournalWrite, MetaRead, SuperblockWrite};
    let Moment { phase, edge } = moment;
    if edge != Edge::Lasts {
        return None;
    }
    match (phase, kind) {
        (Phase::OpenReads, SuperblockWrite | JournalWrite | CheckpointWrite) => {
            Some("a device is read before it is written")
        }
        (Phase::OpenBlank, CacheRead | ChunkWrite)
        | (Phase::OpenMarks, CacheRead | ChunkWrite | JournalWrite | CheckpointWrite | MetaRead) => {
            Some("opening has one I/O of its own under way, and nothing else has any")
        }
        (Phase::CloseCheckpoint | Phase::CloseMarks, MetaRead | JournalWrite | ChunkWrite) => {
            Some("the last checkpoint waits for the log and the journal")
        }
        (Phase::CloseMarks, CheckpointWrite) => Some("the last checkpoint is complete by then"),
        (Phase::CloseProbation | Phase::CloseLog, MetaRead) => {
            Some("a stop begins to write when the index is loaded")
        }
        (phase, MetaRead) if is_checkpoint(phase) || is_cleaning(phase) => {
            Some("what needs the index begins when it is loaded")
        }
        _ => None,
    }
}

/// Why one phase is never on while another one is: neither ends while the other lasts.
fn why_apart(one: Phase, other: Phase) -> Option<&'static str> {
    if ONE_AT_A_TIME.iter().any(|some| some.contains(&one) && some.contains(&other)) {
        return Some("one of these is on at a time");
    }
    why_apart_in_order(one, other).or_else(|| why_apart_in_order(other, one))
}

/// The same, for the two in this order.
fn why_apart_in_order(one: Phase, other: Phase) -> Option<&'static str> {
    use Part::{Caching, Closing, Loading, Opening, Reading, Replacing, Serving, Without};
    match (part_of(one), part_of(other)) {
        (Reading, _) => Some("while a device is read nothing else is going on"),
        // An attach that waits for an index has volumes swept out that are gone, of an abandoned device, too.
        _ if one == Phase::NoDevice && other == Phase::Sweeping => None,
        (Opening | Replacing | Without, Caching | Loading | Closing) => {
            Some("what needs a device ends with it, and begins when another one is open")
        }
        (Without, Opening | Replacing) if one == Phase::Draining => {
            Some("a device is replaced when the old one has been waited for")
        }
        (Closing, Opening | Replacing) => Some("a device is opened before it is closed"),
        (Closing, Serving) if is_waited_for(other) => {
            Some("a stop begins when every request and command was answered")
        }
        (Closing, Caching) if matches!(other, Phase::Gate | Phase::Recording) => {
            Some("a stop begins when every request and command was answered")
        }
        (Closing, Loading) if one != Phase::CloseQuiet => {
            Some("a stop begins to write when the index is loaded")
        }
        (Closing, Caching) if matches!(one, Phase::CloseCheckpoint | Phase::CloseMarks) => {
            let written =
                matches!(other, Phase::JournalWrite | Phase::RebaseLast | Phase::ChunkWrite)
                    || one == Phase::CloseMarks && is_checkpoint(other);
            written.then_some("the last checkpoint waits for the log and the journal")
        }
        (Loading, Caching) if is_checkpoint(other) || is_cleaning(other) => {
            Some("what needs the index begins when it is loaded")
        }
        _ => None,
    }
}

/// Why no phase `next` begins while the phase `now` lasts. It may be that this one ends in the same
/// batch.
#[expect(clippy::match_same_arms, reason = "a rule a line")]
fn why_no_begin(now: Phase, next: Phase) -> Option<&'static str> {
    use Part::{Caching, Closing, Loading, Opening, Reading, Replacing, Without};
    if let Some(why) = why_no_step(now, next) {
        return Some(why);
    }
    let apart = why_apart(now, next);
    let follows = match (part_of(now), part_of(next)) {
        (Reading, Opening) => true,
        // A device that could not be opened.
        (Opening | Replacing, Without) => true,
        (Without, Opening | Replacing) => now == Phase::NoDevice,
        (Without, _) => false,
        (Opening, Loading | Caching) => now == Phase::OpenMarks,
        (Opening, Replacing) | (Replacing, Opening | Caching) => true,
        (Caching | Loading, Without) => true,
        (Closing, Without) => next == Phase::Draining,
        (Closing, _) => false,
        (Loading, Caching) => true,
        (Loading, Closing) => true,
        (Caching, Closing) => {
            next != Phase::CloseMarks && !matches!(now, Phase::Gate | Phase::Recording)
                || now == Phase::CheckpointHead
        }
        _ => false,
    };
    apart.filter(|_| !follows && !is_one_of_a_kind(now, next))
}

/// Phases of which one may follow upon the other in a batch.
fn is_one_of_a_kind(now: Phase, next: Phase) -> bool {
    ONE_AT_A_TIME.iter().any(|some| some.contains(&now) && some.contains(&next))
}

/// Steps of one mechanism come in their order.
fn why_no_step(now: Phase, next: Phase) -> Option<&'static str> {
    let after = |before: &[Phase]| !before.contains(&now);
    let skips = match next {
        Phase::OpenReads => true,
        Phase::LoadPages => now != Phase::OpenMarks,
        Phase::CheckpointFlush => is_checkpoint(now) && after(&[Phase::CheckpointPages]),
        Phase::CheckpointHead => is_checkpoint(now) && after(&[Phase::CheckpointFlush]),
        Phase::LoadHeaders | Phase::LoadReplay | Phase::LoadPassed => {
            part_of(now) == Part::Loading && now as u8 > next as u8
        }
        Phase::NoDevice => part_of(now) == Part::Closing,
        Phase::OpenBlank | Phase::OpenMarks => {
            part_of(now) == Part::Closing || now == Phase::OpenMarks
        }
        Phase::CloseQuiet
        | Phase::CloseProbation
        | Phase::CloseLog
        | Phase::CloseCheckpoint
        | Phase::CloseMarks => match part_of(now) {
            Part::Closing => now as u8 > next as u8,
            Part::Opening | Part::Reading | Part::Without | Part::Replacing => true,
            _ => false,
        },
        _ => false,
    };
    skips.then_some("steps come in their order")
}
