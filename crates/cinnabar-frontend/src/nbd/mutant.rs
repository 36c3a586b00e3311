//! Deliberate bugs that tests must find. Without the feature `mutants` none can be switched on.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Exports' floors are lent to others.
    FloorLent,
    /// What a connection may hold is counted by connection, not by export.
    BudgetByConnection,
    /// A hold's age begins again with each reply that leaves.
    HoldRestarts,
    /// When there is no place for a handshake, the newest one ends.
    NewestEnded,
    /// A connection has a turn of its own, whatever others of its export had.
    TurnByConnection,
    /// A block status counts as any other request.
    BlockStatusCheap,
    /// One that ends while descriptors have run out keeps its place at its export.
    PlaceKept,
    /// A listener that was out of descriptors does not look for those that came meanwhile.
    ListenerForgotten,
}

impl Mutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::FloorLent,
        Self::BudgetByConnection,
        Self::HoldRestarts,
        Self::NewestEnded,
        Self::TurnByConnection,
        Self::BlockStatusCheap,
        Self::PlaceKept,
        Self::ListenerForgotten,
    ];
}

/// The bug that is switched on.
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
