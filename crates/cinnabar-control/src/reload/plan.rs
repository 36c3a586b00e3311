//! What follows from a configuration that was read again: what changes now, what needs a restart, and
//! what stays for another reason. Pure.

use super::report::{KeptReason, KeptReport, RestartReport};
use crate::configured::{Configured, volume_of};
use cinnabar_config::diff::{
    ANOTHER, LIVE_MANAGER_KEYS, LIVE_VOLUME_KEYS, cache_keys, change_of, control_keys,
    differ_elsewhere, group_names, manager_keys, tls_keys, volume_keys,
};
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, DataStatus, State, VolumeChange, VolumeConfig, VolumeStatus,
};
use cinnabar_config::settings::{Ack, CacheConfig, VolumeMode};
use cinnabar_config::{Config, ManagerConfig};
use std::time::Duration;

/// What the operator wants beside the file, and what has to be known of the host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    /// Volumes that have left the file are to be removed.
    pub(super) remove_volumes: bool,
    /// The cache is on a block device, where `size` counts beside `size_max` only.
    pub(super) is_block_device: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Another longest stop.
    StopWait(Duration),
    /// A volume goes.
    Remove(String),
    /// Another size of the cache.
    Resize(u64),
    /// Other settings of the manager.
    Manage(Box<ManagerConfig>, Vec<&'static str>),
    /// Other settings of a volume: keys, how it is told, what it has then.
    Set(String, Vec<&'static str>, VolumeChange, Box<VolumeConfig>),
    /// A volume comes.
    Add(Box<VolumeConfig>),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// In the order in which they are to be done.
    pub(super) steps: Vec<Step>,
    pub(super) restart: Vec<RestartReport>,
    pub(super) kept: Vec<KeptReport>,
}

/// What follows from `new`.
///
/// # Errors
/// If volumes are to be removed that are in use.
pub(super) fn plan(
    was: &Configured,
    new: &Config,
    now: &DataStatus,
    wants: Wants,
) -> Result<Plan, CommandError> {
    let mut plan = Plan::default();
    plan.control(was, new);
    plan.removals(was, new, now, wants)?;
    plan.cache(was, new, now, wants);
    plan.manager(was, new);
    for name in group_names(&was.running.qos_groups, &new.qos_groups) {
        plan.restart.push(RestartReport::named("qos_group", &name));
    }
    if differ_elsewhere(&was.running, new) {
        plan.restart.push(RestartReport::new(ANOTHER));
    }
    for volume in &new.volumes {
        plan.volume(was, volume, now);
    }
    // What gives up a minimum comes before what wants more, and room before those who come for it.
    // A cache that shrinks does so when there is less to keep.
    let blocks = now.cache.counters.capacity_blocks;
    let has_bytes = now.cache.size.bytes;
    plan.steps.sort_by_key(|step| match step {
        Step::StopWait(_) => (0, 0),
        Step::Remove(_) => (1, 0),
        Step::Resize(bytes) if *bytes < has_bytes => (4, 0),
        Step::Resize(_) => (2, 0),
        Step::Manage(..) => (3, 0),
        Step::Set(name, _, _, then) => {
            let live = served(now, name).map_or(0, |now| now.config.share_min.blocks(blocks));
            (4, then.share_min.blocks(blocks).cast_signed() - live.cast_signed())
        }
        Step::Add(_) => (5, 0),
    });
    Ok(plan)
}

/// A volume that is there, or waits for its back end.
pub(super) fn served<'n>(now: &'n DataStatus, name: &str) -> Option<&'n VolumeStatus> {
    now.volumes.iter().find(|volume| volume.config.name == name)
}

