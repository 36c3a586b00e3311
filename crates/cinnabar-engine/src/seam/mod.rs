//! The seam: what goes into the engine (events) and what comes out (actions).
//!
//! The engine behind it has no clock, no files, no threads and no randomness.
//!
//! # Buffers
//! A request's buffer ([`Payload`]) covers the *block-aligned* range around the request's span: byte
//! `b` of the volume lies at `b - first_block * 4096` of the buffer, whose length is
//! `blocks * 4096`. So a 512-byte read at offset 512 comes with a buffer of 4096 bytes, and the
//! engine reads whole blocks into it; the frontend sends only the bytes asked for. For writes the
//! bytes outside the span are scratch for the engine. What a frontend submits for a write is private
//! memory: a guest must not be able to change it while the request is under way. A read may come
//! with the guest's own memory ([`Payload::is_private`]): blocks are read into it from the cache
//! device only, believed only if their checksum is right when it is looked at, and never kept from
//! there. Nothing is written to it after the reply.
//!
//! # Tokens
//! Every [`IoRequest`] is answered by exactly one [`Event::IoDone`], every [`Event::Submit`] and
//! [`Event::Control`] by exactly one [`Action::Reply`].
//!
//! # Time-outs
//! The engine has no clock; the driver says what takes too long.
//!
//! [`Event::Overdue`] of a *backend* I/O: its request is answered with [`IoError::TimedOut`] now;
//! its blocks stay held until the I/O completes after all, for a write that is still on its way may
//! land at any time. [`Event::Late`] says the same of a request, whatever it waits for. One that
//! waits for another's blocks lets go of its place: it never ran, and nothing waits for it.
//!
//! [`Event::Overdue`] of an I/O on the *cache device* gives the device up, and that I/O: nothing
//! waits for it any more. A read of a guest's is done again, from the backend, into other memory;
//! a write counts for nothing, and what it was to make durable is made so elsewhere. Each such I/O
//! must be told of by itself. It still completes one day, or never; until then its buffers are
//! its own, and the driver must not let another device's session begin in the same place. A read
//! straight into a guest's own memory is the exception: nothing else may be written there while
//! the device may still write, so its request, which holds no blocks any more, is done again when
//! that I/O has ended.
//! [`Command::Abandon`] and all other commands are answered once each I/O on the device has ended
//! or is overdue, so a driver that sends `Overdue` in time has its answers in time.

#![deny(unsafe_code)]

pub mod counters;
pub mod health;
mod io_error;
pub mod plan;
pub mod shared_memory;
pub mod volume;

pub use cinnabar_format::{limits, units};
pub use io_error::IoError;

use cinnabar_format::MetaPage;
use cinnabar_format::proof::ProofToken;
use cinnabar_format::superblock::Superblock;
use plan::Plan;
use smallvec::SmallVec;
use units::{ByteSpan, Instant, VolumeId};
use volume::{VolumeSpec, Warmth};

/// What the engine moves about without looking inside: aligned memory in the daemon, a length in
/// performance simulation, version stamps in fault simulation.
///
/// A clone is a handle to the same memory. Offsets and lengths are bytes, multiples of 512.
/// The engine promises not to touch a range while an I/O on it is under way.
pub trait Payload: Clone {
    /// Private memory of `blocks` blocks of 4 KiB, contents unspecified.
    fn alloc(blocks: u32) -> Self;
    /// Copies `len` bytes from `from` at `from_at` to this payload at `at`.
    fn copy_from(&self, at: u64, from: &Self, from_at: u64, len: u64);
    /// Sets `len` bytes at `at` to zero.
    fn zero(&self, at: u64, len: u64);
    /// 32-bit checksum of the 4 KiB block at byte `at`, seeded with `seed`.
    fn checksum(&self, at: u64, seed: u64) -> u32;
    /// Whether only its owner can read or change it. False for a guest's own memory.
    fn is_private(&self) -> bool {
        true
    }
}

