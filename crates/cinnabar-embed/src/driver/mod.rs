//! One engine with all its shards, its device, its volumes and all their I/O, in the caller's thread.
//!
//! A turn: what is due and what was submitted goes to the engine; its I/O goes to the port; the port
//! waits for whatever ends; that goes to the engine.

mod device;
mod grow;
mod io;
mod letting_go;
mod new_device;
mod overdue;
mod replace;
mod slow;
pub(crate) mod times;
mod volumes;

pub(crate) use device::open;

use crate::error::Error;
use crate::request::{Completion, QUEUE_MAX, Request, Volume};
use crate::{Buffer, CloseReport};
use cinnabar_backend::port::{OwnPort, PortEvent};
use cinnabar_backend::{Ledger, Memory};
use cinnabar_driver::io_tracker::after;
use cinnabar_driver::{IoTracker, PendingProofs};
use cinnabar_engine::health::LoadReport;
use cinnabar_engine::shards::Sharded;
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::{Action, Answer, Command, Event, Failure, IoRequest, Op, Reply, RequestId};
use device::Device;
use io::Io;
use replace::LOOK_EVERY;
use slab::Slab;
use slow::Slow;
use std::collections::VecDeque;
use std::time::Duration;
use volumes::Attached;

/// Set in the ids of commands; those of requests leave it free.
const COMMAND: u64 = 1 << 63;

/// See the module.
pub(crate) struct Driver {
    origin: std::time::Instant,
    port: OwnPort,
    pub(crate) engine: Sharded<Memory>,
    pub(crate) device: Device,
    ledger: Ledger,
    lock_wait: Duration,
    volumes: Slab<Attached>,
    /// Keys of the volumes by the engine's names for them.
    by_id: Vec<Option<usize>>,
    /// Requests in the engine's hands.
    requests: Slab<Asked>,
    /// Those of them that no program asked for: drops of what servers may have lost.
    dropping: usize,
    commands: Slab<PendingCommand>,
    ios: IoTracker<Io>,
    /// I/Os of volumes whose attach the engine has not answered yet.
    early: Vec<(VolumeId, IoRequest<Memory>)>,
    slow: Slow,
    /// Proofs and generations asked for; volumes by their keys, I/Os by their tokens.
    proofs: PendingProofs<usize, usize>,
    /// When the engine wants to be woken.
    engine_wake: Option<Instant>,
    /// Requests that the engine gets with the next turn, and when they were submitted does not count:
    /// the program may have done something else since.
    fresh: Vec<usize>,
    /// When the first request takes too long.
    next_late: Option<Instant>,
    /// When the port was last looked at.
    looked_at: Instant,
    /// When to try again to drop what could not be dropped.
    lost_at: Option<Instant>,
    /// A device that is to take another's place, once it is open, or why it could not be opened.
    opened: Option<Result<device::Prepared, Error>>,
    /// Of the device in use.
    pub(crate) loaded: Option<LoadReport>,
    pub(crate) done: VecDeque<Completion>,
    /// The answer to the one request that is waited for on the spot.
    answered: Option<Result<Option<Buffer>, Error>>,
    events: Vec<Event<Memory>>,
    actions: Vec<Action<Memory>>,
    port_events: Vec<PortEvent>,
}

/// A request in the engine's hands.
struct Asked {
    asker: Origin,
    name: &'static str,
    span: ByteSpan,
    /// Longest wait for its answer; zero: no bound.
    timeout: Duration,
    /// When the engine is told that it takes too long; `None`: never, or it was told.
    answer_by: Option<Instant>,
}

/// Who waits for an answer.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// The poller, under this tag.
    Poll(u64),
    /// A call that has not returned yet.
    Here,
    /// Nobody; but what is cached of this volume's bytes must go.
    Lost(usize),
}

/// A command in the engine's hands, or its answer.
enum PendingCommand {
    Under,
    /// Nobody takes the answer.
    Unheard,
    Load,
    /// The engine gives up a device that was lost.
    GiveUp,
    Answered(Result<Answer<Memory>, Failure>),
}

impl Driver {
    fn now(&self) -> Instant {
        Instant(self.origin.elapsed().as_nanos() as u64)
    }

