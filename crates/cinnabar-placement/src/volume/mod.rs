//! A volume's state machine: where each request goes, and how extents move while requests go on.
//!
//! Rules, each of which a deliberate bug breaks in the tests:
//!
//! * The table decides where an extent's data are. While it says *copying* that is the source; from the
//!   moment at which *cleaning* is durable it is the other object.
//! * A read goes to where the data are now, and never waits. The object that it reads stays until it
//!   has ended.
//! * A write that begins during a copy marks what it changes. It waits only while the copy is patched
//!   and becomes the truth, for a bounded time, and goes on when the table says where.
//! * What a copy takes from the fast pool's budget counts before it is made, and until it is deleted.
//! * No name is used twice, so what is late meets nothing of today.
//! * All that is written to the table carries the owner's epoch, and is refused under another one.

mod active;
mod gc;
mod hold;
mod io;
mod moves;
mod resize;
mod seam;

pub use gc::Verdict;
pub use resize::ResizeError;
pub use seam::{
    Action, Admission, Copied, Event, GivenUp, Io, MoveEnd, Op, Refusal, Route, Stored, Ticket,
};

use crate::device::Devices;
use crate::geometry::Pool;
use crate::header::Header;
use crate::limits::{COPIES_MAX, GENERATION_MAX, MOVES_MAX, QUEUE_MAX};
use crate::mutant::{Mutant, Mutants};
use crate::record::{Record, State};
use crate::table::Table;
use crate::throttle::Throttle;
use active::{Active, Step};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thiserror::Error;

/// How a volume moves its extents.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Extents on their way at a time.
    pub moves: usize,
    /// Copies that one move makes while writes go on.
    pub copies: u8,
    /// What the devices may take to patch what was changed during a copy while writes wait, in ns. With
    /// more the extent is copied again, and the last time while writes wait.
    pub hold_ns: u64,
    /// After so many ns writes that wait for a copy go on at the source, and the move is given up.
    pub hold_max_ns: u64,
    /// Bytes that are copied a second, on average.
    pub copy_bytes_per_s: u64,
    /// Deliberate bugs; none but in tests.
    pub mutants: Mutants,
}

impl Default for Settings {
    /// Four extents at a time, at most three copies of each, 100 ms, 2 s, 32 MiB/s.
    fn default() -> Self {
        Self {
            moves: 4,
            copies: 3,
            hold_ns: 100_000_000,
            hold_max_ns: 2_000_000_000,
            copy_bytes_per_s: 32 << 20,
            mutants: Mutants::NONE,
        }
    }
}

/// Why a volume can't be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// A value is out of its range.
    #[error("{what} is {value}; it is from {min} to {max}")]
    Setting {
        /// Its name.
        what: &'static str,
        /// Found.
        value: u64,
        /// Lowest.
        min: u64,
        /// Highest.
        max: u64,
    },
    /// The table does not belong together.
    #[error("the table has a record of extent {0}, which the volume can't have")]
    Extent(u32),
}

/// What has happened since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Moves that ended at their goal, by it.
    pub moved: [u64; 2],
    /// Moves that were given up.
    pub given_up: u64,
    /// Copies made.
    pub copies: u64,
    /// Bytes that went through the host because they were changed during a copy.
    pub patched_bytes: u64,
    /// Writes that waited for a move.
    pub held: u64,
    /// Moves that were refused because the budget had no room.
    pub over_budget: u64,
    /// Objects that should have been there.
    pub lost: u64,
}

/// A volume's state machine. See the module.
#[derive(Debug)]
pub struct Volume {
    header: Header,
    table: Table,
    settings: Settings,
    devices: Devices,
    active: BTreeMap<u32, Active>,
    /// Requests under way, held ones included.
    ios: usize,
    queue: VecDeque<(u32, Pool)>,
    /// Extents that leave the fast pool, which is full, before all that is planned.
    leaving: BTreeSet<u32>,
    moving: usize,
    /// Extents whose writes wait for a copy, and until when; `None`: the next tick says.
    holding: BTreeMap<u32, Option<u64>>,
    /// Objects in the fast pool that moves will make whose begin is still being stored.
    reserved: u64,
    /// The highest generation that any object may have.
    highest: u32,
    /// Extents whose step has failed, and is tried again by the next tick.
    again: BTreeSet<u32>,
    throttle: Throttle,
    now_ns: u64,
    fenced: bool,
    /// Requests behind it are refused.
    served_bytes: u64,
    resizing: resize::Resizing,
    counts: Counts,
}

