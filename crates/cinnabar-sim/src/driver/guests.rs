//! Guests: their volumes, what they submit, and what becomes of it.
//!
//! Called by the world.

use crate::dice::Dice;
use crate::driver::agenda::Item;
use crate::driver::log::sectors_of;
use crate::driver::world::World;
use crate::kinds::Path;
use crate::machine::Factory;
use crate::oracle::{Outcome, ReadTicket, WriteTicket};
use crate::stamp::{BLOCK_SECTORS, Stamp, Stamped};
use crate::violation::{Kind, Violation};
use crate::workload::{Guest, Plea, VolumeProfile};
use cinnabar_engine::plan::Mode;
use cinnabar_engine::units::{ByteSpan, Instant, SECTOR_BYTES, VolumeId};
use cinnabar_engine::{Answer, Event, Failure, Op, Payload, Reply, Request, RequestId};
use std::ops::Range;

/// A frontend is done with a reply's buffer after at most this long.
const SENDING_NS_MAX: u64 = 100_000;

/// Where a volume stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Away,
    Attaching,
    Attached,
    Detaching,
    Sealing,
    Forgetting,
}

/// What a volume's guest was served since the volume was attached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    pub(super) attaches: u64,
    pub(super) failures: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) flushes: u64,
    pub(super) trims: u64,
    pub(super) zeroes: u64,
    pub(super) blocks_read: u64,
    pub(super) blocks_written: u64,
}

/// A volume as the driver sees it.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) guest: Guest,
    pub(super) state: State,
    pub(super) id: Option<VolumeId>,
    pub(super) mode: Mode,
    pub(super) served: Served,
    /// Errors injected on its backend so far.
    pub(super) errors: u64,
    /// I/O of its backend that is overdue now.
    pub(super) overdue: u64,
    /// Until when its backend answers nothing.
    pub(super) stalled: Instant,
    /// Its blocks of an earlier life are believed.
    pub(super) believed: bool,
    /// Its backend can't prove anything, in this attachment.
    pub(super) forgetful: bool,
    /// Request slots in use or about to be.
    slots: u64,
    /// Version of the newest write.
    pub(super) version: u64,
}

impl Volume {
    pub(super) fn new(dice: &mut Dice, profile: &VolumeProfile) -> Self {
        Self {
            guest: Guest::new(dice, profile.guest.clone(), profile.sectors, profile.read_only),
            state: State::Away,
            id: None,
            mode: profile.mode,
            served: Served::default(),
            errors: 0,
            overdue: 0,
            stalled: Instant(0),
            believed: false,
            forgetful: false,
            slots: 0,
            version: 0,
        }
    }

