//! One sector as a register: which values a read may return.
//!
//! The rule, for a read from tick `s` on that returns the value of a write `w`: whatever was *seen*
//! (by a completed write or read, which proves that the sector held another value at some tick in
//! `from..=to`) with `to < s` must allow `w` to have happened after `from`. And once a read has
//! returned `w`, `w` has happened: it can't come back later.

use crate::oracle::Outcome;
use crate::stamp::Stamp;
use smallvec::SmallVec;
use std::fmt;

/// A write that may be what the sector holds.
#[derive(Clone, Copy)]
struct Write {
    value: Stamp,
    submitted: u64,
    /// By this tick it has happened or never will; `u64::MAX` while it is in flight and unread.
    by: u64,
}

/// Proof that the sector held a value at some tick from `from` to `to`.
#[derive(Clone, Copy)]
struct Seen {
    value: Stamp,
    from: u64,
    to: u64,
}

/// Values that a read may return although they are gone: what the cache may still hold of a sector
/// that another writer wrote so soon after a crash that it can't be known.
#[derive(Clone)]
struct Excused {
    values: SmallVec<[Stamp; 2]>,
    /// For reads submitted before this tick; `u64::MAX` until the sector is written again.
    until: u64,
    /// The newest of them since this tick.
    since: u64,
}

/// What an allowed read was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The newest value, or one that may count as it.
    Right,
    /// Stale, where the stated limit excuses it.
    Excused,
    /// Neither.
    Wrong,
}

/// What is remembered of a sector.
pub(super) struct Sector {
    writes: SmallVec<[Write; 2]>,
    seen: SmallVec<[Seen; 2]>,
    excused: Option<Box<Excused>>,
}

impl Sector {
    pub(super) fn holding(value: Stamp) -> Self {
        let writes = SmallVec::from_slice(&[Write { value, submitted: 0, by: 0 }]);
        Self { writes, seen: SmallVec::new(), excused: None }
    }

    /// From now on it holds this value and can't hold another; what is excused stays so.
    pub(super) fn reset(&mut self, value: Stamp, now: u64) {
        self.writes = SmallVec::from_slice(&[Write { value, submitted: now, by: now }]);
        self.seen = SmallVec::from_slice(&[Seen { value, from: now, to: now }]);
    }

    /// From now on it holds this value, or what a write brings that is in flight.
    pub(super) fn decide(&mut self, value: Stamp, now: u64) {
        self.writes.retain(|write| write.by == u64::MAX);
        self.writes.push(Write { value, submitted: now, by: now });
        self.seen = SmallVec::from_slice(&[Seen { value, from: now, to: now }]);
    }

    /// A read may return this value too, until the sector is written again.
    pub(super) fn excuse(&mut self, value: Stamp, now: u64) {
        let excused = self.excused.get_or_insert_with(|| {
            Box::new(Excused { values: SmallVec::new(), until: u64::MAX, since: now })
        });
        (excused.until, excused.since) = (u64::MAX, now);
        if !excused.values.contains(&value) {
            excused.values.push(value);
        }
    }

    /// Reads submitted from `now` on have no excuse any more, unless there has been a new one since
    /// what ends it was `asked` for.
    pub(super) fn end_excuse(&mut self, now: u64, asked: u64) {
        if let Some(excused) = &mut self.excused
            && excused.since < asked
        {
            excused.until = excused.until.min(now);
        }
    }

    pub(super) fn begin(&mut self, value: Stamp, submitted: u64) {
        self.writes.push(Write { value, submitted, by: u64::MAX });
    }

    pub(super) fn end(&mut self, value: Stamp, submitted: u64, now: u64, outcome: Outcome) {
        let is_it = |write: &Write| write.value == value && write.submitted == submitted;
        if outcome == Outcome::Refused {
            self.writes.retain(|write| !is_it(write));
            return;
        }
        // It may be gone already: overwritten by what was seen since.
        if let Some(write) = self.writes.iter_mut().find(|write| is_it(write)) {
            write.by = write.by.min(now);
        }
        if outcome == Outcome::Done {
            self.seen.push(Seen { value, from: submitted, to: now });
        }
    }

    /// A read in `from..=to` returned `value`.
    pub(super) fn observe(&mut self, value: Stamp, from: u64, to: u64) -> Verdict {
        let excused = self.excused.as_ref();
        let excused = excused.is_some_and(|e| from < e.until && e.values.contains(&value));
        let seen = &self.seen;
        let mut possible = self
            .writes
            .iter_mut()
            .filter(|write| write.value == value && !superseded(write, seen, from));
        // A value that is excused proves nothing, even if it may be right.
        let Some(first) = possible.next().filter(|_| !excused) else {
            return if excused { Verdict::Excused } else { Verdict::Wrong };
        };
        // Zeros have many writers: which of them it was, is then not known.
        if possible.next().is_none() {
            first.by = first.by.min(to);
        }
        self.seen.push(Seen { value, from, to });
        Verdict::Right
    }

    /// Drops what no read submitted at `horizon` or later can need.
    pub(super) fn forget(&mut self, horizon: u64) {
        let seen = &self.seen;
        self.writes.retain(|write| !superseded(write, seen, horizon));
        let newest_from = seen.iter().filter(|seen| seen.to < horizon).map(|seen| seen.from).max();
        if let Some(newest_from) = newest_from {
            self.seen.retain(|seen| seen.to >= newest_from);
        }
        if self.excused.as_ref().is_some_and(|excused| excused.until <= horizon) {
            self.excused = None;
        }
    }
}

/// Is the write gone for every read submitted at `from` or later?
fn superseded(write: &Write, seen: &[Seen], from: u64) -> bool {
    seen.iter().any(|seen| seen.to < from && seen.value != write.value && write.by < seen.from)
}

impl fmt::Debug for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it may hold:")?;
        for write in &self.writes {
            write!(f, " {:?} (written at {}", write.value, write.submitted)?;
            match write.by {
                u64::MAX => f.write_str(", in flight)")?,
                by => write!(f, "..{by})")?,
            }
        }
        f.write_str("; seen:")?;
        for seen in &self.seen {
            write!(f, " {:?} in {}..{}", seen.value, seen.from, seen.to)?;
        }
        if let Some(excused) = &self.excused {
            write!(f, "; excused: {:?} before {}", excused.values, excused.until)?;
        }
        Ok(())
    }
}
