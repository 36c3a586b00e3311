//! A volume as the data plane knows it.

use super::clock::after;
use super::clones::Parent;
use super::migrate::{Door, MoveChange, Moves};
use super::qos::VolumeQos;
use super::renewal::Renewal;
use super::returns::Comparing;
use super::writes::{Claims, Leaving, Traffic};
use cinnabar_backend::claim::Location;
use cinnabar_backend::disk::DiskKind;
use cinnabar_backend::model::{OpKind, SimModel, SimSpec, Verdict, judge};
use cinnabar_backend::rbd::LockState;
use cinnabar_backend::{Disk, Memory};
use cinnabar_config::messages::samplers::SampledVolume;
use cinnabar_config::messages::{
    AnswerTo, CommandError, ModeCause, State, VolumeConfig, VolumeMode,
};
use cinnabar_config::status::latency::{Latencies, LatencyRecorder};
use cinnabar_driver::{IoCount, Phase, VolumeLife, WriteMode};
use cinnabar_engine::Op;
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::volume::ProofToken;
use cinnabar_frontend::nbd::ExportId;
use cinnabar_writeback::Misses;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A backend that has not answered for so long is shown as slow.
const SLOW_AFTER: Duration = Duration::from_secs(10);

/// One volume, from its installation to the end of its detachment.
pub(super) struct Volume {
    pub(super) config: VolumeConfig,
    /// Its mode is the operator's, who has set it while it served: plans do not change it.
    pub(super) mode_by_operator: bool,
    /// Who gave it its mode.
    pub(super) mode_cause: ModeCause,
    /// What the data threads share of it.
    pub(super) io: Arc<VolumeIo>,
    /// Its phase, its name in the engines, what its server lost.
    pub(super) life: VolumeLife,
    /// The backend's proof as it stood when it was opened.
    pub(super) proof: Option<ProofToken>,
    /// Under which its blocks are believed.
    pub(super) generation: u64,
    /// The data thread that serves it.
    pub(super) thread: usize,
    /// Of what the first thread serves; others keep those of their volumes.
    pub(super) latencies: Option<Recorders>,
    /// Of the command that ends it, if it is not the end of the daemon.
    pub(super) answer: Option<AnswerTo<()>>,
    /// What went wrong when it was attached or ended.
    pub(super) failed: Option<Fault>,
    /// How large its backend was when that was last asked.
    pub(super) measured: Option<u64>,
    /// The engines were asked to serve as much as its disk does, and have not agreed yet.
    pub(super) grow_due: bool,
    /// Its way into the write log and out of it.
    pub(super) writes: WriteMode,
    /// What has gone through the log.
    pub(super) traffic: Traffic,
    /// What is to be done when it has joined or left.
    pub(super) change: Change,
    /// How far it is on its way out.
    pub(super) leaving: Leaving,
    /// The stop has told it to leave the log.
    pub(super) stops: bool,
    /// Where its claim is, if it has one.
    pub(super) claim_at: Location,
    /// Its claim, as long as it may be there.
    pub(super) claims: Option<Claims>,
    /// Its way back after a failed flush.
    pub(super) renewal: Renewal,
    /// A number of its own, from its installation on.
    pub(super) number: u64,
    /// What it reads from a parent volume, if it is a clone.
    pub(super) parent: Option<Box<Parent>>,
    /// Its way from host to host, if it may move.
    pub(super) moves: Option<Box<Moves>>,
    /// Requests wait until the back end's lock is seen.
    pub(super) unconfirmed: bool,
    /// It may move as soon as that is durable, or may not any more.
    pub(super) move_change: Option<MoveChange>,
    /// It is compared with a snapshot before it is attached.
    pub(super) comparing: Option<Comparing>,
    /// The snapshot that its proof named when it was attached.
    pub(super) left_snap: Option<u64>,
}

/// What went wrong with a volume.
#[derive(Debug)]
pub(super) enum Fault {
    /// It could not be attached: nothing of it was served.
    Attach(CommandError),
    /// Its end was not a clean one.
    End(CommandError),
}

impl Fault {
    /// What is said of it.
    pub(super) fn error(self) -> CommandError {
        let (Self::Attach(error) | Self::End(error)) = self;
        error
    }
}

/// Why a volume joins the write log, or leaves it.
#[derive(Debug, Default)]
pub(super) enum Change {
    /// Nothing waits for it.
    #[default]
    None,
    /// It joins, and is attached to the engines then; the answer is for who adds it.
    Attach(Option<AnswerTo<()>>),
    /// It joins while it serves; its mode before that, and whether the operator had set it, should it
    /// fail.
    Join(AnswerTo<()>, (VolumeMode, bool)),
    /// It leaves while it serves.
    Leave,
    /// It leaves, and is removed then.
    Remove,
}