    /// Hands a request to the engine with the next turn.
    pub(crate) fn submit(
        &mut self,
        volume: Volume,
        asker: Origin,
        request: Request,
    ) -> Result<(), Error> {
        let attached = self.attached(volume)?;
        request.check(attached.size_bytes)?;
        let id = attached.life.id().ok_or(Error::NoVolume)?;
        if self.under_way() >= QUEUE_MAX {
            return Err(Error::QueueFull);
        }
        let (name, span) = (request.name(), request.span());
        let timeout = attached.timeout;
        let asked = Asked { asker, name, span, timeout, answer_by: None };
        match request.into_op() {
            Some(op) => {
                let place = self.requests.insert(asked);
                self.fresh.push(place);
                let id_of = RequestId(place as u64);
                let request = cinnabar_engine::Request { id: id_of, volume: id, op };
                self.events.push(Event::Submit(request));
            }
            None => self.finish(asker, asked.span, Ok(None)),
        }
        Ok(())
    }

    /// Drops what is cached of a range of the volume of this key.
    fn drop_lost(&mut self, key: usize, volume: VolumeId, span: ByteSpan) {
        let asked = Asked {
            asker: Origin::Lost(key),
            name: "invalidation",
            span,
            timeout: Duration::ZERO,
            answer_by: None,
        };
        self.dropping += 1;
        let id = RequestId(self.requests.insert(asked) as u64);
        let op = Op::Invalidate { span };
        self.events.push(Event::Submit(cinnabar_engine::Request { id, volume, op }));
    }

    /// Does a request and waits for it.
    pub(crate) fn ask(
        &mut self,
        volume: Volume,
        request: Request,
    ) -> Result<Option<Buffer>, Error> {
        self.submit(volume, Origin::Here, request)?;
        loop {
            self.act();
            if let Some(answer) = self.answered.take() {
                // What else is queued must not wait for the caller's next miss.
                if self.port.in_flight() > 0 {
                    self.wait(Some(Duration::ZERO))?;
                }
                return answer;
            }
            self.wait(None)?;
        }
    }

    /// Does a command and waits for the answer.
    fn command(&mut self, command: Command) -> Result<Result<Answer<Memory>, Failure>, Error> {
        let place = self.order(PendingCommand::Under, command);
        loop {
            self.act();
            if matches!(self.commands[place], PendingCommand::Answered(_)) {
                let PendingCommand::Answered(answer) = self.commands.remove(place) else {
                    unreachable!("it was just looked at")
                };
                return Ok(answer);
            }
            self.wait(None)?;
        }
    }

    /// Gives a command with the next turn.
    fn order(&mut self, awaited: PendingCommand, command: Command) -> usize {
        let place = self.commands.insert(awaited);
        self.events.push(Event::Control(RequestId(COMMAND | place as u64), command));
        place
    }

    /// Requests under way whose completions `poll` will bring.
    pub(crate) fn under_way(&self) -> usize {
        self.requests.len() - self.dropping
    }

    /// Everything that can be done now without waiting.
    pub(crate) fn act(&mut self) {
        let now = self.now();
        self.time_fresh(now);
        while !self.events.is_empty() {
            self.engine.apply(now, &mut self.events, &mut self.actions);
            let mut actions = std::mem::take(&mut self.actions);
            for action in actions.drain(..) {
                match action {
                    Action::Io(request) => self.start_io(now, request),
                    Action::Reply(reply) => self.reply(reply),
                    Action::WakeAt(at) => {
                        self.engine_wake = Some(self.engine_wake.map_or(at, |wake| wake.min(at)));
                    }
                }
            }
            self.actions = actions;
        }
    }

    /// What the clock brings, after everything that the port brought: a program that does something
    /// else for longer than a time-out has no slow disk.
    fn tell_due(&mut self, now: Instant) {
        while let Some(ended) = self.ios.take_due(now) {
            self.deliver(ended);
        }
        self.tell_overdue(now);
        let looked_at = std::mem::replace(&mut self.looked_at, now);
        self.tell_late(looked_at);
        if self.lost_at.is_some_and(|at| at <= now) {
            self.lost_at = None;
            self.drop_lost_ranges();
        }
        if self.engine_wake.is_some_and(|at| at <= now) {
            self.engine_wake = None;
            self.events.push(Event::Wake);
        }
    }

