//! What goes in and out of a volume's state machine.

use crate::geometry::{Object, Pool};
use crate::header::Header;
use crate::record::Record;
use std::ops::Range;
use thiserror::Error;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    /// Writes, zeroes or trims: changes bytes of the extent.
    Write,
}

/// A request within one extent, or the part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Names it if it is held.
    pub token: u64,
    /// What it does.
    pub op: Op,
    /// First byte in the volume.
    pub offset: u64,
    /// Bytes, at least one.
    pub length: u64,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Reads and writes go to this object.
    pub object: Object,
    /// The object may be missing: then a read gives zeros, and a write makes it. Otherwise an object
    /// that is missing is lost, and the request fails: a write must assert that the object exists.
    pub may_be_missing: bool,
    /// What [`Volume::end`](super::Volume::end) gets when the request has ended.
    pub ticket: Ticket,
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) object: Object,
    pub(super) op: Op,
    /// The first and the last part that it touches.
    pub(super) parts: (u16, u16),
}

/// What becomes of a request that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It goes on now.
    Go(Route),
    /// A read of what was never written.
    Zeros,
    /// A write waits; [`Action::Release`] or [`Action::Fail`] will name its token.
    Held,
    /// It fails.
    Refused(Refusal),
}

/// Why a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Another host has taken the volume over.
    #[error("another host owns the volume")]
    Fenced,
    /// Behind the end of the volume, across the border of two extents, or empty.
    #[error("the request is not within one extent of the volume")]
    Range,
    /// [`IOS_MAX`](crate::limits::IOS_MAX) are under way.
    #[error("too many requests under way")]
    TooMany,
    /// The table took no record of the extent.
    #[error("the table of the volume could not be written")]
    Table,
}

/// What the driver shall do. Each one but the first three, and [`Action::Fenced`], ends with an
/// [`Event`], **and not before it can have no further effect**: an operation that was given up and may
/// still be carried out has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A write that was held goes on.
    Release {
        /// Of the request.
        token: u64,
        /// Where it goes.
        route: Route,
    },
    /// A write that was held fails.
    Fail {
        /// Of the request.
        token: u64,
        why: Refusal,
    },
    /// A move has ended.
    Ended {
        extent: u32,
        /// How.
        outcome: MoveEnd,
    },
    /// Another host has taken the volume over: nothing of it may be touched any more.
    Fenced,
    /// Write a record, in one step: if the table's epoch is `epoch` and the record there is `expected`.
    /// An absent `new` removes it. Durable when it ends: [`Event::Stored`].
    Store {
        extent: u32,
        /// What must be there.
        expected: Record,
        /// What comes there.
        new: Record,
        /// What the table's epoch must be.
        epoch: u64,
    },
    /// Write the header, in one step, if it is `expected`, epoch included: [`Event::HeaderStored`].
    StoreHeader {
        /// What must be there.
        expected: Header,
        /// What comes there.
        new: Header,
    },
    /// Look whether the object exists, by an operation that keeps late writes of former owners out of
    /// it: [`Event::Probed`].
    Probe {
        /// The source of a move.
        object: Object,
    },
    /// Make `to` a copy of `from`, or replace it by one; durable when it ends. It may catch writes that
    /// are under way, or not, or in part: [`Event::Copied`].
    Copy {
        /// The source.
        from: Object,
        /// The copy.
        to: Object,
    },
    /// Copy these bytes of the extent, through the host; durable when it ends: [`Event::Patched`].
    Patch {
        /// The source, to which nothing writes meanwhile.
        from: Object,
        /// The copy.
        to: Object,
        /// Offsets within the extent.
        ranges: Vec<Range<u64>>,
    },
    /// Delete an object; one that is missing is deleted: [`Event::Deleted`].
    Delete {
        /// Garbage.
        object: Object,
    },
}

/// How a step that changes the table has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is durable.
    Done,
    /// Nothing was changed, and won't be.
    Failed,
    /// The epoch is another one, or what was expected is not there: another host owns the volume.
    NotOwner,
}

/// How a copy has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// It is there.
    Done,
    /// The source changed meanwhile, and the back end gave up.
    Changed,
    Failed,
}

/// What has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// [`Action::Store`].
    Stored {
        extent: u32,
        /// How.
        outcome: Stored,
    },
    /// [`Action::StoreHeader`].
    HeaderStored(Stored),
    /// [`Action::Probe`].
    Probed {
        extent: u32,
        /// Whether the object exists; `None`: it could not be asked.
        exists: Option<bool>,
    },
    /// [`Action::Copy`].
    Copied {
        extent: u32,
        /// How.
        outcome: Copied,
    },
    /// [`Action::Patch`].
    Patched {
        extent: u32,
        /// Whether all of it was copied.
        done: bool,
    },
    /// [`Action::Delete`].
    Deleted {
        extent: u32,
        /// Whether the object is gone.
        done: bool,
    },
}

/// How a move has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveEnd {
    /// The extent lies in this pool, and nowhere else.
    Moved(Pool),
    /// It stays where it was; the copy is deleted.
    GivenUp(GivenUp),
    /// A former owner's garbage is deleted.
    CleanedUp,
}

/// Why a move was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GivenUp {
    /// Writes had waited for it for as long as they may.
    #[error("the pools took too long")]
    Slow,
    /// Copy, patch or question failed.
    #[error("an operation of the move failed")]
    Failed,
    /// The source is not there.
    #[error("the extent's object is lost")]
    Lost,
    /// The table could not be written.
    #[error("the table of the volume could not be written")]
    Table,
    /// The former owner did not bring it to its end.
    #[error("begun by a former owner")]
    Restart,
}
