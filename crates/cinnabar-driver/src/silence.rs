//! How long something that is waited for has shown no sign: only time that was looked at counts.
//!
//! A process that was stopped for a minute, or a machine that slept, comes back with a minute between
//! two looks at the clock. The threads that do the work were stopped, too, so that minute says nothing
//! of the device. Two rules follow: a gap between two looks counts for [`GAP_NS_MAX`] at most, and
//! silence is over the bound only if it was so at the look before.

use cinnabar_engine::units::Instant;
use std::time::Duration;

/// What a gap between two looks counts for at most, in ns. Callers look several times a second.
pub const GAP_NS_MAX: u64 = 1_000_000_000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    looked_at: Instant,
    ns: u64,
}

impl Silence {
    /// It begins now.
    pub const fn since(now: Instant) -> Self {
        Self { looked_at: now, ns: 0 }
    }

    /// There is no sign yet. True if that was so for at least `bound` at the look before this one.
    pub fn is_over(&mut self, now: Instant, bound: Duration) -> bool {
        let was_over = u128::from(self.ns) >= bound.as_nanos();
        self.ns = self.ns.saturating_add(now.since_ns(self.looked_at).min(GAP_NS_MAX));
        self.looked_at = now;
        was_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    const fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn silence_is_over_a_look_after_its_bound() {
        let mut silence = Silence::since(at(0));
        for ms in (100..=30_000).step_by(100) {
            assert!(!silence.is_over(at(ms), BOUND), "after {ms} ms");
        }
        assert!(silence.is_over(at(30_100), BOUND));
    }

    #[test]
    fn a_gap_between_two_looks_is_not_silence() {
        let mut silence = Silence::since(at(0));
        assert!(!silence.is_over(at(29_500), BOUND), "it may have been stopped all the time");
        // Half a second before the bound, the process is stopped for an hour.
        let mut silence = Silence::since(at(0));
        for ms in (100..=29_500).step_by(100) {
            assert!(!silence.is_over(at(ms), BOUND), "after {ms} ms");
        }
        assert!(!silence.is_over(at(3_600_000), BOUND), "the first look after it");
        assert!(silence.is_over(at(3_600_100), BOUND), "and still nothing");
    }

    #[test]
    fn rare_looks_find_silence_in_the_end() {
        let mut silence = Silence::since(at(0));
        assert!((1..=32).any(|look| silence.is_over(at(look * 60_000), BOUND)));
    }
}
