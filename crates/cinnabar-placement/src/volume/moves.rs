//! A move, step by step: marked, source looked at, copied, patched, flipped, cleaned up.

use super::Volume;
use super::active::{Active, Step};
use super::seam::{Action, Copied, GivenUp, MoveEnd, Refusal};
use crate::geometry::{Object, Pool};
use crate::limits::{GENERATION_MAX, MOVES_MAX};
use crate::mutant::{Mutant, Mutants};
use crate::record::{Record, State};

impl Volume {
    /// Begins moves that wait, as many as settings, budget and rate allow.
    pub(super) fn begin_moves(&mut self, out: &mut Vec<Action>) {
        let over = self.is(Mutant::LeavingOverMove);
        let may_leave = |extent: &u32| over || self.may_move(*extent);
        let leaving: Vec<u32> = self.leaving.iter().copied().filter(may_leave).collect();
        if self.is(Mutant::LeavingForgotten) {
            self.leaving = leaving.iter().copied().collect();
        }
        for extent in leaving {
            let record = self.table.get(extent);
            if self.moving < MOVES_MAX && self.leaving.remove(&extent) && record.pool == Pool::Fast
            {
                self.begin_move(extent, record, Pool::Slow, out);
            }
        }
        while self.moving < self.settings.moves && !self.queue.is_empty() {
            if !self.throttle.may_begin(self.now_ns) {
                return;
            }
            let Some((extent, to)) = self.queue.pop_front() else { return };
            if !self.may_move(extent) {
                continue;
            }
            let record = self.table.get(extent);
            if record.pool == to || record.highest() >= GENERATION_MAX {
                continue;
            }
            if to == Pool::Fast && !self.has_room() {
                self.counts.over_budget += 1;
                continue;
            }
            self.begin_move(extent, record, to, out);
        }
    }

    fn has_room(&self) -> bool {
        self.fast_bytes() + self.table.extent_bytes() <= self.header.budget_bytes
    }

    fn begin_move(&mut self, extent: u32, record: Record, to: Pool, out: &mut Vec<Action>) {
        let marked = if self.is(Mutant::NameReused) && record.other > record.generation {
            Record { state: State::Copying, ..record }
        } else {
            record.copying()
        };
        self.highest = self.highest.max(marked.highest());
        self.reserved += u64::from(to == Pool::Fast);
        self.moving += 1;
        self.throttle.charge(self.table.extent_bytes());
        let active = self.active.entry(extent).or_default();
        (active.step, active.to, active.copies) = (Step::Marking, Some(to), 0);
        self.store(extent, marked, out);
    }

    /// Asks for a record to be written.
    pub(super) fn store(&mut self, extent: u32, new: Record, out: &mut Vec<Action>) {
        let (expected, epoch) = (self.table.get(extent), self.header.epoch);
        let before = self.active(extent).storing.replace(new);
        assert!(before.is_none(), "one record of an extent at a time");
        out.push(Action::Store { extent, expected, new, epoch });
    }

    pub(super) fn active(&mut self, extent: u32) -> &mut Active {
        self.active.get_mut(&extent).expect("a step of the extent is under way")
    }

    /// Issues what the extent's step consists of; also once more, after it has failed.
    pub(super) fn issue(&mut self, extent: u32, out: &mut Vec<Action>) {
        let record = self.table.get(extent);
        let undrained = self.is(Mutant::NotDrained);
        let Some(active) = self.active.get_mut(&extent) else { return };
        match active.step {
            Step::Draining if active.writing.is_empty() || undrained => {
                self.drained(extent, out);
            }
            Step::Aborting => self.store(extent, record.aborted(), out),
            Step::Cleaning => {
                let garbage = record.second(extent).expect("what is cleaned has garbage");
                let readers = active.readers[garbage.pool as usize];
                if readers == 0 || self.settings.mutants.is(Mutant::DeletedUnderReads) {
                    active.step = Step::Deleting;
                    out.push(Action::Delete { object: garbage });
                }
            }
            Step::Deleting => {
                let object = record.second(extent).expect("what is cleaned has garbage");
                out.push(Action::Delete { object });
            }
            Step::Clearing => {
                let cleaned = if self.is(Mutant::NameReused) {
                    Record { state: State::Stable, ..record }
                } else {
                    record.cleaned()
                };
                self.store(extent, cleaned, out);
            }
            Step::DropMarking => self.store(extent, record.dropping(), out),
            Step::DropDeleting => {
                let object = record.truth(extent).expect("what is dropped has an object");
                out.push(Action::Delete { object });
            }
            Step::DropClearing => self.store(extent, Record::ABSENT, out),
            _ => {}
        }
    }

