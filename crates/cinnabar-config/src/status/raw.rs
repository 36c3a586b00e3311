//! The status as the data plane tells it: raw, to be made into JSON, tables and metrics.
//!
//! Made by the data plane, read by the control plane ([`report`](crate::status::report), [`metrics`](crate::status::metrics)).

use crate::settings::{Ack, VolumeConfig};
use crate::status::latency::Latencies;
use cinnabar_driver::qos::{ClientReport, GroupReport};
use cinnabar_engine::seam::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::seam::health::{Health, LoadReport};
use cinnabar_engine::seam::volume::Warmth;
use cinnabar_policy::planning::Totals;
pub use cinnabar_writeback::Counters as WriteLogCounters;
pub use cinnabar_writeback::{PaceReason, PaceStatus};
use std::path::PathBuf;
use std::time::Duration;

/// What the data plane answers when it is asked for the status.
#[derive(Clone, Debug)]
pub struct DataStatus {
    /// The cache.
    pub cache: CacheStatus,
    /// The volumes in the order they were added.
    pub volumes: Vec<VolumeStatus>,
    /// Groups of volumes that take turns at their back end.
    pub qos_groups: Vec<QosGroupStatus>,
}

/// A group of volumes that take turns at their back end, raw.
#[derive(Clone, Debug)]
pub struct QosGroupStatus {
    /// Its name.
    pub name: String,
    /// What its scheduler says.
    pub report: GroupReport,
}

/// What a volume has had in its group, raw.
#[derive(Clone, Debug)]
pub struct VolumeQosStatus {
    /// The group.
    pub group: String,
    /// Its guest's requests.
    pub guest: ClientReport,
    /// What the write log has brought to the back end, in mode write-back.
    pub destage: Option<ClientReport>,
}

/// The cache, raw.
#[derive(Clone, Debug)]
pub struct CacheStatus {
    /// The cache device: the one in use, or else the one that should be.
    pub device: PathBuf,
    /// How it is.
    pub state: State,
    /// Why it is not [`State::Serving`], or an empty line.
    pub reason: String,
    /// What the engine says of the device.
    pub health: Health,
    /// What the last load of an index found, once that is done.
    pub loaded: Option<Loaded>,
    /// How I/O is really done: `uring` or `threads`, and whether directly; e.g. `uring, direct`.
    pub io: String,
    /// Logical shards.
    pub shards: u32,
    /// Data threads that serve them.
    pub threads: usize,
    /// The engine's counters; its losses are replaced by those below.
    pub counters: CacheCounters,
    /// Times the device was given up because it failed, hung or was cut short.
    pub losses: u64,
    /// Times it was exchanged by command.
    pub replacements: u64,
    /// Blocks of volumes that are not attached, kept for their return.
    pub detached_blocks: u64,
    /// A budget of SSD writes lets nothing go to flash now.
    pub throttled: bool,
    /// How large the device is, and may be.
    pub size: SizeStatus,
    /// The engine's RAM.
    pub ram: RamBytes,
    /// RAM of the data plane's own buffers and queues, in bytes.
    pub edge_ram_bytes: u64,
    /// The write log, if one is configured.
    pub write_log: Option<WriteLogStatus>,
    /// How long I/O took since the start, for the manager.
    pub io_totals: Totals,
}

/// The size of the cache device in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeStatus {
    /// Bytes of it that are used; 0 without one.
    pub bytes: u64,
    /// The most that it was made for.
    pub bytes_max: u64,
    /// Blocks of data that fit then: tables in RAM are made for so many.
    pub blocks_max: u64,
    /// The size it is getting.
    pub resizing_to: Option<u64>,
    /// Why the last resize has failed, or an empty line.
    pub failed: String,
}

/// The write log, raw.
#[derive(Clone, Debug)]
pub struct WriteLogStatus {
    /// Its device.
    pub device: PathBuf,
    /// Why it can't be used, or an empty line.
    pub reason: String,
    /// Room for writes, in bytes.
    pub size_bytes: u64,
    /// Of that, in use.
    pub used_bytes: u64,
    /// RAM of its tables, in bytes.
    pub ram_bytes: u64,
    /// Writes of its device.
    pub counters: WriteLogCounters,
    /// Its write memory, if it has one.
    pub memory: Option<WriteMemoryStatus>,
    /// Its two devices, if it is mirrored.
    pub halves: Vec<LogHalfStatus>,
}

