//! The oracle: knows every write and every read, and judges what a read may return.
//!
//! Time is a *tick*, raised by one with each of these, so that no two fall together; an operation
//! happens at some tick from its submission to its reply. Each sector is a register of its own, and
//! must be linearizable:
//!
//! - a read returns a value that was written, never one that a completed write or an earlier read
//!   proves to be gone (promises 1 and 2);
//! - a failed write, and one in flight at a crash, has happened or has not; the first read decides;
//! - a trim may zero a sector or not; the first read decides;
//! - after a crash the backend decides, once everything has landed: what it holds then is what every
//!   later read returns. That is stricter than "the first read decides", and finds a cached block
//!   that differs from its backend at the first look;
//! - the one excuse: what another writer wrote within the stated window after a crash, or to an
//!   attached volume until the operator invalidates it, may be read as it was before.

mod durability;
mod order;
mod sector;

use crate::stamp::Stamp;
use crate::violation::Violation;
use durability::Durability;
pub use order::Flushed;
use order::Order;
use sector::{Sector, Verdict};
use std::collections::BTreeMap;

/// How a write ended, as far as the contents of its sectors go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged: the sectors hold its values.
    Done,
    /// Failed, or a trim: each sector holds its value or what it held before.
    Perhaps,
    /// Refused: it never began.
    Refused,
}

/// A write as the oracle remembers it until its reply.
#[derive(Clone, Debug)]
pub struct WriteTicket {
    backend: usize,
    first: u64,
    values: Vec<Stamp>,
    submitted: u64,
}

impl WriteTicket {
    /// The tick of its submission.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// What it writes to a sector, if that is one of its own.
    pub(crate) fn value(&self, sector: u64) -> Option<Stamp> {
        let place = sector.checked_sub(self.first)?;
        self.values.get(usize::try_from(place).ok()?).copied()
    }

    /// Sectors written.
    pub fn sectors(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.values.len() as u64
    }
}

/// A read as the oracle remembers it until its reply.
#[derive(Clone, Debug)]
pub struct ReadTicket {
    backend: usize,
    first: u64,
    count: u64,
    submitted: u64,
}

impl ReadTicket {
    /// The tick of its submission.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Sectors wanted.
    pub fn sectors(&self) -> u64 {
        self.count
    }
}

/// Judges reads and flushes.
#[derive(Debug)]
pub struct Oracle {
    backends: Vec<Vec<Option<Box<Sector>>>>,
    durability: Vec<Durability>,
    orders: Vec<Order>,
    /// When sectors went back, last.
    went_back: Vec<BTreeMap<u64, u64>>,
    /// Version that each sector of a backend holds which was never touched.
    untouched: Vec<u64>,
    tick: u64,
    excused: u64,
    /// Submission ticks of reads in flight, and how many have each: what they may still return must be
    /// remembered.
    reading: BTreeMap<u64, u32>,
}

impl Oracle {
    /// An oracle over backends of so many sectors, each holding its stamp of version 0.
    pub fn new(sectors: &[u64]) -> Self {
        let backends = sectors
            .iter()
            .map(|&count| std::iter::repeat_with(|| None).take(count as usize).collect())
            .collect();
        let durability = sectors.iter().map(|_| Durability::default()).collect();
        let orders = sectors.iter().map(|_| Order::default()).collect();
        let went_back = vec![BTreeMap::new(); sectors.len()];
        let untouched = vec![0; sectors.len()];
        let reading = BTreeMap::new();
        Self { backends, durability, orders, went_back, untouched, tick: 0, excused: 0, reading }
    }

    /// Stale sectors that were read where the stated limit excuses it.
    pub fn excused(&self) -> u64 {
        self.excused
    }

    /// The next tick.
    pub fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// A write (zeroes, trim) was submitted.
    pub fn write_submitted(
        &mut self,
        backend: usize,
        first: u64,
        values: Vec<Stamp>,
    ) -> WriteTicket {
        let ticket = self.begin(backend, first, values);
        self.orders[backend].began(first, &ticket.values, ticket.submitted);
        ticket
    }

