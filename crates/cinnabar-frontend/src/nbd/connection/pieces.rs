//! Pieces of long reads and writes that are done: gathered, and sent in the order that the reply needs.

use super::{Connection, Phase};
use crate::nbd::load::Load;
use crate::nbd::long::{Kind, PIECES_MAX};
use crate::nbd::proto::Errno;
use crate::nbd::reason::DisconnectReason;
use crate::nbd::reply;
use crate::nbd::request::{Body, Buffers};
use crate::nbd::shared::Shared;
use crate::nbd::transmission::{Expect, Pending};
use cinnabar_engine::seam::units::ByteSpan;
use cinnabar_engine::seam::{Failure, RawMemory};

impl<M: RawMemory> Connection<M> {
    /// Whether its long request, or a long answer, comes before anything else is received.
    pub(super) fn has_piece(&self) -> bool {
        match &self.phase {
            Phase::Handshake(handshake) => handshake.is_listing(),
            Phase::Transmission(stream) => stream.is_before_others(),
        }
    }

    /// Whether its long request can go on though nothing was received.
    pub(in crate::nbd) fn may_go_on(&self) -> bool {
        let goes_on = self.closing.is_none() || self.is_owed_pieces();
        self.has_piece() && goes_on && !self.paused && self.pieces < PIECES_MAX
    }

    /// Whether pieces of a long read are still to be asked for though it takes no more requests. (The
    /// payload of a long write never comes then.)
    pub(super) fn is_owed_pieces(&self) -> bool {
        self.in_long_read() && self.has_piece()
    }

    /// Whether a long read is under way.
    pub(super) fn in_long_read(&self) -> bool {
        match &self.phase {
            Phase::Handshake(_) => false,
            Phase::Transmission(stream) => stream.in_long_read(),
        }
    }

    /// A piece of its long request is done.
    ///
    /// # Errors
    /// It failed when the data in front of it were sent, and there is no way to tell the client.
    pub(in crate::nbd) fn piece_done(
        &mut self,
        pending: &Pending,
        result: Result<Body<M>, Failure>,
        shared: &mut Shared,
        buffers: &mut impl Buffers<M>,
    ) -> Result<(), DisconnectReason> {
        self.in_engine -= pending.load();
        let Phase::Transmission(stream) = &mut self.phase else { return Ok(()) };
        let (Some(long), Expect::Piece(span)) = (stream.long_mut(), pending.expect) else {
            debug_assert!(false, "a long request lasts as long as its pieces");
            return Ok(());
        };
        long.asked -= 1;
        if let Kind::Write { .. } = long.kind {
            match result {
                Ok(Body::Data(data)) => buffers.give(data),
                Ok(_) => {}
                Err(failure) => {
                    long.fail(reply::errno(failure));
                }
            }
            let done = stream.long_write_done();
            self.let_go(pending.load(), shared);
            if let Some((pending, result)) = done {
                shared.stats.requests += 1;
                self.output.push(reply::done(&pending, result));
            }
            return Ok(());
        }
        let error = match result {
            Ok(Body::Data(data)) if long.failure.is_none() && reply::has(&data, span) => {
                self.send_piece(pending, span, data, shared);
                return Ok(());
            }
            // The engine always returns a read's buffer; without it there is nothing to send.
            Ok(body) => {
                if let Body::Data(data) = body {
                    buffers.give(data);
                }
                Errno::Io
            }
            Err(failure) => reply::errno(failure),
        };
        self.fail_read(pending, error, shared, buffers)
    }

    /// What a piece held is free again.
    fn let_go(&mut self, load: Load, shared: &mut Shared) {
        self.pieces -= 1;
        self.load -= load;
        if let Some(export) = self.export {
            shared.release(export, load);
        }
    }

    /// Queues what was read, as soon as the reply's form allows.
    fn send_piece(&mut self, pending: &Pending, span: ByteSpan, data: M, shared: &mut Shared) {
        let Phase::Transmission(stream) = &mut self.phase else { return };
        let agreed = stream.agreed();
        let Some(long) = stream.long_mut() else { return };
        if let Kind::Chunks = long.kind {
            self.output.push(reply::chunk_of(pending, span, data, long.is_over()));
        } else {
            long.early.insert(span.offset, (*pending, span, data));
            while let Some((pending, span, data)) = long.early.remove(&long.next) {
                let whole = (span.offset == long.whole.offset).then_some(long.whole);
                self.output.push(reply::part_of(agreed, &pending, whole, span, data));
                long.next = span.end();
            }
        }
        if long.is_over() {
            stream.end_long();
            shared.stats.requests += 1;
        }
    }

    /// A piece can't be read.
    fn fail_read(
        &mut self,
        pending: &Pending,
        error: Errno,
        shared: &mut Shared,
        buffers: &mut impl Buffers<M>,
    ) -> Result<(), DisconnectReason> {
        let Phase::Transmission(stream) = &mut self.phase else { return Ok(()) };
        let agreed = stream.agreed();
        let Some(long) = stream.long_mut() else { return Ok(()) };
        if long.next > long.whole.offset {
            return Err(DisconnectReason::ReadFailed);
        }
        let error = long.fail(error);
        let early = std::mem::take(&mut long.early);
        if long.asked == 0 {
            stream.end_long();
            shared.stats.requests += 1;
            let (entry, _) = reply::encode(agreed, pending, Err(error));
            self.output.push(entry);
        } else {
            self.let_go(pending.load(), shared);
        }
        for (pending, _, data) in early.into_values() {
            buffers.give(data);
            self.let_go(pending.load(), shared);
        }
        Ok(())
    }
}
