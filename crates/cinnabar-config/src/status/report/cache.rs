//! The cache in the status.

use super::health::{HealthReport, LoadedReport};
use super::volume::tenths;
use crate::status::raw::{CacheStatus, LogHalfState, LogHalfStatus, State, WriteLogStatus};
use cinnabar_engine::seam::counters::{Admitted, CacheCounters, RamBytes, Trial, Trials};
use cinnabar_engine::seam::units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CacheReport {
    /// Path of the cache device.
    pub device: String,
    /// How it is.
    pub state: State,
    /// Why it is not serving, or empty.
    pub reason: String,
    /// Whether the cache device is in use, and what became of what was on it.
    pub health: HealthReport,
    /// What was found on the device at the start; absent until all of it is loaded.
    pub loaded: Option<LoadedReport>,
    /// How I/O is done.
    pub io: String,
    /// Logical shards.
    pub shards: u32,
    /// Data threads that serve them.
    pub threads: usize,
    /// Blocks that fit on flash; of a cache that is getting another size, at that size.
    pub capacity_blocks: u64,
    /// Bytes of the device that are used.
    #[serde(default)]
    pub size_bytes: u64,
    /// The most that the device was made for.
    #[serde(default)]
    pub size_max_bytes: u64,
    /// A resize under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resizing: Option<ResizingReport>,
    /// Why the last resize has failed, or empty.
    #[serde(default)]
    pub resize_failed: String,
    /// Blocks cached now, RAM included; not those of volumes that were dropped.
    pub cached_blocks: u64,
    /// Of those, in RAM only.
    pub ram_blocks: u64,
    /// Bytes written to the cache device, metadata included.
    pub flash_written_bytes: u64,
    /// Blocks that entered the cache.
    pub fills: u64,
    /// Blocks written to flash, by what earned it.
    pub admitted: AdmittedReport,
    /// What other ways of admission would have brought.
    #[serde(default)]
    pub trials: TrialsReport,
    /// Blocks that left flash because room was needed.
    pub evicted_blocks: u64,
    /// Blocks that left RAM unused, without ever being written to flash.
    pub rejected_blocks: u64,
    /// Blocks that had earned flash while a budget of SSD writes let nothing in.
    #[serde(default)]
    pub throttled_blocks: u64,
    /// That is so now.
    #[serde(default)]
    pub throttled: bool,
    /// Read misses of blocks that had left, or had been refused, not long ago.
    pub returned_blocks: u64,
    /// Blocks of which RAM has some sectors, for they were written in part; not among `cached_blocks`.
    #[serde(default)]
    pub partial_blocks: u64,
    /// Read blocks that were served from such sectors.
    #[serde(default)]
    pub partials_read: u64,
    /// Such blocks that became whole by further writes.
    #[serde(default)]
    pub partials_completed: u64,
    /// Such blocks that were given up because there were too many.
    #[serde(default)]
    pub partials_dropped: u64,
    /// Blocks copied forward when their segment was freed.
    pub reinserted_blocks: u64,
    /// Segments freed.
    pub segments_freed: u64,
    /// Blocks read from flash whose checksum was wrong.
    pub checksum_failures: u64,
    /// Reads and writes of the cache device that failed.
    pub device_errors: u64,
    /// Records appended to the journal: invalidations and the rest.
    pub journal_records: u64,
    /// Durable writes of the journal.
    pub journal_writes: u64,
    /// Times its live records were rewritten, to make room.
    pub journal_rebases: u64,
    /// Active regions of 1 MiB: writes to cached blocks in them wait for no record.
    #[serde(default)]
    pub active_regions: u64,
    /// Cached blocks in active regions at most: what a crash now would cost.
    #[serde(default)]
    pub doubt_blocks: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Times the device was given up because it failed, hung or was cut short.
    pub device_losses: u64,
    /// Times it was exchanged by command.
    #[serde(default)]
    pub device_replacements: u64,
    /// Blocks of volumes that are not attached, kept for their return.
    #[serde(default)]
    pub detached_blocks: u64,
    /// RAM by part.
    pub ram_bytes: RamReport,
    /// Index, descriptors and ghost, in bytes for each block of the largest size that the device was
    /// made for: they have their size from the start.
    pub ram_bytes_per_block: f64,
    /// The write log; absent if none is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_log: Option<WriteLogReport>,
}

