//! A history as the control API sends it.

use crate::history::point::Point;
use crate::history::ring::Step;
use cinnabar_format::units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a volume, or the cache, did over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SamplesReport {
    /// The volume; absent: all volumes together, and the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Seconds from one sample to the next: 10, kept for an hour, or 300, kept for a day.
    pub step_s: u64,
    /// Samples, the newest last. There is none of times in which the daemon or the volume was not there.
    pub samples: Vec<SampleReport>,
    /// Volumes that there is a history of.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Volumes that there is none of, because there are too many.
    #[serde(default)]
    pub left_out: u64,
}

/// What was done in a short time. Counts stop at 4,294,967,295.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SampleReport {
    /// Its end, in milliseconds since 1970.
    pub at_ms: u64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Blocks read.
    pub read_blocks: u64,
    /// Of those, from RAM or the SSD.
    pub hit_blocks: u64,
    /// The part of the blocks read that was, from 0 to 1; absent if none was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    /// Blocks written.
    pub written_blocks: u64,
    /// Reads of the back end.
    pub backend_reads: u64,
    /// Writes of the back end.
    pub backend_writes: u64,
    /// Mean latency of reads in us; 0 of none.
    pub read_mean_us: u64,
    /// About the time in us that 99 of 100 reads did not exceed; 0 of none.
    pub read_p99_us: u64,
    /// Mean latency of writes in us; 0 of none.
    pub write_mean_us: u64,
    /// About the time in us that 99 of 100 writes did not exceed; 0 of none.
    pub write_p99_us: u64,
    /// Written to the cache device, in bytes; of the cache only: it is not counted by volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssd_written_bytes: Option<u64>,
    /// Data in the cache at the end, in bytes.
    pub held_bytes: u64,
    /// The volume's own share at the end, in bytes, 0 if it has none; of the cache: its capacity.
    pub share_bytes: u64,
}

impl SamplesReport {
    /// Of these points.
    pub fn new<'p>(
        volume: Option<&str>,
        step: Step,
        points: impl Iterator<Item = &'p Point>,
    ) -> Self {
        let of_cache = volume.is_none();
        Self {
            volume: volume.map(str::to_owned),
            step_s: u64::from(step.seconds()),
            samples: points.map(|point| SampleReport::new(point, of_cache)).collect(),
            ..Self::default()
        }
    }
}

impl SampleReport {
    fn new(point: &Point, of_cache: bool) -> Self {
        let bytes = |blocks: u32| u64::from(blocks) * BLOCK_BYTES;
        let hit_ratio = f64::from(point.hit_blocks) / f64::from(point.read_blocks);
        Self {
            at_ms: u64::from(point.at_s) * 1000,
            seconds: f64::from(point.span_ms) / 1000.0,
            reads: point.reads.into(),
            writes: point.writes.into(),
            read_blocks: point.read_blocks.into(),
            hit_blocks: point.hit_blocks.into(),
            hit_ratio: (point.read_blocks > 0).then_some(hit_ratio),
            written_blocks: point.written_blocks.into(),
            backend_reads: point.backend_reads.into(),
            backend_writes: point.backend_writes.into(),
            read_mean_us: point.read_mean_us.into(),
            read_p99_us: point.read_p99_us.into(),
            write_mean_us: point.write_mean_us.into(),
            write_p99_us: point.write_p99_us.into(),
            ssd_written_bytes: of_cache.then(|| bytes(point.ssd_written_blocks)),
            held_bytes: bytes(point.held_blocks),
            share_bytes: bytes(point.share_blocks),
        }
    }
}
