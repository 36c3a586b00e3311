//! Deliberate bugs that tests must find. Without the feature `mutants` none can be switched on.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A volume takes the last free segments, though others have none.
    ReserveTaken,
    /// A write with FUA does not end its epoch.
    FuaKeepsEpoch,
    /// A flush does not end the epoch.
    FlushKeepsEpoch,
    /// A block that a later epoch has again is not destaged with its own.
    EpochsCoalesced,
    /// An epoch's destage does not stop where the next one begins.
    EpochsMerged,
    /// The back end is not flushed between two epochs.
    NoFlushBetweenEpochs,
    /// The next epoch begins before it is recorded that the back end has this one.
    RecordNotAwaited,
    /// Chunks are destaged that are not durable on the log's device.
    UndurableDestaged,
    /// The epoch under way is not repeated when the server has restarted.
    RestartNotRepeated,
    /// Trims and zeroes of an epoch overtake the writes before them.
    RangesFirst,
    /// Versions of a block in one window are written the wrong way round.
    WindowUnordered,
    /// Pages read for the destage are not compared with their checksums.
    DestageUnverified,
    /// Pages read for a guest are not compared with their checksums.
    ReadUnverified,
    /// The device is flushed before the chunks have been written.
    FlushBeforeCompletion,
    /// A write is answered when its chunk is sent.
    AckBeforeChunk,
    /// A write is answered although a lower chunk is still being written.
    AckOutOfOrder,
    /// A flush is answered when the chunks are written, not durable.
    FlushUndurable,
    /// A chunk written with FUA counts as durable although a lower one is not.
    FuaAlone,
    /// Of the destage's requests that wait for their turn the last one goes first.
    PacedUnordered,
    /// Requests of the destage that wait for their turn are not looked at when others end.
    PaceStalls,
    /// Recovery believes a chunk whose data it has not looked at.
    TornChunkBelieved,
    /// What recovery has cut off is not recorded as void.
    GapNotRecorded,
    /// The record of a session's begin is written, and not durable before the session writes.
    SessionNotFlushed,
    /// Recovery believes chunks of any session.
    SessionIgnored,
    /// A segment is used again before it is recorded that the back end has it.
    SegmentFreedEarly,
    /// A segment is used again while a guest reads from it.
    ReadUnpinned,
    /// A version with some sectors of a block hides all of the older one.
    OlderVersionDropped,
    /// Reads look for older versions of a block before they look for a range over them.
    RangeKeepsBlocks,
    /// A partial write into a zeroed range forgets the zeros around it.
    WriteKeepsRange,
    /// What waits for room does not go on when there is some.
    RoomNotTold,
    /// Only one page of the directory says that a place is free.
    RemovedOnce,
    /// A flush of the device that began for a place's former volume counts for the next one.
    FlushCoversNext,
    /// A session whose gap had no room begins before its gap is durable.
    GapNotAwaited,
    /// An epoch counts as recorded with a record that was under way before.
    RecordTooEarly,
    /// Recovery does not look behind a header that is damaged.
    HeadersNotSought,
    /// Recovery does not mind chunks of a session that the directory does not know.
    SessionNotMissed,
    /// The size of a volume that grows counts before it is durable.
    SizeTooEarly,
    /// A flush ends the epoch of its own volume only.
    BarrierOfOne,
    /// An epoch is destaged before the back ends of its group have the earlier ones.
    GroupNotAwaited,
    /// Or before it is recorded that they have them.
    GroupRecordNotAwaited,
    /// Volumes of a group that are not attached are not waited for.
    AbsentNotAwaited,
    /// Recovery does not know of groups.
    GroupForgotten,
    /// A write is answered before it is in the write memory.
    AckBeforePublish,
    /// A write memory of another boot or session is believed.
    OldMemoryBelieved,
    /// A version in the write memory is overwritten by the one that replaces it.
    ReplacedInPlace,
    /// What is in the write memory stays there when its chunk has been written, and is put back whatever
    /// the log has.
    MemoryNotCleared,
    /// The write memory lets go of a chunk when it is sent.
    MemoryClearedEarly,
    /// A version in the write memory is replaced by one of a later epoch.
    ReplacedAcrossEpochs,
    /// A version in the write memory is replaced although a range came behind it.
    ReplacedAcrossRange,
    /// Writes that are not in the write memory are answered when the volume begins to use it.
    AckWithoutMemory,
    /// The note of an earlier memory is not taken away before the file is used again.
    NoteKept,
    /// A write is answered before the half that has it says that it is alone.
    MarkNotAwaited,
    /// A write is answered when one half has it.
    OneHalfAnswers,
    /// Records of the directory that one half lacks are not brought there.
    DirectoryNotLevelled,
    /// Chunks that one half lacks are not brought there.
    ChunksNotLevelled,
    /// Nor those that a chunk leads to that was put back from the write memory.
    PutBackNotLevelled,
    /// Two halves count although one of them went on alone.
    GenerationIgnored,
    /// A copy of a half counts as the other half.
    CopyBelieved,
    /// One half is served although the other one may have gone on alone.
    HalfBelieved,
    /// A half that was being filled is served.
    FillingBelieved,
    /// A half that is filled counts at once.
    FilledTooEarly,
    /// A page that does not match its checksum is read from the same half again.
    ReadAgainFromSame,
    /// Levelling finds of each half only what its own headers lead to.
    ChainFollowed,
    /// A start counts openings on from those it sees, and stamps from those of each place.
    OpeningsGoBack,
}

