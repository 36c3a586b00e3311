//! Threads that do tasks with blocking calls, and the way to the servers that do others.
//!
//! Called by the threads port for everything, by the uring port for what `io_uring` lacks.

use super::job::Done;
use super::perform::perform;
use super::task::Task;
use super::waker::Waker;
use super::{FileId, PortEvent};
use crate::disk::Disk;
use crate::nbd::Sink;
use cinnabar_engine::units::ByteSpan;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A few threads with one queue. Dropping it does what is queued first.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    available: Condvar,
    out: Mutex<Out>,
    waker: Waker,
}

/// What is to be told.
#[derive(Default)]
struct Out {
    /// Servers that restarted; told before `done`, some of which came after.
    restarted: Vec<(FileId, Vec<ByteSpan>)>,
    done: Vec<Done>,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<(Task, Arc<Disk>)>,
    stopping: bool,
}

impl Workers {
    /// Starts `count` threads that end the wait of the waker's port when something is done.
    pub(super) fn start(count: usize, waker: Waker) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            available: Condvar::new(),
            out: Mutex::default(),
            waker,
        });
        let mut workers = Self { shared, threads: Vec::with_capacity(count) };
        for index in 0..count {
            let shared = Arc::clone(&workers.shared);
            let builder = std::thread::Builder::new().name(format!("cinnabar-io-{index}"));
            workers.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(workers)
    }

    /// Queues a task, or hands it to the server of its disk.
    pub(super) fn push(&self, task: Task, disk: Arc<Disk>) {
        if let Some(server) = disk.server() {
            return server.submit(task, Arc::clone(&self.shared) as Arc<dyn Sink>);
        }
        locked(&self.shared.queue).tasks.push_back((task, disk));
        self.shared.available.notify_one();
    }

    /// Tells of servers that restarted. Called before each [`collect`](Self::collect), which
    /// brings nothing else.
    pub(super) fn tell_restarts(workers: Option<&Self>, events: &mut Vec<PortEvent>) {
        let Some(workers) = workers else { return };
        let restarted = std::mem::take(&mut locked(&workers.shared.out).restarted);
        events.extend(
            restarted.into_iter().map(|(file, ranges)| PortEvent::Restarted { file, ranges }),
        );
    }

    /// Moves what is done to `done`; nothing while there is a restart to be told of first.
    pub(super) fn collect(&self, done: &mut Vec<Done>) {
        let mut out = locked(&self.shared.out);
        if out.restarted.is_empty() {
            done.append(&mut out.done);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        locked(&self.shared.queue).stopping = true;
        self.shared.available.notify_all();
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so; its buffers are gone with it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some((task, disk)) = self.next() {
            let done = perform(task, &disk);
            // Before the completion is seen: whoever sees it may close the disk and mean it.
            drop(disk);
            self.done(done);
        }
    }

    fn next(&self) -> Option<(Task, Arc<Disk>)> {
        let mut queue = locked(&self.queue);
        loop {
            if let Some(next) = queue.tasks.pop_front() {
                return Some(next);
            }
            if queue.stopping {
                return None;
            }
            queue = self.available.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Sink for Shared {
    fn done(&self, done: Done) {
        let mut out = locked(&self.out);
        let first = out.done.is_empty();
        out.done.push(done);
        drop(out);
        if first {
            self.waker.nudge();
        }
    }

    fn restarted(&self, file: FileId, ranges: Vec<ByteSpan>) {
        locked(&self.out).restarted.push((file, ranges));
        self.waker.nudge();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Lists of finished or waiting tasks are whole whenever the lock is free.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
