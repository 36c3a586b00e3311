//! The thread of a volume.

use super::mail::{Mail, Status};
use super::requests::{Part, Requests, op_of};
use super::{Kind, Request};
use crate::pools::{Answer, Completion, Op, OpError, Pools};
use crate::settings::{Settings, devices};
use cinnabar_placement::planner::{Backoff, Gain, Move, Planner, View};
use cinnabar_placement::volume::{
    Action, Admission, Copied, Event, Io, Refusal, Route, Stored, Ticket, Volume,
};
use cinnabar_placement::{Direction, Heat, Object, Pool, Sequential, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parts of requests under way at a time, held ones included; further requests wait.
const PARTS_MAX: usize = 1024;
/// How often failed steps are tried again, and the status is told.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is asked whether the volume is still ours.
const CHECK_EVERY: Duration = Duration::from_secs(3);

const LOST: &str = "another host has taken the volume over: nothing of it is served until it is removed and \
    added again";

/// An operation of the pools under way.
#[derive(Clone, Copy)]
pub(super) enum Pending {
    /// A part of a request.
    Part(Part, Ticket),
    Flush {
        request: usize,
    },
    Store {
        extent: u32,
    },
    StoreHeader,
    Probe {
        extent: u32,
    },
    Copy {
        extent: u32,
    },
    Patch {
        extent: u32,
    },
    Delete {
        extent: u32,
    },
    /// A left object.
    DeleteLeft,
    List(Pool),
    Check,
}

/// What nothing needs, from the lists of both pools.
#[derive(Default)]
pub(super) struct Left {
    /// To be deleted: those of a page of each pool, at most.
    pub(super) objects: Vec<Object>,
    pub(super) deleting: usize,
    /// Where the next pages begin.
    pub(super) pages: Vec<(Pool, String)>,
}

/// See the module.
pub(super) struct Worker {
    /// Goes first: from then on nothing touches requests' memory.
    pub(super) pools: Box<dyn Pools>,
    mail: Arc<Mail>,
    pub(super) volume: Volume,
    settings: Settings,
    planner: Box<dyn Planner + Send>,
    heat: Heat,
    backoff: Backoff,
    sequential: Sequential,
    pub(super) requests: Requests,
    /// Requests of which parts have not begun.
    waiting: VecDeque<usize>,
    /// Writes that wait for their extent to leave the full fast pool.
    pub(super) full: Vec<(u32, Part)>,
    /// Held writes; the key is the token.
    held: Slab<Part>,
    /// The key is the token.
    pending: Slab<Pending>,
    /// Parts under way, held ones included.
    parts: usize,
    pub(super) actions: Vec<Action>,
    ended: Vec<Completion>,
    planned: Vec<Move>,
    began: Instant,
    last_round: Instant,
    last_look: Instant,
    last_check: Instant,
    checking: bool,
    pub(super) left: Left,
    lost: Option<Box<dyn FnOnce() + Send>>,
    pub(super) status: Status,
}

impl Worker {
    pub(super) fn new(
        mail: Arc<Mail>,
        mut volume: Volume,
        pools: Box<dyn Pools>,
        settings: Settings,
        lost: Box<dyn FnOnce() + Send>,
    ) -> Self {
        let (heat, now) = (Heat::new(volume.table()), Instant::now());
        let devices = devices(pools.devices());
        volume.set_devices(devices.clone());
        let planner = settings.planner(devices);
        Self {
            pools,
            mail,
            heat,
            volume,
            planner,
            backoff: Backoff::default(),
            settings,
            sequential: Sequential::default(),
            requests: Requests::default(),
            waiting: VecDeque::new(),
            full: Vec::new(),
            held: Slab::new(),
            pending: Slab::new(),
            parts: 0,
            actions: Vec::new(),
            ended: Vec::new(),
            planned: Vec::new(),
            began: now,
            last_round: now,
            last_look: now,
            last_check: now,
            checking: false,
            left: Left::default(),
            lost: Some(lost),
            status: Status::default(),
        }
    }

    /// Works until there are no more requests, and none is under way.
    pub(super) fn run(mut self) {
        self.set_budget();
        for pool in [Pool::Slow, Pool::Fast] {
            self.submit(Pending::List(pool), Op::List { pool, after: None });
        }
        self.tick();
        self.tell();
        loop {
            let (came, closed) = self.mail.take();
            for request in came {
                self.accept(request);
            }
            if closed && self.requests.is_empty() {
                break;
            }
            self.start();
            self.wait(closed);
            self.collect();
            let now = Instant::now();
            if now - self.last_look >= LOOK_EVERY {
                self.last_look = now;
                self.look();
            } else if self.volume.wake_ns().is_some_and(|at| at <= self.now_ns()) {
                self.tick();
            }
            if !closed && (now - self.last_round).as_secs_f64() >= self.planner.period_s() {
                self.round(now);
            }
        }
        // What is under way of moves ends with the pools; the next owner sees from the table how far it came.
        self.status.moving = 0;
        self.mail.set_status(self.status.clone());
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn accept(&mut self, request: Box<dyn Request>) {
        if self.volume.is_fenced() {
            return request.finish(Err(Errno::IO));
        }
        let (kind, offset, length) = (request.kind(), request.offset(), request.length());
        let size = self.volume.header().geometry.bytes();
        if offset > size || length > size - offset {
            return request.finish(Err(Errno::INVAL));
        }
        if kind != Kind::Flush && length == 0 {
            return request.finish(Ok(()));
        }
        if matches!(kind, Kind::Read | Kind::Write { .. }) {
            self.note(kind, offset, length);
        }
        let key = self.requests.add(request);
        if kind == Kind::Flush {
            // Now: writes that end from now on are not its own.
            self.requests.begin_flush(key);
            self.submit(Pending::Flush { request: key }, Op::Flush);
        } else {
            self.waiting.push_back(key);
        }
    }

    /// Notes how hot the request makes its extents.
    fn note(&mut self, kind: Kind, offset: u64, length: u64) {
        let geometry = self.volume.header().geometry;
        let sequential = self.sequential.note(offset, length);
        let direction = if kind == Kind::Read { Direction::Read } else { Direction::Write };
        let score = self.planner.score(direction, length, sequential);
        let (first, last) = (geometry.extent_of(offset), geometry.extent_of(offset + length - 1));
        for extent in first..=last {
            let reads_nothing =
                kind == Kind::Read && self.volume.table().get(extent).state == State::Absent;
            if !reads_nothing {
                self.heat.note(extent, score);
            }
        }
    }

    /// Begins parts of what waits, as far as there is room.
    fn start(&mut self) {
        let geometry = self.volume.header().geometry;
        while self.parts < PARTS_MAX
            && let Some(key) = self.waiting.front().copied()
        {
            if let Some(part) = self.requests.next_part(key, geometry) {
                self.parts += 1;
                self.begin(part);
            } else {
                self.waiting.pop_front();
                self.finish(key);
            }
        }
        self.act();
    }

    pub(super) fn begin(&mut self, part: Part) {
        let kind = self.requests.kind(part.request);
        let geometry = self.volume.header().geometry;
        let absent = |extent| self.volume.table().get(extent).state == State::Absent;
        if matches!(kind, Kind::Zero { .. })
            && !self.volume.is_fenced()
            && absent(geometry.extent_of(part.offset))
        {
            // It has no object, and reads as zeros. A first write of it that is under way has not ended.
            return self.end_part(part, Ok(()));
        }
        let token = self.held.insert(part);
        let (offset, length) = (part.offset, part.length);
        let io = Io { token: token as u64, op: op_of(kind), offset, length };
        let admission = self.volume.begin(io, &mut self.actions);
        if admission != Admission::Held {
            self.held.remove(token);
        }
        match admission {
            Admission::Go(route) => self.go(part, route),
            Admission::Zeros => {
                self.requests.memory(part).zero_from(0);
                self.end_part(part, Ok(()));
            }
            Admission::Held => {}
            Admission::Refused(why) => self.end_part(part, Err(errno_of(why))),
        }
    }

    fn go(&mut self, part: Part, route: Route) {
        let Route { object, may_be_missing, ticket } = route;
        let offset = part.offset % self.volume.header().geometry.extent_bytes();
        let length = part.length;
        let op = match self.requests.kind(part.request) {
            Kind::Read => {
                let memory = self.requests.memory(part);
                Op::Read { object, offset, memory, may_be_missing }
            }
            Kind::Write { durable } => {
                let memory = self.requests.memory(part);
                Op::Write { object, offset, memory, may_be_missing, durable }
            }
            Kind::Zero { punch } => {
                Op::Zero { object, offset, length, may_be_missing, punch, durable: false }
            }
            Kind::Flush => unreachable!("a flush has no part"),
        };
        self.submit(Pending::Part(part, ticket), op);
    }

    pub(super) fn submit(&mut self, pending: Pending, op: Op) {
        let token = self.pending.insert(pending) as u64;
        self.pools.submit(token, op);
    }

    pub(super) fn end_part(&mut self, part: Part, result: Result<(), Errno>) {
        self.parts -= 1;
        self.requests.end_part(part.request, result);
        // Of those that wait the first one alone may have begun, and `start` looks at it.
        if self.waiting.front() != Some(&part.request) {
            self.finish(part.request);
        }
    }

    fn finish(&mut self, key: usize) {
        if let Some((request, result)) = self.requests.take_ended(key) {
            request.finish(result);
        }
    }

    /// Carries out what the state machine wants.
    fn act(&mut self) {
        let (mut actions, mut moved) = (std::mem::take(&mut self.actions), Vec::new());
        for action in actions.drain(..) {
            match action {
                Action::Release { token, route } => {
                    let part = self.held.remove(token as usize);
                    self.go(part, route);
                }
                Action::Fail { token, why } => {
                    let part = self.held.remove(token as usize);
                    self.end_part(part, Err(errno_of(why)));
                }
                Action::Ended { extent, outcome } => {
                    tracing::debug!(extent, ?outcome, "a move has ended");
                    self.backoff.ended(extent, outcome);
                    moved.push((extent, outcome));
                }
                Action::Fenced => self.lose(LOST.into()),
                Action::Store { extent, expected, new, epoch } => {
                    let op = Op::StoreRecord { extent, expected, new, epoch };
                    self.submit(Pending::Store { extent }, op);
                }
                Action::StoreHeader { expected, new } => {
                    self.submit(Pending::StoreHeader, Op::StoreHeader { expected, new });
                }
                Action::Probe { object } => {
                    self.submit(Pending::Probe { extent: object.extent }, Op::Probe { object });
                }
                Action::Copy { from, to } => {
                    self.submit(Pending::Copy { extent: from.extent }, Op::Copy { from, to });
                }
                Action::Patch { from, to, ranges } => {
                    let op = Op::Patch { from, to, ranges };
                    self.submit(Pending::Patch { extent: from.extent }, op);
                }
                Action::Delete { object } => {
                    self.submit(Pending::Delete { extent: object.extent }, Op::Delete { object });
                }
            }
        }
        self.actions = actions;
        for (extent, outcome) in moved {
            self.move_ended(extent, outcome);
        }
    }

    fn collect(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        self.pools.completions(&mut ended);
        for Completion { token, result } in ended.drain(..) {
            let pending = self.pending.remove(token as usize);
            self.take(pending, result);
            self.act();
        }
        self.ended = ended;
    }

    /// What an error means for all of the volume.
    fn note_error(&mut self, pending: Pending, error: &OpError) {
        match (pending, error) {
            (_, OpError::Fenced) => self.volume.fence(&mut self.actions),
            (_, OpError::Unsure(_)) => {
                let rest = "nothing of the volume is served until it is removed and added again";
                self.lose(format!("{error}: {rest}"));
                self.volume.fence(&mut self.actions);
            }
            (Pending::Check | Pending::List(_) | Pending::DeleteLeft, _) => {
                tracing::debug!(reason = %error, "an operation on the pools failed");
            }
            _ => tracing::warn!(reason = %error, "an operation on the pools failed"),
        }
    }

    fn take(&mut self, pending: Pending, result: Result<Answer, OpError>) {
        if let Err(error) = &result {
            self.note_error(pending, error);
        }
        let done = result.is_ok();
        let stored = || match &result {
            Ok(_) => Stored::Done,
            Err(OpError::Fenced | OpError::Unsure(_)) => Stored::NotOwner,
            Err(_) => Stored::Failed,
        };
        let event = match pending {
            Pending::Part(part, ticket) => {
                return self.part_ended(part, ticket, result);
            }
            Pending::Flush { request } => {
                let fenced = self.volume.is_fenced().then_some(Errno::IO);
                let failed = result.err().map(|error| error.errno()).or(fenced);
                let result = self.mail.note_flush(failed);
                self.requests.end_part(request, result);
                return self.finish(request);
            }
            Pending::Store { extent } => Event::Stored { extent, outcome: stored() },
            Pending::StoreHeader => Event::HeaderStored(stored()),
            Pending::Probe { extent } => {
                let exists = match result {
                    Ok(Answer::Exists(exists)) => Some(exists),
                    Err(OpError::Missing) => Some(false),
                    Ok(_) | Err(_) => None,
                };
                Event::Probed { extent, exists }
            }
            Pending::Copy { extent } => {
                let outcome = match result {
                    Ok(Answer::Changed) => Copied::Changed,
                    Ok(_) => Copied::Done,
                    Err(_) => Copied::Failed,
                };
                Event::Copied { extent, outcome }
            }
            Pending::Patch { extent } => Event::Patched { extent, done },
            Pending::Delete { extent } => Event::Deleted { extent, done },
            Pending::DeleteLeft => {
                self.status.left_deleted += u64::from(done);
                return self.left_deleted();
            }
            Pending::List(pool) => {
                if let Ok(Answer::Listed(listing)) = result {
                    self.judge(pool, listing);
                }
                return;
            }
            Pending::Check => {
                self.checking = false;
                return;
            }
        };
        self.volume.apply(event, &mut self.actions);
    }

    /// The volume may be another host's: nothing more of it is served.
    fn lose(&mut self, why: String) {
        if self.status.lost {
            return;
        }
        tracing::error!("{why}");
        self.status.lost = true;
        self.status.trouble = Some(why);
        self.tell();
        if let Some(lost) = self.lost.take() {
            lost();
        }
        for (_, part) in std::mem::take(&mut self.full) {
            self.end_part(part, Err(Errno::IO));
        }
        for key in std::mem::take(&mut self.waiting) {
            self.requests.fail(key, Errno::IO);
            self.finish(key);
        }
    }

    /// Sleeps until something happens, or it is time.
    fn wait(&mut self, closed: bool) {
        let now = Instant::now();
        let look = (self.last_look + LOOK_EVERY).saturating_duration_since(now);
        let period = Duration::from_secs_f64(self.planner.period_s());
        let round = (self.last_round + period).saturating_duration_since(now);
        let wake = self
            .volume
            .wake_ns()
            .map_or(look, |at| Duration::from_nanos(at.saturating_sub(self.now_ns())));
        let least = if closed { look.min(wake) } else { look.min(round).min(wake) };
        let timeout = Timespec::try_from(least).expect("about a second at most");
        let mut polls = [
            PollFd::from_borrowed_fd(self.mail.bell(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.pools.events(), PollFlags::IN),
        ];
        // An error is a signal: what is ready is looked at all the same.
        let _ready = poll(&mut polls, Some(&timeout));
    }

    fn tick(&mut self) {
        let now_ns = self.now_ns();
        self.volume.tick(now_ns, &mut self.actions);
        self.act();
    }

    fn look(&mut self) {
        self.tick();
        let is_due = self.last_check.elapsed() >= CHECK_EVERY;
        if is_due && !self.checking && !self.volume.is_fenced() {
            (self.checking, self.last_check) = (true, Instant::now());
            let epoch = self.volume.header().epoch;
            self.submit(Pending::Check, Op::Check { epoch });
        }
        self.tell();
    }

    /// Another budget than the table has.
    fn set_budget(&mut self) {
        if let Some(bytes) = self.settings.budget_bytes
            && bytes != self.volume.header().budget_bytes
            && let Err(error) = self.volume.set_budget(bytes, &mut self.actions)
        {
            tracing::warn!(reason = %error, "the budget stays");
        }
        self.act();
    }

    fn round(&mut self, now: Instant) {
        let seconds = (now - self.last_round).as_secs_f64();
        self.last_round = now;
        if self.volume.is_fenced() {
            return;
        }
        self.planned.clear();
        // What a smaller size has cut off may have gone since.
        self.heat.resize(self.volume.table().len());
        self.backoff.next_round();
        let may_move = |extent| self.volume.may_move(extent) && self.backoff.may_move(extent);
        let view = View {
            table: self.volume.table(),
            may_move: &may_move,
            budget_bytes: self.volume.header().budget_bytes,
            fast_bytes: self.volume.fast_bytes(),
            seconds,
        };
        self.planner.round(&mut self.heat, &view, &mut self.planned);
        self.volume.set_moves(self.planned.iter().map(|m| (m.extent, m.to)));
        self.status.gain_ms_per_s = self.planned.iter().map(gain_ms).sum();
        for planned in &self.planned {
            tracing::debug!("{planned}");
        }
        if let Some(last) = self.planned.first() {
            self.status.last_move = Some(last.to_string());
        }
        self.tick();
    }

    /// Tells others what it does.
    fn tell(&mut self) {
        let (header, table) = (self.volume.header(), self.volume.table());
        let status = &mut self.status;
        status.planner = self.planner.name();
        status.size_bytes = header.geometry.bytes();
        status.extent_bytes = header.geometry.extent_bytes();
        status.extents_present = table.present();
        status.objects = [Pool::Slow, Pool::Fast].map(|pool| table.objects(pool));
        status.budget_bytes = header.budget_bytes;
        status.fast_bytes = self.volume.fast_bytes();
        status.moving = self.volume.moving();
        status.counts = self.volume.counts();
        status.host_bytes = self.pools.moved_through_host();
        if !status.lost {
            status.trouble = self.pools.trouble();
        }
        self.mail.set_status(status.clone());
    }
}

fn gain_ms(planned: &Move) -> f64 {
    match planned.gain {
        Gain::Time { per_second, .. } => per_second * 1e3,
        Gain::Shares(_) => 0.0,
    }
}

fn errno_of(why: Refusal) -> Errno {
    match why {
        Refusal::Range => Errno::INVAL,
        Refusal::TooMany => Errno::AGAIN,
        Refusal::Fenced | Refusal::Table => Errno::IO,
    }
}
