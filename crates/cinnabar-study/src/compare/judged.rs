//! ECI-Cache's claims against Centaur, by every measure and under every reading of what is left open.
//!
//! The paper's summary gives three figures and neither the measure of performance nor the threshold. So
//! each is tried: six means of latency ([`Measures`]), thresholds from .3 to .9, the last interval alone
//! and with earlier ones fading, both allocators with their own aim and with a common one, and prices
//! where an SSD write is slower than a read, as the slides have it, beside those of the command. All in
//! the papers' model and with demands as published (`reach_part` 1).

use super::input::Input;
use super::outcome::Outcome;
use super::{CompareError, Comparison, Contestant, Measures, Model, Options, compare};
use cinnabar_policy::named;
use cinnabar_policy::sizing::{Allocator, Prices, Weighting};

/// Thresholds tried: above such a part of writes among the reuses, writes are kept out.
pub const THRESHOLDS: [f64; 4] = [0.3, 0.5, 0.7, 0.9];
/// What earlier intervals count.
pub const DECAYS: [f64; 2] = [0.0, 0.5];
/// Sizes of the cache, as parts of the demand.
pub const PARTS: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 1.0, 3.0];
/// By the slides an SSD write takes longer than a read; so many times as long here.
const WRITES_SLOWER: f64 = 4.0;

named! {
    /// What an SSD write costs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Premise {
        /// What the command was given.
        Measured = "as measured",
        /// Four times an SSD read, the slides' premise.
        WritesSlower = "SSD writes slower",
    }
}

impl Premise {
    fn prices(self, prices: &Prices) -> Prices {
        match self {
            Self::Measured => *prices,
            Self::WritesSlower => {
                Prices { ssd_write_us: prices.ssd_read_us * WRITES_SLOWER, ..*prices }
            }
        }
    }
}

/// ECI-Cache over Centaur under one reading; gains are fractions: .17 is 17 % better.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Judged {
    /// The cache's size, as a part of the demand.
    pub part: f64,
    /// What earlier intervals count.
    pub decay: f64,
    /// What both aim at: `own`, `accesses` or `volumes`.
    pub aim: &'static str,
    /// ECI-Cache's threshold.
    pub threshold: f64,
    /// What an SSD write costs.
    pub premise: Premise,
    /// Of performance, in the order of [`Measures::NAMES`].
    pub performance: [Option<f64>; 6],
    /// Of performance for each block allocated, in the same order.
    pub per_block: [Option<f64>; 6],
    /// Of the lifetime of the SSD.
    pub lifetime: Option<f64>,
}

/// A run of one allocator in each size of cache.
struct Runs {
    allocator: Allocator,
    weighting: Weighting,
    threshold: f64,
    found: Comparison,
}

/// Judges; `tell` is called with the number of comparisons that are done and of all. Contestants, models,
/// sizes, decay, threshold and weighting of the options do not count.
///
/// # Errors
/// What is wrong with the input, or why it can't be compared.
pub fn judge(
    input: Input<'_>,
    options: &Options,
    mut tell: impl FnMut(usize, usize),
) -> Result<Vec<Judged>, CompareError> {
    let mut found = Vec::new();
    let of = DECAYS.len() * 2 * (THRESHOLDS.len() + 1);
    let mut done = 0;
    for decay in DECAYS {
        let mut runs = Vec::new();
        for weighting in [Weighting::Volumes, Weighting::Accesses] {
            let centaur = std::iter::once((Allocator::Centaur, THRESHOLDS[0]));
            let eci = THRESHOLDS.iter().map(|threshold| (Allocator::Eci, *threshold));
            for (allocator, threshold) in centaur.chain(eci) {
                let options = under(options, decay, weighting, allocator, threshold);
                let found = compare(input, &options, |_| {})?;
                runs.push(Runs { allocator, weighting, threshold, found });
                done += 1;
                tell(done, of);
            }
        }
        for aim in Weighting::ALL {
            for threshold in THRESHOLDS {
                found.extend(judged(&runs, decay, aim, threshold, &options.rules.prices));
            }
        }
    }
    Ok(found)
}

fn under(
    options: &Options,
    decay: f64,
    weighting: Weighting,
    allocator: Allocator,
    threshold: f64,
) -> Options {
    let mut rules = options.rules;
    (rules.written_part_max, rules.reach_part) = (threshold, 1.0);
    Options {
        contestants: vec![Contestant::Allocator(allocator)],
        models: vec![Model::Papers],
        parts: PARTS.to_vec(),
        decay,
        weighting,
        rules,
        ..options.clone()
    }
}

fn judged(
    runs: &[Runs],
    decay: f64,
    aim: Weighting,
    threshold: f64,
    prices: &Prices,
) -> Vec<Judged> {
    // Their own aims: ECI-Cache adds up volumes, Centaur accesses.
    let (of_eci, of_centaur) = match aim {
        Weighting::Own => (Weighting::Volumes, Weighting::Accesses),
        common => (common, common),
    };
    let run = |allocator, weighting, threshold: Option<f64>| {
        let is = |run: &&Runs| {
            run.allocator == allocator
                && run.weighting == weighting
                && threshold.is_none_or(|threshold| run.threshold.total_cmp(&threshold).is_eq())
        };
        &runs.iter().find(is).expect("it was run").found
    };
    let eci = run(Allocator::Eci, of_eci, Some(threshold));
    let centaur = run(Allocator::Centaur, of_centaur, None);
    let mut found = Vec::new();
    for (eci, centaur) in eci.caches.iter().zip(&centaur.caches) {
        let (part, eci, centaur) = (eci.part, &eci.entries[0], &centaur.entries[0]);
        let of = |outcome: &Option<Outcome>| outcome.clone().expect("the papers' model ran");
        let (this, that) = (of(&eci.papers), of(&centaur.papers));
        let room = ratio(centaur.allocated_blocks, eci.allocated_blocks);
        for premise in Premise::ALL {
            let prices = premise.prices(prices);
            let performance =
                Measures::of(&this, &prices).gains_over(&Measures::of(&that, &prices));
            let a_block = |gain: Option<f64>| Some((1.0 + gain?) * room? - 1.0);
            found.push(Judged {
                part,
                decay,
                aim: aim.name(),
                threshold,
                premise,
                performance,
                per_block: performance.map(a_block),
                lifetime: ratio(that.ssd_writes as f64, this.ssd_writes as f64)
                    .map(|ratio| ratio - 1.0),
            });
        }
    }
    found
}

fn ratio(this: f64, that: f64) -> Option<f64> {
    (this > 0.0 && that > 0.0).then(|| this / that)
}
