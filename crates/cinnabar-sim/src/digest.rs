//! State on its way into a digest: words, and ticks, of which only the order counts.

use crate::stamp::{Stamp, mix};

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Sink {
    /// A value, and whether it is a tick.
    values: Vec<(u64, bool)>,
}

impl Sink {
    /// A value that counts as it is.
    pub fn word(&mut self, word: u64) {
        self.values.push((word, false));
    }

    /// A moment of the oracle's time. Two states that differ in their ticks, but not in which of them
    /// comes first, are one.
    pub fn tick(&mut self, tick: u64) {
        self.values.push((tick, tick != u64::MAX));
    }

    /// How many, and each.
    pub fn stamps(&mut self, stamps: &[Stamp]) {
        self.word(stamps.len() as u64);
        for stamp in stamps {
            self.word(stamp.bits());
        }
    }

    /// The digest: of values as they are, and of ticks by their rank.
    ///
    /// # Panics
    /// Never: each tick is among those that are ranked.
    pub fn digest(self) -> u64 {
        let mut ticks: Vec<u64> =
            self.values.iter().filter(|(_, tick)| *tick).map(|(value, _)| *value).collect();
        ticks.sort_unstable();
        ticks.dedup();
        self.values.iter().fold(0, |hash, &(value, tick)| {
            let rank = || ticks.binary_search(&value).expect("it is among them") as u64;
            let value = if tick { rank() } else { value };
            mix(hash ^ value).wrapping_add(u64::from(tick))
        })
    }
}

/// A hasher for what says itself as bytes.
#[derive(Debug, Default)]
pub struct Mixer(u64);

impl std::hash::Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 = mix(self.0 ^ u64::from_le_bytes(word)).wrapping_add(part.len() as u64);
        }
    }
}