    /// Waits until something happens, is due, or `limit` has passed, and gathers it.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        self.start_proofs();
        let due = [self.engine_wake, self.ios.deadline(), self.lost_at, self.next_late];
        let retry = self.slow.waits().then(|| after(self.now(), LOOK_EVERY));
        let due = due.into_iter().chain([retry]).flatten().min();
        let due = due.map(|at| Duration::from_nanos(at.since_ns(self.now())));
        let timeout = match (due, limit) {
            (Some(due), Some(limit)) => Some(due.min(limit)),
            (due, limit) => due.or(limit),
        };
        let mut port_events = std::mem::take(&mut self.port_events);
        self.port.wait(timeout, &mut port_events).map_err(Error::Wait)?;
        self.slow.retry();
        let (now, mut woken) = (self.now(), false);
        for event in port_events.drain(..) {
            match event {
                PortEvent::Done(done) => self.io_done(now, done),
                PortEvent::Woken => woken = true,
                PortEvent::Ready { .. } => unreachable!("no socket is watched"),
                PortEvent::Restarted { file, ranges, .. } => self.server_restarted(file, &ranges),
            }
        }
        self.port_events = port_events;
        self.tell_due(now);
        if woken {
            self.take_slow(now);
        }
        self.watch_device();
        Ok(())
    }

    fn reply(&mut self, reply: Reply<Memory>) {
        let Reply { id, result } = reply;
        if id.0 & COMMAND != 0 {
            return self.command_done((id.0 & !COMMAND) as usize, result);
        }
        let Asked { asker, name, span, .. } = self.requests.remove(id.0 as usize);
        let result = match result {
            Ok(Answer::Data(memory)) => Ok(Some(Buffer::around(memory, span))),
            Ok(_) => Ok(None),
            Err(failure) => Err(Error::Failed { what: name, failure }),
        };
        self.finish(asker, span, result);
    }

    fn finish(&mut self, asker: Origin, span: ByteSpan, result: Result<Option<Buffer>, Error>) {
        match asker {
            Origin::Poll(tag) => self.done.push_back(Completion { tag, result }),
            Origin::Here => self.answered = Some(result),
            Origin::Lost(key) => {
                self.dropping -= 1;
                // The volume leaves, or its generation could not be raised.
                if result.is_err() {
                    self.put_back_lost(key, span);
                }
            }
        }
    }

    fn command_done(&mut self, place: usize, result: Result<Answer<Memory>, Failure>) {
        match self.commands[place] {
            PendingCommand::Under => self.commands[place] = PendingCommand::Answered(result),
            PendingCommand::Load => {
                self.commands.remove(place);
                if let Ok(Answer::Loaded(report)) = result
                    && self.device.is_open()
                {
                    self.loaded = Some(report);
                    let keys: Vec<usize> = self.volumes.iter().map(|(key, _)| key).collect();
                    self.settle_warmth(&keys);
                }
            }
            PendingCommand::Unheard => drop(self.commands.remove(place)),
            PendingCommand::GiveUp => {
                self.commands.remove(place);
                self.lost_device_given_up(result.map(drop));
            }
            PendingCommand::Answered(_) => unreachable!("a command is answered once"),
        }
    }

    /// Detaches every volume and ends the life of the device.
    pub(crate) fn close(mut self) -> Result<CloseReport, Error> {
        self.settle_device()?;
        self.device.life.close();
        self.hurry_device();
        let volumes: Vec<Volume> = self.attached_volumes();
        let mut first_error = None;
        for volume in volumes {
            if let Err(error) = self.detach(volume) {
                first_error.get_or_insert(error);
            }
        }
        // It may have been lost on the way; the engine closes all the same then.
        let clean = self.degraded().is_none();
        let closed = self.command(Command::Close)?;
        let kept_blocks = self.engine.cache_counters().cached_blocks;
        match (first_error, closed) {
            (Some(error), _) => Err(error),
            (None, Ok(_)) => {
                Ok(CloseReport { clean, kept_blocks: if clean { kept_blocks } else { 0 } })
            }
            (None, Err(failure)) => Err(Error::Failed { what: "closing the cache", failure }),
        }
    }
}

#[cfg(test)]
mod tests;
