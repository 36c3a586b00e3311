//! All shards of a cache, for any of its threads to run.
//!
//! The thread where a request or a completion arrives runs its shard itself. Each shard stands behind
//! a lock that is only ever *tried*: a thread that finds it taken leaves its events in the shard's
//! inbox, and the holder takes them before it lets go, and looks again after it has let go. So no
//! event is lost, and no thread waits for another. Questions are left in the same way, and a
//! shard that is let go of keeps no event for itself.
//!
//! A shard's wake-ups belong to one thread, its home. When a shard that is run elsewhere wants to be
//! woken earlier than its home knows, the home is told ([`ShardIo::tell_home`]).

#![expect(clippy::disallowed_types, reason = "its locks are tried, or held for a list's append")]

mod questions;

use crate::health_news::HealthNews;
use crate::shard::{Binding, Shard, ShardIo};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, fence};
use cinnabar_engine::health::Health;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::{Engine, Event, Payload};
use questions::Questions;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::{PoisonError, TryLockError, mpsc};

/// Batches that a holder takes before it goes back to its other work. What is left is its own to
/// take, at its next turn.
const BATCHES_MAX: u32 = 16;
/// In place of an instant: the engine does not want to be woken.
const NEVER: u64 = u64::MAX;

/// What is left for a shard.
#[derive(Debug)]
pub enum Left<P, V> {
    /// An event of its engine.
    Event(Event<P>),
    /// [`Shard::bind`].
    Bind(VolumeId, V),
    /// [`Shard::drop_lost`].
    DropLost(V, Vec<ByteSpan>),
}

/// What became of an attempt to run a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It has taken all there was.
    Done,
    /// Another thread runs it, and takes what was left.
    Taken,
    /// There is more; the caller runs it again, after a look at its port.
    More,
}

/// See the module.
pub struct ShardPool<P, V> {
    seats: Vec<ShardSlot<P, V>>,
    threads: usize,
    mutants: Mutants,
}

/// A shard's place.
struct ShardSlot<P, V> {
    held: Mutex<Held<P, V>>,
    inbox: Mutex<Vec<Left<P, V>>>,
    /// There may be something in the inbox.
    filled: AtomicBool,
    questions: Questions<Shard<P, V>>,
    /// When the engine wants to be woken, as of the last run.
    wake: AtomicU64,
}

struct Held<P, V> {
    shard: Shard<P, V>,
    /// As last told, and how often it was.
    health: Option<Health>,
    told: u64,
}

impl<P: Payload, V: Copy + PartialEq> ShardPool<P, V> {
    /// A shard for each engine, in order, for so many threads. The mutants are those of tests.
    ///
    /// # Panics
    /// If there is no thread.
    pub fn new(engines: Vec<Engine<P>>, threads: usize, mutants: Mutants) -> Self {
        assert!(threads > 0, "a thread runs the shards");
        let seat = |(number, engine)| ShardSlot {
            held: Mutex::new(Held::new(Shard::new(number, engine, mutants))),
            inbox: Mutex::new(Vec::new()),
            filled: AtomicBool::new(false),
            questions: Questions::new(),
            wake: AtomicU64::new(NEVER),
        };
        Self { seats: (0..).zip(engines).map(seat).collect(), threads, mutants }
    }