impl Volume {
    /// Of a host that has just taken the volume over: `header` with its epoch is durable, and `records`
    /// were read afterwards. [`Volume::tick`] begins what a former owner has left.
    ///
    /// # Errors
    /// When a setting is out of its range, or the table has records that can't be.
    pub fn open(
        header: Header,
        records: impl IntoIterator<Item = (u32, Record)>,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let ranges = [
            ("moves", settings.moves as u64, 1, MOVES_MAX as u64),
            ("copies", settings.copies.into(), 1, COPIES_MAX.into()),
        ];
        for (what, value, min, max) in ranges {
            if !(min..=max).contains(&value) {
                return Err(OpenError::Setting { what, value, min, max });
            }
        }
        let mut table = Table::new(header.geometry);
        table.resize(header.records());
        let throttle = Throttle::new(settings.copy_bytes_per_s, header.geometry.extent_bytes());
        let mut volume = Self {
            header,
            table,
            settings,
            devices: Devices::default(),
            active: BTreeMap::new(),
            ios: 0,
            queue: VecDeque::new(),
            leaving: BTreeSet::new(),
            moving: 0,
            holding: BTreeMap::new(),
            reserved: 0,
            highest: header.floor,
            again: BTreeSet::new(),
            throttle,
            now_ns: 0,
            fenced: false,
            served_bytes: header.geometry.bytes(),
            resizing: resize::Resizing::of(&header),
            counts: Counts::default(),
        };
        for (extent, record) in records {
            volume.load(extent, record)?;
        }
        volume.highest = volume.highest.max(volume.table.highest());
        Ok(volume)
    }

    fn load(&mut self, extent: u32, mut record: Record) -> Result<(), OpenError> {
        let inside = extent < self.header.geometry.extents();
        let beyond = extent >= self.header.records();
        if beyond || inside && record.state == State::Dropping {
            return Err(OpenError::Extent(extent));
        }
        if self.is(Mutant::CopyBelieved) && record.state == State::Copying {
            record = record.flipped();
        }
        if self.is(Mutant::CopyLeft) && record.state == State::Copying {
            record = Record { state: State::Stable, ..record };
        }
        self.table.set(extent, record);
        let step = match record.state {
            State::Copying => Step::Aborting,
            State::Cleaning => Step::Cleaning,
            _ => return Ok(()),
        };
        let given_up = (step == Step::Aborting).then_some(GivenUp::Restart);
        self.active.insert(extent, Active { step, given_up, ..Active::default() });
        self.again.insert(extent);
        self.moving += 1;
        Ok(())
    }

    /// The records, as the table has them.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The header, as the table has it.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What has happened since the volume was opened.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Extents on their way, garbage that is still to be deleted included.
    pub fn moving(&self) -> usize {
        self.moving
    }

    /// Requests under way, held ones included.
    pub fn requests(&self) -> usize {
        self.ios
    }

    /// Whether another host has taken the volume over.
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Bytes of the fast pool that are taken: objects there, and those that moves under way will make.
    pub fn fast_bytes(&self) -> u64 {
        let of_moves = if self.is(Mutant::MarksNotCounted) { 0 } else { self.reserved };
        let forgotten = |extent: &u32| {
            let record = self.table.get(*extent);
            let copied = record.state == State::Copying && record.pool == Pool::Slow;
            let left = record.state == State::Cleaning && record.pool == Pool::Slow;
            copied && self.is(Mutant::CopiesNotCounted) || left && self.is(Mutant::FreedEarly)
        };
        let forgets = self.is(Mutant::CopiesNotCounted) || self.is(Mutant::FreedEarly);
        let looked_at = if forgets { self.table.len() } else { 0 };
        let forgotten = (0..looked_at).filter(forgotten).count() as u64;
        let objects = u64::from(self.table.objects(Pool::Fast)) - forgotten;
        (objects + of_moves) * self.table.extent_bytes()
    }

    /// Whether nothing is under way but requests.
    pub fn is_quiet(&self) -> bool {
        let idle = |active: &Active| active.step == Step::Idle && !active.drop;
        self.queue.is_empty() && self.active.values().all(idle) && self.resizing.is_over()
    }

