//! What a probe reports, for people and for programs.

use super::plan::{Op, Pattern, Plan};
use super::window::Measured;
use serde::Serialize;

/// What was measured of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// As it was named.
    pub device: String,
    /// Its size in bytes.
    pub device_bytes: u64,
    /// What carried the operations out: `uring` or `threads`.
    pub io: &'static str,
    /// Whether they passed the page cache by.
    pub direct: bool,
    /// Where operations went.
    pub pattern: Pattern,
    /// Seed of offsets and data.
    pub seed: u64,
    /// What is to be known of the figures.
    pub notes: Vec<String>,
    /// A row for each cell.
    pub cells: Vec<Row>,
    /// Settings of the fitted model, as behind `sim:`; without a preset none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<PresetReport>,
}

/// One cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which operation.
    pub op: Op,
    /// Its size in bytes, 0 for flushes.
    pub size_bytes: u64,
    /// How many were under way.
    pub depth: u32,
    /// How many completed.
    pub operations: u64,
    /// How many of them the probe was kept from looking at by other work: their latency is not among
    /// those below.
    pub disturbed: u64,
    /// Operations a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Latencies in us.
    pub latency_us: LatencyRow,
    /// What the fitted model does in this cell, on a clock of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Predicted>,
}

/// Latencies, in us.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyRow {
    /// Mean.
    pub mean: f64,
    /// Shortest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90 % are shorter.
    pub p90: f64,
    /// 99 % are shorter.
    pub p99: f64,
    /// 99.9 % are shorter.
    pub p99_9: f64,
    /// Longest.
    pub max: f64,
}

/// What a model does in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Operations a second.
    pub iops: f64,
    /// Mean latency in us.
    pub mean_us: f64,
}

/// A model that was fitted.
#[derive(Clone, Debug, Serialize)]
pub struct PresetReport {
    /// Where it was written.
    pub file: String,
    /// The text of that file.
    pub text: String,
    /// The largest difference in operations a second between model and device, in per cent.
    pub iops_off_percent_max: f64,
    /// The same of the mean latency at depth 1.
    pub latency_off_percent_max: f64,
}

impl Row {
    pub(super) fn new(measured: &Measured) -> Self {
        Self {
            op: measured.cell.op,
            size_bytes: measured.cell.size_bytes,
            depth: measured.cell.depth,
            operations: measured.completed,
            disturbed: measured.completed - measured.operations(),
            iops: measured.iops(),
            bytes_per_s: measured.bytes_per_s(),
            latency_us: LatencyRow::new(measured),
            preset: None,
        }
    }
}

impl LatencyRow {
    fn new(measured: &Measured) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        let latencies = &measured.latencies;
        let at = |percent| us(latencies.value_at_percentile(percent));
        Self {
            mean: measured.mean_ns() / 1000.0,
            min: us(latencies.min()),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p99_9: at(99.9),
            max: us(latencies.max()),
        }
    }
}

/// What stands in front of a preset: where it comes from, and what it does not tell.
pub(super) fn comments(device: &str, plan: &Plan, measured: &[Measured]) -> Vec<String> {
    let pattern = match plan.pattern {
        Pattern::Random => "random",
        Pattern::Sequential => "sequential",
    };
    let depth = plan.depth_max();
    let mut lines = vec![
        format!("{device}, measured by cinnabar-lab bench probe {}", env!("CARGO_PKG_VERSION")),
        format!("{pattern} operations; depth and bandwidth are what was seen up to depth {depth}"),
    ];
    if !measured.iter().any(|one| one.cell.op == Op::Write) {
        lines.push("writes and flushes were not measured and are taken to be as reads".to_owned());
    }
    lines
}
