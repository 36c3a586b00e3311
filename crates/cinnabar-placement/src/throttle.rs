//! How much is copied a second: a bucket that may go into debt for one copy.

const NS: u128 = 1_000_000_000;

/// Lets moves begin at a rate in bytes a second, on average.
#[derive(Clone, Debug)]
pub struct Throttle {
    bytes_per_s: u64,
    /// Bytes that may be copied at once after a pause.
    burst: u64,
    /// Bytes in the bucket; below zero after a copy that was larger.
    level: i128,
    /// Nanoseconds times rate that have not made a byte yet.
    rest: u128,
    /// Latest time that was seen.
    now_ns: u64,
}

impl Throttle {
    /// A rate, and what is let through at once after a pause. A rate of 0 lets nothing through.
    pub fn new(bytes_per_s: u64, burst: u64) -> Self {
        Self { bytes_per_s, burst, level: i128::from(burst), rest: 0, now_ns: 0 }
    }

    /// Another rate, from now on.
    pub fn set_rate(&mut self, bytes_per_s: u64) {
        self.bytes_per_s = bytes_per_s;
    }

    /// Whether a copy may begin. A clock that steps back fills nothing.
    pub fn may_begin(&mut self, now_ns: u64) -> bool {
        let passed = u128::from(now_ns.saturating_sub(self.now_ns));
        self.now_ns = self.now_ns.max(now_ns);
        let grown = passed * u128::from(self.bytes_per_s) + self.rest;
        self.level += i128::try_from(grown / NS).unwrap_or(i128::from(u64::MAX));
        self.rest = grown % NS;
        if self.level >= i128::from(self.burst) {
            (self.level, self.rest) = (i128::from(self.burst), 0);
        }
        self.bytes_per_s > 0 && self.level > 0
    }

    /// Notes a copy that begins.
    pub fn charge(&mut self, bytes: u64) {
        self.level -= i128::from(bytes);
    }

    /// Notes that a copy which began has copied nothing.
    pub fn refund(&mut self, bytes: u64) {
        self.level += i128::from(bytes);
    }

    /// When the next copy may begin, in the clock of [`Throttle::may_begin`]; `None`: not at this rate.
    pub fn ready_ns(&self) -> Option<u64> {
        if self.bytes_per_s == 0 {
            return None;
        }
        let missing = u128::try_from(1 - self.level).unwrap_or(0) * NS;
        let wait = missing.saturating_sub(self.rest).div_ceil(u128::from(self.bytes_per_s));
        Some(self.now_ns.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_keep_to_the_rate() {
        // 10 MiB/s, copies of 4 MiB, looked at each ms for 100 s.
        let mut throttle = Throttle::new(10 << 20, 4 << 20);
        let mut copied = 0u64;
        for ms in 0..100_000u64 {
            while throttle.may_begin(ms * 1_000_000) {
                throttle.charge(4 << 20);
                copied += 4 << 20;
            }
        }
        let expected = 1000 << 20;
        assert!((expected..=expected + (8 << 20)).contains(&copied), "{copied}");
    }

    #[test]
    fn it_says_when_the_next_one_may_begin() {
        let mut throttle = Throttle::new(1 << 20, 1);
        assert!(throttle.may_begin(0));
        throttle.charge(1 << 20);
        let at = throttle.ready_ns().expect("a rate");
        assert!(!throttle.may_begin(at - 2) && throttle.may_begin(at), "{at}");
        throttle.set_rate(0);
        assert!(!throttle.may_begin(at * 2) && throttle.ready_ns().is_none());
    }
}
