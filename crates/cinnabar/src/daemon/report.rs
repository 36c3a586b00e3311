//! The status as the world sees it: the contract of `status --json` and `GET /v1/status`.
//!
//! Called by the control plane, which makes it of the data plane's raw answer, and by the `status`
//! command, which reads it back. Keys are only ever added.

use super::latency::LatencySummary;
use super::messages::{CacheStatus, DataStatus, State, VolumeMode, VolumeStatus};
use crate::config::units::show_share;
use cinnabar_engine::counters::{Admitted, Bypassed, RamBytes};
use cinnabar_engine::volume::{DropReason, Warmth};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The cache.
    pub cache: CacheReport,
    /// The volumes, in the order they were added.
    pub volumes: Vec<VolumeReport>,
}

/// The cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Path of the cache device.
    pub device: String,
    /// How it is.
    pub state: State,
    /// Why it is not serving, or empty.
    pub reason: String,
    /// How I/O is done.
    pub io: String,
    /// Blocks that fit on flash.
    pub capacity_blocks: u64,
    /// Blocks cached now, RAM included.
    pub cached_blocks: u64,
    /// Of those, in RAM only.
    pub ram_blocks: u64,
    /// Bytes written to the cache device, metadata included.
    pub flash_written_bytes: u64,
    /// Blocks that entered the cache.
    pub fills: u64,
    /// Blocks written to flash, by what earned it.
    pub admitted: AdmittedReport,
    /// Blocks that left flash because room was needed.
    pub evicted_blocks: u64,
    /// Blocks that left RAM unused, without ever being written to flash.
    pub rejected_blocks: u64,
    /// Blocks copied forward when their segment was freed.
    pub carried_blocks: u64,
    /// Segments freed.
    pub segments_freed: u64,
    /// Blocks read from flash whose checksum was wrong.
    pub checksum_failures: u64,
    /// Reads and writes of the cache device that failed.
    pub device_errors: u64,
    /// RAM by part.
    pub ram_bytes: RamReport,
    /// Index, descriptors and ghost, in bytes for each block of the capacity.
    pub ram_bytes_per_block: f64,
}

/// Blocks written to flash, by what earned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// RAM by part, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its name, and that of its NBD export.
    pub name: String,
    /// What its requests do with the cache.
    pub mode: VolumeMode,
    /// How it is.
    pub state: State,
    /// Why it is not serving, or empty.
    pub reason: String,
    /// Where it lives.
    pub backend: String,
    /// Where clients find it.
    pub nbd: String,
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
    /// Sequential runs of at least so many bytes bypass the cache; 0 = never.
    pub bypass_sequential_bytes: u64,
    /// Requests of at least so many bytes bypass the cache; 0 = never.
    pub bypass_large_bytes: u64,
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
    /// Read blocks served from RAM or flash.
    pub read_hits: u64,
    /// Of those, from RAM.
    pub read_hits_ram: u64,
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
    /// Requests refused as invalid.
    pub refused: u64,
    /// Its blocks in the cache now.
    pub cached_blocks: u64,
    /// Latency of guest requests in us, from arrival to reply.
    pub latency_us: LatencyReport,
}

/// Blocks that did not use the cache, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// They were forgotten.
    Dropped {
        /// How many.
        blocks: u64,
        /// Why.
        reason: String,
    },
}

/// Latencies by operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Reads.
    pub read: OperationLatency,
    /// Writes, trims and zeroes.
    pub write: OperationLatency,
    /// Flushes.
    pub flush: OperationLatency,
}

/// Latency of one operation, in us, since the volume was added.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationLatency {
    /// Operations.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
}

impl StatusReport {
    /// Makes the report of the raw status of a cache on `device`.
    pub fn new(status: &DataStatus, device: &Path) -> Self {
        Self {
            cache: CacheReport::new(&status.cache, device),
            volumes: status.volumes.iter().map(VolumeReport::new).collect(),
        }
    }
}

impl CacheReport {
    fn new(status: &CacheStatus, device: &Path) -> Self {
        let counters = &status.counters;
        let RamBytes { address_map, descriptors, ghost, buffers, other } = status.ram;
        let edges = status.edge_ram_bytes;
        Self {
            device: device.display().to_string(),
            state: status.state,
            reason: status.reason.clone(),
            io: status.io.clone(),
            capacity_blocks: counters.capacity_blocks,
            cached_blocks: counters.cached_blocks,
            ram_blocks: counters.ram_blocks,
            flash_written_bytes: counters.flash_written_bytes,
            fills: counters.fills,
            admitted: counters.admitted.into(),
            evicted_blocks: counters.evicted_blocks,
            rejected_blocks: counters.rejected_blocks,
            carried_blocks: counters.carried_blocks,
            segments_freed: counters.segments_freed,
            checksum_failures: counters.checksum_failures,
            device_errors: counters.device_errors,
            ram_bytes: RamReport { address_map, descriptors, ghost, buffers, other, edges },
            ram_bytes_per_block: match counters.capacity_blocks {
                0 => 0.0,
                blocks => (address_map + descriptors + ghost) as f64 / blocks as f64,
            },
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
            backend: config.backend.clone(),
            nbd: config.nbd.to_string(),
            size_bytes: status.size_bytes,
            read_only: config.read_only,
            shared: config.shared,
            exclusive: config.exclusive,
            share_min: show_share(config.share_min),
            share_max: show_share(config.share_max),
            bypass_sequential_bytes: config.bypass_sequential_bytes,
            bypass_large_bytes: config.bypass_large_bytes,
            connections: status.connections,
            warmth: status.warmth.into(),
            reads: counters.reads,
            writes: counters.writes,
            flushes: counters.flushes,
            trims: counters.trims,
            zeroes: counters.zeroes,
            blocks_read: counters.blocks_read,
            blocks_written: counters.blocks_written,
            read_hits: counters.read_hits,
            read_hits_ram: counters.read_hits_ram,
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
            refused: counters.refused,
            cached_blocks: counters.cached_blocks,
            latency_us: LatencyReport {
                read: (&status.latencies.read).into(),
                write: (&status.latencies.write).into(),
                flush: (&status.latencies.flush).into(),
            },
        }
    }
}

impl From<Admitted> for AdmittedReport {
    fn from(counts: Admitted) -> Self {
        let Admitted { filling, referenced, ghost, all, clean_stop } = counts;
        Self { filling, referenced, ghost, all, clean_stop }
    }
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
            Warmth::Dropped { blocks, reason } => {
                let reason = match reason {
                    DropReason::WrittenWithoutCache => {
                        "the volume may have been written in a run without this cache device"
                    }
                    DropReason::EpochChanged => "the backend was changed, replaced or resized",
                    DropReason::NoProof => {
                        "nothing proves that the backend was not changed, and exclusive is not set"
                    }
                };
                Self::Dropped { blocks, reason: reason.to_owned() }
            }
        }
    }
}

impl From<&LatencySummary> for OperationLatency {
    fn from(summary: &LatencySummary) -> Self {
        // Two decimals: more are noise.
        let mean = (summary.mean_us() * 100.0).round() / 100.0;
        Self { count: summary.count, mean, p50: summary.p50_us, p99: summary.p99_us }
    }
}
