//! The handle of a server's export, and the mailbox of its worker.

use super::address::{NbdAddress, NbdSpec};
use super::dialer::{DialEvent, Target};
use super::error::NbdError;
use super::export_info::ExportInfo;
use super::worker::Worker;
use crate::port::{Done, FileId, Task};
use cinnabar_engine::units::ByteSpan;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read, write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait for what is under way before a server is left.
const REST_MAX: Duration = Duration::from_secs(10);

/// Where the completions of tasks go.
pub(crate) trait Sink: Send + Sync {
    /// A task has ended.
    fn done(&self, done: Done);
    /// The server may have lost these ranges of this disk; comes before anything it did since. Each
    /// sink that had a task of data hears of it, one of them as the first.
    fn restarted(&self, file: FileId, ranges: Vec<ByteSpan>, first: bool);
}

/// A server's export, kept in reach by a thread of its own until this is dropped. Tasks that are
/// not done by then end with an error.
#[derive(Debug)]
pub(crate) struct Client {
    mailbox: Arc<Mailbox>,
    export: ExportInfo,
    place: String,
    /// For a connection beside those of the worker.
    probe: Target,
    thread: Option<JoinHandle<()>>,
}

/// Messages to the worker.
#[derive(Debug)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    bell: OwnedFd,
}

/// See [`Mailbox`].
#[derive(Default)]
pub(super) struct Mail {
    pub(super) tasks: Vec<(Task, Arc<dyn Sink>)>,
    /// Of the dialer, each with the number of the outage it is about.
    pub(super) news: Vec<(u64, DialEvent)>,
    pub(super) closed: bool,
    /// New connections are wanted: the export has grown.
    pub(super) renew: bool,
    /// The server is not waited for any more.
    pub(super) given_up: bool,
    /// It is to be left as soon as nothing is under way; told then.
    pub(super) rest: Option<mpsc::Sender<()>>,
    /// The other way: why the server is out of reach.
    trouble: Option<String>,
    /// And a flush that it failed. It sticks, as that of a file does (`disk::durable`): a server may
    /// tell of a lost write once.
    failed_flush: Option<Errno>,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, a standby over one connection, and starts the worker.
    ///
    /// # Errors
    /// [`NbdError`] if the server is out of reach or its export can't be a volume.
    pub(crate) fn open(spec: &NbdSpec, read_only: bool, stands_by: bool) -> Result<Self, NbdError> {
        let connections = if stands_by { 1 } else { spec.connections };
        let (spec, before) = (Arc::new(spec.clone()), None);
        let mut target = Target { spec: Arc::clone(&spec), read_only, connections, before };
        let probe = target.clone();
        let first = target.dial()?;
        let export = first.export;
        if !export.flush && !export.read_only {
            tracing::warn!(
                server = %spec,
                "it cannot flush: what it has replied to is taken for durable, and nothing covers \
                 its own crash"
            );
        }
        // All names of a host are one place.
        let place = match (&spec.address, first.peer()) {
            (NbdAddress::Tcp { .. }, Some(peer)) => format!("tcp:{peer}:{}", spec.export),
            _ => spec.place(),
        };
        target.before = Some(export);
        let mut connections = vec![first];
        target.dial_others(&export, |dialed| {
            connections.push(dialed);
            true
        });
        tracing::info!(
            server = %spec, connections = connections.len(), size_bytes = export.size_bytes,
            "connected"
        );
        let mailbox = Arc::new(Mailbox::new().map_err(NbdError::Thread)?);
        let worker = Worker::new(target, export, connections, Arc::clone(&mailbox));
        let thread = std::thread::Builder::new()
            .name("cinnabar-nbd".into())
            .spawn(move || worker.run())
            .map_err(|error| {
                NbdError::Thread(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
            })?;
        Ok(Self { mailbox, export, place, probe, thread: Some(thread) })
    }

    /// What the server said when it was opened.
    pub(crate) fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// Address and export: equal for two names of one place, as far as that can be told.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Asks the server over a connection of its own how large the export is now. Blocks for at most
    /// some ten seconds.
    pub(crate) fn measure(&self) -> Result<u64, NbdError> {
        Ok(self.probe.dial()?.export.size_bytes)
    }

    /// Connects again: servers refuse what is beyond the size that a connection began with.
    pub(crate) fn renew(&self) {
        self.mailbox.put(|mail| mail.renew = true);
    }

    /// See [`Disk::give_up`](crate::Disk::give_up).
    pub(crate) fn give_up(&self) {
        self.mailbox.put(|mail| mail.given_up = true);
    }

    /// See [`Disk::rest`](crate::Disk::rest).
    pub(crate) fn rest(&self) {
        let (told, rests) = mpsc::channel();
        self.mailbox.put(|mail| mail.rest = Some(told));
        // One with something under way that hangs has it later.
        let _ = rests.recv_timeout(REST_MAX);
    }

    /// Why the server is out of reach, if it is.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.mailbox.lock().trouble.clone()
    }

