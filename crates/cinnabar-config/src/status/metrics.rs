//! The status as Prometheus metrics: nothing is counted twice.
//!
//! Names and meanings: `docs/guide/metrics.md`.

mod bytes;
mod hybrid;
mod qos;

use crate::status::latency::{BOUNDS_US, LatencySummary};
use crate::status::raw::{
    CacheStatus, DataStatus, Loaded, LogHalfState, LogHalfStatus, ParentStatus, State,
    VolumeStatus, WarmStatus, WriteBackStatus,
};
use cinnabar_engine::seam::counters::{Trial, Trials};
use cinnabar_engine::seam::health::Health;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// The metrics of a status as `OpenMetrics`.
///
/// # Errors
/// Never in practice: writing to a string does not fail.
pub fn render(status: DataStatus) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("cinnabar");
    registry.register_collector(Box::new(Snapshot(status)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Snapshot(DataStatus);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut out = Output(&mut encoder);
        out.single("build", "Version of the daemon.", MetricType::Info, |mut metric| {
            metric.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
        })?;
        cache(&mut out, &self.0.cache)?;
        volume_requests(&mut out, &self.0.volumes)?;
        volume_blocks(&mut out, &self.0.volumes)?;
        bytes::bytes(&mut out, &self.0.volumes)?;
        volume_backend(&mut out, &self.0.volumes)?;
        volume_state(&mut out, &self.0.volumes)?;
        write_back(&mut out, &self.0)?;
        parents(&mut out, &self.0.volumes)?;
        warm(&mut out, &self.0)?;
        hybrid::hybrid(&mut out, &self.0)?;
        qos::qos(&mut out, &self.0)?;
        latencies(&mut out, &self.0.volumes)
    }
}

fn cache_size(out: &mut Output<'_, '_>, cache: &CacheStatus) -> fmt::Result {
    out.gauge("cache_size_bytes", "Bytes of the device that are used.", cache.size.bytes)?;
    out.gauge("cache_size_max_bytes", "Most bytes of it that may be used.", cache.size.bytes_max)?;
    let resizing = u64::from(cache.size.resizing_to.is_some());
    out.gauge("cache_resizing", "1 while the cache is getting another size.", resizing)?;
    let left = cache.counters.resize_segments - cache.counters.resize_segments_done;
    out.gauge("cache_resize_left_segments", "Segments left to do for another size.", left)
}

