//! Events: what differs between two statuses, and what the manager has planned.

use crate::settings::VolumeMode;
use crate::status::raw::{CacheStatus, DataStatus, State, VolumeStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Longest reason told, in bytes.
const REASON_BYTES_MAX: usize = 512;

/// What has happened. Words are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The manager has made a plan.
    PlanMade,
    /// A volume has another mode.
    ModeChanged,
    /// The cache device was given up.
    DeviceLost,
    /// Another cache device is in use.
    DeviceReplaced,
    /// The cache is in another state.
    CacheChanged,
    /// A volume is served, for the first time or again.
    VolumeAttached,
    /// A volume was removed.
    VolumeDetached,
    /// A volume does not serve any more.
    VolumeFailed,
    /// A volume is in another state.
    VolumeChanged,
    /// Fetching the blocks of a volume from the cache of the host where it was has ended.
    WarmArrivalEnded,
    /// Events are missing: the client was too slow, or away for too long.
    Skipped,
}

/// An event: what has happened, to whom, and when it was noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventReport {
    /// What.
    pub kind: EventKind,
    /// When it was noticed, in milliseconds since 1970.
    pub at_ms: u64,
    /// The volume, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The mode or the state before, or the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The mode or the state now, or the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Why, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The plan, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanEvent>,
    /// How many events are missing; absent also if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<u64>,
}

/// A plan in short; `GET /v1/policy/history` has all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanEvent {
    /// Number of the interval behind which it was made; that of the open one, if it was asked for.
    pub interval: u64,
    /// Who divided the cache.
    pub allocator: String,
    /// Its volumes.
    pub volumes: u64,
    /// It was carried out.
    pub applied: bool,
}

impl EventReport {
    /// Of a kind and a time, and nothing else.
    pub const fn new(kind: EventKind, at_ms: u64) -> Self {
        Self {
            kind,
            at_ms,
            volume: None,
            before: None,
            after: None,
            reason: None,
            plan: None,
            skipped: None,
        }
    }

    /// The manager has made a plan; `trouble` is why it was not carried out, or in part only.
    pub fn plan(at_ms: u64, plan: PlanEvent, trouble: &str) -> Self {
        Self { plan: Some(plan), ..Self::new(EventKind::PlanMade, at_ms) }.because(trouble)
    }

    /// Some events are missing; `None`: it is not known how many.
    pub fn skipped(at_ms: u64, count: Option<u64>) -> Self {
        Self { skipped: count, ..Self::new(EventKind::Skipped, at_ms) }
    }

    fn of(self, volume: &str) -> Self {
        Self { volume: Some(volume.to_owned()), ..self }
    }

    fn changed(self, before: impl Into<String>, after: impl Into<String>) -> Self {
        Self { before: Some(before.into()), after: Some(after.into()), ..self }
    }

    fn because(self, reason: &str) -> Self {
        let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
        Self { reason: (!reason.is_empty()).then(|| reason.to_owned()), ..self }
    }
}

/// Compares each status with the one before.
#[derive(Clone, Debug, Default)]
pub struct Watcher {
    before: Option<Known>,
}

