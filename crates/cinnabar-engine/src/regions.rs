//! Active regions: aligned 1 MiB of volumes in which a write to cached blocks waits for no record.
//!
//! A durable [`RegionOpened`](crate::metadata::journal::Record::RegionOpened) says that copies in the
//! region may be invalid without a record; after a crash none of them is believed. A bit for each
//! block says that the device holds such a copy. The bit goes when a chunk with a newer copy is
//! written, with an invalidation record that nobody waits for, or at the end of the region, whose
//! record names those that are left. See DRBD's activity log and md's write-intent bitmap, and
//! `docs/design/durability.md`.

use crate::journal::Ticket;
use crate::metadata::checkpoint::{OpenRegion, REGIONS_MAX};
use crate::metadata::journal::{REGION_BLOCKS, RegionEnd};
use crate::mix;
use crate::units::Instant;
use std::collections::{BTreeMap, VecDeque};

/// A region without a write for so long is closed.
const IDLE_NS: u64 = 5_000_000_000;
/// A region with a younger write is not closed for another one: where more are written than may be
/// active, some stay so, instead of each write opening one and closing one.
const KEPT_NS: u64 = 1_000_000_000;
/// Blocks that have come to a region since its count that are worth another one.
const RECOUNTED: u64 = REGION_BLOCKS / 4;
/// Places in which regions are remembered that were written once.
const SEEN: usize = 1024;

/// Incarnation of a volume, and number of a region of it.
pub(crate) type Name = (u32, u32);

/// The region of a block.
pub(crate) const fn region_of(block: u64) -> u32 {
    (block / REGION_BLOCKS) as u32
}

/// One that is active.
#[derive(Clone, Debug)]
struct Region {
    opening: u64,
    /// Of the record of its opening.
    opened: Ticket,
    used: Instant,
    /// Bit i: the device holds copies of block i that are invalid without a record.
    stale: [u64; 4],
    /// Cached blocks of it on flash, at most: what a crash would cost.
    doubt: u64,
    /// Those of them that have come since they were counted.
    uncounted: u64,
}

/// The active regions of a shard.
#[derive(Debug)]
pub(crate) struct Regions {
    active: BTreeMap<Name, Region>,
    /// Those whose end is not durable yet, with its record.
    ended: VecDeque<(Ticket, Name)>,
    /// Regions that were written once lately, by a hash of their names.
    seen: Vec<u64>,
    /// Active ones at most, and cached blocks of them.
    most: usize,
    doubt_max: u64,
    /// What all cost.
    cost: u64,
    /// When idle ones are looked for.
    look_at: Option<Instant>,
    /// Incarnations for which there was no room, and until when there is none unless a region is closed.
    refused: BTreeMap<u32, Instant>,
}

impl Regions {
    pub(crate) fn new(most: usize, doubt_max: u64) -> Self {
        assert!(most <= REGIONS_MAX, "a checkpoint's head names them");
        Self {
            active: BTreeMap::new(),
            ended: VecDeque::new(),
            seen: Vec::new(),
            most,
            doubt_max,
            cost: 0,
            look_at: None,
            refused: BTreeMap::new(),
        }
    }

    /// From now on so many cached blocks may be in active regions.
    pub(crate) fn set_doubt_max(&mut self, doubt_max: u64) {
        self.doubt_max = doubt_max;
        self.cost = self.active.values().map(|region| self.cost_of(region.doubt)).sum();
    }

    /// What a region costs of `doubt_max`: its blocks in doubt, but not less than its share if as many as
    /// may be are active. So one sum bounds both.
    fn cost_of(&self, doubt: u64) -> u64 {
        doubt.max(self.doubt_max.div_ceil(self.most as u64)).max(1)
    }