fn cache(out: &mut Output<'_, '_>, cache: &CacheStatus) -> fmt::Result {
    let counters = &cache.counters;
    let in_bytes = |blocks: u64| blocks * BLOCK_BYTES;
    out.gauge(
        "cache_capacity_bytes",
        "Data that fits on flash.",
        in_bytes(counters.capacity_blocks),
    )?;
    cache_size(out, cache)?;
    out.gauge("cache_used_bytes", "Data cached now.", in_bytes(counters.cached_blocks))?;
    out.gauge(
        "cache_detached_bytes",
        "Data cached of volumes that are not attached.",
        in_bytes(cache.detached_blocks),
    )?;
    out.gauge("cache_probation_bytes", "Data cached in RAM only.", in_bytes(counters.ram_blocks))?;
    out.gauge("cache_partial_blocks", "Blocks written in part, in RAM.", counters.partial_blocks)?;
    out.gauge(
        "cache_healthy",
        "1 if the device works, without errors for ten minutes.",
        u64::from(well(cache.state)),
    )?;
    out.gauge("cache_throttled", "1 while the SSD's budget is spent.", u64::from(cache.throttled))?;
    let counts = [
        ("cache_flash_written_bytes", "Written, with metadata.", counters.flash_written_bytes),
        ("cache_filled_blocks", "Blocks that entered the cache.", counters.fills),
        ("cache_evicted_blocks", "Blocks that left flash for room.", counters.evicted_blocks),
        ("cache_rejected_blocks", "Blocks that left RAM unused.", counters.rejected_blocks),
        ("cache_throttled_blocks", "Blocks a budget kept off flash.", counters.throttled_blocks),
        ("cache_returned_blocks", "Misses of blocks that had left.", counters.returned_blocks),
        ("cache_partials_read", "Partial blocks read from RAM.", counters.partials_read),
        ("cache_partials_completed", "Partial blocks made whole.", counters.partials_completed),
        ("cache_partials_dropped", "Partial blocks given up for room.", counters.partials_dropped),
        ("cache_reinserted_blocks", "Blocks reinserted on eviction.", counters.reinserted_blocks),
        ("cache_freed_segments", "Segments freed.", counters.segments_freed),
        ("cache_checksum_failures", "Wrong checksums: should be 0.", counters.checksum_failures),
        ("cache_device_errors", "Failed I/O of the device: should be 0.", counters.device_errors),
        ("cache_device_losses", "Times the device failed and was given up.", cache.losses),
        ("cache_device_replacements", "Times the device was exchanged.", cache.replacements),
        ("cache_journal_records", "Records of the journal.", counters.journal_records),
        ("cache_journal_writes", "Durable writes of the journal.", counters.journal_writes),
        ("cache_journal_rebases", "Rewrites of live records.", counters.journal_rebases),
        ("cache_checkpoints", "Checkpoints completed.", counters.checkpoints),
    ];
    for (name, help, value) in counts {
        out.counter(name, help, value)?;
    }
    let doubt = "Cached blocks in active regions at most: what a crash would cost.";
    out.gauge("cache_active_regions", "Regions that are active.", counters.active_regions)?;
    out.gauge("cache_doubt_blocks", doubt, counters.doubt_blocks)?;
    let admitted = counters.admitted;
    let reasons = [
        ("filling", admitted.filling),
        ("referenced", admitted.referenced),
        ("ghost", admitted.ghost),
        ("all", admitted.all),
        ("clean_stop", admitted.clean_stop),
    ];
    let help = "Blocks written to flash, by what earned it.";
    let reasons = reasons.map(|(reason, value)| ([("reason", reason)], value));
    out.family("cache_admitted_blocks", help, MetricType::Counter, &reasons)?;
    trials(out, &counters.trials)?;
    cache_load(out, cache)?;
    ram(out, cache)
}

/// Who takes the memory.
fn ram(out: &mut Output<'_, '_>, cache: &CacheStatus) -> fmt::Result {
    let ram = cache.ram;
    let parts = [
        ("address_map", ram.address_map),
        ("descriptors", ram.descriptors),
        ("ghost", ram.ghost),
        ("buffers", ram.buffers),
        ("other", ram.other),
        ("edges", cache.edge_ram_bytes),
    ];
    let parts = parts.map(|(part, value)| ([("part", part)], value));
    out.family("ram_bytes", "RAM by part.", MetricType::Gauge, &parts)
}

/// What other ways of admission would have brought, by simulation.
fn trials(out: &mut Output<'_, '_>, trials: &Trials) -> fmt::Result {
    out.counter("cache_trial_reads", "Blocks read, by a sample.", trials.reads)?;
    out.counter("cache_trial_misses", "Of those, blocks not cached.", trials.read_misses)?;
    out.counter("cache_trial_changes", "Times that another way was taken.", trials.changes)?;
    let ways = [
        ("closed", trials.closed),
        ("thrifty", trials.thrifty),
        ("probation", trials.probation),
        ("open", trials.open),
    ];
    let of = |value: fn(Trial) -> u64| ways.map(|(way, trial)| ([("way", way)], value(trial)));
    let mut counter = |name, help, value| out.family(name, help, MetricType::Counter, &of(value));
    counter("cache_trial_read_misses", "What a way would have missed.", |t| t.read_misses)?;
    counter("cache_trial_flash_writes", "What a way would have written.", |t| t.flash_writes)?;
    let shards = of(|trial| trial.shards);
    out.family("cache_trial_shards", "Shards that take this way now.", MetricType::Gauge, &shards)
}