/// One of the two devices of a mirrored write log, raw.
#[derive(Clone, Debug)]
pub struct LogHalfStatus {
    /// Its path.
    pub device: PathBuf,
    /// What it holds.
    pub state: LogHalfState,
    /// Why it is missing, as far as is known, or an empty line.
    pub reason: String,
    /// Reads that failed there since the start.
    pub read_errors: u64,
}

/// What a device of a mirrored write log holds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LogHalfState {
    /// Everything, as the other one.
    Both,
    /// Everything, and no other one does.
    Alone,
    /// What was written since it is there: it counts once the back ends have all that is older.
    Filling,
    /// It is not there, has failed, or was dropped.
    Missing,
}

/// Where writes are acknowledged from memory, raw.
#[derive(Clone, Debug)]
pub struct WriteMemoryStatus {
    /// The file.
    pub path: PathBuf,
    /// Room for writes, in bytes.
    pub size_bytes: u64,
    /// Of that, in use: the log's device does not have these writes yet.
    pub used_bytes: u64,
    /// Since when the oldest of them is there.
    pub age: Duration,
}

/// What the write log holds of a volume, raw.
#[derive(Clone, Debug)]
pub struct WriteBackStatus {
    /// Bytes of the log in use for writes that the back end lacks.
    pub dirty_bytes: u64,
    /// For how long the oldest of them has been waiting.
    pub dirty_age: Duration,
    /// Epochs that the back end does not have completely.
    pub epochs: u64,
    /// Written to the back end so far, in bytes.
    pub destaged_bytes: u64,
    /// Requests that took.
    pub destaged_writes: u64,
    /// How many of those may be under way at a time, and why.
    pub pace: PaceStatus,
    /// Some of the writes are damaged.
    pub damaged: bool,
    /// The volume is on its way out of write-back mode.
    pub leaving: bool,
    /// When its writes are acknowledged.
    pub ack: Ack,
    /// Where its claim is.
    pub claim: String,
    /// Its write group, empty for none.
    pub group: String,
    /// The volume of its group whose back end must have earlier writes first.
    pub waits_for: Option<String>,
}

/// An index was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What was found.
    pub report: LoadReport,
    /// From the opening of the device until all of it was loaded.
    pub took: Duration,
}

/// Who gave a volume the mode that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeCause {
    /// It was opened with it.
    #[default]
    Opened,
    /// The operator, by a command or by the configuration that was read again.
    Operator,
    /// A plan.
    Plan,
    /// It was to join the write log, could not, and has the mode from before.
    NotJoined,
    /// It was to leave the write log, and could not.
    NotLeft,
}

impl ModeCause {
    /// Why the mode has changed; an empty line if that is not known.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Opened => "",
            Self::Operator => "set by the operator",
            Self::Plan => "planned",
            Self::NotJoined => "it could not join the write log",
            Self::NotLeft => "it could not leave the write log",
        }
    }
}

/// A volume, raw.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// Its settings as they are now.
    pub config: VolumeConfig,
    /// The operator has set its mode while it served, and has not left it to plans since.
    pub mode_by_operator: bool,
    /// Who gave it the mode of its settings.
    pub mode_cause: ModeCause,
    /// How it is.
    pub state: State,
    /// Why it is not [`State::Serving`], or an empty line.
    pub reason: String,
    /// How it waits for its back end or its address, if it does.
    pub waiting: Option<Waiting>,
    /// Size in bytes; 0 while it waits.
    pub size_bytes: u64,
    /// NBD connections now.
    pub connections: u32,
    /// Requests that waited for the limits of its guests.
    pub guest_waited: u64,
    /// Backend operations that are under way for longer than the volume's bound, now.
    pub overdue_now: u32,
    /// For how long the oldest backend operation is under way, if one is.
    pub oldest: Option<Duration>,
    /// How large the backend was when that was last asked; 0 if it was not.
    pub backend_size_bytes: u64,
    /// What became of the blocks of an earlier run.
    pub warmth: Warmth,
    /// The engine's counters; of a volume in the write log, as its guests see them.
    pub counters: VolumeCounters,
    /// Of the read hits, blocks of reads that the write log answered alone.
    pub read_hits_log: u64,
    /// Latencies of guest requests.
    pub latencies: Latencies,
    /// What the write log holds of it, if it is in write-back mode.
    pub write_back: Option<WriteBackStatus>,
    /// How it takes turns at its back end, if it does.
    pub qos: Option<VolumeQosStatus>,
    /// What it reads from a parent volume's cache, if it is a clone.
    pub parent: Option<ParentStatus>,
    /// Which of two hosts serves it, if it may move.
    pub migration: Option<MigrationStatus>,
    /// Where its extents lie, if it is a hybrid volume.
    pub hybrid: Option<HybridVolumeStatus>,
}

