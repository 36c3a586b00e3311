//! What is said of a volume's part of a plan.

use super::report::{CurvePoint, MixReport, ShareReport};
use cinnabar_config::messages::VolumeStatus;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use cinnabar_policy::planning::{Part, Target};
use cinnabar_policy::reuse::SampledCurves;
use cinnabar_policy::sizing::WritePolicy;

/// What is looked at beyond a volume's target.
const NEXT_BLOCKS: u64 = (1 << 30) / BLOCK_BYTES;
/// Sizes of a curve: the cache's, halved so many times, to twice of it.
const HALVINGS: u32 = 6;

/// A volume as the manager has seen it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it does.
    pub curves: SampledCurves,
    /// What the allocator gives it; `None`: volumes share the cache.
    pub part: Option<Part>,
    /// Blocks read and written in the interval alone.
    pub counts: [u64; 2],
}

/// What there is beside that.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// The size of the cache, in blocks.
    pub capacity_blocks: u64,
    /// The part of all hits that is useful.
    pub reach_part: f64,
    /// What the volume is to have.
    pub target: Option<Target>,
    /// What it was to have by the last plan that was carried out.
    pub before_blocks: Option<u64>,
    /// The operator's pin, in blocks.
    pub pinned_blocks: Option<u64>,
    /// Read blocks of the interval that did hit, and all of them.
    pub hits: Option<[u64; 2]>,
}

/// Says it.
pub fn share_report(volume: &VolumeStatus, seen: Option<&Seen>, beside: &Beside) -> ShareReport {
    let (config, counters) = (&volume.config, &volume.counters);
    let Beside { capacity_blocks, target, .. } = *beside;
    let own = target.filter(|target| target.own).map(|target| target.blocks);
    let bytes = |blocks: u64| blocks * BLOCK_BYTES;
    let part = seen.and_then(|seen| seen.part);
    let report = ShareReport {
        volume: config.name.clone(),
        planned_bytes: part.map(|part| bytes(part.blocks)),
        policy: part.map_or("", |part| part.policy.name()).to_owned(),
        target_bytes: own.map(bytes),
        before_bytes: beside.before_blocks.map(bytes),
        why: target.map_or("volumes share the cache", |target| target.why.words()).to_owned(),
        granted_bytes: (counters.own_shares > 0).then(|| bytes(counters.share_blocks)),
        held_bytes: bytes(counters.cached_blocks),
        min_bytes: bytes(config.share_min.blocks(capacity_blocks)),
        max_bytes: bytes(config.share_max.blocks(capacity_blocks)),
        pinned_bytes: beside.pinned_blocks.map(bytes),
        mode: config.mode,
        auto_mode: config.auto_mode,
        mode_by_operator: volume.mode_by_operator,
        actual_hits: beside.hits.filter(|[_, all]| *all > 0).map(|[hits, all]| part_of(hits, all)),
        ..ShareReport::default()
    };
    let Some(seen) = seen else { return report };
    let curves = &seen.curves;
    let policy = part.map_or(WritePolicy::Through, |part| part.policy);
    let at = |blocks: u64| hits_at(curves, policy, blocks);
    let size = own.unwrap_or(counters.cached_blocks);
    let point = |shift: u32| {
        let size_blocks = (capacity_blocks * 2) >> shift;
        CurvePoint {
            size_bytes: bytes(size_blocks),
            hits: hits_at(curves, WritePolicy::Through, size_blocks),
        }
    };
    ShareReport {
        mix: mix_report(curves, beside.reach_part),
        expected_hits: at(size),
        planned_hits: part.map_or_else(|| at(size), |part| at(part.blocks)),
        next_gib_hits: (at(size + NEXT_BLOCKS) - at(size)).max(0.0),
        curve: (0..=HALVINGS + 1).rev().map(point).collect(),
        ..report
    }
}

/// The curve by the write policy that the plan has for the volume, at so many sizes, evenly apart, to
/// twice that capacity.
pub fn fine_curve(seen: &Seen, capacity_blocks: u64, points: u64) -> Vec<CurvePoint> {
    let policy = seen.part.map_or(WritePolicy::Through, |part| part.policy);
    let point = |number: u64| {
        let size_blocks =
            (u128::from(capacity_blocks) * 2 * u128::from(number) / u128::from(points)) as u64;
        CurvePoint {
            size_bytes: size_blocks * BLOCK_BYTES,
            hits: hits_at(&seen.curves, policy, size_blocks),
        }
    };
    (1..=points).map(point).collect()
}

fn mix_report(curves: &SampledCurves, reach_part: f64) -> MixReport {
    let mix = &curves.mix;
    MixReport {
        reads: mix.reads,
        writes: mix.writes,
        rar: mix.rar,
        raw: mix.raw,
        war: mix.war,
        waw: mix.waw,
        working_set: curves.blocks,
        useful: curves.read_hits.reaches(reach_part),
        sampled: curves.rate,
    }
}

/// The part of reads that hit, from 0 to 1.
fn hits_at(curves: &SampledCurves, policy: WritePolicy, blocks: u64) -> f64 {
    let hits = match policy {
        WritePolicy::Bypass => 0.0,
        WritePolicy::ReadOnly => curves.read_only_hits.at(blocks),
        WritePolicy::Through | WritePolicy::Back => curves.read_hits.at(blocks),
    };
    if curves.mix.reads == 0 || blocks == 0 {
        0.0
    } else {
        (hits / curves.mix.reads as f64).min(1.0)
    }
}

fn part_of(some: u64, all: u64) -> f64 {
    some as f64 / all.max(1) as f64
}
