//! What happens now: the difference of two statuses a few seconds apart.

use crate::window::Window;
use cinnabar_config::status::raw::{DataStatus, VolumeStatus};
use cinnabar_policy::planning::Totals;
use std::collections::BTreeMap;

/// Of one volume, or of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Requests of guests, a second.
    pub iops: f64,
    /// Of those, reads.
    pub reads: f64,
    /// I/Os of the back end, a second.
    pub backend_iops: f64,
    /// Blocks read, a second.
    pub read_blocks: f64,
    /// Blocks written, a second.
    pub written_blocks: f64,
    /// The part of the blocks read that hit; `None`: none was read.
    pub hit_ratio: Option<f64>,
    /// Mean latency of reads in us.
    pub read_us: Option<f64>,
    /// Mean latency of writes in us.
    pub write_us: Option<f64>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// All volumes together.
    pub all: Rate,
    pub volumes: BTreeMap<String, Rate>,
    /// Written to the cache device, in bytes a second.
    pub ssd_bytes: f64,
    /// Mean latency of a read of a back end in us; `None`: there was none.
    pub backend_read_us: Option<f64>,
    /// Mean latency of a write of a back end in us.
    pub backend_write_us: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    backend: u64,
    read_blocks: u64,
    hit_blocks: u64,
    written_blocks: u64,
    read_times: (u64, u64),
    write_times: (u64, u64),
}

impl Counts {
    fn of(volume: &VolumeStatus) -> Self {
        let (counters, latencies) = (&volume.counters, &volume.latencies);
        Self {
            reads: counters.reads,
            writes: counters.writes,
            backend: counters.backend_reads + counters.backend_writes,
            read_blocks: counters.blocks_read,
            hit_blocks: counters.read_hits,
            written_blocks: counters.blocks_written,
            read_times: (latencies.read.count, latencies.read.sum_ns),
            write_times: (latencies.write.count, latencies.write.sum_ns),
        }
    }

    /// What was added; a count that fell began again.
    fn since(self, before: Self) -> Self {
        let added = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let both =
            |now: (u64, u64), before: (u64, u64)| (added(now.0, before.0), added(now.1, before.1));
        Self {
            reads: added(self.reads, before.reads),
            writes: added(self.writes, before.writes),
            backend: added(self.backend, before.backend),
            read_blocks: added(self.read_blocks, before.read_blocks),
            hit_blocks: added(self.hit_blocks, before.hit_blocks),
            written_blocks: added(self.written_blocks, before.written_blocks),
            read_times: both(self.read_times, before.read_times),
            write_times: both(self.write_times, before.write_times),
        }
    }

    fn plus(self, other: Self) -> Self {
        let both = |one: (u64, u64), other: (u64, u64)| (one.0 + other.0, one.1 + other.1);
        Self {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            backend: self.backend + other.backend,
            read_blocks: self.read_blocks + other.read_blocks,
            hit_blocks: self.hit_blocks + other.hit_blocks,
            written_blocks: self.written_blocks + other.written_blocks,
            read_times: both(self.read_times, other.read_times),
            write_times: both(self.write_times, other.write_times),
        }
    }

    fn rate(self, seconds: f64) -> Rate {
        let a_second = |count: u64| count as f64 / seconds;
        let mean = |(count, ns): (u64, u64)| (count > 0).then(|| ns as f64 / count as f64 / 1e3);
        Rate {
            iops: a_second(self.reads + self.writes),
            reads: a_second(self.reads),
            backend_iops: a_second(self.backend),
            read_blocks: a_second(self.read_blocks),
            written_blocks: a_second(self.written_blocks),
            hit_ratio: (self.read_blocks > 0)
                .then(|| self.hit_blocks as f64 / self.read_blocks as f64),
            read_us: mean(self.read_times),
            write_us: mean(self.write_times),
        }
    }
}

impl Rates {
    /// From one status to a later one.
    pub fn between(before: &DataStatus, now: &DataStatus, seconds: f64) -> Option<Self> {
        if seconds <= 0.0 {
            return None;
        }
        let old: BTreeMap<&str, &VolumeStatus> =
            before.volumes.iter().map(|volume| (volume.config.name.as_str(), volume)).collect();
        let mut all = Counts::default();
        let mut volumes = BTreeMap::new();
        for volume in &now.volumes {
            let name = &volume.config.name;
            // What a volume did before it was first seen is no rate.
            let added = old
                .get(name.as_str())
                .map(|old| Counts::of(volume).since(Counts::of(old)))
                .unwrap_or_default();
            all = all.plus(added);
            volumes.insert(name.clone(), added.rate(seconds));
        }
        let written = |status: &DataStatus| status.cache.counters.flash_written_bytes;
        let (written, written_before) = (written(now), written(before));
        let (old_io, new_io) = (before.cache.io_totals, now.cache.io_totals);
        Some(Self {
            all: all.rate(seconds),
            volumes,
            ssd_bytes: written.checked_sub(written_before).unwrap_or(written) as f64 / seconds,
            backend_read_us: mean_since(new_io, old_io, |io| io.backend_reads),
            backend_write_us: mean_since(new_io, old_io, |io| io.backend_writes),
        })
    }

    /// Of the newest sample of each: what there is before two statuses were seen.
    pub fn of_windows(all: &Window, volumes: &BTreeMap<String, Window>) -> Self {
        let rate = |window: &Window| {
            let a_second = |count: u64| window.a_second(count as f64).unwrap_or(0.0);
            Rate {
                iops: a_second(window.ios()),
                reads: a_second(window.reads),
                backend_iops: a_second(window.backend_reads + window.backend_writes),
                read_blocks: a_second(window.read_blocks),
                written_blocks: a_second(window.written_blocks),
                hit_ratio: window.hit_ratio(),
                read_us: window.read_mean_us(),
                write_us: window.write_mean_us(),
            }
        };
        let ssd_bytes = window_bytes(all);
        let volumes = volumes.iter().map(|(name, window)| (name.clone(), rate(window))).collect();
        Self { all: rate(all), volumes, ssd_bytes, ..Self::default() }
    }
}

fn window_bytes(window: &Window) -> f64 {
    let bytes = window.ssd_written_blocks as f64 * 4096.0;
    window.a_second(bytes).unwrap_or(0.0)
}

fn mean_since(
    now: Totals,
    before: Totals,
    of: fn(Totals) -> cinnabar_policy::planning::Latency,
) -> Option<f64> {
    let (now, before) = (of(now), of(before));
    let count = now.count.checked_sub(before.count).filter(|count| *count > 0)?;
    Some(now.total_ns.checked_sub(before.total_ns)? as f64 / count as f64 / 1e3)
}
