//! A volume in the status.

use super::hybrid::HybridReport;
use super::latency::LatencyReport;
use super::qos::QosReport;
use crate::settings::{Ack, VolumeMode};
use crate::status::raw::{
    MigrationRole, MigrationStatus, PaceReason, ParentStatus, State, VolumeStatus, Waiting,
    WarmStatus, WriteBackStatus,
};
use crate::units::{show_share, show_size};
use cinnabar_engine::seam::counters::Bypassed;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use cinnabar_engine::seam::volume::{DropReason, Warmth};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use utoipa::ToSchema;

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeReport {
    /// Its name, and that of its NBD export.
    pub name: String,
    /// What its requests do with the cache.
    pub mode: VolumeMode,
    /// How it is.
    pub state: State,
    /// Why it is not serving, or empty.
    pub reason: String,
    /// How it waits for its back end or its address; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingReport>,
    /// Where it lives.
    pub backend: String,
    /// Where NBD clients find it, or empty.
    pub nbd: String,
    /// The socket of its vhost-user-blk device, or empty.
    pub vhost_user: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Refuses writes.
    pub read_only: bool,
    /// Takes more than one writing client.
    pub shared: bool,
    /// Nobody else writes it, says the operator.
    pub exclusive: bool,
    /// What it keeps whatever others do, as it was written.
    pub share_min: String,
    /// What it may hold at most, as it was written.
    pub share_max: String,
    /// Its own share now, in blocks: what it may keep while others want more; 0: it has a part of the
    /// one that volumes without their own have together.
    #[serde(default)]
    pub share_blocks: u64,
    /// The manager may change its mode.
    #[serde(default)]
    pub auto_mode: bool,
    /// Sequential runs of at least so many bytes bypass the cache; 0 = never.
    pub bypass_sequential_bytes: u64,
    /// Requests of at least so many bytes bypass the cache; 0 = never.
    pub bypass_large_bytes: u64,
    /// Bytes of its blocks that may go to the cache device a second; 0 = no limit.
    pub fill_limit_bytes: u64,
    /// Longest wait for an operation of the backend, in seconds; 0 = no bound.
    pub backend_timeout_s: f64,
    /// I/Os a second at the backend that it gets whatever others ask; 0 = nothing reserved.
    #[serde(default)]
    pub iops_reservation: u32,
    /// I/Os a second at the backend that it gets at most; 0 = no limit.
    #[serde(default)]
    pub iops_limit: u32,
    /// Its part of what is left of the backend, relative to others.
    #[serde(default)]
    pub iops_weight: u32,
    /// Requests of its guests a second, hits included; 0 = no limit.
    #[serde(default)]
    pub guest_iops_limit: u32,
    /// Bytes that these read and write a second; 0 = no limit.
    #[serde(default)]
    pub guest_bytes_limit: u64,
    /// Requests that waited for these two limits.
    #[serde(default)]
    pub guest_waited: u64,
    /// How it takes turns at the backend, if volumes of its group have such settings.
    #[serde(default)]
    pub qos: Option<QosReport>,
    /// NBD connections now.
    pub connections: u32,
    /// What became of the blocks of an earlier run.
    pub warmth: WarmthReport,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Trim requests.
    pub trims: u64,
    /// Write-zeroes requests.
    pub zeroes: u64,
    /// Blocks touched by reads: `read_hits + misses`.
    pub blocks_read: u64,
    /// Blocks touched by writes.
    pub blocks_written: u64,
    /// Bytes of read requests.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes of write requests.
    #[serde(default)]
    pub write_bytes: u64,
    /// Read blocks served from RAM or flash.
    pub read_hits: u64,
    /// Of those, from RAM.
    pub read_hits_ram: u64,
    /// Of those, blocks of reads that the write log answered alone.
    pub read_hits_log: u64,
    /// Read blocks fetched from the backend.
    pub misses: u64,
    /// Read requests with hits and misses.
    pub partial_hits: u64,
    /// Written blocks that were cached.
    pub write_hits: u64,
    /// Blocks that did not use the cache, by reason.
    pub bypassed: BypassedReport,
    /// Backend read operations.
    pub backend_reads: u64,
    /// Backend write operations, trims and zeroes included.
    pub backend_writes: u64,
    /// Backend flushes.
    pub backend_flushes: u64,
    /// Bytes read from the backend.
    pub backend_read_bytes: u64,
    /// Bytes written to the backend.
    pub backend_write_bytes: u64,
    /// Backend operations that failed.
    pub backend_errors: u64,
    /// Backend operations that took longer than `backend_timeout_s`.
    pub backend_overdue: u64,
    /// Of those, under way now.
    pub backend_overdue_now: u32,
    /// Seconds since the oldest backend operation under way began; 0 if none is.
    #[serde(default)]
    pub backend_oldest_s: f64,
    /// How large the backend was when that was last asked; 0 if it was not.
    #[serde(default)]
    pub backend_size_bytes: u64,
    /// Writes, trims and zeroes that had to wait for an invalidation record on the cache device.
    pub invalidation_waits: u64,
    /// Those to cached blocks that waited for none, in active regions.
    #[serde(default)]
    pub region_writes: u64,
    /// Blocks dropped by the operator's word.
    pub invalidated_blocks: u64,
    /// Blocks that had earned flash while its fill limit let nothing in.
    pub capped_blocks: u64,
    /// Requests refused as invalid.
    pub refused: u64,
    /// Its blocks in the cache now.
    pub cached_blocks: u64,
    /// Latency of guest requests in us, from arrival to reply.
    pub latency_us: LatencyReport,
    /// What the write log holds of it; absent unless it is in write-back mode, or has been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_back: Option<WriteBackReport>,
    /// What it reads from a parent volume's cache; absent unless it is a clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentReport>,
    /// Which of two hosts serves it; absent unless it may move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationReport>,
    /// Where its extents lie; absent unless it is a hybrid volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid: Option<HybridReport>,
}

