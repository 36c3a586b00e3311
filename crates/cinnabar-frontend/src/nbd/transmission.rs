//! The transmission phase as a state machine: bytes in, requests out.
//!
//! Requests are checked here once and for all: what comes out is aligned, not empty and within the
//! export. A client may begin and end at any byte: reads are carried out around what it asked for,
//! trims within, and changes of parts of sectors come out as [`Step::Modify`]. Reads and writes that
//! touch more than 32 MiB come out as several pieces, see [`Expect::Piece`]; requests without data
//! may have any length.
//!
//! A request that can't be served is answered with an error and the stream goes on, its payload
//! skipped. Only two things end the connection: a wrong magic, after which nothing can be trusted,
//! and a write that can't be served with more than 64 MiB of payload to skip.

mod pieces;

use super::export::Export;
use super::handshake::Agreed;
use super::limits::{EXTENTS_MAX, PAYLOAD_BEGUN_BYTES};
use super::long::Long;
use super::memory;
use super::proto::{self, Errno, Request, command, command_flag};
use super::reason::DisconnectReason;
use super::request::{Buffers, Command};
use super::sectors;
use cinnabar_engine::seam::limits::DATA_BYTES_MAX;
use cinnabar_engine::seam::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES};
use cinnabar_engine::seam::{Op, RawMemory};

pub use super::load::Load;

/// Payload of a refused write, to be skipped; of a longer one the connection ends.
const SKIP_BYTES_MAX: u64 = 2 * DATA_BYTES_MAX;
/// The longest reply to a block status.
const EXTENTS_BYTES: u64 = 8 * EXTENTS_MAX as u64;
/// Bytes brought in at most for one request to read ahead.
const CACHE_BYTES_MAX: u64 = DATA_BYTES_MAX - SECTOR_BYTES;

/// What a reply is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No data.
    Done,
    /// The data of a read.
    Data(ByteSpan),
    /// The extents of a reply to `BLOCK_STATUS`.
    Extents {
        /// Bytes asked about.
        span: ByteSpan,
        /// Only the first extent.
        only_first: bool,
    },
    /// Nothing yet: it is a part of a long read or write.
    Piece(ByteSpan),
}

/// A request that has to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The client's name for it.
    pub cookie: u64,
    /// What to answer.
    pub expect: Expect,
    /// What was asked of [`Room`] for it.
    pub load: Load,
}

impl Pending {
    /// What it holds until its reply has left.
    pub(super) const fn load(&self) -> Load {
        self.load
    }
}

/// What became of a step.
#[derive(Clone, Debug)]
pub enum Step<M> {
    /// More bytes are needed to go on.
    NeedMore,
    /// There is no room for the next request or piece, or a long request goes first.
    Wait,
    /// A whole request.
    Request(Pending, Command<M>),
    /// A whole request that changes parts of sectors.
    Modify(Pending, Modify<M>),
    /// Bytes were taken and nothing follows from them yet.
    GoOn,
    /// A request that is done already.
    Answer(Pending, Result<(), Errno>),
    /// A request to be answered with an error.
    Refuse(Pending, Errno),
    /// The connection is to be closed, after the replies that are due.
    Close(DisconnectReason),
}

/// A change that does not begin and end with sectors.
#[derive(Clone, Debug)]
pub struct Modify<M> {
    /// The bytes that change.
    pub span: ByteSpan,
    /// Durable before the reply.
    pub fua: bool,
    /// The new bytes.
    pub with: With<M>,
}

/// What bytes change to.
#[derive(Clone, Debug)]
pub enum With<M> {
    /// The data of a write, at their place within the blocks around.
    Data(Option<M>),
    /// Zeros instead of data.
    Zeroes {
        /// Whole sectors may be deallocated.
        may_punch: bool,
    },
}

/// Grants room for one more request of a client, or not now.
pub trait Room {
    /// Called once for each request when its fixed part has come, and of a write's payload what it takes to
    /// believe in the rest; and again later after a refusal.
    fn reserve(&mut self, more: Load) -> bool;
    /// The same for a piece of a long request.
    fn reserve_piece(&mut self, more: Load) -> ForPiece;
    /// Whether the client waits for nothing.
    fn is_quiet(&self) -> bool;
}

/// Room for a piece of a long request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForPiece {
    /// It has it.
    Granted,
    /// It holds as many pieces as it may.
    Enough,
    /// There is no room now.
    NoRoom,
}

