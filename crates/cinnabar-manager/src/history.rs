//! The plans of late: as many as fit into a bounded number of rows.

use super::report::PlanReport;
use std::collections::VecDeque;

/// Plans at most.
const PLANS_MAX: usize = 1024;
/// Volumes of all of them at most, about half a KiB each.
const ROWS_MAX: usize = 16 << 10;

/// See the module.
#[derive(Debug, Default)]
pub struct History {
    plans: VecDeque<PlanReport>,
    rows: usize,
}

impl History {
    /// One more; the oldest ones go for it.
    pub fn push(&mut self, plan: PlanReport) {
        self.rows += plan.volumes.len();
        self.plans.push_back(plan);
        while self.plans.len() > 1 && (self.plans.len() > PLANS_MAX || self.rows > ROWS_MAX) {
            let gone = self.plans.pop_front();
            self.rows -= gone.map_or(0, |plan| plan.volumes.len());
        }
    }

    /// The newest one.
    pub fn last(&self) -> Option<&PlanReport> {
        self.plans.back()
    }

    /// The one that was in force at a time, in milliseconds since 1970: the newest that was made by then.
    pub fn at(&self, ms: u64) -> Option<&PlanReport> {
        self.plans.iter().rev().find(|plan| plan.made_ms <= ms)
    }

    /// The newest ones, the newest last.
    pub fn newest(&self, count: usize) -> impl Iterator<Item = &PlanReport> {
        self.plans.range(self.plans.len().saturating_sub(count)..)
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::ShareReport;
    use super::*;

    #[test]
    fn old_plans_go_and_the_one_of_a_time_is_found() {
        let mut history = History::default();
        for made_ms in 0..100 {
            let volumes = vec![ShareReport::default(); 1000];
            history.push(PlanReport { made_ms, volumes, ..PlanReport::default() });
        }
        let made = |plan: Option<&PlanReport>| plan.map(|plan| plan.made_ms);
        assert_eq!((made(history.last()), made(history.at(95))), (Some(99), Some(95)));
        assert_eq!(made(history.at(70)), None, "it has gone");
        assert_eq!(history.newest(3).count(), 3);
        assert_eq!(history.newest(usize::MAX).count(), ROWS_MAX / 1000);
    }
}
