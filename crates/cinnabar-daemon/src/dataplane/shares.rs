//! Shares of the cache: in blocks, and whether they can all be kept.
//!
//! Called when a volume is installed or changed, and when another device has another capacity.

use super::plane::Plane;
use crate::messages::{StartError, StartErrorKind, Subject, VolumeConfig};

/// The minimums of all volumes sum to at most this share of the capacity, in percent.
const SHARES_MIN_PERCENT: u64 = 80;
impl Plane {
    /// Smallest and largest share in blocks.
    pub(super) fn shares(&self, config: &VolumeConfig) -> (u64, u64) {
        let capacity = self.capacity_blocks();
        (config.share_min.blocks(capacity), config.share_max.blocks(capacity))
    }

    /// Refuses minimums that can't be kept. `except` is the volume whose settings these are to be.
    pub(super) fn check_shares(
        &self,
        config: &VolumeConfig,
        except: Option<usize>,
    ) -> Result<(), StartError> {
        let capacity = self.capacity_blocks();
        let (min, max) = self.shares(config);
        let others = self.volumes.iter().filter(|(key, _)| Some(*key) != except);
        let sum: u64 = others.map(|(_, volume)| self.shares(&volume.config).0).sum::<u64>() + min;
        let problem = if min > max {
            format!("share_min is more than share_max ({min} and {max} blocks)")
        } else if sum > capacity * SHARES_MIN_PERCENT / 100 {
            format!(
                "the minimums of all volumes sum to {sum} blocks, more than {SHARES_MIN_PERCENT} % \
                 of the cache's {capacity}"
            )
        } else {
            return Ok(());
        };
        let subject = Subject::Volume(config.name.clone());
        let hint = "lower a share_min";
        Err(StartError::new(StartErrorKind::Settings, subject, problem, hint))
    }
}
