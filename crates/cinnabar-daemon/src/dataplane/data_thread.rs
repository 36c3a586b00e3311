//! What one data thread does beside talking: shards that it runs, and its I/O table.
//!
//! A thread runs a shard when it has something for it: a request that arrived here, a completion of
//! its own port. It is the home of some shards ([`ShardPool::home`]): it wakes them, carries commands
//! out, and runs what others have left. Backends that are servers have all I/O of a shard done by one
//! thread ([`ShardPool::home`]), so that what a restarted server may have lost is known where its answers
//! arrive.

use super::clock::Clock;
use super::front::Side;
use super::guests::Late;
use super::idle::Idle;
use super::inbox::Inbox;
use super::io_table::{IoEvent, IoTable, ShardDoors};
use cinnabar_backend::Memory;
use cinnabar_backend::port::{Port, PortEvent};
use cinnabar_driver::ShardPool;
use cinnabar_driver::health_news::HealthNews;
use cinnabar_driver::pool::{Left, Ran};
use cinnabar_driver::qos_queue::Turn;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::volume::Recorded;
use cinnabar_engine::{Engine, Event, Failure, IoId, IoOp, Reply};
use cinnabar_frontend::{Body, Ticket};
use std::sync::Arc;
use std::time::Duration;

/// The shards, as data threads share them. Volumes are named by the plane's keys.
pub(super) type Pool = ShardPool<Memory, usize>;

/// See the module.
pub(super) struct DataThread {
    /// This thread's; 0 is the first.
    pub(super) number: usize,
    pub(super) clock: Clock,
    pub(super) io_table: IoTable,
    pub(super) pool: Arc<Pool>,
    /// By shard: what is for it from here.
    events: Vec<Vec<Event<Memory>>>,
    /// By shard: it is to be run here, with or without events.
    again: Vec<bool>,
    /// By shard: its home is to run it with what there is for it from here, this once.
    shared: Vec<bool>,
    /// By thread, this one's included.
    mail: Arc<[Inbox<ThreadMessage>]>,
    /// For other threads, by number; sent with each [`apply`](Self::apply).
    letters: Vec<(usize, ThreadMessage)>,
    /// What has come back for the guests of this thread.
    back: Vec<Returned>,
    idle: Idle,
}

/// From one data thread to another.
pub(super) enum ThreadMessage {
    /// A shard of which the reader is the home has something to do, or wants to be woken earlier.
    Look,
    /// An I/O of such a shard, on the backend of the volume of this key.
    Io { shard: u32, id: IoId, key: usize, op: IoOp<Memory> },
    /// For a guest of the reader's.
    Returned(Returned),
    /// In the group of this number it is the turn of an I/O that waits in the reader's queue.
    Turn(u32, Turn),
}

/// What comes back to the thread that serves a guest.
pub(super) enum Returned {
    /// A shard's answer to what the thread has submitted.
    Reply(Reply<Memory>),
    /// The first thread's answer to what was passed to it, of the volume of this key.
    Answer { key: usize, side: Side, ticket: Ticket, result: Result<Body<Memory>, Failure> },
    /// Every thread has looked at its port since the time of these requests was over.
    Late(Late),
}

/// What is for others to hear.
pub(super) enum ThreadEvent {
    /// An engine has answered.
    Reply(u32, Reply<Memory>),
    /// The I/O table can't settle it.
    Io(IoEvent),
    /// How a shard is has changed.
    Health(u32, HealthNews),
}

impl ThreadEvent {
    /// Whether it concerns the engines that are seated, and nobody else.
    pub(super) const fn is_of_engine(&self) -> bool {
        match self {
            Self::Reply(..) | Self::Health(..) => true,
            Self::Io(event) => {
                !matches!(event, IoEvent::Log(..) | IoEvent::Extents(..) | IoEvent::Quiet(_))
            }
        }
    }
}

