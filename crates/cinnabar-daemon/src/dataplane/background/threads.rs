//! Threads for what may block: as many as [`SlowWork`] lets begin, each for one piece of work after the
//! other. A data thread never does any of it: where no thread can be had, the work waits, and is tried
//! again when something ends, and at each look.

use crate::dataplane::clock::{Clock, after};
use cinnabar_backend::Waker;
use cinnabar_driver::SlowWork;
use cinnabar_driver::slow_work::Places;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc;
use std::time::Duration;

/// Between two looks, while there is work. What is there at two of them is slow.
pub(in super::super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks without a thread after which work is given up that can be.
const LOOKS_WITHOUT_MAX: u32 = 10;
/// Between two warnings of threads that can't be had.
const WARN_EVERY: Duration = Duration::from_mins(1);
/// Threads that wait for work.
const IDLE_MAX: usize = 16;
const THREADS_MAX: usize = 1024;

/// Work that may block.
pub(in super::super) trait Job: Sized + Send + 'static {
    /// What comes of it.
    type Done: Send + 'static;

    /// Its class, and its queue if it has one.
    fn place(&self) -> (Class, Option<Queue>);

    /// Does it; may block.
    fn run(self) -> Self::Done;

    /// There has been no thread for long: what comes of it without one, or the job, which waits on.
    fn give_up(self) -> Result<Self::Done, Self>;
}

/// Those named first go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Class {
    /// It writes the state folder. After a loss of the cache device guests' writes wait for that, so it
    /// has places that no back end can take.
    State,
    /// Guests, or engines, may wait for it.
    Urgent,
    /// An operator, or the end of a volume, waits for it.
    Usual,
    /// A cache device that is opened.
    Device,
    /// Nobody waits for more than an answer, a stop neither.
    Question,
    /// A try to open a volume that waits for its back end.
    Try,
}

impl Class {
    /// In the order of the classes.
    pub(super) const PLACES: [Places; 6] = [
        Places { usual: 2, slow: 0 },
        Places { usual: 32, slow: 224 },
        Places { usual: 8, slow: 56 },
        Places { usual: 8, slow: 0 },
        Places { usual: 32, slow: 64 },
        Places { usual: 256, slow: 0 },
    ];

    /// Most threads that work of all classes can hold.
    pub(super) const fn threads_max() -> usize {
        let (mut at, mut sum) = (0, 0);
        while at < Self::PLACES.len() {
            sum += Self::PLACES[at].usual + Self::PLACES[at].slow;
            at += 1;
        }
        sum
    }
}

const _: () =
    assert!(Class::threads_max() + IDLE_MAX <= THREADS_MAX, "TasksMax= has room for them");

/// Work of one queue is done one at a time: one that hangs holds one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Queue {
    /// The back end of the volume of this key, which is another one's only when nothing of the first is
    /// under way.
    Volume(usize),
    /// The claim to the volume of this number. It may be taken away when the volume has gone.
    Claim(u64),
    /// What is kept of the way between two hosts of the volume of this number.
    Move(u64),
    /// The state folder.
    State,
}

/// Starts a thread that does this.
pub(in super::super) type Spawn = Box<dyn Fn(Box<dyn FnOnce() + Send>) -> io::Result<()>>;

/// A real one.
pub(in super::super) fn spawn() -> Spawn {
    Box::new(|work| {
        let thread = std::thread::Builder::new().name("cinnabar-slow".into());
        thread.spawn(work).map(drop)
    })
}

/// A thread's end of its queue: work with its ticket.
type Thread<J> = mpsc::Sender<(usize, J)>;

/// See the module.
pub(in super::super) struct Threads<J: Job> {
    work: SlowWork<Queue, J>,
    idle: Vec<Thread<J>>,
    /// By the ticket of what they do.
    busy: BTreeMap<usize, Thread<J>>,
    spawn: Spawn,
    /// What was given up.
    given_up: VecDeque<J::Done>,
    sender: mpsc::Sender<(usize, J::Done)>,
    receiver: mpsc::Receiver<(usize, J::Done)>,
    waker: Waker,
    clock: Clock,
    next_look: Option<Instant>,
    /// The last thread that was asked for could not be had, since so many looks.
    refused: Option<u32>,
    warned: Option<Instant>,
    mutants: Mutants,
}

