//! What volumes do, interval by interval: what every plan is made from.
//!
//! `analyze` feeds it the references of a trace, a live manager what filters let pass, and the counts;
//! both plan from the same [`Volume`]s, so their plans can be compared. A volume has a sample of its
//! own, with its own rate: a small one next to a huge one is measured as well as alone.

use crate::engine_model::EngineModel;
use crate::reuse::{Filter, Sampled, SampledCurves};
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
    /// Larger sizes of cache are not told apart, in blocks.
    size_max: u64,
    volumes: Vec<Sampled>,
    engine: Option<Box<EngineModel>>,
}

impl Monitor {
    /// One that has seen nothing.
    pub const fn new(settings: Settings) -> Self {
        Self { settings, size_max: u64::MAX, volumes: Vec::new(), engine: None }
    }

    /// From now on also simulates what the engine would do with parts of a cache of so many blocks, for
    /// references that come by [`extend`](Self::extend).
    pub fn simulate_engine(&mut self, capacity_blocks: u64) {
        self.engine = Some(Box::new(EngineModel::new(capacity_blocks, self.settings.seed)));
    }

    /// Counts references of a volume, pairs of a key and whether it is a write. A volume appears with
    /// its first call, and all below it.
    ///
    /// # Panics
    /// If the settings' rate is none.
    pub fn extend<I>(&mut self, volume: usize, references: I)
    where
        I: IntoIterator<Item = (u64, bool), IntoIter: Clone>,
    {
        let references = references.into_iter();
        if let Some(engine) = &mut self.engine {
            engine.extend(volume, references.clone());
        }
        self.at(volume).extend(references);
    }

    /// Sizes of cache above so many blocks are not told apart from now on.
    pub fn set_size_max(&mut self, blocks: u64) {
        if self.size_max != blocks {
            self.size_max = blocks;
            self.volumes.iter_mut().for_each(|volume| volume.set_size_max(blocks));
        }
    }

    /// Counts references of a volume, reads and writes; those of its sample come by
    /// [`touch`](Self::touch).
    ///
    /// # Panics
    /// If the settings' rate is none.
    pub fn count(&mut self, volume: usize, reads: u64, writes: u64) {
        self.at(volume).count(reads, writes);
    }

    /// A reference that has passed the volume's [`filter`](Self::filter), of now or of earlier.
    ///
    /// # Panics
    /// If the settings' rate is none.
    pub fn touch(&mut self, volume: usize, key: u64, is_write: bool) {
        self.at(volume).touch(key, is_write);
    }

    /// Which blocks of a volume are in its sample.
    pub fn filter(&self, volume: usize) -> Filter {
        self.volumes.get(volume).map_or_else(|| self.sample().filter(), Sampled::filter)
    }

    /// Forgets what a volume did.
    pub fn forget(&mut self, volume: usize) {
        let sample = self.sample();
        if let Some(known) = self.volumes.get_mut(volume) {
            *known = sample;
        }
        if let Some(engine) = &mut self.engine {
            engine.forget(volume);
        }
    }

    /// About how many bytes of RAM samples and curves take.
    pub fn ram_bytes(&self) -> usize {
        self.volumes.iter().map(Sampled::ram_bytes).sum()
    }

    fn at(&mut self, volume: usize) -> &mut Sampled {
        while self.volumes.len() <= volume {
            let sample = self.sample();
            self.volumes.push(sample);
        }
        &mut self.volumes[volume]
    }

    /// The curves of each volume, earlier intervals included with what they still weigh.
    pub fn curves(&self) -> impl Iterator<Item = SampledCurves> {
        let mut engine = self.engine.iter().flat_map(|engine| engine.curves());
        self.volumes
            .iter()
            .map(move |volume| SampledCurves { engine: engine.next(), ..volume.curves() })
    }

    /// The same with so many more references counted, reads and writes by volume.
    pub fn curves_with(&self, more: &[[u64; 2]]) -> impl Iterator<Item = SampledCurves> {
        let more = more.iter().copied().chain(std::iter::repeat([0; 2]));
        let mut engine = self.engine.iter().flat_map(|engine| engine.curves());
        self.volumes.iter().zip(more).map(move |(volume, more)| SampledCurves {
            engine: engine.next(),
            ..volume.curves_with(more)
        })
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
        if let Some(engine) = &mut self.engine {
            engine.decay(factor);
        }
        factor
    }

    fn sample(&self) -> Sampled {
        let mut sample = match self.settings.sampling {
            Sampling::Blocks(most) => Sampled::fixed_size(most, self.settings.seed),
            Sampling::Rate(rate) => Sampled::fixed_rate(rate, self.settings.seed),
        };
        sample.set_reuses_min(self.settings.reuses_min);
        sample.set_size_max(self.size_max);
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
    fn a_stale_filter_and_counts_give_the_curves_of_all_references() {
        let most = NonZeroU32::new(64).expect("it is not 0");
        let settings = Settings { sampling: Sampling::Blocks(most), ..Settings::default() };
        let (mut whole, mut fed) = (Monitor::new(settings), Monitor::new(settings));
        let mut filter = fed.filter(0);
        for round in 0..6_u64 {
            let keys = (0..3000_u64).map(|n| (n * n * 7 + round) % 1009);
            let accesses: Vec<_> = keys.map(|key| (key, key % 3 == 0)).collect();
            // In portions of any size.
            accesses.chunks(7).for_each(|part| whole.extend(0, part.iter().copied()));
            for (key, is_write) in accesses.iter().filter(|(key, _)| filter.takes(*key)) {
                fed.touch(0, *key, *is_write);
            }
            let writes = accesses.iter().filter(|(_, is_write)| *is_write).count() as u64;
            fed.count(0, 3000 - writes, writes);
            // Every other time it is as it was.
            if round % 2 == 1 {
                filter = fed.filter(0);
            }
            let curves = |monitor: &Monitor| format!("{:?}", monitor.curves().collect::<Vec<_>>());
            assert_eq!(curves(&whole), curves(&fed), "round {round}");
            whole.end_interval();
            fed.end_interval();
        }
        assert!(filter.top < u64::MAX / 4, "few of the blocks passed");
    }

    #[test]
    fn curves_are_as_long_as_the_cache_of_now_needs_them() {
        let settings = Settings { sampling: Sampling::Rate(1.0), ..Settings::default() };
        let mut monitor = Monitor::new(settings);
        let round = || (0..5000_u64).map(|block| (block, block % 2 == 0));
        monitor.extend(0, round());
        monitor.extend(0, round());
        let reach = |monitor: &Monitor| {
            let curves = monitor.curves().next().expect("a volume");
            [curves.hits, curves.read_hits].map(|hits| hits.reaches(1.0))
        };
        assert_eq!(reach(&monitor), [5000; 2], "there is no cache yet");
        let ram_bytes = monitor.ram_bytes();
        monitor.set_size_max(1000);
        assert_eq!(reach(&monitor), [0; 2], "no cache of that size hits");
        assert!(monitor.ram_bytes() < ram_bytes, "and what is beyond takes no room");
        monitor.extend(0, round());
        assert_eq!(reach(&monitor), [0; 2]);
        // A larger device.
        monitor.set_size_max(9000);
        monitor.extend(0, round());
        assert_eq!(reach(&monitor), [5000; 2]);
    }

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
