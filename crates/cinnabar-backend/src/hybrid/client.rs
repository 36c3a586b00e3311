//! The handle of an open hybrid volume.

use super::proof::{Seen, Table};
use super::spec::HybridSpec;
use super::{HybridError, HybridPlace, HybridStatus};
use crate::closing::Counted;
use crate::nbd::Sink;
use crate::port::{Done, Extent, FileId, Task, Whole};
use crate::rbd::LockState;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::volume::ProofToken;
use cinnabar_hybrid::pools::Wait;
use cinnabar_hybrid::runtime::{Kind, Request, Running};
use libc::iovec;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};

/// An open hybrid volume. Dropping it has a thread close it, for which nobody waits.
#[derive(Debug)]
pub(crate) struct Client {
    /// There until it is dropped.
    running: Option<Running>,
    place: String,
    ports: Arc<Mutex<Ports>>,
    read_only: bool,
    table: Table,
    /// Until it is closed.
    counted: Option<Counted>,
    /// To the thread that closes it. It is there from the beginning: at the end none may be had.
    closer: mpsc::Sender<(Running, Option<Counted>)>,
}

/// Whom to tell that the volume is lost: each port that knows the disk, by its name there.
#[derive(Default)]
struct Ports {
    known: Vec<(Arc<dyn Sink>, FileId)>,
    lost: bool,
    /// One of them was told.
    told: bool,
    size_bytes: u64,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Ports {
    /// Nothing that a port has of the volume is to be believed.
    fn tell(&mut self, sink: &Arc<dyn Sink>, file: FileId) {
        let first = !std::mem::replace(&mut self.told, true);
        sink.restarted(file, vec![ByteSpan::new(0, self.size_bytes)], first);
    }

    fn lose(&mut self) {
        self.lost = true;
        for (sink, file) in self.known.clone() {
            self.tell(&sink, file);
        }
    }
}

impl Client {
    /// Takes the volume over. Blocks for as long as its table takes to read, and while `wait` waits for
    /// another process.
    ///
    /// # Errors
    /// [`HybridError`].
    pub(crate) fn open(
        spec: &HybridSpec,
        read_only: bool,
        wait: &mut dyn FnMut(Wait<'_>) -> bool,
    ) -> Result<Self, HybridError> {
        let ports = Arc::new(Mutex::new(Ports::default()));
        let told = Arc::clone(&ports);
        let lost = Box::new(move || locked(&told).lose());
        let counted = Some(Counted::new());
        let closer = closer()?;
        let mut volume = spec.place.volume()?;
        let running = Running::open(&mut *volume, spec.settings, wait, lost)?;
        locked(&ports).size_bytes = running.size_bytes();
        let table = match &spec.place {
            HybridPlace::Local(place) => birth(&place.table)?,
            HybridPlace::Ceph(_) => Table::Takings(running.takings().unwrap_or_default()),
        };
        let (running, place) = (Some(running), spec.place());
        Ok(Self { running, place, ports, read_only, table, counted, closer })
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("there until it is dropped")
    }

    /// What it is, whatever it is called.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.running().size_bytes()
    }

    pub(crate) fn align_bytes(&self) -> u32 {
        self.running().align_bytes()
    }

    /// What it does.
    pub(crate) fn status(&self) -> HybridStatus {
        self.running().status()
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.status().trouble
    }

    /// Whether it may be served.
    pub(crate) fn lock_state(&self) -> LockState {
        self.running().lock_state()
    }

    /// The failure of a flush that sticks.
    pub(crate) fn failed_flush(&self) -> Option<Errno> {
        self.running().failed_flush()
    }

    /// See [`Disk::forget_failed_flush`](crate::Disk::forget_failed_flush).
    pub(crate) fn forget_failed_flush(&self) {
        self.running().forget_failed_flush();
    }

    /// A port knows the disk by this name: it is told when the volume is lost.
    pub(crate) fn register(&self, file: FileId, sink: Arc<dyn Sink>) {
        let mut ports = locked(&self.ports);
        if ports.lost {
            ports.tell(&sink, file);
        }
        ports.known.push((sink, file));
    }

