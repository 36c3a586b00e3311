//! One volume on which several things go on at a time: loops, scans, a log, and blocks that are popular.
//!
//! From its begin the volume has an area that is written and maybe read back, a log that is written
//! round and round, an area that is only read, and a loop that is read from end to end, again and
//! again. Scans are long runs of reads from anywhere on.

use super::chance::Chance;
use super::lengths::Lengths;
use super::popularity::Popularity;
use super::request;
use crate::record::Record;

/// Blocks of a request of a loop, a scan or a log's writer: 64 KiB.
pub(super) const RUN_BLOCKS: u64 = 16;

/// What goes on. Shares are of the reads or of the writes, and within 0 to 1.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) volume: u32,
    pub(super) write_share: f64,
    /// Blocks that are written by popularity, with this exponent.
    pub(super) written: (u64, f64),
    /// Blocks of the log, and the share of the writes that it gets.
    pub(super) log: (u64, f64),
    /// Blocks that are only read, by popularity, with this exponent.
    pub(super) read: (u64, f64),
    /// Share of the reads that go where writes go by popularity, too.
    pub(super) read_back: f64,
    /// Blocks of the loop, and the share of the reads that go on with it.
    pub(super) looped: (u64, f64),
    /// Blocks of a scan, and the share of the reads that go on with one.
    pub(super) scan: (u64, f64),
    /// Lengths of requests that are no loop, scan or log.
    pub(super) lengths: Lengths,
}

impl Settings {
    pub(super) const fn blocks(&self) -> u64 {
        self.written.0 + self.log.0 + self.read.0 + self.looped.0
    }
}

#[derive(Debug)]
pub(super) struct Blend {
    settings: Settings,
    written: Option<Popularity>,
    read: Option<Popularity>,
    /// Next block of the log.
    log_at: u64,
    /// Next block of the loop.
    loop_at: u64,
    /// Next block of the scan, and blocks left of it.
    scan_at: (u64, u64),
}

impl Blend {
    /// At its start: the loop and the log begin anywhere.
    pub(super) fn new(settings: Settings, chance: &mut Chance) -> Self {
        let mut popularity = |(blocks, alpha): (u64, f64)| {
            (blocks > 0).then(|| Popularity::new(blocks, alpha, chance))
        };
        let (written, read) = (popularity(settings.written), popularity(settings.read));
        let mut anywhere = |blocks: u64| if blocks == 0 { 0 } else { chance.below(blocks) };
        let (log_at, loop_at) = (anywhere(settings.log.0), anywhere(settings.looped.0));
        Self { settings, written, read, log_at, loop_at, scan_at: (0, 0) }
    }

    pub(super) fn next(&mut self, ts_us: u64, chance: &mut Chance) -> Record {
        let write = chance.with(self.settings.write_share);
        let (first, blocks) = if write { self.write(chance) } else { self.read(chance) };
        request(ts_us, self.settings.volume, write, first, blocks)
    }

    fn write(&mut self, chance: &mut Chance) -> (u64, u64) {
        let Settings { written: (written_blocks, _), log: (log_blocks, log_share), .. } =
            self.settings;
        if log_blocks > 0 && (chance.with(log_share) || self.written.is_none()) {
            let (at, blocks) = advance(&mut self.log_at, log_blocks);
            return (written_blocks + at, blocks);
        }
        let blocks = self.settings.lengths.pick(chance);
        by_popularity(self.written.as_ref(), 0, blocks, chance)
    }

    fn read(&mut self, chance: &mut Chance) -> (u64, u64) {
        let settings = &self.settings;
        let (loop_blocks, loop_share) = settings.looped;
        let (scan_blocks, scan_share) = settings.scan;
        let read_from = settings.written.0 + settings.log.0;
        let rng = chance.unit();
        if rng < loop_share && loop_blocks > 0 {
            let from = read_from + settings.read.0;
            let (at, blocks) = advance(&mut self.loop_at, loop_blocks);
            return (from + at, blocks);
        }
        if rng < loop_share + scan_share && scan_blocks > 0 {
            return self.scan(scan_blocks, chance);
        }
        let blocks = settings.lengths.pick(chance);
        let is_back = rng < loop_share + scan_share + settings.read_back;
        if (is_back || self.read.is_none()) && self.written.is_some() {
            return by_popularity(self.written.as_ref(), 0, blocks, chance);
        }
        by_popularity(self.read.as_ref(), read_from, blocks, chance)
    }

    /// A scan begins anywhere and ends after its blocks, or at the end of the volume.
    fn scan(&mut self, scan_blocks: u64, chance: &mut Chance) -> (u64, u64) {
        let end = self.settings.blocks();
        if self.scan_at.1 == 0 || self.scan_at.0 >= end {
            self.scan_at = (chance.below(end), scan_blocks);
        }
        let (at, left) = self.scan_at;
        let blocks = RUN_BLOCKS.min(left).min(end - at);
        self.scan_at = (at + blocks, left - blocks);
        (at, blocks)
    }
}

/// The next piece of something that goes round and round.
fn advance(at: &mut u64, end: u64) -> (u64, u64) {
    let first = if *at >= end { 0 } else { *at };
    let blocks = RUN_BLOCKS.min(end - first);
    *at = first + blocks;
    (first, blocks)
}

fn by_popularity(
    popularity: Option<&Popularity>,
    from: u64,
    blocks: u64,
    chance: &mut Chance,
) -> (u64, u64) {
    let popularity = popularity.expect("checked: what is asked for has an area");
    let blocks = blocks.min(popularity.blocks());
    (from + popularity.run(blocks, chance), blocks)
}
