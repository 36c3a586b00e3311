//! The port over threads and `poll`: works everywhere, at more CPU an I/O.
//!
//! Called where `io_uring` is refused (containers, old kernels) or not wanted.

use super::job::{Done, Job};
use super::task::{Progress, Task};
use super::waker::Waker;
use super::workers::Workers;
use super::{FILES_MAX, FileId, Interest, Port, PortError, PortEvent};
use crate::disk::Disk;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use slab::Slab;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Threads {
    workers: Workers,
    waker: Waker,
    files: Slab<(Arc<Disk>, usize)>,
    /// Which file each task in the workers' hands is for, by slot; the slot is the task's token.
    tasks: Slab<(FileId, u64)>,
    /// Ended without a call.
    done: Vec<Done>,
    /// The waker's first, then a watch each.
    polls: Vec<libc::pollfd>,
    /// Token of each but the first.
    tokens: Vec<u64>,
}

impl Threads {
    pub(super) fn new() -> Result<Self, PortError> {
        let waker = Waker::new(true).map_err(|errno| PortError { during: "eventfd", errno })?;
        let workers = Workers::new(waker.clone());
        let own = libc::pollfd { fd: waker.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        Ok(Self {
            workers,
            waker,
            files: Slab::new(),
            tasks: Slab::new(),
            done: Vec::new(),
            polls: vec![own],
            tokens: Vec::new(),
        })
    }

    fn collect(&mut self, events: &mut Vec<PortEvent>) {
        events.extend(self.done.drain(..).map(PortEvent::Done));
        self.workers.tell_restarts(events);
        self.workers.collect(&mut self.done);
        for mut done in self.done.drain(..) {
            let (file, token) = self.tasks.remove(done.token as usize);
            self.files[file.0 as usize].1 -= 1;
            done.token = token;
            events.push(PortEvent::Done(done));
        }
    }

    fn poll(&mut self, timeout: Option<Duration>) -> rustix::io::Result<()> {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let pointer = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the list is a live exclusive borrow of that length, the time-out lives on the
        // stack, and no signal mask is given.
        let count = unsafe {
            let len = self.polls.len() as libc::nfds_t;
            libc::ppoll(self.polls.as_mut_ptr(), len, pointer, std::ptr::null())
        };
        if count >= 0 {
            return Ok(());
        }
        self.polls.iter_mut().for_each(|poll| poll.revents = 0);
        match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::INTR | Errno::AGAIN) => Ok(()),
            errno => Err(errno.unwrap_or(Errno::IO)),
        }
    }

    fn tell(&mut self, events: &mut Vec<PortEvent>) {
        if self.polls[0].revents != 0 {
            self.waker.drain();
            if self.waker.take() {
                events.push(PortEvent::Woken);
            }
        }
        for (poll, &token) in self.polls[1..].iter().zip(&self.tokens) {
            events.extend(readiness(token, poll.revents));
        }
    }
}

/// What of a socket's state is worth telling, if anything.
pub(super) fn readiness(token: u64, revents: i16) -> Option<PortEvent> {
    (revents != 0).then_some(PortEvent::Ready {
        token,
        readable: revents & (libc::POLLIN | libc::POLLRDHUP) != 0,
        writable: revents & libc::POLLOUT != 0,
        hangup: revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0,
    })
}

/// What to ask the kernel for.
pub(super) fn poll_mask(interest: Interest) -> i16 {
    let read = if interest.read { libc::POLLIN | libc::POLLRDHUP } else { 0 };
    let write = if interest.write { libc::POLLOUT } else { 0 };
    read | write
}

impl Port for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn register(&mut self, disk: Arc<Disk>) -> rustix::io::Result<FileId> {
        if self.files.len() >= FILES_MAX as usize {
            return Err(Errno::NFILE);
        }
        let entry = self.files.vacant_entry();
        let file = FileId(entry.key() as u32);
        self.workers.register(file, &disk);
        entry.insert((disk, 0));
        self.workers.share_among(self.files.len());
        Ok(file)
    }

    fn unregister(&mut self, file: FileId) {
        let (disk, in_flight) = self.files.remove(file.0 as usize);
        assert!(in_flight == 0, "{in_flight} jobs are in flight on a disk that is to go");
        self.workers.unregister(file, &disk);
        self.workers.share_among(self.files.len());
    }

    fn submit(&mut self, job: Job) {
        let (disk, in_flight) = &mut self.files[job.file.0 as usize];
        let (file, token) = (job.file, job.token);
        let (mut task, progress) = Task::new(job, disk);
        if let Progress::End(result) = progress {
            self.done.push(task.finish(result));
            return;
        }
        *in_flight += 1;
        task.token = self.tasks.insert((file, token)) as u64;
        self.workers.push(task, Arc::clone(disk));
    }

    fn watch(&mut self, fd: RawFd, token: u64, interest: Interest) {
        let poll = libc::pollfd { fd, events: poll_mask(interest), revents: 0 };
        if let Some(index) = self.tokens.iter().position(|&known| known == token) {
            self.polls[index + 1] = poll;
        } else {
            self.polls.push(poll);
            self.tokens.push(token);
        }
    }

    fn unwatch(&mut self, token: u64) {
        if let Some(index) = self.tokens.iter().position(|&known| known == token) {
            self.tokens.swap_remove(index);
            self.polls.swap_remove(index + 1);
        }
    }

    fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<PortEvent>,
    ) -> rustix::io::Result<()> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let before = events.len();
        self.collect(events);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.poll(if events.len() > before { Some(Duration::ZERO) } else { left })?;
            self.tell(events);
            self.collect(events);
            if events.len() > before || left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.tasks.len() + self.done.len()
    }
}