    /// And no longer.
    pub(crate) fn unregister(&self, file: FileId, sink: &Arc<dyn Sink>) {
        let is_it =
            |(known, name): &(Arc<dyn Sink>, FileId)| Arc::ptr_eq(known, sink) && *name == file;
        locked(&self.ports).known.retain(|port| !is_it(port));
    }

    /// Takes a task; the sink gets its completion.
    pub(crate) fn submit(&self, mut task: Task, sink: Arc<dyn Sink>) {
        let kind = match task.whole() {
            Whole::Read { .. } => Kind::Read,
            Whole::Write { fua, .. } => Kind::Write { durable: fua },
            Whole::Flush => Kind::Flush,
            Whole::Trim { .. } => Kind::Zero { punch: true },
            Whole::WriteZeroes { may_punch, .. } => Kind::Zero { punch: may_punch },
            Whole::Extents { span } => {
                task.extents = vec![Extent { len: span.len, hole: false }];
                return sink.done(task.finish(Ok(())));
            }
        };
        if self.read_only && !matches!(kind, Kind::Read | Kind::Flush) {
            return sink.done(task.finish(Err(Errno::ROFS)));
        }
        self.running().submit(Box::new(Job { kind, task, sink }));
    }

    /// Flushes, waiting for it.
    pub(crate) fn flush(&self) -> rustix::io::Result<()> {
        let waiter = Arc::new(Waiter::default());
        self.submit(Task::flush(), Arc::clone(&waiter) as Arc<dyn Sink>);
        waiter.wait()
    }

    /// See [`Proof::read_proof`](crate::Proof::read_proof).
    pub(crate) fn read_proof(&self) -> Option<ProofToken> {
        let running = self.running();
        let (identity, epoch) = (running.identity(), running.epoch());
        let seen = Seen { identity, table: self.table, epoch, changed: running.changed() };
        (!running.status().lost).then(|| seen.pack())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        // Copies under way end first, which the thread that drops this is not to wait for.
        let _sent = self.closer.send((running, self.counted.take()));
    }
}

/// Starts the thread that waits for a volume to close.
fn closer() -> Result<mpsc::Sender<(Running, Option<Counted>)>, HybridError> {
    let (closer, closing) = mpsc::channel::<(Running, Option<Counted>)>();
    let close = move || {
        // None comes if the volume could not be opened.
        if let Ok((running, counted)) = closing.recv() {
            drop(running);
            drop(counted);
        }
    };
    let thread = std::thread::Builder::new().name("cinnabar-hybrid-close".into());
    thread.spawn(close).map_err(|error| HybridError::Io {
        during: "starting a thread".into(),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
    })?;
    Ok(closer)
}

fn locked(ports: &Mutex<Ports>) -> std::sync::MutexGuard<'_, Ports> {
    ports.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Inode and time of birth of the table, which is open and locked.
fn birth(table: &Path) -> Result<Table, HybridError> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let seen = statx(CWD, table, AtFlags::empty(), wanted).map_err(|errno| HybridError::Io {
        during: format!("looking at {}", table.display()),
        errno,
    })?;
    let has_birth = StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::BTIME);
    let birth = seen.stx_btime;
    let ns = birth.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000);
    let birth = if has_birth { ns.wrapping_add(birth.tv_nsec.into()) } else { 0 };
    Ok(Table::File(seen.stx_ino, birth))
}

/// A task as the volume's thread takes it.
struct Job {
    kind: Kind,
    task: Task,
    sink: Arc<dyn Sink>,
}

impl Job {
    fn span(&self) -> ByteSpan {
        match self.task.whole() {
            Whole::Read { span }
            | Whole::Write { span, .. }
            | Whole::Trim { span }
            | Whole::WriteZeroes { span, .. }
            | Whole::Extents { span } => span,
            Whole::Flush => ByteSpan::new(0, 0),
        }
    }
}

impl Request for Job {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn offset(&self) -> u64 {
        self.span().offset
    }

    fn length(&self) -> u64 {
        self.span().len
    }

    fn memory(&self) -> &[iovec] {
        self.task.memory()
    }

    fn finish(self: Box<Self>, result: Result<(), Errno>) {
        self.sink.done(self.task.finish(result));
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
        unreachable!("only ports that registered are told")
    }
}
