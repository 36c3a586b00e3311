//! What can be wrong with a double: each a bug that the oracle must catch.

/// What is wrong with a double.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    #[default]
    None,
    /// Nothing, and nothing is cached either.
    PassThrough,
    /// A write leaves the cached block as it was.
    StaleRead,
    /// A partial write takes the whole buffer for its block.
    TornPartialWrite,
    /// A read miss fills the cache although a write came in between.
    FillOverNewerWrite,
    /// A partial hit is answered when the first of its missing runs has arrived.
    EarlyPartialHit,
    /// Zeroes leave the cached block as it was.
    LostZeroes,
    /// A flush is answered without flushing.
    NoFlush,
    /// FUA is forgotten.
    NoFua,
    /// A failed backend write is cached.
    KeepsFailedWrite,
    /// A failed backend read is answered with what was in the buffer.
    IgnoresReadError,
    /// Blocks of an earlier attachment are believed without proof.
    BelievesAnything,
    /// A request in flight at a detach is forgotten.
    ForgetsRequests,
    /// A detach does not flush.
    DetachesUnflushed,
    /// The buffer of a read is used again after the reply.
    ReusesBuffer,
    /// Unaligned I/O to a backend that can't do it.
    Misaligned,
    /// A request beyond the end is passed on.
    Unbounded,
    /// So is a write to a read-only volume.
    WritesReadOnly,
    /// Blocks taken out by writes are back after a crash.
    LosesRecords,
    /// After a crash, blocks are believed although the backend may have lost what they are copies of.
    BelievesUnflushed,
    /// Every crash leaves the cache cold.
    ColdAfterCrash,
    /// Blocks are believed under any generation.
    IgnoresGeneration,
    /// Generations are never changed.
    NeverBumpsGeneration,
    /// The operator's word to forget a volume is answered, and that is all.
    ForgetsNothing,
    /// So is the one to invalidate.
    IgnoresInvalidate,
}
