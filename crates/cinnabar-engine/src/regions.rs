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
    /// Those of them that have come since they were counted; all, before.
    uncounted: u64,
}

/// Whether one region more may be active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It may.
    There,
    /// Perhaps, once the blocks of this one are counted.
    Counted(Name),
    /// Perhaps, once this one is closed.
    Closed(Name),
    /// All that are active are needed as much.
    None,
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
    doubt: u64,
    /// When idle ones are looked for.
    look_at: Option<Instant>,
    /// An incarnation for which there was no room, and until when there is none unless one is closed.
    refused: Option<(u32, Instant)>,
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
            doubt: 0,
            look_at: None,
            refused: None,
        }
    }

    /// Cached blocks in active regions at most.
    pub(crate) fn doubt_max(&self) -> u64 {
        self.doubt_max
    }

    /// From now on so many cached blocks may be in active regions.
    pub(crate) fn set_doubt_max(&mut self, doubt_max: u64) {
        self.doubt_max = doubt_max;
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
        (self.active.len() as u64, self.doubt)
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

    /// No further region may be active.
    pub(crate) fn is_full(&self) -> bool {
        self.active.len() >= self.most
    }

    /// Whether a region of this incarnation with so many blocks may become active now.
    pub(crate) fn room(&mut self, incarnation: u32, doubt: u64, now: Instant) -> Room {
        let fits = self.active.is_empty() || self.doubt + doubt <= self.doubt_max;
        if fits && !self.is_full() {
            return Room::There;
        }
        // Each write to another region asks.
        if self.refused.is_some_and(|(whose, until)| whose == incarnation && now < until) {
            return Room::None;
        }
        if let Some(name) = self.most_uncounted().filter(|_| !fits) {
            return Room::Counted(name);
        }
        let victim = self.victim(incarnation, now);
        let unused = self.coldest().map(|name| self.active[&name].used.plus_ns(KEPT_NS));
        self.refused = unused.filter(|_| victim.is_none()).map(|until| (incarnation, until));
        victim.map_or(Room::None, Room::Closed)
    }

    /// What is done first if more is in doubt than may be.
    pub(crate) fn surplus(&self) -> Room {
        if self.doubt <= self.doubt_max || self.active.len() <= 1 {
            return Room::There;
        }
        let close = || self.coldest().map_or(Room::None, Room::Closed);
        self.most_uncounted().map_or_else(close, Room::Counted)
    }

    fn most_uncounted(&self) -> Option<Name> {
        let (name, region) = self.active.iter().max_by_key(|(_, region)| region.uncounted)?;
        (region.uncounted >= RECOUNTED).then_some(*name)
    }

    fn coldest(&self) -> Option<Name> {
        let by_use = self.active.iter().min_by_key(|(_, region)| (region.used, region.opening));
        by_use.map(|(name, _)| *name)
    }

    /// The one that makes place for another one of this incarnation: the coldest, unless it was used
    /// just now; else the coldest of whoever has most, if that is more than this one has.
    fn victim(&self, incarnation: u32, now: Instant) -> Option<Name> {
        let coldest = self.coldest()?;
        if self.active[&coldest].used.plus_ns(KEPT_NS) <= now {
            return Some(coldest);
        }
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        self.active.keys().for_each(|name| *counts.entry(name.0).or_default() += 1);
        let own = counts.get(&incarnation).copied().unwrap_or(0);
        let (greediest, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let theirs = self.active.range((greediest, 0)..=(greediest, u32::MAX));
        let coldest = theirs.min_by_key(|(_, region)| (region.used, region.opening))?;
        (most > own + 1).then_some(*coldest.0)
    }

    /// A region becomes active. `opened`: its record; `doubt`: blocks of it on flash, at most.
    pub(crate) fn insert(
        &mut self,
        name: Name,
        opening: u64,
        opened: Ticket,
        doubt: u64,
        now: Instant,
    ) {
        assert!(self.active.len() < REGIONS_MAX, "the table is bounded");
        self.doubt += doubt;
        let region = Region { opening, opened, used: now, stale: [0; 4], doubt, uncounted: doubt };
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
        if region.doubt < REGION_BLOCKS {
            region.doubt += 1;
            region.uncounted += 1;
            self.doubt += 1;
        }
        let at = block % REGION_BLOCKS;
        let (word, bit) = (&mut region.stale[(at / 64) as usize], 1 << (at % 64));
        let stale = *word & bit != 0;
        *word &= !bit;
        stale
    }

    /// So many blocks of a region are on flash, by a count; it was an estimate.
    pub(crate) fn recount(&mut self, name: Name, blocks: u64) {
        let region = self.active.get_mut(&name).expect("an active region");
        self.doubt = self.doubt - region.doubt + blocks;
        (region.doubt, region.uncounted) = (blocks, 0);
    }

    /// Takes out a region, whose end is recorded next.
    pub(crate) fn remove(&mut self, name: Name, version: u64) -> Option<RegionEnd> {
        let region = self.active.remove(&name)?;
        self.refused = None;
        assert!(self.doubt >= region.doubt, "the sum is that of all");
        self.doubt -= region.doubt;
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
        let sum: u64 = self.active.values().map(|region| region.doubt).sum();
        assert_eq!(sum, self.doubt, "blocks in doubt are counted");
        assert!(self.active.len() <= self.most, "active regions are bounded");
        assert!(sum <= doubt_max || self.active.len() <= 1, "what is in doubt is bounded");
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
            let room = regions.room(name.0, 10, at(10));
            if let Room::Closed(victim) = room {
                regions.remove(victim, 0).expect("it was active");
            }
            if room != Room::None {
                regions.insert(name, u64::from(name.0 * 10 + name.1), Ticket::NONE, 10, at(10));
            }
            room
        };
        for region in 1..=4 {
            assert_eq!(insert(&mut regions, (1, region)), Room::There);
        }
        assert_eq!(insert(&mut regions, (1, 5)), Room::None);
        let rooms = [1, 2, 3].map(|region| insert(&mut regions, (2, region)));
        assert_eq!(rooms, [Room::Closed((1, 1)), Room::Closed((1, 2)), Room::None]);
        regions.touch((1, 3), at(1000));
        assert_eq!(regions.room(1, 10, at(1009)), Room::None);
        assert_eq!(regions.room(1, 10, at(1010)), Room::Closed((1, 4)), "it was idle for a second");
    }

    #[test]
    fn what_came_since_a_count_is_counted_before_one_is_closed() {
        let mut regions = Regions::new(8, 300);
        regions.insert((1, 1), 1, Ticket::NONE, 200, Instant(0));
        assert_eq!(regions.room(1, 200, Instant(9)), Room::Counted((1, 1)));
        regions.recount((1, 1), 150);
        assert_eq!(regions.room(1, 200, Instant(9)), Room::None);
        regions.insert((1, 2), 2, Ticket::NONE, 100, Instant(9));
        assert_eq!(regions.surplus(), Room::There);
        assert!((512..576).all(|block| !regions.supersede(1, block)));
        assert_eq!(regions.surplus(), Room::Counted((1, 2)), "nothing has come to the other one");
        regions.recount((1, 2), 151);
        assert_eq!(regions.surplus(), Room::Closed((1, 1)));
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