    /// Number of shards.
    pub fn shards(&self) -> u32 {
        self.seats.len() as u32
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The thread that wakes a shard, carries its commands out, and does its I/O on servers.
    pub fn home(&self, shard: u32) -> usize {
        shard as usize % self.threads
    }

    /// When a shard wants to be woken, as of its last run.
    pub fn wake(&self, shard: u32) -> Option<Instant> {
        let at = self.seats[shard as usize].wake.load(Acquire);
        (at != NEVER).then_some(Instant(at))
    }

    /// Whether something was left for a shard.
    pub fn is_filled(&self, shard: u32) -> bool {
        self.seats[shard as usize].filled.load(Acquire)
    }

    /// Leaves events for a shard, and then `last`. The caller runs it, or has its home run it.
    pub fn leave(&self, shard: u32, events: &mut Vec<Event<P>>, last: Option<Left<P, V>>) {
        let seat = &self.seats[shard as usize];
        let mut inbox = seat.inbox();
        inbox.extend(events.drain(..).map(Left::Event));
        inbox.extend(last);
        drop(inbox);
        seat.filled.store(true, Release);
    }

    /// Runs a shard with these events and whatever is left for it, unless another thread does: then
    /// they are left to that.
    pub fn run(
        &self,
        shard: u32,
        thread: usize,
        now: Instant,
        events: &mut Vec<Event<P>>,
        io: &mut impl ShardIo<P, Volume = V>,
    ) -> Ran {
        let seat = &self.seats[shard as usize];
        let mut batches = BATCHES_MAX;
        loop {
            let Some(mut held) = seat.hold().or_else(|| {
                if !events.is_empty() {
                    self.leave(shard, events, None);
                }
                // Either the holder sees what was left, or it has let go by now: see below.
                fence(SeqCst);
                seat.hold()
            }) else {
                return Ran::Taken;
            };
            let all = seat.turn(&mut held, now, events, io, (&mut batches, self.mutants));
            self.publish(seat, &held, shard, thread, io);
            io.letting_go(shard);
            drop(held);
            // What was left between the last look and now: a thread that has found the lock taken
            // has filled the inbox before.
            fence(SeqCst);
            seat.look_at_questions(self.mutants);
            if !all {
                return Ran::More;
            }
            if !seat.filled.load(Relaxed) || self.mutants.is(Mutant::InboxNotLookedAtAgain) {
                return Ran::Done;
            }
        }
    }

    /// Lets others know when the shard wants to be woken.
    fn publish(
        &self,
        seat: &ShardSlot<P, V>,
        held: &Held<P, V>,
        shard: u32,
        thread: usize,
        io: &mut impl ShardIo<P, Volume = V>,
    ) {
        let wake = held.shard.wake.map_or(NEVER, |at| at.0);
        // Only a holder writes them.
        let before = seat.wake.load(Relaxed);
        seat.wake.store(wake, Release);
        let home = self.home(shard);
        if wake < before && home != thread && !self.mutants.is(Mutant::WakeNotPassedOn) {
            io.tell_home(shard, home, Instant(wake));
        }
    }
}

impl<P: Payload + 'static, V: Copy + PartialEq + 'static> ShardPool<P, V> {
    /// Asks a shard something, and waits for the answer: for the end of a batch, if a thread runs it. The
    /// caller has the shard run afterwards if something was left for it
    /// ([`is_filled`](Self::is_filled)).
    ///
    /// # Panics
    /// If the thread that runs the shard has panicked, which ends the process.
    pub fn ask<T: Send + 'static>(
        &self,
        shard: u32,
        question: impl FnOnce(&Shard<P, V>) -> T + Send + 'static,
    ) -> T {
        self.ask_later(shard, question).recv().expect("a holder answers what was left")
    }

    /// The same without waiting: the answer is there when this returns or, if a thread runs the shard,
    /// before that begins its next batch.
    pub fn ask_later<T: Send + 'static>(
        &self,
        shard: u32,
        question: impl FnOnce(&Shard<P, V>) -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let seat = &self.seats[shard as usize];
        let (answer, answered) = mpsc::sync_channel(1);
        // Who does not wait any more has no use for it.
        let question = move |shard: &Shard<P, V>| drop(answer.send(question(shard)));
        match seat.hold() {
            Some(held) => {
                question(&held.shard);
                drop(held);
            }
            None => seat.questions.leave(Box::new(question)),
        }
        fence(SeqCst);
        seat.look_at_questions(self.mutants);
        answered
    }
}