/// Where the stream stands.
#[derive(Debug)]
enum Phase<M> {
    Between,
    Payload {
        pending: Pending,
        span: ByteSpan,
        fua: bool,
        data: M,
        filled: u64,
    },
    Skip {
        pending: Pending,
        error: Errno,
        left: u64,
    },
    /// Between two pieces of a write's payload.
    Gap,
    /// Within a piece whose payload is discarded.
    SkipPiece {
        left: u64,
    },
}

/// What a request's fixed part leads to.
enum Verdict {
    Serve(Need),
    Refuse(Errno),
    Close(DisconnectReason),
}

/// What a request that can be served needs.
enum Need {
    /// A buffer and, for a write, its payload.
    Buffer,
    /// The same several times.
    Pieces,
    Nothing,
}

/// The transmission phase of one connection.
#[derive(Debug)]
pub struct Transmission<M> {
    size_bytes: u64,
    read_only: bool,
    agreed: Agreed,
    phase: Phase<M>,
    /// A read or write of several pieces. At most one at a time.
    long: Option<Box<Long<M>>>,
}

impl<M: RawMemory> Transmission<M> {
    /// The phase's beginning.
    #[must_use]
    pub fn new(export: &Export, agreed: Agreed) -> Self {
        Self {
            size_bytes: export.size_bytes,
            read_only: export.read_only,
            agreed,
            phase: Phase::Between,
            long: None,
        }
    }

    /// What the handshake agreed on.
    #[must_use]
    pub fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// Whether a payload is under way.
    #[must_use]
    pub fn in_payload(&self) -> bool {
        !matches!(self.phase, Phase::Between)
    }

    /// Whether the client says next that it leaves.
    #[must_use]
    pub fn is_goodbye(&self, input: &[u8]) -> bool {
        let next = input.first_chunk::<{ proto::REQUEST_BYTES }>();
        let request = next.filter(|_| !self.in_payload()).and_then(Request::decode);
        request.is_some_and(|request| request.command == command::DISC)
    }

    /// Takes bytes off the front of `input` until a request is whole; returns how many.
    pub fn step(
        &mut self,
        input: &[u8],
        room: &mut impl Room,
        buffers: &mut impl Buffers<M>,
    ) -> (usize, Step<M>) {
        let mut taken = 0;
        if self.long.is_some()
            && let Some(step) = self.next_piece(input.len(), room, buffers)
        {
            return (0, step);
        }
        if let Phase::Between = self.phase {
            let Some(header) = input.first_chunk::<{ proto::REQUEST_BYTES }>() else {
                return (0, Step::NeedMore);
            };
            let behind = input.len() - header.len();
            if let Some(step) = self.begin(header, behind, room, buffers) {
                let nothing = matches!(step, Step::NeedMore | Step::Wait | Step::Close(_));
                return (if nothing { 0 } else { proto::REQUEST_BYTES }, step);
            }
            taken = proto::REQUEST_BYTES;
            if let Phase::Between | Phase::Gap = self.phase {
                // A long request began; its pieces follow.
                return (taken, Step::GoOn);
            }
        }
        let copied = self.absorb(&input[taken..]);
        (taken + copied, self.finish())
    }

    /// The part of a write's buffer that is still to be filled, for receiving straight into it.
    pub fn payload_room(&mut self) -> Option<&mut [u8]> {
        match &mut self.phase {
            Phase::Payload { span, data, filled, .. } => {
                memory::bytes_mut(data, span.head_bytes() + *filled, span.len - *filled)
            }
            _ => None,
        }
    }

    /// `len` bytes were received into [`Self::payload_room`]; to be followed by [`Self::step`].
    ///
    /// # Panics
    /// If that is more than there was room for.
    pub fn payload_received(&mut self, len: usize) {
        if let Phase::Payload { span, filled, .. } = &mut self.phase {
            *filled += len as u64;
            assert!(*filled <= span.len, "more was received than there was room for");
        }
    }

    /// Gives back the buffers of what will never be whole.
    pub fn abandon(&mut self, buffers: &mut impl Buffers<M>) {
        if let Phase::Payload { data, .. } = std::mem::replace(&mut self.phase, Phase::Between) {
            buffers.give(data);
        }
        if let Some(long) = self.long.take() {
            long.early.into_values().for_each(|(_, _, data)| buffers.give(data));
        }
    }

