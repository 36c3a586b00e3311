//! The port over `io_uring`: one system call a loop turn starts what is queued, waits, and collects.
//!
//! The ring belongs to one thread (`SINGLE_ISSUER`), and completions are processed only when that
//! thread asks for them (`DEFER_TASKRUN`), so nothing interrupts it in between. Older kernels get
//! the next best. A read that the kernel can answer at once (page cache, tmpfs) completes inside
//! the call that starts it.
//!
//! What the kernel can only do by waiting (flushes, discards, anything on FUSE or NFS) it would hand
//! to threads of its own: four a CPU, for all files of all rings of this thread, with writes to
//! files that share one of 64 places one behind the other. One back end that hangs would hold them
//! all, and the cache device would seem to hang, too. So that part is for our own workers, which
//! give each file its part. What is left to the ring needs no thread unless a device's own queue is
//! full, which means that it hangs; for that case no file has more in the ring than its part
//! (`depths`), and the kernel may start as many threads as all parts together.

mod depths;
mod ring;
mod watches;

use super::job::{Done, Job};
use super::perform;
use super::task::{Progress, Step, Task};
use super::waker::Waker;
use super::workers::Workers;
use super::{FileId, Interest, Port, PortError, PortEvent};
use crate::disk::Disk;
use depths::Depths;
use io_uring::{opcode, squeue, types};
use ring::{Completion, Ring};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use slab::Slab;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use watches::Watches;

/// What a completion belongs to: the two upper bits of its `user_data`.
const KIND_SHIFT: u32 = 62;
const KIND_TASK: u64 = 0;
const KIND_POLL: u64 = 1;
const KIND_WAKE: u64 = 2;
/// Cancellations, whose outcome doesn't matter.
const KIND_NONE: u64 = 3;

/// Longest transfer on a file in memory that the data thread does itself. The kernel has no
/// non-blocking I/O for tmpfs and would hand even 4 KiB to a thread of its own (measured: 2.8 us of
/// CPU instead of 1.6, and a wake-up of 50 us when alone); long copies are better off there.
const COPY_BYTES_MAX: u64 = 128 << 10;

/// Jobs in a row whose ends may be told without a look at the sockets.
const SKIPPED_MAX: usize = 8;

/// See the module. Dropped in the order of its fields, after `drop` has waited for everything.
pub(super) struct Uring {
    ring: Ring,
    files: Slab<File>,
    /// In flight, by the lower bits of `user_data`.
    tasks: Slab<Task>,
    depths: Depths,
    /// Tasks for the workers carry their place in `helped` as token.
    helped: Slab<(FileId, u64)>,
    helpers: Workers,
    /// Ended without a call, or by the workers.
    done: Vec<Done>,
    watches: Watches,
    waker: Waker,
    /// The kernel reads the waker's eventfd to here.
    wake_count: Box<u64>,
    wake_armed: bool,
    /// Jobs told of since the last look at the sockets.
    skipped: usize,
    /// Completions being handled; kept for its memory.
    completions: Vec<Completion>,
    /// The kernel refuses this ring to any other thread.
    not_send: PhantomData<*mut ()>,
}

struct File {
    disk: Arc<Disk>,
    in_flight: usize,
    in_ring: usize,
    /// What waits for its turn there: places in `tasks`.
    waiting: VecDeque<usize>,
}

impl File {
    /// Whether the ring may have more of it.
    fn has_room(&self, depths: &Depths) -> bool {
        let max = self.disk.depth_max();
        self.in_ring < if self.disk.is_cache() { max } else { depths.of(max) }
    }
}

impl Uring {
    pub(super) fn new() -> Result<Self, PortError> {
        Self::over(Ring::new()?)
    }

    fn over(ring: Ring) -> Result<Self, PortError> {
        let waker = Waker::new(false).map_err(|errno| PortError { during: "eventfd", errno })?;
        Ok(Self {
            ring,
            files: Slab::new(),
            tasks: Slab::new(),
            depths: Depths::default(),
            helped: Slab::new(),
            helpers: Workers::new(waker.clone()),
            done: Vec::new(),
            watches: Watches::default(),
            waker,
            wake_count: Box::new(0),
            wake_armed: false,
            skipped: 0,
            completions: Vec::new(),
            not_send: PhantomData,
        })
    }