/// What all data threads need to know of a volume.
pub(super) struct VolumeIo {
    pub(super) name: String,
    pub(super) disk: Arc<Disk>,
    /// Which of the volume's attachments this is, for its proofs.
    pub(super) attachment: u64,
    /// The operator's word that nobody else writes it.
    exclusive: bool,
    /// Guests are answered when an operation takes longer; zero: no bound.
    pub(super) timeout: Duration,
    /// Models in front of the disk, outermost first: one slow device for all threads.
    models: Mutex<Vec<SimModel>>,
    pub(super) has_models: bool,
    /// Backend I/Os under way, those included that engines don't know of.
    pub(super) ios: Arc<IoCount>,
    /// Of those, under way for too long.
    pub(super) overdue_now: AtomicU32,
    /// How long reads of the backend have taken.
    pub(super) reads: ReadTimes,
    /// The reasons for which requests go by way of the router and no other.
    detours: AtomicU32,
    /// One of them: it is recorded.
    recorded: AtomicBool,
    /// The manager looks at it.
    watched: OnceLock<Arc<SampledVolume>>,
    /// Reads of what a clone does not have itself go to its parent volume, by way of the first thread.
    reads_parent: AtomicBool,
    /// Its part of what its back end can do.
    pub(super) qos: VolumeQos,
    /// Where blocks of the other host's cache come in, if it was taken from there.
    door: OnceLock<Arc<Door>>,
}

/// Reads of a backend for engines, since the volume was attached.
#[derive(Debug, Default)]
pub(super) struct ReadTimes {
    count: AtomicU64,
    total_ns: AtomicU64,
}

impl ReadTimes {
    /// One has ended.
    pub(super) fn note(&self, took_ns: u64) {
        self.count.fetch_add(1, Relaxed);
        self.total_ns.fetch_add(took_ns, Relaxed);
    }

    /// Takes those that have ended since the last time.
    pub(super) fn take(&self) -> Misses {
        // One that ends between the two counts with one of them only.
        Misses { reads: self.count.swap(0, Relaxed), total_ns: self.total_ns.swap(0, Relaxed) }
    }
}

/// Latencies by operation.
#[derive(Default)]
pub(super) struct Recorders {
    read: LatencyRecorder,
    write: LatencyRecorder,
    flush: LatencyRecorder,
}

/// Operations as the latencies tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of so many bytes.
    Read(u32),
    /// Of so many bytes of data; trims and zeroes, too, of none.
    Write(u32),
    Flush,
    /// Not a guest's wish for data: prefetches.
    Other,
}

impl Volume {
    /// How it is, and why it is not serving as it should. The oldest of its backend operations is
    /// under way for so long.
    pub(super) fn state(&self, oldest: Option<Duration>) -> (State, String) {
        if self.unconfirmed && self.moves.as_ref().is_none_or(|moves| moves.is_owner()) {
            let reason = "its lock was not seen for too long: guests wait until it is";
            return (State::Degraded, reason.into());
        }
        match self.life.phase() {
            Phase::Serving | Phase::Attaching | Phase::Leaving | Phase::Gone
                if let Some(found) = self.moves.as_ref().and_then(|moves| moves.state()) =>
            {
                found
            }
            _ if self.is_renewed() => {
                let reason = "a flush of the back end has failed; it is attached again";
                (State::Degraded, reason.into())
            }
            Phase::Attaching => (State::Starting, "being attached".into()),
            Phase::Serving if self.renewal.is_due() => {
                let reason = "a flush of the back end has failed; it is attached again in a moment, \
                              and what may be lost is written again from the write log";
                (State::Degraded, reason.into())
            }
            Phase::Serving => match self.trouble(oldest) {
                Some(reason) => (State::Degraded, reason),
                None => (State::Serving, String::new()),
            },
            Phase::Leaving | Phase::Gone => (State::Stopping, "being detached".into()),
        }
    }

    /// Takes note of how large the backend is now.
    pub(super) fn note_size(&mut self, size_bytes: u64) {
        if self.measured.replace(size_bytes) == Some(size_bytes) {
            return;
        }
        let (volume, served_bytes) = (&self.config.name, self.io.disk.size_bytes());
        if size_bytes < served_bytes {
            tracing::error!(
                volume,
                size_bytes,
                served_bytes,
                "the backend has shrunk: requests beyond its end fail"
            );
        } else if size_bytes > served_bytes {
            tracing::info!(
                volume,
                size_bytes,
                served_bytes,
                "the backend has grown (hint: `cinnabar volume resize` serves all of it)"
            );
        }
    }

