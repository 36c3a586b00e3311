//! How other threads talk to the worker of an image, and what it tells of itself.

use crate::nbd::Sink;
use crate::port::{FileId, Task};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read, write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module.
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    bell: OwnedFd,
}

#[derive(Default)]
struct Mail {
    tasks: Vec<(Task, Arc<dyn Sink>)>,
    ports: Vec<Registration>,
    closed: bool,
    /// The lock was released for good: the volume is at its end.
    released: bool,
    /// The other way: why the image does not answer, or never will.
    trouble: Option<String>,
    /// A flush that failed sticks, as that of a file does (`disk::durable`).
    failed_flush: Option<Errno>,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

/// That a port knows the disk from now on, or no longer.
pub(super) struct Registration {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) file: FileId,
    pub(super) is_there: bool,
}

/// What there is to be done: registrations before tasks, which are of ports that registered.
pub(super) struct Taken {
    pub(super) ports: Vec<Registration>,
    pub(super) tasks: Vec<(Task, Arc<dyn Sink>)>,
    pub(super) closed: bool,
    pub(super) released: bool,
}

impl Mailbox {
    pub(super) fn new() -> rustix::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { mail: Mutex::default(), bell })
    }

    /// A task for the worker; the sink gets its completion.
    pub(super) fn submit(&self, task: Task, sink: Arc<dyn Sink>) {
        let mut mail = self.lock();
        let quiet = mail.tasks.is_empty();
        mail.tasks.push((task, sink));
        drop(mail);
        if quiet {
            self.ring();
        }
    }

    /// A port for the worker to know.
    pub(super) fn note_port(&self, registration: Registration) {
        self.lock().ports.push(registration);
        self.ring();
    }

    /// There will be no more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.ring();
    }

    /// Nothing is written from now on.
    pub(super) fn release(&self) {
        self.lock().released = true;
    }

    /// Whether it was [released](Self::release).
    pub(super) fn is_released(&self) -> bool {
        self.lock().released
    }

    /// All there is.
    pub(super) fn take(&self) -> Taken {
        drain(&self.bell);
        let mut mail = self.lock();
        let tasks = std::mem::take(&mut mail.tasks);
        let ports = std::mem::take(&mut mail.ports);
        Taken { ports, tasks, closed: mail.closed, released: mail.released }
    }

    /// What rings when there is something.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        self.lock().trouble = trouble;
    }

    pub(super) fn failed_flush(&self) -> Option<Errno> {
        self.lock().failed_flush
    }

    pub(super) fn forget_failed_flush(&self) {
        self.lock().failed_flush = None;
    }

    /// A flush has ended, perhaps with this failure. Gives the one that sticks.
    pub(super) fn note_flush(&self, failed: Option<Errno>) -> Option<Errno> {
        let mut mail = self.lock();
        mail.failed_flush = mail.failed_flush.or(failed);
        mail.failed_flush
    }

    fn ring(&self) {
        // It fails only when it has rung 2^64 - 2 times unheard.
        while write(&self.bell, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        // Lists, whole whenever the lock is free.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes back what was written to an eventfd.
pub(super) fn drain(eventfd: impl AsFd) {
    // Nothing was: that is fine.
    let _none = read(eventfd, &mut [0_u8; 8]);
}
