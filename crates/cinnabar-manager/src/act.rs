//! From a plan to the data plane: targets of all volumes in one message, and modes of volumes whose
//! operator allows it.

use super::share::Seen;
use cinnabar_config::ManagerConfig;
use cinnabar_messages::{
    CommandError, DataStatus, Share, State, VolumeChange, VolumeMode, VolumeStatus,
};
use cinnabar_policy::planning::{Actuator, Bounds, Limits, Target, Wanted};
use cinnabar_policy::sizing::WritePolicy;
use std::collections::BTreeMap;
use tokio::sync::oneshot::{Receiver, error::TryRecvError};

/// A mode that was refused is not asked for again for so many plans.
const REFUSED_PLANS: u32 = 10;
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
    modes: BTreeMap<String, Mode>,
}

/// What the manager knows of the mode of a volume.
#[derive(Debug)]
struct Mode {
    /// As it was, or as it was set here.
    set: VolumeMode,
    /// A change under way.
    pending: Option<(VolumeMode, Receiver<Result<(), CommandError>>)>,
    /// The operator has set another one: it stays.
    overruled: bool,
    /// One that could not be had, and plans until it is asked for again.
    refused: Option<(VolumeMode, u32)>,
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
        match self.pin(&config.name, capacity) {
            Some(blocks) => (blocks, blocks),
            None => (config.share_min.blocks(capacity), config.share_max.blocks(capacity)),
        }
    }

    /// A volume's pin in blocks, of a cache of so many.
    pub fn pin(&self, name: &str, capacity: u64) -> Option<u64> {
        self.pins.get(name).map(|size| size.blocks(capacity))
    }

    /// All pins.
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

    /// The operator takes that back, and lets go of a mode that he has set; whether there was either.
    pub fn unpin(&mut self, name: &str) -> bool {
        let mode = self.modes.get_mut(name).is_some_and(|mode| std::mem::take(&mut mode.overruled));
        self.pins.remove(name).is_some() || mode
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
        let shards = u64::from(status.cache.shards.max(1));
        let own_max = (counters.share_groups_max / shards).saturating_sub(1);
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
        let name = &volume.config.name;
        let pinned_blocks = self.pin(name, capacity);
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
        let is_there = |name: &String| served.iter().any(|volume| volume.config.name == *name);
        self.modes.retain(|name, _| is_there(name));
    }

    /// Modes that are to be asked for: of volumes whose operator allows it, where plans have wanted
    /// another one for long enough. Of a volume that did nothing in the interval a plan knows nothing.
    pub fn modes(
        &mut self,
        status: &DataStatus,
        seen: &BTreeMap<String, Seen>,
        step: &Step,
    ) -> Vec<(String, VolumeChange)> {
        let has_log = status.cache.write_log.as_ref().is_some_and(|log| log.reason.is_empty());
        let mut changes = Vec::new();
        for (name, target) in &step.targets {
            let Some(volume) = status.volumes.iter().find(|one| one.config.name == *name) else {
                continue;
            };
            if !volume.config.auto_mode || volume.state != State::Serving {
                continue;
            }
            let now = volume.config.mode;
            let mode = self.modes.entry(name.clone()).or_insert(Mode {
                set: now,
                pending: None,
                overruled: false,
                refused: None,
            });
            let planned =
                seen.get(name).filter(|seen| seen.counts != [0; 2] && seen.part.is_some());
            let policy = target.filter(|_| planned.is_some()).and_then(policy_of);
            let wanted = policy.map(|policy| mode_of(policy, has_log));
            if mode.asks(now, wanted) {
                let mode_from = Some(now);
                let change = VolumeChange { mode: wanted, mode_from, ..VolumeChange::default() };
                changes.push((name.clone(), change));
            }
        }
        changes
    }

    /// A change of mode is under way.
    pub fn asked(
        &mut self,
        name: &str,
        wanted: VolumeMode,
        answer: Receiver<Result<(), CommandError>>,
    ) {
        if let Some(mode) = self.modes.get_mut(name) {
            mode.pending = Some((wanted, answer));
        }
    }

    /// Looks which changes of mode have ended: leaving write-back takes as long as its writes do.
    pub fn look_at_modes(&mut self) {
        for (volume, mode) in &mut self.modes {
            let Some((wanted, answer)) = &mut mode.pending else { continue };
            let wanted = *wanted;
            match answer.try_recv() {
                Err(TryRecvError::Empty) => continue,
                Ok(Ok(())) => {
                    tracing::info!(volume, mode = ?wanted, "its mode is as planned");
                    mode.set = wanted;
                }
                Ok(Err(error)) => {
                    tracing::warn!(volume, mode = ?wanted, reason = %error, "its mode stays");
                    mode.refused = Some((wanted, REFUSED_PLANS));
                }
                Err(TryRecvError::Closed) => mode.refused = Some((wanted, REFUSED_PLANS)),
            }
            mode.pending = None;
        }
    }
}