impl<J: Job> Threads<J> {
    pub(in super::super) fn new(
        waker: Waker,
        clock: Clock,
        spawn: Spawn,
        mutants: Mutants,
    ) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self {
            work: SlowWork::new(&Class::PLACES),
            idle: Vec::new(),
            busy: BTreeMap::new(),
            spawn,
            given_up: VecDeque::new(),
            sender,
            receiver,
            waker,
            clock,
            next_look: None,
            refused: None,
            warned: None,
            mutants,
        }
    }

    /// Has a thread do it, as soon as there is a place and a thread.
    pub(in super::super) fn start(&mut self, job: J) {
        let (class, queue) = job.place();
        self.work.push(class as usize, queue, job);
        self.fill();
        if self.next_look.is_none() {
            self.next_look = Some(after(self.clock.now(), LOOK_EVERY));
        }
    }

    /// Takes what has come of one.
    pub(in super::super) fn take(&mut self) -> Option<J::Done> {
        if let Some(done) = self.given_up.pop_front() {
            return Some(done);
        }
        let (ticket, done) = self.receiver.try_recv().ok()?;
        self.ended(ticket);
        Some(done)
    }

    /// The same, and waits for it.
    pub(in super::super) fn take_within(&mut self, wait_max: Duration) -> Option<J::Done> {
        if let Some(done) = self.given_up.pop_front() {
            return Some(done);
        }
        let (ticket, done) = self.receiver.recv_timeout(wait_max).ok()?;
        self.ended(ticket);
        Some(done)
    }

    fn ended(&mut self, ticket: usize) {
        self.work.ended(ticket);
        let thread = self.busy.remove(&ticket).expect("a thread has done it");
        if self.idle.len() < IDLE_MAX {
            self.idle.push(thread);
        }
        self.fill();
    }

    /// How much of a class waits, and how much is under way.
    pub(in super::super) fn count(&self, class: Class) -> (usize, usize) {
        self.work.count(class as usize)
    }

    /// When it is to be looked at.
    pub(in super::super) fn deadline(&self) -> Option<Instant> {
        self.next_look
    }

    /// Looks what is slow, and for a thread again if none could be had, if it is time to.
    pub(in super::super) fn look(&mut self, now: Instant) {
        if self.next_look.is_none_or(|at| at > now) {
            return;
        }
        self.work.look();
        self.fill();
        if let Some(looks) = &mut self.refused {
            *looks += 1;
            if *looks >= LOOKS_WITHOUT_MAX {
                self.give_up();
            }
        }
        self.next_look = (!self.work.is_empty()).then(|| after(now, LOOK_EVERY));
    }

    fn give_up(&mut self) {
        let given_up = &mut self.given_up;
        self.work.sift(|job| job.give_up().map(|done| given_up.push_back(done)).err());
        if !self.given_up.is_empty() {
            self.waker.wake();
        }
    }

    fn fill(&mut self) {
        while let Some((ticket, job)) = self.work.begin() {
            match self.give(ticket, job) {
                Ok(()) => self.refused = None,
                Err((job, _)) if self.mutants.is(Mutant::SlowWorkOnDataThread) => {
                    self.work.ended(ticket);
                    self.given_up.push_back(job.run());
                }
                Err((job, error)) => {
                    self.work.refused(ticket, job);
                    self.refused.get_or_insert(0);
                    return self.warn(&error);
                }
            }
        }
    }

    /// Gives it to a thread, a new one if none waits.
    fn give(&mut self, ticket: usize, job: J) -> Result<(), (J, io::Error)> {
        let thread = match self.idle.pop() {
            Some(thread) => thread,
            None => match self.new_thread() {
                Ok(thread) => thread,
                Err(error) => return Err((job, error)),
            },
        };
        // A thread ends when this end of its queue is gone.
        thread.send((ticket, job)).expect("the thread waits for work");
        self.busy.insert(ticket, thread);
        Ok(())
    }

    fn new_thread(&self) -> io::Result<Thread<J>> {
        let (thread, work) = mpsc::channel::<(usize, J)>();
        let (sender, waker) = (self.sender.clone(), self.waker.clone());
        let run = move || {
            for (ticket, job) in work {
                // The loop may be gone; then nobody wants to know.
                let _ = sender.send((ticket, job.run()));
                waker.wake();
            }
        };
        (self.spawn)(Box::new(run))?;
        Ok(thread)
    }

    fn warn(&mut self, error: &io::Error) {
        let now = self.clock.now();
        if self.warned.is_some_and(|at| after(at, WARN_EVERY) > now) {
            return;
        }
        self.warned = Some(now);
        tracing::warn!(
            %error, threads = self.busy.len(),
            "no thread for work that may block: it waits, and is tried again each second (hint: \
             raise the limit on threads: TasksMax=, pids.max, ulimit -u)"
        );
    }
}
