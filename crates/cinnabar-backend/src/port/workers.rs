//! Threads that do tasks with blocking calls.
//!
//! Called by the threads port for everything, by the uring port for what `io_uring` lacks.

use super::job::Done;
use super::perform::perform;
use super::task::Task;
use super::waker::Waker;
use crate::disk::Disk;
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
    done: Mutex<Vec<Done>>,
    waker: Waker,
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
            done: Mutex::default(),
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

    /// Queues a task.
    pub(super) fn push(&self, task: Task, disk: Arc<Disk>) {
        locked(&self.shared.queue).tasks.push_back((task, disk));
        self.shared.available.notify_one();
    }

    /// Moves what is done to `done`.
    pub(super) fn collect(&self, done: &mut Vec<Done>) {
        done.append(&mut locked(&self.shared.done));
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
            let mut list = locked(&self.done);
            let first = list.is_empty();
            list.push(done);
            drop(list);
            if first {
                self.waker.nudge();
            }
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Lists of finished or waiting tasks are whole whenever the lock is free.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
