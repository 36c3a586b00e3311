//! Allocators against every division there is, on the curves of small traces.

use crate::small_traces::{Rng, small_trace};
use cinnabar_policy::sizing::split::{meet, split};
use cinnabar_policy::sizing::{
    Allocator, Goal, Intensity, Objective, Plan, Prices, Settings, Share, Units, Volume, Weighting,
    WritePolicy, centaur, cloudcache, eci, s_cave, urd, vcacheshare,
};
use cinnabar_policy::{Access, ReadOnly, Sampled, WriteBack};
use std::num::NonZeroU64;

const TRACES: u64 = 150;
/// Of a brute force's best: what hull, programme and exchange may miss.
const GAP_MAX: f64 = 0.002;
pub(crate) const PRICES: Prices = Prices {
    ssd_read_us: 88.0,
    ssd_write_us: 20.0,
    backend_read_us: 927.0,
    backend_write_us: 141.0,
    omega: 0.5,
    lambda_us: 0.0,
    mu_us: 5.0,
};
const SETTINGS: Settings = Settings {
    prices: PRICES,
    ssd_writes_max: None,
    written_part_max: 0.5,
    intensity: Intensity { factor: 0.0, interval_s: 600.0, unit_blocks: 4.0 },
    goal: Goal::PRICES,
    weighting: Weighting::Own,
};

fn volume(trace: &[Access], unit_blocks: u64, most: usize) -> Volume {
    let (mut back, mut only) = (WriteBack::default(), ReadOnly::default());
    back.extend(trace);
    only.extend(trace);
    let blocks = NonZeroU64::new(unit_blocks).expect("a size");
    Volume::exact(&back.finish(), &only.finish(), Units { blocks, most, reach_part: 1.0 })
}

/// Volumes of three small traces, and a capacity that is not enough for all.
pub(crate) fn instance(seed: u64) -> (Vec<Volume>, usize) {
    let volumes = (0..3).map(|at| volume(&small_trace(seed * 3 + at), 4, 8)).collect();
    (volumes, 3 + Rng::new(seed).below(9) as usize)
}

/// Every way to divide `capacity` among three.
fn divisions(capacity: usize) -> impl Iterator<Item = [usize; 3]> {
    let all = move |a: usize| {
        (0..=capacity - a).flat_map(move |b| (0..=capacity - a - b).map(move |c| [a, b, c]))
    };
    (0..=capacity).flat_map(all)
}

fn at(curve: &[f64], units: usize) -> f64 {
    curve[units.min(curve.len() - 1)]
}

fn sum(volumes: &[Volume], sizes: &[usize], value: impl Fn(&Volume, usize) -> f64) -> f64 {
    volumes.iter().zip(sizes).map(|(volume, units)| value(volume, *units)).sum()
}

/// `sizes` fit, and no division has a larger sum.
fn check_best(
    (volumes, capacity): &(Vec<Volume>, usize),
    sizes: &[usize],
    what: &str,
    value: impl Fn(&Volume, usize) -> f64,
) {
    assert!(sizes.iter().sum::<usize>() <= *capacity, "{what}");
    let best = divisions(*capacity).map(|sizes| sum(volumes, &sizes, &value));
    let best = best.fold(0.0, f64::max);
    let found = sum(volumes, sizes, &value);
    assert!(found >= best * (1.0 - GAP_MAX) - 1e-9, "{what}: {found}, not {best}");
}

#[test]
fn a_volume_counts_what_its_curves_do() {
    let trace = small_trace(5);
    let (mut back, mut only) = (WriteBack::default(), ReadOnly::default());
    back.extend(&trace);
    only.extend(&trace);
    let (back, only) = (back.finish(), only.finish());
    let found = volume(&trace, 4, 12);
    assert_eq!(found.working_set as u64, back.blocks.div_ceil(4));
    assert_eq!(found.useful_reach as u64, back.read_hits.flat_from().div_ceil(4));
    for units in 0..15 {
        // Behind the end, the curves stay.
        let blocks = 4 * units.min(12) as u64;
        let whole = |count: f64| count.round() as i64;
        let writes = |policy| whole(found.ssd_writes(policy, units)).cast_unsigned();
        assert_eq!(writes(WritePolicy::Back), back.ssd_writes(blocks));
        assert_eq!(writes(WritePolicy::Through), back.ssd_writes(blocks));
        assert_eq!(writes(WritePolicy::ReadOnly), only.ssd_writes(blocks));
        assert_eq!(writes(WritePolicy::Bypass), 0);
        let destages = whole(found.destages(WritePolicy::Back, units)).cast_unsigned();
        assert_eq!(destages, back.destages.at(blocks));
        assert_eq!(whole(found.destages(WritePolicy::Through, units)), 0);
    }
}