/// Whether this mode and way to acknowledge need what only a start brings: another write log, a write
/// memory.
fn waits_for_log(running: &CacheConfig, volume: &VolumeConfig) -> Option<&'static str> {
    let log = running.write_log.as_ref();
    if volume.mode == VolumeMode::WriteBack && log.is_none() {
        return Some("the write log is there from the next start on");
    }
    let memory = log.is_some_and(|log| log.memory.is_some());
    (volume.ack == Ack::Memory && !memory)
        .then_some("the write memory is there from the next start on")
}

/// Why a volume without clients may not go: its back end may lack writes.
fn keeps_writes(live: &VolumeStatus, now: &DataStatus) -> Option<String> {
    let log = now.cache.write_log.as_ref();
    let cannot_drain = log.is_none_or(|log| !log.reason.is_empty());
    let writes_back = live.config.mode == VolumeMode::WriteBack || live.write_back.is_some();
    match &live.write_back {
        Some(log) if log.dirty_bytes > 0 => {
            Some(format!("has {} bytes that its back end does not have", log.dirty_bytes))
        }
        Some(log) if log.damaged => Some("has damaged writes in the write log".to_owned()),
        _ if writes_back && live.state == State::Waiting => {
            Some("waits for its back end, which may lack writes".to_owned())
        }
        _ if writes_back && cannot_drain => {
            Some("may have writes in the write log, which can't be used".to_owned())
        }
        _ => None,
    }
}

impl Plan {
    fn control(&mut self, was: &Configured, new: &Config) {
        for key in control_keys(&was.running.control, &new.control) {
            if key != "stop_wait_s" {
                self.restart.push(RestartReport::new(format!("control.{key}")));
            }
        }
        match (&was.running.tls, &new.tls) {
            (Some(running), Some(new)) => {
                let keys = tls_keys(running, new);
                let named = keys.iter().map(|key| RestartReport::new(format!("tls.{key}")));
                self.restart.extend(named);
            }
            (None, None) => {}
            _ => self.restart.push(RestartReport::new("tls")),
        }
        if was.read.control.stop_wait_max != new.control.stop_wait_max {
            self.steps.push(Step::StopWait(new.control.stop_wait_max));
        }
    }

    fn removals(
        &mut self,
        was: &Configured,
        new: &Config,
        now: &DataStatus,
        wants: Wants,
    ) -> Result<(), CommandError> {
        let mut used = Vec::new();
        for old in was.read.volumes.iter().filter(|old| volume_of(new, &old.name).is_none()) {
            let Some(live) = served(now, &old.name) else { continue };
            if !wants.remove_volumes {
                self.kept.push(KeptReport::new(&old.name, KeptReason::NotInFile));
            } else if live.connections > 0 {
                used.push(format!("{:?} has {} clients connected", old.name, live.connections));
            } else if let Some(reason) = keeps_writes(live, now) {
                used.push(format!("{:?} {reason}", old.name));
            } else {
                self.steps.push(Step::Remove(old.name.clone()));
            }
        }
        if used.is_empty() {
            return Ok(());
        }
        let message = format!("nothing is changed, for volume {}", used.join(", volume "));
        let hint = "disconnect clients and flush first (cinnabar volume flush), or reload without removing";
        Err(CommandError::new(CommandErrorKind::Busy, message, hint))
    }