/// A byte range of a payload: one element of a scatter/gather list.
#[derive(Clone, Debug)]
pub struct Slice<P> {
    /// The memory.
    pub data: P,
    /// First byte within `data`.
    pub at: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Scatter/gather list, in order; most have one element.
pub type Slices<P> = SmallVec<[Slice<P>; 1]>;

/// Names a guest request or a command; chosen by the driver, returned in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names an I/O; chosen by the engine, returned with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// What a guest asks of a volume.
#[derive(Clone, Debug)]
pub enum Op<P> {
    /// Read `span` into `data`.
    Read {
        /// Bytes wanted; at most [`limits::DATA_BYTES_MAX`].
        span: ByteSpan,
        /// Where to.
        data: P,
    },
    /// Write `span` from `data`.
    Write {
        /// Bytes written; at most [`limits::DATA_BYTES_MAX`].
        span: ByteSpan,
        /// Where from.
        data: P,
        /// Reply only when the data are durable.
        fua: bool,
    },
    /// Make durable every write replied to before this request arrived.
    Flush,
    /// The guest no longer needs these bytes; any length.
    Trim {
        /// Bytes given up.
        span: ByteSpan,
        /// Reply only when durable.
        fua: bool,
    },
    /// Another writer changed these bytes without the cache: what is cached of them is dropped,
    /// durably; any length. The operator's and the driver's, not a guest's: it is not refused for
    /// what guests have under way, and takes none of their places, so the driver keeps the number
    /// bounded. A volume that is being detached refuses it, and nothing of that is kept.
    Invalidate {
        /// Bytes not to be believed.
        span: ByteSpan,
    },
    /// These bytes read as zeros from now on; any length.
    WriteZeroes {
        /// Bytes zeroed.
        span: ByteSpan,
        /// Reply only when durable.
        fua: bool,
        /// The backend may deallocate them.
        may_punch: bool,
    },
}

/// A guest's request.
#[derive(Clone, Debug)]
pub struct Request<P> {
    /// Token of the reply.
    pub id: RequestId,
    pub volume: VolumeId,
    /// What to do.
    pub op: Op<P>,
}

/// Where an I/O goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The cache device; offsets are bytes from its start.
    Cache,
    /// The volume's backend; offsets are bytes from the volume's start.
    Backend(VolumeId),
}

/// An I/O operation. Cache I/O is 4 KiB-aligned in offset, length and memory; backend data I/O is
/// aligned to the volume's `align_bytes` (512 or 4096) in all three. A backend read may reach past
/// the end of a volume whose size is no multiple of 4 KiB: the backend fills that part with zeros.
#[derive(Clone, Debug)]
pub enum IoOp<P> {
    /// Read the bytes at `offset` into `data`.
    Read {
        /// Byte offset.
        offset: u64,
        /// Where to.
        data: Slices<P>,
    },
    /// Write `data` at `offset`.
    Write {
        /// Byte offset.
        offset: u64,
        /// Where from.
        data: Slices<P>,
        /// Complete only when durable.
        fua: bool,
    },
    /// Read metadata pages into `pages` (cache only); they come back with the completion.
    ReadMeta {
        /// Byte offset.
        offset: u64,
        /// Where to.
        pages: Vec<MetaPage>,
    },
    /// Write metadata pages, then the blocks of `data` right behind them, as one sequential write
    /// (cache only). The pages come back with the completion.
    WriteMeta {
        /// Byte offset.
        offset: u64,
        /// Header or metadata pages.
        pages: Vec<MetaPage>,
        /// Blocks behind them; empty for pure metadata.
        data: Slices<P>,
        /// Complete only when durable.
        fua: bool,
    },
    /// Make durable every write that completed before.
    Flush,
    /// Backend only: a [`Flush`](Self::Flush), then the backend's proof as it stands and its own
    /// clock's time, together in [`IoDone::proof`]; `None` if this backend can't prove anything.
    /// For the heartbeat while a volume is being written.
    Prove,
    /// Backend only: record durably, *outside* of the cache device, that what any cache device
    /// holds of this volume is not to be believed any more: a new generation, given back in
    /// [`IoDone::generation`]. Asked for before the first write that the SSD can't record.
    BumpGeneration {
        /// The generation that is not to be believed any more. If the volume has a newer one
        /// already, another shard has asked, and that one is given.
        held: u64,
    },
    /// Deallocate a range; it may read as anything that was in it, or zeros, afterwards. On the cache
    /// device: the log has become smaller, and its room there is given back.
    Trim {
        /// Bytes given up.
        span: ByteSpan,
    },
    /// Cache only: see to it that the range can be written, however full the file system gets. What it
    /// holds stays. On a device that always has its room this does nothing.
    MakeRoom {
        /// Bytes that will be written.
        span: ByteSpan,
    },
    /// Zero a range.
    WriteZeroes {
        /// Bytes zeroed.
        span: ByteSpan,
        /// The range may be deallocated.
        may_punch: bool,
    },
}