    /// Takes a task that is for the ring: starts it, or has it wait for its file's turn.
    fn enqueue(&mut self, task: Task) {
        let file = &mut self.files[task.file.0 as usize];
        let index = self.tasks.insert(task);
        if file.has_room(&self.depths) {
            file.in_ring += 1;
            self.start(index);
        } else {
            file.waiting.push_back(index);
        }
    }

    /// Hands the next call of a task to the kernel.
    fn start(&mut self, index: usize) {
        let task = &self.tasks[index];
        let disk = &self.files[task.file.0 as usize].disk;
        let entry = self.ring.entry_on(task.file.0, disk.as_fd(), |fd| entry_for(task, fd));
        self.ring.push(entry.user_data(KIND_TASK << KIND_SHIFT | index as u64));
    }

    /// A task leaves the ring: another of its file has its turn.
    fn leave_ring(&mut self, index: usize) -> Task {
        let task = self.tasks.remove(index);
        let file = &mut self.files[task.file.0 as usize];
        file.in_ring -= 1;
        // More than one, if there are fewer files than before.
        while file.has_room(&self.depths)
            && let Some(next) = file.waiting.pop_front()
        {
            file.in_ring += 1;
            let task = &self.tasks[next];
            let fd = file.disk.as_fd();
            let entry = self.ring.entry_on(task.file.0, fd, |fd| entry_for(task, fd));
            self.ring.push(entry.user_data(KIND_TASK << KIND_SHIFT | next as u64));
        }
        task
    }

    /// Hands a task to the workers.
    fn help(&mut self, mut task: Task) {
        let disk = Arc::clone(&self.files[task.file.0 as usize].disk);
        task.token = self.helped.insert((task.file, task.token)) as u64;
        self.helpers.push(task, disk);
    }

    fn progress(&mut self, index: usize, progress: Progress, events: &mut Vec<PortEvent>) {
        let task = &self.tasks[index];
        match progress {
            Progress::More if task.is_for_ring(&self.files[task.file.0 as usize].disk) => {
                self.start(index);
            }
            Progress::More | Progress::Patiently => {
                let task = self.leave_ring(index);
                self.help(task);
            }
            Progress::End(result) => {
                let task = self.leave_ring(index);
                self.files[task.file.0 as usize].in_flight -= 1;
                events.push(PortEvent::Done(task.finish(result)));
            }
        }
    }

    /// Shares the ring's depth and the workers among the files there are now.
    fn share(&mut self) {
        self.helpers.share_among(self.files.len());
        let caches = self.files.iter().filter(|(_, file)| file.disk.is_cache());
        let of_caches = caches.map(|(_, file)| file.disk.depth_max()).sum();
        if let Some(threads) = self.depths.share_among(self.files.len(), of_caches) {
            self.ring.allow_threads(threads);
        }
    }

    /// Tells what ended elsewhere than in the ring.
    fn collect(&mut self, events: &mut Vec<PortEvent>) {
        events.extend(self.done.drain(..).map(PortEvent::Done));
        self.helpers.tell_restarts(events);
        if self.helped.is_empty() {
            return;
        }
        self.helpers.collect(&mut self.done);
        for mut done in self.done.drain(..) {
            let (file, token) = self.helped.remove(done.token as usize);
            self.files[file.0 as usize].in_flight -= 1;
            done.token = token;
            events.push(PortEvent::Done(done));
        }
    }

    /// Takes all completions that are there.
    fn reap(&mut self, events: &mut Vec<PortEvent>) {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.completions(&mut completions);
        for Completion { user_data, result, more } in completions.drain(..) {
            let rest = user_data & !(u64::MAX << KIND_SHIFT);
            match user_data >> KIND_SHIFT {
                KIND_TASK => {
                    let index = rest as usize;
                    let progress = self.tasks[index].advance(counted(result));
                    self.progress(index, progress, events);
                }
                KIND_POLL => self.watches.completed(rest, result, more, events),
                KIND_WAKE => {
                    self.wake_armed = false;
                    if self.waker.take() {
                        events.push(PortEvent::Woken);
                    }
                }
                _ => {}
            }
        }
        self.completions = completions;
    }

