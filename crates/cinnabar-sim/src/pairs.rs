//! Which moments of which mechanisms met which incidents: what a search has seen of two things
//! happening together.
//!
//! A *moment* is a phase of the engine ([`Phase`]) as it begins, while it lasts, or as it ends. An
//! *incident* is an event of the engine, a crash, or another phase's begin or end. Both are taken
//! batch by batch: a phase begins in the batch after which it is on and was not before, and in the
//! next one; it ends in the batch after which it is off, and in the next one.
//!
//! Pairs are counted where there is one engine: of several it is not known which one takes an event.

mod possible;

pub use possible::why_impossible;

use cinnabar_engine::{Phase, Phases};
use std::fmt;
use std::sync::OnceLock;

/// Where in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    Begins,
    /// While it lasts.
    Lasts,
    Ends,
}

/// A phase of an engine, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub phase: Phase,
    /// Where in it.
    pub edge: Edge,
}

/// The kinds of I/O that an engine asks for, by where they go and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// A read of cached data.
    CacheRead,
    /// A read of metadata.
    MetaRead,
    /// A write of the log.
    ChunkWrite,
    JournalWrite,
    CheckpointWrite,
    SuperblockWrite,
    /// A flush of the cache device.
    CacheFlush,
    BackendRead,
    /// A write, trim or zeroing of a backend.
    BackendWrite,
    BackendFlush,
    /// A backend's proof.
    Prove,
    /// A new generation.
    BumpGeneration,
}

impl IoKind {
    /// Every kind, in order.
    pub const ALL: &'static [Self] = &[
        Self::CacheRead,
        Self::MetaRead,
        Self::ChunkWrite,
        Self::JournalWrite,
        Self::CheckpointWrite,
        Self::SuperblockWrite,
        Self::CacheFlush,
        Self::BackendRead,
        Self::BackendWrite,
        Self::BackendFlush,
        Self::Prove,
        Self::BumpGeneration,
    ];

    /// The I/O that a phase waits for, if there is one of its own.
    pub const fn of_phase(phase: Phase) -> Option<Self> {
        Some(match phase {
            Phase::OpenReads | Phase::LoadPages | Phase::LoadHeaders => Self::MetaRead,
            Phase::OpenMarks | Phase::CloseMarks | Phase::Reserving => Self::SuperblockWrite,
            Phase::OpenBlank => Self::CheckpointWrite,
            Phase::CheckpointChunks | Phase::ChunkWrite | Phase::CloseLog => Self::ChunkWrite,
            Phase::CheckpointPages | Phase::CheckpointHead | Phase::CloseCheckpoint => {
                Self::CheckpointWrite
            }
            Phase::CheckpointFlush | Phase::LogFlush => Self::CacheFlush,
            Phase::JournalWrite
            | Phase::Rebase
            | Phase::RebaseLast
            | Phase::CleanAnnounced
            | Phase::Gate
            | Phase::Recording => Self::JournalWrite,
            Phase::CleanReads | Phase::CleanParked => Self::CacheRead,
            Phase::Prove => Self::Prove,
            Phase::BumpGeneration | Phase::Replacing => Self::BumpGeneration,
            Phase::DetachWaits => Self::BackendWrite,
            Phase::DetachFlush => Self::BackendFlush,
            _ => return None,
        })
    }
}

/// Something that happens to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// The daemon is killed.
    Kill,
    /// The host loses power.
    PowerCut,
    /// A guest reads.
    Read,
    Write,
    /// It flushes.
    Flush,
    Trim,
    Zeroes,
    /// A range is invalidated.
    Invalidate,
    /// A plan is adopted.
    Plan,
    /// The engine is woken.
    Wake,
    /// A backend's I/O takes too long.
    Overdue,
    /// An I/O completes.
    Done(IoKind),
    /// An I/O of the cache device fails.
    CacheFails,
    /// An I/O of a backend fails.
    BackendFails,
    /// A volume is to be attached.
    Attach,
    /// It is to be detached.
    Detach,
    /// It is to be sealed.
    Seal,
    /// It is to be forgotten.
    Forget,
    /// The device is to be given up.
    Abandon,
    /// It is to be replaced.
    Replace,
    /// The cache is to be closed.
    Close,
    Begins(Phase),
    Ends(Phase),
}

const PLAIN: &[Incident] = &[
    Incident::Kill,
    Incident::PowerCut,
    Incident::Read,
    Incident::Write,
    Incident::Flush,
    Incident::Trim,
    Incident::Zeroes,
    Incident::Invalidate,
    Incident::Plan,
    Incident::Wake,
    Incident::Overdue,
    Incident::CacheFails,
    Incident::BackendFails,
    Incident::Attach,
    Incident::Detach,
    Incident::Seal,
    Incident::Forget,
    Incident::Abandon,
    Incident::Replace,
    Incident::Close,
];

const PHASES: usize = Phase::ALL.len();
const KINDS: usize = IoKind::ALL.len();
const INCIDENTS: usize = PLAIN.len() + KINDS + 2 * PHASES;
const MOMENTS: usize = 3 * PHASES;

