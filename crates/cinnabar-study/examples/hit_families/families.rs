//! Workloads with one habit each, made from a fixed seed: what a cache meets in general, not a trace
//! that it was tuned on.
//!
//! Which of them settings are tuned on ([`Family::tuned`]) was written down before the tuning began;
//! the others are only reported.

use cinnabar_trace::generate::boot_storm::{self, BootStorm};
use cinnabar_trace::generate::desktop::{self, Desktop};
use cinnabar_trace::generate::file_server::{self, FileServer};
use cinnabar_trace::generate::spc1;
use cinnabar_trace::generate::working_set;
use cinnabar_trace::generate::zipf::{self, Zipf};
use cinnabar_trace::{Op, Record};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;

/// A kind of workload.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// Settings may be chosen by what it shows.
    pub(crate) tuned: bool,
    pub(crate) make: fn() -> Vec<Record>,
}

/// All of them.
pub(crate) const FAMILIES: [Family; 13] = [
    Family { name: "loop", tuned: true, make: looping },
    Family { name: "hot set, scans", tuned: false, make: hot_and_scans },
    Family { name: "drifting zipf", tuned: true, make: drifting },
    Family { name: "written, read once", tuned: false, make: read_once },
    Family { name: "log", tuned: true, make: log },
    Family { name: "database, checkpoints", tuned: false, make: database },
    Family { name: "boot storm", tuned: true, make: boots },
    Family { name: "desktop", tuned: false, make: desktops },
    Family { name: "SPC-1-like", tuned: true, make: storage_benchmark },
    Family { name: "alternating phases", tuned: false, make: phases },
    Family { name: "misaligned guest", tuned: true, make: misaligned },
    Family { name: "file server", tuned: false, make: files },
    Family { name: "mixed guests", tuned: true, make: mixed },
];

/// Requests as they are made.
struct Requests {
    chance: SmallRng,
    all: Vec<Record>,
    blocks: u64,
}

impl Requests {
    fn new(seed: u64) -> Self {
        Self { chance: SmallRng::seed_from_u64(seed), all: Vec::new(), blocks: 0 }
    }

    fn blocks(&mut self, write: bool, first: u64, count: u64) {
        self.bytes(write, first * BLOCK, count * BLOCK);
    }

    fn bytes(&mut self, write: bool, offset_bytes: u64, length_bytes: u64) {
        let op = if write { Op::Write } else { Op::Read };
        let ts_us = self.all.len() as u64 * 500;
        self.all.push(Record { ts_us, volume: 0, op, offset_bytes, length_bytes });
        self.blocks += length_bytes.div_ceil(BLOCK);
    }

    fn below(&mut self, end: u64) -> u64 {
        self.chance.random_range(0..end)
    }

    fn with(&mut self, probability: f64) -> bool {
        self.chance.random_bool(probability)
    }
}

/// Zipf's law over so many blocks, without end.
fn zipf_blocks(footprint_blocks: u64, alpha: f64, seed: u64) -> impl Iterator<Item = u64> {
    let settings = zipf::Settings { footprint_blocks, alpha, seed, ..zipf::Settings::default() };
    Zipf::new(settings).expect("sound settings").map(|record| record.offset_bytes / BLOCK)
}

/// The same 900 MiB from end to end, nine times.
fn looping() -> Vec<Record> {
    const BLOCKS: u64 = 230_400;
    let mut made = Requests::new(1);
    for _ in 0..9 {
        (0..BLOCKS).step_by(8).for_each(|first| made.blocks(false, first, 8));
    }
    made.all
}

/// Four of five requests to a tenth of the disk, and now and then a backup reads a part of the rest.
fn hot_and_scans() -> Vec<Record> {
    const ALL: u64 = 300_000;
    const HOT: u64 = 30_000;
    let mut made = Requests::new(2);
    let mut scan = 0;
    while made.blocks < 2_500_000 {
        for _ in 0..100_000 {
            let first = if made.with(0.8) { made.below(HOT) } else { made.below(ALL) };
            let write = made.with(0.2);
            made.blocks(write, first, 1);
        }
        for _ in 0..2_000 {
            made.blocks(false, HOT + scan % (ALL - HOT - 32), 32);
            scan += 32;
        }
    }
    made.all
}

/// Popular blocks that change: in the whole run everything has once been popular.
fn drifting() -> Vec<Record> {
    const BLOCKS: u64 = 262_144;
    let mut made = Requests::new(3);
    let mut ranks = zipf_blocks(BLOCKS, 0.9, 3);
    for step in 0..2_500_000_u64 {
        let block = ranks.next().expect("endless");
        // A region of blocks has its popularity taken over by the next one.
        let moved = (block + step / 2_500 * 262) % BLOCKS;
        let write = made.with(0.3);
        made.blocks(write, moved, 1);
    }
    made.all
}

/// What is written is read once, some time later, and then written over: a queue, a spool.
fn read_once() -> Vec<Record> {
    const BLOCKS: u64 = 262_144;
    const RUN: u64 = 64;
    let mut made = Requests::new(4);
    let runs = BLOCKS / RUN;
    let mut read = 0;
    for written in 0..8 * runs {
        made.blocks(true, written % runs * RUN, RUN);
        let lag = runs / 16 + made.below(runs / 16);
        while read + lag < written {
            made.blocks(false, read % runs * RUN, RUN);
            read += 1;
        }
    }
    made.all
}