    /// A record was written, or was not.
    pub(super) fn stored(&mut self, extent: u32, done: bool, out: &mut Vec<Action>) {
        let active = self.active(extent);
        let step = active.step;
        let new = active.storing.take().expect("a record is being written");
        if done {
            self.table.set(extent, new);
        }
        match step {
            Step::Allocating => {
                self.active(extent).step = Step::Idle;
                if done {
                    self.release(extent, out);
                } else {
                    self.fail_held(extent, Refusal::Table, out);
                }
                self.advance(extent, out);
            }
            Step::Settling => self.rest(extent, out),
            Step::Marking => self.marked(extent, done, out),
            Step::Flipping => self.flipped(extent, done, out),
            Step::Aborting | Step::Clearing | Step::DropMarking | Step::DropClearing if !done => {
                self.again.insert(extent);
            }
            Step::Aborting => self.clean(extent, out),
            Step::Clearing => self.move_ended(extent, out),
            Step::DropMarking => {
                self.active(extent).step = Step::DropDeleting;
                self.issue(extent, out);
            }
            Step::DropClearing => self.dropped(extent),
            _ => panic!("no record of extent {extent} is being written in step {step:?}"),
        }
    }

    /// Back to nothing but requests.
    fn rest(&mut self, extent: u32, out: &mut Vec<Action>) {
        self.active(extent).step = Step::Idle;
        self.advance(extent, out);
    }

    fn move_ended(&mut self, extent: u32, out: &mut Vec<Action>) {
        let pool = self.table.get(extent).pool;
        let active = self.active(extent);
        assert!(active.step.moves(), "a move ends once");
        let outcome = match (active.given_up.take(), active.to.take()) {
            (Some(why), _) => MoveEnd::GivenUp(why),
            (None, Some(_)) => MoveEnd::Moved(pool),
            (None, None) => MoveEnd::CleanedUp,
        };
        active.dirty.clear();
        assert!(self.moving > 0, "a move under way is counted");
        self.moving -= 1;
        match outcome {
            MoveEnd::Moved(pool) => self.counts.moved[pool as usize] += 1,
            MoveEnd::GivenUp(_) => self.counts.given_up += 1,
            MoveEnd::CleanedUp => {}
        }
        out.push(Action::Ended { extent, outcome });
        self.rest(extent, out);
    }

    fn marked(&mut self, extent: u32, done: bool, out: &mut Vec<Action>) {
        let to_fast = self.active(extent).to == Some(Pool::Fast);
        assert!(!to_fast || self.reserved > 0, "what a move will make is reserved");
        self.reserved -= u64::from(to_fast);
        if !done {
            self.active(extent).given_up = Some(GivenUp::Table);
            return self.move_ended(extent, out);
        }
        self.active(extent).step = Step::Probing;
        if self.is(Mutant::SourceNotProbed) {
            return self.probed(extent, Some(true), out);
        }
        if self.is(Mutant::FlipBeforeCopy) {
            return self.flip(extent, out);
        }
        let (object, _) = both(self.table.get(extent), extent);
        out.push(Action::Probe { object });
    }

    /// The source was looked at.
    pub(super) fn probed(&mut self, extent: u32, exists: Option<bool>, out: &mut Vec<Action>) {
        assert_eq!(self.active(extent).step, Step::Probing, "the source is looked at once");
        match exists {
            Some(true) => self.copy(extent, out),
            Some(false) => {
                self.counts.lost += 1;
                self.give_up(extent, GivenUp::Lost, out);
            }
            None => self.give_up(extent, GivenUp::Failed, out),
        }
    }

    pub(super) fn copy(&mut self, extent: u32, out: &mut Vec<Action>) {
        let (from, to) = both(self.table.get(extent), extent);
        let forgets = self.is(Mutant::InFlightNotDirty);
        let active = self.active(extent);
        active.step = Step::Copying;
        active.copies += 1;
        active.dirty.clear();
        // The copy may catch them, or not, or in part.
        if !forgets {
            for parts in &active.writing {
                active.dirty.mark(*parts);
            }
        }
        self.counts.copies += 1;
        out.push(Action::Copy { from, to });
    }

