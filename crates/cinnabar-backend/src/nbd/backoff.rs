//! Pauses between attempts to reach a server: longer each time, and never the same for two clients.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first pause, at most.
const FIRST: Duration = Duration::from_millis(40);
/// The longest, at most.
const LONGEST: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
    random: u64,
}

impl Backoff {
    /// For requests that are given up after a time, if they are: there are some attempts before.
    pub(super) fn new(give_up: Option<Duration>) -> Self {
        let longest = give_up.map_or(LONGEST, |give_up| (give_up / 8).clamp(FIRST, LONGEST));
        Self { next: FIRST, longest, random: RandomState::new().hash_one(0) | 1 }
    }

    /// The server answers: the next pause is a short one again.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }

    /// How long to wait before the next attempt: between half of what it may be and all of it, so
    /// that the many volumes of one server don't come back all at once.
    pub(super) fn pause(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = (self.random >> 40) as f64 / (1_u64 << 24) as f64;
        let pause = self.next.mul_f64(0.5 + share / 2.0);
        self.next = (self.next * 2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_again() {
        let mut backoff = Backoff::new(None);
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.pause()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST, "{pauses:?}");
        assert!(pauses[10..].iter().all(|pause| (LONGEST / 2..=LONGEST).contains(pause)));
        let total: Duration = pauses.iter().sum();
        assert!(total > Duration::from_secs(25), "a busy loop: {total:?}");
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }

    #[test]
    fn two_clients_differ() {
        let pauses = || -> Vec<Duration> {
            let mut backoff = Backoff::new(Some(Duration::from_secs(1)));
            (0..6).map(|_| backoff.pause()).collect()
        };
        let (one, other) = (pauses(), pauses());
        assert_ne!(one, other);
        assert!(one.iter().all(|pause| *pause <= Duration::from_millis(125)), "{one:?}");
    }
}
