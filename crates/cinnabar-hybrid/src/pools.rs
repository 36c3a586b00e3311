//! What a pair of pools is: where a hybrid volume's objects and its table lie.
//!
//! # Rules
//! * [`Pools::submit`] never blocks. Each operation ends with exactly one [`Completion`], in any order.
//! * **An operation has ended when it can have no further effect.** What was given up and may still be
//!   carried out has not ended: no completion of it is handed out.
//! * Its memory is untouched from its completion on. Dropping the pools waits until nothing touches any.
//! * Two operations under way on the same bytes come in any order; a read may see a write in part.
//! * What is acknowledged is read back, by any later operation on the object.
//! * An object has up to an extent's bytes. What of it was never written, and what is behind its end,
//!   reads as zeros.
//! * That an object exists is durable when the operation that made it ends; what is in it is not, unless
//!   that was asked for. So one that is missing after a crash is lost, not late.
//! * A failed operation that changes data leaves in its range what was there, what was to be there, or
//!   parts of both; but one that fails with [`OpError::Missing`] has made no object.

use crate::buffers::Buffers;
use crate::librados::lock_state::SeenLock;
use cinnabar_placement::{Device, Header, HeaderError, Object, Pool, Record, RecordError};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use thiserror::Error;

/// Objects that a page of [`Op::List`] has at most.
pub const LIST_MAX: usize = 1024;

/// The pools of one volume, taken over: this process is its owner. Used by one thread.
pub trait Pools: Send {
    /// Begins an operation; `token` comes back with its completion.
    fn submit(&mut self, token: u64, op: Op);

    /// Appends the operations that have ended.
    fn completions(&mut self, out: &mut Vec<Completion>);

    /// Readable while there may be something to take from [`Pools::completions`].
    fn events(&self) -> BorrowedFd<'_>;

    /// Bytes of copies and patches that went through this host since it was opened, each counted once.
    fn moved_through_host(&self) -> u64;

    /// Multiple of bytes that offsets, lengths and memory of `Read`, `Write` and `Zero` should have: 512 or
    /// 4096.
    fn align_bytes(&self) -> u32 {
        512
    }

    /// Why something does not answer, if so: one line for the operator.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// When the lock was seen last, if another host can break it: what is cached counts for as long.
    fn seen_lock(&self) -> Option<Arc<SeenLock>> {
        None
    }

    /// Random numbers of this owner's taking and of the one before, or 0: they tell a table that was put back.
    /// `None`: something else does.
    fn takings(&self) -> Option<[u64; 2]> {
        None
    }

    /// What a probe has measured of the slow and the fast pool, if it has.
    fn devices(&self) -> Option<[Device; 2]> {
        None
    }
}

/// What is done. An offset is within the object, in bytes; all are multiples of 512.
#[derive(Debug)]
pub enum Op {
    /// Read, as much as the memory takes.
    Read {
        /// Where.
        object: Object,
        /// From which byte on.
        offset: u64,
        /// Where to.
        memory: Buffers,
        /// A missing object reads as zeros; else that is [`OpError::Missing`].
        may_be_missing: bool,
    },
    /// Write, as much as the memory has.
    Write {
        /// Where.
        object: Object,
        /// From which byte on.
        offset: u64,
        /// Where from.
        memory: Buffers,
        /// A missing object is made; else the write asserts that there is one.
        may_be_missing: bool,
        /// Durable when it ends.
        durable: bool,
    },
    /// Zero a range.
    Zero {
        /// Where.
        object: Object,
        /// From which byte on.
        offset: u64,
        /// Bytes.
        length: u64,
        /// As with `Write`: a missing object is made. The table counts on it being there afterwards.
        may_be_missing: bool,
        /// The room of the range may be given back.
        punch: bool,
        /// Durable when it ends.
        durable: bool,
    },
    /// Make durable every `Write` and `Zero` that ended before this was submitted.
    Flush,
    /// Whether the object exists, by an operation that keeps late writes of former owners out of it:
    /// [`Answer::Exists`].
    Probe {
        /// Which.
        object: Object,
    },
    /// Make `to` a copy of `from`, or replace it by one; durable when it ends. Writes of `from` that are
    /// under way may be caught, or not, or in part.
    Copy {
        /// The source; without it the operation fails with [`OpError::Missing`].
        from: Object,
        /// The copy, in the other pool.
        to: Object,
    },
    /// Copy these ranges, to which nothing writes meanwhile; durable when it ends.
    Patch {
        /// The source.
        from: Object,
        /// The copy, which exists.
        to: Object,
        /// Of the extent, in bytes; the last may reach behind the end of the volume.
        ranges: Vec<Range<u64>>,
    },
    /// Delete an object; one that is missing is deleted.
    Delete {
        /// Which.
        object: Object,
    },
    /// Write a record, in one step: if the table's epoch is `epoch` and the record there is `expected`, else
    /// [`OpError::Fenced`]. An absent `new` removes it. Durable when it ends. With any other error but
    /// [`OpError::Unsure`] nothing was changed, and won't be.
    StoreRecord {
        extent: u32,
        /// What must be there.
        expected: Record,
        /// What comes there.
        new: Record,
        /// What the table's epoch must be.
        epoch: u64,
    },
    /// Write the header, in one step, if it is `expected`; as `StoreRecord`.
    StoreHeader {
        /// What must be there.
        expected: Header,
        /// What comes there.
        new: Header,
    },
    /// List a page of what a pool has under the volume's name: [`Answer::Listed`].
    List {
        pool: Pool,
        /// `next` of the page before; `None`: the first one.
        after: Option<String>,
    },
    /// Ask whether the table's epoch is still `epoch`, and the lock held: [`OpError::Fenced`] if not.
    Check {
        /// The owner's.
        epoch: u64,
    },
}

