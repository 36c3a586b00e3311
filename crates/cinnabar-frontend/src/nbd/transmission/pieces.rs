//! Long requests within the stream: they begin, and piece after piece is handed out.

use super::{
    Command, Expect, ForPiece, Op, Pending, Phase, Room, Step, Transmission, has_begun, take,
};
use crate::nbd::load::Load;
use crate::nbd::long::{Kind, Long};
use crate::nbd::proto::{Errno, Request, command, command_flag};
use crate::nbd::request::Buffers;
use crate::nbd::sectors;
use cinnabar_engine::seam::RawMemory;
use cinnabar_engine::seam::units::ByteSpan;

impl<M: RawMemory> Transmission<M> {
    /// The long request under way.
    pub(in crate::nbd) fn long_mut(&mut self) -> Option<&mut Long<M>> {
        self.long.as_deref_mut()
    }

    /// It is answered.
    pub(in crate::nbd) fn end_long(&mut self) {
        self.long = None;
    }

    /// Whether the long request has to go on, or to be over, before anything else is received.
    pub(in crate::nbd) fn is_before_others(&self) -> bool {
        let before = |long: &Long<M>| match long.kind {
            // Its next piece is taken with its first bytes.
            Kind::Write { .. } => false,
            Kind::Chunks => long.piece().is_some() && matches!(self.phase, Phase::Between),
            Kind::Ordered => true,
        };
        self.long.as_deref().is_some_and(before)
    }

    /// Whether a long read is under way.
    pub(in crate::nbd) fn in_long_read(&self) -> bool {
        let reads = |long: &Long<M>| !matches!(long.kind, Kind::Write { .. });
        self.long.as_deref().is_some_and(reads)
    }

    /// No more of the stream comes: within a long read, gives up another request whose payload is not
    /// whole, for pieces wait for that. Returns what it held.
    pub(in crate::nbd) fn forget_payload(&mut self, buffers: &mut impl Buffers<M>) -> Option<Load> {
        if !self.in_long_read() {
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Payload { pending, data, .. } => {
                buffers.give(data);
                Some(pending.load())
            }
            Phase::Skip { pending, .. } => Some(pending.load()),
            Phase::Between | Phase::Gap | Phase::SkipPiece { .. } => None,
        }
    }

    /// Begins a long request. `None`: its pieces follow.
    pub(super) fn begin_long(
        &mut self,
        request: &Request,
        span: ByteSpan,
        room: &impl Room,
    ) -> Option<Step<M>> {
        let one_chunk = request.flags & command_flag::DF != 0;
        let kind = if request.command == command::WRITE {
            // Its reply holds nothing: those that wait for room for a piece must not take what another
            // one's piece needs.
            self.phase = Phase::Gap;
            let fua = request.flags & command_flag::FUA != 0;
            Kind::Write { fua, incoming: true }
        } else if self.agreed.structured && !one_chunk {
            Kind::Chunks
        } else if room.is_quiet() {
            Kind::Ordered
        } else {
            // Replies to what came before it would have to wait for its end, and it for their room.
            return Some(Step::Wait);
        };
        self.long = Some(Box::new(Long::new(request.cookie, kind, span)));
        None
    }

    /// Hands out the next piece of the long request, or makes ready to receive it, of which `come` bytes are here.
    /// `None`: the stream goes on.
    pub(super) fn next_piece(
        &mut self,
        come: usize,
        room: &mut impl Room,
        buffers: &mut impl Buffers<M>,
    ) -> Option<Step<M>> {
        let long = self.long.as_deref_mut()?;
        let is_next = match long.kind {
            Kind::Write { .. } => matches!(self.phase, Phase::Gap),
            // A payload under way goes first: its buffer would be held for as long as the piece waits.
            Kind::Chunks | Kind::Ordered => matches!(self.phase, Phase::Between),
        };
        if !is_next {
            return None;
        }
        // Nothing else is answered within an ordered one.
        let otherwise = |long: &Long<M>| matches!(long.kind, Kind::Ordered).then_some(Step::Wait);
        let Some(span) = long.piece() else { return otherwise(long) };
        if long.failure.is_some() {
            long.advance(span);
            self.phase = Phase::SkipPiece { left: span.len };
            return None;
        }
        if matches!(long.kind, Kind::Write { .. }) && !has_begun(come, span) {
            return Some(Step::NeedMore);
        }
        let load = long.load(span);
        match room.reserve_piece(load) {
            ForPiece::Granted => {}
            ForPiece::Enough if matches!(long.kind, Kind::Chunks) => return None,
            ForPiece::Enough | ForPiece::NoRoom => return Some(Step::Wait),
        }
        let pending = Pending { cookie: long.cookie, expect: Expect::Piece(span), load };
        long.advance(span);
        if let Kind::Write { fua, .. } = long.kind {
            let data = take(buffers, span);
            self.phase = Phase::Payload { pending, span, fua, data, filled: 0 };
            return None;
        }
        long.asked += 1;
        let span = sectors::around(span);
        let data = take(buffers, span);
        Some(Step::Request(pending, Command::Engine(Op::Read { span, data })))
    }

    /// A piece of the payload is whole.
    pub(super) fn piece_received(&mut self) {
        let Some(long) = self.long.as_deref_mut() else { return };
        long.asked += 1;
        long.received();
        if long.piece().is_some() {
            self.phase = Phase::Gap;
        }
    }

    /// A piece of the payload is skipped.
    pub(super) fn piece_skipped(&mut self) -> Step<M> {
        let Some(long) = self.long.as_deref_mut() else { return Step::GoOn };
        long.received();
        if long.piece().is_some() {
            self.phase = Phase::Gap;
            return Step::GoOn;
        }
        match self.long_write_done() {
            Some((pending, result)) => Step::Answer(pending, result),
            None => Step::GoOn,
        }
    }

    /// The reply to a long write, if all of it came and what was handed out is done.
    pub(in crate::nbd) fn long_write_done(&mut self) -> Option<(Pending, Result<(), Errno>)> {
        let long = self.long.as_deref()?;
        if !matches!(long.kind, Kind::Write { .. }) || !long.is_over() {
            return None;
        }
        let load = Load::default();
        let pending = Pending { cookie: long.cookie, expect: Expect::Done, load };
        let result = long.failure.map_or(Ok(()), Err);
        self.long = None;
        Some((pending, result))
    }
}