/// The parent of a volume that is a clone. What is read from it is counted there, hits and misses, and not
/// among the clone's own reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParentReport {
    /// The parent volume.
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

impl From<&ParentStatus> for ParentReport {
    fn from(status: &ParentStatus) -> Self {
        let ParentStatus { name, reason, .. } = status;
        let &ParentStatus { reads, blocks, repeated, objects, own_objects, .. } = status;
        let (name, reason) = (name.clone(), reason.clone());
        Self { name, reason, reads, blocks, repeated, objects, own_objects }
    }
}

/// A volume that may move between two hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MigrationReport {
    /// What this host is.
    pub role: MigrationRole,
    /// `http://HOST:PORT` of the other daemon.
    pub peer: String,
    /// The highest epoch known: counts the owners.
    pub epoch: u64,
    /// Times it was handed over to the other host since this daemon started.
    pub given: u64,
    /// Times it was taken from there.
    pub taken: u64,
    /// Seconds that guests waited the last time it was taken.
    pub last_take_s: f64,
    /// Guests' requests that wait for the volume now.
    pub held: u64,
    /// Why it could not be taken or handed over the last time, or empty.
    pub reason: String,
    /// What has come along from the other host's cache; absent if nothing was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmReport>,
}

/// Blocks that are fetched from the other host's cache after a volume was taken from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WarmReport {
    /// Blocks that the other host has named, hottest first.
    pub listed: u64,
    /// Of those, blocks that it has sent and that were offered to the cache here.
    pub fetched: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Blocks that were not taken: written here since, not in the other cache any more, or damaged.
    pub skipped: u64,
    /// Why it has ended; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

impl From<&WarmStatus> for WarmReport {
    fn from(status: &WarmStatus) -> Self {
        let WarmStatus { listed, fetched, bytes, skipped, ended, .. } = status.clone();
        Self { listed, fetched, bytes, skipped, ended }
    }
}

impl From<&MigrationStatus> for MigrationReport {
    fn from(status: &MigrationStatus) -> Self {
        Self {
            role: status.role,
            peer: format!("http://{}", status.peer),
            epoch: status.epoch,
            given: status.given,
            taken: status.taken,
            last_take_s: status.last_take.as_secs_f64(),
            held: status.held,
            reason: status.reason.clone(),
            warm: status.warm.as_ref().map(WarmReport::from),
        }
    }
}

/// What the write log holds of a volume. In write-back mode the counters above tell what the log has
/// asked of the cache and the backend, the latencies what guests saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WriteBackReport {
    /// Bytes of the log in use for writes that the backend does not have yet.
    pub dirty_bytes: u64,
    /// Seconds since the oldest of them.
    pub dirty_age_s: f64,
    /// Flushes of the guest, and what followed the last one, that the backend does not have yet.
    pub epochs: u64,
    /// Bytes written to the backend since the start.
    pub destaged_bytes: u64,
    /// Requests that took.
    pub destaged_writes: u64,
    /// How many of them may be under way at a time; absent: as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destage_at_most: Option<u32>,
    /// Why.
    #[serde(default)]
    pub destage_pace: DestagePace,
    /// Some of the writes are damaged: the volume fails its requests.
    pub damaged: bool,
    /// It is on its way out of write-back mode.
    pub leaving: bool,
    /// When its writes are acknowledged.
    #[serde(default)]
    pub ack: Ack,
    /// Path of its claim.
    pub claim: String,
    /// Its write group; absent if it is in none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub write_group: String,
    /// The other volume of its write group whose backend must have earlier writes first; absent: nothing waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// Why so many requests of a destage may be under way at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DestagePace {
    /// The destage is not paced.
    #[default]
    Off,
    /// No guest reads from the backend.
    Idle,
    /// The log fills up, or something waits for the destage.
    Pressed,
    /// `rpo_s` needs so many.
    Rpo,
    /// Guests read from the backend again: it begins with one.
    Begun,
    /// Reads of the backend are as quick as usual: one more every 100 ms.
    Quick,
    /// They have become slow: half as many.
    Slow,
}