/// An operation that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Of the operation.
    pub token: u64,
    /// How.
    pub result: Result<Answer, OpError>,
}

/// What an operation found, or that it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// [`Op::Probe`].
    Exists(bool),
    /// [`Op::Copy`]: the source changed meanwhile, and no copy was made.
    Changed,
    /// [`Op::List`].
    Listed(Listing),
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// At most [`LIST_MAX`]; there may be none though there are further pages.
    pub objects: Vec<Listed>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<String>,
}

/// What a pool has under the volume's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// An object with a name that a volume gives.
    Object(Object),
    /// Something else, by its name.
    Foreign(String),
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpError {
    /// Another host owns the volume, or this one was cut off.
    #[error("another host owns the volume")]
    Fenced,
    /// The pool is full.
    #[error("the {0} pool is full")]
    NoSpace(Pool),
    /// The object does not exist.
    #[error("an object is missing")]
    Missing,
    /// Nothing answered in time, and it is certain that the operation has no further effect.
    #[error("the pool did not answer in time")]
    TimedOut,
    /// Whether the table was changed is not known: the volume must be opened again.
    #[error("whether the table was written is not known ({0})")]
    Unsure(Errno),
    /// Anything else.
    #[error("{0}")]
    Other(Errno),
}

impl OpError {
    /// As a guest's request fails.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NoSpace(_) => Errno::NOSPC,
            Self::TimedOut => Errno::TIMEDOUT,
            Self::Other(errno) => *errno,
            Self::Fenced | Self::Missing | Self::Unsure(_) => Errno::IO,
        }
    }
}

/// A volume that is not open: a name or paths. Its calls block.
pub trait Place: Send {
    /// As a configuration has it, for messages.
    fn name(&self) -> String;

    /// Makes the volume: its table, and what its pools need.
    ///
    /// # Errors
    /// [`OpenError`]; above all if there is one already.
    fn create(&mut self, header: &Header) -> Result<(), OpenError>;

    /// Reads the table, also of a volume that another process owns. If that changes it meanwhile, what is
    /// read is of different moments.
    ///
    /// # Errors
    /// [`OpenError`].
    fn look(&mut self) -> Result<Contents, OpenError>;

    /// Locks the volume, raises the epoch, and reads the table: from then on former owners change nothing.
    /// While it has to wait `wait` is asked now and then, with what for, and gives up by `false`:
    /// [`OpenError::InUse`].
    ///
    /// # Errors
    /// [`OpenError`].
    fn take_over(
        &mut self,
        wait: &mut dyn FnMut(Wait<'_>) -> bool,
    ) -> Result<(Contents, Box<dyn Pools>), OpenError>;
}

/// For what a take-over waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait<'a> {
    /// For this one to let go of the volume.
    Holder(&'a str),
    /// A bounded time, until a former owner serves nothing any more. Asked some times a second.
    Lease,
}

/// A table as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// After [`Place::take_over`] with the new owner's epoch, which is durable.
    pub header: Header,
    /// Of all extents that are not absent.
    pub records: Vec<(u32, Record)>,
}

/// Why a volume can't be made or opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Another process or host has it.
    #[error("in use by {0}")]
    InUse(String),
    /// Nothing of it is there.
    #[error("there is no hybrid volume: {0} is missing")]
    NoVolume(String),
    /// A part of it is missing: its name.
    #[error("{0} is missing")]
    MissingPart(String),
    /// There is one already.
    #[error("{0} exists")]
    Exists(String),
    /// A part belongs to another volume, or to none: what and why.
    #[error("{0}")]
    Foreign(String),
    /// The header is damaged, foreign or newer.
    #[error("{0}")]
    Header(#[from] HeaderError),
    /// A record is damaged or newer.
    #[error("{0}")]
    Record(#[from] RecordError),
    /// The table is damaged or newer otherwise.
    #[error("{0}")]
    Table(String),
    /// A call failed.
    #[error("{during}: {errno}")]
    Io {
        /// What was tried, and with what.
        during: String,
        /// How it failed.
        errno: Errno,
    },
    /// Anything else, in one line.
    #[error("{0}")]
    Other(String),
}