    /// When a request that came then takes too long; `None`: never.
    pub(super) fn answer_by(&self, arrived: Instant) -> Option<Instant> {
        answer_by(self.io.timeout, arrived)
    }

    /// The same of a request of the write log's, which may have to wait for its turn.
    pub(super) fn answer_log_by(&self, arrived: Instant, writes: bool) -> Option<Instant> {
        let bound = self.io.qos.bound_of_log(self.io.timeout, writes);
        answer_by(if self.io.timeout.is_zero() { Duration::ZERO } else { bound }, arrived)
    }

    fn trouble(&self, oldest: Option<Duration>) -> Option<String> {
        if self.overdue_now() > 0 {
            let (count, bound_s) = (self.overdue_now(), self.config.backend_timeout.as_secs_f64());
            return Some(format!("{count} operations of the backend take over {bound_s} s"));
        }
        let waits = oldest.filter(|age| *age >= SLOW_AFTER).map(|age| {
            let count = self.io.ios.get();
            format!("{count} operations wait for the backend, the oldest for {} s", age.as_secs())
        });
        let size = self.io.disk.size_bytes();
        let shrunk = self.measured.filter(|now| *now < size).map(|now| {
            format!(
                "the backend has shrunk to {now} bytes, {size} are served: requests beyond its end \
                 fail"
            )
        });
        let all = self.io.disk.trouble().into_iter().chain(shrunk).chain(waits);
        Some(all.collect::<Vec<_>>().join("; ")).filter(|reasons| !reasons.is_empty())
    }

    /// Backend operations that are under way for too long.
    pub(super) fn overdue_now(&self) -> u32 {
        self.io.overdue_now.load(Relaxed)
    }
}

impl VolumeIo {
    pub(super) fn new(
        config: &VolumeConfig,
        disk: Disk,
        layers: Vec<SimSpec>,
        life: &VolumeLife,
        qos: VolumeQos,
    ) -> Self {
        let size = disk.size_bytes();
        let models: Vec<_> = layers.into_iter().map(|spec| SimModel::new(spec, size)).collect();
        Self {
            name: config.name.clone(),
            disk: Arc::new(disk),
            attachment: life.attachment(),
            exclusive: config.exclusive,
            timeout: config.backend_timeout,
            has_models: !models.is_empty(),
            models: Mutex::new(models),
            ios: Arc::clone(life.ios()),
            overdue_now: AtomicU32::new(0),
            reads: ReadTimes::default(),
            detours: AtomicU32::new(0),
            recorded: AtomicBool::new(false),
            watched: OnceLock::new(),
            reads_parent: AtomicBool::new(false),
            qos,
            door: OnceLock::new(),
        }
    }

    /// Takes over the models of an earlier attachment.
    pub(super) fn take_models(&self, earlier: &Self) {
        *self.locked_models() = std::mem::take(&mut *earlier.locked_models());
    }

    /// The same back end in another attachment, without the models yet. Nothing of the earlier one is
    /// under way.
    pub(super) fn renewed(earlier: &Self, life: &VolumeLife) -> Self {
        Self::renewed_on(earlier, Arc::clone(&earlier.disk), life)
    }

    /// The same, opened in another way.
    pub(super) fn renewed_on(earlier: &Self, disk: Arc<Disk>, life: &VolumeLife) -> Self {
        Self {
            name: earlier.name.clone(),
            disk,
            attachment: life.attachment(),
            exclusive: earlier.exclusive,
            timeout: earlier.timeout,
            has_models: earlier.has_models,
            models: Mutex::default(),
            ios: Arc::clone(life.ios()),
            overdue_now: AtomicU32::new(0),
            reads: ReadTimes::default(),
            detours: AtomicU32::new(earlier.detours.load(SeqCst)),
            recorded: AtomicBool::new(earlier.recorded.load(SeqCst)),
            watched: earlier.watched.clone(),
            reads_parent: AtomicBool::new(false),
            qos: earlier.qos.joins_again(life.attachment()),
            door: OnceLock::new(),
        }
    }

    /// Blocks of another host's cache come in from now on; false if they did before, in this attachment.
    pub(super) fn open_door(&self, door: &Arc<Door>) -> bool {
        self.door.set(Arc::clone(door)).is_ok()
    }

    /// Whether this is its door.
    pub(super) fn has_door(&self, door: &Arc<Door>) -> bool {
        self.door.get().is_some_and(|own| Arc::ptr_eq(own, door))
    }

    /// Its door, if it is open.
    #[inline]
    pub(super) fn door(&self) -> Option<&Arc<Door>> {
        self.door.get().filter(|door| door.is_open())
    }