/// What is compared of a status.
#[derive(Clone, Debug)]
struct Known {
    cache: KnownCache,
    volumes: BTreeMap<String, KnownVolume>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownCache {
    state: State,
    device: String,
    losses: u64,
    replacements: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownVolume {
    state: State,
    mode: VolumeMode,
    /// Warm arrivals that have ended.
    arrivals: u64,
}

impl KnownVolume {
    fn of(volume: &VolumeStatus) -> Self {
        let (state, mode) = (volume.state, volume.config.mode);
        let warm = volume.migration.as_ref().and_then(|migration| migration.warm.as_ref());
        Self { state, mode, arrivals: warm.map_or(0, |warm| warm.arrivals) }
    }
}

impl Watcher {
    /// What is new since the last look; nothing at the first one.
    pub fn look(&mut self, now_ms: u64, status: &DataStatus) -> Vec<EventReport> {
        let volume = |volume: &VolumeStatus| (volume.config.name.clone(), KnownVolume::of(volume));
        let now = Known {
            cache: KnownCache::of(&status.cache),
            volumes: status.volumes.iter().map(volume).collect(),
        };
        let mut events = Vec::new();
        if let Some(before) = &self.before {
            of_cache(now_ms, &before.cache, &now.cache, &status.cache.reason, &mut events);
            for name in before.volumes.keys().filter(|name| !now.volumes.contains_key(*name)) {
                events.push(EventReport::new(EventKind::VolumeDetached, now_ms).of(name));
            }
            for volume in &status.volumes {
                let known = before.volumes.get(&volume.config.name);
                of_volume(now_ms, known, volume, &mut events);
            }
        }
        self.before = Some(now);
        events
    }
}

impl KnownCache {
    fn of(cache: &CacheStatus) -> Self {
        Self {
            state: cache.state,
            device: cache.device.display().to_string(),
            losses: cache.losses,
            replacements: cache.replacements,
        }
    }
}

fn of_cache(
    now_ms: u64,
    before: &KnownCache,
    now: &KnownCache,
    reason: &str,
    events: &mut Vec<EventReport>,
) {
    // Counts: what comes and goes between two looks is an event as well.
    if now.losses > before.losses {
        let lost = EventReport::new(EventKind::DeviceLost, now_ms);
        events.push(EventReport { before: Some(before.device.clone()), ..lost }.because(reason));
    }
    if now.replacements > before.replacements {
        let replaced = EventReport::new(EventKind::DeviceReplaced, now_ms);
        events.push(replaced.changed(before.device.clone(), now.device.clone()));
    }
    if now.state != before.state {
        let changed = EventReport::new(EventKind::CacheChanged, now_ms);
        events.push(changed.changed(name_of(before.state), name_of(now.state)).because(reason));
    }
}

fn of_volume(
    now_ms: u64,
    before: Option<&KnownVolume>,
    volume: &VolumeStatus,
    events: &mut Vec<EventReport>,
) {
    let name = &volume.config.name;
    let (state, mode) = (volume.state, volume.config.mode);
    if before.is_none_or(|before| before.state != state) {
        let served = before.is_some_and(|before| serves(before.state));
        let kind = match state {
            State::Failed => EventKind::VolumeFailed,
            _ if serves(state) && !served => EventKind::VolumeAttached,
            _ => EventKind::VolumeChanged,
        };
        events.push(EventReport {
            before: before.map(|before| name_of(before.state).to_owned()),
            after: Some(name_of(state).to_owned()),
            ..EventReport::new(kind, now_ms).of(name).because(&volume.reason)
        });
    }
    if let Some(before) = before.filter(|before| before.mode != mode) {
        let changed = EventReport::new(EventKind::ModeChanged, now_ms).of(name);
        let changed = changed.changed(name_of_mode(before.mode), name_of_mode(mode));
        events.push(changed.because(volume.mode_cause.words()));
    }
    let warm = volume.migration.as_ref().and_then(|migration| migration.warm.as_ref());
    if let (Some(before), Some(warm)) = (before, warm)
        && warm.arrivals > before.arrivals
    {
        let reason = warm.ended.as_deref().unwrap_or_default();
        let ended = EventReport::new(EventKind::WarmArrivalEnded, now_ms).of(name);
        events.push(ended.because(reason));
    }
}

const fn serves(state: State) -> bool {
    matches!(state, State::Serving | State::Degraded)
}

/// As in the status.
const fn name_of(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Serving => "serving",
        State::Degraded => "degraded",
        State::Stopping => "stopping",
        State::Waiting => "waiting",
        State::Standby => "standby",
        State::Failed => "failed",
    }
}

/// As in the status.
const fn name_of_mode(mode: VolumeMode) -> &'static str {
    match mode {
        VolumeMode::WriteThrough => "write-through",
        VolumeMode::WriteBack => "write-back",
        VolumeMode::WriteAround => "write-around",
        VolumeMode::PassThrough => "pass-through",
    }
}
