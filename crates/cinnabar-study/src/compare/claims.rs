//! One contestant measured by another one, as the papers do.
//!
//! Performance is 1 / mean latency; what it costs is the blocks allocated; an SSD's lifetime is in
//! inverse proportion to what is written to it.

use super::outcome::Outcome;
use super::{Cache, Contestant, Entry, Model};
use cinnabar_policy::sizing::{Allocator, Prices};

/// What ECI-Cache's authors found against Centaur, as fractions: better performance, better
/// performance per cost, longer lifetime of the SSD (SIGMETRICS 2018).
pub const ECI_CLAIMS: Gains =
    Gains { performance: Some(0.17), per_block: Some(0.30), lifetime: Some(0.65) };

/// How much better than another one, as parts of it: 0.17 is 17 % better. `None` where there is nothing
/// to divide by.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Gains {
    /// Gain of performance, as a fraction.
    pub performance: Option<f64>,
    /// Of performance for each allocated block.
    pub per_block: Option<f64>,
    /// Of the lifetime of the SSD.
    pub lifetime: Option<f64>,
}

impl Entry {
    /// What came of it in a model.
    pub const fn outcome(&self, model: Model) -> Option<&Outcome> {
        match model {
            Model::Engine => self.engine.as_ref(),
            Model::Papers => self.papers.as_ref(),
        }
    }

    /// How much better it is than another one in a model.
    pub fn gains(&self, over: &Self, model: Model, prices: &Prices) -> Gains {
        let (Some(this), Some(other)) = (self.outcome(model), over.outcome(model)) else {
            return Gains::default();
        };
        let latency = |outcome: &Outcome| outcome.total().mean_us(prices).unwrap_or(0.0);
        let performance = ratio(latency(other), latency(this));
        let blocks = ratio(over.allocated_blocks, self.allocated_blocks);
        let gain = |ratio: f64| ratio - 1.0;
        Gains {
            performance: performance.map(gain),
            per_block: performance.zip(blocks).map(|(a, b)| gain(a * b)),
            lifetime: ratio(other.ssd_writes as f64, this.ssd_writes as f64).map(gain),
        }
    }
}

impl Cache {
    /// An allocator's entry, if it took part.
    pub fn of(&self, allocator: Allocator) -> Option<&Entry> {
        let wanted = Contestant::Allocator(allocator);
        self.entries.iter().find(|entry| entry.contestant == wanted)
    }

    /// ECI-Cache against Centaur, if both took part.
    pub fn eci_over_centaur(&self, model: Model, prices: &Prices) -> Option<Gains> {
        let (eci, centaur) = (self.of(Allocator::Eci)?, self.of(Allocator::Centaur)?);
        eci.outcome(model).map(|_| eci.gains(centaur, model, prices))
    }

    /// The baseline of the comparison: Centaur, as in ECI-Cache's paper, or the first allocator.
    pub fn baseline(&self) -> Option<&Entry> {
        self.of(Allocator::Centaur).or_else(|| self.entries.first())
    }
}

fn ratio(this: f64, that: f64) -> Option<f64> {
    (this > 0.0 && that > 0.0).then(|| this / that)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Counts;

    fn entry(allocator: Allocator, read_hits: u64, ssd_writes: u64, blocks: f64) -> Entry {
        let counts = Counts { reads: 10, read_hits, ..Counts::default() };
        let outcome = Outcome { volumes: vec![counts], ssd_writes, ssd_writes_back: ssd_writes };
        Entry {
            contestant: Contestant::Allocator(allocator),
            allocated_blocks: blocks,
            plans: Vec::new(),
            engine: None,
            papers: Some(outcome),
        }
    }

    #[test]
    fn gains_are_over_the_other_one() {
        let prices = Prices {
            ssd_read_us: 10.0,
            ssd_write_us: 1.0,
            backend_read_us: 110.0,
            backend_write_us: 1.0,
            omega: 1.0,
            lambda_us: 0.0,
            mu_us: 0.0,
        };
        // Mean latencies of 60 and 30 microseconds.
        let (eci, centaur) =
            (entry(Allocator::Eci, 8, 100, 50.0), entry(Allocator::Centaur, 5, 250, 200.0));
        let cache = Cache { part: 1.0, capacity_blocks: 255, entries: vec![eci, centaur] };
        let gains = cache.eci_over_centaur(Model::Papers, &prices).expect("both took part");
        let close = |found: Option<f64>, wanted: f64| {
            assert!(found.is_some_and(|found| (found - wanted).abs() < 1e-9), "{found:?}");
        };
        close(gains.performance, 1.0);
        close(gains.per_block, 7.0);
        close(gains.lifetime, 1.5);
        assert_eq!(cache.eci_over_centaur(Model::Engine, &prices), None);
        let baseline = cache.baseline().expect("there is one");
        assert_eq!(baseline.contestant, Contestant::Allocator(Allocator::Centaur));
        let nothing = entry(Allocator::Eci, 5, 0, 0.0).gains(baseline, Model::Papers, &prices);
        assert_eq!((nothing.per_block, nothing.lifetime), (None, None), "nothing to divide by");
        close(nothing.performance, 0.0);
    }
}
