//! What the operator says of a client, and of a group.

use crate::qos::limits::{DEPTH_MAX, IOPS_MAX, WAITING_MAX, WEIGHT_MAX};
use crate::qos::mutant::Mutants;
use thiserror::Error;

/// What a client gets. Rates are in I/Os a second, in the measure of [`Cost`](crate::qos::Cost).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What it gets whatever the others ask; 0: nothing is reserved.
    pub reservation_iops: u32,
    /// What it gets at most, even if the back end is idle.
    pub limit_iops: Option<u32>,
    /// Its part of what is left, relative to the weights of the others; 1 to 10,000.
    pub weight: u32,
}

impl Default for Settings {
    /// No reservation, no limit, the weight that all have.
    fn default() -> Self {
        Self { reservation_iops: 0, limit_iops: None, weight: 100 }
    }
}

impl Settings {
    /// Whether a scheduler takes them.
    ///
    /// # Errors
    /// When a value is out of its range, or the limit is below the reservation.
    pub fn check(&self) -> Result<(), SettingsError> {
        let limit = self.limit_iops.unwrap_or(IOPS_MAX);
        if self.weight == 0 || self.weight > WEIGHT_MAX {
            return Err(SettingsError::Weight(self.weight));
        }
        if limit == 0 {
            return Err(SettingsError::LimitOfZero);
        }
        for iops in [self.reservation_iops, limit] {
            if iops > IOPS_MAX {
                return Err(SettingsError::Iops(iops));
            }
        }
        if limit < self.reservation_iops {
            let reservation = self.reservation_iops;
            return Err(SettingsError::LimitBelowReservation { limit, reservation });
        }
        Ok(())
    }
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// Both can't hold.
    #[error("the limit of {limit} I/Os a second is below the reservation of {reservation}")]
    LimitBelowReservation {
        /// I/Os a second.
        limit: u32,
        /// I/Os a second.
        reservation: u32,
    },
    /// A volume under it would never be served.
    #[error("a limit of 0 I/Os a second would stop the volume")]
    LimitOfZero,
    /// Above [`IOPS_MAX`].
    #[error("{0} I/Os a second are more than {IOPS_MAX}")]
    Iops(u32),
    /// Out of its range.
    #[error("a weight of {0}; weights are from 1 to {WEIGHT_MAX}")]
    Weight(u32),
}

/// What a group is built with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Requests that the back end gets at the same time. Without a bound the back end's own queue would
    /// decide, and there would be nothing to schedule.
    pub depth: usize,
    /// Waiting requests of each client; what is beyond is refused and stays with the caller.
    pub waiting_max: usize,
    /// Deliberate bugs; none but in tests.
    pub mutants: Mutants,
}

impl Default for Config {
    /// A depth of 32, 256 waiting requests of each client.
    fn default() -> Self {
        Self { depth: 32, waiting_max: 256, mutants: Mutants::default() }
    }
}

impl Config {
    /// Whether a group can be built with it.
    ///
    /// # Errors
    /// When depth or queue are zero or beyond their maxima.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return Err(ConfigError::Depth(self.depth));
        }
        if !(1..=WAITING_MAX).contains(&self.waiting_max) {
            return Err(ConfigError::Waiting(self.waiting_max));
        }
        Ok(())
    }
}

/// Why a group is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Out of its range.
    #[error("a depth of {0}; a group has 1 to {DEPTH_MAX} requests under way")]
    Depth(usize),
    /// Out of its range.
    #[error("a queue of {0}; a client has 1 to {WAITING_MAX} waiting requests")]
    Waiting(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_hold_is_refused() {
        let base = Settings::default();
        assert_eq!(base.check(), Ok(()));
        assert_eq!(
            Settings { reservation_iops: 200, limit_iops: Some(100), ..base }.check(),
            Err(SettingsError::LimitBelowReservation { limit: 100, reservation: 200 })
        );
        assert_eq!(
            Settings { reservation_iops: 100, limit_iops: Some(100), ..base }.check(),
            Ok(())
        );
        assert_eq!(
            Settings { limit_iops: Some(0), ..base }.check(),
            Err(SettingsError::LimitOfZero)
        );
        assert_eq!(Settings { weight: 0, ..base }.check(), Err(SettingsError::Weight(0)));
        assert_eq!(Settings { weight: 10_001, ..base }.check(), Err(SettingsError::Weight(10_001)));
        assert!(Settings { reservation_iops: IOPS_MAX + 1, ..base }.check().is_err());
        assert!(Settings { limit_iops: Some(u32::MAX), ..base }.check().is_err());
        assert!(Config { depth: 0, ..Config::default() }.check().is_err());
        assert!(Config { waiting_max: WAITING_MAX + 1, ..Config::default() }.check().is_err());
    }
}