/// What the start found. One series for each state, 1 where it is: `cache_health{state}`.
fn cache_load(out: &mut Output<'_, '_>, cache: &CacheStatus) -> fmt::Result {
    let states = [
        ("opening", matches!(cache.health, Health::Opening)),
        ("loading", matches!(cache.health, Health::Loading { .. })),
        ("serving", matches!(cache.health, Health::Serving)),
        ("pass_through", matches!(cache.health, Health::PassThrough(_))),
        ("closed", matches!(cache.health, Health::Closed)),
    ];
    let states = states.map(|(state, is)| ([("state", state)], u64::from(is)));
    out.family("cache_health", "1 for the state it is in.", MetricType::Gauge, &states)?;
    let (pages, of) = match cache.health {
        Health::Loading { pages, of } => (pages, of),
        _ => (0, 0),
    };
    out.gauge("cache_loading_pages", "Pages of the index read, while it is loaded.", pages)?;
    out.gauge("cache_loading_pages_expected", "Pages of the index to be read.", of)?;
    let Some(Loaded { report, took }) = cache.loaded else { return Ok(()) };
    out.single(
        "cache_load_seconds",
        "Seconds from opening the device to the whole index.",
        MetricType::Gauge,
        |mut metric| metric.encode_gauge(&took.as_secs_f64()),
    )?;
    for (name, help, value) in [
        ("cache_loaded_blocks", "Blocks found by the start.", report.blocks),
        ("cache_replayed_blocks", "Of those, since the checkpoint.", report.replayed_blocks),
        ("cache_doubtful_blocks", "Dropped: in active regions.", report.doubtful_blocks),
        ("cache_unflushed_blocks", "Not believed: no flush covers them.", report.unflushed_blocks),
        (
            "cache_overwritten_blocks",
            "Blocks dropped: an invalidation record names them.",
            report.overwritten_blocks,
        ),
        ("cache_damaged_pages", "Pages of metadata that were damaged.", report.damaged_pages),
    ] {
        out.gauge(name, help, value)?;
    }
    Ok(())
}

fn volume_requests(out: &mut Output<'_, '_>, volumes: &[VolumeStatus]) -> fmt::Result {
    let mut counter = |name, help, value: &dyn Fn(&VolumeStatus) -> u64| {
        out.by_volume(name, help, MetricType::Counter, volumes, value)
    };
    counter("volume_reads", "Read requests.", &|volume| volume.counters.reads)?;
    counter("volume_writes", "Write requests.", &|volume| volume.counters.writes)?;
    counter("volume_flushes", "Flush requests.", &|volume| volume.counters.flushes)?;
    counter("volume_trims", "Trim requests.", &|volume| volume.counters.trims)?;
    counter("volume_zeroes", "Write-zeroes requests.", &|volume| volume.counters.zeroes)?;
    counter("volume_refused", "Requests refused as invalid.", &|volume| volume.counters.refused)?;
    counter(
        "volume_invalidation_waits",
        "Writes that waited for an invalidation record.",
        &|volume| volume.counters.invalidation_waits,
    )?;
    counter("volume_region_writes", "Writes to cached blocks that waited for none.", &|volume| {
        volume.counters.region_writes
    })?;
    counter("volume_partial_hits", "Read requests with hits and misses.", &|volume| {
        volume.counters.partial_hits
    })
}

fn volume_blocks(out: &mut Output<'_, '_>, volumes: &[VolumeStatus]) -> fmt::Result {
    let mut counter = |name, help, value: &dyn Fn(&VolumeStatus) -> u64| {
        out.by_volume(name, help, MetricType::Counter, volumes, value)
    };
    counter("volume_read_blocks", "Blocks touched by reads.", &|volume| {
        volume.counters.blocks_read
    })?;
    counter("volume_written_blocks", "Blocks touched by writes.", &|volume| {
        volume.counters.blocks_written
    })?;
    counter("volume_read_hit_blocks", "Read blocks served from the cache.", &|volume| {
        volume.counters.read_hits
    })?;
    counter("volume_read_hit_ram_blocks", "Read hits from RAM.", &|volume| {
        volume.counters.read_hits_ram
    })?;
    counter(
        "volume_read_hit_log_blocks",
        "Blocks of reads that the write log answered alone.",
        &|volume| volume.read_hits_log,
    )?;
    counter("volume_read_miss_blocks", "Read blocks fetched from the backend.", &|volume| {
        volume.counters.misses
    })?;
    counter("volume_write_hit_blocks", "Written blocks that were cached.", &|volume| {
        volume.counters.write_hits
    })?;
    counter("volume_guest_waited", "Requests that waited for the guest's limit.", &|volume| {
        volume.guest_waited
    })?;
    counter("volume_capped_blocks", "Blocks that the fill limit kept off the SSD.", &|volume| {
        volume.counters.capped_blocks
    })?;
    counter("volume_invalidated_blocks", "Blocks dropped by volume invalidate.", &|volume| {
        volume.counters.invalidated_blocks
    })?;
    let mut values = Vec::with_capacity(volumes.len() * 8);
    for volume in volumes {
        let bypassed = volume.counters.bypassed;
        for (reason, value) in [
            ("sequential", bypassed.sequential),
            ("large", bypassed.large),
            ("pass_through", bypassed.pass_through),
            ("write_around", bypassed.write_around),
            ("write_not_reused", bypassed.write_not_reused),
            ("no_space", bypassed.no_space),
            ("loading", bypassed.loading),
            ("no_device", bypassed.no_device),
        ] {
            values.push(([("volume", volume.config.name.as_str()), ("reason", reason)], value));
        }
    }
    let help = "Blocks that did not use the cache, by reason.";
    out.family("volume_bypassed_blocks", help, MetricType::Counter, &values)
}

