//! What runs came to, alone and beside each other: the contract of `--json`.
//!
//! Keys are only ever added.

use super::survey::Survey;
use crate::drive::Elapsed;
use crate::latency::LatencySummary;
use crate::meter::{Meter, Period, Snapshot};
use crate::target::ServerCounts;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The trace's file.
    pub trace: PathBuf,
    /// What the first pass found.
    pub volumes: Vec<VolumeReport>,
    /// Flushes, discards and empty requests of the trace, which are not replayed.
    pub left_out: u64,
    /// In the order asked for.
    pub runs: Vec<Run>,
    /// What was published of such an experiment; only if the cache was warmed.
    pub published: Option<&'static Published>,
}

/// One volume of the trace and what stood for it.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeReport {
    pub number: u32,
    /// As written.
    pub target: String,
    /// End of its furthest request, in bytes.
    pub end_bytes: u64,
    /// Different blocks of 4 KiB touched; at least that many if the trace is vast.
    pub footprint_blocks: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// `none`, or how many periods warmed the cache, or `as it is`.
    pub warm: String,
    /// What warming took.
    pub warmed: Option<Warmed>,
    /// Requests done.
    pub ios: u64,
    /// Of those, reads.
    pub reads: u64,
    /// Requests that failed.
    pub failures: u64,
    /// What was said of the first of them.
    pub first_failure: Option<String>,
    /// From the start to the last completion.
    pub seconds: f64,
    /// Bytes read and written.
    pub bytes: u64,
    /// From the time that the trace says; in a closed loop as `service`.
    pub latency: LatencySummary,
    /// From the moment of submission: what Mercury called service time.
    pub service: LatencySummary,
    /// As `latency`, reads.
    pub latency_reads: LatencySummary,
    /// As `latency`, writes.
    pub latency_writes: LatencySummary,
    /// By volume, as `latency`.
    pub latency_volumes: Vec<LatencySummary>,
    /// What reached the back ends.
    pub server: Server,
    /// Read blocks found in the cache, of all; absent without a cache.
    pub hit_ratio: Option<f64>,
    /// Against the run without a cache, if there is one.
    pub change: Option<Change>,
    /// By time.
    pub rows: Vec<Period>,
}

/// Requests that reached the back ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Server {
    /// Reads and writes.
    pub requests: u64,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// What warming took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Warmed {
    /// Requests played.
    pub ios: u64,
    /// How long it took; as fast as it went.
    pub seconds: f64,
    /// What reached the back ends.
    pub server: Server,
}

/// In per cent: -40 is 40 % less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Of the mean latency.
    pub latency_percent: f64,
    /// Of the mean service time.
    pub service_percent: f64,
    /// Of the requests that reach the back ends.
    pub server_requests_percent: f64,
    /// Of the reads among them.
    pub server_reads_percent: f64,
}

/// Published figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Published {
    /// Who, what.
    pub what: &'static str,
    /// Of the mean service time, in per cent.
    pub service_percent: f64,
    /// Of the requests to the server, in per cent.
    pub server_requests_percent: f64,
    pub words: &'static str,
}

/// The claim that the desktop experiment is held against.
pub static MERCURY: Published = Published {
    what: "Mercury (NetApp, 2011), desktop traces, warmed one to three days",
    service_percent: -40.0,
    server_requests_percent: -50.0,
    words: "mean service time down nearly 40 %, requests to the server down nearly 50 %, almost all \
        reads served by the cache",
};

/// The name of a run without a cache.
pub const WITHOUT: &str = "none";

impl Run {
    pub(super) fn new(
        warm: String,
        warmed: Option<Warmed>,
        meter: &Meter,
        end: &Snapshot,
        elapsed: Elapsed,
        rows: Vec<Period>,
    ) -> Self {
        Self {
            warm,
            warmed,
            ios: meter.scheduled.count(),
            reads: meter.reads.count(),
            failures: meter.failures,
            first_failure: meter.first_failure.clone(),
            seconds: elapsed.all.as_secs_f64(),
            bytes: meter.bytes,
            latency: meter.scheduled.summary(),
            service: meter.dispatched.summary(),
            latency_reads: meter.reads.summary(),
            latency_writes: meter.writes.summary(),
            latency_volumes: meter.streams.iter().map(|one| one.latencies.summary()).collect(),
            server: Server::from(end.server - meter.begun().server),
            hit_ratio: end.hit_ratio_since(meter.begun()),
            change: None,
            rows,
        }
    }
}

impl Outcome {
    pub(super) fn new(trace: PathBuf, targets: &[String], survey: &Survey) -> Self {
        let volumes = survey.volumes.iter().zip(targets).map(|(volume, target)| VolumeReport {
            number: volume.number,
            target: target.clone(),
            end_bytes: volume.end_bytes,
            footprint_blocks: volume.footprint_blocks,
        });
        let (volumes, left_out) = (volumes.collect(), survey.left_out);
        Self { trace, volumes, left_out, runs: Vec::new(), published: None }
    }

    /// Holds the runs against the one without a cache, wherever that stands among them.
    pub(super) fn compare(&mut self) {
        let Some(base) = self.runs.iter().find(|run| run.warm == WITHOUT).cloned() else { return };
        for run in self.runs.iter_mut().filter(|run| run.warm != WITHOUT) {
            run.change = Some(Change {
                latency_percent: percent(run.latency.mean_ms, base.latency.mean_ms),
                service_percent: percent(run.service.mean_ms, base.service.mean_ms),
                server_requests_percent: percent(
                    run.server.requests as f64,
                    base.server.requests as f64,
                ),
                server_reads_percent: percent(run.server.reads as f64, base.server.reads as f64),
            });
        }
    }
}

impl Warmed {
    pub(super) fn new(ios: u64, took: Duration, server: ServerCounts) -> Self {
        Self { ios, seconds: took.as_secs_f64(), server: server.into() }
    }
}

impl From<ServerCounts> for Server {
    fn from(counts: ServerCounts) -> Self {
        let ServerCounts { reads, writes, read_bytes, write_bytes } = counts;
        Self { requests: reads + writes, reads, writes, read_bytes, write_bytes }
    }
}

/// The change from one to the other; 0 where there was nothing.
fn percent(now: f64, before: f64) -> f64 {
    if before > 0.0 { (now / before - 1.0) * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_in_per_cent() {
        assert!((percent(60.0, 100.0) + 40.0).abs() < 1e-9);
        assert!((percent(3.0, 2.0) - 50.0).abs() < 1e-9);
        assert!(percent(3.0, 0.0).abs() < 1e-9, "of nothing");
    }
}