impl Incident {
    /// Every incident, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        let done = IoKind::ALL.iter().map(|kind| Self::Done(*kind));
        let begins = Phase::ALL.iter().map(|phase| Self::Begins(*phase));
        let ends = Phase::ALL.iter().map(|phase| Self::Ends(*phase));
        PLAIN.iter().copied().chain(done).chain(begins).chain(ends)
    }

    pub fn is_crash(self) -> bool {
        matches!(self, Self::Kill | Self::PowerCut)
    }

    fn index(self) -> usize {
        match self {
            Self::Done(kind) => PLAIN.len() + kind as usize,
            Self::Begins(phase) => PLAIN.len() + KINDS + phase as usize,
            Self::Ends(phase) => PLAIN.len() + KINDS + PHASES + phase as usize,
            plain => PLAIN.iter().position(|one| *one == plain).expect("one of these"),
        }
    }

    /// Its name in reports.
    pub fn name(self) -> String {
        let spaced = |name: String| {
            name.chars().fold(String::new(), |mut text, c| {
                if c.is_uppercase() && !text.is_empty() {
                    text.push('_');
                }
                text.push(c.to_ascii_lowercase());
                text
            })
        };
        match self {
            Self::Done(kind) => spaced(format!("{kind:?}")) + "_done",
            Self::Begins(phase) => format!("{}_begins", phase.name()),
            Self::Ends(phase) => format!("{}_ends", phase.name()),
            plain => spaced(format!("{plain:?}")),
        }
    }
}

impl Moment {
    /// Every moment, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        let edges = [Edge::Begins, Edge::Lasts, Edge::Ends];
        let of = move |phase| edges.map(|edge| Self { phase, edge });
        Phase::ALL.iter().flat_map(move |phase| of(*phase))
    }

    fn index(self) -> usize {
        3 * self.phase as usize + self.edge as usize
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.edge {
            Edge::Begins => write!(f, "begin of {}", self.phase.name()),
            Edge::Lasts => f.write_str(self.phase.name()),
            Edge::Ends => write!(f, "end of {}", self.phase.name()),
        }
    }
}

/// A moment and an incident.
pub type Pair = (Moment, Incident);

/// Every pair that can be, in order; those with active regions only where there may be `regions`.
pub fn possible(regions: bool) -> &'static [Pair] {
    static POSSIBLE: [OnceLock<Vec<Pair>>; 2] = [OnceLock::new(), OnceLock::new()];
    POSSIBLE[usize::from(regions)].get_or_init(|| {
        let all = Moment::all().flat_map(|moment| Incident::all().map(move |i| (moment, i)));
        all.filter(|(moment, incident)| why_impossible(*moment, *incident).is_none())
            .filter(|pair| regions || !is_of_regions(*pair))
            .collect()
    })
}

fn is_of_regions((moment, incident): Pair) -> bool {
    let of_regions = |phase: Phase| {
        matches!(phase, Phase::RegionOpening | Phase::RegionOpen | Phase::RegionClosing)
    };
    let begun = match incident {
        Incident::Begins(phase) | Incident::Ends(phase) => of_regions(phase),
        _ => false,
    };
    begun || of_regions(moment.phase)
}

/// How often each pair was met.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    /// Empty: none was.
    counts: Vec<u32>,
}

impl Pairs {
    /// Counts one.
    pub fn add(&mut self, moment: Moment, incident: Incident) {
        if self.counts.is_empty() {
            self.counts = vec![0; MOMENTS * INCIDENTS];
        }
        let count = &mut self.counts[moment.index() * INCIDENTS + incident.index()];
        *count = count.saturating_add(1);
    }

    /// How often a pair was met.
    pub fn of(&self, moment: Moment, incident: Incident) -> u32 {
        self.counts.get(moment.index() * INCIDENTS + incident.index()).copied().unwrap_or(0)
    }

    /// Possible pairs that were never met, without those of regions.
    pub fn unmet(&self) -> Vec<Pair> {
        let unmet = |pair: &&Pair| self.of(pair.0, pair.1) == 0;
        possible(false).iter().filter(unmet).copied().collect()
    }

    /// Pairs that were met and are said to be impossible.
    pub fn impossible_but_met(&self) -> Vec<Pair> {
        let all = Moment::all().flat_map(|moment| Incident::all().map(move |i| (moment, i)));
        all.filter(|(moment, incident)| {
            self.of(*moment, *incident) > 0
                && why_impossible(*moment, *incident).is_some()
                && !possible::is_trivial(*moment, *incident)
        })
        .collect()
    }

    /// Adds up the counts of two searches.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        if self.counts.is_empty() {
            return other;
        }
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = self.counts.iter().filter(|count| **count > 0).count();
        write!(f, "{met} pairs met")
    }
}

/// The moments of a batch: what was on before it, what is on after it, and what changed in the batch
/// before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    pub begin: Phases,
    /// Phases that were on before the batch.
    pub last: Phases,
    pub end: Phases,
}

impl Moments {
    /// Of a batch with these phases before and after it; `old` are those of the batch before.
    pub fn of(before: Phases, after: Phases, begun: Phases, ended: Phases) -> Self {
        Self {
            begin: after.without(before).or(begun),
            last: before,
            end: before.without(after).or(ended),
        }
    }

    /// Whether this is such a moment.
    pub fn has(&self, moment: Moment) -> bool {
        let phases = match moment.edge {
            Edge::Begins => self.begin,
            Edge::Lasts => self.last,
            Edge::Ends => self.end,
        };
        phases.has(moment.phase)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Moment> {
        let of = |edge, phases: Phases| phases.iter().map(move |phase| Moment { phase, edge });
        of(Edge::Begins, self.begin)
            .chain(of(Edge::Lasts, self.last))
            .chain(of(Edge::Ends, self.end))
    }
}
