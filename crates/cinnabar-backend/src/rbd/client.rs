//! The handle of an open image.

use super::error::RbdError;
use super::mailbox::{Mailbox, Registration};
use super::open::{self, Held, Mode, Wait};
use super::proof::{Identity, Seen, Step};
use super::spec::RbdSpec;
use super::sys::Image;
use super::watched::Watched;
use super::worker::Worker;
use crate::closing::Counted;
use crate::lineage::{Lineage, Snapshot};
use crate::nbd::Sink;
use crate::port::{Done, FileId, Task};
use crate::proof::ProofError;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::volume::ProofToken;
use cinnabar_hybrid::librados::lock_state::{LockState, SeenLock};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the removal of a snapshot at the end.
const UPKEEP_WAIT_MAX: Duration = Duration::from_secs(10);

/// What is done to the image's snapshots.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// The end has begun: what is left then stays.
    pub(super) ends: bool,
}

/// An open image. Dropping it has its thread close it, which nobody waits for
/// ([`finish_closing`](crate::finish_closing)).
#[derive(Debug)]
pub(crate) struct Client {
    mailbox: Arc<Mailbox>,
    /// There until it is dropped; not of a standby, whose thread opens it again now and then.
    image: Option<Arc<Image>>,
    identity: Identity,
    held: Held,
    lease: Arc<SeenLock>,
    place: String,
    snapshot: Option<Snapshot>,
    lineage: Option<Lineage>,
    size_bytes: Arc<AtomicU64>,
    /// See [`upkeep`](Self::upkeep).
    upkeep: Mutex<Upkeep>,
}

impl Client {
    /// Connects, opens the image, takes its lock and starts the worker; `is_clone`: it is to say what it
    /// has itself. Blocks for some seconds at
    /// most, and while `wait` waits for another client's lock, which it is told of.
    ///
    /// # Errors
    /// [`RbdError`], with a hint.
    pub(crate) fn open(
        spec: &RbdSpec,
        (mode, is_clone): (Mode, bool),
        mut wait: impl FnMut(Wait<'_>) -> bool,
    ) -> Result<Self, RbdError> {
        let events =
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(RbdError::Thread)?;
        let events = Arc::new(events);
        let opened = open::open(spec, (mode, is_clone), &events, &mut wait)?;
        let (image, size) = (Arc::new(opened.image), opened.size_bytes);
        // Whatever fails below, this goes first.
        let watched = Watched::new(opened.look, opened.held.own());
        // The descriptor outlives the image: it is the worker's, which lets go of the image first.
        image
            .announce(events.as_fd())
            .map_err(|errno| RbdError::Io { during: "completions", errno })?;
        let mailbox = Arc::new(Mailbox::new().map_err(RbdError::Thread)?);
        let size_bytes = Arc::new(AtomicU64::new(size));
        let served = Arc::clone(&size_bytes);
        let lease = Arc::new(SeenLock::new(opened.held.seen_ns()));
        tracing::info!(image = spec.image_spec(), size_bytes = size, ?mode, "opened an RBD image");
        let worker = Worker::new(
            Arc::clone(&image),
            Arc::clone(&mailbox),
            events,
            spec.clone(),
            (watched, Arc::clone(&lease)),
            (&opened.held, opened.lineage.as_ref().map(|lineage| Arc::clone(&lineage.map))),
            Box::new(move || served.load(Relaxed)),
        );
        let counted = Counted::new();
        let thread = std::thread::Builder::new().name("cinnabar-rbd".into());
        let run = move || {
            worker.run();
            // The image is closed, too: the worker had it last.
            drop(counted);
        };
        thread.spawn(run).map_err(|error| {
            RbdError::Thread(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
        })?;
        Ok(Self {
            mailbox,
            image: (mode != Mode::Standby).then_some(image),
            identity: opened.identity,
            held: opened.held,
            lease,
            place: spec.place(),
            snapshot: opened.snapshot,
            lineage: opened.lineage,
            size_bytes,
            upkeep: Mutex::default(),
        })
    }

    /// What it is, whatever it is called: equal for two names of one place, as far as that can be
    /// told.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// What it has itself, if that was asked when it was opened.
    pub(crate) fn lineage(&self) -> Option<&Lineage> {
        self.lineage.as_ref()
    }

    /// Which image it is.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Size in bytes when it was opened, or grown.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Relaxed)
    }

    /// Asks how large it is now. No call to the cluster unless it has changed.
    pub(crate) fn measure(&self) -> Result<u64, RbdError> {
        let io = |during| move |errno| RbdError::Io { during, errno };
        let Some(image) = &self.image else { return Ok(self.size_bytes()) };
        if let Some(lineage) = &self.lineage {
            // After a flatten nothing keeps the parent's snapshot any more, and it may go. What was cut
            // off and has grown back since the last look is zeroes, whatever the size is now.
            lineage.map.cut(image.overlap().map_err(io("its overlap"))?);
        }
        image.size_bytes().map_err(io("size"))
    }

    /// So much of it is served from now on.
    pub(crate) fn grow_to(&self, size_bytes: u64) {
        self.size_bytes.fetch_max(size_bytes, Relaxed);
    }

    /// Why it does not answer, if it does not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.mailbox.trouble()
    }

    /// Whether it may be served.
    pub(crate) fn lock_state(&self) -> LockState {
        match self.held {
            Held::Image { .. } => self.lease.lock_state(),
            Held::Snap(_) | Held::Standby(_) => LockState::Held,
        }
    }