    /// The engine is gone.
    pub(super) fn reset(&mut self) {
        self.state = State::Away;
        self.id = None;
        self.overdue = 0;
        self.slots = 0;
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Pending {
    volume: usize,
    asked: Asked,
    /// The failure it must meet.
    refusal: Option<Failure>,
    /// Errors injected on the backend when it was submitted.
    errors_before: u64,
}

#[derive(Debug)]
enum Asked {
    Read { ticket: ReadTicket, span: ByteSpan },
    Write { ticket: WriteTicket, span: ByteSpan, data: Stamped, values: Vec<Stamp>, fua: bool },
    Zeroes { ticket: WriteTicket },
    Trim { ticket: WriteTicket },
    Flush { tick: u64 },
    Invalidate { span: ByteSpan },
    Nonsense,
}

/// A read's buffer on its way to the guest.
#[derive(Debug)]
pub(super) struct Sent {
    data: Stamped,
    first: usize,
    values: Vec<Stamp>,
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// Gives the guest of a volume its request slots.
    pub(super) fn arm(&mut self, volume: usize) {
        let depth = self.volumes[volume].guest.profile().depth;
        for _ in self.volumes[volume].slots..depth {
            self.soon(1_000_000, Item::Arrive(volume));
        }
        self.volumes[volume].slots = self.volumes[volume].slots.max(depth);
    }

    /// A slot is free: something happens, or the guest asks for something.
    pub(super) fn arrive(&mut self, volume: usize) {
        if self.quota > 0 {
            self.disturb(volume);
        }
        let attached = self.volumes[volume].state == State::Attached;
        let leaving = matches!(self.volumes[volume].state, State::Detaching | State::Sealing);
        if self.is_loading() {
            self.count.paths.add(Path::RequestsWhileLoading);
        }
        let heard = attached || leaving && self.features().refusals && self.dice.chance(0.2);
        if self.quota == 0 || !heard {
            self.volumes[volume].slots -= 1;
            return;
        }
        self.quota -= 1;
        self.count.requests += 1;
        if let Some(refusal) = self.volumes[volume].guest.refusal(&mut self.dice) {
            let failure = if attached { Failure::Invalid } else { Failure::NoVolume };
            self.submit_nonsense(volume, refusal.span, refusal.trim, failure);
            return;
        }
        let refusal = (!attached).then_some(Failure::NoVolume);
        if self.profile.volumes[volume].read_only
            && self.features().refusals
            && self.dice.chance(0.03)
        {
            let plea = self.volumes[volume].guest.forbidden(&mut self.dice);
            return self.submit(volume, plea, refusal.or(Some(Failure::ReadOnly)));
        }
        let plea = self.volumes[volume].guest.next(&mut self.dice);
        self.submit(volume, plea, refusal);
    }

    /// Reads on the driver's own account, beside the guest's slots.
    pub(super) fn look(&mut self, volume: usize, span: ByteSpan) {
        self.volumes[volume].slots += 1;
        self.submit(volume, Plea::Read(span), None);
    }

    /// Submits what a guest asks for.
    fn submit(&mut self, volume: usize, plea: Plea, refusal: Option<Failure>) {
        let (asked, op) = match plea {
            Plea::Read(span) => {
                let sectors = sectors_of(span);
                let count = sectors.end - sectors.start;
                let ticket = self.oracle.read_submitted(volume, sectors.start, count);
                let data = Stamped::alloc(span.blocks() as u32);
                (Asked::Read { ticket, span }, Op::Read { span, data })
            }
            Plea::Write(span, fua) => self.prepare_write(volume, span, fua),
            Plea::Trim(span, fua) => {
                let ticket = self.zeroing(volume, span);
                (Asked::Trim { ticket }, Op::Trim { span, fua })
            }
            Plea::Zeroes(span, fua, may_punch) => {
                let ticket = self.zeroing(volume, span);
                (Asked::Zeroes { ticket }, Op::WriteZeroes { span, fua, may_punch })
            }
            Plea::Flush => (Asked::Flush { tick: self.oracle.flush_submitted() }, Op::Flush),
        };
        self.enter(volume, asked, op, refusal);
    }

    /// The operator says that somebody else wrote these bytes; beside the guest's slots, too.
    pub(super) fn submit_invalidate(&mut self, volume: usize, span: ByteSpan) {
        self.volumes[volume].slots += 1;
        self.enter(volume, Asked::Invalidate { span }, Op::Invalidate { span }, None);
    }

    /// Is a guest's write to these sectors under way?
    pub(super) fn is_being_written(&self, volume: usize, sectors: &Range<u64>) -> bool {
        let touches = |ticket: &WriteTicket| {
            let written = ticket.sectors();
            written.start < sectors.end && sectors.start < written.end
        };
        let doubtful = self.doubtful.iter().map(|(volume, ticket)| (*volume, ticket));
        let pending = self.pending.values().filter_map(|pending| match &pending.asked {
            Asked::Write { ticket, .. } | Asked::Zeroes { ticket } | Asked::Trim { ticket } => {
                Some((pending.volume, ticket))
            }
            _ => None,
        });
        doubtful.chain(pending).any(|(of, ticket)| of == volume && touches(ticket))
    }

    fn prepare_write(&mut self, volume: usize, span: ByteSpan, fua: bool) -> (Asked, Op<Stamped>) {
        self.volumes[volume].version += 1;
        let version = self.volumes[volume].version;
        let values: Vec<Stamp> =
            sectors_of(span).map(|sector| Stamp::new(volume, sector, version)).collect();
        let data = Stamped::alloc(span.blocks() as u32);
        data.set((span.head_bytes() / SECTOR_BYTES) as usize, &values);
        let ticket =
            self.oracle.write_submitted(volume, span.offset / SECTOR_BYTES, values.clone());
        let op = Op::Write { span, data: data.clone(), fua };
        (Asked::Write { ticket, span, data, values, fua }, op)
    }

    fn zeroing(&mut self, volume: usize, span: ByteSpan) -> WriteTicket {
        let sectors = sectors_of(span);
        let values = vec![Stamp::ZERO; (sectors.end - sectors.start) as usize];
        self.oracle.write_submitted(volume, sectors.start, values)
    }

    fn submit_nonsense(&mut self, volume: usize, span: ByteSpan, trim: bool, failure: Failure) {
        let op = if trim && !self.profile.volumes[volume].read_only {
            Op::Trim { span, fua: false }
        } else {
            Op::Read { span, data: Stamped::alloc(1) }
        };
        self.enter(volume, Asked::Nonsense, op, Some(failure));
    }

    fn enter(&mut self, volume: usize, asked: Asked, op: Op<Stamped>, refusal: Option<Failure>) {
        let id = RequestId(self.number());
        let place = match &op {
            Op::Flush => None,
            Op::Read { span, .. }
            | Op::Write { span, .. }
            | Op::Trim { span, .. }
            | Op::WriteZeroes { span, .. }
            | Op::Invalidate { span } => Some((volume, sectors_of(*span))),
        };
        self.log.note(self.now, place, || format!("submit {id:?} on volume {volume}: {op:?}"));
        let errors_before = self.volumes[volume].errors;
        self.pending.insert(id, Pending { volume, asked, refusal, errors_before });
        let volume = self.volumes[volume].id.expect("a volume that was attached has an index");
        self.batch.push(Event::Submit(Request { id, volume, op }));
    }

    /// The machine answers a request or a command.
    pub(super) fn replied(&mut self, reply: Reply<Stamped>) -> Result<(), Violation> {
        if let Some(control) = self.controls.remove(&reply.id) {
            return self.command_replied(control, reply.result);
        }
        let Some(pending) = self.pending.remove(&reply.id) else {
            let what = format!("an answer to nothing: {reply:?}");
            return Err(Violation::new(Kind::WrongReply, what));
        };
        let volume = pending.volume;
        let place = match &pending.asked {
            Asked::Read { span, .. } | Asked::Write { span, .. } => {
                Some((volume, sectors_of(*span)))
            }
            _ => None,
        };
        self.log.note(self.now, place, || format!("reply {:?}: {:?}", reply.id, reply.result));
        match reply.result {
            Ok(answer) => self.succeeded(pending, answer)?,
            Err(failure) => self.failed(&pending, failure)?,
        }
        let think_ns_max = self.volumes[volume].guest.profile().think_ns_max;
        self.soon(think_ns_max, Item::Arrive(volume));
        Ok(())
    }

    fn succeeded(&mut self, pending: Pending, answer: Answer<Stamped>) -> Result<(), Violation> {
        let volume = pending.volume;
        if let Some(refusal) = pending.refusal {
            let what = format!("{:?} succeeded instead of failing: {refusal}", pending.asked);
            return Err(Violation::new(Kind::WrongReply, what));
        }
        let served = &mut self.volumes[volume].served;
        let backend = &self.media.backends[volume];
        let not_durable = |sector| backend.not_durable(sector);
        match (pending.asked, answer) {
            (Asked::Read { ticket, span }, Answer::Data(data)) => {
                served.reads += 1;
                served.blocks_read += span.blocks();
                self.judge(&ticket, span, data)?;
            }
            (Asked::Write { ticket, span, data, values, fua }, Answer::Data(_)) => {
                served.writes += 1;
                served.blocks_written += span.blocks();
                check_kept(&data, span, &values)?;
                if fua {
                    self.oracle.fua_done(&ticket, not_durable)?;
                }
                self.oracle.write_ended(&ticket, Outcome::Done);
            }
            (Asked::Zeroes { ticket }, Answer::Done) => {
                served.zeroes += 1;
                self.oracle.write_ended(&ticket, Outcome::Done);
            }
            (Asked::Trim { ticket }, Answer::Done) => {
                served.trims += 1;
                self.oracle.write_ended(&ticket, Outcome::Perhaps);
            }
            (Asked::Flush { tick }, Answer::Done) => {
                served.flushes += 1;
                self.oracle.flush_done(volume, tick, not_durable)?;
            }
            (Asked::Invalidate { span }, Answer::Done) => {
                self.oracle.end_excuses(volume, sectors_of(span));
            }
            (asked, answer) => {
                let what = format!("{answer:?} is no answer to {asked:?}");
                return Err(Violation::new(Kind::WrongReply, what));
            }
        }
        Ok(())
    }

    fn judge(
        &mut self,
        ticket: &ReadTicket,
        span: ByteSpan,
        data: Stamped,
    ) -> Result<(), Violation> {
        if data.sectors() as u64 != span.blocks() * BLOCK_SECTORS as u64 {
            let what = format!("{data:?} came back for {span:?}");
            return Err(Violation::new(Kind::WrongReply, what));
        }
        let first = (span.head_bytes() / SECTOR_BYTES) as usize;
        let values = data.get(first, ticket.sectors() as usize);
        self.count.sectors_judged += ticket.sectors();
        self.oracle.read_done(ticket, &values)?;
        let number = self.number();
        self.sent.insert(number, Sent { data, first, values });
        self.soon(SENDING_NS_MAX, Item::Sent(number));
        Ok(())
    }

    fn failed(&mut self, pending: &Pending, failure: Failure) -> Result<(), Violation> {
        let volume = &mut self.volumes[pending.volume];
        let expected = match (pending.refusal, failure) {
            (Some(refusal), failure) => refusal == failure,
            (None, Failure::Io(_)) => volume.errors > pending.errors_before,
            (None, _) => false,
        };
        if !expected {
            let what = format!(
                "{:?} failed with {failure:?}; the refusal it had to meet: {:?}; no backend error",
                pending.asked, pending.refusal
            );
            return Err(Violation::new(Kind::WrongReply, what));
        }
        let outcome = if pending.refusal.is_some() {
            self.count.refused += 1;
            Outcome::Refused
        } else {
            volume.served.failures += 1;
            self.count.failed += 1;
            Outcome::Perhaps
        };
        self.end_of_hope(pending, outcome);
        Ok(())
    }

    fn end_of_hope(&mut self, pending: &Pending, outcome: Outcome) {
        match &pending.asked {
            Asked::Read { ticket, .. } => self.oracle.read_dropped(ticket),
            Asked::Write { ticket, .. } | Asked::Zeroes { ticket } | Asked::Trim { ticket } => {
                if outcome == Outcome::Perhaps && self.volumes[pending.volume].overdue > 0 {
                    // It may still be on its way.
                    return self.doubtful.push((pending.volume, ticket.clone()));
                }
                self.oracle.write_ended(ticket, outcome);
            }
            Asked::Flush { .. } | Asked::Invalidate { .. } | Asked::Nonsense => {}
        }
    }

    /// The machine is gone: nothing under way will be answered.
    pub(super) fn despair(&mut self) {
        self.volumes.iter_mut().for_each(|volume| volume.overdue = 0);
        for (_, ticket) in std::mem::take(&mut self.doubtful) {
            self.oracle.write_ended(&ticket, Outcome::Perhaps);
        }
        for pending in std::mem::take(&mut self.pending).into_values() {
            let refused = pending.refusal.is_some();
            let outcome = if refused { Outcome::Refused } else { Outcome::Perhaps };
            self.end_of_hope(&pending, outcome);
        }
    }

    /// The frontend has sent a read's data: they must still be what they were at the reply.
    pub(super) fn check_sent(&mut self, number: u64) -> Result<(), Violation> {
        let sent = self.sent.remove(&number).expect("a buffer is sent once");
        if sent.data.get(sent.first, sent.values.len()) == sent.values {
            return Ok(());
        }
        let what = "the buffer of a read changed after the reply".to_owned();
        Err(Violation::new(Kind::TouchedBuffer, what))
    }
}

/// A write's data must be what the guest gave, to the end.
fn check_kept(data: &Stamped, span: ByteSpan, values: &[Stamp]) -> Result<(), Violation> {
    let first = (span.head_bytes() / SECTOR_BYTES) as usize;
    if data.get(first, values.len()) == values {
        return Ok(());
    }
    let what = format!("the data of the write of {span:?} changed under way");
    Err(Violation::new(Kind::TouchedBuffer, what))
}
