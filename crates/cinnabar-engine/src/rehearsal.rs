//! Small simulations of the ways in which blocks can be admitted, beside the real cache.
//!
//! Which way spares most backend reads depends on the workload and on how much of it fits, so it is
//! tried out: each way has a simulated cache of some sampled keys, scaled with the real one. At the
//! end of each round the real cache takes the way that cost least lately, flash writes counting at
//! their price ([`Endurance`]). Memory and work are bounded, and the same accesses decide the same.

use crate::config::{Admission, Endurance};
use crate::counters::{Trial, Trials};
use crate::descriptors::{Key, mix};
use crate::ghost::Ghost;
use std::collections::{BTreeMap, VecDeque};

/// What is done with a sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is read, and the real cache has it or not.
    Read {
        hit: bool,
    },
    Write,
}

/// Simulated blocks at most, and for how many real ones there is one.
const BLOCKS_MAX: u64 = 4096;
const BLOCKS_PER: u64 = 64;

/// Rounds to as many accesses as the cache has blocks, and rounds that are remembered.
const ROUNDS: u64 = 32;

/// A smaller cache has nothing to try out.
const CAPACITY_MIN: u64 = 1000;

/// Blocks that one access looks at to make room: if they have all been used, the next one goes on.
const STEPS_MAX: usize = 256;

/// The simulated caches, and which way is taken.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    /// A key is sampled if its product is below this.
    below: u64,
    /// Real blocks for a simulated one, in 1024ths.
    scale: u64,
    /// Flash writes that sparing a back-end read is worth.
    read_worth: u64,
    ways: [Small; 4],
    taken: Admission,
    is_fixed: bool,
    /// Sampled accesses left of this round.
    left: u32,
    /// Sampled reads, and those that the real cache missed.
    reads: u64,
    misses: u64,
    /// Times that another way was taken.
    changes: u64,
}

impl Rehearsal {
    /// For a cache of `capacity` blocks.
    /// `fixed`: the way to take, whatever the others would bring.
    pub(crate) fn new(capacity: u64, endurance: Endurance, fixed: Option<Admission>) -> Self {
        let blocks = (capacity / BLOCKS_PER).clamp(64, BLOCKS_MAX);
        let scale = (capacity * 1024).div_ceil(blocks).max(1024);
        let small = |way| Small::new(way, blocks as u32);
        Self {
            below: if capacity < CAPACITY_MIN { 0 } else { (1 << 32) * 1024 / scale },
            scale,
            read_worth: endurance.read_worth().into(),
            ways: Admission::ALL.map(small),
            taken: fixed.unwrap_or_default(),
            is_fixed: fixed.is_some(),
            left: blocks as u32,
            reads: 0,
            misses: 0,
            changes: 0,
        }
    }

    /// The way to take.
    pub(crate) const fn way(&self) -> Admission {
        self.taken
    }

    /// The cache has blocks of an earlier run, and nothing is known of how they came in.
    pub(crate) const fn begin_warm(&mut self) {
        if !self.is_fixed {
            self.taken = Admission::Thrifty;
        }
    }

    /// Whether accesses to this block are simulated.
    #[inline]
    pub(crate) const fn samples(&self, key: Key) -> bool {
        let mixed = (key.block ^ (key.volume as u64) << 20).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed >> 32 < self.below
    }

    /// A sampled block is read or written. `pays`: its volume's history speaks for keeping writes.
    /// `limit`: real blocks worth keeping that the cache can hold.
    pub(crate) fn access(&mut self, key: Key, access: Access, pays: bool, limit: u64) {
        let key = key.block << 12 | u64::from(key.volume);
        let write = access == Access::Write;
        self.reads += u64::from(!write);
        self.misses += u64::from(access == Access::Read { hit: false });
        for small in &mut self.ways {
            small.access(key, write, pays);
        }
        assert!(self.left > 0, "a round has accesses left until it ends");
        self.left -= 1;
        if self.left == 0 {
            self.end_round(limit);
        }
    }

    fn end_round(&mut self, limit: u64) {
        let capacity = (limit * 1024 / self.scale).max(16) as usize;
        // Before that they do the same.
        let full = self.ways.iter().any(|small| small.was_full);
        for small in &mut self.ways {
            small.capacity = capacity;
            small.missed += small.misses;
            small.flashed += small.flash;
            let cost = small.misses * self.read_worth + small.flash;
            small.cost = if full { small.cost - small.cost / ROUNDS + cost } else { 0 };
            (small.misses, small.flash) = (0, 0);
        }
        self.left = (capacity / ROUNDS as usize).max(16) as u32;
        // A closed cache learns of a change by its small likeness only: it has to halve the cost.
        let cost = |way: Admission| {
            let cost = self.ways[way as usize].cost;
            if way == Admission::Closed { cost * 2 } else { cost }
        };
        let best = Admission::ALL.into_iter().min_by_key(|way| cost(*way)).expect("there are ways");
        // A way is left for one that is better by an eighth: they must not take turns.
        if !self.is_fixed && cost(best) < cost(self.taken) / 8 * 7 {
            self.taken = best;
            self.changes += 1;
        }
    }

