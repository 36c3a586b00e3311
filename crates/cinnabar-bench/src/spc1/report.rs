//! What is told of a run: the contract of `--json`. Keys are only ever added.

use super::Plan;
use crate::drive::Elapsed;
use crate::latency::LatencySummary;
use crate::meter::{Meter, Period, Snapshot};
use crate::target::Target;
use cinnabar_trace::generate::spc1::{BLOCK_BYTES, Mix, STREAMS, Settings};
use serde::Serialize;
use std::time::Duration;

pub(super) const VERSION: u32 = 1;

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of this form.
    pub version: u32,
    /// `spc1`.
    pub benchmark: &'static str,
    /// Business scaling units.
    pub bsu: u32,
    /// Groups of 100 units.
    pub contexts: u32,
    /// `pblio` or `spc1`.
    pub mix: &'static str,
    /// What gives the same I/Os again.
    pub seed: u64,
    /// Sizes of ASU1 to ASU3 in bytes.
    pub asu_bytes: [u64; 3],
    /// Asked for, in s.
    pub length_s: f64,
    /// From the start to the last completion, in s.
    pub elapsed_s: f64,
    /// I/Os done.
    pub ios: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// From the scheduled time.
    pub latency: LatencySummary,
    pub read_latency: LatencySummary,
    pub write_latency: LatencySummary,
    /// From the submission: what pblio tells.
    pub dispatched_latency: LatencySummary,
    /// The mean is at most 30 ms.
    pub within_30_ms: bool,
    /// CPU time of this process for an I/O, in us.
    pub cpu_us_per_io: f64,
    /// The eight streams.
    pub streams: Vec<StreamReport>,
    /// What reached the storage.
    pub server: ServerReport,
    /// What the cache did; `null` without one.
    pub cache: Option<CacheReport>,
    /// Rows of time.
    pub periods: Vec<Period>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StreamReport {
    /// Its name in the paper.
    pub name: &'static str,
    /// Its I/Os of all.
    pub share: f64,
    /// Reads of its I/Os.
    pub read_share: f64,
    /// Mean length in 4 KiB blocks.
    pub mean_blocks: f64,
    /// From the scheduled time.
    pub latency: LatencySummary,
}

/// What reached the storage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ServerReport {
    /// Reads that reached the storage, of all ASUs.
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads that were asked for.
    pub asked_reads: u64,
    /// Writes that were asked for.
    pub asked_writes: u64,
    /// Share of the reads that did not reach the storage.
    pub reads_cut: f64,
    /// Share of all I/Os that did not reach the storage.
    pub all_cut: f64,
}

/// What the cache did. Counts are of 4 KiB blocks of ASU1 and ASU2, in pblio's words.
#[derive(Clone, Debug, Serialize)]
pub struct CacheReport {
    /// File or device.
    pub device: String,
    /// `New` or `Loaded`.
    pub began: &'static str,
    /// Blocks that fit on flash.
    pub capacity_blocks: u64,
    /// Blocks cached at the end.
    pub cached_blocks: u64,
    /// Blocks read.
    pub reads: u64,
    /// Of them found.
    pub read_hits: u64,
    /// Blocks written.
    pub invalidations: u64,
    /// Of them found.
    pub invalidate_hits: u64,
    /// Blocks that entered the cache.
    pub insertions: u64,
    /// Blocks that left flash for others.
    pub evictions: u64,
    /// Read hits in probation: pblio's RAM hits.
    pub ram_hits: u64,
    /// Read hits in segments that were not on flash yet: pblio's buffer hits.
    pub buffer_hits: u64,
    /// Read hits on flash.
    pub storage_hits: u64,
    /// How often the log went round, in times.
    pub wraps: f64,
    /// Blocks read from a segment to be reinserted: pblio's segment reads.
    pub reinserted_blocks: u64,
    /// Mean time of a read of the cache device, in us.
    pub mean_read_us: f64,
    /// Mean time of a write to the cache device, in us.
    pub mean_write_us: f64,
    /// Bytes written to the cache device.
    pub flash_written_bytes: u64,
    /// Reads and writes of the cache device that failed, and blocks whose checksum was wrong.
    pub device_errors: u64,
    /// RAM of index and descriptors a block of capacity, in bytes.
    pub ram_bytes_per_block: f64,
    /// RAM of the ghost a block of capacity, in bytes.
    pub ghost_bytes_per_block: f64,
    /// RAM of data buffers (probation, segments being filled), in bytes.
    pub buffer_bytes: u64,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        settings: &Settings,
        target: &Target,
        meter: &Meter,
        periods: Vec<Period>,
        elapsed: Elapsed,
        cpu: Duration,
    ) -> Self {
        let ios = meter.scheduled.count();
        // Drawn for so long, done a little later: the rate is that of what was asked for.
        let seconds = elapsed.all.max(plan.length).as_secs_f64();
        let now = meter.snapshot(target);
        let latency = meter.summary();
        Self {
            version: VERSION,
            benchmark: "spc1",
            bsu: settings.bsu,
            contexts: settings.contexts(),
            mix: mix_name(settings.mix),
            seed: settings.seed,
            asu_bytes: settings.asu_blocks.map(|blocks| blocks * BLOCK_BYTES),
            length_s: plan.length.as_secs_f64(),
            elapsed_s: elapsed.all.as_secs_f64(),
            ios,
            iops: ios as f64 / seconds,
            bytes_per_s: meter.bytes as f64 / seconds,
            latency,
            read_latency: meter.reads.summary(),
            write_latency: meter.writes.summary(),
            dispatched_latency: meter.dispatched.summary(),
            within_30_ms: latency.mean_ms <= super::LIMIT.as_secs_f64() * 1e3,
            cpu_us_per_io: cpu.as_secs_f64() * 1e6 / ios.max(1) as f64,
            streams: streams(meter),
            server: ServerReport::new(meter, &now),
            cache: plan.cache.as_ref().and_then(|options| {
                CacheReport::new(
                    options.device.display().to_string(),
                    target.began_empty().unwrap_or(true),
                    meter.begun(),
                    &now,
                )
            }),
            periods,
        }
    }
}

