//! A data thread beside the first one, with an I/O port of its own: the home of some of the shards,
//! which serves some of the volumes.
//!
//! What a worker can't settle by itself goes to the plane's inbox.

use super::clock::Clock;
use super::data_thread::{DataThread, ThreadEvent, ThreadMessage};
use super::front::{ClientLimits, Front};
use super::guests::{Forwarded, Guests, Late};
use super::inbox::Inbox;
use super::io_table::{IoEvent, IoTable};
use super::plane::extents;
use super::startup::{open_port, sharpen_timers};
use super::volume::export_of;
use cinnabar_backend::port::PortEvent;
use cinnabar_config::messages::pulse::{Beat, Pulse};
use cinnabar_config::messages::{IoMode, StartError, StartErrorKind, Subject};
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_frontend::Ready;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait for the end of a thread, which never waits for anything itself.
const END_WAIT_MAX: Duration = Duration::from_secs(5);
/// What a thread has for an answer in any case: others may have used up the time.
const ANSWER_WAIT_MIN: Duration = Duration::from_millis(100);
/// Between two looks for orders of a thread that has lost its port.
const FAILED_WAIT: Duration = Duration::from_millis(10);

/// What a worker is told.
enum Order {
    /// To be done between two turns.
    Call(Box<dyn FnOnce(&mut WorkerState) + Send>),
    /// To look at the port once more, and to say when what it has brought has been run.
    Look,
    End,
}

/// What the plane hears of its workers.
pub(super) enum WorkerEvent {
    /// From the thread of this number.
    DataThread(usize, ThreadEvent),
    /// The server of the volume of this key may have restarted, and lost these ranges.
    Restarted(usize, Vec<ByteSpan>),
    /// The same, told by this thread's port, too.
    RestartedToo(usize),
    /// The same, and the write log has heard of it.
    Lost(usize, Vec<ByteSpan>),
    /// A guest's request that this thread can't settle.
    Forwarded(usize, Forwarded),
    /// The time of these requests of this thread's is over.
    Overdue(usize, Late),
    /// After a drain: a thread's guests have all gone.
    Drained,
    /// What a port had brought when this was asked for has been run.
    Looked,
    /// The plane itself is asked whether it turns.
    Asked(Beat),
    /// It can't go on.
    Failed(StartError),
}

/// The plane's handle of a worker.
pub(super) struct Worker {
    name: String,
    inbox: Inbox<Order>,
    /// The same from all threads.
    pub(super) mail: Inbox<ThreadMessage>,
    thread: Option<JoinHandle<()>>,
    ended: mpsc::Receiver<()>,
    /// An answer that is not waited for without end.
    owes: Arc<AtomicBool>,
}

impl Worker {
    /// Starts the thread of this number.
    pub(super) fn start(
        number: usize,
        clock: Clock,
        io: IoMode,
        clients: ClientLimits,
        (cache_timeout, poll_max): (Duration, Duration),
        plane: Inbox<WorkerEvent>,
    ) -> Result<Self, StartError> {
        let (started, starting) = mpsc::sync_channel(1);
        let (end, ended) = mpsc::sync_channel(1);
        let name = format!("{}-{number}", super::FIRST_THREAD);
        let work = move || {
            let port = match open_port(io) {
                Ok(port) => port,
                Err(error) => return drop(started.send(Err(error))),
            };
            sharpen_timers();
            let inbox = Inbox::new(port.waker());
            let mail = Inbox::new(port.waker());
            let _ = started.send(Ok((inbox.clone(), mail)));
            let front = Front::new(port.waker(), clients);
            let data_thread =
                DataThread::new(number, clock, IoTable::new(port, cache_timeout), poll_max);
            let hands =
                WorkerState { data_thread, front, guests: Guests::new(number), drains: false };
            Thread { hands, inbox, plane }.run();
            let _ = end.send(());
        };
        let thread = std::thread::Builder::new().name(name.clone()).spawn(work);
        let thread = thread.map_err(|error| super::no_thread(&error.to_string()))?;
        let (inbox, mail) =
            starting.recv().map_err(|_| super::no_thread("it ended unexpectedly"))??;
        Ok(Self { name, inbox, mail, thread: Some(thread), ended, owes: Arc::default() })
    }

    /// Has something done between two turns.
    pub(super) fn order(&self, work: impl FnOnce(&mut WorkerState) + Send + 'static) {
        self.inbox.push(Order::Call(Box::new(work)));
    }

