//! Shares of the cache: in blocks, and whether they can all be kept.
//!
//! Minima and maxima are the operator's, targets the manager's.

use super::plane::DataPlane;
use cinnabar_config::messages::{Share, StartError, StartErrorKind, Subject, VolumeConfig};
use cinnabar_engine::plan::{Plan, VolumePlan};
use std::collections::BTreeMap;

/// The minimums of all volumes sum to at most this share of the capacity, in percent.
const SHARES_MIN_PERCENT: u64 = 80;

/// Smallest and largest share in blocks, of a cache of so many. A maximum of all of it is none,
/// whatever the size. One in bytes that is beyond the capacity stays one: a larger cache may have it bind
/// again, and the volume keeps the group that it has.
fn shares_of(config: &VolumeConfig, capacity: u64) -> (u64, u64) {
    let max = match config.share_max {
        Share::Percent(percent) if percent >= 100.0 => u64::MAX,
        max => max.blocks(capacity),
    };
    (config.share_min.blocks(capacity), max)
}

/// The smallest share in blocks, of a cache of so many, if it is not more than the largest.
fn minimum_of(config: &VolumeConfig, capacity: u64) -> Result<u64, String> {
    match shares_of(config, capacity) {
        (min, max) if min > max => {
            Err(format!("share_min is more than share_max ({min} and {max} blocks)"))
        }
        (min, _) => Ok(min),
    }
}

fn check_sum(sum: u64, capacity: u64) -> Result<(), String> {
    if sum <= capacity * SHARES_MIN_PERCENT / 100 {
        return Ok(());
    }
    Err(format!(
        "the minimums of all volumes sum to {sum} blocks, more than {SHARES_MIN_PERCENT} % of the \
         cache's {capacity}"
    ))
}

impl DataPlane {
    /// Smallest and largest share in blocks.
    pub(super) fn shares(&self, config: &VolumeConfig) -> (u64, u64) {
        shares_of(config, self.capacity_blocks())
    }

    /// Refuses a capacity in blocks in which the shares of all volumes can't be kept, and with which a
    /// start would fail therefore; says why. Those that wait for their backend count, too.
    pub(super) fn check_capacity(&self, capacity: u64) -> Result<(), String> {
        let served = self.volumes.iter().map(|(_, volume)| &volume.config);
        let absent = self.absents.all(self.data_thread.clock.now()).map(|(config, _, _)| config);
        let mut sum = 0;
        for config in served.chain(absent) {
            sum += minimum_of(config, capacity)
                .map_err(|problem| format!("volume {}: {problem}", config.name))?;
        }
        check_sum(sum, capacity)
    }

    /// Targets of volumes, in blocks, take effect together. Those that lose theirs come first: so there
    /// is room for shares of others.
    pub(super) fn adopt_targets(&mut self, targets: &[(String, Option<u64>)]) {
        let keys: BTreeMap<&str, usize> =
            self.volumes.iter().map(|(key, volume)| (volume.config.name.as_str(), key)).collect();
        let of = |(name, target): &(String, Option<u64>)| {
            // One that leaves takes no share from others any more.
            let volume = self.volumes[*keys.get(name.as_str())?].life.serving()?;
            let share_target_blocks = Some(target.unwrap_or(VolumePlan::NO_TARGET));
            Some(VolumePlan { share_target_blocks, ..VolumePlan::unchanged(volume) })
        };
        let (without, with): (Vec<_>, Vec<_>) =
            targets.iter().partition(|(_, target)| target.is_none());
        let volumes = without.into_iter().chain(with).filter_map(of).collect();
        self.shard_set.adopt(&mut self.data_thread, &Plan { volumes, ..Plan::default() });
        self.targets = targets.iter().cloned().collect();
    }

    /// Blocks may go to flash, or not, on every shard.
    pub(super) fn adopt_admission(&mut self, admits: bool) {
        self.cache.throttled = !admits;
        let plan = Plan { admits: Some(admits), ..Plan::default() };
        self.shard_set.adopt(&mut self.data_thread, &plan);
    }

    /// A volume serves, perhaps once more: its target is the last one it was given, until there is another.
    pub(super) fn adopt_last_target(&mut self, key: usize) {
        let volume = &self.volumes[key];
        let target = self.targets.get(&volume.config.name).copied().flatten();
        if let (Some(blocks), Some(id)) = (target, volume.life.serving()) {
            let share_target_blocks = Some(blocks);
            let plan = VolumePlan { share_target_blocks, ..VolumePlan::unchanged(id) };
            self.shard_set
                .adopt(&mut self.data_thread, &Plan { volumes: vec![plan], ..Plan::default() });
        }
    }

    /// Refuses minimums that can't be kept. `except` is the volume whose settings these are to be.
    pub(super) fn check_shares(
        &self,
        config: &VolumeConfig,
        except: Option<usize>,
    ) -> Result<(), StartError> {
        let capacity = self.capacity_blocks();
        let min = minimum_of(config, capacity);
        let others = self.volumes.iter().filter(|(key, _)| Some(*key) != except);
        let sum: u64 = others.map(|(_, volume)| self.shares(&volume.config).0).sum();
        min.and_then(|min| check_sum(sum + min, capacity)).map_err(|problem| {
            let subject = Subject::Volume(config.name.clone());
            StartError::new(StartErrorKind::Settings, subject, problem, "lower a share_min")
        })
    }
}
