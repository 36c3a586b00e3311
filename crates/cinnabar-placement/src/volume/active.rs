//! What is under way at one extent.

use super::seam::{GivenUp, Io};
use crate::geometry::Pool;
use crate::limits::PARTS_MAX;
use crate::record::Record;
use smallvec::SmallVec;
use std::ops::Range;

/// Where an extent stands; what the table says of it is in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing but requests.
    #[default]
    Idle,
    /// The first write's record is being stored; writes wait.
    Allocating,
    /// It is being stored that the object exists.
    Settling,
    /// The begin of a move is being stored.
    Marking,
    /// The source is looked at.
    Probing,
    /// A copy is being made; of writes that are faster the last one is made while they wait.
    Copying,
    /// Writes wait, those under way end.
    Draining,
    /// What was changed is copied; writes wait.
    Patching,
    /// Writes wait, and the copy becomes the truth.
    Flipping,
    /// It is being stored that the copy is given up.
    Aborting,
    /// Garbage waits for its readers.
    Cleaning,
    /// Garbage is being deleted.
    Deleting,
    /// It is being stored that the garbage is gone.
    Clearing,
    /// It is being stored that the extent goes with the volume's end.
    DropMarking,
    /// Its object is being deleted.
    DropDeleting,
    /// Its record is being removed.
    DropClearing,
}

impl Step {
    /// Whether writes wait for the table; for copies they wait by [`hold`](super::hold).
    pub(super) fn holds(self) -> bool {
        matches!(self, Self::Allocating | Self::Flipping)
    }

    /// Whether a copy is being made, from which a write takes something away.
    pub(super) fn follows(self) -> bool {
        matches!(self, Self::Copying | Self::Draining | Self::Patching | Self::Flipping)
    }

    /// Whether the extent is on its way, or leaves garbage.
    pub(super) fn moves(self) -> bool {
        let of_requests = matches!(self, Self::Idle | Self::Allocating | Self::Settling);
        let of_drop = matches!(self, Self::DropMarking | Self::DropDeleting | Self::DropClearing);
        !of_requests && !of_drop
    }
}

/// The parts of an extent that were changed since its copy began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dirty(Option<Box<[u64; PARTS_MAX / 64]>>);

impl Dirty {
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    pub(super) fn mark(&mut self, (first, last): (u16, u16)) {
        let bits = self.0.get_or_insert_with(|| Box::new([0; PARTS_MAX / 64]));
        for part in first..=last {
            bits[usize::from(part / 64)] |= 1 << (part % 64);
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.0.as_ref().map_or(0, |bits| bits.iter().map(|word| word.count_ones()).sum())
    }

    /// Ranges of bytes, in order and apart from each other.
    pub(super) fn ranges(&self, part_bytes: u64) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let Some(bits) = &self.0 else { return ranges };
        for part in (0..PARTS_MAX).filter(|part| bits[part / 64] >> (part % 64) & 1 == 1) {
            let (start, end) = (part as u64 * part_bytes, (part as u64 + 1) * part_bytes);
            match ranges.last_mut() {
                Some(range) if range.end == start => range.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

/// What is under way at one extent.
#[derive(Clone, Debug, Default)]
pub(super) struct Active {
    pub(super) step: Step,
    /// The record that is being written.
    pub(super) storing: Option<Record>,
    /// Reads under way, by pool.
    pub(super) readers: [u32; 2],
    /// Parts that the writes under way touch, one entry each.
    pub(super) writing: SmallVec<[(u16, u16); 4]>,
    /// Writes that wait.
    pub(super) held: Vec<Io>,
    pub(super) dirty: Dirty,
    /// Copies of this move so far.
    pub(super) copies: u8,
    /// While writes wait all of it is copied, not what was changed.
    pub(super) whole: bool,
    /// Where the extent goes.
    pub(super) to: Option<Pool>,
    /// Why the move is given up, if it is.
    pub(super) given_up: Option<GivenUp>,
    /// The extent goes with the volume's end as soon as nothing else is under way.
    pub(super) drop: bool,
}

impl Active {
    pub(super) fn has_io(&self) -> bool {
        self.readers != [0; 2] || !self.writing.is_empty() || !self.held.is_empty()
    }

    /// Whether nothing has to be remembered.
    pub(super) fn is_over(&self) -> bool {
        self.step == Step::Idle && !self.has_io() && !self.drop
    }
}

#[cfg(test)]
mod tests {
    use super::Dirty;

    #[test]
    fn neighbours_are_one_range() {
        let mut dirty = Dirty::default();
        assert!(dirty.ranges(512).is_empty());
        for parts in [(63, 64), (3, 3), (1023, 1023), (64, 65)] {
            dirty.mark(parts);
        }
        assert_eq!(dirty.count(), 5);
        assert_eq!(dirty.ranges(512), [1536..2048, 32256..33792, 523_776..524_288]);
        dirty.clear();
        assert_eq!(dirty.count(), 0);
    }
}
