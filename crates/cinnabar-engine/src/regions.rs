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
    pub(crate) opened: u64,
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
            opened: 0,
        }
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

    pub(crate) fn is_full(&self) -> bool {
        self.active.len() >= self.most
    }

    /// The one that is to be closed first, if more are active, or more is in doubt, than may be.
    pub(crate) fn surplus(&self) -> Option<Name> {
        let over = self.doubt > self.doubt_max && self.active.len() > 1;
        (over || self.active.len() > self.most).then(|| self.coldest()).flatten()
    }

    pub(crate) fn coldest(&self) -> Option<Name> {
        let by_use = self.active.iter().min_by_key(|(_, region)| (region.used, region.opening));
        by_use.map(|(name, _)| *name)
    }

    /// A region becomes active. `opened`: its record; `doubt`: blocks of it that are on flash.
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
        self.opened += 1;
        let region = Region { opening, opened, used: now, stale: [0; 4], doubt };
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
        region.doubt = blocks;
    }

    /// Takes out a region, whose end is recorded next.
    pub(crate) fn remove(&mut self, name: Name, version: u64) -> Option<RegionEnd> {
        let region = self.active.remove(&name)?;
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

    pub(crate) fn check_invariants(&self) {
        let sum: u64 = self.active.values().map(|region| region.doubt).sum();
        assert_eq!(sum, self.doubt, "blocks in doubt are counted");
        assert!(self.active.len() <= self.most.max(1), "active regions are bounded");
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
        assert_eq!(regions.coldest(), Some((1, 1)));
        assert!(regions.remove((1, 1), 0).is_some());
        assert_eq!(regions.load(), (1, 4));
        assert_eq!(regions.idle(at(9)), (vec![(1, 2)], None));
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