    fn begin(&mut self, backend: usize, first: u64, values: Vec<Stamp>) -> WriteTicket {
        let submitted = self.tick();
        for (sector, &value) in (first..).zip(&values) {
            self.sector(backend, sector).begin(value, submitted);
        }
        WriteTicket { backend, first, values, submitted }
    }

    /// A backend lost what it had acknowledged and no flush covered, and holds this value now. To
    /// those who have it, that is a write between now and [`Oracle::loss_known`].
    ///
    /// # Errors
    /// [`Violation`] if a flush had covered what is lost.
    pub fn lost(
        &mut self,
        backend: usize,
        sector: u64,
        value: Stamp,
    ) -> Result<WriteTicket, Violation> {
        let ticket = self.begin(backend, sector, vec![value]);
        self.went_back(backend, sector, value, ticket.submitted)?;
        Ok(ticket)
    }

    fn went_back(
        &mut self,
        backend: usize,
        sector: u64,
        value: Stamp,
        now: u64,
    ) -> Result<(), Violation> {
        let order = &mut self.orders[backend];
        order.check(backend, std::iter::once((sector, value)), Flushed::All)?;
        order.went_back(sector, value, now);
        self.went_back[backend].insert(sector, now);
        Ok(())
    }

    /// It was answered, or will never be.
    pub fn write_ended(&mut self, ticket: &WriteTicket, outcome: Outcome) {
        let now = self.end_write(ticket, outcome);
        if outcome == Outcome::Done {
            self.orders[ticket.backend].answered(ticket.sectors(), ticket.submitted, now);
            self.excuses_ended(ticket.backend, ticket.sectors(), now, u64::MAX);
            self.durability[ticket.backend].acknowledged(ticket.first, &ticket.values, now);
        }
    }

    /// A later write of some of the same sectors was acknowledged: this one had happened before that
    /// was carried out, or never will. Overlapping requests are carried out in the order of their
    /// arrival, so it counts as over when the later one was submitted; but not where the backend went
    /// back since, for either may have waited until after that.
    pub fn overtaken(&mut self, ticket: &WriteTicket, later: &WriteTicket) {
        let (backend, now) = (ticket.backend, self.tick());
        let (own, others) = (ticket.sectors(), later.sectors());
        for number in own.start.max(others.start)..own.end.min(others.end) {
            let went_back = self.went_back[backend].get(&number).copied();
            let since = went_back.is_some_and(|tick| tick > later.submitted);
            let by = if since { now } else { later.submitted - 1 };
            self.orders[backend].ended(number..number + 1, ticket.submitted, by, false);
            let value = ticket.values[(number - own.start) as usize];
            let sector = self.sector(backend, number);
            sector.end(value, ticket.submitted, by, Outcome::Perhaps);
        }
    }

    fn end_write(&mut self, ticket: &WriteTicket, outcome: Outcome) -> u64 {
        let now = self.tick();
        let horizon = self.horizon();
        for (sector, &value) in (ticket.first..).zip(&ticket.values) {
            let sector = self.sector(ticket.backend, sector);
            sector.end(value, ticket.submitted, now, outcome);
            sector.forget(horizon);
        }
        let refused = outcome == Outcome::Refused;
        self.orders[ticket.backend].ended(ticket.sectors(), ticket.submitted, now, refused);
        now
    }

    /// A write with FUA succeeded; see [`Oracle::flush_done`].
    ///
    /// # Errors
    /// [`Violation`] if it could be lost.
    pub fn fua_done(
        &mut self,
        ticket: &WriteTicket,
        not_durable: impl Fn(u64) -> Option<Stamp>,
    ) -> Result<(), Violation> {
        self.orders[ticket.backend].cover(ticket.sectors(), ticket.submitted);
        durability::check_durable(ticket.backend, ticket.first, &ticket.values, not_durable)
    }

