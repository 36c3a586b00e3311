//! Requests on their way to the engine, and answers on their way back.

use cinnabar_engine::seam::Op;
use cinnabar_engine::seam::units::ByteSpan;
use std::any::Any;
use std::sync::Arc;

/// Names an export; chosen by the caller, its volume's index for instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportId(pub u32);

/// Names a request until it is answered; fits a
/// [`RequestId`](cinnabar_engine::seam::RequestId). Never 0, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A request to be carried out and answered with the `reply` of the server it came from, even
/// if its client is gone by then.
#[derive(Clone, Debug)]
pub struct Incoming<M> {
    /// Identifies the request; its reply carries the same ticket.
    pub ticket: Ticket,
    /// The export that the request is for.
    pub export: ExportId,
    /// What to do.
    pub command: Command<M>,
}

/// What a client asks for. Spans are checked: aligned to 512, not empty, within the export.
#[derive(Clone, Debug)]
pub enum Command<M> {
    /// Something for the engine as it is.
    Engine(Op<M>),
    /// The client is going to read this soon; the data are thrown away. To be carried out as a
    /// read.
    Prefetch {
        /// Bytes to bring in.
        span: ByteSpan,
        /// Room for them.
        data: M,
    },
    /// What is allocated; to be answered with [`Body::Extents`]. The backend may be asked, or
    /// [`Body::Done`] says that everything holds data, which is always true enough.
    BlockStatus {
        /// Bytes asked about, at most 4 GiB.
        span: ByteSpan,
        /// Only the first extent is wanted.
        only_first: bool,
    },
}

/// What comes with a successful reply.
#[derive(Clone, Debug)]
pub enum Body<M> {
    /// A reply without data.
    Done,
    /// The buffer that came with the request, sent to the client if it was a read.
    Data(M),
    /// Answer to [`Command::BlockStatus`]: extents from the span's first byte on. Zero-length ones
    /// are skipped, what reaches beyond the span is cut off, what is missing counts as data.
    Extents(Vec<Extent>),
}

/// A piece of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, a multiple of 512.
    pub len: u64,
    /// What it holds.
    pub kind: ExtentKind,
}

/// What a piece of a volume holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Data, or unknown.
    Data,
    /// Allocated, reads as zeros.
    Zero,
    /// Not allocated, reads as zeros.
    Hole,
}

/// Where buffers come from and go to: a recycling pool of the daemon.
pub trait Buffers<M> {
    /// A buffer that *is* a guest's memory, for a read of whole blocks; `None`: not here, take a
    /// private one.
    ///
    /// `pieces` are addresses and lengths in bytes, all multiples of 4096, which follow each other
    /// in the buffer. They may be written to by the guest at any time. `keep` keeps them mapped: it
    /// has to live as long as any handle to the buffer and as long as any I/O into it is under
    /// way, and be dropped then, for the server waits for it where an early answer would let late
    /// data land in memory that the guest uses for something else.
    fn guest(
        &mut self,
        keep: Arc<dyn Any + Send + Sync>,
        pieces: &[(*mut u8, usize)],
    ) -> Option<M> {
        let _ = (keep, pieces);
        None
    }

    /// A buffer of `blocks` blocks of 4 KiB, contents unspecified.
    fn take(&mut self, blocks: u32) -> M;
    /// The server needs this one no longer.
    fn give(&mut self, buffer: M);
}