    /// A copy has ended.
    pub(super) fn copied(&mut self, extent: u32, outcome: Copied, out: &mut Vec<Action>) {
        let last = self.settings.copies;
        let forgotten = self.is(Mutant::RecopyForgotten);
        if outcome == Copied::Changed {
            // Nothing was copied.
            self.throttle.refund(self.table.extent_bytes());
        }
        let held = self.holding.contains_key(&extent);
        let active = self.active(extent);
        assert_eq!(active.step, Step::Copying, "one copy at a time");
        if let Some(why) = active.given_up {
            return self.give_up(extent, why, out);
        }
        let (clean, once_more) = (active.dirty.count() == 0, active.copies < last);
        let (patch_ns, copy_ns) = self.patch_and_copy_ns(extent);
        match outcome {
            Copied::Failed => self.give_up(extent, GivenUp::Failed, out),
            Copied::Done if clean || forgotten => self.flip(extent, out),
            // No write was under way: it can't have changed.
            Copied::Done | Copied::Changed if held => self.give_up(extent, GivenUp::Failed, out),
            Copied::Done if patch_ns <= self.settings.hold_ns as f64 => {
                self.hold_writes(extent, false, out);
            }
            Copied::Done | Copied::Changed if once_more => {
                self.throttle.charge(self.table.extent_bytes());
                self.copy(extent, out);
            }
            _ if self.is(Mutant::BusyGivenUp) => self.give_up(extent, GivenUp::Failed, out),
            Copied::Done => self.hold_writes(extent, patch_ns > copy_ns, out),
            Copied::Changed => self.hold_writes(extent, !self.is(Mutant::ChangedPatched), out),
        }
    }

    /// What was changed during the copy is copied, or is not.
    pub(super) fn patched(&mut self, extent: u32, done: bool, out: &mut Vec<Action>) {
        let flips = self.is(Mutant::AbandonedFlipped);
        let active = self.active(extent);
        assert_eq!(active.step, Step::Patching, "one patch at a time");
        match active.given_up {
            Some(why) if !flips => self.give_up(extent, why, out),
            _ if done => self.flip(extent, out),
            _ => self.give_up(extent, GivenUp::Failed, out),
        }
    }

    /// The copy is as the source, and no write is under way: it becomes the truth.
    fn flip(&mut self, extent: u32, out: &mut Vec<Action>) {
        let record = self.table.get(extent);
        let mutant = self.settings.mutants != Mutants::NONE;
        let active = self.active(extent);
        assert!(active.writing.is_empty() || mutant, "no write is under way during a flip");
        active.step = Step::Flipping;
        self.holding.remove(&extent);
        self.store(extent, record.flipped(), out);
        if self.is(Mutant::DeleteBeforeFlip) {
            out.push(Action::Delete { object: both(record, extent).0 });
        }
        if self.is(Mutant::ReleasedEarly) {
            self.release_as(extent, record.flipped(), out);
        }
    }

    fn flipped(&mut self, extent: u32, done: bool, out: &mut Vec<Action>) {
        if !done {
            return self.give_up(extent, GivenUp::Table, out);
        }
        self.active(extent).dirty.clear();
        self.clean(extent, out);
        self.release(extent, out);
    }

    pub(super) fn give_up(&mut self, extent: u32, why: GivenUp, out: &mut Vec<Action>) {
        self.holding.remove(&extent);
        let active = self.active(extent);
        active.given_up = Some(why);
        active.step = Step::Aborting;
        active.dirty.clear();
        if !self.is(Mutant::HeldForever) {
            self.release(extent, out);
        }
        self.issue(extent, out);
    }

    fn clean(&mut self, extent: u32, out: &mut Vec<Action>) {
        self.active(extent).step = Step::Cleaning;
        self.issue(extent, out);
    }

    /// An object is deleted, or is not.
    pub(super) fn deleted(&mut self, extent: u32, done: bool, out: &mut Vec<Action>) {
        let done = done || self.is(Mutant::DeleteNotAwaited);
        if self.is(Mutant::DeleteBeforeFlip) {
            let step = self.active.get(&extent).map(|active| active.step);
            if !matches!(step, Some(Step::Deleting | Step::DropDeleting)) {
                return;
            }
        }
        if !done {
            self.again.insert(extent);
            return;
        }
        let active = self.active(extent);
        active.step = match active.step {
            Step::Deleting => Step::Clearing,
            Step::DropDeleting => Step::DropClearing,
            step => panic!("nothing of extent {extent} is being deleted in step {step:?}"),
        };
        self.issue(extent, out);
    }
}

/// Source and copy of a move that is not over.
pub(super) fn both(record: Record, extent: u32) -> (Object, Object) {
    let from = record.truth(extent).expect("what is copied has a source");
    (from, record.second(extent).expect("what is copied has a copy"))
}