    /// The engines' counters without what was read to fill the cache from another host's.
    pub(super) fn counted(&self, own: &VolumeCounters) -> VolumeCounters {
        self.door.get().map_or(*own, |door| door.without(own))
    }

    /// The manager looks at it from now on.
    pub(super) fn watch(&self, watched: Arc<SampledVolume>) {
        let is_new = self.watched.set(watched).is_ok();
        debug_assert!(is_new, "it is looked at once");
    }

    /// A request of a guest is admitted by the data thread of this number.
    #[inline]
    pub(super) fn note<P>(&self, thread: usize, now: Instant, op: &Op<P>) {
        if let Some(watched) = self.watched.get() {
            watched.note(thread, now, op);
        }
    }

    /// No more requests of it come.
    pub(super) fn leave_manager(&self) {
        if let Some(watched) = self.watched.get() {
            watched.leave();
        }
    }

    fn locked_models(&self) -> MutexGuard<'_, Vec<SimModel>> {
        // A panic leaves a model as it was between two operations.
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all requests go by way of the first thread's router for now: it has something for the
    /// volume that they must not overtake, or is to see them.
    pub(super) fn has_detour(&self) -> bool {
        self.detours.load(Acquire) > 0 || self.recorded.load(Acquire)
    }

    /// Whether the back end of a volume that stays here is this host's to serve: where others can break its lock, that
    /// was seen within the lease, unless the operator vouches that nobody does. Asked at each request.
    pub(super) fn is_confirmed(&self) -> bool {
        match self.disk.lock_state() {
            LockState::Held | LockState::Released => true,
            LockState::Unconfirmed => self.exclusive,
            LockState::Lost => false,
        }
    }

    /// There is a reason for that.
    pub(super) fn begin_detour(&self) {
        self.detours.fetch_add(1, SeqCst);
    }

    /// One of them has gone.
    pub(super) fn end_detour(&self) {
        let before = self.detours.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "a detour ends that has begun");
    }

    /// It reads from a parent volume from now on, or not.
    pub(super) fn set_reads_parent(&self, reads: bool) {
        self.reads_parent.store(reads, SeqCst);
    }

    /// A request is about to be run past the first thread. True: it must not, for it is a read that a parent
    /// volume answers. What changes something is the clone's own from now on.
    pub(super) fn reads_parent(&self, span: ByteSpan, writes: bool) -> bool {
        let Some(lineage) = self.disk.lineage() else { return false };
        if writes {
            lineage.map.begin_change(span);
        }
        !writes && self.reads_parent.load(Acquire) && lineage.map.is_parents(span)
    }

    /// It is recorded from now on, or not.
    pub(super) fn set_recorded(&self, recorded: bool) {
        self.recorded.store(recorded, SeqCst);
    }

    /// What the models say of a backend operation that starts now.
    pub(super) fn judge(
        &self,
        now: Instant,
        kind: OpKind,
        offset: u64,
        len: u64,
    ) -> Option<Verdict> {
        if !self.has_models {
            return None;
        }
        let mut models = self.locked_models();
        judge(&mut models, now.0, kind, offset, len)
    }
}

/// When a request that came then takes too long, with this bound; `None`: never.
pub(super) fn answer_by(bound: Duration, arrived: Instant) -> Option<Instant> {
    (!bound.is_zero()).then(|| after(arrived, bound))
}

/// Only a file knows its holes, and a model of something else would not tell them.
pub(super) fn tells_extents(io: &VolumeIo) -> bool {
    !io.has_models && io.disk.kind() == DiskKind::File
}

/// How latencies tell an operation apart.
pub(super) const fn kind_of(op: &Op<Memory>) -> Kind {
    match op {
        Op::Read { span, .. } => Kind::Read(span.len as u32),
        Op::Write { span, .. } => Kind::Write(span.len as u32),
        Op::Trim { .. } | Op::WriteZeroes { .. } => Kind::Write(0),
        Op::Flush => Kind::Flush,
        Op::Invalidate { .. } => Kind::Other,
    }
}

/// The NBD server's name for a volume: its place in the table.
pub(super) fn export_of(key: usize) -> ExportId {
    ExportId(u32::try_from(key).expect("there are at most 4096 volumes"))
}

impl Recorders {
    pub(super) fn record(&mut self, kind: Kind, ns: u64) {
        match kind {
            Kind::Read(bytes) => self.read.record(ns, bytes.into()),
            Kind::Write(bytes) => self.write.record(ns, bytes.into()),
            Kind::Flush => self.flush.record_ns(ns),
            Kind::Other => {}
        }
    }

    pub(super) fn summary(&self) -> Latencies {
        Latencies {
            read: self.read.summary(),
            write: self.write.summary(),
            flush: self.flush.summary(),
        }
    }
}