/// A resize of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResizingReport {
    /// The size it is getting, in bytes of the device.
    pub to_bytes: u64,
    /// Segments that have to be emptied, or that room has to be made for.
    pub segments: u64,
    /// Of these, done.
    pub segments_done: u64,
}

/// The write log, of volumes in write-back mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WriteLogReport {
    /// Path of its device.
    pub device: String,
    /// Why it can't be used, or empty.
    pub reason: String,
    /// Room for writes, in bytes.
    pub size_bytes: u64,
    /// Of that, in use.
    pub used_bytes: u64,
    /// RAM of its tables.
    pub ram_bytes: u64,
    /// Chunks of writes that were written.
    pub chunks: u64,
    /// Of those, durably: each is a commit in one write.
    pub durable_chunks: u64,
    /// Flushes of its device: the other commits.
    pub flushes: u64,
    /// Durable records of what the back ends have.
    pub records: u64,
    /// Its write memory, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<WriteMemoryReport>,
    /// Its two devices, if it is mirrored; empty if it is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub halves: Vec<LogHalfReport>,
}

/// One of the two devices of a mirrored write log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogHalfReport {
    /// Its path.
    pub device: String,
    /// What it holds.
    pub state: LogHalfState,
    /// Why it is missing, as far as is known, or empty.
    pub reason: String,
    /// Reads that failed there since the start.
    pub read_errors: u64,
}

/// Where writes are acknowledged from memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WriteMemoryReport {
    /// Path of the file.
    pub path: String,
    /// Room for writes, in bytes.
    pub size_bytes: u64,
    /// Of that, in use: the log's device does not have these writes yet.
    pub used_bytes: u64,
    /// Seconds since the oldest of them.
    pub age_s: f64,
    /// Bytes that were written again there: the older ones were never written to the SSD.
    pub absorbed_bytes: u64,
}

/// Blocks written to flash, by what earned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdmittedReport {
    /// There was free room.
    pub filling: u64,
    /// Used again while in RAM.
    pub referenced: u64,
    /// Missed again soon after it had left.
    pub ghost: u64,
    /// Plain CLOCK admits everything.
    pub all: u64,
    /// Written out by a clean stop.
    pub clean_stop: u64,
}

/// Estimates by small simulations of sampled blocks, in blocks of the whole cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrialsReport {
    /// Blocks read.
    pub reads: u64,
    /// Of those, not cached.
    pub read_misses: u64,
    /// Times that a shard took another way.
    pub changes: u64,
    /// As thrifty, and what comes back waits in probation, too.
    pub closed: TrialReport,
    /// Through probation; written blocks by their volume's history.
    pub thrifty: TrialReport,
    /// Through probation, reads and writes alike.
    pub probation: TrialReport,
    /// Everything.
    pub open: TrialReport,
}

/// What one way of admission would have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrialReport {
    /// Shards that take it now.
    pub shards: u64,
    /// Blocks read that were not cached.
    pub read_misses: u64,
    /// Blocks written to flash, without metadata and what is reinserted.
    pub flash_writes: u64,
}

/// RAM by part, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RamReport {
    /// Index.
    pub address_map: u64,
    /// Keys, reference bits, checksums.
    pub descriptors: u64,
    /// What was cached a while ago.
    pub ghost: u64,
    /// Data on their way to flash.
    pub buffers: u64,
    /// The rest of the engine.
    pub other: u64,
    /// Buffers and queues of front and back ends.
    pub edges: u64,
}

