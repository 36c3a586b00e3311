//! Guests: their volumes, what they submit, and what becomes of it.

use crate::driver::agenda::Item;
use crate::driver::log::sectors_of;
use crate::driver::replay::Ledger;
use crate::driver::world::World;
use crate::kinds::Path;
use crate::machine::Factory;
use crate::oracle::{ReadTicket, WriteTicket};
use crate::rng::Rng;
use crate::stamp::{Stamp, Stamped};
use crate::workload::{Guest, Plea, VolumeProfile, Wanted};
use cinnabar_driver::{Phase, VolumeLife};
use cinnabar_engine::plan::Mode;
use cinnabar_engine::units::{ByteSpan, Instant, SECTOR_BYTES, VolumeId};
use cinnabar_engine::{Event, Failure, Op, Payload, Request, RequestId};
use std::ops::Range;

/// Where a volume stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Away,
    Attaching,
    Attached,
    Leaving,
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
    /// Its life in the machine; `None`: it is away.
    pub(super) life: Option<VolumeLife>,
    /// While it is away: the machine is asked to forget it.
    pub(super) forgetting: bool,
    pub(super) mode: Mode,
    pub(super) served: Served,
    /// Errors injected on its backend so far.
    pub(super) errors: u64,
    /// A flush of its backend failed in this attachment.
    pub(super) sync_failed: bool,
    /// So every later one fails: the driver says so, for other shards have not heard of it.
    pub(super) sticks: bool,
    /// When the time of one of its requests or I/Os was over last, in this attachment.
    pub(super) time_up: Option<Instant>,
    /// Its backend answers nothing: the number of this silence.
    pub(super) silent: Option<u64>,
    /// Its backend was larger one day than it is now taken for, or has been made so.
    pub(super) resized: bool,
    /// Until when its backend answers nothing.
    pub(super) stalled: Instant,
    /// Its blocks of an earlier session are believed.
    pub(super) believed: bool,
    /// Its backend can't prove anything, in this attachment.
    pub(super) forgetful: bool,
    /// What the shards call it, or called it when it was attached last.
    pub(super) names: Vec<VolumeId>,
    pub(super) ledger: Ledger,
    /// Request slots in use or about to be.
    slots: u64,
    /// Version of the newest write.
    pub(super) version: u64,
}

impl Volume {
    pub(super) fn new(rng: &mut Rng, profile: &VolumeProfile) -> Self {
        Self {
            guest: Guest::new(rng, profile.guest.clone(), profile.sectors, profile.read_only),
            life: None,
            forgetting: false,
            mode: profile.mode,
            served: Served::default(),
            errors: 0,
            sync_failed: false,
            sticks: false,
            time_up: None,
            silent: None,
            resized: false,
            stalled: Instant(0),
            believed: false,
            forgetful: false,
            names: Vec::new(),
            ledger: Ledger::default(),
            slots: 0,
            version: 0,
        }
    }

    /// Where it stands.
    pub(super) fn state(&self) -> State {
        match self.life.as_ref().map(VolumeLife::phase) {
            None if self.forgetting => State::Forgetting,
            None => State::Away,
            Some(Phase::Attaching) => State::Attaching,
            Some(Phase::Serving) => State::Attached,
            Some(Phase::Leaving | Phase::Gone) => State::Leaving,
        }
    }

    /// The machine's name for it.
    pub(super) fn id(&self) -> Option<VolumeId> {
        self.life.as_ref().and_then(VolumeLife::id)
    }

    /// The engine is gone.
    pub(super) fn reset(&mut self) {
        (self.life, self.forgetting) = (None, false);
        self.names.clear();
        self.time_up = None;
        self.silent = None;
        self.slots = 0;
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) volume: usize,
    pub(super) asked: Asked,
    /// What the guest asked for; `None`: another writer did.
    pub(super) plea: Option<Plea>,
    /// The failure it must meet.
    pub(super) refusal: Option<Failure>,
    /// Errors injected on the backend when it was submitted.
    pub(super) errors_before: u64,
    /// A flush had failed by then, so every later one fails.
    pub(super) sync_failed: bool,
    /// When it was submitted.
    pub(super) arrived: Instant,
    /// The machine was told that its time is over.
    pub(super) late: bool,
    /// So much of its volume may be late that it is refused.
    pub(super) crowded: bool,
    /// There may be so many requests that it is refused.
    pub(super) beside_others: bool,
}

