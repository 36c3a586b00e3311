//! Threads that share the shards: when each lets its own take what they have been given.
//!
//! Called by the world. A thread sees its inbox some time after something was put there, so shards of
//! different threads meet the same events in any order; those of one thread take turns together.

use crate::driver::agenda::Item;
use crate::driver::world::World;
use crate::kinds::Path;
use crate::machine::{Factory, Machine};
use crate::stamp::Stamped;
use cinnabar_engine::Action;
use cinnabar_engine::units::Instant;

/// The threads of a life.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// Of each shard.
    of: Vec<usize>,
    /// Of each thread: it has been called.
    called: Vec<bool>,
    /// A thread whose turn it is.
    due: Option<u32>,
    /// How many the life before had, and of how many shards.
    before: Option<(u32, u32)>,
}

impl Threads {
    /// One thread does everything at once.
    pub(super) fn is_single(&self) -> bool {
        self.called.len() < 2
    }

    /// Is it a thread's turn?
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The thread whose turn it is, once.
    pub(super) fn due(&mut self) -> Option<u32> {
        self.due.take()
    }

    /// It is this thread's turn, unless it was called by a machine that is gone.
    pub(super) fn take_turn(&mut self, thread: u32) {
        if let Some(called) = self.called.get_mut(thread as usize) {
            self.due = std::mem::take(called).then_some(thread);
        }
    }

    /// A thread's shards take what they have been given.
    pub(super) fn turn(
        &self,
        thread: u32,
        machine: &mut impl Machine<Stamped>,
        now: Instant,
        actions: &mut Vec<Action<Stamped>>,
    ) {
        for shard in self.shards_of(thread as usize) {
            if machine.has_events(shard) {
                machine.turn(shard, now, actions);
            }
        }
    }

    fn shards_of(&self, thread: usize) -> impl Iterator<Item = u32> {
        (0..).zip(&self.of).filter(move |(_, of)| **of == thread).map(|(shard, _)| shard)
    }

    /// The machine is gone, and what its threads were called for with it.
    pub(super) fn stop(&mut self) {
        self.called.fill(false);
        self.due = None;
    }
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// Divides the machine's shards among so many threads.
    pub(super) fn start_threads(&mut self, threads: u32) {
        let shards = self.machine.as_ref().expect("a machine is alive").shards();
        let threads = threads.min(shards);
        let mut of: Vec<usize> = (0..shards).map(|shard| (shard % threads) as usize).collect();
        for at in (1..of.len()).rev() {
            of.swap(at, self.dice.below(at as u64 + 1) as usize);
        }
        let now = (threads, shards);
        if self.threads.before.is_some_and(|before| before.1 == shards && before != now) {
            self.count.paths.add(Path::OtherThreads);
        }
        self.log.milestone(self.now, || format!("{shards} shards on threads {of:?}"));
        let called = vec![false; threads as usize];
        self.threads = Threads { of, called, due: None, before: Some(now) };
    }

    /// Has every thread whose shards have something to take do so soon.
    pub(super) fn call_threads(&mut self) {
        if self.threads.is_single() {
            return;
        }
        let machine = self.machine.as_ref().expect("a machine is alive");
        for thread in 0..self.threads.called.len() {
            let waiting = self.threads.shards_of(thread).any(|shard| machine.has_events(shard));
            if waiting && !self.threads.called[thread] {
                self.threads.called[thread] = true;
                let at = self.now.plus_ns(self.dice.below(self.profile.handoff_ns_max + 1));
                self.agenda.enter(at, Item::Turn(thread as u32));
            }
        }
    }
}