/// The parent of a volume that is a clone, raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// The parent volume's name.
    pub name: String,
    /// Why nothing is read from it, or empty.
    pub reason: String,
    /// Read requests that it was given.
    pub reads: u64,
    /// Blocks that it has answered.
    pub blocks: u64,
    /// Reads that it failed, or refused, and that the clone was asked for instead.
    pub repeated: u64,
    /// Objects of the clone for which the parent may answer.
    pub objects: u64,
    /// Of those, what the clone has itself.
    pub own_objects: u64,
}

/// A volume over a fast and a slow pool, raw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HybridVolumeStatus {
    /// Which planner decides.
    pub planner: String,
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// Extents that were written.
    pub extents: u32,
    /// Objects in the slow and in the fast pool, copies under way and garbage included.
    pub objects_slow: u32,
    /// See above.
    pub objects_fast: u32,
    /// Bytes of the fast pool that it may take.
    pub budget_bytes: u64,
    /// Bytes that it takes there.
    pub fast_bytes: u64,
    /// Extents on their way.
    pub moving: u64,
    /// Moves to the fast pool since the start.
    pub moved_fast: u64,
    /// Moves to the slow pool.
    pub moved_slow: u64,
    /// Moves that were given up.
    pub given_up: u64,
    /// Moves that the budget had no room for.
    pub over_budget: u64,
    /// Bytes of moves that went through this host.
    pub host_bytes: u64,
    /// Writes that waited for a move.
    pub held_writes: u64,
    /// What the moves of the last round save, in milliseconds of the devices a second.
    pub gain_ms_per_s: f64,
    /// The last move that was planned, and why, or an empty line.
    pub last_move: String,
    /// Objects under its name that it never made; they stay.
    pub foreign_objects: u64,
    /// Objects that should have been there.
    pub lost_objects: u64,
}

/// A volume that may move between two hosts, raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    /// What this host is.
    pub role: MigrationRole,
    /// `HOST:PORT` of the other daemon.
    pub peer: String,
    /// The highest epoch known.
    pub epoch: u64,
    /// Times it was handed over to the other host since this daemon started.
    pub given: u64,
    /// Times it was taken from there.
    pub taken: u64,
    /// How long guests waited the last time it was taken; zero if it was not.
    pub last_take: Duration,
    /// Guests' requests that wait for the volume now.
    pub held: u64,
    /// Why it could not be taken or handed over the last time, or an empty line.
    pub reason: String,
    /// What has come along from the other host's cache the last time it was taken from there.
    pub warm: Option<WarmStatus>,
}

/// Blocks that are fetched from the other host's cache after a volume was taken from it, raw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WarmStatus {
    /// Blocks that the other host has named.
    pub listed: u64,
    /// Of those, blocks that it has sent and that were offered to the cache here.
    pub fetched: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Blocks that were not taken: written here since, not in the other cache any more, or damaged.
    pub skipped: u64,
    /// Why it has ended; `None`: it goes on.
    pub ended: Option<String>,
    /// Arrivals that have ended since this daemon started.
    pub arrivals: u64,
}

/// What a host is to a volume that may move.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MigrationRole {
    /// It serves and caches the volume.
    Owner,
    /// It is handing the volume over.
    Giving,
    /// It serves reads from the back end; a write takes the volume.
    Standby,
    /// It is taking the volume.
    Taking,
}

/// A volume waits for its back end or its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Times its back end could not be opened.
    pub tries: u32,
    /// For how long.
    pub since: Duration,
    /// Until the next try; `None` while one is under way.
    pub next_try: Option<Duration>,
}

/// How a volume or the cache is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Being opened or attached; the cache: its index is being loaded, requests pass through.
    Starting,
    /// All is well.
    Serving,
    /// Serves, but not as configured; the reason says how.
    Degraded,
    /// Being detached.
    Stopping,
    /// Does not serve yet: its back end can't be opened, which is tried again.
    Waiting,
    /// Another host may serve it; reads are served from the back end, a write takes it here.
    Standby,
    /// Does not serve; the reason says why.
    Failed,
}
