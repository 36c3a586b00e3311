//! Share groups: who may hold how many segments, and who gives one up.
//!
//! Called by the log and the cleaner. One ring can't honour a minimum, because a quiet volume's
//! blocks die with the segments of a busy one; so each group has its own queue of segments.

use super::{Chunk, Log};
use std::collections::VecDeque;

/// A large volume, or all the small ones together (group 0).
#[derive(Debug)]
pub(crate) struct Group {
    /// The volume it belongs to; `None` for the common group and for one that died.
    pub(crate) owner: Option<u16>,
    /// Volumes that put blocks into it.
    pub(crate) members: u32,
    pub(crate) open: Option<u32>,
    pub(crate) chunk: Option<Chunk>,
    /// Sealed segments, oldest first.
    pub(crate) queue: VecDeque<u32>,
    /// Segments held in all.
    pub(crate) segments: u32,
    /// The minimum asked for, and what of it is granted.
    pub(crate) segments_wanted: u32,
    pub(crate) segments_min: u32,
    pub(crate) segments_max: u32,
    /// What it is entitled to while everybody wants more.
    pub(crate) share: u32,
}

impl Group {
    /// The group of all volumes without a share of their own.
    pub(crate) fn common() -> Self {
        Self {
            owner: None,
            members: 0,
            open: None,
            chunk: None,
            queue: VecDeque::new(),
            segments: 0,
            segments_wanted: 0,
            segments_min: 0,
            segments_max: u32::MAX,
            share: 0,
        }
    }
}

impl Log {
    /// Most groups that this log can serve: each keeps a segment open.
    pub(crate) fn groups_max(&self) -> usize {
        (self.geometry.segments as usize / 8).clamp(1, 64)
    }

    /// Free segments to keep ahead of demand.
    pub(crate) fn low_water(&self) -> usize {
        1 + self.groups.iter().filter(|g| g.open.is_some()).count().clamp(1, 8)
    }

    /// The group for a volume with these limits, in blocks: its own if it asks for one and there
    /// is room, else the common one. `current` is the one that it is a member of.
    pub(crate) fn join(
        &mut self,
        volume: u16,
        current: Option<u16>,
        min_blocks: u64,
        max_blocks: u64,
    ) -> u16 {
        let capacity = self.geometry.capacity_blocks();
        let own = min_blocks > 0 || max_blocks < capacity;
        let has_own = current.is_some_and(|g| self.groups[usize::from(g)].owner == Some(volume));
        let index = match current {
            Some(index) if own == has_own => index,
            _ => {
                if let Some(index) = current {
                    self.leave(index);
                }
                let index = if own { self.own_group(volume) } else { 0 };
                self.groups[usize::from(index)].members += 1;
                index
            }
        };
        if index != 0 {
            let segment = capacity / u64::from(self.geometry.segments);
            let segments = |blocks: u64| (blocks / segment).min(self.geometry.segments.into());
            let state = &mut self.groups[usize::from(index)];
            state.segments_wanted = segments(min_blocks.saturating_add(segment - 1)) as u32;
            // A maximum below the minimum would be a contradiction: the minimum is the promise.
            state.segments_max = (segments(max_blocks) as u32).max(2).max(state.segments_wanted);
        }
        self.share_out();
        index
    }

    fn own_group(&mut self, volume: u16) -> u16 {
        let existing = self.groups.iter().position(|g| g.owner == Some(volume));
        let dead = |g: &Group| g.owner.is_none() && g.segments == 0;
        let reusable = || self.groups.iter().skip(1).position(dead).map(|i| i + 1);
        let index = match existing.or_else(reusable) {
            Some(index) => index,
            None if self.groups.len() < self.groups_max() => {
                self.groups.push(Group::common());
                self.groups.len() - 1
            }
            None => return 0,
        };
        self.groups[index].owner = Some(volume);
        index as u16
    }

    /// A volume leaves its group. A group without members has no share: it is emptied first.
    pub(crate) fn leave(&mut self, group: u16) {
        let state = &mut self.groups[usize::from(group)];
        state.members -= 1;
        if group != 0 && state.members == 0 {
            state.owner = None;
            state.segments_wanted = 0;
            state.segments_max = u32::MAX;
        }
        self.share_out();
    }