    /// Whether an extent may move now: it has one object, and nothing of it is under way but requests.
    pub fn may_move(&self, extent: u32) -> bool {
        // While a shrink is being stored its floor is fixed: nothing behind the new end gets a new name.
        let start = u64::from(extent) << self.header.geometry.extent_log2();
        let inside = start < self.served_bytes || self.is(Mutant::TailMoved);
        inside
            && extent < self.header.geometry.extents()
            && self.table.get(extent).state == State::Stable
            && self.active.get(&extent).is_none_or(|a| a.step == Step::Idle && !a.drop)
    }

    /// Replaces the moves that have not begun; of more than [`QUEUE_MAX`] the last ones are dropped.
    pub fn set_moves(&mut self, moves: impl IntoIterator<Item = (u32, Pool)>) {
        self.queue.clear();
        self.queue.extend(moves.into_iter().take(QUEUE_MAX));
    }

    /// The fast pool has no room for a write of this extent, which leaves it as soon as it can; whether it
    /// will. The end of a move tells when.
    pub fn leave_fast(&mut self, extent: u32, out: &mut Vec<Action>) -> bool {
        let record = self.table.get(extent);
        let leaves = record.pool == Pool::Fast && record.highest() < GENERATION_MAX;
        if leaves && !self.fenced {
            self.leaving.insert(extent);
            self.go_on(out);
        }
        leaves && !self.fenced
    }

    /// Another rate of copying, in bytes a second; 0 begins no move.
    pub fn set_copy_rate(&mut self, bytes_per_s: u64) {
        self.throttle.set_rate(bytes_per_s);
    }

    /// What was measured of the pools, from which it follows how long writes wait for a copy.
    pub fn set_devices(&mut self, devices: Devices) {
        self.devices = devices;
    }

    /// When [`Volume::tick`] has something to do, if nothing else happens: a move may begin then, or
    /// writes have waited long enough.
    pub fn wake_ns(&self) -> Option<u64> {
        let waits = !self.queue.is_empty() && self.moving < self.settings.moves && !self.fenced;
        let begins = waits.then(|| self.throttle.ready_ns()).flatten();
        begins.into_iter().chain(self.holds_end_ns()).min()
    }

    /// Begins what can begin, and tries again what failed. `now_ns` is of a clock that doesn't go back.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        self.now_ns = self.now_ns.max(now_ns);
        if self.fenced {
            return;
        }
        self.end_holds(out);
        for extent in std::mem::take(&mut self.again) {
            self.issue(extent, out);
        }
        self.go_on(out);
    }

    /// Something has ended.
    ///
    /// # Panics
    /// If it was not under way.
    pub fn apply(&mut self, event: Event, out: &mut Vec<Action>) {
        if self.fenced {
            return;
        }
        match event {
            Event::Stored { outcome: Stored::NotOwner, .. }
            | Event::HeaderStored(Stored::NotOwner) => self.fence(out),
            Event::Stored { extent, outcome } => self.stored(extent, outcome == Stored::Done, out),
            Event::HeaderStored(outcome) => self.header_stored(outcome == Stored::Done),
            Event::Probed { extent, exists } => self.probed(extent, exists, out),
            Event::Copied { extent, outcome } => self.copied(extent, outcome, out),
            Event::Patched { extent, done } => self.patched(extent, done, out),
            Event::Deleted { extent, done } => self.deleted(extent, done, out),
        }
        if !self.fenced {
            self.go_on(out);
        }
    }

    /// Another host owns the volume. Held requests fail, and nothing is done any more.
    pub fn fence(&mut self, out: &mut Vec<Action>) {
        if std::mem::replace(&mut self.fenced, true) {
            return;
        }
        for active in self.active.values_mut() {
            for io in active.held.drain(..) {
                self.ios -= 1;
                out.push(Action::Fail { token: io.token, why: Refusal::Fenced });
            }
        }
        self.queue.clear();
        self.leaving.clear();
        self.holding.clear();
        out.push(Action::Fenced);
    }

    fn go_on(&mut self, out: &mut Vec<Action>) {
        self.begin_moves(out);
        self.drop_tail(out);
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.settings.mutants.is(mutant)
    }
}

#[cfg(test)]
mod tests;
