//! When requests come: a Poisson stream, in microseconds of the trace.

use super::chance::Chance;
use super::error::{Error, check_number};

/// Most requests a second.
pub(super) const RATE_MAX: f64 = 10_000_000.0;
/// Fewest: one in eleven days.
pub(super) const RATE_MIN: f64 = 1e-6;

/// A clock that goes on by exponential gaps.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    now_us: f64,
}

impl Clock {
    pub(super) const fn new() -> Self {
        Self { now_us: 0.0 }
    }

    /// The time of the next request, in microseconds, at so many a second on average.
    #[expect(clippy::cast_sign_loss, reason = "time only grows")]
    pub(super) fn next_us(&mut self, per_second: f64, chance: &mut Chance) -> u64 {
        self.now_us += chance.exponential(1e6 / per_second);
        self.now_us as u64
    }
}

/// A rate within bounds.
pub(super) fn check_rate(per_second: f64) -> Result<(), Error> {
    check_number("a rate in requests a second", per_second, RATE_MIN, RATE_MAX)
}
