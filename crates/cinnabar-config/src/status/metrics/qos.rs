//! How volumes take turns at their back ends.

use super::Output;
use crate::status::raw::{DataStatus, QosGroupStatus};
use cinnabar_driver::qos::GroupReport;
use prometheus_client::metrics::MetricType;
use std::fmt;

/// A number of a group's.
type OfGroup = fn(&GroupReport) -> u64;

/// Of the volumes and groups that do.
pub(super) fn qos(out: &mut Output<'_, '_>, status: &DataStatus) -> fmt::Result {
    if status.qos_groups.is_empty() {
        return Ok(());
    }
    let gauge = MetricType::Gauge;
    let groups: [(&str, &str, OfGroup); 5] = [
        ("qos_group_depth", "Requests that a back end gets at a time.", |own| own.depth as u64),
        ("qos_group_waiting", "Requests that wait for their turn.", |own| own.waiting as u64),
        ("qos_group_reserved_iops", "Sum of the reservations.", |own| {
            own.reservations.reserved_iops
        }),
        ("qos_group_capacity_iops", "What the back end does, measured; 0 = not yet.", |own| {
            own.reservations.capacity_iops.unwrap_or(0)
        }),
        ("qos_group_oversold_iops", "I/Os a second that are reserved beyond that.", |own| {
            own.reservations.oversold_iops()
        }),
    ];
    for (name, help, value) in groups {
        let one = |group: &QosGroupStatus| value(&group.report);
        let all = status.qos_groups.iter();
        let values: Vec<_> =
            all.map(|group| ([("group", group.name.as_str())], one(group))).collect();
        out.family(name, help, gauge, &values)?;
    }
    let mut begun = Vec::new();
    let mut waits = Vec::new();
    let mut costs = Vec::new();
    for volume in &status.volumes {
        let Some(qos) = &volume.qos else { continue };
        let name = volume.config.name.as_str();
        let works = [("guest", Some(&qos.guest)), ("destage", qos.destage.as_ref())];
        for (work, own) in works.iter().filter_map(|(work, own)| Some((*work, (*own)?))) {
            let labels = |phase| [("volume", name), ("work", work), ("phase", phase)];
            begun.push((labels("reservation"), own.by_reservation));
            begun.push((labels("weight"), own.by_weight));
            waits.push((labels("limit"), own.held_ns / 1_000_000));
            waits.push((labels("reservation"), own.reservation_queued_ns / 1_000_000));
            waits.push((labels("weight"), own.weight_queued_ns / 1_000_000));
            costs.push(([("volume", name), ("work", work)], own.milli_ios / 1000));
        }
    }
    let counter = MetricType::Counter;
    out.family("volume_qos_begun", "Back-end requests by why they began.", counter, &begun)?;
    out.family("volume_qos_wait_milliseconds", "Waits by what for, summed.", counter, &waits)?;
    out.family("volume_qos_cost_ios", "Their cost in I/Os of 1 + length / 64 KiB.", counter, &costs)
}
