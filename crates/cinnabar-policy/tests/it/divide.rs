//! Dividing room, against the exact programme.

use crate::small_traces::Rng;
use cinnabar_policy::sizing::divide::{Utility, divide};

/// What the exact programme can't beat by more.
const GAP_MAX: f64 = 0.002;
/// The same with hundreds of volumes.
const MANY_GAP_MAX: f64 = 0.000_2;

/// The largest sum of values there is: of the first volumes, for every capacity, one volume after the
/// other.
fn best_value(utilities: &[Utility], capacity: usize) -> f64 {
    let mut best = vec![0.0; capacity + 1];
    for utility in utilities {
        let with = |room: usize| {
            let last = utility.max.min(utility.values.len() - 1).max(utility.min);
            let sizes = utility.min..=last.min(room);
            let values = sizes.map(|size| best[room - size] + utility.at(size));
            values.fold(f64::NEG_INFINITY, f64::max)
        };
        best = (0..=capacity).map(with).collect();
    }
    best[capacity]
}

fn value(utilities: &[Utility], sizes: &[usize]) -> f64 {
    utilities.iter().zip(sizes).map(|(utility, &size)| utility.at(size)).sum()
}

fn part(rng: &mut Rng) -> f64 {
    f64::from(rng.below(1_000_000)) / 1e6
}

/// A sum of what real curves are made of: hot sets, loops with their cliffs, noise; perhaps the
/// price of room, so that it falls again.
fn utility(rng: &mut Rng, units: usize) -> Utility {
    let mut values = vec![0.0; units + 1];
    for _ in 0..=rng.below(4) {
        let (kind, height) = (rng.below(3), part(rng).powi(3) * 1000.0);
        let place = part(rng) * units as f64;
        for (size, value) in values.iter_mut().enumerate() {
            let size = size as f64;
            *value += match kind {
                0 => height * (1.0 - (-5.0 * size / (place + 1.0)).exp()),
                1 if size > place => height,
                2 => height * (size / units as f64).powf(1.0 + place / 50.0),
                _ => 0.0,
            };
        }
    }
    if rng.below(4) == 0 {
        let price = part(rng) * 300.0 / units as f64;
        values.iter_mut().enumerate().for_each(|(size, value)| *value -= price * size as f64);
    }
    Utility::free(values)
}

#[test]
fn hull_and_lookahead_are_next_to_the_exact_programme() {
    let (mut worst, mut sum) = (0.0_f64, 0.0);
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let volumes = 2 + rng.below(15);
        let mut all = 0;
        let utilities: Vec<Utility> = (0..volumes)
            .map(|_| {
                let units = 20 + rng.below(280) as usize;
                all += units;
                utility(&mut rng, units)
            })
            .collect();
        // Up to 1800 units: the programme within is coarser than that.
        let capacity = all * (5 + rng.below(70) as usize) / 100;
        let sizes = divide(&utilities, capacity);
        assert!(sizes.iter().sum::<usize>() <= capacity, "seed {seed}");
        let best = best_value(&utilities, capacity);
        let gap = (best - value(&utilities, &sizes)) / best;
        assert!((-1e-9..=GAP_MAX).contains(&gap), "seed {seed}: {gap}");
        worst = worst.max(gap);
        sum += gap;
    }
    println!("worst gap {worst:.6}, mean {:.6}", sum / 200.0);
}

/// With bounds, and few enough volumes that pairs are not all there is.
#[test]
fn bounds_are_kept_and_cost_no_more_than_they_must() {
    for seed in 0..200 {
        let mut rng = Rng::new(1_000 + seed);
        let mut utilities: Vec<Utility> = (0..8).map(|_| utility(&mut rng, 60)).collect();
        for utility in &mut utilities {
            utility.min = rng.below(12) as usize;
            utility.max = utility.min + rng.below(80) as usize;
            // A base value, so that nothing is divided by about zero.
            utility.values.iter_mut().for_each(|value| *value += 300.0);
        }
        let capacity = 96 + rng.below(200) as usize;
        let sizes = divide(&utilities, capacity);
        for (utility, size) in utilities.iter().zip(&sizes) {
            assert!((utility.min..=utility.max).contains(size), "seed {seed}");
        }
        assert!(sizes.iter().sum::<usize>() <= capacity, "seed {seed}");
        let best = best_value(&utilities, capacity);
        let gap = (best - value(&utilities, &sizes)) / best;
        assert!((-1e-9..=GAP_MAX).contains(&gap), "seed {seed}: {gap}");
    }
}

/// More volumes than the programme within can give a cell each, where loops are small change: hull
/// and lookahead alone are next to exact.
#[test]
fn many_small_volumes_are_divided_as_well() {
    for seed in 0..5 {
        let mut rng = Rng::new(seed);
        let utilities: Vec<Utility> = (0..400).map(|_| utility(&mut rng, 60)).collect();
        let capacity = 1_000 + 1_000 * seed as usize;
        let sizes = divide(&utilities, capacity);
        let best = best_value(&utilities, capacity);
        let gap = (best - value(&utilities, &sizes)) / best;
        assert!((-1e-9..=MANY_GAP_MAX).contains(&gap), "seed {seed}: {gap}");
    }
}

#[test]
fn a_loop_gets_all_or_nothing() {
    let cliff = |units: usize, height: f64| {
        Utility::free((0..=units).map(|size| if size == units { height } else { 0.0 }).collect())
    };
    let slope = Utility::free((0..=100).map(f64::from).collect());
    assert_eq!(divide(&[cliff(50, 200.0), slope.clone()], 60), [50, 10]);
    assert_eq!(divide(&[cliff(50, 40.0), slope.clone()], 60), [0, 60]);
    assert_eq!(divide(&[cliff(70, 900.0), slope], 60), [0, 60]);
    // Two volumes that fit alone, not together; no volume takes room that is worth nothing.
    assert_eq!(divide(&[cliff(50, 200.0), cliff(40, 190.0)], 60), [50, 0]);
    assert_eq!(divide(&[], 60), [0; 0]);
}

#[test]
#[should_panic(expected = "do not fit")]
fn minima_must_fit() {
    divide(&[Utility { values: vec![0.0], min: 5, max: 9 }], 4);
}
