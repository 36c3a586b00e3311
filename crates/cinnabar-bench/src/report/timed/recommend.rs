//! Which of the points to take: the cheapest one that is nearly as good as the best.
//!
//! Price is that of RAM and flash, with RAM so many times as dear; of points with one price the
//! first in the plan is taken, so a plan that names the safest policy first gets that one unless
//! another is really faster.

use super::Found;
use cinnabar_study::timed::Config;
use cinnabar_study::timed::config::{BLOCKS_PER_GIB, Placement};
use cinnabar_study::timed_plan::keys::Key;
use serde::Serialize;

/// What the operator of a host can choose; a workload or a latency is what it is.
const CHOICES: &[&str] = &[
    "hosts.architecture",
    "hosts.prefetch",
    "ram.size",
    "ram.policy",
    "flash.size",
    "flash.policy",
    "flash.placement",
    "flash.frames",
];

/// How to choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// So much slower than the best is good enough, in percent.
    pub within_percent: f64,
    /// A byte of RAM costs so many of flash.
    pub ram_price: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommended {
    pub(crate) point: String,
    pub(crate) mean_us: f64,
    /// In GiB of flash, RAM by its price.
    pub(crate) price: f64,
    pub(crate) best: String,
    pub(crate) best_mean_us: f64,
    pub(crate) best_price: f64,
    pub(crate) within_percent: f64,
    pub(crate) ram_price: f64,
    /// Each point that is faster than all that are cheaper, cheapest first.
    pub(crate) steps: Vec<Step>,
}

/// What more money buys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Step {
    pub(crate) point: String,
    pub(crate) price: f64,
    pub(crate) mean_us: f64,
}

/// The first key that nobody can choose.
pub fn not_a_choice(varied: &[&'static Key]) -> Option<&'static str> {
    varied.iter().map(|key| key.name).find(|name| !CHOICES.contains(name))
}

pub fn choices() -> String {
    CHOICES.join(", ")
}

/// The recommendation; `None` if there is no point to choose from.
pub fn recommend(found: &[Found], rules: Rules) -> Option<Recommended> {
    let of = |found: &Found| {
        let told = found.result.as_ref().ok()?;
        let price = price(&found.point.config, rules.ram_price);
        Some(Step { point: found.point.name.clone(), price, mean_us: told.mean_us() })
    };
    let mut all: Vec<Step> = found.iter().filter_map(of).collect();
    // Sorting keeps the plan's order where prices are equal.
    all.sort_by(|one, other| one.price.total_cmp(&other.price));
    let best = all.iter().min_by(|one, other| one.mean_us.total_cmp(&other.mean_us))?.clone();
    let enough_us = best.mean_us * (1.0 + rules.within_percent / 100.0);
    let chosen = all.iter().find(|step| step.mean_us <= enough_us)?.clone();
    let mut steps: Vec<Step> = Vec::new();
    for step in all {
        if steps.last().is_none_or(|last| step.mean_us < last.mean_us) {
            // Of one price only the fastest.
            if steps.last().is_some_and(|last| last.price >= step.price) {
                steps.pop();
            }
            steps.push(step);
        }
    }
    Some(Recommended {
        point: chosen.point,
        mean_us: chosen.mean_us,
        price: chosen.price,
        best: best.point,
        best_mean_us: best.mean_us,
        best_price: best.price,
        within_percent: rules.within_percent,
        ram_price: rules.ram_price,
        steps,
    })
}

fn price(config: &Config, ram_price: f64) -> f64 {
    let gib = |blocks: u64| blocks as f64 / BLOCKS_PER_GIB as f64;
    let hosts = f64::from(config.hosts);
    let flashes = if config.placement == Placement::Server { 1.0 } else { hosts };
    gib(config.ram_blocks) * hosts * ram_price + gib(config.flash_blocks) * flashes
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{PointStats, Times};
    use super::*;
    use cinnabar_study::timed_plan::Point;

    fn found(name: &str, ram_gib: u64, flash_gib: u64, mean_us: f64) -> Found {
        let config = Config {
            ram_blocks: ram_gib * BLOCKS_PER_GIB,
            flash_blocks: flash_gib * BLOCKS_PER_GIB,
            ..Config::default()
        };
        let reads = Times { count: 10, mean_us, ..Times::default() };
        let result = Ok(PointStats { reads, ..PointStats::default() });
        Found { point: Point::alone(name, config), result }
    }

    #[test]
    fn the_cheapest_that_is_good_enough() {
        let rules = Rules { within_percent: 5.0, ram_price: 10.0 };
        let points = [
            found("large", 8, 128, 300.0),
            found("safe", 1, 64, 312.0),
            found("fast", 1, 64, 310.0),
            found("small", 1, 32, 500.0),
            found("none", 1, 0, 900.0),
            found("ram", 8, 0, 900.0),
        ];
        let recommended = recommend(&points, rules).expect("there are some");
        assert_eq!(recommended.point, "safe", "as cheap as `fast`, and named before it");
        assert_eq!(recommended.best, "large");
        assert!(
            (recommended.price - 74.0).abs() < 1e-9
                && (recommended.best_price - 208.0).abs() < 1e-9
        );
        let steps: Vec<&str> = recommended.steps.iter().map(|step| step.point.as_str()).collect();
        assert_eq!(steps, ["none", "small", "fast", "large"]);
        let strict = recommend(&points, Rules { within_percent: 0.0, ..rules }).expect("some");
        assert_eq!(strict.point, "large");
        let lax = recommend(&points, Rules { within_percent: 300.0, ..rules }).expect("some");
        assert_eq!(lax.point, "none", "three times as slow is enough without flash");
        assert_eq!(recommend(&[], rules), None);
    }

    #[test]
    fn what_is_given_is_no_choice() {
        let key = |name| cinnabar_study::timed_plan::keys::find(name).expect("a key");
        assert_eq!(not_a_choice(&[key("ram.size"), key("flash.policy")]), None);
        assert_eq!(
            not_a_choice(&[key("ram.size"), key("workload.writes")]),
            Some("workload.writes")
        );
    }
}
