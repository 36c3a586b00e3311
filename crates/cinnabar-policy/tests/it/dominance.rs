//! The cheapest plan that is no slower than Centaur's, on the curves of small traces.

use crate::sizing::{PRICES, instance};
use cinnabar_policy::sizing::dominance::{Latency, dominant, weighted};
use cinnabar_policy::sizing::{Prices, Share, Weighting, WritePolicy, centaur, urd};

const SEEDS: u64 = 150;

/// Whatever can be as fast as Centaur is, and mostly writes less and takes less room.
#[test]
fn it_is_no_slower_than_centaur_and_writes_no_more() {
    let (mut cheaper, mut smaller) = (0, 0);
    for seed in 0..SEEDS {
        let (volumes, capacity) = instance(seed);
        let found = dominant(&volumes, capacity, &PRICES, 0.99);
        let back = |units| Share { units, policy: WritePolicy::Back };
        let rival: Vec<Share> =
            centaur::sizes(&volumes, capacity, Weighting::Own).into_iter().map(back).collect();
        let (ours, theirs) =
            (Latency::of(&volumes, &found.shares, &PRICES), Latency::of(&volumes, &rival, &PRICES));
        assert!((ours.over(&theirs) - found.over_rival).abs() < 1e-9, "seed {seed}");
        let room: usize = found.shares.iter().map(|share| share.units).sum();
        assert!(room <= capacity, "seed {seed}");
        if found.over_rival <= 1.0 + 1e-3 {
            let writes = |plan: &[Share]| urd::ssd_writes(&volumes, plan);
            cheaper += usize::from(writes(&found.shares) < writes(&rival) * 0.9);
            smaller += usize::from(room < rival.iter().map(|share| share.units).sum());
        }
    }
    assert!(cheaper > 60 && smaller > 60, "{cheaper} cheaper, {smaller} smaller of {SEEDS}");
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