    /// The failure of a flush that sticks.
    pub(crate) fn failed_flush(&self) -> Option<Errno> {
        self.mailbox.failed_flush()
    }

    /// See [`Disk::forget_failed_flush`](crate::Disk::forget_failed_flush).
    pub(crate) fn forget_failed_flush(&self) {
        self.mailbox.forget_failed_flush();
    }

    /// A port knows the disk by this name: it is told when the image is lost.
    pub(crate) fn register(&self, file: FileId, sink: Arc<dyn Sink>) {
        self.mailbox.note_port(Registration { sink, file, is_there: true });
    }

    /// And no longer.
    pub(crate) fn unregister(&self, file: FileId, sink: Arc<dyn Sink>) {
        self.mailbox.note_port(Registration { sink, file, is_there: false });
    }

    /// Takes a task; the sink gets its completion.
    pub(crate) fn submit(&self, task: Task, sink: Arc<dyn Sink>) {
        self.mailbox.submit(task, sink);
    }

    /// Flushes, waiting for it.
    pub(crate) fn flush(&self) -> rustix::io::Result<()> {
        let waiter = Arc::new(Waiter::default());
        self.submit(Task::flush(), Arc::clone(&waiter) as Arc<dyn Sink>);
        waiter.wait()
    }

    /// See [`Proof::read_proof`](crate::Proof::read_proof).
    pub(crate) fn read_proof(&self) -> Result<Option<ProofToken>, ProofError> {
        match &self.held {
            Held::Snap(number) => Ok(Some(Seen::Snap(*number).pack(&self.identity))),
            Held::Standby(_) => Ok(None),
            Held::Image { found, .. } => {
                let version = self.version_under_lock()?;
                let seen = version.map(|version| Seen::Image { version, found: *found });
                Ok(seen.map(|seen| seen.pack(&self.identity)))
            }
        }
    }

    /// See [`Proof::take_proof`](crate::Proof::take_proof): releases the lock, after which nothing
    /// is written here, and each client that takes it changes the version.
    pub(crate) fn take_proof(&self) -> Result<Option<ProofToken>, ProofError> {
        self.let_go(None, Instant::now() + UPKEEP_WAIT_MAX)
    }

    /// The same; `snap` is the number of the snapshot that was taken before. There is no proof if a snapshot
    /// is being removed until `by`.
    pub(super) fn let_go(
        &self,
        snap: Option<u64>,
        by: Instant,
    ) -> Result<Option<ProofToken>, ProofError> {
        let Held::Image { header, .. } = &self.held else { return self.read_proof() };
        // What is done to snapshots needs the lock, and would take it again.
        let Some(mut upkeep) = self.upkeep_by(by) else { return Ok(None) };
        upkeep.ends = true;
        let Some(found) = self.version_under_lock()? else { return Ok(None) };
        self.mailbox.release();
        self.lease.release();
        let noted = open::note_owner(self.image(), header, "", found);
        let Some(before) = noted.map_err(io("noting the end"))? else { return Ok(None) };
        self.image().unlock().map_err(io("releasing the lock"))?;
        let mut cluster = self.image().cluster();
        let version = cluster.version(header).map_err(io("version of the header"))?;
        let locker = cluster.locker(header).map_err(io("the lock"))?;
        let alone = locker.is_none() && Step::One.was_alone(before, version);
        tracing::debug!(before, version, ?locker, alone, snap, "released");
        let seen = match snap {
            // Until `found` the lock was ours, and so is what the snapshot holds.
            Some(snap) => Some(Seen::Left { version: if alone { version } else { 0 }, snap }),
            None => alone.then_some(Seen::Image { version, found: 0 }),
        };
        Ok(seen.map(|seen| seen.pack(&self.identity)))
    }

    /// For what is done to the image's snapshots: one at a time.
    pub(super) fn upkeep(&self) -> MutexGuard<'_, Upkeep> {
        self.upkeep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless another takes longer than until then.
    pub(super) fn upkeep_by(&self, by: Instant) -> Option<MutexGuard<'_, Upkeep>> {
        loop {
            match self.upkeep.try_lock() {
                Ok(upkeep) => return Some(upkeep),
                Err(TryLockError::Poisoned(upkeep)) => return Some(upkeep.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= by => return None,
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// The version of the header, if the lock has been ours all the time. A lock that was lost and
    /// regained has another cookie.
    pub(super) fn version_under_lock(&self) -> Result<Option<u64>, ProofError> {
        let Held::Image { header, own, .. } = &self.held else { return Ok(None) };
        let version = {
            let mut cluster = self.image().cluster();
            cluster.version(header).map_err(io("version of the header"))?
        };
        // Asked after the version: who came before it would have the lock still, or have broken
        // ours.
        let locker = self.image().cluster().locker(header).map_err(io("the lock"))?;
        let has = self.image().has_lock().map_err(io("the lock"))?;
        Ok((has && locker.as_ref() == Some(own)).then_some(version))
    }

    pub(super) fn image(&self) -> &Image {
        self.image.as_ref().expect("there until it is dropped, but of a standby")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(image) = self.image.take() {
            // Nobody else asks anything any more: this does not wait for an answer.
            open::set_closing_patience(&image.cluster());
        }
        // From here on the worker has the image alone.
        self.mailbox.close();
    }
}

fn io(during: &'static str) -> impl Fn(Errno) -> ProofError {
    move |errno| ProofError::Io { during, errno }
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
        unreachable!("a flush has no data, and only those with data are told")
    }
}
