//! How long media take, and how often they fail.

use crate::rng::Rng;
use cinnabar_engine::IoError;
use std::ops::Range;

/// A distribution of latencies: a base, a spread, and stragglers that overtake nothing.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    base_ns: u64,
    spread_ns: u64,
    straggler_chance: f64,
    straggler_ns: u64,
}

impl Latency {
    /// A medium about as quick as the range (ns) says.
    pub fn draw(rng: &mut Rng, base_ns: Range<u64>) -> Self {
        let base_ns = rng.within(base_ns);
        Self {
            base_ns,
            spread_ns: base_ns * rng.pick(&[0, 1, 10]),
            straggler_chance: rng.pick(&[0.0, 0.01, 0.1]),
            straggler_ns: base_ns * rng.within(20..200),
        }
    }

    /// The latency of one I/O, in ns; at least 1.
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        // Cubed: most are near the base, some far from it.
        let thousandths = rng.below(1000).pow(3) / 1_000_000;
        let spread = self.spread_ns * thousandths / 1000;
        let straggles = rng.chance(self.straggler_chance);
        let straggler = if straggles { rng.below(self.straggler_ns + 1) } else { 0 };
        (self.base_ns + spread + straggler).max(1)
    }
}

/// Probabilities of errors.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Of a backend I/O.
    backend: f64,
    /// Of a cache device I/O.
    cache: f64,
}

impl Faults {
    /// How often the media fail, if they do.
    pub fn draw(rng: &mut Rng, backend: bool, cache: bool) -> Self {
        let mut rate = |on: bool| if on { rng.pick(&[0.003, 0.03, 0.2]) } else { 0.0 };
        Self { backend: rate(backend), cache: rate(cache) }
    }

    /// Does this I/O fail, and how?
    pub fn sample(&self, rng: &mut Rng, on_cache: bool) -> Option<IoError> {
        let rate = if on_cache { self.cache } else { self.backend };
        let errors = [IoError::Io, IoError::Io, IoError::NoSpace, IoError::TimedOut];
        rng.chance(rate).then(|| rng.pick(&errors))
    }
}
