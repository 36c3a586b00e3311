//! Guests' requests on a data thread beside the first: those that need nothing of the first thread
//! are run at once, all others are passed to it, and its answers come back as letters.
//!
//! Run at once: reads and writes of one shard, and flushes, of a volume that serves and has no detour
//! (see [`VolumeIo::has_detour`]), and whose lock was seen lately ([`VolumeIo::is_confirmed`]); not the reads that a clone's parent volume answers
//! ([`VolumeIo::reads_parent`]). Their numbers have the thread's own in them, so that whichever
//! thread runs the shard knows the way home of the answer.
//!
//! A volume is served by one thread, so what its guests ask for has one order here. It is kept where
//! requests overlap: what follows one that was passed on is passed on, too.

use super::data_thread::{DataThread, Returned};
use super::front::{Caller, Front, Side};
use super::guest_limits::Held;
use super::volume::{Kind, Recorders, VolumeIo, answer_by, kind_of, tells_extents};
use cinnabar_backend::Memory;
use cinnabar_config::status::latency::Latencies;
use cinnabar_engine::limits::DATA_BYTES_MAX;
use cinnabar_engine::shards::ShardMap;
use cinnabar_engine::units::{ByteSpan, Instant, SECTOR_BYTES, VolumeId};
use cinnabar_engine::{Answer, Event, Failure, Op, Reply, Request, RequestId};
use cinnabar_frontend::{Body, Command, Incoming, Ticket};
use slab::Slab;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Set in the numbers of requests that threads beside the first have submitted; the router's leave
/// it free.
const OF_THREAD: u64 = 1 << 62;
/// Where the thread's number is in them; its own number for the request is below.
const THREAD_SHIFT: u32 = 48;
/// With so many requests under way, those of rings are run by the homes of their shards.
pub(super) const SHARE_FROM: usize = 64;
/// Most letters that a request is compared with.
const LETTERS_MAX: usize = 64;

/// See the module.
pub(super) struct Guests {
    /// Of this thread.
    thread: usize,
    /// By the plane's keys: the volumes that this thread serves.
    gates: Vec<Option<VolumeHandle>>,
    /// Requests in the engines' hands.
    requests: Slab<Direct>,
    /// When the first of them takes too long.
    next_late: Option<Instant>,
    /// How often this was the case for some.
    looks: u64,
    /// For the first thread.
    passed: Vec<Forwarded>,
}

/// A volume that this thread serves.
struct VolumeHandle {
    io: Arc<VolumeIo>,
    /// As long as it serves.
    names: Option<Names>,
    latencies: Recorders,
    /// Requests that the first thread has.
    letters: BTreeMap<(Side, Ticket), ForwardedRequest>,
}

/// What has to be known of a volume that serves.
pub(super) struct Names {
    pub(super) map: ShardMap,
    /// The shard of its first block.
    pub(super) first: u32,
    pub(super) size_bytes: u64,
    /// By shard, what that calls it.
    pub(super) inner: Vec<VolumeId>,
}

/// A request in the engines' hands.
struct Direct {
    side: Side,
    ticket: Ticket,
    /// The volume's key.
    key: usize,
    attachment: u64,
    kind: Kind,
    arrived: Instant,
    answer_by: Option<Instant>,
    /// The time until then is over: the look at all ports that it waits for.
    late: Option<u64>,
    to: To,
}

/// Which shards have it.
enum To {
    One(u32),
    /// All, of which so many have yet to answer.
    All(u32, Option<Failure>),
}

/// Requests of a thread whose time is over.
pub(super) struct Late {
    /// Which look at all ports they wait for. A request's place, and with that its number, is another
    /// one's once it was answered: that one waits for a later look.
    look: u64,
    ids: Vec<RequestId>,
}

/// A request that the first thread has.
struct ForwardedRequest {
    kind: Kind,
    arrived: Instant,
    /// None of a flush.
    span: Option<ByteSpan>,
    writes: bool,
}

/// A guest's request on its way to the first thread.
pub(super) struct Forwarded {
    pub(super) side: Side,
    pub(super) arrived: Instant,
    /// Which attachment of the volume: its key may be another volume's by then.
    pub(super) attachment: u64,
    pub(super) request: Incoming<Memory>,
}