    /// Judges a request's fixed part, behind which so many bytes have come. `None`: a payload follows.
    fn begin(
        &mut self,
        header: &[u8; proto::REQUEST_BYTES],
        behind: usize,
        room: &mut impl Room,
        buffers: &mut impl Buffers<M>,
    ) -> Option<Step<M>> {
        let Some(request) = Request::decode(header) else {
            return Some(Step::Close(DisconnectReason::RequestMagic));
        };
        let span = ByteSpan::new(request.offset, u64::from(request.len));
        let verdict = self.judge(&request, span);
        let bytes = match verdict {
            // What is under way is answered first.
            Verdict::Close(_) | Verdict::Serve(Need::Pieces) if self.long.is_some() => {
                return Some(Step::Wait);
            }
            Verdict::Close(reason) => return Some(Step::Close(reason)),
            Verdict::Serve(Need::Pieces) => return self.begin_long(&request, span, room),
            Verdict::Serve(Need::Buffer)
                if request.command == command::WRITE && !has_begun(behind, span) =>
            {
                return Some(Step::NeedMore);
            }
            Verdict::Serve(_) if request.command == command::BLOCK_STATUS => EXTENTS_BYTES,
            Verdict::Serve(Need::Buffer) => buffered(&request, span).blocks() * BLOCK_BYTES,
            Verdict::Serve(Need::Nothing) | Verdict::Refuse(_) => 0,
        };
        let changes = matches!(request.command, command::WRITE | command::WRITE_ZEROES);
        let edges = match verdict {
            Verdict::Serve(_) if changes => sectors::edges(span).len() as u64,
            _ => 0,
        };
        // What the engine has of it at a time: the edges are read, or zeroed with what is between.
        let between = request.command == command::WRITE_ZEROES && edges > 0;
        let requests = (edges + u64::from(between)).max(1);
        // A block for each edge that has to be read.
        let load = Load { requests, bytes: bytes + edges * BLOCK_BYTES };
        if !room.reserve(load) {
            return Some(Step::Wait);
        }
        let pending = Pending { cookie: request.cookie, expect: expect(&request, span), load };
        match verdict {
            Verdict::Refuse(error) if request.command == command::WRITE && request.len > 0 => {
                self.phase = Phase::Skip { pending, error, left: u64::from(request.len) };
                None
            }
            Verdict::Refuse(error) => Some(Step::Refuse(pending, error)),
            _ if request.command == command::WRITE => {
                let data = take(buffers, span);
                let fua = request.flags & command_flag::FUA != 0;
                self.phase = Phase::Payload { pending, span, fua, data, filled: 0 };
                None
            }
            _ if edges > 0 => {
                let may_punch = request.flags & command_flag::NO_HOLE == 0;
                let fua = request.flags & command_flag::FUA != 0;
                let with = With::Zeroes { may_punch };
                Some(Step::Modify(pending, Modify { span, fua, with }))
            }
            _ => Some(match command(&request, span, buffers) {
                Some(command) => Step::Request(pending, command),
                None => Step::Answer(pending, Ok(())),
            }),
        }
    }

    /// Whether and how a request can be served.
    fn judge(&self, request: &Request, span: ByteSpan) -> Verdict {
        match self.judge_any(request, span) {
            Verdict::Refuse(_)
                if request.command == command::WRITE && span.len > SKIP_BYTES_MAX =>
            {
                Verdict::Close(DisconnectReason::WriteTooLong)
            }
            verdict => verdict,
        }
    }

    fn judge_any(&self, request: &Request, span: ByteSpan) -> Verdict {
        let (allowed_flags, past_end, changes) = match request.command {
            command::READ => (command_flag::FUA | command_flag::DF, Errno::Invalid, false),
            command::WRITE => (command_flag::FUA, Errno::NoSpace, true),
            command::DISC => return Verdict::Close(DisconnectReason::Requested),
            // Offset and length mean nothing here, whatever a client puts there.
            command::FLUSH if request.flags & !command_flag::FUA == 0 => {
                return Verdict::Serve(Need::Nothing);
            }
            command::TRIM => (command_flag::FUA, Errno::Invalid, true),
            command::CACHE => (command_flag::FUA, Errno::Invalid, false),
            command::WRITE_ZEROES => {
                (command_flag::FUA | command_flag::NO_HOLE, Errno::NoSpace, true)
            }
            command::BLOCK_STATUS if self.agreed.block_status => {
                (command_flag::FUA | command_flag::REQ_ONE, Errno::Invalid, false)
            }
            _ => return Verdict::Refuse(Errno::Invalid),
        };
        let df = request.flags & command_flag::DF != 0;
        if request.flags & !allowed_flags != 0 || (df && !self.agreed.structured) {
            return Verdict::Refuse(Errno::Invalid);
        }
        if changes && self.read_only {
            return Verdict::Refuse(Errno::NotPermitted);
        }
        if span.len == 0 {
            return Verdict::Refuse(Errno::Invalid);
        }
        if span.offset.checked_add(span.len).is_none_or(|end| end > self.size_bytes) {
            return Verdict::Refuse(past_end);
        }
        let moves_data = [command::READ, command::WRITE, command::CACHE];
        if !moves_data.contains(&request.command) {
            Verdict::Serve(Need::Nothing)
        } else if buffered(request, span).len <= DATA_BYTES_MAX {
            Verdict::Serve(Need::Buffer)
        } else if df && span.len > DATA_BYTES_MAX {
            // One chunk of it would leave no way to tell of an error in its middle.
            Verdict::Refuse(Errno::Overflow)
        } else {
            Verdict::Serve(Need::Pieces)
        }
    }