    /// The failure of a flush that sticks.
    pub(crate) fn failed_flush(&self) -> Option<Errno> {
        self.mailbox.lock().failed_flush
    }

    /// See [`Disk::forget_failed_flush`](crate::Disk::forget_failed_flush).
    pub(crate) fn forget_failed_flush(&self) {
        self.mailbox.lock().failed_flush = None;
    }

    /// Takes a task; the sink gets its completion.
    pub(crate) fn submit(&self, task: Task, sink: Arc<dyn Sink>) {
        self.mailbox.put(|mail| mail.tasks.push((task, sink)));
    }

    /// Flushes, waiting for it.
    pub(crate) fn flush(&self) -> rustix::io::Result<()> {
        let waiter = Arc::new(Waiter::default());
        self.submit(Task::flush(), Arc::clone(&waiter) as Arc<dyn Sink>);
        waiter.wait()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.mailbox.put(|mail| mail.closed = true);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Mailbox {
    fn new() -> rustix::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { mail: Mutex::default(), bell })
    }

    /// Says something of this outage.
    pub(super) fn tell(&self, outage: u64, news: DialEvent) {
        self.put(|mail| {
            // A connection that no attempt waits for is closed here.
            if !mail.closed {
                mail.news.push((outage, news));
            }
        });
    }

    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        self.lock().trouble = trouble;
    }

    /// A flush has ended, perhaps with this failure. Gives the one that sticks.
    pub(super) fn note_flush(&self, failed: Option<Errno>) -> Option<Errno> {
        let mut mail = self.lock();
        mail.failed_flush = mail.failed_flush.or(failed);
        mail.failed_flush
    }

    /// All there is; it stays closed.
    pub(super) fn take(&self) -> Mail {
        let _ = read(&self.bell, &mut [0_u8; 8]);
        let mut mail = self.lock();
        let (closed, trouble, failed_flush) =
            (mail.closed, mail.trouble.clone(), mail.failed_flush);
        std::mem::replace(&mut *mail, Mail { closed, trouble, failed_flush, ..Mail::default() })
    }

    /// What rings when there is something.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn put(&self, change: impl FnOnce(&mut Mail)) {
        let mut mail = self.lock();
        let quiet = mail.tasks.is_empty() && mail.news.is_empty();
        change(&mut mail);
        let ring = quiet || mail.closed || mail.given_up || mail.rest.is_some();
        drop(mail);
        if ring {
            // It fails only when it has rung 2^64 - 2 times unheard.
            while write(&self.bell, &1_u64.to_ne_bytes()) == Err(Errno::INTR) {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        // Lists, whole whenever the lock is free.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sink for one task that is waited for.
#[derive(Default)]
struct Waiter {
    result: Mutex<Option<Result<(), Errno>>>,
    told: Condvar,
}

impl Waiter {
    fn wait(&self) -> Result<(), Errno> {
        let guard = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = self.told.wait_while(guard, |result| result.is_none());
        guard.unwrap_or_else(PoisonError::into_inner).unwrap_or(Err(Errno::IO))
    }
}

impl Sink for Waiter {
    fn done(&self, done: Done) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done.result);
        self.told.notify_all();
    }

    fn restarted(&self, _: FileId, _: Vec<ByteSpan>, _: bool) {
        unreachable!("a flush writes nothing, and only writers are reported")
    }
}
