//! Requests on their way into the engine, and its answers on their way out: guests' and the
//! operator's.

use super::clock::after;
use super::clones::Routed;
use super::control::{COMMAND, failed};
use super::front::{Caller, Side};
use super::guest_limits::Held;
use super::guests::{Late, SHARE_FROM};
use super::migrate::Door;
use super::plane::DataPlane;
use super::replace::SILENCE_MAX;
use super::volume::{Kind, Volume, kind_of, tells_extents};
use cinnabar_backend::Memory;
use cinnabar_config::messages::AnswerTo;
use cinnabar_driver::Phase;
use cinnabar_driver::write_mode::Route;
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::{Answer, Failure, IoError, Op, Reply, Request, RequestId};
use cinnabar_frontend::{Body, Command, Incoming};
use cinnabar_writeback::{EngineId, Event};
use std::sync::Arc;

/// A request in the engine's hands.
pub(super) struct GuestRequest {
    asker: Origin,
    /// Key of its volume.
    volume: usize,
    kind: Kind,
    arrived: Instant,
    /// When the engines are told that it takes too long; `None`: never, or they were told.
    answer_by: Option<Instant>,
    /// That time is over.
    late: Option<u64>,
    /// In the hands of the write log.
    in_log: bool,
    /// Of a clone, and in the hands of its parent volume.
    routed: Option<Routed>,
}

/// Requests whose time is over. Completions that other threads' ports have brought by then come first:
/// a process that was stopped for longer has answers for its guests.
#[derive(Default)]
pub(super) struct Overdue {
    /// The next look's number.
    look: u64,
    /// The first thread has yet to begin its own.
    pub(super) own: bool,
    /// Requests of volumes that are being attached came late since the last look began.
    waiting: bool,
    /// Those of the look under way.
    ids: Vec<RequestId>,
    /// Threads that have yet to look at their ports.
    awaited: usize,
    /// Those that came late since.
    next: Vec<RequestId>,
    /// The same of other threads' own requests, by thread.
    elsewhere: Vec<(usize, Late)>,
    next_elsewhere: Vec<(usize, Late)>,
}

/// A request of a volume that is being attached.
pub(super) struct Waiting {
    pub(super) caller: Caller,
    pub(super) request: Incoming<Memory>,
    pub(super) arrived: Instant,
    /// When it takes too long, as of one in the engine's hands.
    pub(super) answer_by: Option<Instant>,
    /// That time is over.
    late: Option<u64>,
}

impl Waiting {
    pub(super) const fn new(
        caller: Caller,
        request: Incoming<Memory>,
        arrived: Instant,
        answer_by: Option<Instant>,
    ) -> Self {
        Self { caller, request, arrived, answer_by, late: None }
    }

    /// Whether it is for the volume of this key.
    pub(super) fn is_of(&self, key: usize) -> bool {
        self.request.export.0 as usize == key
    }

    /// See [`needs_owner`].
    pub(super) fn needs_owner(&self) -> bool {
        needs_owner(&self.request.command)
    }
}

/// Whether only the host that owns a volume can carry out a request: it changes what is stored, or makes
/// durable what was.
pub(super) const fn needs_owner(command: &Command<Memory>) -> bool {
    use Op::{Flush, Trim, Write, WriteZeroes};
    matches!(command, Command::Engine(Write { .. } | Trim { .. } | WriteZeroes { .. } | Flush))
}

/// Who waits for the answer.
pub(super) enum Origin {
    Guest(Caller),
    /// And what is being done.
    Operator(&'static str, AnswerTo<()>),
    /// The write log; whether it is a flush.
    Log(EngineId, bool),
    /// A volume that joins it, and is flushed for that.
    Mode,
    /// Nobody; but the copies of these bytes must go.
    Doubt(ByteSpan),
    /// Nobody: it offers what another host has cached, into this memory.
    Warm(Arc<Door>, Memory),
}

impl Origin {
    /// Whether no guest's request may overtake it: what it drops may be in parts that are still to be
    /// sent.
    const fn keeps_an_order(&self) -> bool {
        matches!(self, Self::Operator(..) | Self::Doubt(_))
    }
}

impl GuestRequest {
    /// Whether it drops what the server of the volume of this key may have lost.
    pub(super) const fn drops_doubtful(&self, volume: usize) -> bool {
        self.volume == volume && matches!(self.asker, Origin::Doubt(_))
    }

