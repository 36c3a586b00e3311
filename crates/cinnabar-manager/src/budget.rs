//! The budget of SSD writes: what is written is looked at every second. A price of each block written works
//! through plans; behind it, while the budget's account is empty, nothing goes to flash.

use super::report::BudgetReport;
use cinnabar_policy::endurance::Endurance;

/// Between two looks.
const LOOK_US: u64 = 1_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Budget {
    endurance: Endurance,
    looks_at_us: u64,
    /// As the data plane was last told: blocks go to flash.
    pub(super) admits: bool,
}

impl Budget {
    /// So many bytes a day, from a moment of the daemon's clock on.
    pub(super) fn new(bytes_a_day: u64, now_us: u64) -> Self {
        let endurance = Endurance::new(bytes_a_day, ns(now_us));
        Self { endurance, looks_at_us: now_us, admits: true }
    }

    /// So many bytes a day from now on; what was written before still counts.
    pub(super) fn set(&mut self, bytes_a_day: u64) {
        self.endurance.set_budget(bytes_a_day);
    }

    /// Whether it is time to look.
    pub(super) const fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.looks_at_us
    }

    /// So many bytes have been written in all; gives what the data plane is to be told, if it is news.
    pub(super) fn look(&mut self, now_us: u64, written: u64) -> Option<bool> {
        self.looks_at_us = now_us.saturating_add(LOOK_US);
        let admits = self.endurance.wrote_in_all(ns(now_us), written);
        (admits != self.admits).then_some(admits)
    }

    /// An interval has ended.
    pub(super) fn end_interval(&mut self, now_us: u64) {
        self.endurance.end_interval(ns(now_us));
    }

    /// What a block written costs for it, in microseconds.
    pub(super) const fn price_us(&self) -> f64 {
        self.endurance.price_us()
    }

    /// What is said of it beside a plan.
    pub(super) fn report(&self) -> BudgetReport {
        let counts = self.endurance.counts();
        BudgetReport {
            bytes_per_day: self.endurance.bytes_a_day(),
            price_us: self.endurance.price_us(),
            throttled: !self.admits,
            closures: counts.closures,
            throttled_seconds: counts.closed_ns as f64 / 1e9,
            overdrawn_bytes: counts.overdrawn_bytes,
        }
    }
}

const fn ns(us: u64) -> u64 {
    us.saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 86_400 << 20;

    /// A device that takes 3 MiB a second while it is let, and one MiB a second is the budget.
    #[test]
    fn what_is_written_in_a_day_is_the_budget() {
        let mut budget = Budget::new(BUDGET, 0);
        let (mut written, mut told) = (7 << 30, 0);
        assert_eq!(budget.look(0, written), None, "what was written before does not count");
        let first = written;
        for second in 1..=86_400_u64 {
            written += if budget.admits { 3 << 20 } else { 4096 };
            assert!(budget.is_due(second * 1_000_000));
            if let Some(admits) = budget.look(second * 1_000_000, written) {
                (budget.admits, told) = (admits, told + 1);
            }
        }
        let part = (written - first) as f64 / BUDGET as f64;
        assert!((part - 1.0).abs() <= 0.05, "{part} of the budget");
        let report = budget.report();
        assert!(report.closures > 10 && report.throttled_seconds > 50_000.0, "{report:?}");
        assert!(told < 2000, "it does not flutter: {told} changes");
    }

    #[test]
    fn it_looks_once_a_second_and_asks_again_until_it_is_heard() {
        let mut budget = Budget::new(BUDGET, 5_000_000);
        assert!(budget.is_due(5_000_000));
        assert_eq!(budget.look(5_000_000, 0), None);
        assert!(!budget.is_due(5_999_999) && budget.is_due(6_000_000));
        assert_eq!(budget.look(6_000_000, 1 << 40), Some(false));
        assert_eq!(budget.look(7_000_000, 1 << 40), Some(false), "the data plane has not heard it");
        budget.admits = false;
        assert_eq!(budget.look(8_000_000, 1 << 40), None);
    }
}