/// A sample of every block makes the same volume as exact curves.
#[test]
fn a_sampled_volume_is_an_exact_one() {
    for seed in 0..TRACES {
        let trace = small_trace(seed);
        let mut sample = Sampled::fixed_rate(1.0, seed);
        sample.extend(trace.iter().map(|access| (u64::from(access.block()), access.is_write())));
        let blocks = NonZeroU64::new(3).expect("a size");
        let units = Units { blocks, most: 12, reach_part: 1.0 };
        let mut found = Volume::sampled(&sample.curves(), units);
        let curves = |volume: &mut Volume| {
            [
                &mut volume.hits,
                &mut volume.read_hits,
                &mut volume.destages,
                &mut volume.read_only_hits,
            ]
            .map(std::mem::take)
        };
        let mut exact = volume(&trace, 3, 12);
        let (of_found, of_exact) = (curves(&mut found), curves(&mut exact));
        for (found, exact) in of_found.iter().zip(&of_exact) {
            assert_eq!(found.len(), exact.len(), "seed {seed}");
            let close = found.iter().zip(exact).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(close, "seed {seed}: {found:?}, not {exact:?}");
        }
        assert_eq!(found, exact, "seed {seed}: all that is no curve");
    }
}

#[test]
fn splits_are_as_even_as_units_allow() {
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let weights: Vec<f64> = (0..5).map(|_| f64::from(rng.below(10))).collect();
        let caps: Vec<usize> = (0..5).map(|_| rng.below(30) as usize).collect();
        let capacity = rng.below(100) as usize;
        let sizes = split(&weights, &caps, capacity);
        let open = weights.iter().zip(&caps).filter(|(weight, _)| **weight > 0.0);
        let room: usize = open.map(|(_, cap)| cap).sum();
        assert_eq!(sizes.iter().sum::<usize>(), capacity.min(room), "seed {seed}");
        for (i, &size) in sizes.iter().enumerate().filter(|(_, size)| **size > 0) {
            assert!(size <= caps[i] && weights[i] > 0.0, "seed {seed}");
            for j in (0..5).filter(|&j| weights[j] > 0.0 && sizes[j] < caps[j]) {
                let next = (sizes[j] + 1) as f64 / weights[j];
                assert!(
                    size as f64 / weights[i] <= next + 1e-12,
                    "seed {seed}: {j} has too little"
                );
            }
        }
    }
    assert_eq!(split(&[1.0; 3], &[9; 3], 10), [4, 3, 3]);
    assert_eq!(meet(vec![3, 4], 7, |_| panic!("it fits")), [3, 4]);
    assert_eq!(meet(vec![3, usize::MAX], 7, |demands| vec![demands.len()]), [2]);
}

/// ECI-Cache's own example asks for five blocks and gets them; short of room, ratios count.
#[test]
fn eci_meets_useful_distances_or_makes_ratios_best() {
    let trace = [(1, true), (2, true), (1, false), (3, false), (5, false), (6, false), (2, false)];
    let trace = trace.map(|(block, write)| Access::new(block, write));
    let slides = volume(&trace, 1, 20);
    assert_eq!(eci::sizes(std::slice::from_ref(&slides), 20, Weighting::Own), [5]);
    let mut short = 0;
    for seed in 0..TRACES {
        let instance = instance(seed);
        let (volumes, capacity) = &instance;
        let sizes = eci::sizes(volumes, *capacity, Weighting::Own);
        let demands: Vec<usize> = volumes.iter().map(|volume| volume.useful_reach).collect();
        if demands.iter().sum::<usize>() <= *capacity {
            assert_eq!(sizes, demands, "seed {seed}");
            continue;
        }
        short += 1;
        let ratio =
            |volume: &Volume, units| at(&volume.read_hits, units) / volume.mix.reads.max(1) as f64;
        check_best(&instance, &sizes, &format!("eci, seed {seed}"), ratio);
    }
    assert!(short > TRACES / 4, "{short}");
}

