//! The threads, and the queues from which they work.

use super::objects::Objects;
use super::table::TableFile;
use crate::pools::{Answer, Completion, Op, OpError, Pools};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read, write};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Threads for requests: as many I/Os as a pool's devices profit from.
const IO_THREADS: usize = 16;
/// Threads for copies, deletes and lists, so that these don't keep requests from a thread.
const MOVE_THREADS: usize = 4;

/// Operations that threads wait for.
#[derive(Default)]
struct Queue {
    state: Mutex<(VecDeque<(u64, Op)>, bool)>,
    came: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<(u64, Op)>, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, token: u64, op: Op) {
        self.lock().0.push_back((token, op));
        self.came.notify_one();
    }

    fn close(&self) {
        self.lock().1 = true;
        self.came.notify_all();
    }

    /// Up to `most` operations; none: it is closed and empty.
    fn take(&self, most: usize) -> Vec<(u64, Op)> {
        let waits = |state: &mut (VecDeque<_>, bool)| state.0.is_empty() && !state.1;
        let state = self.came.wait_while(self.lock(), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let count = most.min(state.0.len());
        state.0.drain(..count).collect()
    }
}

/// What has ended.
struct Outbox {
    ended: Mutex<Vec<Completion>>,
    bell: OwnedFd,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Completion>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, token: u64, result: Result<Answer, OpError>) {
        let mut ended = self.lock();
        let quiet = ended.is_empty();
        ended.push(Completion { token, result });
        drop(ended);
        if quiet {
            while write(&self.bell, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
        }
    }
}

/// The queue of the table.
const TABLE: usize = 3;

/// The pools of an open volume.
pub(super) struct Crew {
    objects: Arc<Objects>,
    outbox: Arc<Outbox>,
    /// Requests, moves, flushes, the table.
    queues: [Arc<Queue>; 4],
    /// With the queue that each takes from.
    threads: Vec<(usize, JoinHandle<()>)>,
}

impl Crew {
    pub(super) fn start(objects: Objects, table: TableFile) -> Result<Self, Errno> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let outbox = Arc::new(Outbox { ended: Mutex::default(), bell });
        let queues = std::array::from_fn(|_| Arc::default());
        let mut crew = Self { objects: Arc::new(objects), outbox, queues, threads: Vec::new() };
        for (queue, count) in [(0, IO_THREADS), (1, MOVE_THREADS)] {
            for _ in 0..count {
                let objects = Arc::clone(&crew.objects);
                crew.spawn(queue, move |queue, outbox| {
                    while let [(token, op)] = &queue.take(1)[..] {
                        outbox.put(*token, objects.perform(op));
                    }
                })?;
            }
        }
        let objects = Arc::clone(&crew.objects);
        crew.spawn(2, move |queue, outbox| {
            loop {
                // Those that came before it begins share one.
                let flushes = queue.take(usize::MAX);
                if flushes.is_empty() {
                    break;
                }
                let result = objects.flush();
                for (token, _) in flushes {
                    outbox.put(token, result.clone().map(|()| Answer::Done));
                }
            }
        })?;
        let mut table = table;
        crew.spawn(TABLE, move |queue, outbox| {
            loop {
                let stores = queue.take(TableFile::BATCH_MAX);
                if stores.is_empty() {
                    break;
                }
                table.carry_out(stores, |token, result| outbox.put(token, result));
            }
        })?;
        Ok(crew)
    }

    fn spawn(
        &mut self,
        queue: usize,
        work: impl FnOnce(&Queue, &Outbox) + Send + 'static,
    ) -> Result<(), Errno> {
        let (takes, outbox) = (Arc::clone(&self.queues[queue]), Arc::clone(&self.outbox));
        let thread = Builder::new().name("cinnabar-pool".into());
        let thread = thread.spawn(move || work(&takes, &outbox));
        let failed = |error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
        self.threads.push((queue, thread.map_err(failed)?));
        Ok(())
    }
}

impl Pools for Crew {
    fn submit(&mut self, token: u64, op: Op) {
        let queue = match op {
            Op::Read { .. } | Op::Write { .. } | Op::Zero { .. } => 0,
            Op::Probe { .. }
            | Op::Copy { .. }
            | Op::Patch { .. }
            | Op::Delete { .. }
            | Op::List { .. } => 1,
            Op::Flush => 2,
            Op::StoreRecord { .. } | Op::StoreHeader { .. } => 3,
            // The lock on the table's file is ours for as long as it is open.
            Op::Check { .. } => return self.outbox.put(token, Ok(Answer::Done)),
        };
        self.queues[queue].push(token, op);
    }

    fn completions(&mut self, out: &mut Vec<Completion>) {
        let _none = read(&self.outbox.bell, &mut [0_u8; 8]);
        out.append(&mut self.outbox.lock());
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.outbox.bell.as_fd()
    }

    fn moved_through_host(&self) -> u64 {
        self.objects.moved()
    }

    fn align_bytes(&self) -> u32 {
        self.objects.align_bytes()
    }
}

impl Drop for Crew {
    /// Waits for what was submitted.
    fn drop(&mut self) {
        // The table last: its file has the lock, and until all else has landed nobody else may have that.
        for queues in [0..TABLE, TABLE..self.queues.len()] {
            for queue in &self.queues[queues.clone()] {
                queue.close();
            }
            for (_, thread) in self.threads.extract_if(.., |(queue, _)| queues.contains(queue)) {
                // One that panicked has ended as well.
                let _ended = thread.join();
            }
        }
    }
}
