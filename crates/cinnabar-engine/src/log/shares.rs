//! Share groups: who may hold how many segments, and who gives one up.
//!
//! One ring can't honour a minimum, because a quiet volume's blocks die with the segments of a busy
//! one; so each group has its own queue of segments.

use super::ranks::Ranks;
use super::{Chunk, Log};
use std::collections::VecDeque;

/// Blocks that are appended apart, so that what dies together lies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Written blocks: the next write kills them.
    Written,
    /// Blocks read from the backend.
    Read,
    /// Reinserted blocks: older than the others, and likely to stay.
    Kept,
}

impl Class {
    pub(crate) const ALL: [Self; 3] = [Self::Written, Self::Read, Self::Kept];
}

/// Where a group appends blocks of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) group: u16,
    pub(crate) class: Class,
}

/// The end of a stream.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    pub(crate) open: Option<u32>,
    pub(crate) chunk: Option<Chunk>,
}

/// A large volume, or all the small ones together (group 0).
#[derive(Debug)]
pub(crate) struct Group {
    /// The volume it belongs to; `None` for the common group and for one that died.
    pub(crate) owner: Option<u16>,
    /// Volumes that put blocks into it.
    pub(crate) members: u32,
    /// By class; classes that are not kept apart have none of their own.
    pub(crate) tails: [Tail; 3],
    /// Classes that are kept apart.
    pub(crate) classes: u8,
    /// Sealed segments, in the order in which the hand comes to them.
    pub(crate) queue: VecDeque<u32>,
    /// The same by what is worth keeping in them.
    pub(crate) ranks: Ranks,
    /// Blocks in its segments that are not condemned.
    pub(crate) worth: u64,
    /// Segments held in all.
    pub(crate) segments: u32,
    /// The minimum asked for, and what of it is granted.
    pub(crate) segments_wanted: u32,
    pub(crate) segments_min: u32,
    pub(crate) segments_max: u32,
    /// What a plan says is its own beyond the minimum; others have equal parts of the rest.
    pub(crate) segments_target: Option<u32>,
    /// Its share while all groups want more.
    pub(crate) share: u32,
}

impl Group {
    /// The group of all volumes without a share of their own.
    pub(crate) fn common() -> Self {
        Self {
            owner: None,
            members: 0,
            tails: Default::default(),
            classes: 1,
            queue: VecDeque::new(),
            ranks: Ranks::default(),
            worth: 0,
            segments: 0,
            segments_wanted: 0,
            segments_min: 0,
            segments_max: u32::MAX,
            segments_target: None,
            share: 0,
        }
    }

    /// The class that blocks of `class` are appended with.
    pub(crate) const fn merged(&self, class: Class) -> Class {
        match (self.classes, class) {
            (3.., class) => class,
            (2, Class::Kept) => Class::Kept,
            _ => Class::Written,
        }
    }

    /// Chunks being filled.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.tails.iter().filter_map(|tail| tail.chunk.as_ref())
    }

    /// Segments being filled.
    fn open_segments(&self) -> usize {
        self.tails.iter().filter(|tail| tail.open.is_some()).count()
    }
}

/// What is asked for a volume, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) target: Option<u64>,
}

impl Log {
    /// Most groups that this log can serve: each keeps a segment open.
    pub(crate) fn groups_max(&self) -> usize {
        Self::groups_of(self.bound)
    }

    /// The same, of a log of so many segments.
    fn groups_of(segments: u32) -> usize {
        (segments as usize / 8).clamp(1, 64)
    }

    /// Whether all groups with members fit into so many segments; no other keeps a segment open.
    pub(crate) fn has_place_for_groups(&self, segments: u32) -> bool {
        let owned = self.groups.iter().skip(1).filter(|group| group.members > 0).count();
        owned < Self::groups_of(segments)
    }

    /// Free segments to keep ahead of demand.
    pub(crate) fn low_water(&self) -> usize {
        1 + self.groups.iter().map(Group::open_segments).sum::<usize>().clamp(1, 8)
    }