impl CacheReport {
    pub(super) fn new(status: &CacheStatus) -> Self {
        let counters = &status.counters;
        let RamBytes { address_map, descriptors, ghost, buffers, other } = status.ram;
        let edges = status.edge_ram_bytes;
        Self {
            device: status.device.display().to_string(),
            state: status.state,
            reason: status.reason.clone(),
            health: status.health.into(),
            loaded: status.loaded.map(Into::into),
            io: status.io.clone(),
            shards: status.shards,
            threads: status.threads,
            capacity_blocks: counters.capacity_blocks,
            size_bytes: status.size.bytes,
            size_max_bytes: status.size.bytes_max,
            resizing: resizing(status),
            resize_failed: status.size.failed.clone(),
            cached_blocks: counters.cached_blocks,
            ram_blocks: counters.ram_blocks,
            flash_written_bytes: counters.flash_written_bytes,
            fills: counters.fills,
            admitted: counters.admitted.into(),
            trials: counters.trials.into(),
            evicted_blocks: counters.evicted_blocks,
            rejected_blocks: counters.rejected_blocks,
            throttled_blocks: counters.throttled_blocks,
            throttled: status.throttled,
            returned_blocks: counters.returned_blocks,
            partial_blocks: counters.partial_blocks,
            partials_read: counters.partials_read,
            partials_completed: counters.partials_completed,
            partials_dropped: counters.partials_dropped,
            reinserted_blocks: counters.reinserted_blocks,
            segments_freed: counters.segments_freed,
            checksum_failures: counters.checksum_failures,
            device_errors: counters.device_errors,
            journal_records: counters.journal_records,
            journal_writes: counters.journal_writes,
            journal_rebases: counters.journal_rebases,
            active_regions: counters.active_regions,
            doubt_blocks: counters.doubt_blocks,
            checkpoints: counters.checkpoints,
            device_losses: status.losses,
            device_replacements: status.replacements,
            detached_blocks: status.detached_blocks,
            ram_bytes: RamReport { address_map, descriptors, ghost, buffers, other, edges },
            ram_bytes_per_block: match counters.capacity_blocks.max(status.size.blocks_max) {
                0 => 0.0,
                blocks => (address_map + descriptors + ghost) as f64 / blocks as f64,
            },
            write_log: status.write_log.as_ref().map(write_log),
        }
    }
}

fn write_log(log: &WriteLogStatus) -> WriteLogReport {
    WriteLogReport {
        device: log.device.display().to_string(),
        reason: log.reason.clone(),
        size_bytes: log.size_bytes,
        used_bytes: log.used_bytes,
        ram_bytes: log.ram_bytes,
        chunks: log.counters.chunks,
        durable_chunks: log.counters.durable_chunks,
        flushes: log.counters.flushes,
        records: log.counters.records,
        memory: log.memory.as_ref().map(|memory| WriteMemoryReport {
            path: memory.path.display().to_string(),
            size_bytes: memory.size_bytes,
            used_bytes: memory.used_bytes,
            age_s: tenths(memory.age),
            absorbed_bytes: log.counters.absorbed * BLOCK_BYTES,
        }),
        halves: log.halves.iter().map(half).collect(),
    }
}

fn resizing(status: &CacheStatus) -> Option<ResizingReport> {
    let CacheCounters { resize_segments, resize_segments_done, .. } = status.counters;
    status.size.resizing_to.map(|to_bytes| ResizingReport {
        to_bytes,
        segments: resize_segments,
        segments_done: resize_segments_done,
    })
}

fn half(half: &LogHalfStatus) -> LogHalfReport {
    LogHalfReport {
        device: half.device.display().to_string(),
        state: half.state,
        reason: half.reason.clone(),
        read_errors: half.read_errors,
    }
}

impl From<Trials> for TrialsReport {
    fn from(trials: Trials) -> Self {
        let Trials { reads, read_misses, changes, closed, thrifty, probation, open } = trials;
        let of = |Trial { shards, read_misses, flash_writes }| TrialReport {
            shards,
            read_misses,
            flash_writes,
        };
        Self {
            reads,
            read_misses,
            changes,
            closed: of(closed),
            thrifty: of(thrifty),
            probation: of(probation),
            open: of(open),
        }
    }
}

impl From<Admitted> for AdmittedReport {
    fn from(counts: Admitted) -> Self {
        let Admitted { filling, referenced, ghost, all, clean_stop } = counts;
        Self { filling, referenced, ghost, all, clean_stop }
    }
}
