//! How volumes take turns at their back ends, as the world sees it.

use crate::status::raw::{QosGroupStatus, VolumeQosStatus};
use cinnabar_driver::qos::ClientReport;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A group of volumes on one server or device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QosGroupReport {
    /// Its name.
    pub name: String,
    /// Requests that the backend gets at the same time, at most.
    pub depth: usize,
    /// Requests under way.
    pub under_way: usize,
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// The sum of all reservations, in I/Os a second.
    pub reserved_iops: u64,
    /// What the backend did a second while the depth was used up; absent before it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_iops: Option<u64>,
    /// What is reserved beyond that.
    pub oversold_iops: u64,
}

/// How a volume takes turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QosReport {
    /// Its group.
    pub group: String,
    /// Requests of its guests.
    pub guest: QosWorkReport,
    /// What the write log brings to the backend, in mode write-back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destage: Option<QosWorkReport>,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QosWorkReport {
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// Requests under way.
    pub under_way: usize,
    /// Requests that were begun because the reservation was due.
    pub by_reservation: u64,
    /// Requests that were begun by weight.
    pub by_weight: u64,
    /// What they cost, in I/Os of 1 + length / 64 KiB.
    pub cost_ios: u64,
    /// How long the limit held them back, in seconds, summed.
    pub limit_wait_s: f64,
    /// How long those of `by_reservation` waited beyond that, in seconds, summed.
    pub reservation_wait_s: f64,
    /// How long those of `by_weight` waited beyond that, in seconds, summed.
    pub weight_wait_s: f64,
    /// The longest wait of a request, in seconds.
    pub wait_s_max: f64,
    /// How far the reservation is behind now, in seconds: for long only if the group is oversold.
    pub behind_s: f64,
    /// Requests that were given up while they waited.
    pub given_up: u64,
}

impl From<&QosGroupStatus> for QosGroupReport {
    fn from(status: &QosGroupStatus) -> Self {
        let report = &status.report;
        Self {
            name: status.name.clone(),
            depth: report.depth,
            under_way: report.under_way,
            waiting: report.waiting,
            reserved_iops: report.reservations.reserved_iops,
            capacity_iops: report.reservations.capacity_iops,
            oversold_iops: report.reservations.oversold_iops(),
        }
    }
}

impl From<&VolumeQosStatus> for QosReport {
    fn from(status: &VolumeQosStatus) -> Self {
        let VolumeQosStatus { group, guest, destage } = status;
        Self {
            group: group.clone(),
            guest: guest.into(),
            destage: destage.as_ref().map(Into::into),
        }
    }
}

impl From<&ClientReport> for QosWorkReport {
    fn from(report: &ClientReport) -> Self {
        Self {
            waiting: report.waiting,
            under_way: report.under_way,
            by_reservation: report.by_reservation,
            by_weight: report.by_weight,
            cost_ios: report.milli_ios / 1000,
            limit_wait_s: seconds(report.held_ns),
            reservation_wait_s: seconds(report.reservation_queued_ns),
            weight_wait_s: seconds(report.weight_queued_ns),
            wait_s_max: seconds(report.waited_ns_max),
            behind_s: seconds(report.behind_ns),
            given_up: report.withdrawn,
        }
    }
}

/// Seconds to a thousandth.
fn seconds(ns: u64) -> f64 {
    (ns / 1_000_000) as f64 / 1000.0
}