    /// The group for a volume with these limits, in blocks: its own if it asks for one and there
    /// is room, else the common one. `current` is the one that it is a member of.
    pub(crate) fn join(
        &mut self,
        volume: u16,
        current: Option<u16>,
        Wanted { min, max, target }: Wanted,
    ) -> u16 {
        let capacity = self.capacity_blocks();
        let has_own = current.is_some_and(|g| self.groups[usize::from(g)].owner == Some(volume));
        // A maximum that a smaller log is below, or a growing one still is, binds again at another
        // size. A volume that left its group meanwhile would leave its blocks to the hand.
        let binds = if has_own { self.geometry.capacity_blocks() } else { capacity };
        let own = min > 0 || max < binds || target.is_some();
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
            let segment = capacity / u64::from(self.bound);
            let segments = |blocks: u64| (blocks / segment).min(self.bound.into());
            let state = &mut self.groups[usize::from(index)];
            state.segments_wanted = segments(min.saturating_add(segment - 1)) as u32;
            // A maximum below the minimum would be a contradiction: the minimum is the promise.
            state.segments_max = (segments(max) as u32).max(2).max(state.segments_wanted);
            // Rounded up, like a minimum: a target below a segment is not none.
            state.segments_target =
                target.map(|blocks| segments(blocks.saturating_add(segment - 1)) as u32);
        }
        self.share_out();
        index
    }

    fn own_group(&mut self, volume: u16) -> u16 {
        let existing = self.groups.iter().position(|g| g.owner == Some(volume));
        // Also one that an index had of a volume which is not there.
        let dead = |g: &Group| g.members == 0 && g.segments == 0;
        let reusable = || self.groups.iter().skip(1).position(dead).map(|i| i + 1);
        let index = match existing.or_else(reusable) {
            Some(index) => index,
            None if self.groups.len() < self.groups_max() => {
                self.groups.push(Group::common());
                self.groups.len() - 1
            }
            None => return 0,
        };
        assert!(index > 0, "the common group belongs to no volume");
        self.groups[index].owner = Some(volume);
        index as u16
    }

    /// A volume leaves its group. A group without members has no share: it is emptied first.
    pub(crate) fn leave(&mut self, group: u16) {
        let state = &mut self.groups[usize::from(group)];
        assert!(state.members > 0, "who leaves a group is a member");
        state.members -= 1;
        if group != 0 && state.members == 0 {
            state.owner = None;
            state.segments_wanted = 0;
            state.segments_max = u32::MAX;
            state.segments_target = None;
        }
        self.share_out();
    }

    /// Divides the segments: minimums first (cut back proportionally beyond 80 %), then targets (cut
    /// back in the same way, if they are too much), then the rest in equal parts a volume without
    /// one, up to each maximum. What is left of it then is nobody's: it is lent.
    pub(crate) fn share_out(&mut self) {
        let total = self.bound;
        let wanted: u64 = self.groups.iter().map(|g| u64::from(g.segments_wanted)).sum();
        let allowed = u64::from(total) * 80 / 100;
        for group in &mut self.groups {
            let min = u64::from(group.segments_wanted);
            let granted = if wanted > allowed { min * allowed / wanted } else { min };
            group.segments_min = granted as u32;
            group.share = group.segments_min;
        }
        let mut rest = total - self.groups.iter().map(|g| g.share).sum::<u32>().min(total);
        rest -= self.share_out_to_targets(rest);
        while rest > 0 {
            let takes = |g: &Group| {
                g.members > 0 && g.segments_target.is_none() && g.share < g.segments_max
            };
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
        let shares: u32 = self.groups.iter().map(|g| g.share).sum();
        assert!(shares <= total, "no segment is shared out twice");
        for group in &mut self.groups {
            assert!(group.share >= group.segments_min, "a minimum is kept");
            assert!(group.share <= group.segments_max, "and so is a maximum");
            group.classes = (group.share / self.class_segments).clamp(1, 3) as u8;
        }
    }

    /// Gives groups with a target what they lack of it, out of `rest` segments; returns how many. If
    /// that is too much, each gets a part in proportion, but at least one segment where there is one
    /// for each.
    fn share_out_to_targets(&mut self, rest: u32) -> u32 {
        let lacks = |g: &Group| {
            let target = g.segments_target.filter(|_| g.members > 0).unwrap_or(0);
            u64::from(target.min(g.segments_max).saturating_sub(g.share))
        };
        let wanted: u64 = self.groups.iter().map(lacks).sum();
        let lacking = self.groups.iter().filter(|g| lacks(g) > 0).count() as u64;
        let too_much = wanted > u64::from(rest);
        let first = u64::from(too_much && lacking <= u64::from(rest));
        let mut given = 0;
        for group in &mut self.groups {
            let lacks = lacks(group);
            let more = if too_much && lacks > 0 {
                let (left, wanted) = (u64::from(rest) - first * lacking, wanted - first * lacking);
                first + (lacks - first) * left / wanted
            } else {
                lacks
            } as u32;
            group.share += more;
            given += more;
        }
        assert!(given <= rest, "targets are cut to what there is");
        given
    }

    /// The share of a group, in blocks; `None` of the common one, which is that of many volumes.
    pub(crate) fn share_of(&self, group: u16) -> Option<u64> {
        let group = self.groups.get(usize::from(group)).filter(|group| group.owner.is_some())?;
        Some(u64::from(group.share) * self.segment_blocks())
    }

    /// What a group may keep while others want more, in blocks, where `limit` blocks fit in all.
    /// Targets divide all of the capacity, so each bears a part of what cleaning takes of it: by
    /// absolute numbers, a small share would bear all of that.
    pub(crate) fn fair_blocks(&self, group: &Group, limit: u64) -> u64 {
        let share = u64::from(group.share) * self.segment_blocks();
        if self.groups.iter().all(|group| group.segments_target.is_none()) {
            return share;
        }
        let capacity = self.capacity_blocks();
        (u128::from(share) * u128::from(limit.min(capacity)) / u128::from(capacity.max(1))) as u64
    }

    /// Blocks that a segment holds.
    pub(crate) fn segment_blocks(&self) -> u64 {
        self.geometry.blocks_of(1)
    }

    /// Blocks worth keeping, of all groups.
    pub(crate) fn worth(&self) -> u64 {
        self.groups.iter().map(|group| group.worth).sum()
    }

    /// Blocks worth keeping that the log can hold, where cleaning takes `air` blocks to be cheap. It
    /// needs the segments being filled and the free ones ahead of them, or it makes no headway.
    pub(crate) fn limit(&self, air: u64) -> u64 {
        let segments = self.groups.iter().map(Group::open_segments).sum::<usize>().max(1);
        let segment = self.segment_blocks();
        let least = (segments + self.low_water()) as u64 * segment;
        self.capacity_blocks().saturating_sub(least.max(air)).max(segment / 2)
    }

    /// Sealed segments.
    pub(crate) fn sealed(&self) -> usize {
        self.groups.iter().map(|group| group.queue.len()).sum()
    }

    /// The same, for a group with a maximum.
    pub(crate) fn limit_of(&self, group: &Group) -> u64 {
        if group.segments_max >= self.bound {
            return u64::MAX;
        }
        assert!(group.segments_max > 1, "a group needs a segment to fill and one to empty");
        let segment = self.segment_blocks();
        let most = u64::from(group.segments_max) * segment;
        most - (most / 16).max(segment)
    }

    /// The group that holds most beyond its share, in blocks worth keeping, where `limit` of them fit
    /// in all: never one at or under its minimum. Of equals the one with the oldest segment at the hand.
    pub(crate) fn most_over_share(&self, limit: u64) -> Option<u16> {
        let segment = self.segment_blocks();
        let candidates = self.groups.iter().enumerate().filter(|(_, group)| {
            !group.queue.is_empty() && group.worth > u64::from(group.segments_min) * segment
        });
        let age = |g: &Group| g.queue.front().map_or(0, |s| self.segments[*s as usize].sequence);
        let over = |g: &Group| g.worth.cast_signed() - self.fair_blocks(g, limit).cast_signed();
        let most = candidates.max_by_key(|(_, g)| (over(g), std::cmp::Reverse(age(g))));
        most.map(|(index, _)| index as u16)
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
    use crate::log::Need;
    use crate::metadata::superblock::Geometry;

    fn log() -> Log {
        of_segments(100)
    }

    fn of_segments(segments: u32) -> Log {
        Log::new(Geometry::for_capacity(255 * segments, 1), segments, 0, 32)
    }

    fn join(log: &mut Log, volume: u16, min: u64, max: u64) -> u16 {
        log.join(volume, None, Wanted { min, max, target: None })
    }

    fn aim(log: &mut Log, volume: u16, current: Option<u16>, min: u64, target: u64) -> u16 {
        let (min, target) = (255 * min, Some(255 * target));
        log.join(volume, current, Wanted { min, max: u64::MAX, target })
    }

    #[test]
    fn targets_come_before_the_rest_and_what_they_leave_is_for_others() {
        let mut log = log();
        aim(&mut log, 1, None, 0, 50);
        aim(&mut log, 2, None, 10, 30);
        join(&mut log, 3, 0, u64::MAX);
        let shares = |log: &Log| -> Vec<u32> { log.groups.iter().map(|g| g.share).collect() };
        assert_eq!(shares(&log), [20, 50, 30], "the volume without a target has the rest");
        aim(&mut log, 2, Some(2), 10, 90);
        assert_eq!(shares(&log), [1, 34, 65], "too much is cut back, minimums are not");
        aim(&mut log, 1, Some(1), 0, 5);
        aim(&mut log, 2, Some(2), 10, 10);
        assert_eq!(shares(&log), [85, 5, 10]);
        assert_eq!((log.share_of(0), log.share_of(2)), (None, Some(255 * 10)));
    }

    #[test]
    fn a_target_below_a_segment_is_one_segment_also_where_targets_are_cut() {
        let mut log = log();
        let wanted = |target| Wanted { min: 0, max: u64::MAX, target: Some(target) };
        log.join(1, None, wanted(100));
        assert_eq!(log.groups[1].share, 1);
        log.join(2, None, wanted(255 * 100));
        log.join(3, None, wanted(0));
        let shares: Vec<u32> = log.groups.iter().map(|g| g.share).collect();
        assert_eq!(shares[1..], [1, 99, 0], "no target is none");
    }

    #[test]
    fn what_does_not_fit_is_borne_by_all_in_proportion() {
        let mut log = log();
        let (small, large) = (aim(&mut log, 1, None, 0, 10), aim(&mut log, 2, None, 0, 90));
        fill(&mut log, small, 9, 255);
        fill(&mut log, large, 79, 255);
        let limit = 255 * 88;
        assert_eq!(
            log.most_over_share(limit),
            Some(small),
            "it holds 9 of the 8.8 that are its own"
        );
        log.groups[usize::from(small)].worth = 255 * 8;
        assert_eq!(log.most_over_share(limit), Some(large), "and keeps 8 of them");
    }

    #[test]
    fn the_rest_beyond_the_minimums_is_divided_by_volume_up_to_the_maximums() {
        let mut log = log();
        join(&mut log, 1, 255 * 40, u64::MAX);
        join(&mut log, 2, 255 * 10, 255 * 12);
        join(&mut log, 3, 0, u64::MAX);
        let shares: Vec<u32> = log.groups.iter().map(|g| g.share).collect();
        assert_eq!(shares.iter().sum::<u32>(), 100);
        assert_eq!(shares[2], 12, "up to its maximum");
        assert_eq!(shares[1], 40 + shares[0], "equal parts of the rest");
    }

    #[test]
    fn minimums_beyond_four_fifths_are_cut_back() {
        let mut log = log();
        join(&mut log, 1, 255 * 80, u64::MAX);
        join(&mut log, 2, 255 * 80, u64::MAX);
        let mins: Vec<u32> = log.groups.iter().map(|g| g.segments_min).collect();
        assert_eq!(mins, [0, 40, 40]);
        log.leave(1);
        assert_eq!(log.groups[2].segments_min, 80, "what is free again is granted");
    }

    #[test]
    fn a_group_that_an_index_had_and_nothing_is_in_has_another_owner_when_one_comes() {
        let mut log = log();
        for owner in 20..20 + log.groups_max() as u16 - 1 {
            log.groups.push(Group { owner: Some(owner), ..Group::common() });
        }
        assert!(log.has_place_for_groups(8), "none of them has a member");
        log.groups[1].segments = 1;
        assert_eq!(join(&mut log, 1, 255, u64::MAX), 2, "the first without a segment");
        assert!(!log.has_place_for_groups(8));
        assert_eq!(join(&mut log, 20, 255, u64::MAX), 1, "its own");
    }

    #[test]
    fn a_maximum_that_binds_at_a_larger_size_only_keeps_a_group_and_makes_none() {
        let mut log = of_segments(100);
        let group = join(&mut log, 1, 0, 255 * 60);
        log.set_bound(40);
        let again =
            |log: &mut Log, max| log.join(1, Some(group), Wanted { min: 0, max, target: None });
        assert_eq!(again(&mut log, 255 * 60), group);
        assert_eq!(log.limit_of(&log.groups[1]), u64::MAX);
        assert_eq!(join(&mut log, 2, 0, 255 * 60), 0);
        assert_eq!(again(&mut log, 255 * 100), 0, "all there can be is no maximum");
    }

    #[test]
    fn a_group_at_its_minimum_never_gives_up_blocks() {
        let mut log = log();
        let quiet = join(&mut log, 1, 255 * 10, u64::MAX);
        let busy = join(&mut log, 2, 0, 255 * 99);
        for (group, count) in [(quiet, 10), (busy, 80)] {
            fill(&mut log, group, count, 255);
        }
        assert_eq!(log.most_over_share(u64::MAX), Some(busy));
        fill(&mut log, quiet, 1, 255);
        log.groups[usize::from(busy)].worth = 0;
        assert_eq!(log.most_over_share(u64::MAX), Some(quiet), "it is over its minimum now");
    }

    fn fill(log: &mut Log, group: u16, segments: u32, live: u32) {
        let stream = log.stream(group, Class::Written);
        for _ in 0..segments {
            assert!(log.open_segment(stream, Need::Fill));
            let segment = log.tails_open(stream);
            for slot in 0..live {
                log.settle(segment * log.geometry.segment_slots() + slot);
            }
            log.seal(stream);
        }
    }

    #[test]
    fn the_segment_with_least_worth_keeping_is_emptied_first() {
        let mut log = log();
        for live in [200, 255, 3, 100, 3] {
            fill(&mut log, 0, 1, live);
        }
        let of = |place: usize, log: &Log| Some(log.groups[0].queue[place]);
        assert_eq!(log.cheapest(None), of(2, &log), "the first of equals");
        let slot = log.groups[0].queue[3] * log.geometry.segment_slots();
        (slot..slot + 100).for_each(|slot| log.condemn(slot, true));
        assert_eq!(log.cheapest(None), of(3, &log), "what is condemned costs nothing");
        let other = join(&mut log, 1, 255, u64::MAX);
        assert_eq!(log.cheapest(Some(other)), None);
        assert_eq!(log.worth(), 200 + 255 + 3 + 3);
        log.check_ranks();

        let first = log.cheapest(None).expect("just found");
        log.dequeue(first);
        assert_eq!(log.cheapest(None), of(2, &log), "the next one");
        log.check_ranks();
        log.enqueue(first, true);
        assert_eq!(log.cheapest(None), of(0, &log), "put back");
        log.check_ranks();
    }

    #[test]
    fn the_cheapest_of_very_many_segments_is_found_at_once() {
        let mut log = of_segments(9000);
        fill(&mut log, 0, 4500, 255);
        fill(&mut log, 0, 1, 100);
        fill(&mut log, 0, 4000, 255);
        assert_eq!(log.cheapest(None), Some(log.groups[0].queue[4500]));
        log.check_ranks();
    }

    #[test]
    fn classes_are_kept_apart_where_a_share_has_room_for_that() {
        let mut log = log();
        let small = join(&mut log, 1, 0, 255 * 8);
        assert_eq!(log.stream(small, Class::Kept).class, Class::Written);
        assert_eq!(log.groups[0].classes, 1, "it is empty");
        join(&mut log, 2, 0, u64::MAX);
        let class = |class| log.stream(0, class).class;
        assert_eq!(Class::ALL.map(class), [Class::Written, Class::Written, Class::Kept]);
    }
}
