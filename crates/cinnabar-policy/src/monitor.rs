//! What volumes do, interval by interval: what every plan is made from.
//!
//! `analyze` feeds it the references of a trace, a live manager would feed it samples of accesses;
//! both plan from the same [`Volume`]s, so their plans can be compared. A volume has a sample of its
//! own, with its own rate: a small one next to a huge one is measured as well as alone.

use crate::reuse::{Sampled, SampledCurves};
use crate::sizing::{Units, Volume};
use std::num::NonZeroU32;

/// How much of a volume is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// At most so many blocks of each volume at a time.
    Blocks(NonZeroU32),
    /// This part of the blocks, above 0 and at most 1, which is all of them.
    Rate(f64),
}

/// How to look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How many blocks are sampled.
    pub sampling: Sampling,
    /// Determines which blocks are sampled.
    pub seed: u64,
    /// What an interval weighs in the next one, from 0 to 1: 0 looks at each by itself.
    pub decay: f64,
    /// A block belongs to the reuse working set after so many reuses in an interval.
    pub reuses_min: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self { sampling: Sampling::Blocks(Sampled::BLOCKS), seed: 1, decay: 0.5, reuses_min: 1 }
    }
}

/// Volumes under observation, numbered from 0.
#[derive(Debug)]
pub struct Monitor {
    settings: Settings,
    volumes: Vec<Sampled>,
}

impl Monitor {
    /// One that has seen nothing.
    pub const fn new(settings: Settings) -> Self {
        Self { settings, volumes: Vec::new() }
    }

    /// Counts references of a volume, pairs of a key and whether it is a write. A volume appears with
    /// its first call, and all below it.
    ///
    /// # Panics
    /// If the settings' rate is none.
    pub fn extend(&mut self, volume: usize, references: impl IntoIterator<Item = (u64, bool)>) {
        while self.volumes.len() <= volume {
            let sample = self.sample();
            self.volumes.push(sample);
        }
        self.volumes[volume].extend(references);
    }

    /// The curves of each volume, earlier intervals included with what they still weigh.
    pub fn curves(&self) -> impl Iterator<Item = SampledCurves> {
        self.volumes.iter().map(Sampled::curves)
    }

    /// The same in units, for allocators.
    pub fn volumes(&self, units: Units) -> Vec<Volume> {
        self.curves().map(|curves| Volume::sampled(&curves, units)).collect()
    }

    /// Ends an interval: what was counted so far fades.
    pub fn end_interval(&mut self) {
        self.end_intervals(1);
    }

    /// The same of several, of which all but the first were empty; returns what is left of their weight.
    pub fn end_intervals(&mut self, count: u64) -> f64 {
        let factor = power(self.settings.decay, count);
        self.volumes.iter_mut().for_each(|volume| volume.decay(factor));
        factor
    }

    fn sample(&self) -> Sampled {
        let mut sample = match self.settings.sampling {
            Sampling::Blocks(most) => Sampled::fixed_size(most, self.settings.seed),
            Sampling::Rate(rate) => Sampled::fixed_rate(rate, self.settings.seed),
        };
        sample.set_reuses_min(self.settings.reuses_min);
        sample
    }
}

/// By squaring, so that it is the same everywhere.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut square, mut result) = (base, 1.0);
    for bit in 0..u64::BITS {
        if exponent >> bit & 1 == 1 {
            result *= square;
        }
        square *= square;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_measured_apart_and_fade_together() {
        let settings = Settings { sampling: Sampling::Rate(1.0), ..Settings::default() };
        let mut monitor = Monitor::new(settings);
        let twice = |blocks: u64| (0..blocks).chain(0..blocks).map(|block| (block, false));
        monitor.extend(2, twice(5));
        monitor.extend(0, twice(9));
        let reads = |monitor: &Monitor| -> Vec<u64> {
            monitor.curves().map(|curves| curves.mix.reads).collect()
        };
        let reach: Vec<u64> = monitor.curves().map(|curves| curves.hits.reaches(1.0)).collect();
        assert_eq!((reads(&monitor), reach), (vec![18, 0, 10], vec![9, 0, 5]));
        monitor.end_interval();
        assert_eq!(reads(&monitor), [9, 0, 5]);
        monitor.extend(0, [(0, false); 23]);
        monitor.end_intervals(3);
        assert_eq!(reads(&monitor), [4, 0, 1], "an eighth, rounded");
        monitor.end_intervals(u64::MAX);
        assert_eq!(reads(&monitor), [0; 3]);
    }
}
