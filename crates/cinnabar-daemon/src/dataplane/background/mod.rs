//! What may take long, on threads of its own: opening backends and cache devices, proving that
//! nobody wrote a backend, keeping generations. Their number is bounded, and no data thread does any of
//! it ([`threads`]).
//!
//! Results come back through a queue, and the waker makes the loop look.

mod task;
#[cfg(test)]
mod tests;
mod threads;

use super::clock::Clock;
use super::disks::OpenedVolume;
use super::migrate::{WarmDone, WarmStep, WarmTask};
use cinnabar_backend::Waker;
use cinnabar_config::messages::StartError;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::Instant;
use std::time::Duration;
pub(super) use task::{Finished, Opening, Task};
use threads::{Class, Threads};

/// See the module.
pub(super) struct Background {
    threads: Threads<Task>,
    clock: Clock,
    /// Blocks that are being read for other hosts, by request.
    pub(super) reads: usize,
}

impl Background {
    pub(super) fn new(waker: Waker, clock: Clock) -> Self {
        let threads = Threads::new(waker, clock, threads::spawn(), Mutants::default());
        Self { threads, clock, reads: 0 }
    }

    pub(super) fn start(&mut self, task: Task) {
        let reads = matches!(&task, Task::Warm(WarmTask { step: WarmStep::Read(_), .. }));
        self.reads += usize::from(reads);
        self.threads.start(task);
    }

    /// Takes something that is finished.
    pub(super) fn take(&mut self) -> Option<Finished> {
        let finished = self.threads.take()?;
        self.count(&finished);
        Some(finished)
    }

    /// Waits for the end of a try, at the start when there is nothing else to do.
    pub(super) fn opened_within(
        &mut self,
        wait_max: Duration,
    ) -> Option<(u64, Result<Box<OpenedVolume>, StartError>)> {
        self.look(self.clock.now());
        let finished = self.threads.take_within(wait_max)?;
        self.count(&finished);
        match finished {
            Finished::Opened { result, attempt: Some(attempt), .. } => Some((attempt, result)),
            _ => None,
        }
    }

    fn count(&mut self, finished: &Finished) {
        let read = matches!(finished, Finished::Warm { what: WarmDone::Read(..), .. });
        self.reads -= usize::from(read);
    }

    /// Cache devices that are being opened; those that hang keep a thread each.
    pub(super) fn devices(&self) -> usize {
        let (waiting, under_way) = self.threads.count(Class::Device);
        waiting + under_way
    }

    /// Nothing waits or runs that has to be brought to an end.
    pub(super) fn is_idle(&self) -> bool {
        let classes = [Class::State, Class::Urgent, Class::Usual];
        classes.iter().all(|class| self.threads.count(*class) == (0, 0))
    }

    /// When it is to be looked at again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.threads.deadline()
    }

    /// Looks what hangs, and for threads that could not be had.
    pub(super) fn look(&mut self, now: Instant) {
        self.threads.look(now);
    }
}
