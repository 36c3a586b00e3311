//! What is known of each mutant: the seed that finds it, or why none does.

use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_sim::{FaultOptions, Features};

/// As it was before there were shards, frontends that ask again, and plans that let nothing in.
pub(crate) const SINGLE: Features =
    Features { shards: false, replays: false, throttles: false, resizes: false, ..Features::ALL };

/// Seeds that a search may take.
pub(crate) const SEEDS_MAX: u64 = 2000;

/// Each mutant, and a seed that finds it.
pub(crate) const FOUND_AT: &[(Mutant, u64)] = &[
    (Mutant::NoRecord, 9),
    (Mutant::RecordAfterWrite, 81),
    (Mutant::RecordTooOld, 102),
    (Mutant::RecordRetiredBeforeFlush, 94),
    (Mutant::GenerationNotRaised, 337),
    (Mutant::ProofIgnored, 9),
    (Mutant::KeptWhileAttached, 3),
    (Mutant::KeptBehindEnd, 150),
    (Mutant::ChecksumNotVerified, 15),
    (Mutant::ForgottenNotRecorded, 254),
    (Mutant::FillNotRevalidated, 5),
    (Mutant::TrimNotRecorded, 44),
    (Mutant::FailedWriteCached, 9),
    (Mutant::FailedSyncForgotten, 13),
    (Mutant::SplitAnsweredEarly, 3),
    (Mutant::PassedRunGrows, 282),
    (Mutant::ReplayCutShort, 4),
    (Mutant::HeadsKept, 183),
    (Mutant::EarlyHeaderForgotten, 102),
    (Mutant::FillingCutShort, 4),
    (Mutant::FillingMovesNothing, 38),
    (Mutant::EmptiedNotWiped, 4),
    (Mutant::DurableZeroesNotFlushed, 254),
    (Mutant::LateWaiterKept, 3),
    (Mutant::SilentDeviceAwaited, 9),
    (Mutant::LostVolumeKeepsIndex, 780),
    (Mutant::EdgeNotVerified, 38),
    (Mutant::PartialServedWhole, 13),
    (Mutant::PartialTakenForWhole, 4),
    (Mutant::PartialNotTakenOut, 20),
    (Mutant::FailedPartialKept, 80),
    (Mutant::PartialOutlivesTrim, 346),
    (Mutant::DeadBlocksCounted, 3),
    (Mutant::RegionNotAdded, 0),
    (Mutant::WindowAfterSeal, 49),
    (Mutant::WindowUnbounded, 58),
    (Mutant::WakeForgotten, 3),
    (Mutant::InboxNotLookedAtAgain, 0),
    (Mutant::WakeNotPassedOn, 8),
    (Mutant::LastFlushIgnored, 9),
    (Mutant::EntrustedEarly, 109),
    (Mutant::NotEntrusted, 7),
    (Mutant::ThrottleStopsRecords, 24),
    (Mutant::ThrottleKeepsPartials, 20),
];

/// The same, but found where the cache is resized: for the others a run stays what it was.
pub(crate) const FOUND_RESIZING: &[(Mutant, u64)] = &[
    (Mutant::ShrunkSilently, 750),
    (Mutant::FilledBeforeRoom, 379),
    (Mutant::FilledBeforeRecorded, 22),
    (Mutant::RoomGivenBeforeRecorded, 6),
    (Mutant::RoomGivenUnderRead, 857),
    (Mutant::RoomNotSettled, 692),
];

/// The same, but found among seeds without shards and replays.
pub(crate) const FOUND_SINGLE: &[(Mutant, u64)] = &[
    (Mutant::RecordsLostInSecondCrash, 104),
    (Mutant::CheckpointBeforeSegments, 72),
    (Mutant::JournalGapIgnored, 219),
    (Mutant::SegmentReusedSilently, 229),
    (Mutant::NoRecordWhileLoading, 29),
    (Mutant::RebaseMistaken, 164),
];

/// The same, but found where backend I/O waits for its turn.
pub(crate) const FOUND_AT_DOORS: &[(Mutant, u64)] =
    &[(Mutant::GivenUpKeepsTurn, 0), (Mutant::PlaceKept, 0)];