fn volume_backend(out: &mut Output<'_, '_>, volumes: &[VolumeStatus]) -> fmt::Result {
    let mut counter = |name, help, value: &dyn Fn(&VolumeStatus) -> u64| {
        out.by_volume(name, help, MetricType::Counter, volumes, value)
    };
    counter("volume_backend_reads", "Backend reads.", &|volume| volume.counters.backend_reads)?;
    counter("volume_backend_writes", "Backend writes, trims and zeroes.", &|volume| {
        volume.counters.backend_writes
    })?;
    counter("volume_backend_flushes", "Backend flushes.", &|volume| {
        volume.counters.backend_flushes
    })?;
    counter("volume_backend_read_bytes", "Bytes read from the backend.", &|volume| {
        volume.counters.backend_read_bytes
    })?;
    counter("volume_backend_written_bytes", "Bytes written to the backend.", &|volume| {
        volume.counters.backend_write_bytes
    })?;
    counter("volume_backend_errors", "Backend operations that failed.", &|volume| {
        volume.counters.backend_errors
    })?;
    counter("volume_backend_overdue", "Operations past backend_timeout_s.", &|volume| {
        volume.counters.backend_overdue
    })
}

fn volume_state(out: &mut Output<'_, '_>, volumes: &[VolumeStatus]) -> fmt::Result {
    let mut gauge = |name, help, value: &dyn Fn(&VolumeStatus) -> u64| {
        out.by_volume(name, help, MetricType::Gauge, volumes, value)
    };
    gauge("volume_size_bytes", "Size of the volume.", &|volume| volume.size_bytes)?;
    gauge("volume_cached_bytes", "Its data in the cache now.", &|volume| {
        volume.counters.cached_blocks * BLOCK_BYTES
    })?;
    gauge("volume_backend_overdue_now", "Overdue operations under way.", &|volume| {
        volume.overdue_now.into()
    })?;
    gauge("volume_backend_oldest_seconds", "Age of the oldest backend operation.", &|volume| {
        volume.oldest.map_or(0, |age| age.as_secs())
    })?;
    gauge(
        "volume_backend_size_bytes",
        "Size of the backend when last asked; 0 = not.",
        &|volume| volume.backend_size_bytes,
    )?;
    gauge("volume_waiting", "1 while its back end or its address is not there.", &|volume| {
        volume.waiting.is_some().into()
    })?;
    gauge("volume_connections", "NBD connections now.", &|volume| volume.connections.into())?;
    gauge("volume_healthy", "1 if it serves as configured.", &|volume| well(volume.state).into())
}

