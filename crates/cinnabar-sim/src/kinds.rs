//! Kinds of faults and of recovery paths, and how often each was met.
//!
//! What never fired was not tested.

use cinnabar_engine::Bound;
use std::fmt;

/// More kinds than there are of anything.
const KINDS_MAX: usize = 64;

/// Something that is counted by kind.
pub trait Counted: Copy + fmt::Debug + 'static {
    /// Every kind, in order.
    const ALL: &'static [Self];
    /// Its place in [`Counted::ALL`].
    fn index(self) -> usize;
    /// Its name in reports: lower case, words joined by underscores.
    fn name(self) -> &'static str;
}

/// How often each kind was met.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tally<K> {
    counts: [u64; KINDS_MAX],
    kind: std::marker::PhantomData<K>,
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self { counts: [0; KINDS_MAX], kind: std::marker::PhantomData }
    }
}

impl<K: Counted> Tally<K> {
    /// Counts one.
    pub fn add(&mut self, kind: K) {
        self.add_many(kind, 1);
    }

    /// Counts several.
    pub fn add_many(&mut self, kind: K, count: u64) {
        self.counts[kind.index()] += count;
    }

    /// How often a kind was met.
    pub fn of(&self, kind: K) -> u64 {
        self.counts[kind.index()]
    }

    /// Every kind with its count, in order.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> + '_ {
        K::ALL.iter().map(|&kind| (kind, self.of(kind)))
    }

    /// Kinds that were never met.
    pub fn missing(&self) -> impl Iterator<Item = K> + '_ {
        self.iter().filter(|(_, count)| *count == 0).map(|(kind, _)| kind)
    }

    /// Adds up two tallies.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self
    }
}

impl<K: Counted> fmt::Debug for Tally<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(kind, count)| (kind.name(), count))).finish()
    }
}

macro_rules! counted {
    ($(#[$about:meta])* $kind:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($(#[$doc])* $variant,)* }

        impl Counted for $kind {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];
            fn index(self) -> usize {
                self as usize
            }
            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        const _: () = assert!($kind::ALL.len() <= KINDS_MAX);
    };
}

impl Counted for Bound {
    const ALL: &'static [Self] = Bound::ALL;
    fn index(self) -> usize {
        self as usize
    }
    fn name(self) -> &'static str {
        Bound::name(self)
    }
}

const _: () = assert!(Bound::ALL.len() <= KINDS_MAX);

counted! {
    /// Something that goes wrong, or that is done to the cache.
    Fault {
        /// The daemon is killed; the kernel completes some of what it had issued.
        Kill = "kill",
        /// The host loses power: what the cache device had not made durable is lost in part.
        PowerCut = "power_cut",
        /// A backend's host loses power: writes that no flush covers are undone in part.
        BackendPowerCut = "backend_power_cut",
        /// A crash while the device is being opened.
        CrashInStart = "crash_in_start",
        /// A crash while the index is being loaded.
        CrashInLoading = "crash_in_loading",
        /// A crash during a clean stop.
        CrashInStop = "crash_in_stop",
        /// A block of the cache device went back to what it was before an un-flushed write.
        LostBlock = "lost_block",
        /// A metadata page is new in some sectors and old in others.
        TornPage = "torn_page",
        /// So is a block of cached data.
        TornData = "torn_data",
        /// A sector of a backend went back to what it was before an un-flushed write.
        RevertedSector = "reverted_sector",
        /// A dead daemon's write to a backend landed after its death.
        LateBackendWrite = "late_backend_write",
        /// A dead daemon's write to the cache device landed after its death.
        LateCacheWrite = "late_cache_write",
        /// Cached data rotted.
        DataRot = "data_rot",
        /// Metadata rotted.
        MetadataRot = "metadata_rot",
        /// A superblock that could not be read any more: the device was formatted again.
        LostSuperblock = "lost_superblock",
        /// The cache device returned another place's data.
        MisdirectedRead = "misdirected_read",
        /// The cache device put data in another place of the log.
        MisdirectedWrite = "misdirected_write",
        /// One page of a larger I/O of the cache device went astray, the others did not.
        MisdirectedPage = "misdirected_page",
        /// A page of a checkpoint was written to another place.
        MisdirectedCheckpoint = "misdirected_checkpoint",
        /// A page of the journal was written to another place of the ring.
        MisdirectedJournal = "misdirected_journal",
        /// A copy of the superblock was written to another place.
        MisdirectedSuperblock = "misdirected_superblock",
        /// An I/O of the cache device failed.
        CacheError = "cache_error",
        /// An I/O of a backend failed.
        BackendError = "backend_error",
        /// An I/O took much longer than others.
        Spike = "spike",
        /// The cache device answered nothing for a while.
        CacheStall = "cache_stall",
        /// A backend answered nothing for a while.
        BackendStall = "backend_stall",
        /// A backend I/O took longer than the driver's bound.
        Overdue = "overdue",
        /// A request took longer than its volume's bound.
        Late = "late",
        /// A cache device's I/O took longer than its bound: the device was given up.
        DeviceOverdue = "device_overdue",
        /// A backend with a time-out fell silent, for a while or for good.
        BackendSilent = "backend_silent",
        /// A cache device with a time-out fell silent for good.
        DeviceSilent = "device_silent",
        /// I/O that was given up, or that a silent backend had, ended after all.
        EndedAfterAll = "ended_after_all",
        /// A backend became larger.
        BackendGrown = "backend_grown",
        /// An attached volume became larger.
        Grown = "grown",
        /// The driver's clock stepped back, or forth.
        TimeJump = "time_jump",
        /// The cache device died: every I/O fails from then on.
        DeviceDeath = "device_death",
        /// It died silently: every I/O hangs, and fails in the end.
        DeviceHang = "device_hang",
        /// A session without the cache device, which came back later.
        DeviceAway = "device_away",
        /// A session with another cache device.
        DeviceSwapped = "device_swapped",
        /// A device that had been away, while others were used, came back.
        DeviceBack = "device_back",
        /// A new cache device did not answer, and was given up before it was in use.
        NewDeviceSilent = "new_device_silent",
        /// The device was given up and replaced in the middle of a session.
        DeviceReplaced = "device_replaced",
        /// Another writer wrote a volume that was left clean.
        ForeignAfterStop = "foreign_after_stop",
        /// Another writer wrote a volume after a crash, later than the window.
        ForeignOutside = "foreign_outside_window",
        /// Another writer wrote a volume after a crash, so soon that it can't be distinguished from
        /// the cache's own writes: the stated limit.
        ForeignInside = "foreign_inside_window",
        /// Another writer wrote an attached volume, and the operator invalidated the range.
        Invalidated = "invalidated",
        /// A volume was deleted and created again under its old name.
        Recreated = "recreated",
        /// The operator had a volume's blocks forgotten.
        Forgotten = "forgotten",
        /// A backend that could prove that it was not written could not do so for once.
        ProofLost = "proof_lost",
        /// The clock of a backend's host was set back.
        ClockStep = "clock_step",
        /// A backend's server restarted under the daemon, and lost what no flush covered.
        ServerRestart = "server_restart",
        /// The same, while several shards had the volume.
        ServerRestartShards = "server_restart_shards",
        /// A flush of a backend failed, once, to one of those who asked, and writes were lost.
        LostSync = "lost_sync",
        /// Another writer wrote a volume that was forgotten, unreported.
        ForeignAfterForget = "foreign_after_forget",
        /// A new plan.
        PlanChange = "plan_change",
        /// A plan that lets nothing in.
        Throttled = "throttled",
        /// There was no room for a cache that was to grow.
        NoRoom = "no_room",
        /// The daemon died, stopped or lost its device while the cache was getting another size.
        ResizeCutShort = "resize_cut_short",
        /// A volume went away and came back while others worked on.
        Detached = "detached",
    }
}

