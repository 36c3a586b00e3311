//! Reads and writes longer than the engine takes, carried out piece by piece.
//!
//! A piece asks for room as a request of its own does, so to others a long request is a row of
//! ordinary ones. A connection has one at a time, and holds three pieces of it at most.
//!
//! A write's payload is taken piece by piece; after an error the rest is skipped. A read with
//! structured replies has a chunk for each piece, in the order in which they are done, and the
//! connection's other requests go on meanwhile. Otherwise the data follow one head in order, so nothing
//! else may be answered in between: such a read has the connection to itself.

use super::load::Load;
use super::proto::Errno;
use super::sectors;
use super::transmission::Pending;
use cinnabar_engine::seam::units::{BLOCK_BYTES, ByteSpan};
use std::collections::BTreeMap;

/// Pieces end at multiples of this.
pub(super) const PIECE_BYTES: u64 = 8 << 20;
/// Pieces of one connection that are received, in the engine or on their way out.
pub(super) const PIECES_MAX: u32 = 3;

/// How it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With a word when all is written.
    Write {
        /// Durable before the reply.
        fua: bool,
        /// Some of the payload has not come.
        incoming: bool,
    },
    /// With a chunk for each piece.
    Chunks,
    /// With one head and all pieces in order.
    Ordered,
}

/// A long request under way.
#[derive(Debug)]
pub(super) struct Long<M> {
    pub(super) cookie: u64,
    pub(super) kind: Kind,
    pub(super) whole: ByteSpan,
    /// What was not handed out yet.
    rest: ByteSpan,
    /// Pieces that the engine has.
    pub(super) asked: u32,
    pub(super) failure: Option<Errno>,
    /// Pieces that are done before those in front of them, by their first byte.
    pub(super) early: BTreeMap<u64, (Pending, ByteSpan, M)>,
    /// The first byte of which nothing was sent.
    pub(super) next: u64,
}

impl<M> Long<M> {
    pub(super) const fn new(cookie: u64, kind: Kind, whole: ByteSpan) -> Self {
        Self {
            cookie,
            kind,
            whole,
            rest: whole,
            asked: 0,
            failure: None,
            early: BTreeMap::new(),
            next: whole.offset,
        }
    }

    /// The next piece; `None` if all were handed out.
    pub(super) fn piece(&self) -> Option<ByteSpan> {
        let ByteSpan { offset, len } = self.rest;
        let most = PIECE_BYTES - offset % PIECE_BYTES;
        if len == 0 { None } else { Some(ByteSpan::new(offset, len.min(most))) }
    }

    /// The first bytes of the rest are handed out.
    pub(super) const fn advance(&mut self, piece: ByteSpan) {
        self.rest = ByteSpan::new(piece.end(), self.rest.len - piece.len);
    }

    /// A piece of a write's payload has come, or was skipped.
    pub(super) const fn received(&mut self) {
        if let Kind::Write { incoming, .. } = &mut self.kind {
            *incoming = self.rest.len > 0;
        }
    }

    /// A piece can't be read or written: the rest is not even tried. Returns the first piece's error.
    pub(super) fn fail(&mut self, error: Errno) -> Errno {
        if !matches!(self.kind, Kind::Write { .. }) {
            self.rest.len = 0;
        }
        *self.failure.get_or_insert(error)
    }

    /// Whether nothing is left to be handed out, received or done.
    pub(super) const fn is_over(&self) -> bool {
        let incoming = matches!(self.kind, Kind::Write { incoming: true, .. });
        self.asked == 0 && self.rest.len == 0 && !incoming
    }

    /// What a piece holds: its buffer, and room for the sector that a write changes a part of.
    pub(super) fn load(&self, piece: ByteSpan) -> Load {
        let writes = matches!(self.kind, Kind::Write { .. });
        let edges = if writes { sectors::edges(piece).len() as u64 } else { 0 };
        let blocks = sectors::around(piece).blocks() + edges;
        Load { requests: edges.max(1), bytes: blocks * BLOCK_BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_it_all_and_only_the_ends_are_parts_of_sectors() {
        let whole = ByteSpan::new(PIECE_BYTES - 1, 3 * PIECE_BYTES + 5);
        let mut long = Long::<()>::new(1, Kind::Chunks, whole);
        let mut pieces = Vec::new();
        while let Some(piece) = long.piece() {
            long.advance(piece);
            pieces.push(piece);
        }
        let lens: Vec<u64> = pieces.iter().map(|piece| piece.len).collect();
        assert_eq!(lens, [1, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 4]);
        let mut at = whole.offset;
        for piece in pieces {
            assert_eq!(piece.offset, at);
            assert!(sectors::edges(piece).len() < 2);
            at = piece.end();
        }
        assert_eq!(at, whole.end());
        assert!(long.is_over());
    }
}
