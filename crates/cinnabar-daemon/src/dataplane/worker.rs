//! A data thread beside the first one, with an I/O port of its own: the home of some of the shards.
//!
//! What a worker can't settle by itself goes to the plane's inbox.

use super::clock::Clock;
use super::desk::Desk;
use super::inbox::Inbox;
use super::lane::{Lane, Mail, Said};
use super::startup::{open_port, sharpen_timers};
use crate::messages::{IoMode, StartError, StartErrorKind, Subject};
use cinnabar_backend::port::PortEvent;
use cinnabar_engine::units::ByteSpan;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait for the end of a thread, which never waits for anything itself.
const END_WAIT_MAX: Duration = Duration::from_secs(5);

/// What a worker is told.
enum Order {
    /// To be done between two turns.
    Call(Box<dyn FnOnce(&mut Lane) + Send>),
    /// To say when what the port has brought by now has been run.
    Look,
    End,
}

/// What the plane hears of its workers.
pub(super) enum Heard {
    /// From the thread of this number.
    Said(usize, Said),
    /// The server of the volume of this key may have restarted, and lost these ranges.
    Restarted(usize, Vec<ByteSpan>),
    /// The same, told by this thread's port, too.
    RestartedToo(usize),
    /// The same, and the write log has heard of it.
    Lost(usize, Vec<ByteSpan>),
    /// What a port had brought when this was asked for has been run.
    Looked,
    /// It can't go on.
    Failed(StartError),
}

/// The plane's handle of a worker.
pub(super) struct Worker {
    inbox: Inbox<Order>,
    /// The same from all threads.
    pub(super) mail: Inbox<Mail>,
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
            let mail = Inbox::new(port.waker());
            let _ = started.send(Ok((inbox.clone(), mail)));
            let lane = Lane::new(number, clock, Desk::new(port, cache_timeout), poll_max);
            let thread = Thread { number, lane, inbox, plane };
            thread.run();
            let _ = end.send(());
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        let thread = thread.map_err(|error| super::no_thread(&error.to_string()))?;
        let (inbox, mail) =
            starting.recv().map_err(|_| super::no_thread("it ended unexpectedly"))??;
        Ok(Self { inbox, mail, thread: Some(thread), ended })
    }

    /// Has something done between two turns.
    pub(super) fn order(&self, work: impl FnOnce(&mut Lane) + Send + 'static) {
        self.inbox.push(Order::Call(Box::new(work)));
    }

    /// Has it say when what its port has brought has been run.
    pub(super) fn have_look(&mut self) {
        self.inbox.push(Order::Look);
    }

    /// Has something done between two turns, and waits for what comes of it: a moment, for a worker
    /// never waits.
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
                            self.plane.push(if first {
                                Heard::Restarted(key, ranges)
                            } else {
                                Heard::RestartedToo(key)
                            });
                        }
                    }
                    PortEvent::Ready { .. } | PortEvent::Woken => {}
                }
            }
            self.lane.look_at_time(now);
            self.lane.read_mail(now);
            self.inbox.take(&mut orders);
            let (mut ends, mut looked) = (false, 0);
            for order in orders.drain(..) {
                match order {
                    Order::Call(work) => work(&mut self.lane),
                    Order::Look => looked += 1,
                    Order::End => ends = true,
                }
            }
            if ends {
                break;
            }
            self.lane.apply(now, &mut said);
            heard.extend(said.drain(..).map(|said| Heard::Said(self.number, said)));
            heard.extend((0..looked).map(|_| Heard::Looked));
            self.plane.append(&mut heard);
        }
        self.lane.end();
    }
}