/// The write log, and what it holds of each volume.
fn write_back(out: &mut Output<'_, '_>, status: &DataStatus) -> fmt::Result {
    let Some(log) = &status.cache.write_log else { return Ok(()) };
    out.gauge("write_log_healthy", "1 if the write log works.", log.reason.is_empty().into())?;
    out.gauge("write_log_size_bytes", "Room of the write log.", log.size_bytes)?;
    out.gauge("write_log_used_bytes", "Room of the write log in use.", log.used_bytes)?;
    let own = log.counters;
    for (name, help, value) in [
        ("write_log_chunks", "Chunks written to the write log.", own.chunks),
        ("write_log_durable_chunks", "Of those, commits by themselves.", own.durable_chunks),
        ("write_log_flushes", "Flushes of the write log's device.", own.flushes),
        ("write_log_records", "Durable records of what back ends have.", own.records),
    ] {
        out.counter(name, help, value)?;
    }
    log_halves(out, &log.halves)?;
    if let Some(memory) = &log.memory {
        out.gauge("write_memory_size_bytes", "Room for writes in memory.", memory.size_bytes)?;
        let (used, age_s) = (memory.used_bytes, memory.age.as_secs());
        out.gauge("write_memory_used_bytes", "Writes not on the log's device yet.", used)?;
        out.gauge("write_memory_age_seconds", "Age of the oldest write there.", age_s)?;
        let absorbed = own.absorbed * BLOCK_BYTES;
        let help = "Overwritten in memory, so never written to the SSD.";
        out.counter("write_memory_absorbed_bytes", help, absorbed)?;
    }
    let mut each = |name, help, kind, value: &dyn Fn(&WriteBackStatus) -> u64| {
        let of = |volume: &VolumeStatus| volume.write_back.as_ref().map_or(0, value);
        out.by_volume(name, help, kind, &status.volumes, &of)
    };
    let gauge = MetricType::Gauge;
    each("volume_dirty_bytes", "Writes that its backend lacks.", gauge, &|own| own.dirty_bytes)?;
    each("volume_dirty_age_seconds", "Age of the oldest such write.", gauge, &|own| {
        own.dirty_age.as_secs()
    })?;
    let help = "Requests of the destage at a time; 0: no bound.";
    each("volume_destage_requests_max", help, gauge, &|own| own.pace.at_most.unwrap_or(0).into())?;
    each("volume_destaged_bytes", "Writes brought to its backend.", MetricType::Counter, &|own| {
        own.destaged_bytes
    })
}

/// A number of a warm arrival's.
type OfArrival = fn(&WarmStatus) -> u64;

/// What comes along with volumes that are taken from another host, of those that were.
fn warm(out: &mut Output<'_, '_>, status: &DataStatus) -> fmt::Result {
    let of = |volume: &'_ VolumeStatus| volume.migration.as_ref()?.warm.clone();
    let arrived: Vec<_> = status
        .volumes
        .iter()
        .filter_map(|volume| Some((volume.config.name.as_str(), of(volume)?)))
        .collect();
    if arrived.is_empty() {
        return Ok(());
    }
    let families: [(&str, &str, OfArrival); 5] = [
        (
            "volume_warm_listed_bytes",
            "Cached data that the host it was last taken from named.",
            |own| own.listed * BLOCK_BYTES,
        ),
        ("volume_warm_fetched_bytes", "Of that, taken from that host's cache.", |own| own.bytes),
        ("volume_warm_skipped_bytes", "Of that, not taken.", |own| own.skipped * BLOCK_BYTES),
        ("volume_warm_active", "1 while that data is fetched.", |own| own.ended.is_none().into()),
        ("volume_warm_arrivals", "Times that such fetching has ended.", |own| own.arrivals),
    ];
    for (name, help, value) in families {
        let values: Vec<_> =
            arrived.iter().map(|(volume, own)| ([("volume", *volume)], value(own))).collect();
        out.family(name, help, MetricType::Gauge, &values)?;
    }
    Ok(())
}

/// Clones, and what they read from their parents' caches.
fn parents(out: &mut Output<'_, '_>, volumes: &[VolumeStatus]) -> fmt::Result {
    let clones = volumes.iter().filter_map(|volume| Some((volume, volume.parent.as_ref()?)));
    let clones: Vec<_> = clones.collect();
    if clones.is_empty() {
        return Ok(());
    }
    let mut family = |name, help, kind, value: &dyn Fn(&ParentStatus) -> u64| {
        let labelled = clones.iter().map(|(volume, parent)| {
            let labels =
                [("volume", volume.config.name.as_str()), ("parent", parent.name.as_str())];
            (labels, value(parent))
        });
        out.family(name, help, kind, &labelled.collect::<Vec<_>>())
    };
    let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
    let help = "1 if the clone reads from its parent volume what it does not have itself.";
    family("volume_parent_used", help, gauge, &|one| u64::from(one.reason.is_empty()))?;
    let help = "Reads of a clone that the parent volume got.";
    family("volume_parent_reads", help, counter, &|one| one.reads)?;
    let help = "Blocks that the parent volume answered.";
    family("volume_parent_read_blocks", help, counter, &|one| one.blocks)?;
    let help = "Reads that it failed, and the clone's back end got.";
    family("volume_parent_repeated_reads", help, counter, &|one| one.repeated)?;
    let help = "Objects of the clone for which the parent may answer.";
    family("volume_parent_objects", help, gauge, &|one| one.objects)?;
    let help = "Of these, objects that the clone has itself.";
    family("volume_parent_own_objects", help, gauge, &|one| one.own_objects)
}

