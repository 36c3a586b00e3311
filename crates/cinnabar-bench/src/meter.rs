//! What is counted of a play: latencies by stream, the rows of time, and what cache and server did.

use super::drive::Played;
use super::latency::{Latencies, LatencySummary};
use super::target::{CacheCounts, ServerCounts, Target};
use serde::Serialize;
use std::time::Duration;

/// Counts one play, or a part of one.
#[derive(Clone, Debug)]
pub struct Meter {
    /// From the scheduled time, all I/Os.
    pub scheduled: Latencies,
    /// From the submission, all I/Os: what pblio tells.
    pub dispatched: Latencies,
    /// From the scheduled time, reads.
    pub reads: Latencies,
    /// From the scheduled time, writes.
    pub writes: Latencies,
    pub streams: Vec<StreamMeter>,
    /// Bytes of all I/Os.
    pub bytes: u64,
    /// I/Os that failed.
    pub failures: u64,
    /// What the first of them said.
    pub first_failure: Option<String>,
    units: usize,
    begun: Snapshot,
}

/// One stream's part.
#[derive(Clone, Debug, Default)]
pub struct StreamMeter {
    /// From the scheduled time.
    pub latencies: Latencies,
    /// Of them, reads.
    pub reads: u64,
    pub bytes: u64,
}

/// Everything's counters at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// Of the storage of all units.
    pub server: ServerCounts,
    pub cache: Option<CacheCounts>,
}

/// A row of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Period {
    /// Its end, in s since the start.
    pub at_s: f64,
    /// I/Os done in it.
    pub ios: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Mean latency from the scheduled time, in ms.
    pub mean_ms: f64,
    /// Read blocks found in the cache, of all; absent without a cache or reads.
    pub hit_ratio: Option<f64>,
    /// Reads that reached the server.
    pub server_reads: u64,
    /// Writes that reached the server.
    pub server_writes: u64,
}

impl Snapshot {
    /// As things stand.
    pub fn of(target: &Target, units: usize) -> Self {
        Self { server: target.server_counts(0..units), cache: target.cache_counts() }
    }

    /// Read blocks found in the cache since another moment, and all that were looked for.
    pub fn read_blocks_since(&self, before: &Self) -> Option<(u64, u64)> {
        let (now, before) = (self.cache?.volumes, before.cache?.volumes);
        Some((now.read_hits - before.read_hits, now.blocks_read - before.blocks_read))
    }

    /// The share of read blocks found in the cache since another moment.
    pub fn hit_ratio_since(&self, before: &Self) -> Option<f64> {
        let (hits, all) = self.read_blocks_since(before)?;
        (all > 0).then(|| hits as f64 / all as f64)
    }
}

impl Meter {
    /// Begins to count, with so many streams, on a target with so many units.
    pub fn new(streams: usize, target: &Target, units: usize) -> Self {
        Self {
            scheduled: Latencies::default(),
            dispatched: Latencies::default(),
            reads: Latencies::default(),
            writes: Latencies::default(),
            streams: vec![StreamMeter::default(); streams],
            bytes: 0,
            failures: 0,
            first_failure: None,
            units,
            begun: Snapshot::of(target, units),
        }
    }

    pub fn count(&mut self, played: &Played) {
        if let Some(failure) = &played.failure {
            self.failures += 1;
            self.first_failure.get_or_insert_with(|| failure.clone());
            return;
        }
        let Played { io, scheduled_ns, dispatched_ns, .. } = *played;
        self.scheduled.record(scheduled_ns);
        self.dispatched.record(dispatched_ns);
        if io.write { &mut self.writes } else { &mut self.reads }.record(scheduled_ns);
        self.bytes += io.len;
        let stream = &mut self.streams[io.stream];
        stream.latencies.record(scheduled_ns);
        stream.reads += u64::from(!io.write);
        stream.bytes += io.len;
    }

    /// How things stood when it began.
    pub fn begun(&self) -> &Snapshot {
        &self.begun
    }

    /// How things stand now.
    pub fn snapshot(&self, target: &Target) -> Snapshot {
        Snapshot::of(target, self.units)
    }

    /// All latencies in a few numbers.
    pub fn summary(&self) -> LatencySummary {
        self.scheduled.summary()
    }
}

/// Cuts a play into rows of time.
#[derive(Debug)]
pub struct Periods {
    every: Duration,
    last: Duration,
    ios: u64,
    sum_ns: u64,
    before: Snapshot,
    /// The rows so far.
    pub rows: Vec<Period>,
}

impl Periods {
    /// Rows of this length, from this moment on.
    pub fn new(every: Duration, now: Snapshot) -> Self {
        let (last, ios, sum_ns, rows) = (Duration::ZERO, 0, 0, Vec::new());
        Self { every, last, ios, sum_ns, before: now, rows }
    }

    pub fn count(&mut self, played: &Played) {
        if played.failure.is_none() {
            self.ios += 1;
            self.sum_ns += played.scheduled_ns;
        }
    }

    /// Ends a row if it is time, or whatever there is `at_end`; gives the new row.
    pub fn cut(
        &mut self,
        elapsed: Duration,
        at_end: bool,
        snapshot: impl FnOnce() -> Snapshot,
    ) -> Option<Period> {
        let length = elapsed.saturating_sub(self.last);
        if length < self.every && !(at_end && self.ios > 0) {
            return None;
        }
        let now = snapshot();
        let server = now.server - self.before.server;
        let row = Period {
            at_s: elapsed.as_secs_f64(),
            ios: self.ios,
            iops: self.ios as f64 / length.as_secs_f64().max(1e-9),
            mean_ms: self.sum_ns as f64 / self.ios.max(1) as f64 / 1e6,
            hit_ratio: now.hit_ratio_since(&self.before),
            server_reads: server.reads,
            server_writes: server.writes,
        };
        (self.last, self.ios, self.sum_ns, self.before) = (elapsed, 0, 0, now);
        self.rows.push(row);
        Some(row)
    }
}
