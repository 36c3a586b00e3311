//! What goes on by itself: journals, metadata, the paging file, and a scan if there is one.

use super::day::Day;
use super::disk::{Disk, Zipf, count, pick};
use super::parameters::{
    CLUSTER_BLOCKS, GAP_SECONDS, JOURNAL_BLOCKS, JOURNAL_WRITE_BLOCKS, METADATA_READ,
    METADATA_WRITTEN, PAGING_BLOCKS, SCAN_HOURS, SCANNED, SHARES, STATE_BLOCKS,
};

/// Requests that come together.
const GROUP: usize = 4;

#[derive(Debug)]
pub(super) struct Background {
    journal_blocks: u64,
    journal_next: u64,
    written: Zipf,
    read: Zipf,
    paging_blocks: u64,
    paging_next: u64,
}

impl Background {
    pub(super) fn new(requests_per_day: u32) -> Self {
        let requests = f64::from(requests_per_day);
        Self {
            journal_blocks: count(requests * JOURNAL_BLOCKS) as u64,
            journal_next: 0,
            written: Zipf::new(count(requests * METADATA_WRITTEN)),
            read: Zipf::new(count(requests * METADATA_READ)),
            paging_blocks: count(requests * PAGING_BLOCKS) as u64 / CLUSTER_BLOCKS * CLUSTER_BLOCKS,
            paging_next: 0,
        }
    }

    /// A day's writes of its own.
    pub(super) fn day(&mut self, day: &mut Day, disk: &Disk) {
        // In order of time, so that journals are appended to.
        let groups = day.budget(SHARES.journal_writes).div_ceil(GROUP);
        let mut moments: Vec<f64> = (0..groups).map(|_| day.any_moment()).collect();
        moments.sort_by(f64::total_cmp);
        let mut left = day.budget(SHARES.journal_writes);
        for at_s in moments {
            self.journal(day, disk, at_s, left.min(GROUP));
            left -= left.min(GROUP);
        }
        for _ in 0..day.budget(SHARES.metadata_writes) {
            let at_s = if day.chance.with(0.5) { day.any_moment() } else { day.user_moment() };
            self.metadata(day, disk, at_s);
        }
        let clusters = day.budget(SHARES.paging_writes).div_ceil(2 * GROUP);
        let mut left = day.budget(SHARES.paging_writes);
        for _ in 0..clusters {
            let mut at_s = day.user_moment();
            for _ in 0..left.min(2 * GROUP) {
                day.write(at_s, disk.paging.first + self.paging_next, CLUSTER_BLOCKS);
                self.paging_next = (self.paging_next + CLUSTER_BLOCKS) % self.paging_blocks;
                at_s += day.chance.exponential(GAP_SECONDS);
            }
            left -= left.min(2 * GROUP);
        }
    }

    /// The writes of a boot or a logon: journals and metadata by turns.
    pub(super) fn beside(
        &mut self,
        day: &mut Day,
        disk: &Disk,
        from_s: f64,
        to_s: f64,
        share: f64,
    ) {
        let writes = day.budget(share);
        for nth in 0..writes {
            let at_s = from_s + (to_s - from_s) * (nth as f64 / writes as f64);
            if nth % 2 == 0 {
                self.journal(day, disk, at_s, 1);
            } else {
                self.metadata(day, disk, at_s);
            }
        }
    }

    /// Reads one block or two of metadata.
    pub(super) fn read_metadata(&self, day: &mut Day, disk: &Disk, at_s: f64) {
        let rank = self.read.rank(usize::MAX, &mut day.chance);
        let blocks = pick(STATE_BLOCKS, &mut day.chance);
        day.read(at_s, disk.metadata.scattered(rank as u64), blocks);
    }

    /// Reads what a scan reads, spread over its hours.
    pub(super) fn scan(day: &mut Day, disk: &Disk) {
        let requests = count(disk.blocks as f64 * SCANNED) as u64 / CLUSTER_BLOCKS;
        let begin = SCAN_HOURS.start * 3600.0;
        let each = (SCAN_HOURS.end * 3600.0 - begin) / requests as f64;
        for nth in 0..requests {
            let block = disk.system.first + nth * CLUSTER_BLOCKS;
            day.read(begin + nth as f64 * each, block, CLUSTER_BLOCKS);
        }
    }

    fn journal(&mut self, day: &mut Day, disk: &Disk, mut at_s: f64, writes: usize) {
        for _ in 0..writes {
            let blocks = pick(JOURNAL_WRITE_BLOCKS, &mut day.chance);
            if self.journal_next + blocks > self.journal_blocks {
                self.journal_next = 0;
            }
            day.write(at_s, disk.journal.first + self.journal_next, blocks);
            // The last block was not full: the next write begins with it.
            self.journal_next += blocks - 1;
            at_s += day.chance.exponential(GAP_SECONDS);
        }
        day.may_flush(at_s);
    }

    fn metadata(&mut self, day: &mut Day, disk: &Disk, at_s: f64) {
        let rank = self.written.rank(usize::MAX, &mut day.chance);
        let blocks = pick(STATE_BLOCKS, &mut day.chance);
        day.write(at_s, disk.metadata.scattered(rank as u64), blocks);
    }
}