    /// A read was submitted.
    pub fn read_submitted(&mut self, backend: usize, first: u64, count: u64) -> ReadTicket {
        let submitted = self.tick();
        self.begin_read(ReadTicket { backend, first, count, submitted })
    }

    fn begin_read(&mut self, ticket: ReadTicket) -> ReadTicket {
        *self.reading.entry(ticket.submitted).or_default() += 1;
        ticket
    }

    /// A read was submitted by a host that has not heard of what was written since `then`, a read in
    /// flight: it may return what that one may.
    ///
    /// # Panics
    /// If that read is not in flight.
    pub fn read_submitted_as_of(
        &mut self,
        then: &ReadTicket,
        backend: usize,
        first: u64,
        count: u64,
    ) -> ReadTicket {
        assert!(self.reading.contains_key(&then.submitted), "what it may return is known");
        self.begin_read(ReadTicket { backend, first, count, submitted: then.submitted })
    }

    /// It returned these values.
    ///
    /// # Errors
    /// [`Violation`] if it should not have.
    ///
    /// # Panics
    /// If the number of values is not what was asked for.
    pub fn read_done(&mut self, ticket: &ReadTicket, values: &[Stamp]) -> Result<(), Violation> {
        self.read_done_but(ticket, values, |_| false)
    }

    /// The same, but of some sectors it is not known what they should hold: values must have been written
    /// there one day.
    ///
    /// # Errors
    /// As [`Oracle::read_done`].
    ///
    /// # Panics
    /// If the number of values is not what was asked for.
    pub fn read_done_but(
        &mut self,
        ticket: &ReadTicket,
        values: &[Stamp],
        unknown: impl Fn(u64) -> bool,
    ) -> Result<(), Violation> {
        assert_eq!(values.len() as u64, ticket.count, "the caller cuts out the span");
        let now = self.tick();
        self.read_dropped(ticket);
        let horizon = self.horizon();
        let mut excused = 0;
        for (number, &value) in (ticket.first..).zip(values) {
            if unknown(number) {
                if value != Stamp::ZERO && !value.is_of(ticket.backend, number) {
                    let what = format!("a read returned {value:?}");
                    return Err(Violation::wrong_value(ticket.backend, number, value, what));
                }
                continue;
            }
            let sector = self.sector(ticket.backend, number);
            match sector.observe(value, ticket.submitted, now) {
                Verdict::Right => {}
                Verdict::Excused => excused += 1,
                Verdict::Wrong => {
                    let what = format!(
                        "a read submitted at tick {} and answered at {now} returned {value:?}; \
                         {sector:?}",
                        ticket.submitted
                    );
                    return Err(Violation::wrong_value(ticket.backend, number, value, what));
                }
            }
            sector.forget(horizon);
        }
        self.excused += excused;
        Ok(())
    }

    /// It failed, or will never be answered.
    pub fn read_dropped(&mut self, ticket: &ReadTicket) {
        if let Some(count) = self.reading.get_mut(&ticket.submitted) {
            *count -= 1;
            if *count == 0 {
                self.reading.remove(&ticket.submitted);
            }
        }
    }

    /// A flush was submitted: the tick that [`Oracle::flush_done`] wants.
    pub fn flush_submitted(&mut self) -> u64 {
        self.tick()
    }

    /// A flush submitted at that tick succeeded. `not_durable(sector)` tells the newest value the
    /// backend has completed there but could still lose.
    ///
    /// # Errors
    /// [`Violation`] if a write answered before that tick could be lost.
    pub fn flush_done(
        &mut self,
        backend: usize,
        submitted: u64,
        not_durable: impl Fn(u64) -> Option<Stamp>,
    ) -> Result<(), Violation> {
        self.orders[backend].flushed(submitted);
        self.durability[backend].flushed(backend, submitted, not_durable)
    }

