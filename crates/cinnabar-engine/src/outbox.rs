//! Actions on their way out, and what is remembered of every I/O until it completes.

use crate::buffers::Buffer;
use crate::engine::{Copies, OpenRead, ResizeIo};
use crate::seam::{Action, Answer, Failure, IoId, IoOp, IoRequest, Reply, RequestId, Target};
use crate::store::Chain;
use crate::units::{BLOCK_BYTES, Instant, SECTOR_BYTES};
use crate::volume::Covers;
use slab::Slab;

/// What an I/O was for.
#[derive(Debug)]
pub(crate) enum Pending {
    /// Blocks of a read that lie on flash, from `slot` on, to block `index` of the request; `direct`
    /// if they go to the guest's own memory.
    CacheRead { request: usize, index: u32, slot: u32, count: u32, direct: bool },
    /// Blocks of a read that have to come from the backend.
    BackendRead { request: usize, index: u32, count: u32 },
    /// The old content of a partly written block; `slot` if it comes from flash.
    Edge { request: usize, edge: usize, slot: Option<u32> },
    /// A backend write, trim, zero or flush of a request, in order; what it covers if it flushes.
    Backend { request: usize, covers: Option<Covers> },
    /// A chunk of the log; an index into the chunks being written.
    Chunk { chunk: usize },
    /// Referenced blocks of the segment being cleaned, from `slot` on.
    Reinsert { slot: u32, buffers: Vec<Buffer> },
    /// Pages of a checkpoint being written, or its flush.
    Checkpoint,
    /// Pages of the last session's checkpoint, from `position` on.
    Load { position: u32, count: u32 },
    /// The header of a chunk that may be newer than the checkpoint.
    Header { chain: Chain },
    /// Pages of the journal.
    Journal,
    /// What opening reads, and the flush beside it.
    Open(OpenRead),
    /// A step of opening or closing that writes.
    Control,
    /// The superblock with more incarnations reserved.
    Reserve { copies: Copies },
    /// A step of a resize.
    Resize(ResizeIo),
    /// The cache device's regular flush.
    CacheFlush,
    /// A volume's backend is asked for its proof.
    Prove { volume: u16, covers: Covers },
    /// A volume's generation is being changed outside of the cache device.
    BumpGeneration { volume: u16 },
    /// The backend flush of a volume being detached.
    Detach { volume: u16, covers: Covers },
    /// It took too long and nothing waits for it any more, except for this request, into whose
    /// guest's memory it may still write.
    GivenUp { request: Option<usize> },
}

/// Actions of the current batch and all I/Os under way.
pub(crate) struct Outbox<P> {
    pub(crate) actions: Vec<Action<P>>,
    pub(crate) pending: Slab<Pending>,
    pub(crate) flash_written_bytes: u64,
}

impl<P> Outbox<P> {
    pub(crate) fn new() -> Self {
        Self { actions: Vec::new(), pending: Slab::new(), flash_written_bytes: 0 }
    }

    /// Starts an I/O, which the [seam](crate::seam) allows on this target.
    pub(crate) fn io(&mut self, target: Target, op: IoOp<P>, pending: Pending) {
        check(target, &op);
        if target == Target::Cache {
            self.flash_written_bytes += match &op {
                IoOp::Write { data, .. } => data.iter().map(|slice| slice.len).sum(),
                IoOp::WriteMeta { pages, data, .. } => {
                    pages.len() as u64 * BLOCK_BYTES + data.iter().map(|s| s.len).sum::<u64>()
                }
                _ => 0,
            };
        }
        let id = IoId(self.pending.insert(pending) as u64);
        self.actions.push(Action::Io(IoRequest { id, target, op }));
    }

    /// Answers a request or command.
    pub(crate) fn reply(&mut self, id: RequestId, result: Result<Answer<P>, Failure>) {
        self.actions.push(Action::Reply(Reply { id, result }));
    }

    /// Asks to be woken.
    pub(crate) fn wake_at(&mut self, at: Instant) {
        self.actions.push(Action::WakeAt(at));
    }

    /// Nothing waits for an I/O any more; gives what it was for. Its token stays taken.
    pub(crate) fn give_up(&mut self, id: IoId, request: Option<usize>) -> Pending {
        let pending = self.pending.get_mut(id.0 as usize).expect("an I/O under way");
        assert!(!matches!(pending, Pending::GivenUp { .. }), "an I/O is given up once");
        std::mem::replace(pending, Pending::GivenUp { request })
    }

    /// What the completed I/O was for. A token that is not under way is a bug of the driver.
    pub(crate) fn complete(&mut self, id: IoId) -> Pending {
        let index = usize::try_from(id.0).expect("a token that the engine gave");
        self.pending.try_remove(index).expect("the driver completed an I/O twice")
    }
}

/// What the seam promises of every I/O: aligned, not empty, and on a target that has such an operation.
fn check<P>(target: Target, op: &IoOp<P>) {
    let (align, cache) = match target {
        Target::Cache => (BLOCK_BYTES, true),
        Target::Backend(_) => (SECTOR_BYTES, false),
    };
    match op {
        IoOp::Read { offset, data } | IoOp::Write { offset, data, .. } => {
            assert!(offset.is_multiple_of(align) && !data.is_empty(), "aligned data");
            let whole = |bytes: u64| bytes.is_multiple_of(align);
            debug_assert!(data.iter().all(|s| s.len > 0 && whole(s.at) && whole(s.len)), "slices");
        }
        IoOp::ReadMeta { offset, pages } | IoOp::WriteMeta { offset, pages, .. } => {
            assert!(cache, "metadata are on the cache device");
            assert!(offset.is_multiple_of(align) && !pages.is_empty(), "aligned metadata");
        }
        IoOp::Flush => {}
        IoOp::Prove | IoOp::BumpGeneration { .. } => {
            assert!(!cache, "a backend is asked for proofs");
        }
        IoOp::Trim { span } | IoOp::MakeRoom { span } | IoOp::WriteZeroes { span, .. } => {
            let there = match op {
                IoOp::Trim { .. } => true,
                IoOp::MakeRoom { .. } => cache,
                _ => !cache,
            };
            assert!(there && span.len > 0, "some bytes of a medium that does this");
            assert!((span.offset | span.len).is_multiple_of(align), "whole sectors");
        }
    }
}