impl<P> IoOp<P> {
    /// Moves the operation `bytes` further into the device: a shard's to its region.
    pub fn shift(&mut self, bytes: u64) {
        match self {
            Self::Read { offset, .. }
            | Self::Write { offset, .. }
            | Self::ReadMeta { offset, .. }
            | Self::WriteMeta { offset, .. } => *offset += bytes,
            Self::Trim { span } | Self::MakeRoom { span } | Self::WriteZeroes { span, .. } => {
                span.offset += bytes;
            }
            Self::Flush | Self::Prove | Self::BumpGeneration { .. } => {}
        }
    }
}

/// An I/O for the driver to carry out.
#[derive(Clone, Debug)]
pub struct IoRequest<P> {
    /// Token of the completion.
    pub id: IoId,
    /// Where.
    pub target: Target,
    /// What.
    pub op: IoOp<P>,
}

/// Completion of an [`IoRequest`].
#[derive(Clone, Debug)]
pub struct IoDone {
    /// Its token.
    pub id: IoId,
    /// How it ended. A short transfer is an error.
    pub result: Result<(), IoError>,
    /// The pages of `ReadMeta` and `WriteMeta`, empty otherwise.
    pub pages: Vec<MetaPage>,
    /// What a [`IoOp::Prove`] brought, `None` otherwise.
    pub proof: Option<ProofToken>,
    /// The generation that a [`IoOp::BumpGeneration`] brought, `None` otherwise.
    pub generation: Option<u64>,
}

impl IoDone {
    /// A completion without pages or proof.
    pub const fn new(id: IoId, result: Result<(), IoError>) -> Self {
        Self { id, result, pages: Vec::new(), proof: None, generation: None }
    }
}

/// What the operator asks of the engine itself.
#[derive(Clone, Debug)]
pub enum Command {
    /// Find out what is on the device, mark it as in use, and begin to load the index. First
    /// command of a session; answered as soon as volumes can be attached. Until the index is loaded
    /// requests pass through, and each write appends an invalidation record.
    Open,
    /// Answered with [`Answer::Loaded`] once the index is loaded.
    AwaitLoad,
    /// Make a volume known; answered with [`Answer::Attached`] once the device knows of it.
    /// `Engine::recorded` says what to compare with the backend before.
    Attach(VolumeSpec),
    /// Wait for the volume's requests, flush its backend. New requests are refused from now on.
    Detach(VolumeId),
    /// After a `Detach` that succeeded: remember the backend's change proof. `None`
    /// drops the volume's blocks instead, unless the operator vouches for it (`exclusive`).
    Seal(VolumeId, Option<ProofToken>),
    /// What is cached of a volume that is attached or being detached goes with it, whatever its
    /// `Seal` says, for its backend may have lost what was not flushed. Until then no flush of the
    /// backend covers anything, so that a crash does not have those copies believed. Answered at
    /// once.
    Discard(VolumeId),
    /// The volume's backend has grown to so many bytes, and this is its proof as it stands now.
    /// Nothing is dropped: its last block was a whole one, or it is as large as before, and only the proof is
    /// new. Answered once the device knows of it.
    Grow(VolumeId, u64, Option<ProofToken>),
    /// Drop the blocks of a volume that is not attached.
    Forget(String),
    /// Give up the cache device and go on with another, empty one, whose superblock this is; I/O
    /// for [`Target::Cache`] issued after the reply to [`Command::Abandon`] goes to it.
    Replace(Box<Superblock>),
    /// Use so many segments of the log from now on, of those that the device was made for; of a device
    /// of several shards, so many in each. Answered when that is durably so: what is cached beyond
    /// has moved or gone and its room is given back, or room for more has been made. Another resize
    /// takes this one's place, and a clean stop ends it: then it is [`Failure::Interrupted`], and the
    /// device has some size on the way.
    Resize {
        /// Segments to use.
        segments: u32,
        /// What all shards go back to if one of them can't.
        otherwise: u32,
    },
    /// Stop using the cache device: volumes pass through from now on. Answered when no I/O for it
    /// is under way any more but such as was given up.
    Abandon,
    /// Clean stop, after every volume is detached and sealed: write out what is only in RAM,
    /// checkpoint, mark the device as clean. Last command of a session.
    Close,
}