/// The thread that a shard's answer is for, if that is not the first one's router.
pub(super) fn thread_of(id: RequestId) -> Option<usize> {
    // The second bit is the plane's own, of commands.
    (id.0 >> THREAD_SHIFT >= OF_THREAD >> THREAD_SHIFT && id.0 >> 63 == 0)
        .then_some(((id.0 & !OF_THREAD) >> THREAD_SHIFT) as usize)
}

impl Guests {
    pub(super) fn new(thread: usize) -> Self {
        assert!(thread < 1 << (62 - THREAD_SHIFT), "a thread's number fits");
        Self {
            thread,
            gates: Vec::new(),
            requests: Slab::new(),
            next_late: None,
            looks: 0,
            passed: Vec::new(),
        }
    }

    /// A volume that this thread is going to serve.
    pub(super) fn add(&mut self, key: usize, io: Arc<VolumeIo>) {
        if self.gates.len() <= key {
            self.gates.resize_with(key + 1, || None);
        }
        let latencies = Recorders::default();
        self.gates[key] =
            Some(VolumeHandle { io, names: None, latencies, letters: BTreeMap::new() });
    }

    /// It serves from now on.
    pub(super) fn open(&mut self, key: usize, attachment: u64, names: Names) {
        if let Some(gate) = self.gate(key).filter(|gate| gate.io.attachment == attachment) {
            gate.names = Some(names);
        }
    }

    /// It is larger now.
    pub(super) fn grow(&mut self, key: usize, size_bytes: u64) {
        if let Some(names) = self.gate(key).and_then(|gate| gate.names.as_mut()) {
            names.size_bytes = size_bytes;
        }
    }

    /// Nothing more of it is sent from here.
    pub(super) fn remove(&mut self, key: usize) {
        if let Some(gate) = self.gates.get_mut(key) {
            *gate = None;
        }
    }

    /// What its guests have seen.
    pub(super) fn latencies(&self, key: usize) -> Latencies {
        let gate = self.gates.get(key).and_then(Option::as_ref);
        gate.map(|gate| gate.latencies.summary()).unwrap_or_default()
    }

    /// Requests in the engines' hands.
    pub(super) fn under_way(&self) -> usize {
        self.requests.len()
    }

    /// Bytes of its tables.
    pub(super) fn ram_bytes(&self) -> u64 {
        let tables = self.requests.capacity() * size_of::<Direct>()
            + self.gates.capacity() * size_of::<Option<VolumeHandle>>();
        tables as u64
    }

