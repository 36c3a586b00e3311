//! Other settings while it plans: what the configuration says now, of keys that can change so.

use super::budget::Budget;
use super::thread::Manager;
use cinnabar_config::ManagerConfig;
use cinnabar_messages::{CommandError, Message};

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
            (Some(budget), None) => {
                if !budget.admits {
                    self.ask(|answer| Message::AdoptAdmission { admits: true, answer })?;
                }
                self.budget = None;
            }
            (None, None) => {}
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
    use cinnabar_config::diff::{LIVE_MANAGER_KEYS, manager_keys};
    use cinnabar_policy::sizing::Allocator;
    use std::time::Duration;

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
