//! Claims as bounds on what was measured: each can fail.
//!
//! Made by the experiments; judged by the command and by the tests. A check without a bound claims
//! nothing: its value is worth telling.

use super::{Measured, Quantity};
use crate::timed::Config;

/// One bound.
#[derive(Clone, Debug)]
pub struct Check {
    /// What is claimed: "flash of 64 GB cuts mean read latency at 60 GB".
    pub what: String,
    /// What is looked at.
    pub quantity: Quantity,
    /// What is computed from it.
    pub formula: Formula,
    /// What must come out; nothing, if that is open.
    pub bound: Option<Bound>,
}

/// What is computed.
#[derive(Clone, Debug)]
pub enum Formula {
    /// How much smaller it is with something than without, as a share: 0.4 is 40 %.
    Cut {
        /// The smaller one, if the claim is right.
        with: Config,
        /// The larger one.
        without: Config,
    },
    /// How much larger it is, as a share.
    Rise {
        /// The larger one.
        of: Config,
        /// Over this one.
        over: Config,
    },
    /// How many times as large it is.
    Ratio {
        /// The one above the line.
        of: Config,
        /// The one below.
        to: Config,
    },
    /// The largest less the smallest, as a share of the smallest.
    Spread(Vec<Config>),
}

/// What must come out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
    /// Less than that.
    Below(f64),
}

impl Check {
    /// The configurations that it needs.
    pub fn configs(&self) -> impl Iterator<Item = &Config> {
        let (pair, many): ([Option<&Config>; 2], &[Config]) = match &self.formula {
            Formula::Cut { with, without } => ([Some(with), Some(without)], &[]),
            Formula::Rise { of, over } => ([Some(of), Some(over)], &[]),
            Formula::Ratio { of, to } => ([Some(of), Some(to)], &[]),
            Formula::Spread(all) => ([None, None], all),
        };
        pair.into_iter().flatten().chain(many)
    }

    /// What came out.
    pub fn value(&self, measured: &Measured) -> f64 {
        let value = |config: &Config| measured.value(self.quantity, config);
        match &self.formula {
            Formula::Cut { with, without } => 1.0 - value(with) / value(without),
            Formula::Rise { of, over } => value(of) / value(over) - 1.0,
            Formula::Ratio { of, to } => value(of) / value(to),
            Formula::Spread(all) => {
                let values = || all.iter().map(value);
                let least = values().fold(f64::INFINITY, f64::min);
                values().fold(0.0, f64::max) / least - 1.0
            }
        }
    }

    /// Whether it holds; none if nothing is claimed. What is no number does not hold.
    pub fn holds(&self, measured: &Measured) -> Option<bool> {
        Some(self.bound?.admits(self.value(measured)))
    }

    /// Is the value a share, 0.4 for 40 %, and not a number of times?
    pub fn is_share(&self) -> bool {
        !matches!(self.formula, Formula::Ratio { .. })
    }
}

impl Bound {
    /// Whether a value is within.
    pub fn admits(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Below(limit) => value < limit,
        }
    }

    /// The number in it, and how it is said.
    pub fn parts(self) -> (&'static str, f64) {
        match self {
            Self::AtLeast(least) => ("at least", least),
            Self::AtMost(most) => ("at most", most),
            Self::Below(limit) => ("below", limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timed::Outcome;

    /// Outcomes in which so many of a hundred blocks written needed an invalidation.
    fn measured(percents: &[u64]) -> (Vec<Config>, Measured) {
        let configs: Vec<_> =
            (1..).take(percents.len()).map(|seed| Config { seed, ..Config::default() }).collect();
        let outcome = |percent: &u64| Outcome {
            block_writes: 100,
            invalidating_writes: *percent,
            ..Outcome::default()
        };
        let outcomes = percents.iter().map(outcome).collect();
        (configs.clone(), Measured::new(configs, outcomes))
    }

    fn check(formula: Formula, bound: Bound) -> Check {
        let quantity = Quantity::Invalidations;
        Check { what: String::new(), quantity, formula, bound: Some(bound) }
    }

    #[test]
    fn formulas_compute_what_they_say() {
        let (configs, measured) = measured(&[20, 50, 40]);
        let [small, large, other] = configs[..] else { panic!("three of them") };
        let value = |formula| check(formula, Bound::AtMost(0.0)).value(&measured);
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found}");
        close(value(Formula::Cut { with: small, without: large }), 0.6);
        close(value(Formula::Rise { of: large, over: other }), 0.25);
        close(value(Formula::Ratio { of: large, to: small }), 2.5);
        close(value(Formula::Spread(vec![large, small, other])), 1.5);
    }

    #[test]
    fn a_check_fails_beyond_its_bound() {
        let (configs, measured) = measured(&[20, 50]);
        let twice = |bound| {
            let formula = Formula::Ratio { of: configs[1], to: configs[0] };
            check(formula, bound).holds(&measured)
        };
        assert_eq!(twice(Bound::AtLeast(2.5)), Some(true));
        assert_eq!(twice(Bound::AtLeast(2.6)), Some(false));
        assert_eq!(twice(Bound::AtMost(2.5)), Some(true));
        assert_eq!(twice(Bound::AtMost(2.4)), Some(false));
        assert_eq!(twice(Bound::Below(2.5)), Some(false));
    }

    #[test]
    fn what_is_no_number_does_not_hold() {
        let (configs, measured) = measured(&[0, 0]);
        let formula = Formula::Ratio { of: configs[1], to: configs[0] };
        for bound in [Bound::AtLeast(0.0), Bound::AtMost(9.0), Bound::Below(9.0)] {
            assert_eq!(check(formula.clone(), bound).holds(&measured), Some(false));
        }
    }
}
