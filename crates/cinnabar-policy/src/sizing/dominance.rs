//! The cheapest plan that is no slower than Centaur's: what `urd` looks for when it is given the choice.
//!
//! Each interval Centaur's plan is made beside ours, and the latency that both would have is predicted: a
//! mean over all accesses, and a mean over volumes in which each counts the same. Then the largest price
//! of an SSD write is taken at which our plan still is by the margin faster in both, and at that price the
//! largest price of room. Small volumes count more or less by [`ALPHAS`]: a volume's weight goes with its
//! accesses to the power alpha - 1, so that 1 serves the mean over accesses, 0 the mean over volumes.

use super::urd::{Objective, shares};
use super::volume::Volume;
use super::write_policy::WritePolicy;
use super::{Prices, Share, Weighting, centaur};

/// What is tried, in this order.
pub const ALPHAS: [f64; 3] = [1.0, 0.5, 0.0];
/// Steps of a search for a price; each halves what is unknown of its logarithm.
const STEPS: u32 = 9;
/// The largest price of an SSD write, in latencies of a back-end read.
const LAMBDA_MAX: f64 = 16.0;
/// The range of prices of room that is searched, as a factor.
const RHO_RANGE: f64 = 1e6;
/// A prediction within this part of the rival's is as good as it.
const SLACK: f64 = 1e-4;

/// Predicted mean latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Over all accesses, a write counting omega reads.
    pub total_us: f64,
    /// Over volumes, each by its own mean.
    pub per_volume_us: f64,
}

impl Latency {
    pub fn of(volumes: &[Volume], plan: &[Share], prices: &Prices) -> Self {
        let (mut sum, mut accesses, mut means, mut count) = (0.0, 0.0, 0.0, 0.0);
        for (volume, share) in volumes.iter().zip(plan) {
            let all = weight(volume, prices);
            if all <= 0.0 {
                continue;
            }
            let (reads, writes) = (volume.mix.reads as f64, volume.mix.writes as f64);
            let without =
                reads * prices.backend_read_us + prices.omega * writes * prices.backend_write_us;
            let us = without - prices.gain(volume, share.policy, share.units);
            (sum, accesses) = (sum + us, accesses + all);
            (means, count) = (means + us / all, count + 1.0);
        }
        let part = |sum: f64, of: f64| if of > 0.0 { sum / of } else { 0.0 };
        Self { total_us: part(sum, accesses), per_volume_us: part(means, count) }
    }

    /// The worse of its two parts of another one's; 1 is as slow.
    pub fn over(&self, other: &Self) -> f64 {
        let part = |this: f64, that: f64| if that > 0.0 { this / that } else { 1.0 };
        part(self.total_us, other.total_us).max(part(self.per_volume_us, other.per_volume_us))
    }
}

/// What was chosen, and at which prices.
#[derive(Clone, Debug, PartialEq)]
pub struct Dominant {
    /// The plan.
    pub shares: Vec<Share>,
    /// At which it is the best one.
    pub objective: Objective,
    /// The volumes, weighted as it counts them.
    pub volumes: Vec<Volume>,
    /// Its latency over Centaur's, the worse of both means.
    pub over_rival: f64,
}

/// The cheapest plan whose predicted latencies are at most `margin` (.99, say) of Centaur's; if there is
/// none, the cheapest that is no slower; if there is none either, the fastest that was found.
pub fn dominant(volumes: &[Volume], capacity: usize, prices: &Prices, margin: f64) -> Dominant {
    let search = Search::new(volumes, capacity, prices);
    let free = search.fastest();
    let bar = [margin, 1.0].into_iter().find(|bar| free.over_rival <= bar + SLACK);
    let Some(bar) = bar else { return free };
    search.dearest_room(search.dearest_writes(free, bar + SLACK), bar + SLACK)
}

fn weight(volume: &Volume, prices: &Prices) -> f64 {
    volume.mix.reads as f64 + prices.omega * volume.mix.writes as f64
}