/// A ring that is appended to, its end read by followers, seldom an old part.
fn log() -> Vec<Record> {
    const BLOCKS: u64 = 262_144;
    let mut made = Requests::new(5);
    let mut end = 0;
    while made.blocks < 2_500_000 {
        let count = 1 + made.below(8);
        let first = (end % BLOCKS).min(BLOCKS - count);
        made.blocks(true, first, count);
        end = first + count;
        for _ in 0..2 {
            let back = if made.with(0.95) { made.below(2_000) } else { made.below(BLOCKS / 2) };
            made.blocks(false, (end + BLOCKS - 4 - back) % (BLOCKS - 4), 4);
        }
    }
    made.all
}

/// Pages read and changed by Zipf's law, each change in a redo log at once, all changed pages written
/// in order now and then.
fn database() -> Vec<Record> {
    const PAGES: u64 = 100_000;
    const PAGE: u64 = 2;
    const LOG: u64 = 32_768;
    let mut made = Requests::new(6);
    let mut ranks = zipf_blocks(PAGES, 0.8, 6);
    let mut changed = std::collections::BTreeSet::new();
    let mut logged = 0;
    while made.blocks < 2_500_000 {
        let page = ranks.next().expect("endless");
        made.blocks(false, LOG + page * PAGE, PAGE);
        if made.with(0.2) {
            changed.insert(page);
            made.blocks(true, logged % LOG, 1);
            logged += 1;
        }
        if changed.len() == 20_000 {
            for page in std::mem::take(&mut changed) {
                made.blocks(true, LOG + page * PAGE, PAGE);
            }
        }
    }
    made.all
}

fn boots() -> Vec<Record> {
    let settings = boot_storm::Settings { seed: 7, ..boot_storm::Settings::default() };
    BootStorm::new(settings).expect("sound settings").take(1_500_000).collect()
}

fn desktops() -> Vec<Record> {
    let settings = desktop::Settings { seed: 8, days: 6, ..desktop::Settings::default() };
    Desktop::new(settings).expect("sound settings").collect()
}

fn storage_benchmark() -> Vec<Record> {
    let settings = spc1::Settings {
        bsu: 10,
        mix: spc1::Mix::Spc1,
        asu_blocks: [180_000, 180_000, 40_000],
        seed: 9,
    };
    let generator = spc1::Generator::new(settings).expect("sound settings");
    spc1::records(generator).map(|record| record.expect("made, not read")).take(900_000).collect()
}

/// A loop that fits, then a loop that does not, then a hot set, over and over.
fn phases() -> Vec<Record> {
    const BLOCKS: u64 = 262_144;
    let mut made = Requests::new(10);
    let mut ranks = zipf_blocks(BLOCKS / 4, 1.0, 10);
    for round in 0..9_u64 {
        for step in 0..280_000_u64 {
            let block = match round % 3 {
                0 => step % (BLOCKS / 8),
                1 => BLOCKS / 4 + step % (BLOCKS * 3 / 4),
                _ => ranks.next().expect("endless"),
            };
            let write = round % 3 == 2 && made.with(0.5);
            made.blocks(write, block, 1);
        }
    }
    made.all
}

/// A guest whose partition begins with sector 63.
fn misaligned() -> Vec<Record> {
    const BLOCKS: u64 = 200_000;
    let mut made = Requests::new(11);
    let mut ranks = zipf_blocks(BLOCKS, 0.9, 11);
    while made.blocks < 2_000_000 {
        let block = ranks.next().expect("endless");
        let count = [1, 1, 2, 4, 8][made.below(5) as usize];
        let first = block.min(BLOCKS - count);
        let write = made.with(0.5);
        made.bytes(write, 63 * SECTOR + first * BLOCK, count * BLOCK);
    }
    made.all
}

fn files() -> Vec<Record> {
    let access = working_set::Settings {
        working_set_blocks: 60_000,
        total_blocks: 300_000,
        ..working_set::Settings::default()
    };
    let settings = file_server::Settings { access, ..file_server::Settings::default() };
    FileServer::new(settings).expect("sound settings").take(2_000_000).collect()
}

/// Three guests side by side: a loop that does not fit, blocks that are read once more some time later
/// and never again, and popular blocks.
fn mixed() -> Vec<Record> {
    const LOOP: u64 = 150_000;
    const LATER: u64 = 30_000;
    let mut made = Requests::new(12);
    let mut ranks = zipf_blocks(60_000, 0.9, 12);
    for step in 0..900_000_u64 {
        let twice = if step.is_multiple_of(2) { step / 2 + LATER } else { step / 2 };
        let popular = ranks.next().expect("endless");
        let write = made.with(0.2);
        for (volume, write, block) in
            [(0, false, step % LOOP), (1, false, twice % 120_000), (2, write, popular)]
        {
            made.blocks(write, block, 1);
            made.all.last_mut().expect("just made").volume = volume;
        }
    }
    made.all
}
