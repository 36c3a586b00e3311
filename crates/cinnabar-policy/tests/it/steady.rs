//! Plans that follow one another: bounded steps, no moves for noise.

use crate::sizing::{PRICES, instance};
use cinnabar_policy::sizing::{Objective, Share, Steadiness, Volume, WritePolicy, steady, urd};

fn sizes(shares: &[Share]) -> usize {
    shares.iter().map(|share| share.units).sum()
}

fn equal(volumes: &[Volume], capacity: usize) -> Vec<Share> {
    let share = Share { units: capacity / volumes.len(), policy: WritePolicy::Back };
    vec![share; volumes.len()]
}

#[test]
fn steps_are_bounded_and_arrive() {
    let steadiness = Steadiness { gain_min: 0.0, step_max: 0.3 };
    let mut moved = 0;
    for seed in 0..150 {
        let (volumes, capacity) = instance(seed);
        let wanted = urd::shares(&volumes, capacity, &Objective::of(PRICES));
        let mut now = equal(&volumes, capacity);
        for _ in 0..40 {
            let next = steady(
                &volumes,
                &now,
                wanted.clone(),
                capacity,
                &Objective::of(PRICES),
                steadiness,
            );
            assert!(sizes(&next) <= capacity, "seed {seed}: it fits");
            let step = now.iter().zip(&next).map(|(a, b)| a.units.abs_diff(b.units)).max();
            // Rounding down may cost one more.
            let bound = (capacity * 3 / 10).max(1) + 1;
            assert!(step.is_some_and(|step| step <= bound), "seed {seed}: {now:?}, {next:?}");
            moved += u32::from(next != now);
            now = next;
        }
        let (found, best) =
            (urd::value(&volumes, &now, &PRICES), urd::value(&volumes, &wanted, &PRICES));
        assert!(found >= best - 1e-6, "seed {seed}: {now:?} for {wanted:?}");
    }
    assert!(moved > 200, "{moved} moves are too few to say anything");
}

#[test]
fn small_gains_move_nothing_and_large_ones_do() {
    let steadiness = Steadiness { gain_min: 0.1, step_max: 1.0 };
    let (mut kept, mut left) = (0, 0);
    for seed in 0..150 {
        let (volumes, capacity) = instance(seed);
        let wanted = urd::shares(&volumes, capacity, &Objective::of(PRICES));
        let before = equal(&volumes, capacity);
        let next =
            steady(&volumes, &before, wanted.clone(), capacity, &Objective::of(PRICES), steadiness);
        let value = |shares: &[Share]| urd::value(&volumes, shares, &PRICES);
        if value(&wanted) > value(&before) + value(&before).abs() * 0.1 {
            assert_eq!(next, wanted, "seed {seed}: in one step");
            left += 1;
        } else {
            assert_eq!(next, before, "seed {seed}");
            kept += 1;
        }
    }
    assert!(kept > 10 && left > 10, "{kept} kept, {left} left");
}

#[test]
fn other_volumes_or_less_room_are_met_at_once() {
    let (volumes, capacity) = instance(3);
    let wanted = urd::shares(&volumes, capacity, &Objective::of(PRICES));
    let steadiness = Steadiness { gain_min: 9.0, step_max: 0.01 };
    let next = |before: &[Share]| {
        steady(&volumes, before, wanted.clone(), capacity, &Objective::of(PRICES), steadiness)
    };
    assert_eq!(next(&[]), wanted);
    assert_eq!(next(&equal(&volumes, capacity * 3)), wanted);
}