/// Volumes that count by their accesses to the power `alpha` - 1, all together as before.
pub fn weighted(volumes: &[Volume], prices: &Prices, alpha: f64) -> Vec<Volume> {
    let powers = volumes.iter().map(|volume| weight(volume, prices).max(1.0).powf(alpha));
    let scale = volumes.iter().map(|volume| weight(volume, prices)).sum::<f64>()
        / powers.sum::<f64>().max(1.0);
    let of = |volume: &Volume| Volume {
        weight: volume.weight * weight(volume, prices).max(1.0).powf(alpha - 1.0) * scale,
        ..volume.clone()
    };
    volumes.iter().map(of).collect()
}

struct Search<'a> {
    volumes: &'a [Volume],
    by_alpha: Vec<Vec<Volume>>,
    capacity: usize,
    prices: &'a Prices,
    rival: Latency,
}

impl<'a> Search<'a> {
    fn new(volumes: &'a [Volume], capacity: usize, prices: &'a Prices) -> Self {
        let back = |units| Share { units, policy: WritePolicy::Back };
        let rival: Vec<Share> =
            centaur::sizes(volumes, capacity, Weighting::Own).into_iter().map(back).collect();
        Self {
            volumes,
            by_alpha: ALPHAS.map(|alpha| weighted(volumes, prices, alpha)).to_vec(),
            capacity,
            prices,
            rival: Latency::of(volumes, &rival, prices),
        }
    }

    fn at(&self, alpha: usize, lambda_us: f64, rho_us: f64) -> Dominant {
        let objective = Objective { prices: Prices { lambda_us, ..*self.prices }, rho_us };
        let volumes = &self.by_alpha[alpha];
        let shares = shares(volumes, self.capacity, &objective);
        let latency = Latency::of(self.volumes, &shares, self.prices);
        let over_rival = latency.over(&self.rival);
        Dominant { shares, objective, volumes: volumes.clone(), over_rival }
    }

    fn fastest(&self) -> Dominant {
        let found = (0..ALPHAS.len()).map(|alpha| self.at(alpha, self.prices.lambda_us, 0.0));
        let better = |a: &Dominant, b: &Dominant| a.over_rival.total_cmp(&b.over_rival);
        found.min_by(better).expect("there are several")
    }

    /// Goes up with the price of SSD writes as long as any alpha keeps to the bar.
    fn dearest_writes(&self, free: Dominant, bar: f64) -> (usize, Dominant) {
        let first = (0..ALPHAS.len()).find(|alpha| self.by_alpha[*alpha] == free.volumes);
        let mut best = (first.unwrap_or(0), free);
        let low = self.prices.lambda_us.max(1.0);
        let (mut low, mut high) = (low.ln(), (LAMBDA_MAX * self.prices.backend_read_us).ln());
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            let found = (0..ALPHAS.len())
                .map(|alpha| (alpha, self.at(alpha, middle.exp(), 0.0)))
                .find(|(_, found)| found.over_rival <= bar);
            if let Some(found) = found {
                (low, best) = (middle, found);
            } else {
                high = middle;
            }
        }
        best
    }

    /// The same with the price of room.
    fn dearest_room(&self, (alpha, mut best): (usize, Dominant), bar: f64) -> Dominant {
        let lambda_us = best.objective.prices.lambda_us;
        let all: f64 = self.volumes.iter().map(|volume| weight(volume, self.prices)).sum();
        let most =
            (all * self.prices.backend_read_us / self.capacity.max(1) as f64 * 100.0).max(1.0);
        let (mut low, mut high) = ((most / RHO_RANGE).ln(), most.ln());
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            let found = self.at(alpha, lambda_us, middle.exp());
            if found.over_rival <= bar {
                (low, best) = (middle, found);
            } else {
                high = middle;
            }
        }
        best
    }
}