#[test]
fn centaur_makes_the_mean_latency_best() {
    let mut short = 0;
    for seed in 0..TRACES {
        let instance = instance(seed);
        let (volumes, capacity) = &instance;
        let sizes = centaur::sizes(volumes, *capacity, Weighting::Own);
        let demands: Vec<usize> = volumes.iter().map(|volume| volume.reach).collect();
        if demands.iter().sum::<usize>() <= *capacity {
            assert_eq!(sizes, demands, "seed {seed}");
            continue;
        }
        short += 1;
        let hits = |volume: &Volume, units| at(&volume.hits, units);
        check_best(&instance, &sizes, &format!("centaur, seed {seed}"), hits);
    }
    assert!(short > TRACES / 4, "{short}");
}

#[test]
fn vcacheshare_makes_utilities_best_and_intensity_a_weight() {
    for seed in 0..TRACES {
        let instance = instance(seed);
        let (volumes, capacity) = &instance;
        for factor in [0.0, 100.0] {
            let intensity = Intensity { factor, ..SETTINGS.intensity };
            let sizes = vcacheshare::sizes(volumes, *capacity, intensity);
            let utility = |volume: &Volume, units| {
                let accesses = (volume.mix.reads + volume.mix.writes).max(1) as f64;
                let unique = (volume.working_set as f64 * 4.0).max(1.0);
                let weight = 1.0 + factor * accesses / (600.0 * unique);
                let (reads, hits) = (volume.mix.reads as f64, at(&volume.read_only_hits, units));
                let ratio = if reads > 0.0 { hits / reads } else { 0.0 };
                weight * reads / accesses * ratio
            };
            check_best(&instance, &sizes, &format!("vcacheshare, seed {seed}"), utility);
        }
    }
}

#[test]
fn working_sets_are_met_or_split() {
    let mut volumes = instance(4).0;
    for (volume, (all, again)) in volumes.iter_mut().zip([(40, 4), (20, 4), (20, 2)]) {
        (volume.working_set, volume.reuse_working_set) = (all, again);
    }
    assert_eq!(s_cave::sizes(&volumes, 80), [40, 20, 20]);
    assert_eq!(s_cave::sizes(&volumes, 40), [20, 10, 10]);
    assert_eq!(cloudcache::sizes(&volumes, 40), [4, 4, 2]);
    assert_eq!(cloudcache::sizes(&volumes, 5), [2, 2, 1]);
}

#[test]
fn urd_chooses_size_and_policy_together() {
    let mut policies = Vec::new();
    for seed in 0..TRACES {
        let mut instance = instance(seed);
        let mut rng = Rng::new(seed);
        instance.0.iter_mut().for_each(|volume| volume.weight = f64::from(1 + rng.below(3)));
        let prices = Prices { lambda_us: f64::from(rng.below(600)), ..PRICES };
        let shares = urd::shares(&instance.0, instance.1, &Objective::of(prices));
        let sizes: Vec<usize> = shares.iter().map(|share| share.units).collect();
        let best = |volume: &Volume, units| {
            let values = WritePolicy::ALL.map(|policy| prices.value(volume, policy, units));
            values.into_iter().fold(f64::NEG_INFINITY, f64::max)
        };
        check_best(&instance, &sizes, &format!("urd, seed {seed}"), best);
        let found = urd::value(&instance.0, &shares, &prices);
        assert!((found - sum(&instance.0, &sizes, best)).abs() < 1e-6, "seed {seed}: policies");
        policies.extend(shares.iter().map(|share| share.policy.to_string()));
    }
    policies.sort_unstable();
    policies.dedup();
    assert_eq!(policies, ["bypass", "read-only", "write-back"], "all that can be best are");
}

/// The plan within a budget, against every division and choice of policies within it.
#[test]
fn a_budget_is_kept_and_well_spent() {
    let (mut gaps, mut worst, mut bound) = (0.0, 0.0_f64, 0);
    for seed in 0..TRACES {
        let (volumes, capacity) = instance(seed);
        let free = urd::shares(&volumes, capacity, &Objective::of(PRICES));
        let wanted = urd::ssd_writes(&volumes, &free);
        let budget = wanted * f64::from(Rng::new(seed).below(110)) / 100.0;
        let shares = urd::shares_within(&volumes, capacity, &Objective::of(PRICES), budget);
        assert!(urd::ssd_writes(&volumes, &shares) <= budget, "seed {seed}");
        assert!(shares.iter().map(|share| share.units).sum::<usize>() <= capacity, "seed {seed}");
        if budget >= wanted {
            assert_eq!(shares, free, "seed {seed}");
            continue;
        }
        bound += 1;
        let best = best_within(&volumes, capacity, budget);
        let found = urd::value(&volumes, &shares, &PRICES);
        let gap = if best > 0.0 { (best - found) / best } else { 0.0 };
        gaps += gap;
        worst = worst.max(gap);
    }
    let mean = gaps / f64::from(bound);
    println!("{bound} budgets bind: mean gap {mean:.4}, worst {worst:.4}");
    assert!(bound > 100 && mean < 0.01 && worst < 0.15, "{bound}, mean {mean}, worst {worst}");
}

