//! Bytes of each volume: what its guest reads and writes, and what of it the cache had.

use super::Output;
use crate::status::raw::VolumeStatus;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use prometheus_client::metrics::MetricType;
use std::fmt;

/// Beside these: `volume_backend_read_bytes`, `volume_backend_written_bytes`.
pub(super) fn bytes(out: &mut Output<'_, '_>, volumes: &[VolumeStatus]) -> fmt::Result {
    let mut counter = |name, help, value: &dyn Fn(&VolumeStatus) -> u64| {
        out.by_volume(name, help, MetricType::Counter, volumes, value)
    };
    counter("volume_read_bytes", "Bytes of read requests.", &|volume| volume.latencies.read.bytes)?;
    counter("volume_written_bytes", "Bytes of write requests.", &|volume| {
        volume.latencies.write.bytes
    })?;
    counter("volume_read_hit_bytes", "Read blocks served from the cache, in bytes.", &|volume| {
        volume.counters.read_hits * BLOCK_BYTES
    })
}