/// Why a request or command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Misaligned, empty, too long, or past the end of the volume.
    #[error("invalid request")]
    Invalid,
    /// A write to a read-only volume.
    #[error("volume is read-only")]
    ReadOnly,
    /// No such volume, or it is being detached.
    #[error("no such volume")]
    NoVolume,
    /// A fixed limit was reached (volumes, requests in flight).
    #[error("limit reached")]
    Limit,
    /// Something else came before its end: another command of its kind, or a stop.
    #[error("interrupted")]
    Interrupted,
}

/// What comes back with a successful reply.
#[derive(Clone, Debug)]
pub enum Answer<P> {
    /// Nothing.
    Done,
    /// The buffer of a read or write.
    Data(P),
    /// A volume was attached.
    Attached {
        /// Its index from now on.
        volume: VolumeId,
        /// Whether cached blocks of an earlier run are believed, and if not, why.
        warmth: Warmth,
    },
    /// The index is loaded.
    Loaded(health::LoadReport),
}

/// Answer to a request or a command.
#[derive(Clone, Debug)]
pub struct Reply<P> {
    /// Token of the request.
    pub id: RequestId,
    /// How it ended.
    pub result: Result<Answer<P>, Failure>,
}

/// Into the engine.
#[derive(Clone, Debug)]
pub enum Event<P> {
    /// A guest's request arrived.
    Submit(Request<P>),
    /// An I/O completed.
    IoDone(IoDone),
    /// An I/O takes longer than the driver's bound; see the [module](self), "Time-outs".
    Overdue(IoId),
    /// A request takes longer than its volume's bound, counted from its arrival; see the
    /// [module](self), "Time-outs". Nothing happens if it has been answered.
    Late(RequestId),
    /// An instant asked for with [`Action::WakeAt`] has come.
    Wake,
    /// From the router to each shard: an invalidation of this volume has begun, and shards may be asked
    /// their parts of it later. Until as many [`Event::Invalidated`] have come, no flush of the volume
    /// covers anything.
    Invalidating(VolumeId),
    /// The same invalidation has ended.
    Invalidated(VolumeId),
    /// New sizes and write policies.
    Adopt(Plan),
    /// An operator's command.
    Control(RequestId, Command),
}

/// Out of the engine.
#[derive(Clone, Debug)]
pub enum Action<P> {
    /// Carry out this I/O, then send [`Event::IoDone`].
    Io(IoRequest<P>),
    /// Answer the guest or the operator.
    Reply(Reply<P>),
    /// Send [`Event::Wake`] at this instant or soon after. Several may be pending; the driver may
    /// keep the earliest only, for the engine asks again at each wake.
    WakeAt(Instant),
}

/// A payload that is real memory, which edges hand to the kernel and copy from and to sockets.
///
/// # Safety
/// `as_ptr` must point to `len_bytes` bytes, readable, writable and aligned to 4096, that stay
/// valid and in place as long as any clone lives. All access goes through raw pointers, so clones
/// may alias; who may touch which range when is governed by the rules of [`Payload`].
#[allow(unsafe_code, reason = "the declaration only: the engine itself never dereferences")]
pub unsafe trait RawMemory: Payload {
    /// First byte.
    fn as_ptr(&self) -> *mut u8;
    /// Length in bytes.
    fn len_bytes(&self) -> u64;
}
