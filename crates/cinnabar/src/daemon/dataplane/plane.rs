//! The loop and what it owns.
//!
//! Called by the data thread.

use super::background::Background;
use super::cache::Cache;
use super::clock::Clock;
use super::control::Awaited;
use super::io::Io;
use super::proofs::Distrusts;
use super::replace::Replacing;
use super::requests::GuestRequest;
use super::stop::Stop;
use super::timers::Timers;
use super::volume::Volume;
use crate::daemon::generations::Ledger;
use crate::daemon::messages::{Message, StartError, StartErrorKind, Subject};
use cinnabar_backend::Memory;
use cinnabar_backend::disk::OpenOptions;
use cinnabar_backend::port::{Interest, Port, PortEvent};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::{Action, Engine, Event, IoRequest, Payload};
use cinnabar_frontend::nbd::{Buffers, Incoming, Ready, Server, Token, Want};
use slab::Slab;
use std::mem::ManuallyDrop;
use std::sync::mpsc;
use std::time::Duration;

/// Everything of the data plane.
pub(super) struct Plane {
    pub(super) clock: Clock,
    /// Not dropped while the kernel may hang in an operation: see [`Plane::end`].
    pub(super) port: ManuallyDrop<Box<dyn Port>>,
    pub(super) engine: Engine<Memory>,
    pub(super) server: Server<Memory>,
    pub(super) cache: Cache,
    /// Another device is taking its place.
    pub(super) replacing: Option<Replacing>,
    pub(super) volumes: Slab<Volume>,
    /// Keys of the volumes in the order they were added.
    pub(super) order: Vec<usize>,
    /// Keys of the volumes by the engine's names for them.
    pub(super) by_id: Vec<Option<usize>>,
    /// Guests' requests in the engine's hands.
    pub(super) requests: Slab<GuestRequest>,
    /// Commands in the engine's hands.
    pub(super) awaited: Slab<Awaited>,
    /// I/Os in the port's or a thread's hands, or held back by a model.
    pub(super) ios: Slab<Io>,
    /// I/Os of volumes whose attach the engine has not answered yet.
    pub(super) early: Vec<(VolumeId, IoRequest<Memory>)>,
    /// When the first of them takes too long.
    pub(super) next_overdue: Option<Instant>,
    /// Generations, outside of any cache device.
    pub(super) ledger: Ledger,
    pub(super) distrusts: Distrusts,
    pub(super) timers: Timers,
    /// When the engine wants to be woken.
    pub(super) engine_wake: Option<Instant>,
    pub(super) background: Background,
    /// Names of volumes being opened in the background.
    pub(super) opening: Vec<String>,
    pub(super) open_options: OpenOptions,
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) stop: Option<Stop>,
    pub(super) warnings: Warnings,
    /// How the opening of the device went, at start.
    pub(super) opened: Option<Result<(), cinnabar_engine::Failure>>,
    /// For the engine in the next batch.
    pub(super) events: Vec<Event<Memory>>,
    pub(super) actions: Vec<Action<Memory>>,
    pub(super) incoming: Vec<Incoming<Memory>>,
    pub(super) port_events: Vec<PortEvent>,
}

/// Where the NBD server's buffers come from; the memory knows its own way back.
pub(super) struct Pool;

impl Buffers<Memory> for Pool {
    fn take(&mut self, blocks: u32) -> Memory {
        Memory::alloc(blocks)
    }

    fn give(&mut self, buffer: Memory) {
        drop(buffer);
    }
}

impl Plane {
    /// Serves until it is told to stop or can't go on.
    pub(super) fn run(&mut self) -> Result<(), StartError> {
        while !self.is_ended() {
            self.turn()?;
        }
        Ok(())
    }