    /// Another writer wrote these values to a backend, durably.
    pub fn written_behind(&mut self, backend: usize, first: u64, values: Vec<Stamp>) {
        self.durability[backend].overwritten(first..first + values.len() as u64);
        let ticket = self.write_submitted(backend, first, values);
        self.end_write(&ticket, Outcome::Done);
        self.orders[backend].cover(ticket.sectors(), ticket.submitted);
    }

    /// The owner of the backend knows by now that it went back to the values of this write.
    pub fn loss_known(&mut self, ticket: &WriteTicket) {
        self.end_write(ticket, Outcome::Done);
    }

    /// The process that had this backend is gone, and everything has landed: it holds `contents`,
    /// and that is the truth from now on. `reverted` sectors went back in a power cut: to nothing
    /// older than what a flush had covered.
    ///
    /// # Errors
    /// [`Violation`] if an acknowledged write is not there.
    pub fn settled(
        &mut self,
        backend: usize,
        contents: &[Stamp],
        reverted: &[u64],
    ) -> Result<(), Violation> {
        let now = self.tick();
        let horizon = self.horizon();
        for &number in reverted {
            let value = contents[number as usize];
            self.went_back(backend, number, value, now)?;
            self.sector(backend, number).reset(value, now);
        }
        for (number, &value) in (0..).zip(contents) {
            let Some(sector) = &mut self.backends[backend][number as usize] else { continue };
            if sector.observe(value, now, now) == Verdict::Wrong {
                let what = format!("after a crash the backend holds {value:?}; {sector:?}");
                return Err(Violation::wrong_value(backend, number, value, what));
            }
            sector.forget(horizon);
        }
        Ok(())
    }

    /// It was not known what this sector should hold: it holds this from now on, or what a write in flight
    /// brings.
    pub fn decided(&mut self, backend: usize, sector: u64, value: Stamp) {
        let now = self.tick();
        self.durability[backend].overwritten(sector..sector + 1);
        self.orders[backend].went_back(sector, value, now);
        self.sector(backend, sector).decide(value, now);
    }

    /// Until they are written again, reads of these sectors may return these values too.
    pub fn excuse(&mut self, backend: usize, first: u64, values: &[Stamp]) {
        let now = self.tick();
        for (sector, &value) in (first..).zip(values) {
            self.sector(backend, sector).excuse(value, now);
        }
    }

    /// Reads of these sectors submitted from now on have no excuse any more, for what was there when
    /// that was `asked` for: a part of an invalidation may be done long before the whole is answered,
    /// and what is written behind it is not its concern.
    pub fn end_excuses(&mut self, backend: usize, sectors: std::ops::Range<u64>, asked: u64) {
        let now = self.tick();
        self.excuses_ended(backend, sectors, now, asked);
    }

    fn excuses_ended(
        &mut self,
        backend: usize,
        sectors: std::ops::Range<u64>,
        now: u64,
        asked: u64,
    ) {
        let sectors = sectors.start as usize..sectors.end as usize;
        for sector in self.backends[backend][sectors].iter_mut().flatten() {
            sector.end_excuse(now, asked);
        }
    }

    /// The version that each sector of a backend holds which was never touched.
    pub fn untouched(&self, backend: usize) -> u64 {
        self.untouched[backend]
    }

    /// A backend became larger: what is new holds its stamps of the version of the rest.
    pub fn grow(&mut self, backend: usize, sectors: u64) {
        self.backends[backend].resize_with(sectors as usize, || None);
    }

    /// A backend was created again: each sector holds its stamp of this version.
    pub fn recreated(&mut self, backend: usize, version: u64) {
        self.backends[backend].fill_with(|| None);
        self.durability[backend] = Durability::default();
        self.orders[backend].forget();
        self.untouched[backend] = version;
    }

    fn horizon(&self) -> u64 {
        self.reading.keys().next().copied().unwrap_or(self.tick + 1)
    }

    fn sector(&mut self, backend: usize, sector: u64) -> &mut Sector {
        let version = self.untouched[backend];
        self.backends[backend][sector as usize]
            .get_or_insert_with(|| Box::new(Sector::holding(Stamp::new(backend, sector, version))))
    }
}
