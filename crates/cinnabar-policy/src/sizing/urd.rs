//! Cinnabar's own allocator: chooses size and write policy together, by what they save, within a
//! budget of SSD writes.
//!
//! For each size the best policy's value makes a volume's curve, and the curves divide the room. A
//! price of each block written to the SSD, found by halving, keeps the plan within an endurance
//! budget. Prices reach only plans that are best for some price, which may be far off a small
//! budget; so what is left of it is then spent on whatever single change gains most, and the same is
//! tried from nothing.

use super::Share;
use super::divide::{Utility, divide};
use super::volume::Volume;
use super::write_policy::WritePolicy;

/// Halvings of the price; more would be less than measuring errors.
const HALVINGS: u32 = 30;
/// Doublings until a price forbids everything.
const DOUBLINGS_MAX: u32 = 64;

/// Latencies, in microseconds, and what else counts.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Prices {
    pub ssd_read_us: f64,
    pub ssd_write_us: f64,
    pub backend_read_us: f64,
    pub backend_write_us: f64,
    /// What a microsecond of a write counts, one of a read being 1.
    pub omega: f64,
    /// The price of a block written to the SSD, in microseconds.
    pub lambda_us: f64,
    /// The price of a destaged block, in microseconds.
    pub mu_us: f64,
}

impl Prices {
    /// What a size and policy save a volume's guest, in microseconds of waiting.
    pub fn gain(&self, volume: &Volume, policy: WritePolicy, units: usize) -> f64 {
        let read_gain = self.backend_read_us - self.ssd_read_us;
        let write_gain = self.omega * (self.backend_write_us - self.ssd_write_us);
        let mut gain = volume.read_hits(policy, units) * read_gain;
        if policy == WritePolicy::Back {
            gain += volume.kept_writes(policy, units) * write_gain;
        }
        gain
    }

    /// The value of a size and policy for a volume, in microseconds saved in the interval.
    pub fn value(&self, volume: &Volume, policy: WritePolicy, units: usize) -> f64 {
        volume.weight * self.gain(volume, policy, units)
            - self.lambda_us * volume.ssd_writes(policy, units)
            - self.mu_us * volume.destages(policy, units)
    }

    /// The policy of the largest value at a size; of equal ones, that which writes the SSD least.
    pub fn best_policy(&self, volume: &Volume, units: usize) -> WritePolicy {
        let value = |policy| self.value(volume, policy, units);
        let better = |best, policy| if value(policy) > value(best) { policy } else { best };
        WritePolicy::ALL.into_iter().fold(WritePolicy::Bypass, better)
    }
}

/// What a plan is to be best at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Of accesses and writes.
    pub prices: Prices,
    /// The price of a unit of room for an interval, in microseconds.
    pub rho_us: f64,
}

impl Objective {
    /// Where room costs nothing.
    pub const fn of(prices: Prices) -> Self {
        Self { prices, rho_us: 0.0 }
    }

    /// The value of a size and policy for a volume, in microseconds saved in the interval.
    pub fn value(&self, volume: &Volume, policy: WritePolicy, units: usize) -> f64 {
        self.prices.value(volume, policy, units) - self.rho_us * units as f64
    }

    /// What a plan is worth.
    pub fn value_of(&self, volumes: &[Volume], shares: &[Share]) -> f64 {
        let room: usize = shares.iter().map(|share| share.units).sum();
        value(volumes, shares, &self.prices) - self.rho_us * room as f64
    }
}

/// Blocks that a plan writes to the SSD in the interval.
pub fn ssd_writes(volumes: &[Volume], shares: &[Share]) -> f64 {
    let of_share =
        |(volume, share): (&Volume, &Share)| volume.ssd_writes(share.policy, share.units);
    volumes.iter().zip(shares).map(of_share).sum()
}

/// What a plan saves in the interval, in microseconds.
pub fn value(volumes: &[Volume], shares: &[Share], prices: &Prices) -> f64 {
    let of_share =
        |(volume, share): (&Volume, &Share)| prices.value(volume, share.policy, share.units);
    volumes.iter().zip(shares).map(of_share).sum()
}

/// Sizes and policies of the largest value.
pub fn shares(volumes: &[Volume], capacity: usize, objective: &Objective) -> Vec<Share> {
    let prices = &objective.prices;
    let utility = |volume: &Volume| {
        let best = |units| objective.value(volume, prices.best_policy(volume, units), units);
        let values = (0..volume.sizes()).map(best).collect();
        Utility { values, min: volume.min, max: volume.max }
    };
    let utilities: Vec<Utility> = volumes.iter().map(utility).collect();
    let sizes = divide(&utilities, capacity);
    let share = |(volume, units): (&Volume, usize)| Share {
        units,
        policy: prices.best_policy(volume, units),
    };
    volumes.iter().zip(sizes).map(share).collect()
}

/// The same within `budget` blocks written to the SSD in the interval. With a budget of 0, and
/// always if the price has to be very high, volumes are bypassed.
pub fn shares_within(
    volumes: &[Volume],
    capacity: usize,
    objective: &Objective,
    budget: f64,
) -> Vec<Share> {
    let prices = &objective.prices;
    let at_price = |lambda_us| {
        let lambda_us = prices.lambda_us + lambda_us;
        let dearer = Prices { lambda_us, ..*prices };
        shares(volumes, capacity, &Objective { prices: dearer, rho_us: objective.rho_us })
    };
    let fits = |plan: &[Share]| ssd_writes(volumes, plan) <= budget;
    let mut best = at_price(0.0);
    if fits(&best) {
        return best;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..DOUBLINGS_MAX {
        best = at_price(high);
        if fits(&best) {
            break;
        }
        (low, high) = (high, high * 2.0);
    }
    let bypassed = |volume: &Volume| Share { units: volume.min, policy: WritePolicy::Bypass };
    let mut from_nothing: Vec<Share> = volumes.iter().map(bypassed).collect();
    if !fits(&best) {
        best.clone_from(&from_nothing);
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        let plan = at_price(middle);
        if fits(&plan) {
            (high, best) = (middle, plan);
        } else {
            low = middle;
        }
    }
    for plan in [&mut best, &mut from_nothing] {
        spend(volumes, capacity, prices, budget, plan);
    }
    let is_better = value(volumes, &from_nothing, prices) > value(volumes, &best, prices);
    if is_better { from_nothing } else { best }
}

/// Makes the single change of one volume that gains most, within room and budget, again and again.
fn spend(volumes: &[Volume], capacity: usize, prices: &Prices, budget: f64, plan: &mut [Share]) {
    // Each change gains, so it ends; a bound keeps it from taking long over crumbs.
    for _ in 0..volumes.len() * 4 {
        let free = capacity - plan.iter().map(|share| share.units).sum::<usize>();
        let left = budget - ssd_writes(volumes, plan);
        let mut best = (0.0, None);
        for (at, (volume, share)) in volumes.iter().zip(&*plan).enumerate() {
            let now = prices.value(volume, share.policy, share.units);
            let writes = volume.ssd_writes(share.policy, share.units);
            let most = (share.units + free).min(volume.max).min(volume.sizes() - 1);
            for units in volume.min..=most {
                for policy in WritePolicy::ALL {
                    let gain = prices.value(volume, policy, units) - now;
                    if gain > best.0 && volume.ssd_writes(policy, units) - writes <= left {
                        best = (gain, Some((at, Share { units, policy })));
                    }
                }
            }
        }
        let Some((at, share)) = best.1 else { return };
        plan[at] = share;
    }
}