    /// One turn: wait, gather, apply, act, send.
    pub(super) fn turn(&mut self) -> Result<(), StartError> {
        for interest in self.server.take_interests() {
            match interest.want {
                Want::Watch { read, write } => {
                    self.port.watch(interest.fd, interest.token.0, Interest { read, write });
                }
                Want::Gone => self.port.unwatch(interest.token.0),
            }
        }
        let timeout = self.timeout();
        let mut port_events = std::mem::take(&mut self.port_events);
        self.port.wait(timeout, &mut port_events).map_err(|errno| {
            let message = format!("waiting for I/O failed: {errno}");
            StartError::new(StartErrorKind::Io, Subject::Daemon, message, "see the kernel log")
        })?;
        let now = self.clock.now();
        let woken = self.gather(now, &mut port_events);
        self.port_events = port_events;
        if woken {
            self.hear(now);
        }
        self.admit(now);
        self.apply(now);
        self.server.flush(now, &mut Pool);
        self.watch_health();
        self.advance_stop(now);
        Ok(())
    }

    /// How long the loop may wait: until the next thing is due, not at all if something is now.
    fn timeout(&self) -> Option<Duration> {
        if !self.events.is_empty() || self.server.has_backlog() {
            return Some(Duration::ZERO);
        }
        let stop = self.stop.as_ref().and_then(Stop::next_deadline);
        let wakes = [self.engine_wake, self.next_overdue, self.server.deadline(), stop];
        let due = wakes.into_iter().chain([self.timers.next()]);
        let next = due.flatten().min()?;
        Some(Duration::from_nanos(next.since_ns(self.clock.now())))
    }

    /// Makes events and requests of what happened. True if somebody rang.
    fn gather(&mut self, now: Instant, port_events: &mut Vec<PortEvent>) -> bool {
        let mut woken = false;
        for event in port_events.drain(..) {
            match event {
                PortEvent::Done(done) => self.io_done(now, done),
                PortEvent::Ready { token, readable, writable, hangup } => {
                    let ready = Ready { read: readable, write: writable, hangup };
                    let incoming = &mut self.incoming;
                    self.server.on_ready(Token(token), ready, now, &mut Pool, incoming);
                }
                PortEvent::Woken => woken = true,
            }
        }
        while let Some(held) = self.timers.due(now) {
            self.deliver(now, held.io, held.result, Vec::new());
        }
        self.tell_overdue(now);
        if self.engine_wake.is_some_and(|at| at <= now) {
            self.engine_wake = None;
            self.events.push(Event::Wake);
        }
        if self.server.has_backlog() {
            self.server.resume(now, &mut Pool, &mut self.incoming);
        }
        if self.server.deadline().is_some_and(|at| at <= now) {
            self.server.tick(now, &mut Pool);
        }
        woken
    }

    /// Lets the engine take the events, and does what it says. Answers to commands may bring
    /// further events; each command has a fixed number of steps, so this ends.
    pub(super) fn apply(&mut self, now: Instant) {
        while !self.events.is_empty() {
            self.engine.apply(now, &mut self.events, &mut self.actions);
            let mut actions = std::mem::take(&mut self.actions);
            // Latencies include what the batch itself took.
            let then = self.clock.now();
            for action in actions.drain(..) {
                match action {
                    Action::Io(request) => self.start_io(then, request),
                    Action::Reply(reply) => self.reply(then, reply),
                    Action::WakeAt(at) => {
                        self.engine_wake = Some(self.engine_wake.map_or(at, |wake| wake.min(at)));
                    }
                    Action::Sample(_) => {}
                }
            }
            self.actions = actions;
        }
    }

    /// Lets go of everything, in order. What still hangs in the kernel is left behind: waiting for
    /// it would keep the process from ending.
    pub(super) fn end(self) {
        let Self { port, stop, server, volumes, cache, ledger, .. } = self;
        drop((server, volumes, cache, ledger));
        let port = ManuallyDrop::into_inner(port);
        if port.in_flight() > 0 {
            tracing::warn!(in_flight = port.in_flight(), "ending with I/O under way");
            std::mem::forget(port);
        } else {
            drop(port);
        }
        // All is let go of, locks included.
        if let Some(stop) = stop {
            stop.tell();
        }
    }
}

/// Bounds what is logged of errors that may come by the thousand.
#[derive(Default)]
pub(super) struct Warnings {
    second: u64,
    count: u32,
}

impl Warnings {
    const PER_SECOND: u32 = 10;

    /// Whether one more may be logged now.
    pub(super) fn allow(&mut self, now: Instant) -> bool {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            *self = Self { second, count: 0 };
        }
        self.count += 1;
        self.count <= Self::PER_SECOND
    }
}