/// The two devices of a mirrored write log.
fn log_halves(out: &mut Output<'_, '_>, halves: &[LogHalfStatus]) -> fmt::Result {
    if halves.is_empty() {
        return Ok(());
    }
    let named = halves.iter().map(|half| (half.device.display().to_string(), half));
    let named: Vec<_> = named.collect();
    let states = [
        ("both", LogHalfState::Both),
        ("alone", LogHalfState::Alone),
        ("filling", LogHalfState::Filling),
        ("missing", LogHalfState::Missing),
    ];
    let all = named.iter().flat_map(|(device, half)| {
        let is = move |(name, state)| {
            ([("device", device.as_str()), ("state", name)], u64::from(half.state == state))
        };
        states.into_iter().map(is)
    });
    let help = "1 for the state that a half of a mirrored log is in.";
    out.family("write_log_half_state", help, MetricType::Gauge, &all.collect::<Vec<_>>())?;
    let errors =
        named.iter().map(|(device, half)| ([("device", device.as_str())], half.read_errors));
    let help = "Reads of a half of a mirrored log that failed.";
    let errors: Vec<_> = errors.collect();
    out.family("write_log_half_read_errors", help, MetricType::Counter, &errors)
}

fn latencies(out: &mut Output<'_, '_>, volumes: &[VolumeStatus]) -> fmt::Result {
    let help = "From the arrival of a request to its reply, by operation.";
    let name = "volume_latency_seconds";
    let mut metric = out.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for volume in volumes {
        let latencies = &volume.latencies;
        for (operation, summary) in
            [("read", &latencies.read), ("write", &latencies.write), ("flush", &latencies.flush)]
        {
            let labels = [("volume", volume.config.name.as_str()), ("operation", operation)];
            metric.encode_family(&labels)?.encode_histogram::<[(&str, &str); 0]>(
                summary.sum_ns as f64 / 1e9,
                summary.count,
                &buckets(summary),
                None,
            )?;
        }
    }
    Ok(())
}

/// Upper bounds in seconds with the operations below them, not cumulative.
fn buckets(summary: &LatencySummary) -> Vec<(f64, u64)> {
    let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    bounds.zip(summary.buckets).collect()
}

const fn well(state: State) -> bool {
    matches!(state, State::Serving)
}

/// Writes descriptors and their values.
struct Output<'o, 'e>(&'o mut DescriptorEncoder<'e>);

impl Output<'_, '_> {
    fn single(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        write: impl FnOnce(prometheus_client::encoding::MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(self.0.encode_descriptor(name, help, None, kind)?)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.single(name, help, MetricType::Gauge, |mut metric| metric.encode_gauge(&value))
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.single(name, help, MetricType::Counter, |mut metric| {
            metric.encode_counter::<[(&str, &str); 0], _, f64>(&value, None)
        })
    }

    fn by_volume(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        volumes: &[VolumeStatus],
        value: &dyn Fn(&VolumeStatus) -> u64,
    ) -> fmt::Result {
        let values: Vec<_> = volumes
            .iter()
            .map(|volume| ([("volume", volume.config.name.as_str())], value(volume)))
            .collect();
        self.family(name, help, kind, &values)
    }

    /// One value for each set of labels.
    fn family<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: &[([(&str, &str); N], u64)],
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            let mut one = metric.encode_family(labels)?;
            match kind {
                MetricType::Gauge => one.encode_gauge(value)?,
                _ => one.encode_counter::<[(&str, &str); 0], _, f64>(value, None)?,
            }
        }
        Ok(())
    }
}