    fn arm_waker(&mut self) {
        if !self.wake_armed {
            let fd = types::Fd(self.waker.fd().as_raw_fd());
            let to = std::ptr::from_mut(&mut *self.wake_count).cast::<u8>();
            let entry = opcode::Read::new(fd, to, size_of::<u64>() as u32).build();
            self.ring.push(entry.user_data(KIND_WAKE << KIND_SHIFT));
            self.wake_armed = true;
        }
    }
}

/// Does a task that only copies memory, on the spot.
fn copy(task: &mut Task, disk: &Disk) -> Progress {
    // A few rounds: a list of buffers beyond the kernel's bound takes one for each part.
    for _ in 0..4 {
        let result = perform::step(task, disk);
        match task.advance(result) {
            Progress::More => {}
            end => return end,
        }
    }
    Progress::More
}

/// The submission for a task's next call.
fn entry_for(task: &Task, fd: types::Fd) -> squeue::Entry {
    match task.step() {
        Step::Read { offset, iovecs: [only] } => {
            opcode::Read::new(fd, only.iov_base.cast(), call_len(only.iov_len))
                .offset(offset)
                .build()
        }
        Step::Read { offset, iovecs } => {
            opcode::Readv::new(fd, iovecs.as_ptr(), iovecs.len() as u32).offset(offset).build()
        }
        Step::Write { offset, iovecs: [only], dsync } => {
            opcode::Write::new(fd, only.iov_base.cast(), call_len(only.iov_len))
                .offset(offset)
                .rw_flags(if dsync { libc::RWF_DSYNC } else { 0 })
                .build()
        }
        Step::Write { offset, iovecs, dsync } => {
            opcode::Writev::new(fd, iovecs.as_ptr(), iovecs.len() as u32)
                .offset(offset)
                .rw_flags(if dsync { libc::RWF_DSYNC } else { 0 })
                .build()
        }
        Step::Sync | Step::Allocate { .. } | Step::BlockingOp { .. } => {
            unreachable!("what waits goes to the workers")
        }
    }
}

/// Bytes of one call; the rest of a longer buffer is continued, as after any short transfer.
fn call_len(len: usize) -> u32 {
    len.min(1 << 30) as u32
}

