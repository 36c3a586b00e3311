//! Where things are on the disk: areas, and files in them.

use super::parameters::{LONE_BLOCKS, Odds, RUN_BLOCKS};
use crate::generate::Chance;

const BLOCK_BYTES: u64 = 4096;

/// A part of the disk that is handed out front to back and, when it is full, again from its front:
/// files there have been deleted by then.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub(super) first: u64,
    pub(super) blocks: u64,
    next: u64,
}

impl Area {
    fn new(first: u64, blocks: u64) -> Self {
        Self { first, blocks, next: 0 }
    }

    /// The first block of a place for `blocks` blocks, a little behind the last one.
    pub(super) fn place(&mut self, blocks: u64, chance: &mut Chance) -> u64 {
        let gap = chance.below(2 * blocks + 8);
        if self.next + gap + blocks > self.blocks {
            self.next = 0;
        }
        let start = (self.next + gap).min(self.blocks - blocks);
        self.next = start + blocks;
        self.first + start
    }

    /// A block of the area for each number, scattered, always the same.
    pub(super) fn scattered(&self, number: u64) -> u64 {
        // Knuth's multiplier: neighbours in number are far apart on the disk.
        self.first + number.wrapping_mul(2_654_435_761) % (self.blocks - 1)
    }
}

/// All areas, side by side.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) system: Area,
    pub(super) programs: Area,
    pub(super) documents: Area,
    /// Documents of before the trace.
    pub(super) archive: Area,
    pub(super) browser: Area,
    pub(super) journal: Area,
    pub(super) metadata: Area,
    pub(super) paging: Area,
    pub(super) blocks: u64,
}

impl Disk {
    pub(super) fn new(disk_bytes: u64) -> Self {
        let blocks = disk_bytes / BLOCK_BYTES;
        let mut next = 0;
        let mut area = |thousandths| {
            let area = Area::new(next, blocks / 1000 * thousandths);
            next += area.blocks;
            area
        };
        Self {
            metadata: area(40),
            system: area(150),
            programs: area(250),
            paging: area(30),
            journal: area(10),
            browser: area(20),
            documents: area(150),
            archive: area(350),
            blocks,
        }
    }
}

/// A file, or a piece of one: requests that follow each other on the disk.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) first: u64,
    /// Blocks of each request.
    pub(super) sizes: Vec<u8>,
}

impl Run {
    pub(super) fn new(requests: u64, area: &mut Area, chance: &mut Chance) -> Self {
        let odds = if requests == 1 { LONE_BLOCKS } else { RUN_BLOCKS };
        let sizes = (0..requests).map(|_| pick(odds, chance) as u8).collect();
        let mut run = Self { first: 0, sizes };
        run.rewrite(area, chance);
        run
    }

    /// The same file, rewritten elsewhere.
    pub(super) fn rewrite(&mut self, area: &mut Area, chance: &mut Chance) {
        let blocks = self.sizes.iter().copied().map(u64::from).sum();
        self.first = area.place(blocks, chance);
    }

    /// First block and blocks of each request.
    pub(super) fn requests(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.sizes.iter().scan(self.first, |next, &size| {
            let at = *next;
            *next += u64::from(size);
            Some((at, u64::from(size)))
        })
    }
}

pub(super) fn pick(odds: Odds, chance: &mut Chance) -> u64 {
    let mut left = chance.unit();
    for &(value, weight) in odds {
        left -= weight;
        if left < 0.0 {
            return value;
        }
    }
    // The weights' sum may be a hair below 1.
    odds[odds.len() - 1].0
}

/// A count: rounded down, and never below 0.
#[expect(clippy::cast_sign_loss, reason = "the cast saturates, which is what is wanted")]
pub(super) fn count(value: f64) -> usize {
    value as usize
}

/// Ranks from 0, the k-th with a probability of about 1/k. By a table of sums, because division and
/// addition give the same everywhere and a power does not.
#[derive(Clone, Debug)]
pub(super) struct Zipf(Vec<f64>);

impl Zipf {
    /// At least one rank.
    pub(super) fn new(ranks: usize) -> Self {
        let sums = (1..=ranks.max(1)).scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        });
        Self(sums.collect())
    }

    /// A rank below `among` (at least 1), or below the table's end.
    pub(super) fn rank(&self, among: usize, chance: &mut Chance) -> usize {
        let sums = &self.0[..among.min(self.0.len())];
        let at = chance.unit() * sums[sums.len() - 1];
        sums.partition_point(|&sum| sum <= at).min(sums.len() - 1)
    }
}