    /// What the simulations show, in real blocks.
    pub(crate) fn trials(&self) -> Trials {
        let real = |sampled: u64| sampled * self.scale / 1024;
        let of = |way: Admission| {
            let small = &self.ways[way as usize];
            Trial {
                shards: u64::from(way == self.taken),
                read_misses: real(small.missed + small.misses),
                flash_writes: real(small.flashed + small.flash),
            }
        };
        Trials {
            reads: real(self.reads),
            read_misses: real(self.misses),
            changes: self.changes,
            closed: of(Admission::Closed),
            thrifty: of(Admission::Thrifty),
            probation: of(Admission::Probation),
            open: of(Admission::Open),
        }
    }

    /// Bytes held, about.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let bytes = |small: &Small| {
            let entry = size_of::<u64>() + size_of::<Entry>();
            small.blocks.len() * entry * 3 / 2
                + (small.probation.len() + small.main.len()) * size_of::<(u64, u32)>()
                + small.ghost.ram_bytes() as usize
        };
        self.ways.iter().map(|small| bytes(small) as u64).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Probation,
    Main,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: At,
    refs: u8,
    /// Tells the entry's place in a queue from the ones that it has left.
    stamp: u32,
}

type Queue = VecDeque<(u64, u32)>;

/// A simulated cache: what `docs/design/eviction.md` says, without segments.
#[derive(Debug)]
struct Small {
    way: Admission,
    capacity: usize,
    blocks: BTreeMap<u64, Entry>,
    /// Queues hold left places, too; each is cleared of them when it is twice too long.
    probation: Queue,
    main: Queue,
    /// Like the real one: whether a loop is remembered depends on how its buckets fill.
    ghost: Ghost,
    /// Blocks in each, without left places.
    in_probation: usize,
    in_main: usize,
    stamp: u32,
    was_full: bool,
    /// Of this round.
    misses: u64,
    flash: u64,
    /// Of all rounds before.
    missed: u64,
    flashed: u64,
    /// The same at their prices, older rounds fading.
    cost: u64,
}

impl Small {
    fn new(way: Admission, blocks: u32) -> Self {
        Self {
            way,
            capacity: blocks as usize,
            blocks: BTreeMap::new(),
            probation: Queue::new(),
            main: Queue::new(),
            ghost: Ghost::new(blocks),
            in_probation: 0,
            in_main: 0,
            stamp: 0,
            was_full: false,
            misses: 0,
            flash: 0,
            missed: 0,
            flashed: 0,
            cost: 0,
        }
    }

    fn access(&mut self, key: u64, write: bool, pays: bool) {
        let entry = self.blocks.get_mut(&key);
        let cached = entry.is_some();
        if let Some(entry) = entry
            && !write
        {
            entry.refs = (entry.refs + 1).min(3);
            return;
        }
        let known = !cached && self.ghost.take(hash(key)).is_some();
        self.leave(key);
        self.misses += u64::from(!write);
        if write && !self.has_room() && self.way.is_thrifty() && !pays {
            self.ghost.insert(hash(key), true);
        } else if known && self.way != Admission::Closed {
            self.enter(key, At::Main, 0);
        } else {
            self.enter(key, At::Probation, u8::from(cached));
        }
        self.settle();
    }

    fn has_room(&self) -> bool {
        !self.was_full && self.in_main + self.in_probation < self.capacity
    }

    fn leave(&mut self, key: u64) {
        match self.blocks.remove(&key).map(|entry| entry.at) {
            Some(At::Probation) => {
                assert!(self.in_probation > 0, "a block there counts");
                self.in_probation -= 1;
            }
            Some(At::Main) => {
                assert!(self.in_main > 0, "a block there counts");
                self.in_main -= 1;
            }
            None => {}
        }
    }

    fn enter(&mut self, key: u64, at: At, refs: u8) {
        self.stamp = self.stamp.wrapping_add(1);
        let entry = Entry { at, refs, stamp: self.stamp };
        self.blocks.insert(key, entry);
        let (queue, most) = match at {
            At::Probation => {
                self.in_probation += 1;
                (&mut self.probation, self.capacity / 100 + 1)
            }
            At::Main => {
                self.in_main += 1;
                self.flash += 1;
                (&mut self.main, self.capacity)
            }
        };
        queue.push_back((key, self.stamp));
        if queue.len() > 2 * most + 16 {
            let blocks = &self.blocks;
            queue.retain(|(key, stamp)| blocks.get(key).is_some_and(|e| e.stamp == *stamp));
        }
    }

