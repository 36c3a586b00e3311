//! Other settings while it plans: what the configuration says now, of keys that can change so.

use super::budget::Budget;
use super::thread::Manager;
use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::{CommandError, Message};

impl Manager {
    /// Takes these keys of `[manager]`. They count from the next plan on; pins stay.
    pub(super) fn configure(
        &mut self,
        new: &ManagerConfig,
        keys: &[&'static str],
    ) -> Result<(), CommandError> {
        if keys.contains(&"ssd_budget") {
            self.change_budget(new.ssd_bytes_a_day)?;
        }
        if keys.contains(&"apply") && !new.apply {
            self.let_all_in()?;
        }
        take(&mut self.config, new, keys);
        Ok(())
    }

    /// Without a budget everything may go to flash again, which the data plane has to know before the
    /// one that holds it back is forgotten.
    fn change_budget(&mut self, bytes_a_day: Option<u64>) -> Result<(), CommandError> {
        let now_us = self.watch.now_us();
        match (&mut self.budget, bytes_a_day) {
            (Some(budget), Some(bytes)) => budget.set(bytes),
            (budget @ None, Some(bytes)) => *budget = Some(Budget::new(bytes, now_us)),
            (Some(_), None) => {
                self.let_all_in()?;
                self.budget = None;
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// A budget that is held no more does not go on to hold back.
    fn let_all_in(&mut self) -> Result<(), CommandError> {
        if self.budget.as_ref().is_some_and(|budget| !budget.admits) {
            self.ask(|answer| Message::AdoptAdmission { admits: true, answer })?;
        }
        if let Some(budget) = &mut self.budget {
            budget.admits = true;
        }
        Ok(())
    }
}

/// What `keys` say in `new`, and nothing else.
fn take(config: &mut ManagerConfig, new: &ManagerConfig, keys: &[&'static str]) {
    let (rules, other) = (&mut config.rules, &new.rules);
    for key in keys {
        match *key {
            "allocator" => rules.allocator = other.allocator,
            "apply" => config.apply = new.apply,
            "step_percent" => rules.steadiness.step_max = other.steadiness.step_max,
            "prices" => config.measured = new.measured,
            "ssd_read_us" => rules.prices.ssd_read_us = other.prices.ssd_read_us,
            "ssd_write_us" => {
                rules.prices.ssd_write_us = other.prices.ssd_write_us;
                rules.prices.lambda_us = other.prices.lambda_us;
            }
            "backend_read_us" => rules.prices.backend_read_us = other.prices.backend_read_us,
            "backend_write_us" => rules.prices.backend_write_us = other.prices.backend_write_us,
            "omega_percent" => rules.prices.omega = other.prices.omega,
            "ssd_budget" => config.ssd_bytes_a_day = new.ssd_bytes_a_day,
            // It needs a restart.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PlanReport;
    use crate::thread::PlanListener;
    use cinnabar_config::diff::{LIVE_MANAGER_KEYS, manager_keys};
    use cinnabar_config::messages::samplers::samplers;
    use cinnabar_config::messages::{Waker, channel};
    use cinnabar_policy::sizing::Allocator;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[derive(Debug)]
    struct Nobody;

    impl Waker for Nobody {
        fn wake(&self) {}
    }

    impl PlanListener for Nobody {
        fn planned(&self, _: &PlanReport) {}
    }

    /// What is no longer carried out holds nothing back either.
    #[test]
    fn a_budget_that_is_held_no_more_lets_everything_in() {
        for key in ["apply", "ssd_budget"] {
            let (commands, queue) = channel(Arc::new(Nobody));
            let data = std::thread::spawn(move || {
                let mut told = Vec::new();
                for message in &queue {
                    if let Message::AdoptAdmission { admits, answer } = message {
                        told.push(admits);
                        let _ = answer.send(Ok(()));
                    }
                }
                told
            });
            let config = ManagerConfig { ssd_bytes_a_day: Some(1 << 40), ..Default::default() };
            let streams = samplers(1, 1000, 1, Instant::now());
            let mut manager = Manager::new(config, streams, commands, Arc::new(Nobody));
            manager.budget.as_mut().expect("it has one").admits = false;
            let new = ManagerConfig { apply: false, ssd_bytes_a_day: None, ..config };
            manager.configure(&new, &[key]).expect("the data plane answers");
            assert!(manager.budget.as_ref().is_none_or(|budget| budget.admits), "{key}");
            manager.configure(&new, &[key]).expect("there is nothing to tell");
            drop(manager);
            assert_eq!(data.join().expect("it does not panic"), [true], "{key}");
        }
    }

    #[test]
    fn live_keys_are_taken_and_others_stay() {
        let old = ManagerConfig::default();
        let mut new = old;
        new.every = Duration::from_secs(7);
        new.monitor.decay = 0.25;
        new.rules.allocator = Allocator::Equal;
        new.rules.steadiness.step_max = 0.125;
        let prices = &mut new.rules.prices;
        for price in [
            &mut prices.ssd_read_us,
            &mut prices.ssd_write_us,
            &mut prices.backend_read_us,
            &mut prices.backend_write_us,
            &mut prices.omega,
            &mut prices.lambda_us,
        ] {
            *price += 1.0;
        }
        (new.measured, new.apply, new.ssd_bytes_a_day) = (false, false, Some(1 << 40));
        let mut taken = old;
        take(&mut taken, &new, &LIVE_MANAGER_KEYS);
        assert_eq!(manager_keys(&taken, &new), ["interval_s", "decay_percent"]);
        assert!((taken.rules.prices.lambda_us - new.rules.prices.lambda_us).abs() < 1e-9);
        for key in LIVE_MANAGER_KEYS {
            let mut taken = old;
            take(&mut taken, &new, &[key]);
            assert_eq!(manager_keys(&old, &taken), [key]);
        }
    }
}
