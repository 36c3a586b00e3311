//! Deliberate bugs that tests must find. Without the feature `mutants` none can be switched on.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// What is served by weight counts against the reservation, too.
    NoCreditBack,
    /// What is served for a reservation does not count against the weight.
    ReservationOutsideWeight,
    /// A reservation adds to the proportional tag without a bound.
    LeadUnbounded,
    /// A client that was idle keeps its old proportional tag, and catches up.
    IdleCredit,
    /// A new client begins behind all that others have had.
    NewBeginsLast,
    /// A client that was idle for a moment begins behind what waited meanwhile.
    StartBehindWaiting,
    /// A client begins as a new one whenever it had nothing waiting.
    ForgetAtOnce,
    /// What a client could not have because of its limit, it catches up by its weight.
    HeldCredit,
    /// Limits are not looked at.
    LimitIgnored,
    /// A due reservation goes beyond the limit.
    ReservationBeyondLimit,
    /// A limit catches up without end on what it did not let through.
    LimitCatchesUp,
    /// A limit does not catch up on what passed while nothing of the client waited.
    LimitFromArrival,
    /// A limit does not catch up at all.
    LimitForgetsLateness,
    /// Weights are served before reservations that are due.
    WeightsFirst,
    /// A reservation's next tag counts from the dispatch, so lateness is lost.
    TagsFromDispatch,
    /// A reservation's lateness is lost whenever nothing of the client waits.
    PauseForgetsLateness,
    /// A due reservation goes to the lowest proportional tag.
    ReservationsByWeight,
    /// Lengths do not count.
    LengthIgnored,
    /// Flushes are free.
    FlushFree,
    /// Exempt operations wait as all others.
    ProofWaits,
    /// The depth is not looked at.
    DepthIgnored,
    /// What was under way of a client that is removed occupies the group without end.
    RemovedKeepsDepth,
    /// Tags made under former settings stay.
    OldTagsKept,
    /// A changed weight leaves what the former one made of the proportional tag.
    OldShareKept,
    /// Reservations may take all of a group that is oversold.
    NoTurnByWeight,
    /// The group does not say when the next limit lets something through.
    NoWakeUp,
    /// A clock that steps back is believed.
    ClockBack,
    /// When the first waiting request is withdrawn, those behind it are forgotten.
    WithdrawnTakesAll,
    /// The last request that arrived begins first.
    LastInFirstOut,
    /// One client's requests fill the queue of all.
    SharedQueue,
}

impl Mutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::NoCreditBack,
        Self::ReservationOutsideWeight,
        Self::LeadUnbounded,
        Self::IdleCredit,
        Self::NewBeginsLast,
        Self::StartBehindWaiting,
        Self::ForgetAtOnce,
        Self::HeldCredit,
        Self::LimitIgnored,
        Self::ReservationBeyondLimit,
        Self::LimitCatchesUp,
        Self::LimitFromArrival,
        Self::LimitForgetsLateness,
        Self::WeightsFirst,
        Self::TagsFromDispatch,
        Self::PauseForgetsLateness,
        Self::ReservationsByWeight,
        Self::LengthIgnored,
        Self::FlushFree,
        Self::ProofWaits,
        Self::DepthIgnored,
        Self::RemovedKeepsDepth,
        Self::OldTagsKept,
        Self::OldShareKept,
        Self::NoTurnByWeight,
        Self::NoWakeUp,
        Self::ClockBack,
        Self::WithdrawnTakesAll,
        Self::LastInFirstOut,
        Self::SharedQueue,
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
