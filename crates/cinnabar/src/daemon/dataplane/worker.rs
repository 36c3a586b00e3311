//! A data thread beside the first one: some of the engines, with an I/O port of their own.
//!
//! Requests come through an inbox and run to completion here; what a worker can't settle by itself
//! goes to the plane's inbox.

use super::clock::Clock;
use super::desk::Desk;
use super::inbox::Inbox;
use super::lane::{Lane, Said};
use super::startup::{open_port, sharpen_timers};
use crate::daemon::messages::{IoMode, StartError, StartErrorKind, Subject};
use cinnabar_backend::Memory;
use cinnabar_backend::port::PortEvent;
use cinnabar_engine::Event;
use cinnabar_engine::health::Health;
use cinnabar_engine::units::ByteSpan;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait for the end of a thread, which never waits for anything itself.
const END_WAIT_MAX: Duration = Duration::from_secs(5);

/// What a worker is told.
enum Order {
    /// For the engine of this shard.
    Event(u32, Event<Memory>),
    /// To be done between two turns.
    Call(Box<dyn FnOnce(&mut Lane) + Send>),
    End,
}

/// What the plane hears of its workers.
pub(super) enum Heard {
    /// From the thread of this number.
    Said(usize, Said),
    /// The server of the volume of this key may have restarted, and lost these ranges.
    Restarted(usize, Vec<ByteSpan>),
    /// The health of a shard has changed.
    Health(u32, Health),
    /// It can't go on.
    Failed(StartError),
}

/// The plane's handle of a worker.
pub(super) struct Worker {
    inbox: Inbox<Order>,
    /// Not sent yet.
    orders: Vec<Order>,
    thread: Option<JoinHandle<()>>,
    ended: mpsc::Receiver<()>,
}

impl Worker {
    /// Starts the thread of this number.
    pub(super) fn start(
        number: usize,
        clock: Clock,
        io: IoMode,
        (cache_timeout, poll_max): (Duration, Duration),
        plane: Inbox<Heard>,
    ) -> Result<Self, StartError> {
        let (started, starting) = mpsc::sync_channel(1);
        let (end, ended) = mpsc::sync_channel(1);
        let name = format!("cinnabar-data-{number}");
        let work = move || {
            let port = match open_port(io) {
                Ok(port) => port,
                Err(error) => return drop(started.send(Err(error))),
            };
            sharpen_timers();
            let inbox = Inbox::new(port.waker());
            let _ = started.send(Ok(inbox.clone()));
            let lane = Lane::new(clock, Desk::new(port, cache_timeout), poll_max);
            let thread = Thread { number, lane, inbox, plane, health: Vec::new() };
            thread.run();
            let _ = end.send(());
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        let thread = thread.map_err(|error| super::no_thread(&error.to_string()))?;
        let inbox = starting.recv().map_err(|_| super::no_thread("it ended unexpectedly"))??;
        Ok(Self { inbox, orders: Vec::new(), thread: Some(thread), ended })
    }

    /// An event for the engine of a shard, sent with the next [`send`](Self::send).
    pub(super) fn event(&mut self, shard: u32, event: Event<Memory>) {
        self.orders.push(Order::Event(shard, event));
    }

    /// Sends what there is to send.
    pub(super) fn send(&mut self) {
        self.inbox.append(&mut self.orders);
    }

    /// Has something done between two turns.
    pub(super) fn order(&mut self, work: impl FnOnce(&mut Lane) + Send + 'static) {
        self.orders.push(Order::Call(Box::new(work)));
        self.send();
    }

    /// The same, and waits for what comes of it: a moment, for a worker never waits. What was not
    /// sent yet stays so, for it came later than what this is about.
    ///
    /// # Panics
    /// If the thread is gone, which ends the daemon anyway.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Lane) -> T + Send + 'static,
    ) -> T {
        let (done, result) = mpsc::sync_channel(1);
        self.inbox.push(Order::Call(Box::new(move |lane| drop(done.send(work(lane))))));
        result.recv().expect("a worker ends last")
    }

    /// Ends the thread; false if it hangs.
    pub(super) fn end(mut self) -> bool {
        self.inbox.push(Order::End);
        let ended = self.ended.recv_timeout(END_WAIT_MAX).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            let _ = thread.join();
        }
        ended
    }
}

/// What the thread owns.
struct Thread {
    number: usize,
    lane: Lane,
    inbox: Inbox<Order>,
    plane: Inbox<Heard>,
    /// As last told.
    health: Vec<(u32, Health)>,
}

impl Thread {
    fn run(mut self) {
        let (mut events, mut orders) = (Vec::new(), Vec::new());
        let (mut said, mut heard) = (Vec::new(), Vec::new());
        loop {
            let until = self.lane.deadline();
            let inbox = &self.inbox;
            let looked = |_| inbox.is_filled();
            if let Err(errno) = self.lane.wait(until, looked, || inbox.sleeps(), &mut events) {
                let message = format!("waiting for I/O failed: {errno}");
                let hint = "see the kernel log";
                let kind = StartErrorKind::Io;
                let error = StartError::new(kind, Subject::Daemon, message, hint);
                self.plane.push(Heard::Failed(error));
                break;
            }
            let now = self.lane.clock.now();
            for event in events.drain(..) {
                match event {
                    PortEvent::Done(done) => self.lane.desk.io_done(now, done),
                    PortEvent::Restarted { file, ranges, first } => {
                        if let Some(key) = self.lane.desk.volume_at(file) {
                            self.lane.drop_lost(key, &ranges);
                            if first {
                                self.plane.push(Heard::Restarted(key, ranges));
                            }
                        }
                    }
                    PortEvent::Ready { .. } | PortEvent::Woken => {}
                }
            }
            self.lane.look_at_time(now);
            self.inbox.take(&mut orders);
            let mut ends = false;
            for order in orders.drain(..) {
                match order {
                    Order::Event(shard, event) => self.lane.shard(shard).events.push(event),
                    Order::Call(work) => work(&mut self.lane),
                    Order::End => ends = true,
                }
            }
            if ends {
                break;
            }
            self.lane.apply(now, &mut said);
            heard.extend(said.drain(..).map(|said| Heard::Said(self.number, said)));
            self.tell_health(&mut heard);
            self.plane.append(&mut heard);
        }
        self.lane.end();
    }

    /// Tells of shards that are doing otherwise than before.
    fn tell_health(&mut self, heard: &mut Vec<Heard>) {
        let all = self.lane.shards.iter().map(|shard| (shard.number, shard.engine.health()));
        let kind = |health: &Health| std::mem::discriminant(health);
        let same = |(a, b): ((u32, Health), &(u32, Health))| a.0 == b.0 && kind(&a.1) == kind(&b.1);
        if all.clone().count() == self.health.len() && all.clone().zip(&self.health).all(same) {
            return;
        }
        self.health = all.collect();
        heard.extend(self.health.iter().map(|(shard, health)| Heard::Health(*shard, *health)));
    }
}
