//! A budget of SSD writes: the price that holds it, and a throttle behind the price.
//!
//! Once an interval the controller hears how much was written, and gives the price of a block written for
//! the next plan: above the budget it rises, below it falls, by a bounded factor each time. A price works
//! through plans, so it is late by an interval and blind to what a plan can't foresee. Behind it stands an
//! account: the budget flows in evenly, writes are taken from it, and it holds an hour's worth at most.
//! While it is empty nothing is admitted. That is counted, because a budget that is held by the throttle is
//! a price that is too low.
//!
//! Pure: time and counts come in, in nanoseconds and bytes.

/// Nanoseconds of a day.
const DAY_NS: u128 = 86_400_000_000_000;
/// What the account holds at most, as a part of a day: an hour.
const BURST_PARTS: u64 = 24;
/// The most that a price rises or falls at a time, as a factor.
const FACTOR_MAX: f64 = 2.0;
/// Below this part of the budget the price falls; in between it stays, so that plans do too.
const EASE_BELOW: f64 = 0.9;
/// The price that a rise begins with, in microseconds.
const PRICE_START_US: f64 = 1.0;
/// The largest price, in microseconds: a back-end read of a second.
const PRICE_MAX_US: f64 = 1e6;
/// Once closed, admission opens again with this part of what the account can hold: it does not flutter.
const REOPEN_PARTS: i128 = 16;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Endurance {
    bytes_a_day: u64,
    price_us: f64,
    /// Bytes that may be written now, times the nanoseconds of a day, so that nothing is lost by rounding.
    account: i128,
    since_ns: u64,
    interval_ns: u64,
    written_in_interval: u64,
    is_closed: bool,
    /// A counter of all bytes written, at the last call that had one.
    counter: Option<u64>,
    counts: Counts,
}

/// What the throttle had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that admission was closed.
    pub closures: u64,
    /// How long it was closed, in nanoseconds.
    pub closed_ns: u64,
    /// Bytes written beyond the account: what was under way when it was closed.
    pub overdrawn_bytes: u64,
}

impl Endurance {
    /// A budget, from a moment on. The account begins full.
    pub fn new(bytes_a_day: u64, now_ns: u64) -> Self {
        let mut found = Self {
            bytes_a_day,
            price_us: 0.0,
            account: 0,
            since_ns: now_ns,
            interval_ns: now_ns,
            written_in_interval: 0,
            is_closed: false,
            counter: None,
            counts: Counts::default(),
        };
        found.account = found.account_max();
        found
    }

    /// The SSD was written to since the last call. Gives whether anything may be admitted from now on.
    pub fn wrote(&mut self, now_ns: u64, bytes: u64) -> bool {
        let passed = now_ns.saturating_sub(self.since_ns);
        self.since_ns = self.since_ns.max(now_ns);
        if self.is_closed {
            self.counts.closed_ns += passed;
        }
        let flows_in = i128::from(passed).saturating_mul(i128::from(self.bytes_a_day));
        let before = self.account.saturating_add(flows_in).min(self.account_max());
        let takes = i128::from(bytes) * DAY_NS.cast_signed();
        self.account = before - takes;
        self.written_in_interval += bytes;
        if self.account < 0 {
            let beyond = takes.min(-self.account) / DAY_NS.cast_signed();
            self.counts.overdrawn_bytes += u64::try_from(beyond).unwrap_or(u64::MAX);
        }
        if self.account <= 0 && !self.is_closed {
            self.is_closed = true;
            self.counts.closures += 1;
        } else if self.is_closed && self.account >= self.account_max() / REOPEN_PARTS {
            self.is_closed = false;
        }
        !self.is_closed
    }

    /// The same by a counter of all bytes written so far: what it said at first does not count, nor what it
    /// falls by.
    pub fn wrote_in_all(&mut self, now_ns: u64, counter: u64) -> bool {
        let before = self.counter.replace(counter).unwrap_or(counter);
        self.wrote(now_ns, counter.saturating_sub(before))
    }

    /// Ends an interval of planning: the price of a block written for the next one, in microseconds.
    pub fn end_interval(&mut self, now_ns: u64) -> f64 {
        let passed = now_ns.saturating_sub(self.interval_ns);
        if passed == 0 {
            return self.price_us;
        }
        let budget = self.bytes_a_day as f64 * passed as f64 / DAY_NS as f64;
        let used = self.written_in_interval as f64 / budget.max(1.0);
        // What the throttle held back would have been written: the price is too low.
        let used = if self.is_closed { used.max(FACTOR_MAX) } else { used };
        let factor = used.clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
        if used > 1.0 {
            self.price_us = (self.price_us * factor).clamp(PRICE_START_US, PRICE_MAX_US);
        } else if used < EASE_BELOW {
            self.price_us *= factor;
            if self.price_us < PRICE_START_US {
                self.price_us = 0.0;
            }
        }
        (self.interval_ns, self.written_in_interval) = (now_ns, 0);
        self.price_us
    }