    /// Divides the segments: minimums first (cut back proportionally beyond 80 %), then the rest in
    /// equal parts a volume, up to each maximum.
    pub(crate) fn share_out(&mut self) {
        let total = self.geometry.segments;
        let wanted: u64 = self.groups.iter().map(|g| u64::from(g.segments_wanted)).sum();
        let allowed = u64::from(total) * 80 / 100;
        for group in &mut self.groups {
            let min = u64::from(group.segments_wanted);
            let granted = if wanted > allowed { min * allowed / wanted } else { min };
            group.segments_min = granted as u32;
            group.share = group.segments_min;
        }
        let mut rest = total - self.groups.iter().map(|g| g.share).sum::<u32>().min(total);
        while rest > 0 {
            let takes = |g: &Group| g.members > 0 && g.share < g.segments_max;
            let weight: u32 = self.groups.iter().filter(|g| takes(g)).map(|g| g.members).sum();
            if weight == 0 {
                break;
            }
            let part = (rest / weight).max(1);
            for group in self.groups.iter_mut().filter(|g| takes(g)) {
                let more = (part * group.members).min(group.segments_max - group.share).min(rest);
                group.share += more;
                rest -= more;
            }
        }
    }

    /// The oldest segment of the group that is furthest over its share, never of one at or under
    /// its minimum; with `only`, of that group.
    pub(crate) fn victim(&self, only: Option<u16>) -> Option<u32> {
        let candidates = self.groups.iter().enumerate().filter(|(index, group)| {
            let chosen = only.is_none_or(|only| usize::from(only) == *index);
            chosen && !group.queue.is_empty() && group.segments > group.segments_min
        });
        let age = |g: &Group| g.queue.front().map_or(0, |s| self.segments[*s as usize].sequence);
        let over = |g: &Group| i64::from(g.segments) - i64::from(g.share);
        let (_, group) = candidates.max_by_key(|(_, g)| (over(g), std::cmp::Reverse(age(g))))?;
        group.queue.front().copied()
    }

    /// A group that holds its maximum and has to give up a segment to go on.
    pub(crate) fn group_at_maximum(&self) -> Option<u16> {
        let full = |g: &Group| g.segments > g.segments_max && !g.queue.is_empty();
        self.groups.iter().position(full).map(|index| index as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::superblock::Geometry;

    fn log() -> Log {
        Log::new(Geometry::for_capacity(255 * 100, 1), 0)
    }

    #[test]
    fn the_rest_beyond_the_minimums_is_divided_by_volume_up_to_the_maximums() {
        let mut log = log();
        log.join(1, None, 255 * 40, u64::MAX);
        log.join(2, None, 255 * 10, 255 * 12);
        log.join(3, None, 0, u64::MAX);
        let shares: Vec<u32> = log.groups.iter().map(|g| g.share).collect();
        assert_eq!(shares.iter().sum::<u32>(), 100);
        assert_eq!(shares[2], 12, "up to its maximum");
        assert_eq!(shares[1], 40 + shares[0], "equal parts of the rest");
    }

    #[test]
    fn minimums_beyond_four_fifths_are_cut_back() {
        let mut log = log();
        log.join(1, None, 255 * 80, u64::MAX);
        log.join(2, None, 255 * 80, u64::MAX);
        let mins: Vec<u32> = log.groups.iter().map(|g| g.segments_min).collect();
        assert_eq!(mins, [0, 40, 40]);
        log.leave(1);
        assert_eq!(log.groups[2].segments_min, 80, "what is free again is granted");
    }

    #[test]
    fn a_group_at_its_minimum_is_never_the_victim() {
        let mut log = log();
        let quiet = log.join(1, None, 255 * 10, u64::MAX);
        let busy = log.join(2, None, 0, 255 * 99);
        for (group, count) in [(quiet, 10), (busy, 80)] {
            for _ in 0..count {
                assert!(log.open_segment(group, false));
                log.seal(group);
            }
        }
        let victim = log.victim(None).expect("the busy one gives");
        assert_eq!(log.segments[victim as usize].group, busy);
        assert_eq!(log.victim(Some(quiet)), None);
    }
}