    /// Key of its volume.
    pub(super) const fn volume(&self) -> usize {
        self.volume
    }

    /// Whether its time is over.
    pub(super) const fn is_late(&self) -> bool {
        self.late.is_some()
    }

    /// Whether a guest of the volume of this key waits for it, and it is no read.
    pub(super) const fn is_change_of_guest(&self, volume: usize) -> bool {
        self.volume == volume
            && matches!(self.asker, Origin::Guest(..))
            && !matches!(self.kind, Kind::Read(_))
    }
}

impl DataPlane {
    /// Gives the requests that came to the engine.
    pub(super) fn admit(&mut self, now: Instant) {
        while let Some(Held { arrived, side, request, .. }) = self.front.next_held(now) {
            let caller = Caller { thread: 0, side, ticket: request.ticket };
            self.admit_one(now, arrived, caller, request);
        }
        for side in [Side::Nbd, Side::Vhost] {
            let mut incoming = std::mem::take(self.front.incoming(side));
            for request in incoming.drain(..) {
                let Some(request) = self.front.limits.pass(now, side, request) else { continue };
                let caller = Caller { thread: 0, side, ticket: request.ticket };
                self.admit_one(now, now, caller, request);
            }
            *self.front.incoming(side) = incoming;
        }
    }

    pub(super) fn admit_one(
        &mut self,
        now: Instant,
        arrived: Instant,
        caller: Caller,
        request: Incoming<Memory>,
    ) {
        let key = request.export.0 as usize;
        let Some(volume) = self.volumes.get(key) else {
            return self.admit_here(now, arrived, caller, request);
        };
        let Some(moves) = &volume.moves else {
            let held = volume.unconfirmed || !volume.io.is_confirmed();
            if held {
                self.admit_owned(now, arrived, caller, request);
            } else {
                self.admit_here(now, arrived, caller, request);
            }
            return;
        };
        let owns = moves.is_owner();
        if self.is_shut_out(caller, key) {
            return;
        }
        if owns {
            self.admit_owned(now, arrived, caller, request);
        } else {
            self.admit_moving(now, arrived, caller, request);
        }
    }

    /// The request waits for its volume.
    pub(super) fn keep_waiting(
        &mut self,
        arrived: Instant,
        caller: Caller,
        request: Incoming<Memory>,
    ) {
        let answer_by = self.volumes[request.export.0 as usize].answer_by(arrived);
        self.waiting.push(Waiting { caller, request, arrived, answer_by, late: None });
        self.note_answer_by(answer_by);
    }

