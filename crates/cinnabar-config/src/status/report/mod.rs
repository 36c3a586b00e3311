//! The status as the world sees it: the contract of `status --json` and `GET /v1/status`.
//!
//! Keys are only ever added.

mod cache;
mod health;
mod hybrid;
mod latency;
mod qos;
mod volume;

pub use cache::{
    AdmittedReport, CacheReport, LogHalfReport, RamReport, ResizingReport, WriteLogReport,
};
pub use health::{HealthReport, LoadedReport, StartKind, why};
pub use hybrid::HybridReport;
pub use latency::{LatencyReport, OperationLatency};
pub use qos::{QosGroupReport, QosReport, QosWorkReport};
pub use volume::{
    BypassedReport, DestagePace, MigrationReport, ParentReport, VolumeReport, WaitingReport,
    WarmReport, WarmthReport, WriteBackReport,
};

use crate::status::raw::DataStatus;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusReport {
    /// The cache.
    pub cache: CacheReport,
    /// The volumes, in the order they were added.
    pub volumes: Vec<VolumeReport>,
    /// Groups of volumes that take turns at their backend.
    #[serde(default)]
    pub qos_groups: Vec<QosGroupReport>,
}

impl StatusReport {
    /// Makes the report of a raw status.
    pub fn new(status: &DataStatus) -> Self {
        Self {
            cache: CacheReport::new(&status.cache),
            volumes: status.volumes.iter().map(VolumeReport::new).collect(),
            qos_groups: status.qos_groups.iter().map(Into::into).collect(),
        }
    }
}
