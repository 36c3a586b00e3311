//! What a server that restarts may have lost: what it was given since the last flush that covers it.
//!
//! Bounded: the more ranges there are, the coarser they get.

use cinnabar_engine::units::ByteSpan;
use std::collections::{BTreeMap, VecDeque};

/// Ranges that are kept apart, and with them the invalidations after a restart.
const RANGES_MAX: usize = 4096;
/// Bounds of ranges are multiples of this at first: blocks of the cache.
const GRAIN_BYTES: u64 = 4096;
/// How much coarser they get at a time.
const COARSER: u64 = 8;
/// Flushes under way whose ranges are kept apart.
const SEALED_MAX: usize = 8;

/// A moment: a flush that begins now covers what was noted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark(u64);

/// See the module.
#[derive(Debug)]
pub(super) struct Unflushed {
    size_bytes: u64,
    /// Written since the last flush began.
    fresh: Ranges,
    /// Written before the flush of this mark began, oldest first.
    sealed: VecDeque<(Mark, Ranges)>,
    next: u64,
}

impl Unflushed {
    /// Of a disk of this size.
    /// The export may have become larger.
    pub(super) fn grow(&mut self, size_bytes: u64) {
        self.size_bytes = self.size_bytes.max(size_bytes);
    }

    pub(super) fn new(size_bytes: u64) -> Self {
        Self { size_bytes, fresh: Ranges::new(), sealed: VecDeque::new(), next: 0 }
    }

    /// A write, trim or zeroing of `span` has ended.
    pub(super) fn note(&mut self, span: ByteSpan) {
        self.fresh.add(span.offset, span.end());
    }

    /// A flush begins.
    pub(super) fn begin(&mut self) -> Mark {
        let mark = Mark(self.next);
        self.next += 1;
        if !self.fresh.is_empty() {
            self.sealed.push_back((mark, std::mem::replace(&mut self.fresh, Ranges::new())));
        }
        if self.sealed.len() > SEALED_MAX
            && let Some((_, oldest)) = self.sealed.pop_front()
            && let Some((_, next)) = self.sealed.front_mut()
        {
            // Covered a little later than need be.
            next.add_all(&oldest);
        }
        mark
    }

    /// The flush that began at `mark` has succeeded.
    pub(super) fn end(&mut self, mark: Mark) {
        while self.sealed.front().is_some_and(|(sealed, _)| *sealed <= mark) {
            self.sealed.pop_front();
        }
    }

    /// All of it, and starts again.
    pub(super) fn take(&mut self) -> Vec<ByteSpan> {
        let mut all = std::mem::replace(&mut self.fresh, Ranges::new());
        for (_, ranges) in self.sealed.drain(..) {
            all.add_all(&ranges);
        }
        let size = self.size_bytes;
        let spans = all.starts.iter().filter(|(start, _)| **start < size);
        spans.map(|(&start, &end)| ByteSpan::new(start, end.min(size) - start)).collect()
    }
}

/// Ranges of bytes that neither overlap nor touch.
#[derive(Debug)]
struct Ranges {
    /// End by start.
    starts: BTreeMap<u64, u64>,
    grain: u64,
}

impl Ranges {
    fn new() -> Self {
        Self { starts: BTreeMap::new(), grain: GRAIN_BYTES }
    }

    fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    fn add(&mut self, start: u64, end: u64) {
        if start < end {
            self.join(start, end);
            while self.starts.len() > RANGES_MAX {
                self.grain = self.grain.saturating_mul(COARSER);
                for (start, end) in std::mem::take(&mut self.starts) {
                    self.join(start, end);
                }
            }
        }
    }

    fn add_all(&mut self, others: &Self) {
        for (&start, &end) in &others.starts {
            self.add(start, end);
        }
    }

    fn join(&mut self, start: u64, end: u64) {
        let mut start = start / self.grain * self.grain;
        let mut end = end.checked_next_multiple_of(self.grain).unwrap_or(u64::MAX);
        // Those that begin before its end and end behind its start, from the last one on.
        while let Some((&first, &last)) = self.starts.range(..=end).next_back() {
            if last < start {
                break;
            }
            self.starts.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.starts.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 1 << 40;

    fn blocks(unflushed: &mut Unflushed) -> Vec<u64> {
        let spans = unflushed.take();
        spans.iter().flat_map(|span| span.offset / 4096..span.end().div_ceil(4096)).collect()
    }

    fn note(unflushed: &mut Unflushed, block: u64) {
        unflushed.note(ByteSpan::new(block * 4096 + 512, 512));
    }

    #[test]
    fn a_flush_covers_what_ended_before_it_began() {
        let mut unflushed = Unflushed::new(SIZE);
        note(&mut unflushed, 1);
        let first = unflushed.begin();
        note(&mut unflushed, 5);
        let second = unflushed.begin();
        note(&mut unflushed, 9);
        unflushed.end(first);
        note(&mut unflushed, 1);
        unflushed.end(second);
        assert_eq!(blocks(&mut unflushed), [1, 9]);
        assert!(blocks(&mut unflushed).is_empty(), "taken");
    }

    #[test]
    fn a_later_flush_covers_what_an_earlier_one_did_not() {
        let mut unflushed = Unflushed::new(SIZE);
        note(&mut unflushed, 1);
        let _failed = unflushed.begin();
        let second = unflushed.begin();
        unflushed.end(second);
        assert!(blocks(&mut unflushed).is_empty());
    }

    #[test]
    fn many_failed_flushes_forget_nothing() {
        let mut unflushed = Unflushed::new(SIZE);
        let mut first = None;
        for block in 0..100 {
            note(&mut unflushed, block * 10);
            first.get_or_insert(unflushed.begin());
        }
        unflushed.end(first.expect("there is one"));
        let left = blocks(&mut unflushed);
        assert!((1..100).all(|block| left.contains(&(block * 10))), "{left:?}");
    }

    #[test]
    fn the_number_of_ranges_is_bounded_and_nothing_is_lost() {
        let mut unflushed = Unflushed::new(SIZE);
        let places: Vec<u64> = (0..50_000).map(|index| index * 7919 % 65_536 * 4096).collect();
        for &place in &places {
            unflushed.note(ByteSpan::new(place * 3, 4096));
        }
        let spans = unflushed.take();
        assert!(spans.len() <= RANGES_MAX, "{} ranges", spans.len());
        for place in places {
            let covered = |span: &ByteSpan| span.offset <= place * 3 && place * 3 < span.end();
            assert!(spans.iter().any(covered), "{place}");
        }
    }

    #[test]
    fn the_end_of_the_disk_is_kept_to() {
        let mut unflushed = Unflushed::new(4096 + 512);
        unflushed.note(ByteSpan::new(4096, 512));
        assert_eq!(unflushed.take(), [ByteSpan::new(4096, 512)]);
    }

    proptest! {
        #[test]
        fn ranges_are_the_union(spans in prop::collection::vec((0_u64..64, 1_u64..8), 0..40)) {
            let mut unflushed = Unflushed::new(SIZE);
            let mut expected = std::collections::BTreeSet::new();
            for (first, count) in spans {
                unflushed.note(ByteSpan::new(first * 4096, count * 4096));
                expected.extend(first..first + count);
            }
            let all = unflushed.take();
            prop_assert!(all.windows(2).all(|pair| pair[0].end() < pair[1].offset));
            let found: Vec<u64> =
                all.iter().flat_map(|span| span.offset / 4096..span.end() / 4096).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
