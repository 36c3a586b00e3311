//! Deliberate bugs that tests must find. Without the feature `mutants` none can be switched on.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The copy becomes the truth before it was made.
    FlipBeforeCopy,
    /// The source is deleted when the flip is sent, not when it is durable.
    DeleteBeforeFlip,
    /// Writes during a copy don't mark what they change.
    DirtyBitLost,
    /// Writes that were under way when a copy began don't count as changes during it.
    InFlightNotDirty,
    /// What was changed during the copy is neither copied again nor patched.
    RecopyForgotten,
    /// Held writes go to the copy when the flip is sent, not when it is durable.
    ReleasedEarly,
    /// Writes are not held while the copy is patched and becomes the truth.
    WritesNotHeld,
    /// The copy is patched while writes are under way at the source.
    NotDrained,
    /// The source is copied without an operation on it first, which would keep out late writes.
    SourceNotProbed,
    /// After a restart a copy that was being made is the truth.
    CopyBelieved,
    /// After a restart a copy that was given up is not deleted.
    CopyLeft,
    /// The source is deleted while reads of it are under way.
    DeletedUnderReads,
    /// Copies that are being made don't count in the budget.
    CopiesNotCounted,
    /// A move that was sent and is not recorded yet doesn't count in the budget.
    MarksNotCounted,
    /// The room of a former truth counts as free before it is deleted.
    FreedEarly,
    /// The collection of left objects takes copies that are being made.
    CopyCollected,
    /// The collection of left objects takes the truth of an extent that has moved.
    TruthCollected,
    /// A name that a copy had which was given up is used again.
    NameReused,
    /// The first write of an extent goes on before the extent is recorded.
    FirstWriteEarly,
    /// An extent counts as written when it is recorded.
    FreshForgotten,
    /// A volume grows while extents of an earlier shrink are still there.
    GrownOverTail,
    /// A volume's new extents have names that objects before a shrink have had.
    FloorForgotten,
    /// Extents behind the new end begin moves while a shrink is being stored.
    TailMoved,
    /// A new size counts before it is durable.
    SizeEarly,
    /// Writes that are held stay so when a move is given up.
    HeldForever,
    /// An extent that is written faster than it can be copied stays where it is.
    BusyGivenUp,
    /// A copy that ended as changed is patched, though there is none.
    ChangedPatched,
    /// Writes wait for a copy until its pool answers.
    HeldForAnswer,
    /// A move is not given up though its writes went on at the source before its patch had ended.
    AbandonedFlipped,
    /// An extent that can't leave a full fast pool at once stays there.
    LeavingForgotten,
    /// An extent leaves a full fast pool while it is on another move.
    LeavingOverMove,
    /// The table takes writes of a host that is not its owner any more. (A bug of the back end: the
    /// simulated table looks at it.)
    EpochIgnored,
    /// Garbage counts as deleted when its delete has failed.
    DeleteNotAwaited,
    /// The head of an area is written with its snapshot, not after it is durable.
    LogHeadEarly,
    /// Changes while the other area is prepared are not written to its log.
    LogNotDoubled,
    /// Pages of the table's file are not compared with their checksums.
    LogUnverified,
    /// An area is prepared under the number that a former owner has prepared it under in part.
    LogSequenceReused,
}

impl Mutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::FlipBeforeCopy,
        Self::DeleteBeforeFlip,
        Self::DirtyBitLost,
        Self::InFlightNotDirty,
        Self::RecopyForgotten,
        Self::ReleasedEarly,
        Self::WritesNotHeld,
        Self::NotDrained,
        Self::SourceNotProbed,
        Self::CopyBelieved,
        Self::CopyLeft,
        Self::DeletedUnderReads,
        Self::CopiesNotCounted,
        Self::MarksNotCounted,
        Self::FreedEarly,
        Self::CopyCollected,
        Self::TruthCollected,
        Self::NameReused,
        Self::FirstWriteEarly,
        Self::FreshForgotten,
        Self::GrownOverTail,
        Self::FloorForgotten,
        Self::TailMoved,
        Self::SizeEarly,
        Self::HeldForever,
        Self::BusyGivenUp,
        Self::ChangedPatched,
        Self::HeldForAnswer,
        Self::AbandonedFlipped,
        Self::LeavingForgotten,
        Self::LeavingOverMove,
        Self::EpochIgnored,
        Self::DeleteNotAwaited,
        Self::LogHeadEarly,
        Self::LogNotDoubled,
        Self::LogUnverified,
        Self::LogSequenceReused,
    ];
}

/// The bugs that are switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutants(Option<Mutant>);

impl Mutants {
    pub const NONE: Self = Self(None);

    /// One of them.
    #[cfg(feature = "mutants")]
    pub const fn only(mutant: Mutant) -> Self {
        Self(Some(mutant))
    }

    /// Whether a bug is switched on.
    pub fn is(self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.0 == Some(mutant)
    }
}
