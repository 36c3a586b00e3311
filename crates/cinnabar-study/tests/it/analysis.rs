//! Plans of intervals against volumes counted by brute force, and what a size is worth.

use cinnabar_policy::reuse::Mix;
use cinnabar_policy::sizing::{
    Allocator, Goal, Intensity, Objective, Plan, Prices, Settings as Sizing, Steadiness, Volume,
    Weighting, WritePolicy, urd,
};
use cinnabar_study::analysis::{
    Analysis, Bounds, Every, Look, Part, Rules, Settings, analyze, recommend,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

const VOLUMES: usize = 3;
const INTERVAL: usize = 70;
const INTERVALS: usize = 4;
const CAPACITY: usize = 24;
const PRICES: Prices = Prices {
    ssd_read_us: 88.0,
    ssd_write_us: 21.0,
    backend_read_us: 927.0,
    backend_write_us: 141.0,
    omega: 0.0,
    lambda_us: 21.0,
    mu_us: 0.0,
};

/// (volume, block, is it a write?), from a seed; each volume has its own mix and footprint.
fn accesses(seed: u64) -> Vec<(usize, u64, bool)> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut below = move |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % most
    };
    (0..INTERVAL * INTERVALS)
        .map(|_| {
            let volume = below(VOLUMES as u64);
            // Squared, so that low blocks are hot.
            let block = below(4 + 5 * volume) * below(5) / 4;
            (volume as usize, block, below(4) < volume + 1)
        })
        .collect()
}

struct File(PathBuf);

impl File {
    fn new(name: &str, accesses: &[(usize, u64, bool)]) -> Self {
        let path = std::env::temp_dir().join(format!("analysis-{}-{name}", std::process::id()));
        let mut text = String::new();
        for (at, (volume, block, is_write)) in accesses.iter().enumerate() {
            let op = if *is_write { 'W' } else { 'R' };
            let offset = block * 4096;
            writeln!(text, "{},{volume},{op},{offset},4096", at * 1000).expect("a string");
        }
        std::fs::write(&path, text).expect("a file");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // If it is gone there is nothing to remove.
        let _gone = std::fs::remove_file(&self.0);
    }
}

fn settings(file: &File, allocator: Allocator) -> Settings {
    Settings {
        traces: vec![file.0.clone()],
        look: Look::Exact,
        seed: 7,
        decay: 0.0,
        reuses_min: 1,
        every: Some(Every::References(INTERVAL as u64)),
        intervals: true,
        cache_blocks: Some(CAPACITY as u64),
        rules: Rules {
            allocator,
            prices: PRICES,
            ssd_blocks_per_s: None,
            written_part_max: 0.4,
            intensity: 0.0,
            reach_part: 1.0,
            steadiness: Steadiness { gain_min: 0.0, step_max: 1.0 },
        },
        bounds: BTreeMap::new(),
    }
}

fn run(settings: &Settings) -> Analysis {
    analyze(settings, &mut |_, _| {}).expect("a good trace")
}

