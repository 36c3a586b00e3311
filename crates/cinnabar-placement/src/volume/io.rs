//! Requests: where they go, which of them wait, and what their end allows.

use super::active::Step;
use super::seam::{Action, Admission, Io, Op, Refusal, Route, Ticket};
use super::{Active, Volume};
use crate::geometry::Pool;
use crate::limits::{GENERATION_MAX, IOS_MAX};
use crate::mutant::Mutant;
use crate::record::{Record, State};

impl Volume {
    /// A request begins.
    pub fn begin(&mut self, io: Io, out: &mut Vec<Action>) -> Admission {
        if self.fenced {
            return Admission::Refused(Refusal::Fenced);
        }
        if self.ios >= IOS_MAX {
            return Admission::Refused(Refusal::TooMany);
        }
        let Some(extent) = self.extent_within(io) else {
            return Admission::Refused(Refusal::Range);
        };
        let record = self.table.get(extent);
        match (io.op, record.state) {
            (Op::Read, State::Absent) => Admission::Zeros,
            (Op::Read, _) => Admission::Go(self.go(extent, record, io)),
            (Op::Write, State::Absent) => self.first_write(extent, io, out),
            (Op::Write, _) => self.write(extent, record, io),
        }
    }

    /// A request has ended.
    ///
    /// # Panics
    /// If it was not under way.
    pub fn end(&mut self, ticket: Ticket, done: bool, out: &mut Vec<Action>) {
        let extent = ticket.object.extent;
        let record = self.table.get(extent);
        let active = self.active.get_mut(&extent).expect("its request is under way");
        assert!(self.ios > 0, "a request under way is counted");
        self.ios -= 1;
        match ticket.op {
            Op::Read => {
                let readers = &mut active.readers[ticket.object.pool as usize];
                *readers = readers.checked_sub(1).expect("a read under way is counted");
            }
            Op::Write => {
                let at = active.writing.iter().position(|parts| *parts == ticket.parts);
                active.writing.swap_remove(at.expect("a write under way is noted"));
            }
        }
        if self.fenced {
            return;
        }
        let settles = done && ticket.op == Op::Write && record.state == State::Fresh;
        if settles && active.step == Step::Idle && !active.drop {
            active.step = Step::Settling;
            self.store(extent, record.settled(), out);
        }
        self.advance(extent, out);
    }

    fn extent_within(&self, io: Io) -> Option<u32> {
        let end = io.offset.checked_add(io.length)?;
        let geometry = self.header.geometry;
        let extent = geometry.extent_of(io.offset);
        let one = io.length > 0 && geometry.extent_of(end - 1) == extent;
        (one && end <= self.served_bytes && extent < self.table.len()).then_some(extent)
    }

    fn first_write(&mut self, extent: u32, io: Io, out: &mut Vec<Action>) -> Admission {
        let generation = self.header.floor + 1;
        if generation > GENERATION_MAX {
            return Admission::Refused(Refusal::Table);
        }
        let fresh = if self.is(Mutant::FreshForgotten) {
            Record::ABSENT.allocated(Pool::Slow, generation).settled()
        } else {
            Record::ABSENT.allocated(Pool::Slow, generation)
        };
        let active = self.active.entry(extent).or_default();
        let first = active.step == Step::Idle;
        assert!(first || active.step == Step::Allocating, "an absent extent does nothing else");
        if first {
            active.step = Step::Allocating;
            self.highest = self.highest.max(generation);
            self.store(extent, fresh, out);
        }
        if self.is(Mutant::FirstWriteEarly) {
            return Admission::Go(self.go(extent, fresh, io));
        }
        self.hold(extent, io)
    }

    fn write(&mut self, extent: u32, record: Record, io: Io) -> Admission {
        let step = self.active.get(&extent).map_or(Step::Idle, |active| active.step);
        if step == Step::Flipping && self.is(Mutant::ReleasedEarly) {
            return Admission::Go(self.go(extent, record.flipped(), io));
        }
        let holds = step.holds() || self.holding.contains_key(&extent);
        if holds && !self.is(Mutant::WritesNotHeld) {
            self.counts.held += 1;
            return self.hold(extent, io);
        }
        Admission::Go(self.go(extent, record, io))
    }

    fn hold(&mut self, extent: u32, io: Io) -> Admission {
        self.active.entry(extent).or_default().held.push(io);
        self.ios += 1;
        Admission::Held
    }

    /// Notes a request that goes to where `record` says the data are.
    fn go(&mut self, extent: u32, record: Record, io: Io) -> Route {
        let geometry = self.header.geometry;
        let object = record.truth(extent).expect("a record that is not absent has an object");
        let within = io.offset - u64::from(extent) * geometry.extent_bytes();
        let part = |byte: u64| (byte / geometry.part_bytes()) as u16;
        let parts = (part(within), part(within + io.length - 1));
        let lost = self.is(Mutant::DirtyBitLost);
        let active = self.active.entry(extent).or_default();
        match io.op {
            Op::Read => active.readers[object.pool as usize] += 1,
            Op::Write => {
                active.writing.push(parts);
                if active.step.follows() && !lost {
                    active.dirty.mark(parts);
                }
            }
        }
        self.ios += 1;
        let may_be_missing = record.state == State::Fresh;
        Route { object, may_be_missing, ticket: Ticket { object, op: io.op, parts } }
    }

    /// Writes that waited go to where the data are now.
    pub(super) fn release(&mut self, extent: u32, out: &mut Vec<Action>) {
        self.release_as(extent, self.table.get(extent), out);
    }

    pub(super) fn release_as(&mut self, extent: u32, record: Record, out: &mut Vec<Action>) {
        for io in self.take_held(extent) {
            let route = self.go(extent, record, io);
            out.push(Action::Release { token: io.token, route });
        }
    }

    /// Writes that waited fail.
    pub(super) fn fail_held(&mut self, extent: u32, why: Refusal, out: &mut Vec<Action>) {
        for io in self.take_held(extent) {
            out.push(Action::Fail { token: io.token, why });
        }
    }

    fn take_held(&mut self, extent: u32) -> Vec<Io> {
        let held =
            self.active.get_mut(&extent).map_or_else(Vec::new, |a| std::mem::take(&mut a.held));
        assert!(self.ios >= held.len(), "held requests are counted");
        self.ios -= held.len();
        held
    }

    /// Goes on with an extent for which requests had to end first, or forgets it.
    pub(super) fn advance(&mut self, extent: u32, out: &mut Vec<Action>) {
        let Some(active) = self.active.get(&extent) else { return };
        match active.step {
            Step::Idle if active.drop && !active.has_io() => self.begin_drop(extent, out),
            Step::Draining | Step::Cleaning => self.issue(extent, out),
            _ => {}
        }
        if self.active.get(&extent).is_some_and(Active::is_over) {
            self.active.remove(&extent);
        }
    }
}