fn best_within(volumes: &[Volume], capacity: usize, budget: f64) -> f64 {
    let mut best = 0.0_f64;
    for sizes in divisions(capacity) {
        for choice in 0..4_usize.pow(3) {
            let share = |at: usize| Share {
                units: sizes[at],
                policy: WritePolicy::ALL[choice / 4_usize.pow(at as u32) % 4],
            };
            let shares = [share(0), share(1), share(2)];
            if urd::ssd_writes(volumes, &shares) <= budget {
                best = best.max(urd::value(volumes, &shares, &PRICES));
            }
        }
    }
    best
}

#[test]
fn bounds_hold_within_a_budget_of_nothing() {
    let (mut volumes, _) = instance(2);
    volumes[1].min = 3;
    volumes[2].max = 1;
    let shares = urd::shares_within(&volumes, 8, &Objective::of(PRICES), 0.0);
    assert!(shares.iter().all(|share| share.policy == WritePolicy::Bypass || share.units == 0));
    assert!(shares[1].units >= 3 && shares[2].units <= 1, "{shares:?}");
}

/// Who overwrites is kept out, who reads again is written back; the threshold itself is not above.
#[test]
fn the_threshold_rule_looks_at_written_reuses() {
    let mut mix = volume(&small_trace(1), 4, 8).mix;
    (mix.rar, mix.raw, mix.war, mix.waw) = (25, 25, 25, 25);
    assert_eq!(WritePolicy::by_threshold(&mix, 0.5), WritePolicy::Back);
    assert_eq!(WritePolicy::by_threshold(&mix, 0.49), WritePolicy::ReadOnly);
    (mix.rar, mix.raw) = (0, 0);
    assert_eq!(WritePolicy::by_threshold(&mix, 0.5), WritePolicy::ReadOnly);
}

#[test]
fn every_allocator_plans_within_the_room_under_its_name() {
    for allocator in Allocator::ALL {
        assert_eq!(allocator.to_string().parse(), Ok(allocator));
        for seed in 0..40 {
            let (volumes, capacity) = instance(seed);
            let plan = allocator.plan(&volumes, capacity, &SETTINGS);
            let Plan::Divided(shares) = plan else {
                assert_eq!(allocator, Allocator::Shared);
                continue;
            };
            assert_eq!(shares.len(), volumes.len(), "{allocator}");
            let units: usize = shares.iter().map(|share| share.units).sum();
            assert!(units <= capacity, "{allocator}, seed {seed}");
            let policies: Vec<_> = shares.iter().map(|share| share.policy).collect();
            let expected = match allocator {
                Allocator::SCave => WritePolicy::Through,
                Allocator::VCacheShare => WritePolicy::ReadOnly,
                Allocator::Urd | Allocator::Eci => continue,
                _ => WritePolicy::Back,
            };
            assert_eq!(policies, [expected; 3], "{allocator}");
        }
    }
    let unknown = "lru".parse::<Allocator>().expect_err("it is none");
    assert_eq!(
        unknown.to_string(),
        "no allocator is called `lru`: there are urd, eci, centaur, s-cave, vcacheshare, \
         cloudcache, equal, proportional, fixed, shared"
    );
}

#[test]
fn fixed_is_what_the_operator_says_as_far_as_it_fits() {
    let (mut volumes, _) = instance(1);
    for (volume, min) in volumes.iter_mut().zip([5, 0, 4]) {
        volume.min = min;
    }
    let units = |capacity| {
        let Plan::Divided(shares) = Allocator::Fixed.plan(&volumes, capacity, &SETTINGS) else {
            panic!("it divides");
        };
        assert!(shares.iter().all(|share| share.policy == WritePolicy::Back));
        shares.iter().map(|share| share.units).collect::<Vec<_>>()
    };
    assert_eq!(units(20), [5, 0, 4]);
    assert_eq!(units(7), [5, 0, 2], "the last one gets what is left");
}
