//! The browser: a cache of small objects, written round and round, and its state, written in place.

use super::day::Day;
use super::disk::{Disk, Zipf, count, pick};
use super::parameters::{
    BROWSER_OBJECTS, BROWSER_STATE, GAP_SECONDS, OBJECT_BLOCKS, OBJECT_SLOT_BLOCKS, SHARES,
    STATE_BLOCKS,
};
use crate::generate::Chance;

/// Blocks of history, cookies and index.
const STATE: usize = 512;
/// Requests of one page, reads and writes apart.
const PAGE_WRITES: usize = 20;
const PAGE_READS: usize = 8;

#[derive(Debug)]
pub(super) struct Browser {
    first: u64,
    /// Blocks of the object in each slot.
    objects: Vec<u8>,
    next: usize,
    popularity: Zipf,
}

impl Browser {
    pub(super) fn new(requests_per_day: u32, disk: &Disk, chance: &mut Chance) -> Self {
        let slots = count(f64::from(requests_per_day) * BROWSER_OBJECTS);
        // What is cached from before the trace.
        let objects = (0..slots).map(|_| pick(OBJECT_BLOCKS, chance) as u8).collect();
        Self { first: disk.browser.first, objects, next: 0, popularity: Zipf::new(STATE) }
    }

    pub(super) fn day(&mut self, day: &mut Day) {
        let mut writes = day.budget(SHARES.browser_writes);
        let mut reads = day.budget(SHARES.browser_reads);
        // In order of time, so that what is read was written before.
        let pages = writes.div_ceil(PAGE_WRITES).max(reads.div_ceil(PAGE_READS));
        let mut moments: Vec<f64> = (0..pages).map(|_| day.user_moment()).collect();
        moments.sort_by(f64::total_cmp);
        for mut at_s in moments {
            for _ in 0..writes.min(PAGE_WRITES) {
                self.write(day, at_s);
                at_s += day.chance.exponential(GAP_SECONDS);
            }
            writes -= writes.min(PAGE_WRITES);
            for _ in 0..reads.min(PAGE_READS) {
                self.read(day, at_s);
                at_s += day.chance.exponential(GAP_SECONDS);
            }
            reads -= reads.min(PAGE_READS);
        }
    }

    fn write(&mut self, day: &mut Day, at_s: f64) {
        if day.chance.with(BROWSER_STATE) {
            let rank = self.popularity.rank(STATE, &mut day.chance) as u64;
            let blocks = pick(STATE_BLOCKS, &mut day.chance).min(STATE as u64 - rank);
            day.write(at_s, self.first + rank, blocks);
            return;
        }
        let blocks = pick(OBJECT_BLOCKS, &mut day.chance);
        self.objects[self.next] = blocks as u8;
        day.write(at_s, self.block_of(self.next), blocks);
        self.next = (self.next + 1) % self.objects.len();
    }

    /// What was written of late is the likelier to be read.
    fn read(&mut self, day: &mut Day, at_s: f64) {
        let slots = self.objects.len();
        let back = count(day.chance.exponential(slots as f64 / 4.0)) % slots;
        let slot = (self.next + slots - 1 - back) % slots;
        day.read(at_s, self.block_of(slot), u64::from(self.objects[slot]));
    }

    fn block_of(&self, slot: usize) -> u64 {
        self.first + STATE as u64 + slot as u64 * OBJECT_SLOT_BLOCKS
    }
}