impl<P: Payload, V: Copy + PartialEq> ShardPool<P, V> {
    /// Asks a shard something, unless another thread runs it at the moment.
    pub fn try_ask<T>(&self, shard: u32, question: impl FnOnce(&Shard<P, V>) -> T) -> Option<T> {
        let seat = &self.seats[shard as usize];
        let held = seat.hold()?;
        let answer = question(&held.shard);
        drop(held);
        fence(SeqCst);
        seat.look_at_questions(self.mutants);
        Some(answer)
    }
}

impl<P: Payload, V: Copy + PartialEq> ShardSlot<P, V> {
    /// The caller has let go of the shard, and a fence stands behind that: a question that was left
    /// before is seen here, or its asker finds the shard free.
    fn look_at_questions(&self, mutants: Mutants) {
        while self.questions.is_asked() && !mutants.is(Mutant::QuestionNotLookedAtAgain) {
            // Another holder looks, too.
            let Some(held) = self.hold() else { return };
            self.questions.answer(&held.shard);
            drop(held);
            fence(SeqCst);
        }
    }

    /// The shard, unless another thread has it.
    fn hold(&self) -> Option<MutexGuard<'_, Held<P, V>>> {
        match self.held.try_lock() {
            Ok(held) => Some(held),
            Err(TryLockError::WouldBlock) => None,
            // The panic that did it ends the process, or a test.
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<Left<P, V>>> {
        // A panic can't leave a list half appended to.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the engine take what there is; false if there was too much for so many batches.
    fn turn(
        &self,
        held: &mut Held<P, V>,
        now: Instant,
        events: &mut Vec<Event<P>>,
        io: &mut impl ShardIo<P, Volume = V>,
        (batches, mutants): (&mut u32, Mutants),
    ) -> bool {
        let shard = &mut held.shard;
        let mut all = false;
        shard.look_at_time(now);
        while *batches > 0 {
            self.questions.answer(shard);
            // What was left came before what this thread brings.
            if self.filled.load(Relaxed) && self.filled.swap(false, Acquire) {
                for left in std::mem::take(&mut *self.inbox()) {
                    match left {
                        Left::Event(event) => shard.events.push(event),
                        Left::Bind(volume, bound) => {
                            shard.bind(volume, Binding::Volume(bound), io);
                        }
                        Left::DropLost(volume, ranges) => shard.drop_lost(volume, &ranges),
                    }
                }
            }
            if shard.events.is_empty() {
                std::mem::swap(&mut shard.events, events);
            } else {
                shard.events.append(events);
            }
            if shard.events.is_empty() {
                all = true;
                break;
            }
            *batches -= 1;
            shard.apply(now, io);
        }
        if !all && !mutants.is(Mutant::RestKeptInShard) {
            self.leave_rest(shard);
        }
        held.tell_health(io);
        all
    }

    /// What a turn has left over is for whoever runs the shard next, who may be another thread: it goes to
    /// the inbox, before what came in meanwhile.
    fn leave_rest(&self, shard: &mut Shard<P, V>) {
        if !shard.events.is_empty() {
            self.inbox().splice(0..0, shard.events.drain(..).map(Left::Event));
            self.filled.store(true, Release);
        }
    }
}

impl<P: Payload, V: Copy + PartialEq> Held<P, V> {
    const fn new(shard: Shard<P, V>) -> Self {
        Self { shard, health: None, told: 0 }
    }

    /// Tells how the shard is, if that has changed.
    fn tell_health(&mut self, io: &mut impl ShardIo<P, Volume = V>) {
        let health = self.shard.engine.health();
        if self
            .health
            .is_none_or(|told| told != health && !(is_loading(told) && is_loading(health)))
        {
            self.health = Some(health);
            self.told += 1;
            io.health(self.shard.number, HealthNews { number: self.told, health });
        }
    }
}

/// Progress is not told.
const fn is_loading(health: Health) -> bool {
    matches!(health, Health::Loading { .. })
}

#[cfg(test)]
mod tests;