    /// The same of a volume that this host serves, or may read.
    pub(super) fn admit_here(
        &mut self,
        now: Instant,
        arrived: Instant,
        caller: Caller,
        request: Incoming<Memory>,
    ) {
        let Incoming { ticket, export, command } = request;
        let key = export.0 as usize;
        let reads = matches!(command, Command::Engine(Op::Read { .. }));
        let route_of = |volume: &Volume| {
            if reads { volume.writes.read_route() } else { volume.writes.route() }
        };
        let waits = |volume: &Volume| match route_of(volume) {
            Route::Wait => true,
            Route::Log(_) if volume.is_renewed() => false,
            // Of one that is to leave as soon as it is attached nothing reaches the back end any more.
            _ => {
                let phase = volume.life.phase();
                phase == Phase::Attaching || volume.is_renewed() || volume.renewal.is_unwanted()
            }
        };
        if let Some(volume) = self.volumes.get(key)
            && waits(volume)
        {
            let request = Incoming { ticket, export, command };
            return self.keep_waiting(arrived, caller, request);
        }
        let takes = |one: &&Volume| one.life.serving().is_some() || one.is_renewed();
        let Some(volume) = self.volumes.get(key).filter(takes) else {
            self.answer(caller, key, Err(Failure::NoVolume));
            return;
        };
        let id = volume.life.serving();
        let (kind, op) = match command {
            Command::Engine(op) => {
                self.recordings.note(now, key, &op);
                self.user_of(key, &op).note(0, now, &op);
                (kind_of(&op), op)
            }
            Command::Prefetch { span, data } => (Kind::Other, Op::Read { span, data }),
            Command::BlockStatus { span, .. } => {
                // What is only in the write log is no hole.
                if volume.writes.route() == Route::Engine && tells_extents(&volume.io) {
                    self.data_thread.io_table.ask_extents(now, key, caller, span);
                } else {
                    self.answer(caller, key, Ok(Body::Done));
                }
                return;
            }
        };
        let answer_by = volume.answer_by(arrived);
        let asker = Origin::Guest(caller);
        let (late, in_log, routed) = (None, false, None);
        let mut request =
            GuestRequest { asker, volume: key, kind, arrived, answer_by, late, in_log, routed };
        let route = route_of(volume);
        self.note_answer_by(answer_by);
        let Some(id) = id.filter(|_| route == Route::Engine) else {
            let Route::Log(place) = route else { unreachable!("the others wait") };
            request.in_log = true;
            // After its device has failed the log refuses all of them.
            if self.writes.log().is_some_and(|log| !log.is_lost()) {
                self.volumes[key].traffic.guest_asks(&op);
            }
            let id = RequestId(self.requests.insert(request) as u64);
            self.writes.give(Event::Submit(id, place, op));
            return;
        };
        self.submit(request, id, op);
    }

    /// A volume serves now, or will not: what waited for that goes on.
    pub(super) fn admit_waiting(&mut self, now: Instant, key: usize) {
        let all = std::mem::take(&mut self.waiting);
        for waiting in all {
            if waiting.request.export.0 as usize == key {
                self.admit_one(now, waiting.arrived, waiting.caller, waiting.request);
            } else {
                self.waiting.push(waiting);
            }
        }
    }

    pub(super) fn note_answer_by(&mut self, due: Option<Instant>) {
        if let Some(due) = due
            && self.next_late.is_none_or(|next| due < next)
        {
            self.next_late = Some(due);
        }
    }

    /// Tells the engines of guests' requests that their volumes' bounds have passed by, and answers
    /// those that no engine has. One look at all of them, at the moment the first is due.
    pub(super) fn tell_late(&mut self, now: Instant) {
        if self.next_late.is_none_or(|next| next > now) {
            return;
        }
        self.next_late = None;
        let (look, mut due, mut next) = (self.overdue.look, Vec::new(), None);
        for (id, request) in &mut self.requests {
            match request.answer_by {
                Some(at) if at <= now => {
                    (request.answer_by, request.late) = (None, Some(look));
                    due.push(RequestId(id as u64));
                }
                Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                None => {}
            }
        }
        for waiting in &mut self.waiting {
            match waiting.answer_by {
                Some(at) if at <= now => {
                    (waiting.answer_by, waiting.late) = (None, Some(look));
                    self.overdue.waiting = true;
                }
                Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                None => {}
            }
        }
        let next = next.into_iter().chain(self.give_up_reads(now)).min();
        self.note_answer_by(next);
        self.overdue.next.append(&mut due);
        self.look_for_overdue();
    }

    /// Has every thread look at its port, unless that is under way; then the engines hear of what is
    /// still there.
    fn look_for_overdue(&mut self) {
        let Overdue { awaited, next, next_elsewhere, waiting, .. } = &self.overdue;
        if *awaited > 0 || (next.is_empty() && next_elsewhere.is_empty() && !waiting) {
            return;
        }
        self.overdue.look += 1;
        self.overdue.ids = std::mem::take(&mut self.overdue.next);
        self.overdue.elsewhere = std::mem::take(&mut self.overdue.next_elsewhere);
        (self.overdue.own, self.overdue.waiting) = (true, false);
        self.overdue.awaited = 1 + self.shard_set.have_look();
    }

