//! Values that an independent model of the same paper found, and the allowed deviation of this
//! simulator's.
//!
//! Made by the experiments; judged by the command, which marks differences, and by the tests. A
//! difference means that one of the two models is wrong: `docs/design/timed-simulator.md` says which.

use super::{Measured, Quantity};
use crate::timed::Config;

/// What a read latency may differ by, as a share.
const READ_SHARE: f64 = 0.03;
/// The same for a write latency.
const WRITE_SHARE: f64 = 0.05;
/// Or by so many microseconds.
const WRITE_US: f64 = 0.5;
/// What a share may differ by: two points.
const POINTS: f64 = 0.02;

/// One value.
#[derive(Clone, Debug)]
pub struct Target {
    /// Of what: "60 GB, 64 GB flash".
    pub what: String,
    /// What to run.
    pub config: Config,
    /// What to look at.
    pub quantity: Quantity,
    /// The value, or the lowest of several that were published as a range.
    pub low: f64,
    /// The highest of the published range.
    pub high: f64,
}

/// How near we are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearness {
    /// What was measured.
    pub measured: f64,
    /// Beyond the range by so much, as a share of its end; of shares, in points of 1. 0 within.
    pub difference: f64,
    /// Whether that is allowed.
    pub within: bool,
}

impl Target {
    /// A read latency in microseconds.
    pub(super) fn read(what: impl Into<String>, config: &Config, us: f64) -> Self {
        Self::between(what, config, Quantity::ReadLatency, us, us)
    }

    /// A write latency in microseconds.
    pub(super) fn write(what: impl Into<String>, config: &Config, us: f64) -> Self {
        Self::between(what, config, Quantity::WriteLatency, us, us)
    }

    /// A share in per cent.
    pub(super) fn percent(
        what: impl Into<String>,
        config: &Config,
        quantity: Quantity,
        percent: f64,
    ) -> Self {
        Self::between(what, config, quantity, percent / 100.0, percent / 100.0)
    }

    pub(super) fn between(
        what: impl Into<String>,
        config: &Config,
        quantity: Quantity,
        low: f64,
        high: f64,
    ) -> Self {
        Self { what: what.into(), config: *config, quantity, low, high }
    }

    /// How near we are to it.
    pub fn judge(&self, measured: &Measured) -> Nearness {
        self.nearness(measured.value(self.quantity, &self.config))
    }

    fn nearness(&self, measured: f64) -> Nearness {
        let nearest = measured.clamp(self.low, self.high);
        let beyond = measured - nearest;
        let relative = beyond / nearest;
        let (difference, within) = match self.quantity {
            Quantity::ReadLatency => (relative, relative.abs() <= READ_SHARE),
            Quantity::WriteLatency => {
                (relative, relative.abs() <= WRITE_SHARE || beyond.abs() <= WRITE_US)
            }
            _ => (beyond, beyond.abs() <= POINTS),
        };
        Nearness { measured, difference, within }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(quantity: Quantity, low: f64, high: f64, measured: f64) -> bool {
        let config = Config::default();
        Target::between("", &config, quantity, low, high).nearness(measured).within
    }

    #[test]
    fn reads_may_differ_by_three_percent_of_the_nearer_end() {
        for (measured, fine) in [(397.8, true), (397.6, false), (423.3, true), (423.4, false)] {
            assert_eq!(within(Quantity::ReadLatency, 410.0, 411.0, measured), fine, "{measured}");
        }
    }

    #[test]
    fn writes_may_differ_by_five_percent_or_half_a_microsecond() {
        for (target, measured, fine) in
            [(0.4, 0.89, true), (0.4, 0.91, false), (168.0, 176.3, true), (168.0, 176.5, false)]
        {
            let found = within(Quantity::WriteLatency, target, target, measured);
            assert_eq!(found, fine, "{target} {measured}");
        }
    }

    #[test]
    fn shares_may_differ_by_two_points() {
        let share = |measured| within(Quantity::Invalidations, 0.558, 0.558, measured);
        assert!(share(0.577) && share(0.539));
        assert!(!share(0.579) && !share(0.537) && !share(f64::NAN));
    }

    #[test]
    fn a_difference_is_told_with_its_sign() {
        let target = Target::read("", &Config::default(), 400.0);
        assert!((target.nearness(420.0).difference - 0.05).abs() < 1e-12);
        assert!((target.nearness(380.0).difference + 0.05).abs() < 1e-12);
    }
}
