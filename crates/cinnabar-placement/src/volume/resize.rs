//! Another size: a volume grows when its header says so, and shrinks extent by extent.

use super::Volume;
use super::active::Step;
use super::seam::Action;
use crate::geometry::{Geometry, GeometryError};
use crate::header::Header;
use crate::limits::{MOVES_MAX, SHRINK_STEP};
use crate::mutant::Mutant;
use crate::record::State;
use thiserror::Error;

/// Why a volume does not get another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ResizeError {
    /// A size that no volume has.
    #[error("not a size of a volume")]
    Geometry(#[from] GeometryError),
    /// An extent would keep what is behind the end.
    #[error("a volume shrinks to a multiple of its extents' {0} bytes")]
    NotWhole(u64),
    /// The header is being written, or a shrink's objects are being deleted.
    #[error("an earlier change of the volume is not complete")]
    Busy,
    /// Another host has taken the volume over.
    #[error("another host owns the volume")]
    Fenced,
}

/// How far a change of the header has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resizing {
    /// The header that is being written.
    next: Option<Header>,
    /// The next extent behind the end that is looked at.
    cursor: u32,
    /// Extents behind the end that are on their way out.
    drops: usize,
    /// Behind the end there may be extents.
    tail: bool,
}

impl Resizing {
    pub(super) fn of(header: &Header) -> Self {
        let cursor = header.geometry.extents();
        Self { next: None, cursor, drops: 0, tail: header.tail > 0 }
    }

    pub(super) fn is_over(&self) -> bool {
        self.next.is_none() && !self.tail
    }
}

impl Volume {
    /// Changes the size. Growing is over when [`Volume::header`] has it; of a shrink requests behind the
    /// new end are refused at once, and [`Volume::is_quiet`] says when the last object is deleted.
    ///
    /// # Errors
    /// When the volume can't have the size, or not now.
    pub fn resize(&mut self, bytes: u64, out: &mut Vec<Action>) -> Result<(), ResizeError> {
        let before = self.header.geometry;
        let geometry = Geometry::new(bytes, before.extent_log2())?;
        let over_tail = self.is(Mutant::GrownOverTail);
        if self.fenced {
            return Err(ResizeError::Fenced);
        }
        if self.resizing.next.is_some() || self.resizing.tail && !over_tail {
            return Err(ResizeError::Busy);
        }
        let mut next = Header { geometry, ..self.header };
        if bytes < before.bytes() {
            if !bytes.is_multiple_of(before.extent_bytes()) {
                return Err(ResizeError::NotWhole(before.extent_bytes()));
            }
            if geometry.extents() < before.extents() {
                next.tail = before.extents();
                next.floor = self.highest;
            }
            if self.is(Mutant::FloorForgotten) {
                next.floor = self.header.floor;
            }
            next.changed = self.header.epoch;
            self.served_bytes = bytes;
        } else if over_tail && geometry.extents() >= self.header.tail {
            next.tail = 0;
        }
        if self.is(Mutant::SizeEarly) && bytes > before.bytes() {
            self.table.resize(geometry.extents());
            self.served_bytes = bytes;
        }
        self.write_header(next, out);
        Ok(())
    }

    /// Changes the budget of the fast pool. What is above a lower one is for the planner to move.
    ///
    /// # Errors
    /// When the header can't be changed now.
    pub fn set_budget(&mut self, bytes: u64, out: &mut Vec<Action>) -> Result<(), ResizeError> {
        if self.fenced {
            return Err(ResizeError::Fenced);
        }
        if self.resizing.next.is_some() {
            return Err(ResizeError::Busy);
        }
        self.write_header(Header { budget_bytes: bytes, ..self.header }, out);
        Ok(())
    }

    fn write_header(&mut self, next: Header, out: &mut Vec<Action>) {
        assert!(self.resizing.next.is_none(), "one header at a time");
        self.resizing.next = Some(next);
        out.push(Action::StoreHeader { expected: self.header, new: next });
    }

    /// The header was written, or was not.
    pub(super) fn header_stored(&mut self, done: bool) {
        let next = self.resizing.next.take().expect("the header is being written");
        if done {
            self.header = next;
            self.table.resize(next.records());
            if next.tail == 0 {
                self.resizing.tail = false;
            } else if !self.resizing.tail {
                self.resizing = Resizing::of(&next);
            }
        }
        self.served_bytes = self.header.geometry.bytes();
    }

    /// Sends extents behind the end on their way out, some at a time.
    pub(super) fn drop_tail(&mut self, out: &mut Vec<Action>) {
        if !self.resizing.tail || self.resizing.next.is_some() {
            return;
        }
        let end = self.header.tail;
        let stop = end.min(self.resizing.cursor.saturating_add(SHRINK_STEP));
        while self.resizing.cursor < stop && self.resizing.drops < MOVES_MAX {
            let extent = self.resizing.cursor;
            self.resizing.cursor += 1;
            let absent = self.table.get(extent).state == State::Absent;
            if absent && !self.active.contains_key(&extent) {
                continue;
            }
            self.resizing.drops += 1;
            self.active.entry(extent).or_default().drop = true;
            self.advance(extent, out);
        }
        if self.resizing.cursor == end && self.resizing.drops == 0 {
            self.write_header(Header { tail: 0, ..self.header }, out);
        }
    }

    /// Whether [`Volume::tick`] goes on at once: more of the tail is to be looked at.
    pub fn has_more(&self) -> bool {
        let tail = self.resizing.tail && self.resizing.next.is_none() && !self.fenced;
        let more = self.resizing.cursor < self.header.tail && self.resizing.drops < MOVES_MAX;
        tail && (more || self.resizing.drops == 0)
    }

    /// Nothing of the extent is under way: its object goes.
    pub(super) fn begin_drop(&mut self, extent: u32, out: &mut Vec<Action>) {
        if self.table.get(extent).state == State::Absent {
            return self.dropped(extent);
        }
        let dropping = self.table.get(extent).state == State::Dropping;
        let active = self.active.get_mut(&extent).expect("what is dropped is noted");
        active.step = if dropping { Step::DropDeleting } else { Step::DropMarking };
        self.issue(extent, out);
    }

    pub(super) fn dropped(&mut self, extent: u32) {
        let active = self.active.remove(&extent).expect("what is dropped is noted");
        assert!(!active.has_io() && self.resizing.drops > 0, "what is dropped is counted");
        self.resizing.drops -= 1;
    }
}