    /// The oldest block of a queue that is still there.
    fn oldest(queue: &mut Queue, blocks: &BTreeMap<u64, Entry>) -> Option<(u64, Entry)> {
        while let Some((key, stamp)) = queue.pop_front() {
            if let Some(entry) = blocks.get(&key)
                && entry.stamp == stamp
            {
                return Some((key, *entry));
            }
        }
        None
    }

    /// Blocks leave until each queue is as long as it may be, or one access has done enough.
    fn settle(&mut self) {
        while self.in_probation > self.capacity / 100 + 1 {
            let Some((key, entry)) = Self::oldest(&mut self.probation, &self.blocks) else { break };
            let admitted = entry.refs > 0 || self.way == Admission::Open || self.has_room();
            self.leave(key);
            if admitted {
                self.enter(key, At::Main, 0);
            } else {
                self.ghost.insert(hash(key), false);
            }
        }
        self.was_full |= self.in_main > self.capacity;
        for _ in 0..STEPS_MAX {
            if self.in_main <= self.capacity {
                break;
            }
            let Some((key, entry)) = Self::oldest(&mut self.main, &self.blocks) else { break };
            if entry.refs > 0 {
                self.main.push_back((key, entry.stamp));
                self.blocks.get_mut(&key).expect("just found").refs -= 1;
            } else {
                self.leave(key);
                self.ghost.insert(hash(key), false);
            }
        }
    }
}

fn hash(key: u64) -> u64 {
    mix(key, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 64 * 1024;

    /// Accesses blocks, all of them sampled ones; gives the way taken at the end.
    fn way_after(
        rehearsal: &mut Rehearsal,
        accesses: impl Iterator<Item = (u64, bool)>,
    ) -> Admission {
        let key = |block| Key { volume: 0, block };
        let sampled: Vec<u64> =
            (0..64 * 8192).filter(|block| rehearsal.samples(key(*block))).collect();
        for (block, write) in accesses {
            let block = sampled[block as usize % sampled.len()];
            let access = if write { Access::Write } else { Access::Read { hit: false } };
            rehearsal.access(key(block), access, !write, CAPACITY);
        }
        rehearsal.way()
    }

    #[test]
    fn one_block_in_sixty_four_is_sampled() {
        let rehearsal = Rehearsal::new(CAPACITY, Endurance::Balanced, None);
        let blocks = 0..1 << 20;
        let sampled = blocks.filter(|block| rehearsal.samples(Key { volume: 3, block: *block }));
        let sampled = sampled.count();
        assert!((15_000..18_000).contains(&sampled), "{sampled} of 2^20");
        assert!(
            !Rehearsal::new(999, Endurance::Balanced, None).samples(Key { volume: 0, block: 0 }),
            "too small a cache"
        );
    }

    #[test]
    fn a_loop_that_does_not_fit_is_not_let_in_whole() {
        let mut rehearsal = Rehearsal::new(CAPACITY, Endurance::Balanced, None);
        assert_eq!(rehearsal.way(), Admission::Open, "as long as nothing is known");
        let around = (0..40_000).map(|i| (i % 1400, false));
        assert_eq!(way_after(&mut rehearsal, around), Admission::Closed);
    }

    #[test]
    fn blocks_read_once_more_long_after_are_let_in_at_once() {
        let mut rehearsal = Rehearsal::new(CAPACITY, Endurance::Balanced, None);
        rehearsal.begin_warm();
        // Each is read again after 600 others, and never again.
        let pairs =
            (0..20_000_u64).map(|i| (if i.is_multiple_of(2) { i / 2 + 300 } else { i / 2 }, false));
        assert_eq!(way_after(&mut rehearsal, pairs), Admission::Open);
    }

    #[test]
    fn it_changes_its_mind_with_the_workload_and_keeps_to_its_memory() {
        let mut rehearsal = Rehearsal::new(CAPACITY, Endurance::Balanced, None);
        let written = |i: u64| !i.is_multiple_of(3);
        let log = (0..30_000)
            .map(|i| if written(i) { (i % 3000 + 1000, true) } else { (i % 900, false) });
        assert_eq!(way_after(&mut rehearsal, log), Admission::Thrifty, "the log only takes room");
        let pairs =
            (0..20_000_u64).map(|i| (if i.is_multiple_of(2) { i / 2 + 300 } else { i / 2 }, false));
        assert_eq!(way_after(&mut rehearsal, pairs), Admission::Open);
        let bytes = rehearsal.ram_bytes();
        assert!(bytes <= CAPACITY * 3, "{bytes} bytes for {CAPACITY} blocks");
    }
}