    /// Asks it whether it turns.
    pub(super) fn pulse(&self) -> Pulse {
        let inbox = self.inbox.clone();
        Pulse::new(&self.name, move |beat| {
            inbox.push(Order::Call(Box::new(move |_| beat.answer())));
        })
    }

    /// Has it say when what its port has brought has been run.
    pub(super) fn have_look(&self) {
        self.inbox.push(Order::Look);
    }

    /// Has something done between two turns, and waits for what comes of it: a moment, for a worker
    /// never waits.
    ///
    /// # Panics
    /// If the thread is gone, which ends the daemon anyway.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WorkerState) -> T + Send + 'static,
    ) -> T {
        let (done, result) = mpsc::sync_channel(1);
        self.inbox.push(Order::Call(Box::new(move |hands| drop(done.send(work(hands))))));
        result.recv().expect("a worker ends last")
    }

    /// The same for a question that does without an answer: none is waited for long after `until`, and one that
    /// was asked so before and has not been answered is not asked again.
    pub(super) fn ask_until<T: Send + 'static>(
        &self,
        until: std::time::Instant,
        question: impl FnOnce(&mut WorkerState) -> T + Send + 'static,
    ) -> Option<T> {
        if self.owes.swap(true, Relaxed) {
            return None;
        }
        let owes = Arc::clone(&self.owes);
        let (done, answer) = mpsc::sync_channel(1);
        self.order(move |hands| {
            owes.store(false, Relaxed);
            drop(done.send(question(hands)));
        });
        let left = until.saturating_duration_since(std::time::Instant::now());
        answer.recv_timeout(left.max(ANSWER_WAIT_MIN)).ok()
    }

    /// That such a question is not answered.
    pub(super) fn silence(&self) -> Option<String> {
        self.owes.load(Relaxed).then(|| format!("data thread {} does not answer", self.name))
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

/// What the thread owns, as the first thread's orders find it.
pub(super) struct WorkerState {
    pub(super) data_thread: DataThread,
    pub(super) front: Front,
    pub(super) guests: Guests,
    /// The servers take no more clients and requests.
    drains: bool,
}

impl WorkerState {
    /// Closes a volume of which the first thread is about to take leave: no more of its requests come
    /// from here, and those that came are where the leave can't overtake them.
    pub(super) fn close(&mut self, key: usize) {
        self.front.remove(export_of(key));
        self.guests.remove(key);
        self.data_thread.leave_rest();
    }

    /// No new clients and requests; the first thread hears when all have ended.
    pub(super) fn drain(&mut self) {
        self.front.drain(self.data_thread.clock.now());
        self.drains = true;
    }

    /// When something is due here; at once if there is something to do.
    fn deadline(&self) -> Option<Instant> {
        if self.front.has_backlog() {
            return Some(Instant::default());
        }
        let dues = [self.data_thread.deadline(), self.front.deadline(), self.guests.deadline()];
        dues.into_iter().flatten().min()
    }

    /// Waits for whatever comes first.
    fn wait(
        &mut self,
        inbox: &Inbox<Order>,
        looks: bool,
        events: &mut Vec<PortEvent>,
    ) -> rustix::io::Result<()> {
        let until = if looks { Some(Instant::default()) } else { self.deadline() };
        let Self { data_thread, front, .. } = self;
        if looks {
            data_thread.port().look_at_all();
        }
        let Front { vhost, .. } = front;
        if data_thread.looks() {
            vhost.set_polling(true);
        }
        // Both are asked in turn, never at once.
        let vhost = RefCell::new(vhost);
        let looked = |now| inbox.is_filled() || vhost.borrow_mut().poll(now);
        let sleeps = || inbox.sleeps() | vhost.borrow_mut().set_polling(false);
        data_thread.wait(until, looked, sleeps, events)
    }

    /// Runs what there is, and answers guests; the rest is for the first thread to hear.
    fn run(&mut self, now: Instant, said: &mut Vec<ThreadEvent>, heard: &mut Vec<WorkerEvent>) {
        let Self { data_thread, front, guests, .. } = self;
        let mut back = Vec::new();
        data_thread.take_back(&mut back);
        for one in back.drain(..) {
            guests.hear(now, one, front, data_thread);
        }
        guests.admit(now, front, data_thread);
        data_thread.apply(now, said);
        data_thread.take_back(&mut back);
        if !back.is_empty() {
            // Latencies include what the batch itself took.
            let then = data_thread.clock.now();
            for one in back {
                guests.hear(then, one, front, data_thread);
            }
        }
        if guests.has_passed() {
            // What came before it is at the shards before it.
            data_thread.leave_rest();
            let number = data_thread.number;
            heard.extend(guests.take_passed().map(|passed| WorkerEvent::Forwarded(number, passed)));
        }
        for one in said.drain(..) {
            match one {
                ThreadEvent::Io(IoEvent::Extents(caller, found)) => {
                    front.reply(caller.side, caller.ticket, Ok(extents(found)));
                }
                said => heard.push(WorkerEvent::DataThread(data_thread.number, said)),
            }
        }
        front.flush(now);
        if self.drains && front.is_drained() {
            self.drains = false;
            heard.push(WorkerEvent::Drained);
        }
    }
}

/// A data thread beside the first.
struct Thread {
    hands: WorkerState,
    inbox: Inbox<Order>,
    plane: Inbox<WorkerEvent>,
}

impl Thread {
    fn run(mut self) {
        let (mut events, mut orders) = (Vec::new(), Vec::new());
        let (mut said, mut heard) = (Vec::new(), Vec::new());
        // Looks that were asked for in the turn before: its own look at the port may have been earlier.
        let mut looks = 0;
        loop {
            self.hands.front.watch(self.hands.data_thread.port());
            if let Err(errno) = self.hands.wait(&self.inbox, looks > 0, &mut events) {
                let message = format!("waiting for I/O failed: {errno}");
                let hint = "see the kernel log";
                let kind = StartErrorKind::Io;
                let error = StartError::new(kind, Subject::Daemon, message, hint);
                self.plane.push(WorkerEvent::Failed(error));
                (0..looks).for_each(|_| self.plane.push(WorkerEvent::Looked));
                self.obey_until_the_end();
                break;
            }
            let now = self.hands.data_thread.clock.now();
            for event in events.drain(..) {
                self.take(now, event);
            }
            self.hands.data_thread.look_at_time(now);
            self.hands.data_thread.read_mail(now);
            if let Some(late) = self.hands.guests.tell_late(now) {
                heard.push(WorkerEvent::Overdue(self.hands.data_thread.number, late));
            }
            self.hands.front.look(now);
            self.inbox.take(&mut orders);
            let (mut ends, looked) = (false, std::mem::take(&mut looks));
            for order in orders.drain(..) {
                match order {
                    Order::Call(work) => work(&mut self.hands),
                    Order::Look => looks += 1,
                    Order::End => ends = true,
                }
            }
            if ends {
                break;
            }
            self.hands.run(now, &mut said, &mut heard);
            heard.extend((0..looked).map(|_| WorkerEvent::Looked));
            self.plane.append(&mut heard);
        }
        let WorkerState { data_thread, front, .. } = self.hands;
        drop(front);
        data_thread.end();
    }

    /// The port is gone, and with it what would wake this thread: the first one may be about to ask
    /// for something, and waits for that.
    fn obey_until_the_end(&mut self) {
        let mut orders = Vec::new();
        loop {
            self.inbox.take(&mut orders);
            for order in orders.drain(..) {
                match order {
                    Order::Call(work) => work(&mut self.hands),
                    Order::Look => self.plane.push(WorkerEvent::Looked),
                    Order::End => return,
                }
            }
            std::thread::sleep(FAILED_WAIT);
        }
    }

    /// Makes events and requests of what the port has brought.
    fn take(&mut self, now: Instant, event: PortEvent) {
        let WorkerState { data_thread, front, .. } = &mut self.hands;
        match event {
            PortEvent::Done(done) => data_thread.io_table.io_done(now, done),
            PortEvent::Ready { token, readable, writable, hangup } => {
                let ready = Ready { read: readable, write: writable, hangup };
                front.on_ready(now, token, ready);
            }
            PortEvent::Restarted { file, ranges, first } => {
                if let Some(key) = data_thread.io_table.volume_at(file) {
                    data_thread.drop_lost(key, &ranges);
                    self.plane.push(if first {
                        WorkerEvent::Restarted(key, ranges)
                    } else {
                        WorkerEvent::RestartedToo(key)
                    });
                }
            }
            PortEvent::Woken => {}
        }
    }
}