/// The same, but found where writes may be in active regions.
pub(crate) const FOUND_IN_REGIONS: &[(Mutant, u64)] = &[
    (Mutant::RegionNotAwaited, 74),
    (Mutant::RegionEndsWithoutRecords, 89),
    (Mutant::RegionsNotInCheckpoint, 686),
    (Mutant::RegionsLeftOutOfRebase, 134),
    (Mutant::AnyEndCounts, 486),
    (Mutant::RegionsOutliveVolume, 3),
    (Mutant::DoubtNotBounded, 3),
    (Mutant::RegionEndTooOld, 247),
];

/// The same, but found where a volume moves between two hosts.
pub(crate) const FOUND_AT_HOSTS: &[(Mutant, u64)] = &[
    (Mutant::DisownedLate, 184),
    (Mutant::OtherOwnerInWindow, 341),
    (Mutant::ReleasedUndrained, 0),
    (Mutant::FreeBeforeDrained, 2),
    (Mutant::TakingSaysFree, 65),
    (Mutant::LateAnswerCounts, 349),
    (Mutant::RecordedAfterServing, 1),
    (Mutant::EpochKept, 66),
    (Mutant::DrainErrorForgotten, 9),
    (Mutant::OtherOwnerTrusted, 24),
    (Mutant::StandbyServesCache, 5),
    (Mutant::FenceNotAwaited, 126),
    (Mutant::FenceEndsEarly, 6),
    (Mutant::TakenWithoutMargin, 447),
    (Mutant::LeaseByOtherClock, 377),
    (Mutant::HeldOvertaken, 9),
];

