//! Threads that share the shards: when each lets its own take what they have been given, and when
//! what they answer is heard.
//!
//! A thread sees its inbox some time after something was put there, so shards of different threads
//! meet the same events in any order; those of one thread take turns together. Their answers are
//! under way for some time, too.

use crate::driver::agenda::Item;
use crate::driver::world::World;
use crate::kinds::Path;
use crate::machine::{Factory, Machine};
use crate::stamp::Stamped;
use cinnabar_engine::Action;
use cinnabar_engine::units::Instant;

/// The threads of a session. A call is a thread's number, to let its shards take what they have been
/// given, or that and the number of threads, to have heard what they have answered.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// Of each shard.
    of: Vec<usize>,
    count: usize,
    /// By call: it is on its way.
    calls: Vec<bool>,
    /// A call that has come.
    due: Option<usize>,
    /// How many the session before had, and of how many shards.
    before: Option<(u32, u32)>,
}

impl Threads {
    /// One thread does everything at once.
    pub(super) fn is_single(&self) -> bool {
        self.count < 2
    }

    /// Has a call come?
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The call that has come, once.
    pub(super) fn due(&mut self) -> Option<usize> {
        self.due.take()
    }

    /// A call comes, unless it was for a machine that is gone.
    pub(super) fn called(&mut self, call: u32) {
        if let Some(called) = self.calls.get_mut(call as usize) {
            self.due = std::mem::take(called).then_some(call as usize);
        }
    }

    /// A thread does what it was called for.
    pub(super) fn answer(
        &self,
        call: usize,
        machine: &mut impl Machine<Stamped>,
        now: Instant,
        actions: &mut Vec<Action<Stamped>>,
    ) {
        for shard in self.shards_of(call % self.count) {
            if call >= self.count {
                machine.hear(shard, actions);
            } else if machine.has_events(shard) {
                machine.turn(shard, now, actions);
            }
        }
    }

    fn shards_of(&self, thread: usize) -> impl Iterator<Item = u32> {
        (0..).zip(&self.of).filter(move |(_, of)| **of == thread).map(|(shard, _)| shard)
    }

    /// Is there something to do for this call?
    fn is_wanted(&self, call: usize, machine: &impl Machine<Stamped>) -> bool {
        let hears = call >= self.count;
        let wants = |shard| if hears { machine.has_said(shard) } else { machine.has_events(shard) };
        !self.calls[call] && self.shards_of(call % self.count).any(wants)
    }

    /// The machine is gone, and what its threads were called for with it.
    pub(super) fn stop(&mut self) {
        self.calls.fill(false);
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
            of.swap(at, self.rng.below(at as u64 + 1) as usize);
        }
        let now = (threads, shards);
        if self.threads.before.is_some_and(|before| before.1 == shards && before != now) {
            self.count.paths.add(Path::OtherThreads);
        }
        self.log.milestone(self.now, || format!("{shards} shards on threads {of:?}"));
        let count = threads as usize;
        let calls = vec![false; 2 * count];
        self.threads = Threads { of, count, calls, due: None, before: Some(now) };
    }

    /// Calls every thread whose shards have something to take, or have said something.
    pub(super) fn call_threads(&mut self) {
        if self.threads.is_single() {
            return;
        }
        for call in 0..self.threads.calls.len() {
            let machine = self.machine.as_ref().expect("a machine is alive");
            if self.threads.is_wanted(call, machine) {
                self.threads.calls[call] = true;
                let at = self.now.plus_ns(self.rng.below(self.profile.handoff_ns_max + 1));
                self.agenda.enter(at, Item::Call(call as u32));
            }
        }
    }
}