impl Mutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::ReserveTaken,
        Self::FuaKeepsEpoch,
        Self::FlushKeepsEpoch,
        Self::EpochsCoalesced,
        Self::EpochsMerged,
        Self::NoFlushBetweenEpochs,
        Self::RecordNotAwaited,
        Self::UndurableDestaged,
        Self::RestartNotRepeated,
        Self::RangesFirst,
        Self::WindowUnordered,
        Self::DestageUnverified,
        Self::ReadUnverified,
        Self::FlushBeforeCompletion,
        Self::AckBeforeChunk,
        Self::AckOutOfOrder,
        Self::FlushUndurable,
        Self::FuaAlone,
        Self::PacedUnordered,
        Self::PaceStalls,
        Self::TornChunkBelieved,
        Self::GapNotRecorded,
        Self::SessionNotFlushed,
        Self::SessionIgnored,
        Self::SegmentFreedEarly,
        Self::ReadUnpinned,
        Self::OlderVersionDropped,
        Self::RangeKeepsBlocks,
        Self::WriteKeepsRange,
        Self::RoomNotTold,
        Self::RemovedOnce,
        Self::FlushCoversNext,
        Self::GapNotAwaited,
        Self::RecordTooEarly,
        Self::HeadersNotSought,
        Self::SessionNotMissed,
        Self::SizeTooEarly,
        Self::BarrierOfOne,
        Self::GroupNotAwaited,
        Self::GroupRecordNotAwaited,
        Self::AbsentNotAwaited,
        Self::GroupForgotten,
        Self::AckBeforePublish,
        Self::OldMemoryBelieved,
        Self::ReplacedInPlace,
        Self::MemoryNotCleared,
        Self::MemoryClearedEarly,
        Self::ReplacedAcrossEpochs,
        Self::ReplacedAcrossRange,
        Self::AckWithoutMemory,
        Self::NoteKept,
        Self::MarkNotAwaited,
        Self::OneHalfAnswers,
        Self::DirectoryNotLevelled,
        Self::ChunksNotLevelled,
        Self::PutBackNotLevelled,
        Self::GenerationIgnored,
        Self::CopyBelieved,
        Self::HalfBelieved,
        Self::FillingBelieved,
        Self::FilledTooEarly,
        Self::ReadAgainFromSame,
        Self::ChainFollowed,
        Self::OpeningsGoBack,
    ];
}

/// The bugs that are switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutants(Option<Mutant>);

impl Mutants {
    /// One of them.
    #[cfg(feature = "mutants")]
    pub const fn only(mutant: Mutant) -> Self {
        Self(Some(mutant))
    }

    /// Whether a bug is switched on.
    pub fn is(self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.0 == Some(mutant)
    }
}
