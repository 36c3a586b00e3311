//! From a plan to the data plane: targets of all volumes in one message, within the operator's bounds
//! and pins.

use super::share::Seen;
use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, DataStatus, Share, State, VolumeConfig, VolumeStatus,
};
use cinnabar_config::units::show_share;
use cinnabar_policy::planning::{Actuator, Bounds, Limits, Target, Wanted};
use std::collections::BTreeMap;

/// Without a device shares mean nothing.
const NO_ROOM: &str = "the cache has no room: its device is not in use";

/// See the module.
#[derive(Debug, Default)]
pub struct Actuation {
    actuator: Actuator,
    /// Names of volumes by their places in the actuator.
    places: Vec<Option<String>>,
    /// Sizes by the operator's word.
    pins: BTreeMap<String, Share>,
}

/// What is to be done for a plan.
#[derive(Debug, Default)]
pub struct Step {
    /// By name; `None` in the second place: no share of its own.
    pub targets: Vec<(String, Option<Target>)>,
    /// Why not all of it can be had, or empty.
    pub trouble: String,
}

impl Actuation {
    /// What the operator wants for a volume, pins included, as planners take it.
    pub fn bounds(&self, status: &DataStatus) -> Vec<(String, Bounds)> {
        let capacity = status.cache.counters.capacity_blocks;
        let of = |volume: &VolumeStatus| {
            let (min_blocks, max_blocks) = self.limits_of(volume, capacity);
            let weight = f64::from(volume.config.weight);
            (volume.config.name.clone(), Bounds { min_blocks, max_blocks, weight })
        };
        let mut all: Vec<_> = status.volumes.iter().map(of).collect();
        let floors: u64 = all.iter().map(|(_, bounds)| bounds.min_blocks).sum();
        if floors > capacity {
            // Pins may be more than there is; a planner takes no minima that do not fit.
            for (_, bounds) in &mut all {
                let part = u128::from(bounds.min_blocks) * u128::from(capacity);
                bounds.min_blocks = (part / u128::from(floors)) as u64;
            }
        }
        all
    }

    fn limits_of(&self, volume: &VolumeStatus, capacity: u64) -> (u64, u64) {
        let config = &volume.config;
        match self.pin(config, capacity) {
            Some(blocks) => (blocks, blocks),
            None => (config.share_min.blocks(capacity), config.share_max.blocks(capacity)),
        }
    }

    /// A volume's pin in blocks, of a cache of so many. Its bounds may have changed since, and the cache
    /// keeps to them.
    pub fn pin(&self, config: &VolumeConfig, capacity: u64) -> Option<u64> {
        let size = self.pins.get(&config.name)?;
        let (min, max) = (config.share_min.blocks(capacity), config.share_max.blocks(capacity));
        Some(size.blocks(capacity).min(max).max(min))
    }

    pub const fn pins(&self) -> &BTreeMap<String, Share> {
        &self.pins
    }

    /// The operator pins a volume, or nothing does; gives the pin of before.
    pub fn set_pin(&mut self, name: &str, size: Option<Share>) -> Option<Share> {
        match size {
            Some(size) => self.pins.insert(name.to_owned(), size),
            None => self.pins.remove(name),
        }
    }

    /// The targets that follow from a plan. `keep` has the next plan go on from them.
    pub fn step(
        &mut self,
        config: &ManagerConfig,
        status: &DataStatus,
        seen: &BTreeMap<String, Seen>,
        keep: bool,
    ) -> Step {
        let counters = &status.cache.counters;
        let capacity = counters.capacity_blocks;
        if capacity == 0 {
            return Step { trouble: NO_ROOM.into(), ..Step::default() };
        }
        let served: Vec<&VolumeStatus> =
            status.volumes.iter().filter(|volume| volume.state != State::Waiting).collect();
        self.place(&served);
        let is_divided = seen.values().any(|seen| seen.part.is_some());
        let mut wanted = vec![None; self.places.len()];
        for volume in &served {
            let Some(at) = self.place_of(&volume.config.name) else { continue };
            wanted[at] = self.wanted(volume, capacity, seen.get(&volume.config.name), is_divided);
        }
        let own_max = own_max(status, &served, |volume| {
            self.place_of(&volume.config.name).is_some_and(|at| wanted[at].is_some())
        });
        let limits = Limits {
            capacity_blocks: capacity,
            own_max: usize::try_from(own_max).unwrap_or(usize::MAX),
            step_max: config.rules.steadiness.step_max,
            change_min: config.change_min,
        };
        let mut trial = (!keep).then(|| self.actuator.clone());
        let targets = trial.as_mut().unwrap_or(&mut self.actuator).next(&wanted, &limits);
        let name = |(at, target): (usize, Option<Target>)| Some((self.places[at].clone()?, target));
        let targets: Vec<_> = targets.into_iter().enumerate().filter_map(name).collect();
        let common = targets.iter().flat_map(|(_, one)| one).filter(|one| !one.own).count();
        let trouble = if common > 0 {
            format!("{own_max} volumes can have shares of their own; {common} have one together")
        } else {
            String::new()
        };
        Step { targets, trouble }
    }