    /// The device is lost.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.most, self.doubt_max);
    }

    /// None may be active.
    pub(crate) fn is_off(&self) -> bool {
        self.most == 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Active regions, and cached blocks in them at most.
    pub(crate) fn load(&self) -> (u64, u64) {
        (self.active.len() as u64, self.active.values().map(|region| region.doubt).sum())
    }

    /// What a checkpoint that begins now has to name.
    pub(crate) fn open(&self) -> Vec<OpenRegion> {
        let of = |(name, region): (&Name, &Region)| OpenRegion {
            incarnation: name.0,
            region: name.1,
            opening: region.opening,
        };
        self.active.iter().map(of).collect()
    }

    /// The record that a write in this region waits for if it is active; the write uses it.
    pub(crate) fn touch(&mut self, name: Name, now: Instant) -> Option<Ticket> {
        let region = self.active.get_mut(&name)?;
        region.used = now;
        Some(region.opened)
    }

    /// Whether a write in a region that is not active should open it: the first one in a while does
    /// not, so that writes all over a large disk cost what they cost without regions.
    pub(crate) fn is_worth_opening(&mut self, name: Name) -> bool {
        self.seen.resize(SEEN, 0);
        let hash = mix(u64::from(name.0) << 32 | u64::from(name.1), 1) | 1;
        let place = &mut self.seen[(hash >> 32) as usize % SEEN];
        std::mem::replace(place, hash) == hash
    }

    /// As many as may be are active.
    pub(crate) fn is_full(&self) -> bool {
        self.active.len() >= self.most
    }

    /// There was no room for another region of this incarnation, and there is none yet.
    pub(crate) fn refuses(&self, incarnation: u32, now: Instant) -> bool {
        self.refused.get(&incarnation).is_some_and(|until| now < *until)
    }

    /// One whose blocks are worth a count, if regions cost more than they may, with another one of so many
    /// blocks.
    pub(crate) fn uncounted(&self, more: Option<u64>) -> Option<Name> {
        if self.cost + more.map_or(0, |doubt| self.cost_of(doubt)) <= self.doubt_max {
            return None;
        }
        let (name, region) = self.active.iter().max_by_key(|(_, region)| region.uncounted)?;
        (region.uncounted >= RECOUNTED).then_some(*name)
    }

    /// The regions to close before another one of this incarnation with so many blocks may become active:
    /// the coldest, unless they were used just now; else the coldest of whoever has most, if that is
    /// then no less than this one has. None if there is no room.
    pub(crate) fn room(&mut self, incarnation: u32, doubt: u64, now: Instant) -> Option<Vec<Name>> {
        let cost = self.cost_of(doubt);
        let needed = (self.cost + cost).saturating_sub(self.doubt_max);
        let coldest = self.first_cold(needed, |_| true);
        let unused = coldest.last().map_or(now, |name| self.active[name].used.plus_ns(KEPT_NS));
        if cost <= self.doubt_max && unused <= now {
            return Some(coldest);
        }
        let enough = self.cost_for(incarnation) + cost + needed;
        let greediest = self.greediest().filter(|(_, most)| *most >= enough);
        if let Some((greediest, _)) = greediest.filter(|_| cost <= self.doubt_max) {
            return Some(self.first_cold(needed, |name| name.0 == greediest));
        }
        // Each write to another region asks.
        self.refused.retain(|_, until| now < *until);
        self.refused.insert(incarnation, unused.max(now.plus_ns(KEPT_NS / 8)));
        None
    }

    /// One that is closed because regions cost more than they may: it has grown.
    pub(crate) fn surplus(&self) -> Option<Name> {
        let (greediest, _) = self.greediest().filter(|_| self.cost > self.doubt_max)?;
        self.first_cold(1, |name| name.0 == greediest).pop()
    }

    /// The coldest of some regions that cost so much together, all if they cost less.
    fn first_cold(&self, needed: u64, of: impl Fn(&Name) -> bool) -> Vec<Name> {
        if needed == 0 {
            return Vec::new();
        }
        let some = self.active.iter().filter(|(name, _)| of(name));
        let mut by_use: Vec<_> = some.map(|(name, one)| (one.used, one.opening, *name)).collect();
        by_use.sort_unstable();
        let mut cost = 0;
        let still = |(_, _, name): &(Instant, u64, Name)| {
            let before = cost;
            cost += self.cost_of(self.active[name].doubt);
            before < needed
        };
        by_use.into_iter().take_while(still).map(|(_, _, name)| name).collect()
    }

    /// The incarnation whose regions cost most, and what.
    fn greediest(&self) -> Option<(u32, u64)> {
        let mut whose: Vec<u32> = self.active.keys().map(|name| name.0).collect();
        whose.dedup();
        let costs = whose.into_iter().map(|one| (one, self.cost_for(one)));
        costs.max_by_key(|(_, cost)| *cost)
    }

    /// What the regions of an incarnation cost.
    fn cost_for(&self, incarnation: u32) -> u64 {
        let theirs = self.active.range((incarnation, 0)..=(incarnation, u32::MAX));
        theirs.map(|(_, region)| self.cost_of(region.doubt)).sum()
    }

    /// A region becomes active. `opened`: its record; `doubt`: blocks of it on flash.
    pub(crate) fn insert(
        &mut self,
        name: Name,
        opening: u64,
        opened: Ticket,
        doubt: u64,
        now: Instant,
    ) {
        assert!(self.active.len() < REGIONS_MAX, "the table is bounded");
        self.cost += self.cost_of(doubt);
        let region = Region { opening, opened, used: now, stale: [0; 4], doubt, uncounted: 0 };
        let before = self.active.insert(name, region);
        assert!(before.is_none(), "a region is opened once");
        self.look_at.get_or_insert(now.plus_ns(IDLE_NS));
    }

    /// Copies of these blocks of an active region are invalid from now on.
    pub(crate) fn overwrite(&mut self, name: Name, blocks: std::ops::Range<u64>) {
        let region = self.active.get_mut(&name).expect("an active region");
        for block in blocks {
            assert_eq!(region_of(block), name.1, "a block of this region");
            let at = block % REGION_BLOCKS;
            region.stale[(at / 64) as usize] |= 1 << (at % 64);
        }
    }

    /// A chunk with a copy of this block is about to be written. Says whether older ones are invalid
    /// without a record, which this one's needs before it can be believed.
    pub(crate) fn supersede(&mut self, incarnation: u32, block: u64) -> bool {
        let Some(region) = self.active.get_mut(&(incarnation, region_of(block))) else {
            return false;
        };
        let before = region.doubt;
        if before < REGION_BLOCKS {
            region.doubt += 1;
            region.uncounted += 1;
        }
        let at = block % REGION_BLOCKS;
        let (word, bit) = (&mut region.stale[(at / 64) as usize], 1 << (at % 64));
        let stale = *word & bit != 0;
        *word &= !bit;
        let after = region.doubt;
        self.cost = self.cost - self.cost_of(before) + self.cost_of(after);
        stale
    }

    /// So many blocks of a region are on flash, by a count.
    pub(crate) fn recount(&mut self, name: Name, blocks: u64) {
        let region = self.active.get_mut(&name).expect("an active region");
        let before = std::mem::replace(&mut region.doubt, blocks);
        region.uncounted = 0;
        self.cost = self.cost - self.cost_of(before) + self.cost_of(blocks);
    }

    /// Takes out a region, whose end is recorded next.
    pub(crate) fn remove(&mut self, name: Name, version: u64) -> Option<RegionEnd> {
        let region = self.active.remove(&name)?;
        self.refused.clear();
        self.cost -= self.cost_of(region.doubt);
        let (incarnation, number) = name;
        let (opening, stale) = (region.opening, region.stale);
        Some(RegionEnd { incarnation, region: number, opening, version, stale })
    }

    /// The end of a region was recorded; others that are durable are forgotten.
    pub(crate) fn ends(&mut self, name: Name, ticket: Ticket, durable: impl Fn(Ticket) -> bool) {
        while self.ended.pop_front_if(|(ticket, _)| durable(*ticket)).is_some() {}
        self.ended.push_back((ticket, name));
    }

    /// Active regions of an incarnation.
    pub(crate) fn of(&self, incarnation: u32) -> Vec<Name> {
        self.active.range((incarnation, 0)..=(incarnation, u32::MAX)).map(|one| *one.0).collect()
    }

    /// Regions that have been idle for long; when to look again.
    pub(crate) fn idle(&mut self, now: Instant) -> (Vec<Name>, Option<Instant>) {
        let Some(at) = self.look_at.filter(|at| *at <= now) else {
            return (Vec::new(), self.look_at);
        };
        let is_idle = |region: &Region| region.used.plus_ns(IDLE_NS) <= now;
        let idle = |(name, region): (&Name, &Region)| is_idle(region).then_some(*name);
        let names: Vec<Name> = self.active.iter().filter_map(idle).collect();
        let used = self.active.values().filter(|region| !is_idle(region)).map(|one| one.used);
        self.look_at = used.min().map(|used| used.plus_ns(IDLE_NS).max(at.plus_ns(IDLE_NS / 8)));
        (names, self.look_at)
    }

    /// Whether a crash now may cost what is cached of this block. For observers.
    pub(crate) fn is_in_doubt(
        &self,
        incarnation: u32,
        block: u64,
        durable: impl Fn(Ticket) -> bool,
    ) -> bool {
        let name = (incarnation, region_of(block));
        let ends = |(ticket, ended): &(Ticket, Name)| *ended == name && !durable(*ticket);
        self.active.contains_key(&name) || self.ended.iter().any(ends)
    }

    /// Whether one waits for the record of its opening, one is active, one for that of its end.
    pub(crate) fn phases(&self, durable: impl Fn(Ticket) -> bool) -> (bool, bool, bool) {
        let opening = self.active.values().any(|region| !durable(region.opened));
        let open = self.active.values().any(|region| durable(region.opened));
        (opening, open, self.ended.iter().any(|(ticket, _)| !durable(*ticket)))
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        let entry = size_of::<Region>() + size_of::<Name>();
        (self.active.len() * entry + self.seen.capacity() * 8) as u64
    }

    /// Between two batches. `doubt_max`: what may be in doubt; `on_flash`: cached blocks by region.
    pub(crate) fn check_invariants(&self, doubt_max: u64, on_flash: impl Fn(Name) -> u64) {
        let sum: u64 = self.active.values().map(|region| self.cost_of(region.doubt)).sum();
        assert_eq!(sum, self.cost, "what regions cost is counted");
        assert!(self.active.len() <= self.most, "active regions are bounded");
        assert!(self.load().1 <= doubt_max, "what is in doubt is bounded");
        for (name, region) in &self.active {
            assert!(on_flash(*name) <= region.doubt, "no fewer blocks are counted than there are");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_opened_by_the_second_write() {
        let mut regions = Regions::new(2, 100);
        assert!(!regions.is_worth_opening((1, 1)));
        assert!(regions.is_worth_opening((1, 1)));
    }

    #[test]
    fn idle_regions_are_found_and_others_are_looked_at_later() {
        let mut regions = Regions::new(4, 1000);
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        regions.insert((1, 1), 1, Ticket::NONE, 3, at(0));
        regions.insert((1, 2), 2, Ticket::NONE, 4, at(0));
        assert_eq!(regions.idle(at(1)), (vec![], Some(at(5))));
        regions.touch((1, 2), at(4));
        assert_eq!(regions.idle(at(5)), (vec![(1, 1)], Some(at(9))));
        assert!(regions.remove((1, 1), 0).is_some());
        assert_eq!(regions.load(), (1, 4));
        assert_eq!(regions.idle(at(9)), (vec![(1, 2)], None));
    }

    /// One that writes everywhere has no more than half of them, and does not push out its own.
    #[test]
    fn a_region_that_is_written_keeps_its_place_but_for_who_has_fewer() {
        let mut regions = Regions::new(4, 1000);
        let at = |millis: u64| Instant(millis * 1_000_000);
        let insert = |regions: &mut Regions, name: Name| {
            let room = regions.room(name.0, 10, at(10))?;
            for closed in &room {
                regions.remove(*closed, 0);
            }
            regions.insert(name, u64::from(name.0 * 10 + name.1), Ticket::NONE, 10, at(10));
            Some(room)
        };
        for region in 1..=4 {
            assert_eq!(insert(&mut regions, (1, region)), Some(vec![]));
        }
        assert_eq!(insert(&mut regions, (1, 5)), None);
        assert!(regions.refuses(1, at(1009)) && !regions.refuses(2, at(10)));
        let rooms = [1, 2, 3].map(|region| insert(&mut regions, (2, region)));
        assert_eq!(rooms, [Some(vec![(1, 1)]), Some(vec![(1, 2)]), None]);
        regions.touch((1, 3), at(1000));
        assert_eq!(regions.room(1, 10, at(1009)), None);
        assert_eq!(regions.room(1, 10, at(1010)), Some(vec![(1, 4)]), "idle for a second");
    }

    #[test]
    fn none_is_closed_for_one_that_finds_no_room_then() {
        let mut regions = Regions::new(8, 300);
        let at = |millis: u64| Instant(millis * 1_000_000);
        regions.insert((1, 1), 1, Ticket::NONE, 100, at(0));
        regions.insert((1, 2), 2, Ticket::NONE, 150, at(500));
        assert_eq!(regions.room(2, 200, at(1000)), None, "the first one's place is not enough");
        assert!(regions.refuses(2, at(1499)) && !regions.refuses(2, at(1500)));
        assert_eq!(regions.room(2, 200, at(1500)), Some(vec![(1, 1), (1, 2)]));
        assert_eq!(regions.room(2, 301, at(9000)), None, "never");
    }

    #[test]
    fn what_came_since_a_count_is_counted_before_one_is_closed() {
        let mut regions = Regions::new(8, 300);
        regions.insert((1, 1), 1, Ticket::NONE, 150, Instant(0));
        regions.insert((2, 2), 2, Ticket::NONE, 140, Instant(9));
        assert_eq!((regions.uncounted(None), regions.surplus()), (None, None));
        assert!((512..576).all(|block| !regions.supersede(2, block)));
        assert_eq!(regions.uncounted(None), Some((2, 2)), "nothing has come to the other one");
        regions.recount((2, 2), 151);
        assert_eq!(regions.uncounted(None), None);
        assert_eq!(regions.surplus(), Some((2, 2)), "who has most");
    }

    #[test]
    fn a_newer_copy_takes_the_bit_of_its_block() {
        let mut regions = Regions::new(4, 1000);
        regions.insert((1, 2), 7, Ticket::NONE, 0, Instant(0));
        regions.overwrite((1, 2), 600..602);
        assert!(regions.supersede(1, 600) && !regions.supersede(1, 600));
        assert!(!regions.supersede(2, 601), "another volume's");
        let ended = regions.remove((1, 2), 9).expect("it was active");
        assert_eq!((ended.runs(), ended.opening, ended.version), (vec![(601, 602)], 7, 9));
    }
}
