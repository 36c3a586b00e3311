//! Mean latencies of a run, by every measure there is: what is counted, and what counts the same.
//!
//! A measure chosen afterwards can be the one that suits. So all of them are shown.

use super::outcome::{Counts, Outcome};
use cinnabar_policy::sizing::Prices;

/// Mean latencies of 4 KiB blocks, in microseconds; `None` where nothing counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Measures {
    /// Over all reads.
    pub reads: Option<f64>,
    /// Over volumes, each by the mean of its reads.
    pub reads_per_volume: Option<f64>,
    /// Over all writes.
    pub writes: Option<f64>,
    /// Over volumes, each by the mean of its writes.
    pub writes_per_volume: Option<f64>,
    /// Over reads and writes alike.
    pub both: Option<f64>,
    /// Over volumes, each by the mean of its reads and writes.
    pub both_per_volume: Option<f64>,
}

impl Measures {
    /// Of a run; a write counts as much as a read, whatever omega is.
    pub fn of(outcome: &Outcome, prices: &Prices) -> Self {
        let alike = Prices { omega: 1.0, ..*prices };
        let total = outcome.total();
        let per_volume = |of: fn(&Counts, &Prices) -> Option<f64>| {
            let means: Vec<f64> =
                outcome.volumes.iter().filter_map(|counts| of(counts, &alike)).collect();
            (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
        };
        Self {
            reads: total.read_us(&alike),
            reads_per_volume: per_volume(Counts::read_us),
            writes: total.write_us(&alike),
            writes_per_volume: per_volume(Counts::write_us),
            both: total.mean_us(&alike),
            both_per_volume: per_volume(Counts::mean_us),
        }
    }

    /// In the order of [`Measures::NAMES`].
    pub const fn all(&self) -> [Option<f64>; 6] {
        [
            self.reads,
            self.reads_per_volume,
            self.writes,
            self.writes_per_volume,
            self.both,
            self.both_per_volume,
        ]
    }

    /// Heads of columns.
    pub const NAMES: [&str; 6] = ["READS", "READS/VOL", "WRITES", "WRITES/VOL", "BOTH", "BOTH/VOL"];

    /// How much shorter another one's latencies make performance (1 / latency): .17 is 17 % better.
    pub fn gains_over(&self, other: &Self) -> [Option<f64>; 6] {
        let (this, that) = (self.all(), other.all());
        std::array::from_fn(|at| {
            let (this, that) = this[at].zip(that[at])?;
            (this > 0.0).then(|| that / this - 1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_hardly_reads_counts_in_one_mean_and_not_in_the_other() {
        let prices = Prices {
            ssd_read_us: 100.0,
            ssd_write_us: 100.0,
            backend_read_us: 1100.0,
            backend_write_us: 1100.0,
            omega: 0.0,
            lambda_us: 0.0,
            mu_us: 0.0,
        };
        let busy = Counts { reads: 999, read_hits: 999, ..Counts::default() };
        let idle = Counts { reads: 1, read_hits: 0, ..Counts::default() };
        let outcome = Outcome { volumes: vec![busy, idle], ..Outcome::default() };
        let found = Measures::of(&outcome, &prices);
        let close = |found: Option<f64>, wanted: f64| {
            assert!(found.is_some_and(|found| (found - wanted).abs() < 1e-9), "{found:?}");
        };
        close(found.reads, 101.0);
        close(found.reads_per_volume, 600.0);
        assert_eq!(found.writes, None);
        let other = Outcome { volumes: vec![busy, busy], ..Outcome::default() };
        let gains = Measures::of(&other, &prices).gains_over(&found);
        close(gains[0], 0.01);
        close(gains[1], 5.0);
        assert_eq!(gains[2], None);
    }
}
