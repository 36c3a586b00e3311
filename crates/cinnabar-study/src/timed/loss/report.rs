//! What is found of a loss.

use super::super::latency::Latency;

/// Reads of the host that lost its cache, after so many of which it is asked whether it is warm again.
pub const WINDOW_READS: u32 = 1000;
/// It is warm again when of such a window it finds so much of the share that it found before the loss.
pub const WARM_SHARE: f64 = 0.95;

/// A part of the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Until the loss.
    Before,
    /// From there until the host that lost its cache is warm again.
    During,
    /// From there to the end.
    After,
}

impl Phase {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::Before, Self::During, Self::After];
}

/// What a host saw in a phase. An operation belongs to the phase in which it was asked for.
#[derive(Clone, Debug, Default)]
pub struct HostPhase {
    /// Reads, each a whole operation.
    pub reads: Latency,
    /// Writes, each a whole operation.
    pub writes: Latency,
    /// Blocks read that were in RAM or flash.
    pub hits: u64,
    /// Blocks read that were in neither.
    pub misses: u64,
}

impl HostPhase {
    /// Share of blocks read, 0 to 1, that the host had; 0 without any.
    pub fn hit_share(&self) -> f64 {
        let reads = self.hits + self.misses;
        if reads == 0 { 0.0 } else { self.hits as f64 / reads as f64 }
    }

    fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

/// A loss, and each host before, during and after it.
#[derive(Clone, Debug)]
pub struct LossReport {
    /// The host that lost its cache.
    pub host: u32,
    /// How long the phases lasted, in nanoseconds; the first one ended with the loss.
    pub phases_ns: [u64; 3],
    /// Was the host warm again before the end? Then the warm-up lasted as long as the second phase.
    pub warm: bool,
    /// The phases of each host.
    pub hosts: Vec<[HostPhase; 3]>,
}

impl LossReport {
    /// How long the warm-up lasted, in nanoseconds, to a window of [`WINDOW_READS`]; `None` if the host
    /// was not warm again by the end.
    pub fn warm_up_ns(&self) -> Option<u64> {
        self.warm.then_some(self.phases_ns[Phase::During as usize])
    }

    /// What the host that lost its cache saw in a phase.
    pub fn loser(&self, phase: Phase) -> &HostPhase {
        &self.hosts[self.host as usize][phase as usize]
    }

    /// What all others saw together.
    pub fn others(&self, phase: Phase) -> HostPhase {
        let mut sum = HostPhase::default();
        for (number, host) in self.hosts.iter().enumerate() {
            if number != self.host as usize {
                sum.add(&host[phase as usize]);
            }
        }
        sum
    }
}
