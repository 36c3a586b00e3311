//! Distributions of latency, and how they are written: `92us`, `uniform/80us/120us`,
//! `lognormal/88us/0.3`, `mix/92us/7952us/0.9`, `percentiles/50=88us/99=1ms/100=5ms`.

use crate::model::random::Random;

/// Pairs of a percentile list.
const PERCENTILES_MAX: usize = 16;
/// Longest time that can be written, in ns (1000 s).
const NS_MAX: u64 = 1_000_000_000_000;

/// A distribution of times, in ns.
#[derive(Clone, Debug, PartialEq)]
pub enum Latency {
    /// Always the same.
    Constant(u64),
    /// Anything between the two with equal probability.
    Uniform(u64, u64),
    /// The logarithm is normally distributed around that of the median.
    Lognormal {
        /// Half of all draws are below, in ns.
        median_ns: u64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// One of two: a cache on the other side that hits or misses.
    Mix {
        fast_ns: u64,
        slow_ns: u64,
        /// Probability of the fast one, 0 to 1.
        fast_share: f64,
    },
    /// Straight lines between given percentiles (per cent, ns), rising in both; below the first
    /// percentile its value holds.
    Percentiles(Vec<(f64, u64)>),
}

impl Latency {
    /// What a user writes: see the module's documentation. `None` if it isn't that.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let first = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        match (first, rest.as_slice()) {
            (_, []) => Some(Self::Constant(parse_ns(first)?)),
            ("uniform", [from, to]) => {
                let (from, to) = (parse_ns(from)?, parse_ns(to)?);
                (from <= to).then_some(Self::Uniform(from, to))
            }
            ("lognormal", [median, sigma]) => {
                let sigma: f64 = sigma.parse().ok()?;
                (0.0..=5.0)
                    .contains(&sigma)
                    .then_some(Self::Lognormal { median_ns: parse_ns(median)?, sigma })
            }
            ("mix", [fast, slow, share]) => {
                let fast_share = parse_share(share)?;
                Some(Self::Mix { fast_ns: parse_ns(fast)?, slow_ns: parse_ns(slow)?, fast_share })
            }
            ("percentiles", pairs) => parse_percentiles(pairs),
            _ => None,
        }
    }

    /// A time drawn from it, in ns.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        match *self {
            Self::Constant(ns) => ns,
            Self::Uniform(from, to) => from + whole_ns(random.unit() * (to - from) as f64),
            Self::Lognormal { median_ns, sigma } => {
                let ns = median_ns as f64 * (sigma * random.normal()).exp();
                // The bound keeps a freak draw from stopping the model.
                whole_ns(ns).min(NS_MAX)
            }
            Self::Mix { fast_ns, slow_ns, fast_share } => {
                if random.unit() < fast_share {
                    fast_ns
                } else {
                    slow_ns
                }
            }
            Self::Percentiles(ref points) => interpolate(points, random.unit() * 100.0),
        }
    }
}

/// A time with its unit (`ns`, `us`, `ms`, `s`), in ns; a plain `0` needs none.
pub(crate) fn parse_ns(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let digits = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = number.parse::<f64>().ok()? * factor;
    (0.0..=NS_MAX as f64).contains(&ns).then_some(whole_ns(ns.round()))
}

/// Rounds down to whole ns; anything below 0 is 0, anything too large the largest.
#[expect(clippy::cast_sign_loss, reason = "the cast saturates, which is what is wanted")]
pub(crate) fn whole_ns(ns: f64) -> u64 {
    ns as u64
}

/// A probability, 0 to 1.
pub(crate) fn parse_share(text: &str) -> Option<f64> {
    let share: f64 = text.parse().ok()?;
    (0.0..=1.0).contains(&share).then_some(share)
}

fn parse_percentiles(pairs: &[&str]) -> Option<Latency> {
    if pairs.len() > PERCENTILES_MAX {
        return None;
    }
    let mut points: Vec<(f64, u64)> = Vec::new();
    for pair in pairs {
        let (percent, ns) = pair.split_once('=')?;
        let point = (percent.parse::<f64>().ok()?, parse_ns(ns)?);
        let rises = points.last().is_none_or(|last| point.0 > last.0 && point.1 >= last.1);
        if !rises || !(0.0..=100.0).contains(&point.0) {
            return None;
        }
        points.push(point);
    }
    // Without its end the distribution is not known.
    (points.last()?.0 >= 100.0).then_some(Latency::Percentiles(points))
}

fn interpolate(points: &[(f64, u64)], percent: f64) -> u64 {
    let above = points.partition_point(|point| point.0 < percent);
    let Some(&(to, to_ns)) = points.get(above) else {
        return points.last().map_or(0, |last| last.1);
    };
    let Some(&(from, from_ns)) = above.checked_sub(1).and_then(|below| points.get(below)) else {
        return to_ns;
    };
    from_ns + whole_ns((percent - from) / (to - from) * (to_ns - from_ns) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_us(text: &str) -> f64 {
        let latency = Latency::parse(text).expect("a latency");
        let mut random = Random::new(1);
        let draws = 200_000;
        let sum: f64 = (0..draws).map(|_| latency.draw(&mut random) as f64).sum();
        sum / f64::from(draws) / 1000.0
    }

    #[test]
    fn means_are_those_of_the_distributions() {
        // Lognormal: median x exp(sigma^2 / 2). Percentiles: areas of 50, 49 and 1 per cent.
        for (text, expected) in [
            ("92us", 92.0),
            ("uniform/80us/120us", 100.0),
            ("lognormal/88us/0.5", 88.0 * (0.125_f64).exp()),
            ("mix/92us/7952us/0.9", 878.0),
            ("percentiles/50=100us/99=200us/100=1ms", 50.0 + 73.5 + 6.0),
        ] {
            let mean = mean_us(text);
            assert!((mean / expected - 1.0).abs() < 0.02, "{text}: {mean} for {expected}");
        }
    }

    #[test]
    fn parsing_refuses_what_makes_no_sense() {
        for text in [
            "",
            "92",
            "us",
            "-1us",
            "1h",
            "nanus",
            "uniform/2us/1us",
            "uniform/1us",
            "mix/1us/2us/1.5",
            "lognormal/1us/-1",
            "percentiles",
            "percentiles/50=1us",
            "percentiles/50=2us/100=1us",
            "percentiles/90=1us/50=2us/100=3us",
            "1e30s",
            "infs",
            "gauss/1us/2us",
        ] {
            assert_eq!(Latency::parse(text), None, "{text}");
        }
    }
}