    fn cache(&mut self, was: &Configured, new: &Config, now: &DataStatus, wants: Wants) {
        // What the device was made for is whole segments, at most as many bytes as were asked for. The
        // data plane, which knows its segments, says whether they are enough.
        let running = &was.running.cache;
        let made_for = running.size_max_bytes.max(running.size_bytes).unwrap_or(0);
        let size = &now.cache.size;
        let room = if size.bytes_max > 0 { size.bytes_max.max(made_for) } else { 0 };
        // It is the size of that device, and counts now as it would at a start.
        let is_of_this = [&was.running.cache.device, &now.cache.device]
            .iter()
            .all(|device| **device == new.cache.device);
        let counts = !wants.is_block_device || new.cache.size_max_bytes.is_some();
        let live = |bytes: u64| is_of_this && counts && bytes <= room;
        for key in cache_keys(&was.running.cache, &new.cache) {
            match new.cache.size_bytes {
                Some(bytes) if key == "size" && live(bytes) => {}
                Some(bytes) if key == "size" && is_of_this && room > 0 && bytes > room => {
                    let reason = "the device was made for less: see size_max";
                    self.restart.push(RestartReport::because("cache.size", reason));
                }
                _ => self.restart.push(RestartReport::new(format!("cache.{key}"))),
            }
        }
        if was.running.lock_wait_max != new.lock_wait_max {
            self.restart.push(RestartReport::new("cache.lock_wait_s"));
        }
        // The one before was asked for, and has failed since.
        let has_failed = |bytes: u64| {
            was.resized_to == Some(bytes) && !size.failed.is_empty() && size.resizing_to.is_none()
        };
        if let Some(bytes) = new.cache.size_bytes
            && (was.read.cache.size_bytes != Some(bytes) || has_failed(bytes))
            && live(bytes)
        {
            self.steps.push(Step::Resize(bytes));
        }
    }

    fn manager(&mut self, was: &Configured, new: &Config) {
        match (&was.running.manager, &new.manager) {
            (Some(running), Some(new)) => {
                let read = was.read.manager.as_ref().unwrap_or(running);
                let is_live = |key: &&'static str| LIVE_MANAGER_KEYS.contains(key);
                for key in manager_keys(running, new).iter().filter(|key| !is_live(key)) {
                    self.restart.push(RestartReport::new(format!("manager.{key}")));
                }
                let keys: Vec<_> = manager_keys(read, new).into_iter().filter(is_live).collect();
                if !keys.is_empty() {
                    self.steps.push(Step::Manage(Box::new(*new), keys));
                }
            }
            (None, None) => {}
            _ => self.restart.push(RestartReport::new("manager")),
        }
    }

    fn volume(&mut self, was: &Configured, new: &VolumeConfig, now: &DataStatus) {
        let read = volume_of(&was.read, &new.name);
        let Some(VolumeStatus { config: live, .. }) = served(now, &new.name) else {
            if read.is_some() {
                self.kept.push(KeptReport::new(&new.name, KeptReason::RemovedByCommand));
            } else if let Some(reason) = waits_for_log(&was.running.cache, new) {
                let report = RestartReport {
                    reason: reason.to_owned(),
                    ..RestartReport::named("volume", &new.name)
                };
                self.restart.push(report);
            } else {
                self.steps.push(Step::Add(Box::new(new.clone())));
            }
            return;
        };
        // One that was added by command is compared with what it is.
        let running = volume_of(&was.running, &new.name);
        let since_start = running.map(|running| volume_keys(running, new));
        for key in volume_keys(live, new) {
            let is_new = since_start.as_ref().is_none_or(|keys| keys.contains(&key));
            if is_new && !LIVE_VOLUME_KEYS.contains(&key) {
                self.restart.push(RestartReport::named(&format!("volume.{key}"), &new.name));
            }
        }
        let changed = volume_keys(read.unwrap_or(live), new);
        let differs = volume_keys(live, new);
        let mut keys: Vec<_> = changed
            .into_iter()
            .filter(|key| LIVE_VOLUME_KEYS.contains(key) && differs.contains(key))
            .collect();
        if let Some(reason) = waits_for_log(&was.running.cache, &change_of(&keys, live, new).1) {
            for key in keys.extract_if(.., |key| ["mode", "ack"].contains(key)) {
                let key = format!("volume.{key}");
                let report = RestartReport {
                    reason: reason.to_owned(),
                    ..RestartReport::named(&key, &new.name)
                };
                self.restart.push(report);
            }
        }
        if !keys.is_empty() {
            let (change, then) = change_of(&keys, live, new);
            self.steps.push(Step::Set(new.name.clone(), keys, change, Box::new(then)));
        }
    }
}