impl Mode {
    /// Whether another mode is to be asked for.
    fn asks(&mut self, now: VolumeMode, wanted: Option<VolumeMode>) -> bool {
        if let Some((_, plans)) = &mut self.refused {
            *plans = plans.saturating_sub(1);
        }
        self.refused = self.refused.filter(|(_, plans)| *plans > 0);
        if self.pending.is_some() {
            return false;
        }
        // Nobody else sets it but the operator.
        self.overruled |= now != self.set;
        self.set = now;
        let refused = self.refused.map(|(mode, _)| mode);
        wanted.is_some_and(|wanted| wanted != now && refused != Some(wanted)) && !self.overruled
    }
}

/// The policy that a plan wants; never to cache nothing in a share that the operator has given.
fn policy_of(target: Target) -> Option<WritePolicy> {
    target.policy.filter(|policy| *policy != WritePolicy::Bypass || target.blocks == 0)
}

/// The mode of a write policy; without a write log writes can only go through.
const fn mode_of(policy: WritePolicy, has_log: bool) -> VolumeMode {
    match policy {
        WritePolicy::Bypass => VolumeMode::PassThrough,
        WritePolicy::ReadOnly => VolumeMode::WriteAround,
        WritePolicy::Back if has_log => VolumeMode::WriteBack,
        WritePolicy::Through | WritePolicy::Back => VolumeMode::WriteThrough,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(set: VolumeMode) -> Mode {
        Mode { set, pending: None, overruled: false, refused: None }
    }

    #[test]
    fn a_mode_that_the_operator_sets_stays_and_a_refused_one_is_left_for_a_while() {
        use VolumeMode::{PassThrough, WriteAround, WriteThrough};
        let mut known = mode(WriteThrough);
        assert!(!known.asks(WriteThrough, None) && !known.asks(WriteThrough, Some(WriteThrough)));
        assert!(known.asks(WriteThrough, Some(WriteAround)));
        known.refused = Some((WriteAround, 3));
        assert!(!known.asks(WriteThrough, Some(WriteAround)));
        assert!(known.asks(WriteThrough, Some(PassThrough)), "another one is not refused");
        assert!(known.asks(WriteThrough, Some(WriteAround)), "and it is tried again");
        assert!(!known.asks(PassThrough, Some(WriteAround)), "the operator has changed it");
        assert!(!known.asks(PassThrough, Some(WriteAround)) && known.overruled);
    }

    #[test]
    fn without_a_write_log_nothing_is_written_back() {
        assert_eq!(mode_of(WritePolicy::Back, false), VolumeMode::WriteThrough);
        assert_eq!(mode_of(WritePolicy::Back, true), VolumeMode::WriteBack);
        assert_eq!(mode_of(WritePolicy::ReadOnly, true), VolumeMode::WriteAround);
    }
}
