//! Replies as they go onto the wire.
//!
//! Pure.

use super::handshake::Agreed;
use super::limits::EXTENTS_MAX;
use super::memory;
use super::output::{Entry, Tail};
use super::proto::{self, Errno, allocation, chunk};
use super::request::{Body, Extent, ExtentKind};
use super::transmission::{Expect, Pending};
use cinnabar_engine::seam::units::{ByteSpan, SECTOR_BYTES};
use cinnabar_engine::seam::{Failure, IoError, RawMemory};

/// The protocol's error for a failure.
pub(super) const fn errno(failure: Failure) -> Errno {
    match failure {
        // Only commands are interrupted.
        Failure::Io(IoError::Io | IoError::TimedOut) | Failure::Interrupted => Errno::Io,
        Failure::Io(IoError::NoSpace) => Errno::NoSpace,
        Failure::Io(IoError::ReadOnly) | Failure::ReadOnly => Errno::NotPermitted,
        Failure::Io(IoError::Unsupported) => Errno::Unsupported,
        Failure::Invalid => Errno::Invalid,
        Failure::NoVolume => Errno::Shutdown,
        Failure::Limit => Errno::NoMemory,
    }
}

/// The reply to `pending`, and the buffer that is not part of it, if there is one.
pub(super) fn encode<M: RawMemory>(
    agreed: Agreed,
    pending: &Pending,
    result: Result<Body<M>, Errno>,
) -> (Entry<M>, Option<M>) {
    let body = match result {
        Ok(body) => body,
        Err(error) => return (failed(agreed, pending, error), None),
    };
    match (pending.expect, body) {
        (Expect::Data(span), Body::Data(buffer)) => data(agreed, pending, span, buffer),
        // The engine always returns a read's buffer; without it there is nothing to send.
        (Expect::Data(_), _) => (failed(agreed, pending, Errno::Io), None),
        (Expect::Extents { span, only_first }, body) => {
            let (extents, spare) = match body {
                Body::Extents(extents) => (extents, None),
                Body::Data(buffer) => (Vec::new(), Some(buffer)),
                Body::Done => (Vec::new(), None),
            };
            (block_status(pending, span, only_first, &extents), spare)
        }
        (Expect::Done | Expect::Piece(_), Body::Data(buffer)) => (simple(pending, 0), Some(buffer)),
        (Expect::Done | Expect::Piece(_), _) => (simple(pending, 0), None),
    }
}

/// The reply to a write of several pieces.
pub(super) fn done<M>(pending: &Pending, result: Result<(), Errno>) -> Entry<M> {
    simple(pending, result.map_or_else(|error| error as u32, |()| 0))
}

/// Whether a buffer has the data of `span`.
pub(super) fn has<M: RawMemory>(buffer: &M, span: ByteSpan) -> bool {
    memory::bytes(buffer, span.head_bytes(), span.len).is_some()
}

/// A piece of a long read as a chunk of its own. It has the data, see [`has`].
pub(super) fn chunk_of<M>(pending: &Pending, span: ByteSpan, buffer: M, last: bool) -> Entry<M> {
    let mut entry = data_head(pending, span, if last { chunk::DONE } else { 0 });
    entry.tail = Tail::Buffer { buffer, at: span.head_bytes(), len: span.len };
    entry
}

/// A piece of a long read that is answered in one go; the first one has the head of the `whole`.
pub(super) fn part_of<M>(
    agreed: Agreed,
    pending: &Pending,
    whole: Option<ByteSpan>,
    span: ByteSpan,
    buffer: M,
) -> Entry<M> {
    let mut entry = match whole {
        None => empty(pending),
        Some(whole) if agreed.structured => data_head(pending, whole, chunk::DONE),
        Some(_) => simple(pending, 0),
    };
    entry.tail = Tail::Buffer { buffer, at: span.head_bytes(), len: span.len };
    entry
}

fn data<M: RawMemory>(
    agreed: Agreed,
    pending: &Pending,
    span: ByteSpan,
    buffer: M,
) -> (Entry<M>, Option<M>) {
    if !has(&buffer, span) {
        return (failed(agreed, pending, Errno::Io), Some(buffer));
    }
    (part_of(agreed, pending, Some(span), span, buffer), None)
}

fn failed<M>(agreed: Agreed, pending: &Pending, error: Errno) -> Entry<M> {
    // Only reads and block status must be answered in the structured way; the simple one is
    // shorter.
    if !agreed.structured || pending.expect == Expect::Done {
        return simple(pending, error as u32);
    }
    let mut entry = chunk_head(pending, chunk::DONE, chunk::ERROR, 6);
    entry.put(&(error as u32).to_be_bytes());
    entry.put(&0_u16.to_be_bytes());
    entry
}

