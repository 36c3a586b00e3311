//! Writes that were answered as failed, but may still happen: their I/O is under way.
//!
//! Until all of it has ended a read may return the old value or the new one. What the cache
//! promises even then is the order of arrival: a later request of the same blocks waits until
//! nothing of an earlier one can land any more.

use crate::driver::io::Flight;
use crate::driver::world::World;
use crate::machine::Factory;
use crate::oracle::{Outcome, WriteTicket};
use crate::stamp::{Stamp, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_engine::RequestId;

/// Such a write.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) volume: usize,
    pub(super) ticket: WriteTicket,
    /// I/O on its sectors that is under way: its own, and that of later requests which have its
    /// sectors already.
    flights: Vec<u64>,
    /// Those of them that are its own for certain.
    own: Vec<u64>,
    /// Later writes of the same sectors, under way when it was answered.
    followers: Vec<RequestId>,
}

impl Doubt {
    fn is_settled(&self) -> bool {
        self.flights.is_empty() && self.followers.is_empty()
    }
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// A write was answered as failed.
    pub(super) fn doubt(&mut self, volume: usize, ticket: &WriteTicket) {
        let sectors = ticket.sectors();
        let there = self.flights.values().filter(|flight| flight.writes_on(volume, &sectors));
        let mut flights: Vec<u64> = there.clone().map(|flight| flight.born).collect();
        flights.extend(self.qos_queues.writes_on(volume, &sectors));
        let own = there.filter(|flight| self.is_of(flight, volume, ticket));
        let own = own.map(|flight| flight.born).collect();
        let follows = |later: &WriteTicket| {
            let (range, after) = (later.sectors(), later.submitted() > ticket.submitted());
            after && range.start < sectors.end && sectors.start < range.end
        };
        let pending = self.pending.iter().filter(|(_, pending)| pending.volume == volume);
        let followers = pending.filter(|(_, pending)| pending.write().is_some_and(follows));
        let followers = followers.map(|(id, _)| *id).collect();
        let doubt = Doubt { volume, ticket: ticket.clone(), flights, own, followers };
        self.doubtful.push(doubt);
        self.settle();
    }

    /// Does this write to its volume write what this ticket says? Of zeroes that several requests
    /// ask for it can't be known.
    fn is_of(&self, flight: &Flight, volume: usize, ticket: &WriteTicket) -> bool {
        let Some((sector, value)) = flight.first_written(&ticket.sectors()) else { return false };
        let zeroes = |other: &WriteTicket| {
            other.submitted() != ticket.submitted() && other.value(sector) == Some(Stamp::ZERO)
        };
        let doubtful = self.doubtful.iter().map(|doubt| (doubt.volume, &doubt.ticket));
        let pending = self.pending.values();
        let pending = pending.filter_map(|pending| Some((pending.volume, pending.write()?)));
        ticket.value(sector) == Some(value)
            && (value != Stamp::ZERO
                || !doubtful.chain(pending).any(|(of, other)| of == volume && zeroes(other)))
    }

    /// A write was acknowledged, so what arrived before it on its blocks has ended.
    pub(super) fn overtake(&mut self, volume: usize, later: &WriteTicket) -> Result<(), Violation> {
        // Doubles of the engine, which know no time-outs, carry such requests out side by side.
        if !self.features().time_outs {
            return Ok(());
        }
        let (range, oracle) = (later.sectors(), &mut self.oracle);
        for doubt in &self.doubtful {
            let own = doubt.ticket.sectors();
            let meets = own.start < range.end && range.start < own.end;
            if doubt.volume != volume || !meets || doubt.ticket.submitted() > later.submitted() {
                continue;
            }
            let both = own.start.max(range.start)..own.end.min(range.end);
            let flights = self.flights.values().filter(|flight| flight.writes_on(volume, &both));
            if flights.into_iter().any(|flight| doubt.own.contains(&flight.born)) {
                let what = "a write was acknowledged while an earlier one, which was answered as \
                            failed, may still land on it";
                return Err(Violation::at(Kind::Stale, volume, both.start, what));
            }
            oracle.overtaken(&doubt.ticket, later);
        }
        Ok(())
    }

    /// I/O of a backend has ended.
    pub(super) fn settle_flown(&mut self, born: u64) {
        for doubt in &mut self.doubtful {
            doubt.flights.retain(|flight| *flight != born);
        }
        self.settle();
    }

    /// A request was answered.
    pub(super) fn settle_followed(&mut self, id: RequestId) {
        for doubt in &mut self.doubtful {
            doubt.followers.retain(|follower| *follower != id);
        }
        self.settle();
    }

    /// The machine is gone.
    pub(super) fn settle_all(&mut self) {
        for doubt in std::mem::take(&mut self.doubtful) {
            self.oracle.write_ended(&doubt.ticket, Outcome::Perhaps);
        }
    }

    fn settle(&mut self) {
        let oracle = &mut self.oracle;
        self.doubtful.retain(|doubt| {
            let settled = doubt.is_settled();
            if settled {
                oracle.write_ended(&doubt.ticket, Outcome::Perhaps);
            }
            !settled
        });
    }
}