/// What is known of a volume, counted one cache at a time; only what happens within `counted`.
fn brute(accesses: &[(u64, bool)], counted: std::ops::Range<usize>) -> Volume {
    let mut mix = Mix::default();
    let (mut seen, mut again) = (Vec::new(), Vec::new());
    for (at, &(block, is_write)) in accesses.iter().enumerate().take(counted.end) {
        let before = accesses[..at].iter().rposition(|&(other, _)| other == block);
        if at < counted.start {
            continue;
        }
        *(if is_write { &mut mix.writes } else { &mut mix.reads }) += 1;
        match before.map(|before| (accesses[before].1, is_write)) {
            None => {}
            Some((false, false)) => mix.rar += 1,
            Some((true, false)) => mix.raw += 1,
            Some((false, true)) => mix.war += 1,
            Some((true, true)) => mix.waw += 1,
        }
        let list = if seen.contains(&block) { &mut again } else { &mut seen };
        if !list.contains(&block) {
            list.push(block);
        }
    }
    let (mut hits, mut read_hits, mut read_only) = (vec![], vec![], vec![]);
    for size in 0..=CAPACITY {
        let (mut kept, mut only): (Vec<u64>, Vec<u64>) = (vec![], vec![]);
        let mut found = [0.0; 3];
        for (at, &(block, is_write)) in accesses.iter().enumerate().take(counted.end) {
            let counts = f64::from(counted.contains(&at));
            let is_hit = kept.contains(&block);
            found[0] += if is_hit { counts } else { 0.0 };
            found[1] += if is_hit && !is_write { counts } else { 0.0 };
            kept.retain(|other| *other != block);
            kept.insert(0, block);
            kept.truncate(size);
            found[2] += if only.contains(&block) && !is_write { counts } else { 0.0 };
            only.retain(|other| *other != block);
            if !is_write {
                only.insert(0, block);
                only.truncate(size);
            }
        }
        hits.push(found[0]);
        read_hits.push(found[1]);
        read_only.push(found[2]);
    }
    let reach = |curve: &[f64]| {
        // The curve ends at the capacity; what lies behind asks for more, and gets no more.
        curve.iter().position(|count| *count >= curve[CAPACITY]).unwrap_or(0)
    };
    Volume {
        mix,
        working_set: seen.len(),
        reuse_working_set: again.len(),
        reach: reach(&hits),
        useful_reach: reach(&read_hits),
        destages: vec![0.0; CAPACITY + 1],
        hits,
        read_hits,
        read_only_hits: read_only,
        engine: None,
        weight: 1.0,
        min: 0,
        max: usize::MAX,
    }
}

/// The plan of an interval, from scratch.
fn planned(volumes: &[Volume], settings: &Settings) -> Vec<Part> {
    let rules = &settings.rules;
    let sizing = Sizing {
        prices: rules.prices,
        ssd_writes_max: None,
        written_part_max: rules.written_part_max,
        intensity: Intensity { factor: 0.0, interval_s: 1.0, unit_blocks: 1.0 },
        goal: Goal::PRICES,
        weighting: Weighting::Own,
    };
    match rules.allocator.plan(volumes, CAPACITY, &sizing) {
        Plan::Shared => panic!("not asked for"),
        Plan::Divided(shares) => shares
            .into_iter()
            .map(|share| Part {
                blocks: if share.policy == WritePolicy::Bypass { 0 } else { share.units as u64 },
                policy: share.policy,
            })
            .collect(),
    }
}

fn value(volumes: &[Volume], parts: &[Part]) -> f64 {
    let of =
        |(volume, part): (&Volume, &Part)| PRICES.value(volume, part.policy, part.blocks as usize);
    volumes.iter().zip(parts).map(of).sum()
}

#[test]
fn each_intervals_plan_is_that_of_brute_force() {
    let mut policies = BTreeMap::new();
    for seed in 0..25 {
        let accesses = accesses(seed);
        let file = File::new(&format!("plans-{seed}.csv"), &accesses);
        // Volumes are numbered by their first request.
        let mut order: Vec<usize> = Vec::new();
        for &(volume, ..) in &accesses {
            if !order.contains(&volume) {
                order.push(volume);
            }
        }
        for allocator in Allocator::ALL.into_iter().filter(|one| *one != Allocator::Shared) {
            let settings = settings(&file, allocator);
            let found = run(&settings);
            assert_eq!(found.intervals.len(), INTERVALS);
            for (number, interval) in found.intervals.iter().enumerate() {
                let range = number * INTERVAL..(number + 1) * INTERVAL;
                let volumes: Vec<Volume> = order
                    .iter()
                    .map(|&of| {
                        let is_of = |access: &&(usize, u64, bool)| access.0 == of;
                        let pair = |&(_, block, is_write): &(usize, u64, bool)| (block, is_write);
                        let all: Vec<_> = accesses.iter().filter(is_of).map(pair).collect();
                        let before = accesses[..range.start].iter().filter(is_of).count();
                        let within = accesses[range.clone()].iter().filter(is_of).count();
                        brute(&all, before..before + within)
                    })
                    .collect();
                let mut parts = vec![Part::default(); order.len()];
                for volume in &interval.volumes {
                    let brute = &volumes[volume.volume];
                    assert_eq!(volume.mix, brute.mix, "seed {seed}, interval {number}");
                    let demands = (volume.working_set, volume.reuse_working_set);
                    let (all, again) = (brute.working_set, brute.reuse_working_set);
                    assert_eq!(demands, (all as u64, again as u64), "seed {seed}");
                    assert_eq!(volume.useful_reach, brute.useful_reach as u64, "seed {seed}");
                    parts[volume.volume] = volume.part.expect("a share");
                    *policies.entry(parts[volume.volume].policy.to_string()).or_insert(0) += 1;
                }
                let wanted = planned(&volumes, &settings);
                if allocator == Allocator::Urd && number > 0 {
                    // It stays where it is unless there is something to gain.
                    let (is, best) = (value(&volumes, &parts), value(&volumes, &wanted));
                    assert!((is - best).abs() < 1e-6, "seed {seed}: {is}, not {best}");
                } else {
                    assert_eq!(parts, wanted, "seed {seed}, {allocator}, interval {number}");
                }
            }
        }
    }
    assert!(policies.values().filter(|count| **count > 20).count() >= 3, "{policies:?}");
}

