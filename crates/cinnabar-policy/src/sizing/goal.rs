//! What `urd` is to be best at, and its decision.

use super::dominance::{Dominant, dominant, weighted};
use super::urd::{Objective, shares, shares_within, ssd_writes};
use super::volume::Volume;
use super::{Settings, Share};

/// What `urd` is to be best at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// A volume counts by its accesses to the power of this less 1, from 0 to 1: 1 makes the mean latency
    /// over all accesses small, 0 the mean over volumes. Of no effect with `margin`, which tries several.
    pub alpha: f64,
    /// The price of a block of room for an interval, in microseconds. Of no effect with `margin`.
    pub rho_us: f64,
    /// Looks for the plan that writes the SSD least, and then takes least room, of those whose predicted
    /// latency is at most this part of Centaur's: .99. `None`: goes by prices.
    pub margin: Option<f64>,
    /// Simulates the engine, instead of going by curves of reuse distances alone.
    pub by_engine: bool,
}

impl Goal {
    /// Only prices count, and every miss and every kept write is charged.
    pub const PRICES: Self = Self { alpha: 1.0, rho_us: 0.0, margin: None, by_engine: false };
    /// The cheapest plan that is faster than Centaur's, by a simulation of the engine.
    pub const DOMINANT: Self =
        Self { alpha: 1.0, rho_us: 0.0, margin: Some(0.99), by_engine: true };

    /// With the price of a unit of so many blocks.
    pub(crate) fn by_units(self, unit_blocks: u64) -> Self {
        Self { rho_us: self.rho_us * unit_blocks as f64, ..self }
    }
}

impl Default for Goal {
    fn default() -> Self {
        Self::PRICES
    }
}

/// What was decided, and by which measure it is best.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The plan.
    pub shares: Vec<Share>,
    /// At which it is the best one.
    pub objective: Objective,
    /// The volumes, weighted as it counts them.
    pub volumes: Vec<Volume>,
}

/// What to do with volumes that did this.
///
/// # Panics
/// If the volumes' minima do not fit.
pub fn decide(volumes: &[Volume], capacity: usize, settings: &Settings) -> Decision {
    let goal = settings.goal;
    if let Some(margin) = goal.margin {
        let Dominant { shares, objective, volumes, .. } =
            dominant(volumes, capacity, &settings.prices, margin);
        let fits = |most| ssd_writes(&volumes, &shares) <= most;
        if settings.ssd_writes_max.is_none_or(fits) {
            return Decision { shares, objective, volumes };
        }
    }
    #[allow(clippy::float_cmp, reason = "exactly 1 is the default, which changes no weight")]
    let volumes = if goal.alpha == 1.0 {
        volumes.to_vec()
    } else {
        weighted(volumes, &settings.prices, goal.alpha)
    };
    let objective = Objective { prices: settings.prices, rho_us: goal.rho_us };
    let shares = match settings.ssd_writes_max {
        None => shares(&volumes, capacity, &objective),
        Some(most) => shares_within(&volumes, capacity, &objective, most),
    };
    Decision { shares, objective, volumes }
}