    /// When [`tell_late`](Self::tell_late) has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_late
    }

    /// What is to be passed on, oldest first.
    pub(super) fn take_passed(&mut self) -> std::vec::Drain<'_, Forwarded> {
        self.passed.drain(..)
    }

    /// Whether there is any.
    pub(super) fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    fn gate(&mut self, key: usize) -> Option<&mut VolumeHandle> {
        self.gates.get_mut(key).and_then(Option::as_mut)
    }

    /// Takes the requests that came.
    pub(super) fn admit(&mut self, now: Instant, front: &mut Front, data_thread: &mut DataThread) {
        while let Some(Held { arrived, side, request, .. }) = front.next_held(now) {
            self.admit_one(now, arrived, side, request, front, data_thread);
        }
        for side in [Side::Nbd, Side::Vhost] {
            let mut incoming = std::mem::take(front.incoming(side));
            for request in incoming.drain(..) {
                if let Some(request) = front.limits.pass(now, side, request) {
                    self.admit_one(now, now, side, request, front, data_thread);
                }
            }
            *front.incoming(side) = incoming;
        }
    }

    fn admit_one(
        &mut self,
        now: Instant,
        arrived: Instant,
        side: Side,
        request: Incoming<Memory>,
        front: &mut Front,
        data_thread: &mut DataThread,
    ) {
        let (ticket, key, thread) = (request.ticket, request.export.0 as usize, self.thread);
        let Some(gate) = self.gate(key) else {
            return front.reply(side, ticket, Err(Failure::NoVolume));
        };
        if let Command::BlockStatus { span, .. } = request.command {
            return if gate.names.is_some() && tells_extents(&gate.io) {
                data_thread.io_table.ask_extents(now, key, Caller { thread, side, ticket }, span);
            } else {
                front.reply(side, ticket, Ok(Body::Done));
            };
        }
        let Some(to) = gate.place(&request.command) else {
            gate.letters.insert((side, ticket), ForwardedRequest::of(arrived, &request));
            let attachment = gate.io.attachment;
            return self.passed.push(Forwarded { side, arrived, attachment, request });
        };
        let (kind, op) = match request.command {
            Command::Engine(op) => {
                gate.io.note(thread, now, &op);
                (kind_of(&op), op)
            }
            Command::Prefetch { span, data } => (Kind::Other, Op::Read { span, data }),
            Command::BlockStatus { .. } => unreachable!("asked above"),
        };
        let answer_by = answer_by(gate.io.timeout, arrived);
        let attachment = gate.io.attachment;
        let all = matches!(to, To::All(..));
        let shard = if let To::One(shard) = to { shard } else { 0 };
        let late = None;
        let direct = Direct { side, ticket, key, attachment, kind, arrived, answer_by, late, to };
        let share = self.requests.len() >= SHARE_FROM && side == Side::Vhost;
        let id = self.id_of(self.requests.vacant_key());
        self.requests.insert(direct);
        let names = self.gates[key].as_ref().and_then(|gate| gate.names.as_ref());
        let names = names.expect("it has a place for the request");
        if all {
            for (shard, volume) in (0..).zip(&names.inner) {
                let request = Request { id, volume: *volume, op: op.clone() };
                data_thread.give(shard, Event::Submit(request));
            }
        } else {
            if share {
                data_thread.share(shard);
            }
            let volume = names.inner[shard as usize];
            data_thread.give(shard, Event::Submit(Request { id, volume, op }));
        }
        self.note_answer_by(answer_by);
    }

    fn id_of(&self, place: usize) -> RequestId {
        RequestId(OF_THREAD | (self.thread as u64) << THREAD_SHIFT | place as u64)
    }

    fn note_answer_by(&mut self, due: Option<Instant>) {
        self.next_late = self.next_late.into_iter().chain(due).min();
    }

    /// Gives those whose time is over: every thread has to look at its port before the engines hear
    /// of them ([`Returned::Late`]).
    pub(super) fn tell_late(&mut self, now: Instant) -> Option<Late> {
        if self.next_late.is_none_or(|next| next > now) {
            return None;
        }
        self.next_late = None;
        self.looks += 1;
        let look = self.looks;
        let (mut due, mut next) = (Vec::new(), None);
        for (place, request) in &mut self.requests {
            match request.answer_by {
                Some(at) if at <= now => {
                    (request.answer_by, request.late) = (None, Some(look));
                    due.push(place);
                }
                Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                None => {}
            }
        }
        self.note_answer_by(next);
        let ids: Vec<_> = due.into_iter().map(|place| self.id_of(place)).collect();
        (!ids.is_empty()).then_some(Late { look, ids })
    }

    /// Takes what other threads have sent back.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        back: Returned,
        front: &mut Front,
        data_thread: &mut DataThread,
    ) {
        match back {
            Returned::Reply(reply) => self.reply(now, reply, front),
            Returned::Answer { key, side, ticket, result } => {
                self.answered(now, key, side, ticket);
                front.reply(side, ticket, result);
            }
            Returned::Late(Late { look, ids }) => {
                for id in ids {
                    self.late(look, id, data_thread);
                }
            }
        }
    }

    /// A shard has answered.
    fn reply(&mut self, now: Instant, reply: Reply<Memory>, front: &mut Front) {
        let place = self.place_of(reply.id);
        let request = self.requests.get_mut(place).expect("a reply to something under way");
        let result = match &mut request.to {
            To::One(_) => reply.result,
            To::All(left, failure) => {
                *left -= 1;
                *failure = failure.or(reply.result.err());
                if *left > 0 {
                    return;
                }
                failure.map_or(Ok(Answer::Done), Err)
            }
        };
        let Direct { side, ticket, key, attachment, kind, arrived, .. } =
            self.requests.remove(place);
        if let Some(gate) = self.gate(key).filter(|gate| gate.io.attachment == attachment) {
            gate.latencies.record(kind, now.since_ns(arrived));
        }
        let body = result.map(|answer| match answer {
            Answer::Data(buffer) if kind != Kind::Other => Body::Data(buffer),
            _ => Body::Done,
        });
        front.reply(side, ticket, body);
    }

    fn place_of(&self, id: RequestId) -> usize {
        assert_eq!(thread_of(id), Some(self.thread), "the way home is in its number");
        (id.0 & ((1 << THREAD_SHIFT) - 1)) as usize
    }

    /// The first thread has answered.
    fn answered(&mut self, now: Instant, key: usize, side: Side, ticket: Ticket) {
        let Some(gate) = self.gate(key) else { return };
        if let Some(letter) = gate.letters.remove(&(side, ticket)) {
            gate.latencies.record(letter.kind, now.since_ns(letter.arrived));
        }
    }

    /// A request's time is over, and every thread has looked at its port.
    fn late(&self, look: u64, id: RequestId, data_thread: &mut DataThread) {
        // Its place may be another's by now.
        let request = self.requests.get(self.place_of(id));
        match request.filter(|request| request.late == Some(look)).map(|request| &request.to) {
            Some(To::One(shard)) => data_thread.give(*shard, Event::Late(id)),
            Some(To::All(..)) => {
                (0..data_thread.pool.shards())
                    .for_each(|shard| data_thread.give(shard, Event::Late(id)));
            }
            None => {}
        }
    }
}

