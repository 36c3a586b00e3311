//! How long a volume's requests took, as the world sees it.

use crate::status::latency::{Latencies, LatencySummary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Latencies by operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyReport {
    /// Reads.
    pub read: OperationLatency,
    /// Writes, trims and zeroes.
    pub write: OperationLatency,
    /// Flushes.
    pub flush: OperationLatency,
}

/// Latency of one operation, in us, since the volume was added.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationLatency {
    /// Operations.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Sum of all, rounded down.
    #[serde(default)]
    pub sum_us: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
}

impl From<&Latencies> for LatencyReport {
    fn from(latencies: &Latencies) -> Self {
        let Latencies { read, write, flush } = latencies;
        Self { read: read.into(), write: write.into(), flush: flush.into() }
    }
}

impl From<&LatencySummary> for OperationLatency {
    fn from(summary: &LatencySummary) -> Self {
        // Two decimals: more are noise.
        let mean = (summary.mean_us() * 100.0).round() / 100.0;
        Self {
            count: summary.count,
            mean,
            sum_us: summary.sum_ns / 1000,
            p50: summary.p50_us,
            p99: summary.p99_us,
        }
    }
}