impl DataThread {
    /// A thread without shards, and alone until it is told of others.
    pub(super) fn new(
        number: usize,
        clock: Clock,
        mut io_table: IoTable,
        poll_max: Duration,
    ) -> Self {
        io_table.belong_to(number);
        Self {
            number,
            clock,
            io_table,
            pool: Arc::new(ShardPool::new(Vec::new(), 1, Mutants::default())),
            events: Vec::new(),
            again: Vec::new(),
            shared: Vec::new(),
            mail: Arc::new([]),
            letters: Vec::new(),
            back: Vec::new(),
            idle: Idle::new(poll_max),
        }
    }

    /// Takes the inboxes of all threads, in order.
    pub(super) fn meet(&mut self, mail: Arc<[Inbox<ThreadMessage>]>) {
        self.mail = mail;
    }

    /// Takes other shards, and lets go of those there were and of what was for them.
    pub(super) fn seat(&mut self, pool: Arc<Pool>) {
        let shards = pool.shards() as usize;
        self.pool = pool;
        self.events = (0..shards).map(|_| Vec::new()).collect();
        self.again = vec![false; shards];
        self.shared = vec![false; shards];
        // What is not for a shard stays.
        self.io_table.told.retain(|told| matches!(told, IoEvent::Log(..)));
    }

    /// Something for a shard, which is run here.
    pub(super) fn give(&mut self, shard: u32, event: Event<Memory>) {
        self.events[shard as usize].push(event);
    }

    /// There is more than enough for this thread: what there is for a shard goes to its home.
    pub(super) fn share(&mut self, shard: u32) {
        self.shared[shard as usize] = !self.is_home(shard);
    }

    /// A command for a shard, which its home carries out: what it brings is I/O for long.
    pub(super) fn hand_over(&mut self, shard: u32, event: Event<Memory>) {
        if self.is_home(shard) {
            self.give(shard, event);
        } else {
            self.leave(shard, Left::Event(event));
        }
    }

    /// The engine's I/O to a volume of its own goes to the plane's volume `key`.
    pub(super) fn bind(&mut self, shard: u32, volume: VolumeId, key: usize) {
        self.leave(shard, Left::Bind(volume, key));
    }

    /// The server of the volume of this key may have lost these ranges: what the shards whose I/O on
    /// servers is done here have of them goes before they hear of anything that the server has done
    /// since.
    pub(super) fn drop_lost(&mut self, key: usize, ranges: &[ByteSpan]) {
        for shard in 0..self.pool.shards() {
            if self.pool.home(shard) != self.number {
                continue;
            }
            let events = &mut self.events[shard as usize];
            self.pool.leave(shard, events, Some(Left::DropLost(key, ranges.to_vec())));
            self.again[shard as usize] = true;
        }
    }

    /// A letter to another thread, sent with the next [`apply`](Self::apply).
    pub(super) fn send(&mut self, thread: usize, mail: ThreadMessage) {
        self.letters.push((thread, mail));
    }

    /// Takes what has come back for the guests of this thread.
    pub(super) fn take_back(&mut self, into: &mut Vec<Returned>) {
        into.append(&mut self.back);
    }

    /// Leaves what this thread still has for shards where they all can see it: nothing that another
    /// thread leaves from now on overtakes it.
    pub(super) fn leave_rest(&mut self) {
        for shard in 0..self.pool.shards() {
            let events = &mut self.events[shard as usize];
            if events.is_empty() {
                continue;
            }
            self.pool.leave(shard, events, None);
            if self.is_home(shard) {
                self.again[shard as usize] = true;
            } else {
                self.mail[self.pool.home(shard)].push(ThreadMessage::Look);
            }
        }
    }

    /// Leaves something for a shard's home, behind what this thread has for it.
    fn leave(&mut self, shard: u32, left: Left<Memory, usize>) {
        self.pool.leave(shard, &mut self.events[shard as usize], Some(left));
        if self.is_home(shard) {
            self.again[shard as usize] = true;
        } else {
            self.mail[self.pool.home(shard)].push(ThreadMessage::Look);
        }
    }

