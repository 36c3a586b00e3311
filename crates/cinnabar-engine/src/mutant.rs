//! Deliberate bugs, so that the proof can fail: the fault simulation must find each of them.
//!
//! Without the feature `mutants`, which only tests switch on (this crate's own have it always),
//! [`is`](Mutants::is) is a constant and the broken code is not compiled in.

macro_rules! mutants {
    ($($(#[$doc:meta])* $mutant:ident,)*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant { $($(#[$doc])* $mutant,)* }

        impl Mutant {
            /// Every one, in order.
            pub const ALL: &'static [Self] = &[$(Self::$mutant,)*];
        }
    };
}

mutants! {
    /// Writes to blocks with a copy on flash append no invalidation record.
    NoRecord,
    /// A write in a region does not wait for the record of its opening.
    RegionNotAwaited,
    /// The end of a region does not say which copies are invalid.
    RegionEndsWithoutRecords,
    /// It does not mean the copies in the newest chunk.
    RegionEndTooOld,
    /// A chunk with a newer copy is written, and the older ones get no record.
    OldCopiesNotSuperseded,
    /// The record for older copies means the newer one, too.
    NewCopySuperseded,
    /// A checkpoint does not name the active regions.
    RegionsNotInCheckpoint,
    /// A journal that is rewritten loses the openings of regions.
    RegionsLeftOutOfRebase,
    /// The end of an opening counts for the next one of the same region.
    AnyEndCounts,
    /// Openings of before the checkpoint count.
    OldOpeningsCount,
    /// A volume that leaves does not end its regions.
    RegionsOutliveVolume,
    /// What is in doubt is counted, and not bounded.
    DoubtNotBounded,
    /// The invalidation record is written, but the backend's write does not wait for it.
    RecordAfterWrite,
    /// An invalidation record does not cover the newest chunk.
    RecordTooOld,
    /// Invalidation records are dropped when the new copy is on flash, whatever the backend has flushed, and a
    /// written copy is believed without a backend flush.
    RecordRetiredBeforeFlush,
    /// What recovery read from the journal is not kept for the next crash.
    RecordsLostInSecondCrash,
    /// The checkpoint's head is written without waiting for the segments it speaks of.
    CheckpointBeforeSegments,
    /// A checkpoint describes blocks whose chunk is not on flash yet.
    CheckpointOfUnwrittenChunks,
    /// A volume written without the cache keeps its generation.
    GenerationNotRaised,
    /// The backend's proof is not asked for: every volume is believed.
    ProofIgnored,
    /// Blocks of a volume that is attached are given to another host.
    KeptWhileAttached,
    /// A block that ends behind its volume is given to another host as it is cached.
    KeptBehindEnd,
    /// Checksums of data are not verified.
    ChecksumNotVerified,
    /// A chunk header is trusted without its checksum.
    TornChunkTrusted,
    /// Of the chunks of a segment that was opened since the checkpoint, only the first is found again.
    ReplayCutShort,
    /// A start builds upon what it reads without a flush of the device.
    OpenedUnsettled,
    /// After a clean stop it is not looked whether a later session has written the journal.
    CleanJournalUnread,
    /// A header of a newer chunk that comes while descriptors are still being read is not looked at.
    EarlyHeaderForgotten,
    /// What is still on its way into the address map when the last page of a checkpoint has been read
    /// is left out of it.
    FillingCutShort,
    /// An entry that finds its bucket full while the address map is being filled is not moved on.
    FillingMovesNothing,
    /// Descriptors of a segment that was emptied since the checkpoint stay in the table.
    EmptiedNotWiped,
    /// An index half loaded is kept when its device is lost.
    LostLoadKept,
    /// A journal page is trusted although later ones show that one is missing.
    JournalGapIgnored,
    /// Segments are emptied and reused without a durable record of it.
    SegmentReusedSilently,
    /// The same of those that a log becomes smaller by, only.
    ShrunkSilently,
    /// A log that grows is filled before there is room on the device.
    FilledBeforeRoom,
    /// It is filled although no superblock says yet that it is so large.
    FilledBeforeRecorded,
    /// A log that shrinks gives its room back before the superblock says durably that it is so small.
    RoomGivenBeforeRecorded,
    /// It gives room back while a read of it is under way.
    RoomGivenUnderRead,
    /// A superblock speaks of room that was made or given back before a flush covers that.
    RoomNotSettled,
    /// A block that the address map pushed out, or that failed its checksum, gets no invalidation record.
    ForgottenNotRecorded,
    /// While nothing is admitted, invalidations are not recorded either: they write to the device, too.
    ThrottleStopsRecords,
    /// While nothing is admitted, a write leaves what was known of an incomplete block as it was.
    ThrottleKeepsPartials,
    /// A fill is kept although its block was written meanwhile (range locks ignored).
    FillNotRevalidated,
    /// Chunks of an earlier session are taken for this one's.
    SessionIgnored,
    /// Writes that pass through while the index is loading append no invalidation record.
    NoRecordWhileLoading,
    /// Trims append no invalidation record.
    TrimNotRecorded,
    /// What a trim has taken out of the cache when its time is over is recorded as invalid nowhere.
    LateTrimNotRecorded,
    /// A failed backend write leaves its data in the cache.
    FailedWriteCached,
    /// A backend's flush that failed is forgotten when the next one succeeds.
    FailedSyncForgotten,
    /// Zeroes that ask to be durable are answered without a flush of the backend.
    DurableZeroesNotFlushed,
    /// A flush covers what the backend of a volume that is to be discarded may have lost before.
    DiscardedCovered,
    /// A flush covers what an invalidation is about that waits for its blocks.
    InvalidatedCovered,
    /// An invalidation is refused while guests have all places for requests.
    InvalidationRefused,
    /// A volume that is being detached keeps what it refuses to invalidate.
    LastInvalidationForgotten,
    /// The shards get no notice of an invalidation before they get their parts of it.
    InvalidationInParts,
    /// A dropped volume's end is not recorded.
    DropNotRecorded,
    /// A flush is passed to the first shard only.
    FlushOfOneShard,
    /// A write across shards is answered when its first part is done.
    SplitAnsweredEarly,
    /// A run of writes that goes on while its blocks are being taken out of the index is extended,
    /// also to where that has looked already.
    PassedRunGrows,
    /// A session has so many incarnations and no more.
    IncarnationsRunOut,
    /// The last write of a rebase that a checkpoint ended counts for the rebase under way: the
    /// journal's tail passes records that nothing covers.
    RebaseMistaken,
    /// The end of a volume is answered before the device durably knows of it.
    SealBeforeDurable,
    /// Whatever is at the place of the journal's last page is taken for a torn write.
    JournalEndTrusted,
    /// A new format leaves the heads of an older one's checkpoints as they are.
    HeadsKept,
    /// All parts of a long trim are under way at once.
    PartsUnbounded,
    /// Requests go past parts of earlier ones that no shard has seen yet.
    PartsOvertaken,
    /// I/O of the cache device that never ends is waited for.
    SilentDeviceAwaited,
    /// Blocks of a volume whose device was lost while its end was being recorded keep its index.
    LostVolumeKeepsIndex,
    /// What waits behind another request's blocks is not answered when its time is over.
    LateWaiterKept,
    /// The rest of a block that is written in part is taken from a copy on flash without a look at
    /// its checksum.
    EdgeNotVerified,
    /// Of an incomplete block all sectors are served.
    PartialServedWhole,
    /// An incomplete block is taken for a whole one when the backend has its sectors.
    PartialTakenForWhole,
    /// A write leaves what was known of an incomplete block as it was.
    PartialNotTakenOut,
    /// Of a write that failed, the sectors of incomplete blocks are kept.
    FailedPartialKept,
    /// Trims, zeroes and invalidations don't drop incomplete blocks.
    PartialOutlivesTrim,
    /// Incomplete blocks stay when their volume goes.
    PartialOutlivesVolume,
    /// Blocks of volumes that are gone count as cached until they are met.
    DeadBlocksCounted,
    /// Driver: I/O on the cache device goes where the first shard's region is.
    RegionNotAdded,
    /// Driver: a volume's name stays bound when it has ended, and the next one of that name is taken
    /// for it.
    BindingKept,
    /// Driver: I/O of a volume that another shard refused waits for its attach.
    RefusedVolumeAwaited,
    /// Driver: a change proof says nothing of who the volume is.
    IdentityIgnored,
    /// Driver: what was changed within the window after a clean detach is taken for our own doing.
    WindowAfterSeal,
    /// Driver: whatever was changed after a crash is taken for our own doing.
    WindowUnbounded,
    /// Driver: the engine is not woken when it wants to be.
    WakeForgotten,
    /// Driver: what is left for a shard in the moment before it is let go of stays in its inbox.
    InboxNotLookedAtAgain,
    /// Driver: a question that is left for a shard in the moment before it is let go of is not answered.
    QuestionNotLookedAtAgain,
    /// Driver: what is left over of a turn stays in the shard, where only who has it knows of it.
    RestKeptInShard,
    /// Driver: what is heard last of a shard's health counts, be it older than what is known.
    OldHealthHeard,
    /// Driver: the home of a shard is not told of a wake-up that a run elsewhere has set.
    WakeNotPassedOn,
    /// Driver: work that may block is done by the data thread where no thread can be had.
    SlowWorkOnDataThread,
    /// Driver: a volume whose last flush failed is proved and sealed all the same.
    LastFlushIgnored,
    /// Driver: a volume's backend is let go of while I/O of it is under way.
    BusyVolumeLetGo,
    /// Driver: a proof speaks for those who asked while it was under way, too.
    ProofJoined,
    /// Driver: the host records that the volumes are a new device's before the old one is given up.
    EntrustedEarly,
    /// Driver: the host never records that the volumes are the new device's.
    NotEntrusted,
    /// Driver: an I/O that was given up while it waited in the queue keeps its turn.
    GivenUpKeepsTurn,
    /// Driver: the end of an I/O is not reported in the queue, so its place stays taken.
    PlaceKept,
    /// Two hosts: a volume is let go of before what is under way has ended and is flushed.
    ReleasedUndrained,
    /// Two hosts: the owner says that it does not own the volume, and drains it afterwards.
    FreeBeforeDrained,
    /// Two hosts: a host that takes a volume says to the other one that it does not own it.
    TakingSaysFree,
    /// Two hosts: an answer counts for whatever attempt is under way.
    LateAnswerCounts,
    /// Two hosts: guests are served before it is durable that this host owns the volume.
    RecordedAfterServing,
    /// Two hosts: a host that takes a volume keeps the epoch of the last owner.
    EpochKept,
    /// Two hosts: who takes a volume by the operator's word compares what the other host says afterwards.
    ForcedTrusted,
    /// Two hosts: what only the operator's word would make believed is dropped behind the record that this host
    /// owns the volume.
    DisownedLate,
    /// Two hosts: a volume whose last flush failed is handed over all the same.
    DrainErrorForgotten,
    /// Two hosts: the operator's word counts for the time in which the other host owned the volume.
    OtherOwnerTrusted,
    /// Two hosts: what the other owner has written within the window after a crash is taken for our own doing.
    OtherOwnerInWindow,
    /// Two hosts: a standby's reads are served from what is cached.
    StandbyServesCache,
    /// Two hosts: who breaks a lock does not wait until the cluster knows that the old owner is fenced off.
    FenceNotAwaited,
    /// Two hosts: the old owner is fenced off for an hour, not for a week.
    FenceEndsEarly,
    /// Two hosts: who breaks a lock waits for no longer than its owner's lease, though clocks run slow and fast.
    TakenWithoutMargin,
    /// Two hosts: an owner notes by the other host's clock, if that is ahead, when it has seen its lock.
    LeaseByOtherClock,
    /// Two hosts: requests that waited for the volume are let in newest first.
    HeldOvertaken,
}

/// The mutants switched on: none, in production.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mutants {
    #[cfg(any(test, feature = "mutants"))]
    on: Option<Mutant>,
}

impl Mutants {
    /// One mutant.
    #[cfg(any(test, feature = "mutants"))]
    pub const fn only(mutant: Mutant) -> Self {
        Self { on: Some(mutant) }
    }

    /// Whether `mutant` is switched on.
    #[cfg(any(test, feature = "mutants"))]
    #[inline]
    pub fn is(self, mutant: Mutant) -> bool {
        self.on == Some(mutant)
    }

    /// Whether `mutant` is switched on: never.
    #[cfg(not(any(test, feature = "mutants")))]
    #[inline]
    pub const fn is(self, _: Mutant) -> bool {
        false
    }
}
