//! Questions to a shard. Whoever holds it answers what was left before each batch, and once more after
//! letting go of it: a question waits for one batch, however busy the shard is, and its asker sleeps.

#![expect(clippy::disallowed_types, reason = "its lock is held for a list's append")]

use super::{Seat, ShardPool};
use crate::shard::Shard;
use cinnabar_engine::Payload;
use cinnabar_engine::mutant::{Mutant, Mutants};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, fence};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

type Question<P, V> = Box<dyn FnOnce(&Shard<P, V>) + Send>;

/// Of one shard, in order.
pub(super) struct Questions<P, V> {
    left: Mutex<Vec<Question<P, V>>>,
    /// There may be one.
    asked: AtomicBool,
}

impl<P, V> Questions<P, V> {
    pub(super) const fn new() -> Self {
        Self { left: Mutex::new(Vec::new()), asked: AtomicBool::new(false) }
    }

    fn left(&self) -> MutexGuard<'_, Vec<Question<P, V>>> {
        // A panic can't leave a list half appended to.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, question: Question<P, V>) {
        self.left().push(question);
        self.asked.store(true, Release);
    }

    /// Answers what was left; the caller holds the shard.
    pub(super) fn answer(&self, shard: &Shard<P, V>) {
        if self.asked.load(Relaxed) && self.asked.swap(false, Acquire) {
            let left = std::mem::take(&mut *self.left());
            left.into_iter().for_each(|question| question(shard));
        }
    }
}

impl<P: Payload, V: Copy + PartialEq> Seat<P, V> {
    /// The caller has let go of the shard, and a fence stands behind that: a question that was left
    /// before is seen, or its asker finds the shard free.
    pub(super) fn look_at_questions(&self, mutants: Mutants) {
        while self.questions.asked.load(Relaxed) && !mutants.is(Mutant::QuestionNotLookedAtAgain) {
            // Another holder looks, too.
            let Some(held) = self.hold() else { return };
            self.questions.answer(&held.shard);
            drop(held);
            fence(SeqCst);
        }
    }
}

impl<P: Payload + 'static, V: Copy + PartialEq + 'static> ShardPool<P, V> {
    /// Asks a shard something, and waits for the answer: a batch, if a thread runs the shard. The caller
    /// has the shard run afterwards if something was left for it ([`is_filled`](Self::is_filled)).
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

    /// Asks a shard something. The answer is there when this returns, or when whoever holds the shard
    /// has looked.
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
    /// Asks a shard something, unless another thread runs the shard at the moment.
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