    fn is_home(&self, shard: u32) -> bool {
        self.pool.home(shard) == self.number
    }

    /// Asks each shard something, in order.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&Engine<Memory>) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        (0..self.pool.shards()).map(|shard| self.ask_one(shard, question.clone())).collect()
    }

    /// Asks a shard something; whoever runs it answers before its next batch.
    pub(super) fn ask_one<T: Send + 'static>(
        &self,
        shard: u32,
        question: impl FnOnce(&Engine<Memory>) -> T + Send + 'static,
    ) -> T {
        let answer = self.pool.ask(shard, |shard| question(&shard.engine));
        self.see_to(shard);
        answer
    }

    /// The same, and waits for the answer until then at most.
    pub(super) fn ask_until<T: Send + 'static>(
        &self,
        shard: u32,
        until: std::time::Instant,
        question: impl FnOnce(&Engine<Memory>) -> T + Send + 'static,
    ) -> Option<T> {
        let answer = self.pool.ask_later(shard, |shard| question(&shard.engine));
        self.see_to(shard);
        answer.recv_timeout(until.saturating_duration_since(std::time::Instant::now())).ok()
    }

    /// Asks a shard something, unless another thread runs it at the moment.
    pub(super) fn try_ask<T>(
        &self,
        shard: u32,
        question: impl FnOnce(&Engine<Memory>) -> T,
    ) -> Option<T> {
        let answer = self.pool.try_ask(shard, |shard| question(&shard.engine))?;
        self.see_to(shard);
        Some(answer)
    }

    /// A thread that came while the shard was asked has found it taken: its home looks at it.
    fn see_to(&self, shard: u32) {
        if self.pool.is_filled(shard)
            && let Some(home) = self.mail.get(self.pool.home(shard))
        {
            home.push(ThreadMessage::Look);
        }
    }

    /// What the device knows of a volume that is not attached.
    pub(super) fn recorded(&self, name: &str) -> Vec<Recorded> {
        let name = name.to_owned();
        self.ask(move |engine| engine.recorded(&name)).into_iter().flatten().collect()
    }

    /// When something is due here; at once if a shard has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let busy = self.events.iter().any(|events| !events.is_empty());
        let busy = busy || !self.letters.is_empty() || !self.back.is_empty();
        if busy || self.again.contains(&true) || !self.io_table.told.is_empty() {
            return Some(Instant::default());
        }
        let mut due = self.io_table.deadline();
        for shard in (0..self.pool.shards()).filter(|shard| self.is_home(*shard)) {
            if self.pool.is_filled(shard) {
                return Some(Instant::default());
            }
            due = due.into_iter().chain(self.pool.wake(shard)).min();
        }
        due
    }

    /// Waits for whatever comes first: the port, mail, what `others` looks for while this thread does
    /// not sleep, or the time. `sleeps` is called before it does, and may say that it must not.
    pub(super) fn wait(
        &mut self,
        until: Option<Instant>,
        mut others: impl FnMut(Instant) -> bool,
        sleeps: impl FnOnce() -> bool,
        events: &mut Vec<PortEvent>,
    ) -> rustix::io::Result<()> {
        let Self { idle, io_table, clock, mail, number, .. } = self;
        let mail = mail.get(*number);
        let others = |now| mail.is_some_and(Inbox::is_filled) || others(now);
        let sleeps = || mail.is_some_and(Inbox::sleeps) | sleeps();
        idle.wait(*clock, &mut **io_table.port, until, others, sleeps, events)
    }

    /// Whether the next wait begins with looking.
    pub(super) fn looks(&self) -> bool {
        self.idle.looks()
    }

    /// Takes note of the time, after everything that the port brought. The engines hear of that
    /// before they are told of a request that its time is over: a process that was stopped for longer
    /// has answers for its guests.
    pub(super) fn look_at_time(&mut self, now: Instant) {
        self.io_table.look_at_time(now);
        let mut rest = Vec::new();
        self.deliver(|told| rest.push(told));
        self.io_table.told.append(&mut rest);
        self.look_at_shards(now);
    }

    /// Takes note of shards that are to be woken, or that others have left something for.
    fn look_at_shards(&mut self, now: Instant) {
        for shard in 0..self.pool.shards() {
            if self.is_home(shard)
                && (self.pool.is_filled(shard) || self.pool.wake(shard).is_some_and(|at| at <= now))
            {
                self.again[shard as usize] = true;
            }
        }
    }

    /// Takes what other threads have sent.
    pub(super) fn read_mail(&mut self, now: Instant) {
        let Some(inbox) = self.mail.get(self.number).filter(|inbox| inbox.is_filled()) else {
            return;
        };
        let mut letters = Vec::new();
        inbox.take(&mut letters);
        let mut look = false;
        for mail in letters {
            match mail {
                ThreadMessage::Look => look = true,
                ThreadMessage::Io { shard, id, key, op } => {
                    self.io_table.backend_io(now, (shard, id), key, op);
                }
                ThreadMessage::Returned(back) => self.back.push(back),
                ThreadMessage::Turn(group, turn) => self.io_table.admit(now, group, turn),
            }
        }
        if look {
            self.look_at_shards(now);
        }
    }

    /// Runs the shards that have something to do, until they have not; gives what is for others.
    pub(super) fn apply(&mut self, now: Instant, said: &mut Vec<ThreadEvent>) {
        loop {
            self.deliver(|told| said.push(ThreadEvent::Io(told)));
            let mut quiet = true;
            for shard in 0..self.events.len() {
                let again = std::mem::take(&mut self.again[shard]);
                if std::mem::take(&mut self.shared[shard]) && !self.events[shard].is_empty() {
                    let home = self.pool.home(shard as u32);
                    self.pool.leave(shard as u32, &mut self.events[shard], None);
                    self.mail[home].push(ThreadMessage::Look);
                } else if again || !self.events[shard].is_empty() {
                    quiet &= !self.run(shard as u32, now, said);
                }
            }
            if quiet {
                break;
            }
        }
        self.io_table.take_turns(now, &mut self.letters);
        for (thread, mail) in self.letters.drain(..) {
            self.mail[thread].push(mail);
        }
    }

    /// Runs a shard; says whether it may have brought more to do at once.
    fn run(&mut self, shard: u32, now: Instant, said: &mut Vec<ThreadEvent>) -> bool {
        let Self { number, clock, io_table, pool, events, letters, back, .. } = self;
        let mut qos_queues =
            ShardDoors { now, clock: *clock, io_table, said, thread: *number, pool, letters, back };
        let ran = pool.run(shard, *number, now, &mut events[shard as usize], &mut qos_queues);
        self.again[shard as usize] |= ran == Ran::More;
        ran == Ran::Done
    }

    /// Gives the engines what the I/O table has for them, and the rest to `others`.
    fn deliver(&mut self, mut others: impl FnMut(IoEvent)) {
        let mut told = std::mem::take(&mut self.io_table.told);
        for one in told.drain(..) {
            match one {
                IoEvent::Done(shard, done) => self.give(shard, Event::IoDone(done)),
                IoEvent::Overdue(shard, id) => self.give(shard, Event::Overdue(id)),
                other => others(other),
            }
        }
        self.io_table.told = told;
    }

    /// What the port is called.
    pub(super) fn port(&mut self) -> &mut dyn Port {
        &mut **self.io_table.port
    }

    /// Lets go of everything.
    pub(super) fn end(self) {
        drop((self.events, self.letters, self.back, self.pool));
        self.io_table.end();
    }
}