pub(super) fn mix_name(mix: Mix) -> &'static str {
    match mix {
        Mix::Pblio => "pblio",
        Mix::Spc1 => "spc1",
    }
}

fn streams(meter: &Meter) -> Vec<StreamReport> {
    let all = meter.scheduled.count().max(1) as f64;
    let rows = STREAMS.iter().zip(&meter.streams);
    rows.map(|(row, stream)| {
        let ios = stream.latencies.count().max(1) as f64;
        StreamReport {
            name: row.name,
            share: stream.latencies.count() as f64 / all,
            read_share: stream.reads as f64 / ios,
            mean_blocks: stream.bytes as f64 / BLOCK_BYTES as f64 / ios,
            latency: stream.latencies.summary(),
        }
    })
    .collect()
}

impl ServerReport {
    /// From the counters of a play.
    pub fn new(meter: &Meter, now: &Snapshot) -> Self {
        let server = now.server - meter.begun().server;
        let (asked_reads, asked_writes) = (meter.reads.count(), meter.writes.count());
        // More may reach it than was asked for: an I/O over two places, a partial hit.
        let cut = |reached: u64, asked: u64| match asked {
            0 => 0.0,
            asked => 1.0 - reached as f64 / asked as f64,
        };
        Self {
            reads: server.reads,
            writes: server.writes,
            read_bytes: server.read_bytes,
            write_bytes: server.write_bytes,
            asked_reads,
            asked_writes,
            reads_cut: cut(server.reads, asked_reads),
            all_cut: cut(server.reads + server.writes, asked_reads + asked_writes),
        }
    }
}

impl CacheReport {
    /// From the counters at the beginning and now; nothing without a cache.
    pub fn new(
        device: String,
        began_empty: bool,
        before: &Snapshot,
        now: &Snapshot,
    ) -> Option<Self> {
        let (now, before) = (now.cache?, before.cache?);
        let (volumes, old) = (now.volumes, before.volumes);
        let (cache, old_cache) = (now.cache, before.cache);
        let read_hits = volumes.read_hits - old.read_hits;
        let in_ram = volumes.read_hits_ram - old.read_hits_ram;
        let buffer_hits = volumes.read_hits_staged - old.read_hits_staged;
        let freed = cache.segments_freed - old_cache.segments_freed;
        let mean_us = |ns: u64, count: u64| ns as f64 / count.max(1) as f64 / 1e3;
        let (times, old_times) = (now.device, before.device);
        let a_block = |bytes: u64| bytes as f64 / cache.capacity_blocks.max(1) as f64;
        Some(Self {
            device,
            began: if began_empty { "New" } else { "Loaded" },
            capacity_blocks: cache.capacity_blocks,
            cached_blocks: cache.cached_blocks,
            reads: volumes.blocks_read - old.blocks_read,
            read_hits,
            invalidations: volumes.blocks_written - old.blocks_written,
            invalidate_hits: volumes.write_hits - old.write_hits,
            insertions: cache.fills - old_cache.fills,
            evictions: cache.evicted_blocks - old_cache.evicted_blocks,
            ram_hits: in_ram - buffer_hits,
            buffer_hits,
            storage_hits: read_hits - in_ram,
            wraps: freed as f64 / now.segments.max(1) as f64,
            reinserted_blocks: cache.reinserted_blocks - old_cache.reinserted_blocks,
            mean_read_us: mean_us(times.read_ns - old_times.read_ns, times.reads - old_times.reads),
            mean_write_us: mean_us(
                times.write_ns - old_times.write_ns,
                times.writes - old_times.writes,
            ),
            device_errors: (cache.device_errors + cache.checksum_failures)
                - (old_cache.device_errors + old_cache.checksum_failures),
            flash_written_bytes: cache.flash_written_bytes - old_cache.flash_written_bytes,
            ram_bytes_per_block: a_block(now.ram.address_map + now.ram.descriptors),
            ghost_bytes_per_block: a_block(now.ram.ghost),
            buffer_bytes: now.ram.buffers,
        })
    }
}

/// CPU time that this process has used, user and system.
pub(super) fn cpu_time() -> Duration {
    let clock = rustix::time::ClockId::ProcessCPUTime;
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