impl Pending {
    /// Its volume and kind, for the report of a run that is stuck.
    pub(super) fn summary(&self) -> (usize, &'static str) {
        let kind = match self.asked {
            Asked::Read { .. } => "read",
            Asked::Write { .. } => "write",
            Asked::Zeroes { .. } => "zeroes",
            Asked::Trim { .. } => "trim",
            Asked::Flush { .. } => "flush",
            Asked::Invalidate { .. } => "invalidate",
            Asked::Nonsense => "nonsense",
            Asked::Unasked => "unasked",
        };
        (self.volume, kind)
    }

    pub(super) fn write(&self) -> Option<&WriteTicket> {
        match &self.asked {
            Asked::Write { ticket, .. } | Asked::Zeroes { ticket, .. } | Asked::Trim { ticket } => {
                Some(ticket)
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Asked {
    Read {
        ticket: ReadTicket,
        span: ByteSpan,
    },
    Write {
        ticket: WriteTicket,
        span: ByteSpan,
        data: Stamped,
        values: Vec<Stamp>,
        fua: bool,
    },
    Zeroes {
        ticket: WriteTicket,
        fua: bool,
    },
    Trim {
        ticket: WriteTicket,
    },
    Flush {
        tick: u64,
    },
    Invalidate {
        span: ByteSpan,
        /// What the backend lost there.
        losses: Vec<WriteTicket>,
        /// When.
        asked: u64,
    },
    Nonsense,
    /// A write that no guest waits for: a frontend mixed something up.
    Unasked,
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
            self.disturb_waits(volume);
        }
        let attached = self.volumes[volume].state() == State::Attached;
        let leaving = self.volumes[volume].state() == State::Leaving;
        if self.is_loading() {
            self.count.paths.add(Path::RequestsWhileLoading);
        }
        let heard = attached || leaving && self.features().refusals && self.rng.chance(0.2);
        // What was asked beside its slots leaves none behind.
        let beside = self.volumes[volume].slots > self.volumes[volume].guest.profile().depth;
        if self.quota == 0 || !heard || beside {
            self.volumes[volume].slots -= 1;
            return;
        }
        self.quota -= 1;
        self.count.requests += 1;
        let growing = self.is_growing(volume);
        let refusal = self.volumes[volume].guest.refusal(&mut self.rng);
        if let Some(refusal) = refusal.filter(|_| !growing) {
            let failure = if attached { Failure::Invalid } else { Failure::NoVolume };
            self.submit_nonsense(volume, refusal.span, refusal.trim, failure);
            return;
        }
        let refusal = (!attached).then_some(Failure::NoVolume);
        if self.profile.volumes[volume].read_only
            && self.features().refusals
            && self.rng.chance(0.03)
        {
            let plea = self.volumes[volume].guest.forbidden(&mut self.rng);
            self.submit(volume, plea, refusal.or(Some(Failure::ReadOnly)));
            return;
        }
        let plea = self.volumes[volume].guest.next(&mut self.rng);
        let number = self.submit(volume, plea, refusal);
        self.await_answer(volume, number);
    }

    /// The guest of a volume asks for this at once, beside its slots, if it can.
    pub(super) fn demand_of(&mut self, volume: usize, wanted: Wanted) -> bool {
        if !self.takes(volume, wanted) {
            return false;
        }
        let plea = self.volumes[volume].guest.asks(&mut self.steering.rng, wanted);
        self.quota -= 1;
        self.demand_this(volume, plea)
    }

    /// The guest of a volume asks for a block or a few, beside what it would ask for, if it can.
    pub(super) fn demand_small(&mut self, volume: usize, wanted: Wanted) -> bool {
        if !self.takes(volume, wanted) {
            return false;
        }
        let plea = self.volumes[volume].guest.asks_little(&mut self.steering.rng, wanted);
        self.demand_this(volume, plea)
    }

    /// Is a volume attached, and are such requests of it allowed?
    fn takes(&self, volume: usize, wanted: Wanted) -> bool {
        let refused = wanted.writes() && self.profile.volumes[volume].read_only;
        self.is_attached(volume) && !refused && wanted.is_allowed(&self.profile.features)
    }

    /// The guest of a volume asks for this at once, beside what it would ask for, if it can.
    pub(super) fn demand_this(&mut self, volume: usize, plea: Plea) -> bool {
        let known = &mut self.volumes[volume];
        if known.state() != State::Attached {
            return false;
        }
        known.slots += 1;
        self.count.requests += 1;
        let number = self.submit(volume, plea, None);
        self.await_answer(volume, number);
        true
    }

    /// Reads on the driver's own account, beside the guest's slots; it waits however long it takes.
    pub(super) fn look(&mut self, volume: usize, span: ByteSpan) {
        self.volumes[volume].slots += 1;
        self.submit(volume, Plea::Read(span), None);
    }

    /// Submits what a guest asks for.
    fn submit(&mut self, volume: usize, plea: Plea, refusal: Option<Failure>) -> u64 {
        self.note_change(plea);
        let (asked, op) = self.prepare(volume, plea);
        self.volumes[volume].ledger.asked();
        self.enter(volume, asked, op, Some(plea), refusal)
    }

    /// Tells the oracle what a guest asks for, and makes the request.
    pub(super) fn prepare(&mut self, volume: usize, plea: Plea) -> (Asked, Op<Stamped>) {
        match plea {
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
                (Asked::Zeroes { ticket, fua }, Op::WriteZeroes { span, fua, may_punch })
            }
            Plea::Flush => (Asked::Flush { tick: self.oracle.flush_submitted() }, Op::Flush),
        }
    }

    /// A request of before a crash, once more.
    pub(super) fn enter_replayed(
        &mut self,
        volume: usize,
        asked: Asked,
        op: Op<Stamped>,
        plea: Option<Plea>,
    ) {
        self.volumes[volume].slots += 1;
        let number = self.enter(volume, asked, op, plea, None);
        self.await_answer(volume, number);
    }

    /// The operator says that another writer wrote these bytes; beside the guest's slots, too.
    pub(super) fn submit_invalidate(&mut self, volume: usize, span: ByteSpan) {
        let number = self.submit_loss(volume, span, Vec::new());
        self.await_answer(volume, number);
    }

    /// The driver says that these bytes may have changed, and what of them has. That must be heard,
    /// however long it takes.
    pub(super) fn submit_loss(
        &mut self,
        volume: usize,
        span: ByteSpan,
        losses: Vec<WriteTicket>,
    ) -> u64 {
        self.volumes[volume].slots += 1;
        let asked = Asked::Invalidate { span, losses, asked: self.oracle.tick() };
        self.enter(volume, asked, Op::Invalidate { span }, None, None)
    }

    /// Is a guest's write to these sectors under way?
    pub(super) fn is_being_written(&self, volume: usize, sectors: &Range<u64>) -> bool {
        let touches = |ticket: &WriteTicket| {
            let written = ticket.sectors();
            written.start < sectors.end && sectors.start < written.end
        };
        let doubtful = self.doubtful.iter().map(|doubt| (doubt.volume, &doubt.ticket));
        let pending = self.pending.values();
        let pending = pending.filter_map(|pending| Some((pending.volume, pending.write()?)));
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
        self.enter(volume, Asked::Nonsense, op, None, Some(failure));
    }

    fn enter(
        &mut self,
        volume: usize,
        asked: Asked,
        op: Op<Stamped>,
        plea: Option<Plea>,
        refusal: Option<Failure>,
    ) -> u64 {
        let number = self.number();
        let id = RequestId(number);
        let place = match &op {
            Op::Flush => None,
            Op::Read { span, .. }
            | Op::Write { span, .. }
            | Op::Trim { span, .. }
            | Op::WriteZeroes { span, .. }
            | Op::Invalidate { span } => Some((volume, sectors_of(*span))),
        };
        self.log.note(self.now, place, || format!("submit {id:?} on volume {volume}: {op:?}"));
        let Volume { errors: errors_before, sync_failed, .. } = self.volumes[volume];
        // Parts of earlier ones may come to a shard later.
        self.pending.values_mut().for_each(|other| other.beside_others = true);
        let pending = Pending {
            volume,
            asked,
            plea,
            refusal,
            errors_before,
            sync_failed,
            arrived: self.now,
            late: false,
            crowded: self.is_crowded(volume),
            beside_others: !self.pending.is_empty(),
        };
        self.pending.insert(id, pending);
        let volume = self.volumes[volume].id().expect("a volume that was attached has an index");
        self.batch.push(Event::Submit(Request { id, volume, op }));
        number
    }
}
