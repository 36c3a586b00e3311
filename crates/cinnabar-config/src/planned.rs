//! How shares of the cache are planned, as the operator wants it.

use cinnabar_policy::monitor::{self, Sampling};
use cinnabar_policy::planning::{Every, Rules};
use cinnabar_policy::sizing::{Allocator, Prices, Steadiness};
use std::num::NonZeroU32;
use std::time::Duration;

/// Defaults, as those of `cinnabar-lab analyze`.
const EVERY_S: u64 = 60;
const SAMPLE_BLOCKS: u64 = 8192;
const PRICES: Prices = Prices {
    ssd_read_us: 88.0,
    ssd_write_us: 21.0,
    backend_read_us: 927.0,
    backend_write_us: 141.0,
    omega: 0.0,
    lambda_us: 21.0,
    mu_us: 0.0,
};

/// How shares are planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ManagerConfig {
    /// Length of an interval: a plan is made behind each in which something happened.
    pub every: Duration,
    /// How volumes are looked at.
    pub monitor: monitor::Settings,
    /// How room is divided; of its prices those that are told.
    pub rules: Rules,
    /// Bytes that may be written to the SSD in a day.
    pub ssd_bytes_a_day: Option<u64>,
    /// Latencies are measured, and the told ones count until they are.
    pub measured: bool,
    /// Targets stay as they are if the largest change would be at most this part of the cache.
    pub change_min: f64,
    /// Plans are carried out; otherwise they are only made, for a look at them.
    pub apply: bool,
}

impl Default for ManagerConfig {
    fn default() -> Self {
        let sampling =
            Sampling::Blocks(NonZeroU32::new(SAMPLE_BLOCKS as u32).unwrap_or(NonZeroU32::MIN));
        Self {
            every: Duration::from_secs(EVERY_S),
            monitor: monitor::Settings { sampling, ..monitor::Settings::default() },
            rules: Rules {
                allocator: Allocator::default(),
                prices: PRICES,
                ssd_blocks_per_s: None,
                written_part_max: 0.5,
                intensity: 0.0,
                reach_part: 0.99,
                steadiness: Steadiness::default(),
            },
            ssd_bytes_a_day: None,
            measured: true,
            change_min: 0.01,
            apply: true,
        }
    }
}

impl ManagerConfig {
    /// The length of an interval in microseconds.
    pub fn every_us(&self) -> u64 {
        u64::try_from(self.every.as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Where time is cut.
    pub fn cut(&self) -> Every {
        Every::Time(self.every_us())
    }
}