/// Mutants that scripted tests find, with the test and why no seed does.
pub(crate) const SCRIPTED: &[(Mutant, &str, &str)] = &[
    (
        Mutant::OldCopiesNotSuperseded,
        "engine `region_tests`",
        "an old copy comes back only if the newer one's segment is emptied before the next checkpoint",
    ),
    (
        Mutant::NewCopySuperseded,
        "engine `region_tests`",
        "it costs a few warm blocks, fewer than the judge lets a crash cost",
    ),
    (
        Mutant::OldOpeningsCount,
        "engine `doubt`",
        "it costs a few warm blocks, fewer than the judge lets a crash cost",
    ),
    (
        Mutant::ForcedTrusted,
        "driver `ownership`",
        "what two hosts wrote that served a volume at a time is not judged afterwards: either may have cached \
         what the other one has replaced",
    ),
    (
        Mutant::TornChunkTrusted,
        "sim `torn`",
        "torn pages fail by their data's checksums, too, but where an old copy lies behind",
    ),
    (
        Mutant::IncarnationsRunOut,
        "engine `identity`",
        "an attach fails, and a run may not go on without it",
    ),
    (
        Mutant::OpenedUnsettled,
        "engine `reading`",
        "what a session leaves that is not durable are chunks and pages of a checkpoint without a head; without \
         them a block fails its checksum, and a record under way is one that nobody was told of",
    ),
    (
        Mutant::CleanJournalUnread,
        "engine `reading`",
        "both copies of a superblock must be lost, and no simulated device loses more than one",
    ),
    (
        Mutant::QuestionNotLookedAtAgain,
        "driver `pool`",
        "nobody asks while a shard is run, and who would wait for ever",
    ),
    (
        Mutant::RestKeptInShard,
        "driver `pool`",
        "a shard must have more than 16 batches, and another thread ask it before it is run again",
    ),
    (
        Mutant::OldHealthHeard,
        "driver `pool::tests::meeting`",
        "simulated threads are heard in any order, but a loss that goes unnoticed only keeps the other shards on the \
         device, and no run has given a wrong answer for it",
    ),
    (
        Mutant::SlowWorkOnDataThread,
        "daemon `background`",
        "no simulated thread is refused, nor waited for",
    ),
    (Mutant::PartsUnbounded, "shards `fairness`", "no run has so many requests"),
    (
        Mutant::PartsOvertaken,
        "shards `fairness`",
        "what overtakes is under way with what it overtakes, so a guest may see either order; only \
         the driver's own invalidations rely on it",
    ),
    (
        Mutant::LateTrimNotRecorded,
        "engine `answers`",
        "few runs have a long trim that is late between two steps, then a write, then a crash",
    ),
    (
        Mutant::SealBeforeDurable,
        "engine `endings`",
        "none of 2,000 seeds: the daemon must die between a seal's answer and the checkpoint that it \
         speaks of, and the volume change elsewhere",
    ),
    (
        Mutant::DiscardedCovered,
        "engine `endings`",
        "no simulated back end is a server that restarts",
    ),
    (
        Mutant::DropNotRecorded,
        "engine `endings`",
        "rare: a dropped volume's checkpoint must still count after a crash; seeds 277 and 1805 of earlier \
         draws found it",
    ),
    (
        Mutant::InvalidatedCovered,
        "engine `endings`",
        "a server must restart beside a write, a flush of it end, and the daemon die, within \
         milliseconds",
    ),
    (
        Mutant::InvalidationRefused,
        "engine `endings`",
        "the same, with as many requests under way as an engine takes",
    ),
    (
        Mutant::LastInvalidationForgotten,
        "engine `endings`",
        "the same, beside a detach; the simulated driver asks for nothing then",
    ),
    (
        Mutant::InvalidationInParts,
        "shards `fairness`",
        "the same, with parts of a long request beside it still to be sent",
    ),
    (
        Mutant::LostLoadKept,
        "engine `load`",
        "a lost device answers nothing from its index; its volumes' indices must run out meanwhile",
    ),
    (
        Mutant::JournalEndTrusted,
        "engine `journal::scan`",
        "a write of the journal seldom goes astray, and must be the last one before a crash",
    ),
    (
        Mutant::PartialOutlivesVolume,
        "sim `partial`",
        "another host must write the very sectors while the volume is away, and another volume not take its \
         index",
    ),
    (
        Mutant::BindingKept,
        "driver `shard`",
        "a heartbeat must come before the attach is answered, of a volume with the name of one that went",
    ),
    (
        Mutant::RefusedVolumeAwaited,
        "driver `shard`",
        "one shard must refuse an attach, and another have I/O of the volume by then",
    ),
    (
        Mutant::IdentityIgnored,
        "driver `change_proof`",
        "what is made in a volume's place is written, so that its change time tells, too",
    ),
    (
        Mutant::BusyVolumeLetGo,
        "driver `volume_life`",
        "the engine lets go of a volume behind its own I/O; only questions of clients to the backend \
         outlast that, and no simulated one asks",
    ),
    (
        Mutant::ProofJoined,
        "driver `pending_proofs`",
        "none of 2,000 seeds: a write must end and its shard ask within another shard's flush, and the \
         backend's host die before the next heartbeat",
    ),
];

/// Mutants that can't be noticed, with the reason.
pub(crate) const EQUIVALENT: &[(Mutant, &str)] = &[
    (
        Mutant::CheckpointOfUnwrittenChunks,
        "a descriptor of a block that is not on flash has the checksum of data that are not there: \
         what is read in its place fails it. Write-back, where the copy is the only one, must not \
         rely on that.",
    ),
    (
        Mutant::SessionIgnored,
        "sequence numbers of each session begin behind all that an earlier one can have used, so that an \
         older session's chunk is not newer than what it would have to follow.",
    ),
    (
        Mutant::FlushOfOneShard,
        "all shards write to one backend, and one flush of that covers what any of them has written; \
         a fault with write-back.",
    ),
];

/// Options that a mutant is looked for with, and the same without it.
pub(crate) fn with(mutant: Mutant) -> (FaultOptions, FaultOptions) {
    let single = FOUND_SINGLE.iter().any(|(found, _)| *found == mutant);
    let resizes = FOUND_RESIZING.iter().any(|(found, _)| *found == mutant);
    let features = if single { SINGLE } else { Features { resizes, ..Features::ALL } };
    let qos_queues = FOUND_AT_DOORS.iter().any(|(found, _)| *found == mutant);
    let regions = Some(FOUND_IN_REGIONS.iter().any(|(found, _)| *found == mutant));
    let without =
        FaultOptions { features, qos_queues, regions, failures_max: 4, ..FaultOptions::default() };
    (FaultOptions { mutants: Mutants::only(mutant), ..without }, without)
}
