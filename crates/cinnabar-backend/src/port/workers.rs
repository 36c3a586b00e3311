//! Threads that do tasks with blocking calls, and the way to the servers that do others.
//!
//! The threads port uses it for everything, the uring port for what `io_uring` would hand to a
//! thread of the kernel: those are few, and shared by all files.
//!
//! Each file has a queue and a part of the threads. A file whose I/O hangs holds its own part and
//! no more; threads are started when there is work for them and end when there is none for a while.

mod queue;

use super::job::Done;
use super::perform::perform;
use super::task::Task;
use super::waker::Waker;
use super::{FileId, PortEvent};
use crate::disk::Disk;
use crate::nbd::Sink;
use cinnabar_engine::units::ByteSpan;
pub(super) use queue::Class;
use queue::Queue;
use rustix::io::Errno;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a thread waits for more.
const LINGER: Duration = Duration::from_secs(5);

/// Threads with a queue for each file. Dropping it does what is queued first.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue<(Task, Arc<Disk>)>>,
    available: Condvar,
    /// The last thread has ended.
    ended: Condvar,
    out: Mutex<Out>,
    waker: Waker,
}

/// What is to be told.
#[derive(Default)]
struct Out {
    /// Servers that restarted; told before `done`, some of which came after.
    restarted: Vec<(FileId, Vec<ByteSpan>, bool)>,
    done: Vec<Done>,
}

impl Workers {
    /// Threads, once there is work, that end the wait of the waker's port when something is done.
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                available: Condvar::new(),
                ended: Condvar::new(),
                out: Mutex::default(),
                waker,
            }),
        }
    }

    /// There are so many files now, which share the threads.
    pub(super) fn share_among(&self, files: usize) {
        locked(&self.shared.queue).share_among(files);
    }

    /// A disk has this name at the port from now on: who serves it has to tell the port, also if it
    /// never has a job, when nothing that is known of the disk holds any more.
    pub(super) fn register(&self, file: FileId, disk: &Disk) {
        if let Some(remote) = disk.remote() {
            remote.register(file, &self.sink());
        }
    }

    /// The disk is known no more at the port.
    pub(super) fn unregister(&self, file: FileId, disk: &Disk) {
        if let Some(remote) = disk.remote() {
            remote.unregister(file, &self.sink());
        }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::<Shared>::clone(&self.shared)
    }

    /// Queues a task, or hands it to the server of its disk.
    pub(super) fn push(&self, task: Task, disk: Arc<Disk>) {
        if let Some(remote) = disk.remote() {
            return remote.submit(task, self.sink());
        }
        let file = task.file.0 as usize;
        let class = task.class(disk.is_in_memory());
        let mut queue = locked(&self.shared.queue);
        queue.push(file, class, disk.is_cache(), (task, disk));
        if !queue.wants_thread() {
            drop(queue);
            return self.shared.available.notify_one();
        }
        queue.threads += 1;
        drop(queue);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("cinnabar-io".into());
        if let Err(error) = thread.spawn(move || shared.work()) {
            self.no_thread(&error);
        }
    }

    /// The others will come to it; without any, what is queued fails.
    fn no_thread(&self, error: &std::io::Error) {
        tracing::error!(%error, "no thread for I/O");
        let mut queue = locked(&self.shared.queue);
        queue.threads -= 1;
        while queue.threads == 0
            && let Some(turn) = queue.take()
        {
            queue.give_back(turn.file, turn.class);
            self.shared.done(turn.task.0.finish(Err(Errno::AGAIN)));
        }
    }

    /// Tells of servers that restarted. Called before each [`collect`](Self::collect), which
    /// brings nothing else.
    pub(super) fn tell_restarts(&self, events: &mut Vec<PortEvent>) {
        let restarted = std::mem::take(&mut locked(&self.shared.out).restarted);
        let event = |(file, ranges, first)| PortEvent::Restarted { file, ranges, first };
        events.extend(restarted.into_iter().map(event));
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
        let mut queue = locked(&self.shared.queue);
        queue.stopping = true;
        self.shared.available.notify_all();
        while queue.threads > 0 {
            queue = self.shared.ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn work(&self) {
        // Counted even if a call panics: a waiter for the last one must not wait without end.
        let _counted = Counted(self);
        while let Some(turn) = self.next() {
            let (task, disk) = turn.task;
            let done = perform(task, &disk);
            // Before the completion is seen: a thread that sees it may close the disk and mean it.
            drop(disk);
            self.done(done);
            // This thread takes the next of the file's, if there is one.
            locked(&self.queue).give_back(turn.file, turn.class);
        }
    }

    fn next(&self) -> Option<queue::Turn<(Task, Arc<Disk>)>> {
        let mut queue = locked(&self.queue);
        loop {
            if let Some(turn) = queue.take() {
                return Some(turn);
            }
            if queue.stopping {
                return None;
            }
            queue.idle += 1;
            let waited = self.available.wait_timeout(queue, LINGER);
            let (again, result) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = again;
            queue.idle -= 1;
            if result.timed_out() && !queue.has_turn() {
                return None;
            }
        }
    }
}

/// A thread that is counted.
struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut queue = locked(&self.0.queue);
        queue.threads -= 1;
        if queue.threads == 0 {
            self.0.ended.notify_all();
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

    fn restarted(&self, file: FileId, ranges: Vec<ByteSpan>, first: bool) {
        locked(&self.out).restarted.push((file, ranges, first));
        self.waker.nudge();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Lists of finished or waiting tasks are whole whenever the lock is free.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