    /// Takes payload bytes; returns how many.
    fn absorb(&mut self, input: &[u8]) -> usize {
        match &mut self.phase {
            Phase::Between | Phase::Gap => 0,
            Phase::Payload { .. } => {
                let room = self.payload_room().expect("a buffer covers its span, checked by take");
                let len = room.len().min(input.len());
                room[..len].copy_from_slice(&input[..len]);
                self.payload_received(len);
                len
            }
            Phase::Skip { left, .. } | Phase::SkipPiece { left } => {
                let len = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= len as u64;
                len
            }
        }
    }

    /// The request, if its payload is whole.
    fn finish(&mut self) -> Step<M> {
        match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Payload { pending, span, fua, data, filled } if filled == span.len => {
                if let Expect::Piece(_) = pending.expect {
                    self.piece_received();
                }
                if sectors::are_whole(span) {
                    Step::Request(pending, Command::Engine(Op::Write { span, data, fua }))
                } else {
                    Step::Modify(pending, Modify { span, fua, with: With::Data(Some(data)) })
                }
            }
            Phase::Skip { pending, error, left: 0 } => Step::Refuse(pending, error),
            Phase::SkipPiece { left: 0 } => self.piece_skipped(),
            unfinished => {
                self.phase = unfinished;
                Step::NeedMore
            }
        }
    }
}

/// Whether of the payload for `span` as much has come as its buffer is taken for: a header alone costs its client
/// nothing.
fn has_begun(come: usize, span: ByteSpan) -> bool {
    come as u64 >= span.len.min(PAYLOAD_BEGUN_BYTES as u64)
}

/// A buffer for `span`.
fn take<M: RawMemory>(buffers: &mut impl Buffers<M>, span: ByteSpan) -> M {
    let blocks = u32::try_from(span.blocks()).expect("requests with data are at most 32 MiB");
    let data = buffers.take(blocks);
    assert!(data.len_bytes() >= span.blocks() * BLOCK_BYTES, "the pool gave a short buffer");
    data
}

fn expect(request: &Request, span: ByteSpan) -> Expect {
    match request.command {
        command::READ => Expect::Data(span),
        command::BLOCK_STATUS => {
            Expect::Extents { span, only_first: request.flags & command_flag::REQ_ONE != 0 }
        }
        _ => Expect::Done,
    }
}

/// The sectors of which a request has the data in a buffer.
fn buffered(request: &Request, span: ByteSpan) -> ByteSpan {
    match request.command {
        // Only advice: as much as one request may have is plenty.
        command::CACHE if sectors::around(span).len > DATA_BYTES_MAX => {
            sectors::around(ByteSpan::new(span.offset, CACHE_BYTES_MAX))
        }
        _ => sectors::around(span),
    }
}

/// The command of a request that was judged fit, writes excepted; `None`: there is nothing to do.
fn command<M: RawMemory>(
    request: &Request,
    span: ByteSpan,
    buffers: &mut impl Buffers<M>,
) -> Option<Command<M>> {
    let fua = request.flags & command_flag::FUA != 0;
    // Not of a flush: its offset and length mean nothing and may be anything.
    let around = || buffered(request, span);
    Some(match request.command {
        command::READ => {
            let span = around();
            Command::Engine(Op::Read { span, data: take(buffers, span) })
        }
        command::CACHE => {
            let span = around();
            Command::Prefetch { span, data: take(buffers, span) }
        }
        // Of a sector that is not given up as a whole nothing is.
        command::TRIM => Command::Engine(Op::Trim { span: sectors::within(span)?, fua }),
        command::WRITE_ZEROES => {
            let may_punch = request.flags & command_flag::NO_HOLE == 0;
            Command::Engine(Op::WriteZeroes { span, fua, may_punch })
        }
        command::BLOCK_STATUS => {
            let only_first = request.flags & command_flag::REQ_ONE != 0;
            Command::BlockStatus { span: around(), only_first }
        }
        _ => Command::Engine(Op::Flush),
    })
}