    /// The time of another thread's own requests is over.
    pub(super) fn overdue_elsewhere(&mut self, thread: usize, late: Late) {
        self.overdue.next_elsewhere.push((thread, late));
        self.look_for_overdue();
    }

    /// A thread has looked at its port since it was asked to.
    pub(super) fn have_looked(&mut self) {
        assert!(self.overdue.awaited > 0, "it was asked to look");
        self.overdue.awaited -= 1;
        self.tell_overdue();
    }

    /// Answers those that no engine has, and that were late before this look.
    fn give_up_waiting(&mut self) {
        let look = self.overdue.look;
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.late.is_some_and(|late| late < look) {
                let key = waiting.request.export.0 as usize;
                self.answer(waiting.caller, key, Err(Failure::Io(IoError::TimedOut)));
            } else {
                self.waiting.push(waiting);
            }
        }
    }

    fn tell_overdue(&mut self) {
        if self.overdue.awaited > 0 {
            return;
        }
        let elsewhere = std::mem::take(&mut self.overdue.elsewhere);
        self.tell_overdue_elsewhere(elsewhere);
        self.give_up_waiting();
        let mut ids = std::mem::take(&mut self.overdue.ids);
        // The place of one that was answered meanwhile may be another's, which waits for a later look.
        let look = self.overdue.look.checked_sub(1);
        let is_of_it = |request: &GuestRequest| request.late.is_some() && request.late == look;
        ids.retain(|id| self.requests.get(id.0 as usize).is_some_and(is_of_it));
        let (in_log, ids): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| self.requests[id.0 as usize].in_log);
        for id in in_log {
            self.writes.give(Event::Late(id));
        }
        if !ids.is_empty() {
            let replies = self.shard_set.late(&mut self.data_thread, ids);
            self.replies.extend(replies);
        }
        self.look_for_overdue();
    }

    /// Gives a request to the engines: to that of the volume, or, of a read of what a clone does not have
    /// itself, to that of its parent volume.
    fn submit(&mut self, mut request: GuestRequest, mut volume: VolumeId, op: Op<Memory>) {
        if let Some((parent, routed)) = self.route(request.volume, &op) {
            (volume, request.routed) = (parent, Some(routed));
        }
        self.submit_to(request, volume, op);
    }

    fn submit_to(&mut self, request: GuestRequest, volume: VolumeId, op: Op<Memory>) {
        let share = self.requests.len() >= SHARE_FROM
            && matches!(request.asker, Origin::Guest(Caller { side: Side::Vhost, .. }));
        if request.asker.keeps_an_order() {
            self.volumes[request.volume].io.begin_detour();
        }
        if let Some(door) = self.volumes[request.volume].io.door() {
            door.note(&op);
        }
        let id = RequestId(self.requests.insert(request) as u64);
        let reply = self.shard_set.submit(&mut self.data_thread, Request { id, volume, op }, share);
        self.replies.extend(reply);
    }

    /// Drops what is cached of a part of a volume that serves, by the operator's word.
    pub(super) fn invalidate_span(
        &mut self,
        now: Instant,
        key: usize,
        span: ByteSpan,
        answer: AnswerTo<()>,
    ) {
        self.invalidate_for(now, key, span, Origin::Operator("dropping it", answer));
    }

    /// The same, of bytes that a backend's server may have lost.
    pub(super) fn drop_doubtful(&mut self, now: Instant, key: usize, span: ByteSpan) {
        self.invalidate_for(now, key, span, Origin::Doubt(span));
    }

    fn invalidate_for(&mut self, now: Instant, key: usize, span: ByteSpan, asker: Origin) {
        let kind = Kind::Other;
        // An operator is answered, whatever the range waits for and whether or not guests are; what a
        // server may have lost has to go, however long that takes.
        let answer_by = match asker {
            Origin::Operator(..) => {
                let own = self.volumes[key].answer_by(now);
                Some(own.unwrap_or_else(|| after(now, SILENCE_MAX)))
            }
            _ => None,
        };
        self.note_answer_by(answer_by);
        let (arrived, late, in_log, routed) = (now, None, false, None);
        let request =
            GuestRequest { asker, volume: key, kind, arrived, answer_by, late, in_log, routed };
        let volume = self.volumes[key].life.id().expect("a volume that serves is attached");
        self.submit(request, volume, Op::Invalidate { span });
    }

    /// Has the engines do something of which no guest knows, with the volume's own time limit.
    pub(super) fn submit_for(&mut self, now: Instant, key: usize, op: Op<Memory>, asker: Origin) {
        let volume = &self.volumes[key];
        let answer_by = match &asker {
            Origin::Log(_, is_flush) => {
                volume.answer_log_by(now, !is_flush && !matches!(op, Op::Read { .. }))
            }
            _ => volume.answer_by(now),
        };
        let id = volume.life.id().expect("a volume that serves is attached");
        self.note_answer_by(answer_by);
        let (kind, arrived, late, in_log, routed) = (Kind::Other, now, None, false, None);
        let request =
            GuestRequest { asker, volume: key, kind, arrived, answer_by, late, in_log, routed };
        self.submit(request, id, op);
    }

    /// The engine or the write log has answered something.
    pub(super) fn reply(&mut self, now: Instant, reply: Reply<Memory>) {
        if reply.id.0 & COMMAND != 0 {
            self.command_done(now, reply);
            return;
        }
        let mut request = self.requests.remove(reply.id.0 as usize);
        let mut is_there = true;
        if let Some(routed) = request.routed.take() {
            // The clone does not wait for what its parent does: it may have gone meanwhile.
            is_there = self.volumes.get(request.volume).is_some_and(|one| routed.is_of(one));
            if let Some((id, op)) = self.parent_answered(&request, routed, &reply) {
                return self.submit_to(request, id, op);
            }
        }
        if let Some(volume) = self.volumes.get_mut(request.volume).filter(|_| is_there) {
            if let Some(latencies) = &mut volume.latencies {
                latencies.record(request.kind, now.since_ns(request.arrived));
            }
            if request.asker.keeps_an_order() {
                volume.io.end_detour();
            }
        }
        match request.asker {
            Origin::Guest(caller) => {
                let body = reply.result.map(|answer| match answer {
                    Answer::Data(buffer) if request.kind != Kind::Other => Body::Data(buffer),
                    _ => Body::Done,
                });
                self.answer(caller, request.volume, body);
            }
            Origin::Operator(what, answer) => {
                let result = reply.result.map(drop).map_err(|error| failed(what, error));
                let _ = answer.send(result);
            }
            Origin::Doubt(span) if reply.result.is_err() => {
                self.put_back_lost(now, request.volume, span);
            }
            Origin::Doubt(_) => self.drops_for_return(request.volume),
            Origin::Log(id, is_flush) => {
                // A durable write may be a write and a flush.
                let io = self.volumes.get(request.volume).map(|volume| &volume.io);
                let sticks = io.is_some_and(|io| io.disk.sync_failure().is_some());
                if reply.result.as_ref().is_err_and(|failure| sticks || is_flush && loses(*failure))
                {
                    self.flush_failed(now, request.volume);
                }
                self.writes.give(Event::EngineDone(id, reply.result));
            }
            asker @ Origin::Warm(..) => {
                self.warm_read(now, request.volume, &asker, reply.result.is_ok());
            }
            Origin::Mode => self.flushed_to_join(now, request.volume, reply.result.map(drop)),
        }
        self.settle_writes(now, request.volume);
    }
}

/// Whether a flush that failed so may have lost writes, so that it fails until the volume is attached
/// again: one that is overdue has not failed yet.
const fn loses(failure: Failure) -> bool {
    !matches!(failure, Failure::Io(IoError::TimedOut | IoError::Unsupported) | Failure::NoVolume)
}