impl From<PaceReason> for DestagePace {
    fn from(reason: PaceReason) -> Self {
        match reason {
            PaceReason::Off => Self::Off,
            PaceReason::Idle => Self::Idle,
            PaceReason::Pressed => Self::Pressed,
            PaceReason::Rpo => Self::Rpo,
            PaceReason::Begun => Self::Begun,
            PaceReason::Quick => Self::Quick,
            PaceReason::Slow => Self::Slow,
        }
    }
}

/// A volume waits: its back end can't be opened, or its address can't be used, as `reason` says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitingReport {
    /// Times it was tried in vain.
    pub tries: u32,
    /// For how long, in seconds.
    pub since_s: f64,
    /// Seconds until the next try; `null` while one is under way.
    pub next_try_s: Option<f64>,
}

/// Blocks that did not use the cache, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BypassedReport {
    /// Part of a long sequential run.
    pub sequential: u64,
    /// A single large request.
    pub large: u64,
    /// Mode pass-through.
    pub pass_through: u64,
    /// A write in mode write-around.
    pub write_around: u64,
    /// A write not worth keeping, by this volume's history.
    pub write_not_reused: u64,
    /// No free buffer or segment at that moment.
    pub no_space: u64,
    /// The index was still being loaded.
    pub loading: u64,
    /// The cache device is not in use.
    pub no_device: u64,
}

/// What became of the blocks of an earlier run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum WarmthReport {
    /// There were none.
    New,
    /// They are served again.
    Kept {
        /// How many.
        blocks: u64,
    },
    /// They are served again once the index is loaded.
    Loading,
    /// Some are served again, others were forgotten.
    Partly {
        /// How many are served.
        blocks: u64,
        /// How many were forgotten.
        dropped: u64,
        /// Why.
        reason: String,
    },
    /// They were forgotten.
    Dropped {
        /// How many.
        blocks: u64,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for WarmthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |blocks: &u64| show_size(blocks * BLOCK_BYTES);
        match self {
            Self::New => f.write_str("nothing is cached of it yet"),
            Self::Kept { blocks } => write!(f, "kept {} from the last run", size(blocks)),
            Self::Loading => f.write_str("what the last run left is being loaded"),
            Self::Partly { blocks: 0, dropped: 0, reason } => {
                write!(f, "a part of what the last run left is dropped: {reason}")
            }
            Self::Partly { blocks, dropped, reason } => {
                let (kept, dropped) = (size(blocks), size(dropped));
                write!(f, "kept {kept} from the last run, dropped {dropped}: {reason}")
            }
            Self::Dropped { blocks: 0, reason } => {
                write!(f, "what the last run left is dropped: {reason}")
            }
            Self::Dropped { blocks, reason } => {
                write!(f, "dropped {} from the last run: {reason}", size(blocks))
            }
        }
    }
}

