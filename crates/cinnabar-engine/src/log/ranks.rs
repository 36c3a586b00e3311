//! Sealed segments by how much in them is worth keeping.
//!
//! The segment with the least is found in a log of any size without a look at all of them: each
//! group lists its segments by rank, and a segment is listed again only when its rank changes, once
//! in some thirty blocks.

use super::shares::Group;
use super::{Log, SegmentState};
use std::fmt;

/// Steps from nothing worth keeping to all of it.
const RANKS: usize = 32;

/// Segments of one rank compared to find the one with the least.
const LOOKS_MAX: usize = 2048;

/// Where a segment is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    rank: u8,
    at: u32,
}

/// The sealed segments of a group by rank, those of a rank in any order.
#[derive(Default)]
pub(crate) struct Ranks([Vec<u32>; RANKS]);

/// Follows from the segments, so that states that differ in nothing else look the same.
impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks").finish_non_exhaustive()
    }
}

impl Ranks {
    /// Segments listed.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

impl Log {
    /// A segment is sealed: the hand comes to it last, or first.
    pub(crate) fn enqueue(&mut self, segment: u32, first: bool) {
        let state = &mut self.segments[segment as usize];
        assert_ne!(state.state, SegmentState::Free, "a free segment holds nothing to be sealed");
        assert!(state.listed.is_none(), "a segment is queued once");
        state.state = SegmentState::Sealed;
        let queue = &mut self.groups[usize::from(state.group)].queue;
        if first {
            queue.push_front(segment);
        } else {
            queue.push_back(segment);
        }
        self.list(segment);
    }

    /// A sealed segment is going to be emptied.
    pub(crate) fn dequeue(&mut self, segment: u32) {
        self.unlist(segment);
        let state = &mut self.segments[segment as usize];
        assert_eq!(state.state, SegmentState::Sealed, "only sealed segments are emptied");
        assert_eq!(state.pending_chunks, 0, "once all of it is on flash");
        state.state = SegmentState::Cleaning;
        let queue = &mut self.groups[usize::from(state.group)].queue;
        let place = queue.iter().position(|other| *other == segment);
        queue.remove(place.expect("sealed segments are queued"));
    }

    /// What a segment has worth keeping has changed.
    pub(super) fn rerank(&mut self, segment: u32) {
        let listed = self.segments[segment as usize].listed;
        if listed.is_some_and(|listed| listed.rank != self.rank(segment)) {
            self.unlist(segment);
            self.list(segment);
        }
    }

    fn rank(&self, segment: u32) -> u8 {
        let slots = self.geometry.segment_slots();
        let shift = (u32::BITS - slots.leading_zeros()).saturating_sub(RANKS.ilog2());
        let rank = self.segments[segment as usize].worth() >> shift;
        assert!((rank as usize) < RANKS, "no segment is worth more than its slots");
        rank as u8
    }

    pub(super) fn list(&mut self, segment: u32) {
        let rank = self.rank(segment);
        let list = self.list_of(segment, rank);
        let at = list.len() as u32;
        list.push(segment);
        self.segments[segment as usize].listed = Some(Listed { rank, at });
    }

    /// Where a segment of this rank is listed: with its group, or with all that are behind the bound.
    fn list_of(&mut self, segment: u32, rank: u8) -> &mut Vec<u32> {
        let ranks = if segment < self.bound {
            &mut self.groups[usize::from(self.segments[segment as usize].group)].ranks
        } else {
            &mut self.ranks_behind
        };
        &mut ranks.0[usize::from(rank)]
    }

    pub(super) fn unlist(&mut self, segment: u32) {
        let state = &mut self.segments[segment as usize];
        let Listed { rank, at } = state.listed.take().expect("sealed segments are listed");
        let list = self.list_of(segment, rank);
        let removed = list.swap_remove(at as usize);
        assert_eq!(removed, segment, "a segment is where it is listed");
        if let Some(moved) = list.get(at as usize).copied() {
            self.segments[moved as usize].listed = Some(Listed { rank, at });
        }
    }

    /// The same of those behind the bound, of all groups.
    pub(crate) fn cheapest_behind(&self) -> Option<u32> {
        self.ranks_behind.0.iter().find_map(|listed| {
            let looked_at = listed.iter().take(LOOKS_MAX);
            let idle = looked_at.filter(|s| self.segments[**s as usize].pending_chunks == 0);
            idle.min_by_key(|s| self.cost(**s)).copied()
        })
    }

    /// Sealed segments behind the bound.
    pub(crate) fn sealed_behind(&self) -> usize {
        self.ranks_behind.len()
    }

    fn cost(&self, segment: u32) -> (u32, u64) {
        let segment = &self.segments[segment as usize];
        (segment.worth(), segment.sequence)
    }

    /// The sealed segment before the bound with the least worth keeping, of equals the one opened first;
    /// with `only`, of that group. Where very many have the same rank, the least of some of them.
    pub(crate) fn cheapest(&self, only: Option<u16>) -> Option<u32> {
        let chosen = |(index, _): &(usize, &Group)| only.is_none_or(|o| usize::from(o) == *index);
        let looks = (LOOKS_MAX / self.groups.len()).max(RANKS);
        (0..RANKS).find_map(|rank| {
            let groups = self.groups.iter().enumerate().filter(chosen);
            let listed = groups.flat_map(|(_, group)| group.ranks.0[rank].iter().take(looks));
            let idle = listed.filter(|s| self.segments[**s as usize].pending_chunks == 0);
            idle.min_by_key(|s| self.cost(**s)).copied()
        })
    }

    /// Checks that each sealed segment is listed with its rank, once.
    pub(crate) fn check_ranks(&self) {
        for (index, state) in (0..).zip(&self.segments) {
            assert_eq!(state.listed.is_some(), state.state == SegmentState::Sealed, "{index}");
            let Some(Listed { rank, at }) = state.listed else { continue };
            assert_eq!(rank, self.rank(index), "the rank of segment {index}");
            let before = index < self.bound;
            let own = &self.groups[usize::from(state.group)].ranks;
            let list = &(if before { own } else { &self.ranks_behind }).0[usize::from(rank)];
            assert_eq!(list.get(at as usize), Some(&index), "the place of segment {index}");
        }
        let listed: usize = self.groups.iter().map(|group| group.ranks.len()).sum();
        let queued: usize = self.groups.iter().map(|group| group.queue.len()).sum();
        assert_eq!(listed + self.ranks_behind.len(), queued, "segments listed and queued");
    }
}
