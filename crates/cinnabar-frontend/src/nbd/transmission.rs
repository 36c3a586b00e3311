//! The transmission phase as a state machine: bytes in, requests out.
//!
//! Called by the connection, by fuzzing and by tests. Requests are checked here once and for all:
//! what comes out is aligned, not empty and within the export. A client may begin and end at any byte:
//! reads are carried out around what it asked for, trims within, and changes of parts of sectors come
//! out as [`Step::Modify`]. Reads and writes of more than 32 MiB are refused, as the protocol allows;
//! requests without data may have any length.
//!
//! A request that can't be served is answered with an error and the stream goes on, its payload
//! skipped. Only two things end the connection: a wrong magic, after which nothing can be trusted,
//! and a write of more than twice the maximum, whose payload would be up to 4 GiB to skip.

use super::export::Export;
use super::handshake::Agreed;
use super::memory;
use super::proto::{self, Errno, Request, command, command_flag};
use super::reason::DisconnectReason;
use super::request::{Buffers, Command};
use super::sectors;
use cinnabar_engine::limits::DATA_BYTES_MAX;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES};
use cinnabar_engine::{Op, RawMemory};

pub use super::load::Load;

/// Payload of a write that is too long, to be skipped; of a longer one the connection ends.
const SKIP_BYTES_MAX: u64 = 2 * DATA_BYTES_MAX;
/// Bytes brought in at most for one request to read ahead.
const CACHE_BYTES_MAX: u64 = DATA_BYTES_MAX - SECTOR_BYTES;

/// What a reply is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No data.
    Done,
    /// The data of a read.
    Data(ByteSpan),
    /// Extents.
    Extents {
        /// Bytes asked about.
        span: ByteSpan,
        /// Only the first extent.
        only_first: bool,
    },
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
    /// There is no room for the next request; nothing was taken.
    Wait,
    /// A whole request.
    Request(Pending, Command<M>),
    /// A whole request that changes parts of sectors.
    Modify(Pending, Modify<M>),
    /// A request that is done already.
    Answer(Pending),
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
    /// To what.
    pub with: With<M>,
}

/// What bytes change to.
#[derive(Clone, Debug)]
pub enum With<M> {
    /// The data of a write, at their place within the blocks around.
    Data(Option<M>),
    /// Zeros.
    Zeroes {
        /// Whole sectors may be deallocated.
        may_punch: bool,
    },
}

/// Grants room for one more request of a client, or not now.
pub trait Room {
    /// Called once for each request when its fixed part has come, and again later after a refusal.
    fn reserve(&mut self, more: Load) -> bool;
}

/// Where the stream stands.
#[derive(Debug)]
enum Phase<M> {
    Between,
    Payload { pending: Pending, span: ByteSpan, fua: bool, data: M, filled: u64 },
    Skip { pending: Pending, error: Errno, left: u64 },
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
    Nothing,
}

/// The transmission phase of one connection.
#[derive(Debug)]
pub struct Transmission<M> {
    size_bytes: u64,
    read_only: bool,
    agreed: Agreed,
    phase: Phase<M>,
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

    /// Takes bytes off the front of `input` until a request is whole; returns how many.
    pub fn step(
        &mut self,
        input: &[u8],
        room: &mut impl Room,
        buffers: &mut impl Buffers<M>,
    ) -> (usize, Step<M>) {
        let mut taken = 0;
        if let Phase::Between = self.phase {
            let Some(header) = input.first_chunk::<{ proto::REQUEST_BYTES }>() else {
                return (0, Step::NeedMore);
            };
            if let Some(step) = self.begin(header, room, buffers) {
                let nothing = matches!(step, Step::Wait | Step::Close(_));
                return (if nothing { 0 } else { proto::REQUEST_BYTES }, step);
            }
            taken = proto::REQUEST_BYTES;
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
            Phase::Between | Phase::Skip { .. } => None,
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

    /// Takes the buffer of a write that will never be whole.
    pub fn abandon(&mut self) -> Option<M> {
        match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Payload { data, .. } => Some(data),
            Phase::Between | Phase::Skip { .. } => None,
        }
    }

    /// Judges a request's fixed part. `None`: a payload follows.
    fn begin(
        &mut self,
        header: &[u8; proto::REQUEST_BYTES],
        room: &mut impl Room,
        buffers: &mut impl Buffers<M>,
    ) -> Option<Step<M>> {
        let Some(request) = Request::decode(header) else {
            return Some(Step::Close(DisconnectReason::RequestMagic));
        };
        let span = ByteSpan::new(request.offset, u64::from(request.len));
        let verdict = self.judge(&request, span);
        let bytes = match verdict {
            Verdict::Close(reason) => return Some(Step::Close(reason)),
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
                None => Step::Answer(pending),
            }),
        }
    }

    /// Whether and how a request can be served.
    fn judge(&self, request: &Request, span: ByteSpan) -> Verdict {
        let data_bytes_max = DATA_BYTES_MAX;
        let (allowed_flags, past_end, changes) = match request.command {
            command::READ => (command_flag::FUA | command_flag::DF, Errno::Invalid, false),
            command::WRITE if span.len > SKIP_BYTES_MAX => {
                return Verdict::Close(DisconnectReason::WriteTooLong);
            }
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
        } else if buffered(request, span).len <= data_bytes_max {
            Verdict::Serve(Need::Buffer)
        } else {
            Verdict::Refuse(Errno::Overflow)
        }
    }

    /// Takes payload bytes; returns how many.
    fn absorb(&mut self, input: &[u8]) -> usize {
        match &mut self.phase {
            Phase::Between => 0,
            Phase::Payload { .. } => {
                let room = self.payload_room().expect("a buffer covers its span, checked by take");
                let len = room.len().min(input.len());
                room[..len].copy_from_slice(&input[..len]);
                self.payload_received(len);
                len
            }
            Phase::Skip { left, .. } => {
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
                if sectors::are_whole(span) {
                    Step::Request(pending, Command::Engine(Op::Write { span, data, fua }))
                } else {
                    Step::Modify(pending, Modify { span, fua, with: With::Data(Some(data)) })
                }
            }
            Phase::Skip { pending, error, left: 0 } => Step::Refuse(pending, error),
            unfinished => {
                self.phase = unfinished;
                Step::NeedMore
            }
        }
    }
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
