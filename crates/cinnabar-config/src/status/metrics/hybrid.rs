//! Where the extents of hybrid volumes lie, and what moves.

use super::Output;
use crate::status::raw::{DataStatus, HybridVolumeStatus, VolumeStatus};
use prometheus_client::metrics::MetricType;
use std::fmt;

/// A number of a hybrid volume's.
type OfVolume = fn(&HybridVolumeStatus) -> u64;

const GAUGES: [(&str, &str, OfVolume); 7] = [
    ("volume_hybrid_extent_bytes", "Bytes of an extent.", |own| own.extent_bytes),
    ("volume_hybrid_extents", "Extents that were written.", |own| own.extents.into()),
    ("volume_hybrid_budget_bytes", "Bytes it may take of the fast pool.", |own| own.budget_bytes),
    ("volume_hybrid_fast_bytes", "Bytes it takes of the fast pool.", |own| own.fast_bytes),
    ("volume_hybrid_moving", "Extents that are being moved.", |own| own.moving),
    ("volume_hybrid_foreign_objects", "Objects that it never made.", |own| own.foreign_objects),
    ("volume_hybrid_lost_objects", "Objects that are missing.", |own| own.lost_objects),
];

const COUNTERS: [(&str, &str, OfVolume); 4] = [
    ("volume_hybrid_given_up", "Moves that were given up.", |own| own.given_up),
    ("volume_hybrid_over_budget", "Moves without room in the budget.", |own| own.over_budget),
    ("volume_hybrid_host_bytes", "Bytes of moves through this host.", |own| own.host_bytes),
    ("volume_hybrid_held_writes", "Writes that waited for a move.", |own| own.held_writes),
];

/// Of the volumes that are hybrid ones.
pub(super) fn hybrid(out: &mut Output<'_, '_>, status: &DataStatus) -> fmt::Result {
    let of = |volume: &'_ VolumeStatus| volume.hybrid.clone();
    let all: Vec<(&str, HybridVolumeStatus)> = status
        .volumes
        .iter()
        .filter_map(|volume| Some((volume.config.name.as_str(), of(volume)?)))
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    let families = [(MetricType::Gauge, &GAUGES[..]), (MetricType::Counter, &COUNTERS[..])];
    for (kind, families) in families {
        for (name, help, value) in families {
            let values: Vec<_> =
                all.iter().map(|(volume, own)| ([("volume", *volume)], value(own))).collect();
            out.family(name, help, kind, &values)?;
        }
    }
    let by_pool = |value: fn(&HybridVolumeStatus) -> [(&'static str, u64); 2]| {
        let each = |(volume, own): &(&'_ str, HybridVolumeStatus)| {
            let volume = (*volume).to_owned();
            value(own).map(|(pool, count)| (volume.clone(), pool, count))
        };
        all.iter().flat_map(each).collect::<Vec<_>>()
    };
    for (name, help, kind, values) in [
        (
            "volume_hybrid_objects",
            "Objects in each pool.",
            MetricType::Gauge,
            by_pool(|own| [("slow", own.objects_slow.into()), ("fast", own.objects_fast.into())]),
        ),
        (
            "volume_hybrid_moved",
            "Extents moved to each pool.",
            MetricType::Counter,
            by_pool(|own| [("slow", own.moved_slow), ("fast", own.moved_fast)]),
        ),
    ] {
        let values: Vec<_> = values
            .iter()
            .map(|(volume, pool, count)| ([("volume", volume.as_str()), ("pool", *pool)], *count))
            .collect();
        out.family(name, help, kind, &values)?;
    }
    Ok(())
}
