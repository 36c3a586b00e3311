//! The manager's way from accesses to targets, with the production engine under it: what a scan costs
//! its neighbours, and how soon shares follow a change.

use cinnabar_engine::Config;
use cinnabar_engine::plan::{Plan, VolumePlan};
use cinnabar_engine::units::VolumeId;
use cinnabar_policy::monitor;
use cinnabar_policy::planning::{Actuator, Closed, Every, Limits, Planning, Rules, Wanted};
use cinnabar_policy::sizing::{Allocator, Prices, Steadiness};
use cinnabar_study::instant::plain_volume;
use cinnabar_study::rng::Rng;
use cinnabar_study::{CacheSetup, InstantCache};

const CAPACITY: u64 = 65_535;
const VOLUME_BLOCKS: u64 = 16 * CAPACITY;
const INTERVAL_US: u64 = 1_000_000;

/// A cache whose shares are managed.
struct Managed {
    cache: InstantCache,
    volumes: Vec<VolumeId>,
    planning: Planning,
    actuator: Actuator,
    now_us: u64,
    /// Of each volume, in blocks, after each plan.
    targets: Vec<Vec<u64>>,
}

fn rules() -> Rules {
    Rules {
        allocator: Allocator::Urd,
        prices: Prices {
            ssd_read_us: 88.0,
            ssd_write_us: 21.0,
            backend_read_us: 927.0,
            backend_write_us: 141.0,
            omega: 0.0,
            lambda_us: 21.0,
            mu_us: 0.0,
        },
        ssd_blocks_per_s: None,
        written_part_max: 0.5,
        intensity: 0.0,
        reach_part: 0.99,
        steadiness: Steadiness::default(),
    }
}

impl Managed {
    fn new(volumes: usize) -> Self {
        let mut cache = InstantCache::new(CacheSetup::single(CAPACITY, Config::default()));
        let name = |volume: usize| format!("volume{volume}");
        let attach = |volume| cache.attach(plain_volume(&name(volume), VOLUME_BLOCKS));
        let every = Every::Time(INTERVAL_US);
        Self {
            volumes: (0..volumes).map(attach).collect(),
            cache,
            planning: Planning::new(every, monitor::Settings::default(), rules(), CAPACITY),
            actuator: Actuator::default(),
            now_us: 0,
            targets: Vec::new(),
        }
    }

    fn read(&mut self, volume: usize, block: u64, step_us: u64) {
        self.now_us += step_us;
        let closed = self.planning.request(self.now_us, volume, block..block + 1, false);
        if let Some(closed) = closed {
            self.adopt(&closed);
        }
        self.cache.read(self.volumes[volume], block, 1);
    }

    fn adopt(&mut self, closed: &Closed) {
        let parts = closed.parts.as_ref().expect("the cache is divided");
        let wanted = parts.iter().map(|part| {
            let (min_blocks, max_blocks, pinned_blocks) = (0, u64::MAX, None);
            let (blocks, policy) = (part.blocks, part.policy);
            Some(Wanted { blocks, policy, min_blocks, max_blocks, pinned_blocks, held_blocks: 0 })
        });
        let limits = Limits {
            capacity_blocks: CAPACITY,
            own_max: 31,
            step_max: Steadiness::default().step_max,
            change_min: 0.01,
        };
        let targets = self.actuator.next(&wanted.collect::<Vec<_>>(), &limits);
        let blocks = |at: usize| targets.get(at).copied().flatten().map(|target| target.blocks);
        let plan = |(at, volume): (usize, &VolumeId)| VolumePlan {
            share_target_blocks: Some(blocks(at).unwrap_or(VolumePlan::NO_TARGET)),
            ..VolumePlan::unchanged(*volume)
        };
        let volumes = self.volumes.iter().enumerate().map(plan).collect();
        self.cache.adopt(Plan { volumes, ..Plan::default() });
        self.targets.push((0..self.volumes.len()).map(|at| blocks(at).unwrap_or(0)).collect());
    }

    fn hits(&mut self, volumes: std::ops::Range<usize>) -> u64 {
        let volumes = self.volumes[volumes].to_vec();
        volumes.iter().map(|volume| self.cache.volume_counters(*volume).read_hits).sum()
    }
}

/// Read hits of three volumes that use three quarters of the cache, in the second half of a run,
/// beside one that reads `scans` new blocks for each of their reads.
fn neighbours_hits(scans: u64) -> u64 {
    let mut managed = Managed::new(4);
    let mut rng = Rng::new(3);
    let (mut next, mut before) = (0, 0);
    for round in 0..900_000_u64 {
        if round == 450_000 {
            before = managed.hits(0..3);
        }
        let volume = (round % 3) as usize;
        let block = rng.below(CAPACITY / 4);
        managed.read(volume, block, 10);
        for _ in 0..scans {
            managed.read(3, next % VOLUME_BLOCKS, 0);
            next += 1;
        }
    }
    managed.hits(0..3) - before
}

#[test]
fn a_scan_costs_its_neighbours_at_most_two_percent_of_their_hits() {
    let (alone, beside) = (neighbours_hits(0), neighbours_hits(4));
    let kept = beside as f64 / alone as f64;
    println!("{alone} hits alone, {beside} beside a scan: {kept:.4}");
    assert!(alone > 400_000, "there is something to lose: {alone} hits");
    assert!(kept >= 0.98, "only {kept:.4} of the hits are left");
}

#[test]
fn shares_follow_a_shift_within_two_intervals() {
    let mut managed = Managed::new(2);
    let mut rng = Rng::new(5);
    let (large, small) = (CAPACITY * 55 / 100, CAPACITY / 10);
    // Five intervals one way, then the other way round.
    let mut phase = |managed: &mut Managed, sets: [u64; 2], intervals: u64| {
        let until_us = managed.now_us + intervals * INTERVAL_US;
        while managed.now_us < until_us {
            for (volume, set) in sets.into_iter().enumerate() {
                let block = rng.below(set);
                managed.read(volume, block, 2);
            }
        }
    };
    phase(&mut managed, [large, small], 5);
    let before = managed.targets.last().expect("plans").clone();
    assert!(before[0] >= large * 95 / 100, "{before:?} of {large}");
    let plans = managed.targets.len();
    phase(&mut managed, [small, large], 3);
    let after = managed.targets[plans..].to_vec();
    println!("before {before:?}, then {after:?}; the sets are of {large} and {small} blocks");
    // The first of these is of the interval before the shift.
    let second = &after[2];
    assert!(second[1] >= large * 95 / 100, "{after:?}");
}