fn simple<M>(pending: &Pending, error: u32) -> Entry<M> {
    let mut entry = empty(pending);
    entry.put(&proto::SIMPLE_REPLY_MAGIC.to_be_bytes());
    entry.put(&error.to_be_bytes());
    entry.put(&pending.cookie.to_be_bytes());
    entry
}

/// A reply without anything yet.
fn empty<M>(pending: &Pending) -> Entry<M> {
    let mut entry = Entry::new(pending.load);
    entry.is_piece = matches!(pending.expect, Expect::Piece(_));
    entry
}

/// The head of a chunk of data.
fn data_head<M>(pending: &Pending, span: ByteSpan, flags: u16) -> Entry<M> {
    let mut entry = chunk_head(pending, flags, chunk::OFFSET_DATA, 8 + span.len);
    entry.put(&span.offset.to_be_bytes());
    entry
}

fn chunk_head<M>(pending: &Pending, flags: u16, kind: u16, len: u64) -> Entry<M> {
    let len = u32::try_from(len).expect("a chunk is at most 32 MiB and a bit");
    let mut entry = empty(pending);
    entry.put(&proto::STRUCTURED_REPLY_MAGIC.to_be_bytes());
    entry.put(&flags.to_be_bytes());
    entry.put(&kind.to_be_bytes());
    entry.put(&pending.cookie.to_be_bytes());
    entry.put(&len.to_be_bytes());
    entry
}

fn block_status<M>(
    pending: &Pending,
    span: ByteSpan,
    only_first: bool,
    extents: &[Extent],
) -> Entry<M> {
    let extents = clip(span, only_first, extents);
    let len = 4 + 8 * extents.len() as u64;
    let mut entry = chunk_head(pending, chunk::DONE, chunk::BLOCK_STATUS, len);
    entry.put(&allocation::ID.to_be_bytes());
    let mut tail = Vec::with_capacity(8 * extents.len());
    for (len, flags) in extents {
        tail.extend_from_slice(&len.to_be_bytes());
        tail.extend_from_slice(&flags.to_be_bytes());
    }
    entry.tail = Tail::Bytes(tail);
    entry
}

/// Extents as the protocol wants them: at least one, none empty, neighbours different, none beyond
/// the span. A client asks again for what is missing at the end.
fn clip(span: ByteSpan, only_first: bool, extents: &[Extent]) -> Vec<(u32, u32)> {
    let mut clipped: Vec<(u64, u32)> = Vec::new();
    let mut left = span.len;
    // They begin with a sector, and the span maybe in its middle.
    let mut skip = span.offset % SECTOR_BYTES;
    for extent in extents {
        let skipped = skip.min(extent.len);
        skip -= skipped;
        let len = (extent.len - skipped).min(left);
        if len == 0 {
            continue;
        }
        let flags = match extent.kind {
            ExtentKind::Data => 0,
            ExtentKind::Zero => allocation::ZERO,
            ExtentKind::Hole => allocation::HOLE | allocation::ZERO,
        };
        let full = clipped.len() == if only_first { 1 } else { EXTENTS_MAX };
        match clipped.last_mut() {
            Some((last, same)) if *same == flags => *last += len,
            _ if full => break,
            _ => clipped.push((len, flags)),
        }
        left -= len;
    }
    if clipped.is_empty() {
        clipped.push((span.len, 0));
    }
    // A span asked about is at most 4 GiB less one byte, so every length fits.
    clipped.into_iter().map(|(len, flags)| (len as u32, flags)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn extent(len: u64, kind: ExtentKind) -> Extent {
        Extent { len, kind }
    }

    #[test]
    fn extents_are_merged_and_cut_to_the_span() {
        let span = ByteSpan::new(4096, 4096);
        let given = [
            extent(0, ExtentKind::Zero),
            extent(512, ExtentKind::Data),
            extent(512, ExtentKind::Data),
            extent(1024, ExtentKind::Hole),
            extent(1 << 40, ExtentKind::Zero),
        ];
        assert_eq!(clip(span, false, &given), [(1024, 0), (1024, 3), (2048, 2)]);
        assert_eq!(clip(span, true, &given), [(1024, 0)]);
    }

    #[test]
    fn extents_of_a_span_within_sectors_are_cut_at_both_ends() {
        let given = [extent(512, ExtentKind::Hole), extent(1024, ExtentKind::Data)];
        assert_eq!(clip(ByteSpan::new(100, 1000), false, &given), [(412, 3), (588, 0)]);
    }

    #[test]
    fn nothing_known_is_data() {
        let span = ByteSpan::new(0, 1 << 31);
        assert_eq!(clip(span, false, &[]), [(1 << 31, 0)]);
    }

    #[test]
    fn extents_are_bounded() {
        let given: Vec<Extent> = (0..5000)
            .map(|at| extent(512, if at % 2 == 0 { ExtentKind::Data } else { ExtentKind::Hole }))
            .collect();
        assert_eq!(clip(ByteSpan::new(0, 5000 * 512), false, &given).len(), EXTENTS_MAX);
    }
}