    /// Another budget, from now on; price and account stay, as far as it allows.
    pub fn set_budget(&mut self, bytes_a_day: u64) {
        self.bytes_a_day = bytes_a_day;
        self.account = self.account.min(self.account_max());
    }

    /// Bytes that may be written in a day.
    pub const fn bytes_a_day(&self) -> u64 {
        self.bytes_a_day
    }

    /// The price of a block written, in microseconds, added to what the operator set.
    pub const fn price_us(&self) -> f64 {
        self.price_us
    }

    /// Whether nothing is to be admitted.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What the throttle had to do.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    const fn account_max(&self) -> i128 {
        (self.bytes_a_day / BURST_PARTS) as i128 * DAY_NS.cast_signed()
    }
}

#[cfg(test)]
#[allow(clippy::cast_sign_loss, reason = "bytes and hits are not below zero")]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;
    const BUDGET: u64 = 100 << 30;

    /// A host that would write so many times the budget at a price of 0, and less by its price: bytes
    /// written in each of so many days.
    fn days(
        endurance: &mut Endurance,
        times: f64,
        days: u64,
        by_price: impl Fn(f64) -> f64,
    ) -> Vec<u64> {
        let mut found = Vec::new();
        for day in 0..days {
            let mut written = 0;
            for second in 0..86_400 {
                let now = day * DAY + second * SECOND;
                if second % 600 == 0 {
                    endurance.end_interval(now);
                }
                let wants = BUDGET as f64 * times / 86_400.0 * by_price(endurance.price_us());
                let bytes = if endurance.is_closed() { 0 } else { wants as u64 };
                endurance.wrote(now, bytes);
                written += bytes;
            }
            found.push(written);
        }
        found
    }

    fn is_within_5_percent(written: u64) -> bool {
        (written as f64 / BUDGET as f64 - 1.0).abs() <= 0.05
    }

    #[test]
    fn a_load_of_three_budgets_is_held_by_the_price() {
        let mut endurance = Endurance::new(BUDGET, 0);
        let written = days(&mut endurance, 3.0, 4, |price| 1.0 / (1.0 + price / 50.0));
        assert!(written[1..].iter().all(|day| is_within_5_percent(*day)), "{written:?}");
        let closed = endurance.counts().closed_ns;
        assert!(closed < DAY / 20, "the price did it, the throttle was closed for {closed} ns");
        assert!((60.0..140.0).contains(&endurance.price_us()), "{}", endurance.price_us());
    }

    #[test]
    fn a_load_that_heeds_no_price_is_held_by_the_throttle() {
        let mut endurance = Endurance::new(BUDGET, 0);
        let written = days(&mut endurance, 3.0, 3, |_| 1.0);
        assert!(written.iter().all(|day| is_within_5_percent(*day)), "{written:?}");
        let counts = endurance.counts();
        assert!(counts.closures > 10 && counts.closed_ns > DAY, "{counts:?}");
    }

    #[test]
    fn the_price_goes_when_the_load_does() {
        let mut endurance = Endurance::new(BUDGET, 0);
        days(&mut endurance, 3.0, 1, |_| 1.0);
        assert!(endurance.price_us() > 100.0);
        let mut endurance = Endurance { since_ns: 0, interval_ns: 0, ..endurance };
        let written = days(&mut endurance, 0.3, 1, |_| 1.0);
        assert!(endurance.price_us() <= 0.0 && !endurance.is_closed(), "{written:?}");
    }

    #[test]
    fn nothing_overflows_and_a_clock_that_stands_still_changes_nothing() {
        let mut endurance = Endurance::new(u64::MAX, 0);
        assert!(endurance.wrote(u64::MAX, 1 << 40));
        let price = endurance.end_interval(0);
        assert!((endurance.end_interval(0) - price).abs() < f64::EPSILON);
        let mut none = Endurance::new(0, 0);
        assert!(!none.wrote(SECOND, 1), "no budget, no writes");
        assert_eq!(none.counts().overdrawn_bytes, 1);
        none.set_budget(BUDGET);
        assert!(none.wrote(3600 * SECOND, 0), "an hour's worth");
    }
}