fn counted(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

impl Port for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn register(&mut self, disk: Arc<Disk>) -> rustix::io::Result<FileId> {
        let entry = self.files.vacant_entry();
        let file = FileId(entry.key() as u32);
        self.ring.set_file(file.0, disk.as_fd().as_raw_fd())?;
        self.helpers.register(file, &disk);
        entry.insert(File { disk, in_flight: 0, in_ring: 0, waiting: VecDeque::new() });
        self.share();
        Ok(file)
    }

    fn unregister(&mut self, file: FileId) {
        let in_flight = self.files[file.0 as usize].in_flight;
        assert!(in_flight == 0, "{in_flight} jobs are in flight on a disk that is to go");
        if let Err(errno) = self.ring.set_file(file.0, -1) {
            tracing::warn!(%errno, "the ring did not let go of a file");
        }
        let gone = self.files.remove(file.0 as usize);
        self.helpers.unregister(file, &gone.disk);
        self.share();
    }

    fn submit(&mut self, job: Job) {
        let file = &mut self.files[job.file.0 as usize];
        let (mut task, progress) = Task::new(job, &file.disk);
        if let Progress::End(result) = progress {
            self.done.push(task.finish(result));
            return;
        }
        if file.disk.is_in_memory() && task.is_copy(COPY_BYTES_MAX) {
            match copy(&mut task, &file.disk) {
                Progress::End(result) => {
                    self.done.push(task.finish(result));
                    return;
                }
                // Whatever is odd about it: the ring will see to the rest.
                Progress::More | Progress::Patiently => {}
            }
        }
        file.in_flight += 1;
        if task.is_for_ring(&file.disk) {
            self.enqueue(task);
        } else {
            self.help(task);
        }
    }

    fn watch(&mut self, fd: RawFd, token: u64, interest: Interest) {
        self.watches.watch(fd, token, interest, &mut self.ring);
    }

    fn unwatch(&mut self, token: u64) {
        self.watches.unwatch(token, &mut self.ring);
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<PortEvent>,
    ) -> rustix::io::Result<()> {
        let deadline = timeout.filter(|timeout| !timeout.is_zero());
        let deadline = deadline.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        let before = events.len();
        // Done on the spot, and nothing to start: no reason to go to the kernel, but others may
        // have sent something.
        if !self.done.is_empty() && self.ring.is_idle() && self.skipped < SKIPPED_MAX {
            self.skipped += self.done.len();
            self.collect(events);
            return Ok(());
        }
        self.skipped = 0;
        loop {
            self.collect(events);
            self.arm_waker();
            self.watches.arm(&mut self.ring);
            let ready = events.len() > before;
            self.ring.enter(if ready { Some(Duration::ZERO) } else { left })?;
            self.reap(events);
            self.collect(events);
            if events.len() > before || left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            // A continuation, a cancellation or a signal: on with what is left of the time.
            left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        }
    }

    fn look_at_all(&mut self) {
        self.skipped = SKIPPED_MAX;
    }

    fn in_flight(&self) -> usize {
        self.tasks.len() + self.helped.len() + self.done.len()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Buffers and files may only go when the kernel is done with them.
        let mut events = Vec::new();
        while !self.tasks.is_empty() {
            if let Err(errno) = self.ring.enter(None) {
                // Then the memory must outlive us: better lost than written to after it is reused.
                tracing::error!(%errno, "the ring failed with I/O in flight");
                std::mem::forget(std::mem::take(&mut self.tasks));
                break;
            }
            self.reap(&mut events);
        }
        self.ring.cancel_all();
        if self.wake_armed {
            // The cancelled read may be the last to write here; the ring is only closed later.
            std::mem::forget(std::mem::take(&mut self.wake_count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::OpenOptions;
    use crate::memory::Memory;
    use crate::port::JobOp;
    use cinnabar_engine::{Payload, Slice};
    use smallvec::smallvec;

    fn run(port: &mut Uring, file: FileId, op: JobOp) {
        port.submit(Job { token: 5, file, op });
        let mut events = Vec::new();
        while events.is_empty() {
            port.wait(Some(Duration::from_secs(20)), &mut events).expect("the port works");
        }
        let [PortEvent::Done(done)] = &events[..] else { panic!("unexpected: {events:?}") };
        assert_eq!((done.token, done.result), (5, Ok(())));
    }

    /// As on kernels that would keep a file that left the table.
    #[test]
    fn without_a_table_files_are_told_apart_and_let_go_of() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut port = Uring::over(Ring::with_table(false).expect("a ring")).expect("a port");
        let options = OpenOptions { lock_wait: Duration::ZERO, ..OpenOptions::default() };
        let paths = [folder.path().join("a"), folder.path().join("b")];
        let files = paths.clone().map(|path| {
            std::fs::write(&path, [0; 8192]).expect("a file");
            let disk = Disk::open(&path, &options).expect("it opens");
            port.register(Arc::new(disk)).expect("it registers")
        });
        for (file, byte) in files.iter().zip([1, 2]) {
            let data = Memory::alloc(1);
            data.write_at(0, &[byte; 4096]);
            let data = smallvec![Slice { data, at: 0, len: 4096 }];
            let op = JobOp::Write { offset: 4096, pages: Vec::new(), data, fua: true };
            run(&mut port, *file, op);
        }
        for (path, byte) in paths.iter().zip([1, 2]) {
            assert_eq!(std::fs::read(path).expect("a file")[4096..], [byte; 4096]);
        }
        port.unregister(files[0]);
        Disk::open(&paths[0], &options).expect("its lock is free");
        Disk::open(&paths[1], &options).expect_err("the other one's is not");
        run(&mut port, files[1], JobOp::Flush);
    }
}
