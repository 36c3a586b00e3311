//! What a simulation can find wrong.

use crate::stamp::Stamp;
use cinnabar_engine::units::SECTOR_BYTES;
use std::fmt;

/// Kinds of broken promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read returned an older value than it may.
    Stale,
    /// A read returned another sector's value, or one that was never written there.
    Foreign,
    /// A read returned memory that nothing had filled.
    Garbage,
    /// A FLUSH or FUA was answered before the backend had made the data durable.
    NotDurable,
    /// After a loss a sector was older than what a flush had covered.
    Unordered,
    /// An I/O broke the seam's rules: alignment, bounds, target.
    BadIo,
    /// A range of the cache device was written while an I/O on it was under way.
    Overlap,
    /// Memory changed that should not have.
    TouchedBuffer,
    /// A request or command was never answered.
    NoReply,
    /// An answer that does not fit its request: wrong failure, wrong success, wrong token.
    WrongReply,
    /// Blocks were believed without proof, or not believed with it.
    Warmth,
    /// Blocks that were durably cached are gone after a crash.
    Cold,
    /// Two hosts serve a volume where they must not.
    TwoOwners,
    /// Counters contradict what happened.
    Counters,
    /// The machine panicked.
    Panic,
    /// Two runs of the same seed differed.
    Nondeterminism,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: Kind,
    /// In words.
    pub what: String,
    /// Backend and sector it is about, if it is about one.
    pub place: Option<(usize, u64)>,
}

impl Violation {
    /// A violation that is about no single sector.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), place: None }
    }

    /// A violation about a sector of a backend.
    pub fn at(kind: Kind, backend: usize, sector: u64, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), place: Some((backend, sector)) }
    }

    /// The kind of a wrong value read.
    pub(crate) fn wrong_value(backend: usize, sector: u64, value: Stamp, what: String) -> Self {
        let kind = if value == Stamp::POISON {
            Kind::Garbage
        } else if value == Stamp::ZERO || value.is_of(backend, sector) {
            Kind::Stale
        } else {
            Kind::Foreign
        };
        Self::at(kind, backend, sector, what)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)?;
        if let Some((backend, sector)) = self.place {
            write!(f, " (backend {backend}, sector {sector}, byte {})", sector * SECTOR_BYTES)?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}
