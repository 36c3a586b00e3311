//! The cheapest plan that is no slower than Centaur's, on the curves of small traces.

use crate::sizing::{PRICES, instance};
use cinnabar_policy::sizing::dominance::{Latency, dominant, weighted};
use cinnabar_policy::sizing::{Prices, Share, Weighting, WritePolicy, centaur, urd};

const SEEDS: u64 = 150;

/// Plans that are as fast as Centaur's, that write less, that take less room, and that do neither well.
fn found(omega: f64) -> [usize; 4] {
    let prices = Prices { omega, ..PRICES };
    let mut counts = [0; 4];
    for seed in 0..SEEDS {
        let (volumes, capacity) = instance(seed);
        let found = dominant(&volumes, capacity, &prices, 0.99);
        let back = |units| Share { units, policy: WritePolicy::Back };
        let rival: Vec<Share> =
            centaur::sizes(&volumes, capacity, Weighting::Own).into_iter().map(back).collect();
        let (ours, theirs) =
            (Latency::of(&volumes, &found.shares, &prices), Latency::of(&volumes, &rival, &prices));
        assert!((ours.over(&theirs) - found.over_rival).abs() < 1e-9, "seed {seed}");
        let room: usize = found.shares.iter().map(|share| share.units).sum();
        assert!(room <= capacity, "seed {seed}");
        let writes = |plan: &[Share]| urd::ssd_writes(&volumes, plan);
        let fast = found.over_rival <= 1.0 + 1e-3;
        let over = writes(&found.shares) / writes(&rival).max(1.0);
        counts[0] += usize::from(fast);
        counts[1] += usize::from(fast && over < 0.9);
        counts[2] += usize::from(fast && room < rival.iter().map(|share| share.units).sum());
        counts[3] += usize::from(!fast && over > 1.0);
    }
    println!("omega {omega}: fast, cheaper, smaller, neither {counts:?} of {SEEDS}");
    counts
}

/// On curves alone a write that is kept is an SSD write, so little is left to save where writes count.
#[test]
fn it_is_as_fast_as_centaur_where_it_can_be_and_writes_less_where_only_reads_count() {
    let [fast, cheaper, ..] = found(PRICES.omega);
    assert!(fast >= SEEDS as usize / 4 && cheaper > 15, "{fast} as fast, {cheaper} cheaper");
    let [_, cheaper, ..] = found(0.0);
    assert!(cheaper > 15, "{cheaper} cheaper");
}

#[test]
fn weights_serve_accesses_or_volumes_and_sum_to_the_same() {
    let (volumes, _) = instance(3);
    let prices = Prices { omega: 1.0, ..PRICES };
    let accesses: Vec<f64> =
        volumes.iter().map(|volume| (volume.mix.reads + volume.mix.writes) as f64).collect();
    let all: f64 = accesses.iter().sum();
    for alpha in [1.0, 0.5, 0.0] {
        let weights: Vec<f64> =
            weighted(&volumes, &prices, alpha).iter().map(|volume| volume.weight).collect();
        let sum: f64 = weights.iter().zip(&accesses).map(|(weight, all)| weight * all).sum();
        assert!((sum / all - 1.0).abs() < 1e-9, "alpha {alpha}: {weights:?}");
    }
    let each = weighted(&volumes, &prices, 0.0);
    let counts: Vec<f64> =
        each.iter().zip(&accesses).map(|(volume, all)| volume.weight * all).collect();
    assert!(counts.iter().all(|count| (count / counts[0] - 1.0).abs() < 1e-9), "{counts:?}");
}
