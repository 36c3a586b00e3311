//! A budget of SSD writes, held by the engine's throttle: bytes as the engine counts them, by days.

use cinnabar_engine::Config;
use cinnabar_engine::plan::Plan;
use cinnabar_engine::units::VolumeId;
use cinnabar_policy::endurance::Endurance;
use cinnabar_study::instant::plain_volume;
use cinnabar_study::{CacheSetup, InstantCache};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const CAPACITY: u64 = 255 * 64;
const DAY_NS: u64 = 86_400_000_000_000;
const REQUESTS_A_DAY: u64 = 60_000;
/// Requests between two looks at the counter.
const LOOK: u64 = 20;

struct Host {
    cache: InstantCache,
    volume: VolumeId,
    chance: SmallRng,
    requests: u64,
}

impl Host {
    fn new() -> Self {
        let mut cache = InstantCache::new(CacheSetup::single(CAPACITY, Config::default()));
        cache.set_request_ns(DAY_NS / REQUESTS_A_DAY);
        let volume = cache.attach(plain_volume("guest", 1 << 20));
        Self { cache, volume, chance: SmallRng::seed_from_u64(7), requests: 0 }
    }

    /// Reads of popular blocks, four times as many as fit.
    fn requests(&mut self) {
        for _ in 0..LOOK {
            let draw = |chance: &mut SmallRng| chance.random_range(0..4 * CAPACITY / 8);
            let block = draw(&mut self.chance).min(draw(&mut self.chance)) * 8;
            self.cache.read(self.volume, block, 8);
        }
        self.requests += LOOK;
    }

    const fn now_ns(&self) -> u64 {
        self.requests * (DAY_NS / REQUESTS_A_DAY)
    }

    fn written(&mut self) -> u64 {
        self.cache.cache_counters().flash_written_bytes
    }

    fn hits(&mut self) -> u64 {
        self.cache.volume_counters(self.volume).read_hits
    }

    /// A day; gives the bytes written.
    fn day(&mut self, mut budget: Option<&mut Endurance>) -> u64 {
        let first = self.written();
        let mut last = first;
        for _ in 0..REQUESTS_A_DAY / LOOK {
            self.requests();
            let now = self.written();
            if let Some(budget) = budget.as_mut() {
                let admits = budget.wrote(self.now_ns(), now - last);
                self.cache.adopt(Plan { admits: Some(admits), ..Plan::default() });
            }
            last = now;
        }
        last - first
    }
}

#[test]
fn a_load_that_wants_three_budgets_writes_one() {
    let mut free = Host::new();
    free.day(None);
    let wants = free.day(None);
    let mut host = Host::new();
    host.day(None);
    let mut endurance = Endurance::new(wants / 3, host.now_ns());
    for day in 0..3 {
        let written = host.day(Some(&mut endurance));
        let part = written as f64 / endurance.bytes_a_day() as f64;
        assert!((part - 1.0).abs() <= 0.05, "day {day}: {part} of the budget");
    }
    let counters = host.cache.cache_counters();
    assert!(counters.throttled_blocks > 1000, "{counters:?}");
    assert!(endurance.counts().closed_ns > DAY_NS, "{:?}", endurance.counts());
    assert_eq!(host.cache.failures(), 0);
}

#[test]
fn while_nothing_is_admitted_hits_go_on_and_nothing_is_written() {
    let mut host = Host::new();
    host.day(None);
    host.cache.adopt(Plan { admits: Some(false), ..Plan::default() });
    let (written, hits) = (host.written(), host.hits());
    for _ in 0..200 {
        host.requests();
    }
    let (wrote, hit) = (host.written() - written, host.hits() - hits);
    assert!(hit > 200 * LOOK * 8 / 4, "{hit} hits");
    // What was in an open chunk, and metadata.
    assert!(wrote < 3 << 20, "{wrote} bytes");
    host.cache.adopt(Plan { admits: Some(true), ..Plan::default() });
    for _ in 0..500 {
        host.requests();
    }
    assert!(host.written() - written > 8 << 20, "it goes on");
}
