//! One day being made: requests pile up in any order and are sorted at the end.

use super::Settings;
use super::disk::count;
use super::parameters::{
    BOOT_HOUR, BURST_SECONDS, BURSTS, DAY_VARIES, JOURNAL_FLUSH, LAST_HOUR, NOON,
};
use crate::generate::Chance;
use crate::record::{Op, Record};

const HOUR: f64 = 3600.0;
const SECONDS: f64 = 24.0 * HOUR;
const SECTOR_BYTES: u64 = 512;
const BLOCK_BYTES: u64 = 4096;

/// Times are in seconds since midnight of a day of 24 hours, whatever its length in the trace is.
#[derive(Debug)]
pub(super) struct Day {
    pub(super) chance: Chance,
    /// When the machine is switched on.
    pub(super) boot_s: f64,
    settings: Settings,
    number: u32,
    requests: f64,
    bursts: Vec<f64>,
    records: Vec<Record>,
}

impl Day {
    pub(super) fn new(settings: Settings, number: u32) -> Self {
        // Stream 0 is the machine's.
        let mut chance = Chance::new(settings.seed, 1 + u64::from(number));
        let varied = 1.0 + DAY_VARIES * (2.0 * chance.unit() - 1.0);
        let boot_s = (BOOT_HOUR + chance.unit() / 2.0) * HOUR;
        let begin = boot_s + 600.0;
        let end = LAST_HOUR * HOUR;
        let bursts = (0..BURSTS).map(|_| begin + (end - begin) * chance.unit()).collect();
        let requests = f64::from(settings.requests_per_day) * varied;
        Self { chance, boot_s, settings, number, requests, bursts, records: Vec::new() }
    }

    /// How many requests a share of this day is.
    pub(super) fn budget(&self, share: f64) -> usize {
        count((self.requests * share).round())
    }

    /// Some time at which the user does something.
    pub(super) fn user_moment(&mut self) -> f64 {
        let burst = self.chance.below(self.bursts.len() as u64) as usize;
        let at = self.bursts[burst] + self.chance.exponential(BURST_SECONDS);
        if (NOON.start * HOUR..NOON.end * HOUR).contains(&at) {
            return at + (NOON.end - NOON.start) * HOUR;
        }
        at
    }

    /// Some time at which the machine is on.
    pub(super) fn any_moment(&mut self) -> f64 {
        self.boot_s + (LAST_HOUR * HOUR - self.boot_s) * self.chance.unit()
    }

    pub(super) fn read(&mut self, at_s: f64, block: u64, blocks: u64) {
        self.push(at_s, Op::Read, block * BLOCK_BYTES, blocks * BLOCK_BYTES);
    }

    /// A write; a short one may be of some sectors only.
    pub(super) fn write(&mut self, at_s: f64, block: u64, blocks: u64) {
        let (mut offset, mut length) = (block * BLOCK_BYTES, blocks * BLOCK_BYTES);
        if blocks == 1 && self.chance.with(self.settings.partial_writes) {
            let skipped = self.chance.below(BLOCK_BYTES / SECTOR_BYTES) * SECTOR_BYTES;
            let left = (BLOCK_BYTES - skipped) / SECTOR_BYTES;
            offset += skipped;
            length = (1 + self.chance.below(left)) * SECTOR_BYTES;
        }
        self.push(at_s, Op::Write, offset, length);
    }

    /// Now and then, a flush.
    pub(super) fn may_flush(&mut self, at_s: f64) {
        if self.chance.with(JOURNAL_FLUSH) {
            self.push(at_s, Op::Flush, 0, 0);
        }
    }

    /// All of it, in order of time.
    pub(super) fn into_records(mut self) -> Vec<Record> {
        // Stable: what was made first comes first among equals.
        self.records.sort_by_key(|record| record.ts_us);
        self.records
    }

    fn push(&mut self, at_s: f64, op: Op, offset_bytes: u64, length_bytes: u64) {
        let day_us = self.settings.day_us;
        let within = (count(at_s / SECONDS * day_us as f64) as u64).min(day_us - 1);
        let ts_us = u64::from(self.number) * day_us + within;
        self.records.push(Record { ts_us, volume: 0, op, offset_bytes, length_bytes });
    }
}
