//! Bytes as clients ask for them, and sectors as the engine takes them.
//!
//! A client that agreed on no block size may begin and end anywhere (the protocol's default smallest
//! block is one byte); the engine takes whole sectors of 512 bytes.

use cinnabar_engine::seam::units::{ByteSpan, SECTOR_BYTES};
use smallvec::SmallVec;

/// Whether it is whole sectors.
pub(super) const fn are_whole(span: ByteSpan) -> bool {
    (span.offset | span.len).is_multiple_of(SECTOR_BYTES)
}

/// The sectors that it touches.
pub(super) const fn around(span: ByteSpan) -> ByteSpan {
    let offset = span.offset - span.offset % SECTOR_BYTES;
    ByteSpan::new(offset, span.end().next_multiple_of(SECTOR_BYTES) - offset)
}

/// The sectors that it covers; `None` if there are none.
pub(super) const fn within(span: ByteSpan) -> Option<ByteSpan> {
    let offset = span.offset.next_multiple_of(SECTOR_BYTES);
    let end = span.end() - span.end() % SECTOR_BYTES;
    if offset < end { Some(ByteSpan::new(offset, end - offset)) } else { None }
}

/// The sectors that it touches without covering them: two at most.
pub(super) fn edges(span: ByteSpan) -> SmallVec<[ByteSpan; 2]> {
    let sector = |at: u64| ByteSpan::new(at - at % SECTOR_BYTES, SECTOR_BYTES);
    let is_edge = |sector: &ByteSpan| span.offset > sector.offset || span.end() < sector.end();
    let (first, last) = (sector(span.offset), sector(span.end() - 1));
    let both = if first == last { [Some(first), None] } else { [Some(first), Some(last)] };
    both.into_iter().flatten().filter(is_edge).collect()
}

/// The bytes of a sector that belong to a span, counted from the sector's beginning.
pub(super) fn part(span: ByteSpan, sector: ByteSpan) -> std::ops::Range<u64> {
    let from = span.offset.clamp(sector.offset, sector.end());
    let to = span.end().clamp(sector.offset, sector.end());
    from - sector.offset..to - sector.offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_fall_into_sectors_and_edges() {
        let span = ByteSpan::new;
        for (asked, outer, inner, at_edge) in [
            (span(512, 1024), span(512, 1024), Some(span(512, 1024)), vec![]),
            (span(1, 1), span(0, 512), None, vec![span(0, 512)]),
            (span(511, 2), span(0, 1024), None, vec![span(0, 512), span(512, 512)]),
            (span(0, 513), span(0, 1024), Some(span(0, 512)), vec![span(512, 512)]),
            (span(100, 412), span(0, 512), None, vec![span(0, 512)]),
            (
                span(1, 2046),
                span(0, 2048),
                Some(span(512, 1024)),
                vec![span(0, 512), span(1536, 512)],
            ),
        ] {
            assert_eq!((around(asked), within(asked)), (outer, inner), "{asked:?}");
            assert_eq!(edges(asked).to_vec(), at_edge, "{asked:?}");
            assert_eq!(are_whole(asked), at_edge.is_empty());
        }
        assert_eq!(part(span(100, 1000), span(0, 512)), 100..512);
        assert_eq!(part(span(100, 1000), span(1024, 512)), 0..76);
        assert_eq!(part(span(5, 7), span(0, 512)), 5..12);
    }
}