counted! {
    /// A way that a start, or a volume's attachment, took.
    Path {
        /// The device was new.
        StartNew = "start_new",
        /// The last session had stopped clean.
        StartClean = "start_clean",
        /// It had crashed.
        StartCrashed = "start_crashed",
        /// The metadata were damaged: everything was dropped.
        StartDamaged = "start_damaged",
        /// Blocks found in chunks newer than the checkpoint.
        Replayed = "replayed_blocks",
        /// Copies not believed because no backend flush covers them.
        Unflushed = "unflushed_blocks",
        /// Copies dropped because an invalidation record names them.
        Overwritten = "overwritten_blocks",
        /// Damaged pages of metadata.
        DamagedPages = "damaged_pages",
        /// Requests submitted while the index was being loaded.
        RequestsWhileLoading = "requests_while_loading",
        /// Volumes attached while the index was being loaded.
        AttachedWhileLoading = "attached_while_loading",
        /// Volumes believed after a crash.
        BelievedAfterCrash = "believed_after_crash",
        /// Volumes believed after a clean detach.
        BelievedAfterStop = "believed_after_stop",
        /// Volumes dropped because of their proof.
        DroppedChanged = "dropped_backend_changed",
        /// Volumes dropped for lack of proof.
        DroppedNoProof = "dropped_no_proof",
        /// Volumes dropped because of their generation.
        DroppedGeneration = "dropped_written_without_cache",
        /// Sessions in which the device was given up because it failed.
        PassThroughFailed = "pass_through_failed",
        /// Sessions without a device.
        PassThroughNoDevice = "pass_through_no_device",
        /// Times the operator gave the device up.
        PassThroughAbandoned = "pass_through_abandoned",
        /// Generations changed.
        GenerationBumped = "generation_bumped",
        /// Writes that waited for an invalidation record.
        InvalidationWaits = "invalidation_waits",
        /// Writes to cached blocks that waited for none, in active regions.
        RegionWrites = "region_writes",
        /// Copies dropped because they were in active regions.
        Doubtful = "doubtful_blocks",
        /// Checkpoints completed.
        Checkpoints = "checkpoints",
        /// Times the journal was rewritten.
        Rebases = "journal_rebases",
        /// Requests that more than one shard had a part in.
        SplitRequests = "split_requests",
        /// Flushes that more than one shard answered for.
        CrossShardFlushes = "cross_shard_flushes",
        /// Starts on another number of threads than the session before had.
        OtherThreads = "restart_other_threads",
        /// Times that the cache became larger.
        CacheGrown = "cache_grown",
        /// Times that it became smaller.
        CacheShrunk = "cache_shrunk",
        /// Times that it was to get yet another size before it had one.
        ResizeOvertaken = "resize_overtaken",
        /// Times that it was to become too small for the shares of its volumes.
        ResizeRefused = "resize_refused",
        /// Requests that a crash left unanswered, and that were asked for again.
        ReplayedRequests = "replayed_requests",
    }
}