impl VolumeHandle {
    /// The shards that can be given a request as it is, past the router; `None`: it is passed on.
    fn place(&self, command: &Command<Memory>) -> Option<To> {
        let names = self.names.as_ref()?;
        // The first thread keeps what waits for a back end's lock to be seen.
        if self.io.has_detour() || !self.io.is_confirmed() {
            return None;
        }
        let (span, writes) = match command {
            Command::Engine(Op::Flush) => return Some(To::All(names.inner.len() as u32, None)),
            Command::Engine(Op::Read { span, .. }) | Command::Prefetch { span, .. } => {
                (*span, false)
            }
            Command::Engine(Op::Write { span, .. }) => (*span, true),
            Command::Engine(_) | Command::BlockStatus { .. } => return None,
        };
        let end = span.offset.checked_add(span.len).filter(|end| *end <= names.size_bytes);
        let aligned = (span.offset | span.len).is_multiple_of(SECTOR_BYTES);
        if end.is_none() || !aligned || span.len == 0 || span.len > DATA_BYTES_MAX {
            return None;
        }
        // Behind many, a guest's request is passed on unseen: looking would cost all guests of the thread.
        if self.letters.len() > LETTERS_MAX
            || self.letters.values().any(|letter| letter.is_before(span, writes))
        {
            return None;
        }
        if self.io.reads_parent(span, writes) {
            return None;
        }
        let mut rest = span;
        let (shard, part) = names.map.cut(names.first, &mut rest);
        (part == span).then_some(To::One(shard))
    }
}

impl ForwardedRequest {
    fn of(arrived: Instant, request: &Incoming<Memory>) -> Self {
        let (kind, span, writes) = match &request.command {
            Command::Engine(op) => {
                let span = match op {
                    Op::Flush => None,
                    Op::Read { span, .. }
                    | Op::Write { span, .. }
                    | Op::Trim { span, .. }
                    | Op::Invalidate { span }
                    | Op::WriteZeroes { span, .. } => Some(*span),
                };
                (kind_of(op), span, !matches!(op, Op::Read { .. }))
            }
            Command::Prefetch { span, .. } | Command::BlockStatus { span, .. } => {
                (Kind::Other, Some(*span), false)
            }
        };
        Self { kind, arrived, span, writes }
    }

    /// Whether a request of these blocks must not overtake it.
    fn is_before(&self, span: ByteSpan, writes: bool) -> bool {
        let overlaps = |own: ByteSpan| {
            own.first_block() < span.end_block() && span.first_block() < own.end_block()
        };
        (writes || self.writes) && self.span.is_some_and(overlaps)
    }
}