impl VolumeReport {
    /// Makes the report of one volume's raw status.
    pub fn new(status: &VolumeStatus) -> Self {
        let (config, counters) = (&status.config, &status.counters);
        Self {
            name: config.name.clone(),
            mode: config.mode,
            state: status.state,
            reason: status.reason.clone(),
            waiting: status.waiting.map(Into::into),
            backend: config.backend.clone(),
            nbd: config.nbd.as_ref().map(ToString::to_string).unwrap_or_default(),
            vhost_user: config.vhost_user.iter().map(|path| path.display().to_string()).collect(),
            size_bytes: status.size_bytes,
            read_only: config.read_only,
            shared: config.shared,
            exclusive: config.exclusive,
            share_min: show_share(config.share_min),
            share_max: show_share(config.share_max),
            share_blocks: counters.share_blocks,
            auto_mode: config.auto_mode,
            bypass_sequential_bytes: config.bypass_sequential_bytes,
            bypass_large_bytes: config.bypass_large_bytes,
            fill_limit_bytes: config.fill_limit_bytes,
            backend_timeout_s: config.backend_timeout.as_secs_f64(),
            iops_reservation: config.qos.reservation_iops,
            iops_limit: config.qos.limit_iops.unwrap_or(0),
            iops_weight: config.qos.weight,
            guest_iops_limit: config.guest_iops_limit,
            guest_bytes_limit: config.guest_bytes_limit,
            guest_waited: status.guest_waited,
            qos: status.qos.as_ref().map(Into::into),
            connections: status.connections,
            warmth: status.warmth.into(),
            reads: counters.reads,
            writes: counters.writes,
            flushes: counters.flushes,
            trims: counters.trims,
            zeroes: counters.zeroes,
            blocks_read: counters.blocks_read,
            blocks_written: counters.blocks_written,
            read_bytes: status.latencies.read.bytes,
            write_bytes: status.latencies.write.bytes,
            read_hits: counters.read_hits,
            read_hits_ram: counters.read_hits_ram,
            read_hits_log: status.read_hits_log,
            misses: counters.misses,
            partial_hits: counters.partial_hits,
            write_hits: counters.write_hits,
            bypassed: counters.bypassed.into(),
            backend_reads: counters.backend_reads,
            backend_writes: counters.backend_writes,
            backend_flushes: counters.backend_flushes,
            backend_read_bytes: counters.backend_read_bytes,
            backend_write_bytes: counters.backend_write_bytes,
            backend_errors: counters.backend_errors,
            backend_overdue: counters.backend_overdue,
            backend_overdue_now: status.overdue_now,
            backend_oldest_s: status.oldest.map_or(0.0, tenths),
            backend_size_bytes: status.backend_size_bytes,
            invalidation_waits: counters.invalidation_waits,
            region_writes: counters.region_writes,
            invalidated_blocks: counters.invalidated_blocks,
            capped_blocks: counters.capped_blocks,
            refused: counters.refused,
            cached_blocks: counters.cached_blocks,
            latency_us: (&status.latencies).into(),
            parent: status.parent.as_ref().map(ParentReport::from),
            migration: status.migration.as_ref().map(MigrationReport::from),
            hybrid: status.hybrid.as_ref().map(HybridReport::from),
            write_back: status.write_back.as_ref().map(Into::into),
        }
    }
}

impl From<&WriteBackStatus> for WriteBackReport {
    fn from(status: &WriteBackStatus) -> Self {
        Self {
            dirty_bytes: status.dirty_bytes,
            dirty_age_s: tenths(status.dirty_age),
            epochs: status.epochs,
            destaged_bytes: status.destaged_bytes,
            destaged_writes: status.destaged_writes,
            destage_at_most: status.pace.at_most,
            destage_pace: status.pace.reason.into(),
            damaged: status.damaged,
            leaving: status.leaving,
            ack: status.ack,
            claim: status.claim.clone(),
            write_group: status.group.clone(),
            waits_for: status.waits_for.clone(),
        }
    }
}

impl From<Waiting> for WaitingReport {
    fn from(waiting: Waiting) -> Self {
        Self {
            tries: waiting.tries,
            since_s: tenths(waiting.since),
            next_try_s: waiting.next_try.map(tenths),
        }
    }
}

/// Seconds to a tenth.
pub(super) fn tenths(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}

impl From<Bypassed> for BypassedReport {
    fn from(counts: Bypassed) -> Self {
        let Bypassed {
            sequential,
            large,
            pass_through,
            write_around,
            write_not_reused,
            no_space,
            loading,
            no_device,
        } = counts;
        Self {
            sequential,
            large,
            pass_through,
            write_around,
            write_not_reused,
            no_space,
            loading,
            no_device,
        }
    }
}

impl From<Warmth> for WarmthReport {
    fn from(warmth: Warmth) -> Self {
        match warmth {
            Warmth::New => Self::New,
            Warmth::Warm { blocks } => Self::Kept { blocks },
            Warmth::Loading => Self::Loading,
            Warmth::Partly { blocks, dropped, reason } => {
                Self::Partly { blocks, dropped, reason: words_of(reason).to_owned() }
            }
            Warmth::Dropped { blocks, reason } => {
                Self::Dropped { blocks, reason: words_of(reason).to_owned() }
            }
        }
    }
}

const fn words_of(reason: DropReason) -> &'static str {
    match reason {
        DropReason::WrittenWithoutCache => {
            "the volume may have been written in a run without this cache device"
        }
        DropReason::BackendChanged => "the backend was changed, replaced or resized",
        DropReason::NoProof => {
            "nothing proves that the backend was not changed, and exclusive is not set"
        }
    }
}