/// The recommended size is the smallest with 95 % of the value, to the block.
#[test]
fn a_knee_is_where_it_is() {
    for seed in 0..10 {
        let accesses = accesses(seed);
        let file = File::new(&format!("knee-{seed}.csv"), &accesses);
        let found = run(&Settings { cache_blocks: None, ..settings(&file, Allocator::Urd) });
        let volumes: Vec<Volume> = (0..found.volumes.len())
            .map(|of| {
                let name = &found.volumes[of].name;
                let is_of = |access: &&(usize, u64, bool)| access.0.to_string() == *name;
                let all: Vec<_> =
                    accesses.iter().filter(is_of).map(|access| (access.1, access.2)).collect();
                let end = all.len();
                brute(&all, 0..end)
            })
            .collect();
        let worth = |units| {
            let shares = urd::shares(&volumes, units, &Objective::of(PRICES));
            urd::value(&volumes, &shares, &PRICES)
        };
        let most = worth(VOLUMES * CAPACITY);
        let knee = (0..1000).find(|units| worth(*units) >= most * 0.95).expect("there is one");
        assert_eq!(found.recommended.blocks, knee as u64, "seed {seed}");
        assert_eq!(found.cache_blocks, knee as u64);
        assert!((found.recommended.most_value_us - most).abs() < 1e-6, "seed {seed}");
        assert!(knee > 0 && knee < VOLUMES * CAPACITY, "seed {seed}: {knee} says nothing");
    }
}

#[test]
fn nothing_to_gain_recommends_nothing_but_minima() {
    let scan: Vec<_> = (0..500).map(|block| (0, block, block % 2 == 0)).collect();
    let file = File::new("scan.csv", &scan);
    let found = run(&Settings { cache_blocks: None, ..settings(&file, Allocator::Urd) });
    assert_eq!((found.recommended.blocks, found.cache_blocks), (0, 0));
    let curves = [found.volumes[0].curves.clone()];
    let bounds = [Bounds { min_blocks: 9, ..Bounds::default() }];
    assert_eq!(recommend(&curves, &bounds, &PRICES).blocks, 9);
}

/// A loop gives all of its hits at its own length and none below it. The plan of a cache of 1971 blocks
/// has units of two blocks, of which it gives out 985: one block too few for a loop of 1971.
#[test]
fn what_is_recommended_can_be_planned() {
    for (loops, volumes) in [(1971, 1), (2956, 1), (4926, 1), (1971, 3)] {
        let once = |_| (0..loops).flat_map(|block| (0..volumes).map(move |v| (v, block, false)));
        let file = File::new(&format!("loop-{loops}"), &(0..5).flat_map(once).collect::<Vec<_>>());
        let settings = Settings {
            every: None,
            intervals: false,
            cache_blocks: None,
            ..settings(&file, Allocator::Urd)
        };
        let found = run(&settings);
        let hits = found.expected(&PRICES).read_hits;
        let all = (loops * 4) as f64 * volumes as f64;
        assert!(hits >= 0.9 * all, "{hits} of {all} hits with {} blocks", found.cache_blocks);
        let (needed, most) = (loops * volumes as u64, loops * volumes as u64 * 102 / 100 + 2);
        assert!((needed..=most).contains(&found.cache_blocks), "{} blocks", found.cache_blocks);
    }
}