    fn wanted(
        &self,
        volume: &VolumeStatus,
        capacity: u64,
        seen: Option<&Seen>,
        is_divided: bool,
    ) -> Option<Wanted> {
        let pinned_blocks = self.pin(&volume.config, capacity);
        // Volumes share the cache: pins alone are targets.
        if !is_divided && pinned_blocks.is_none() {
            return None;
        }
        let part = seen.and_then(|seen| seen.part).unwrap_or_default();
        Some(Wanted {
            blocks: part.blocks,
            policy: part.policy,
            min_blocks: volume.config.share_min.blocks(capacity),
            max_blocks: volume.config.share_max.blocks(capacity),
            pinned_blocks,
            held_blocks: volume.counters.cached_blocks,
        })
    }

    fn place_of(&self, name: &str) -> Option<usize> {
        self.places.iter().position(|known| known.as_deref() == Some(name))
    }

    /// Places for volumes that came; those of volumes that went are free.
    fn place(&mut self, served: &[&VolumeStatus]) {
        let is_there = |name: &str| served.iter().any(|volume| volume.config.name == name);
        for place in &mut self.places {
            if place.as_deref().is_some_and(|name| !is_there(name)) {
                *place = None;
            }
        }
        for volume in served {
            if self.place_of(&volume.config.name).is_none() {
                let free = self.places.iter().position(Option::is_none);
                let at = free.unwrap_or(self.places.len());
                if at == self.places.len() {
                    self.places.push(None);
                }
                self.places[at] = Some(volume.config.name.clone());
            }
        }
    }
}

/// Volumes that can have shares of their own, among those that are to have a target. A cache keeps one
/// with bounds apart without a target, too.
fn own_max(
    status: &DataStatus,
    served: &[&VolumeStatus],
    has_target: impl Fn(&VolumeStatus) -> bool,
) -> u64 {
    let counters = &status.cache.counters;
    let (capacity, shards) = (counters.capacity_blocks, u64::from(status.cache.shards.max(1)));
    let is_bound = |volume: &VolumeConfig| {
        volume.share_min.blocks(capacity) > 0 || volume.share_max.blocks(capacity) < capacity
    };
    let bound_alone =
        served.iter().filter(|volume| is_bound(&volume.config) && !has_target(volume)).count();
    (counters.share_groups_max / shards).saturating_sub(1).saturating_sub(bound_alone as u64)
}

/// Refuses a pin that a volume's bounds do not allow: the cache would not grant it, or grant more.
///
/// # Errors
/// Says which bound it is, and how to change it.
pub fn check_pin(config: &VolumeConfig, size: Share, capacity: u64) -> Result<(), CommandError> {
    let blocks = size.blocks(capacity);
    let name = &config.name;
    let (bound, share, option) = if blocks > config.share_max.blocks(capacity) {
        ("more than its share_max", config.share_max, "--share-max")
    } else if blocks < config.share_min.blocks(capacity) {
        ("less than its share_min", config.share_min, "--share-min")
    } else {
        return Ok(());
    };
    let (size, share) = (show_share(size), show_share(share));
    let message = format!("{size} for volume {name:?} is {bound}, {share}");
    let hint =
        format!("pin it to another size, or first: cinnabar volume set {name} {option} {size}");
    Err(CommandError::new(CommandErrorKind::Invalid, message, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_keeps_to_the_bounds_of_its_volume() {
        let input = cinnabar_config::VolumeInput {
            name: "vm1".into(),
            backend: "file:/srv/vm1.raw".into(),
            share_min: Some("20%".into()),
            share_max: Some("50%".into()),
            ..cinnabar_config::VolumeInput::default()
        };
        let config = input.check(std::path::Path::new("/base")).expect("valid settings");
        assert_eq!(check_pin(&config, Share::Percent(50.0), 1000), Ok(()));
        assert_eq!(check_pin(&config, Share::Percent(20.0), 1000), Ok(()));
        let more = check_pin(&config, Share::Percent(80.0), 1000).expect_err("it is too much");
        assert!(more.message.contains("more than its share_max, 50%"), "{more:?}");
        assert!(more.hint.ends_with("volume set vm1 --share-max 80%"), "{more:?}");
        let less = check_pin(&config, Share::Bytes(4096), 1000).expect_err("it is too little");
        assert_eq!(less.kind, CommandErrorKind::Invalid);
        assert!(less.message.contains("less than its share_min, 20%"), "{less:?}");
        // Bounds that came later.
        let mut actuation = Actuation::default();
        actuation.set_pin("vm1", Some(Share::Percent(80.0)));
        assert_eq!(actuation.pin(&config, 1000), Some(500));
        actuation.set_pin("vm1", Some(Share::Percent(5.0)));
        assert_eq!(actuation.pin(&config, 1000), Some(200));
    }
}
