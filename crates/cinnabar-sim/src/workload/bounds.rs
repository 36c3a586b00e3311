//! The engine's bounds in a run: mostly tiny, so that a small world crosses them.

use crate::rng::Rng;
use crate::stamp::mix;
use cinnabar_engine::Bounds;

/// Of their generator.
const REGIONS: u64 = 0x5245_4749_4F4E_5321;

/// Bounds of which some are as usual and the others so small that they are run into.
pub(super) fn draw(rng: &mut Rng) -> Bounds {
    let usual = Bounds::default();
    let mut small = |usual: u64, some: &[u64]| if rng.chance(0.4) { usual } else { rng.pick(some) };
    let incarnations = small(u64::from(usual.incarnations), &[1, 2, 5]) as u32;
    // More than there are volumes at a time.
    let volumes = small(usual.volumes as u64, &[4, 5, 6]) as usize;
    let passed_ranges = small(usual.passed_ranges as u64, &[1, 3, 10]) as usize;
    let parts = small(usual.parts as u64, &[1, 2, 4]) as usize;
    let part_bytes = small(usual.part_bytes, &[1 << 12, 1 << 16, 1 << 20]);
    let open_pages = small(usual.open_pages, &[1, 5, 16]);
    let load_pages = small(u64::from(usual.load_pages), &[1, 2]) as u32;
    let load_reads = small(u64::from(usual.load_reads), &[1, 2]) as u32;
    let replay_reads = small(usual.replay_reads as u64, &[1, 2]) as usize;
    let replay_blocks = small(usual.replay_blocks, &[1, 20, 300]);
    let invalidate_lookups = small(usual.invalidate_lookups, &[1, 16, 200]);
    let miss_blocks = small(u64::from(usual.miss_blocks), &[1, 4, 16]) as u32;
    let write_blocks = small(u64::from(usual.write_blocks), &[1, 4, 16]) as u32;
    let zero_blocks = small(usual.zero_blocks, &[1, 8, 100]);
    let zero_fallback_blocks = small(u64::from(usual.zero_fallback_blocks), &[1, 8, 32]) as u32;
    // Many records, and few of them at a time; or a checkpoint every moment.
    let (journal_pages, live_records, opened_segments) = match rng.below(4) {
        0 => (usual.journal_pages, usual.live_records, usual.opened_segments),
        1 => (1, 8, 1),
        _ => (1, 1000, 1000),
    };
    let mut small = |usual: u64, some: &[u64]| if rng.chance(0.4) { usual } else { rng.pick(some) };
    let checkpoint_pages = small(u64::from(usual.checkpoint_pages), &[1, 2, 4]) as u32;
    let stop_slots = small(usual.stop_slots as u64, &[1, 8, 32]) as usize;
    let parked_segments = small(usual.parked_segments as u64, &[1, 2]) as usize;
    let clean_slots = rng.pick(&[usual.clean_slots, (1, 4), (8, 8), (64, 64), (64, 256)]);
    let class_segments = rng.pick(&[usual.class_segments, 2, 3, 4]);
    Bounds {
        incarnations,
        volumes,
        passed_ranges,
        parts,
        part_bytes,
        open_pages,
        load_pages,
        load_reads,
        replay_reads,
        replay_blocks,
        invalidate_lookups,
        miss_blocks,
        write_blocks,
        zero_blocks,
        zero_fallback_blocks,
        journal_pages,
        live_records,
        opened_segments,
        checkpoint_pages,
        stop_slots,
        clean_slots,
        parked_segments,
        class_segments,
        // No generator of their own: a draw more would move every seed.
        replayed_chunks: if opened_segments == usual.opened_segments {
            usual.replayed_chunks
        } else {
            1
        },
        fill_buckets: as_small_as(load_reads, [1, 8], usual.fill_buckets),
        fill_entries: as_small_as(load_pages, [1, 9], usual.fill_entries),
        partial_blocks: if write_blocks < 256 { write_blocks } else { usual.partial_blocks },
        ..usual
    }
}

/// Those of active regions, by the seed alone: a draw more would move every seed.
pub(crate) fn draw_regions(seed: u64, regions: bool, bounds: &mut Bounds) {
    if !regions {
        bounds.regions = 0;
        return;
    }
    let mut rng = Rng::new(mix(seed ^ REGIONS));
    bounds.regions = rng.pick(&[1, 2, 4, 16, 240]);
    bounds.doubt_blocks = rng.pick(&[16, 60, 300, 4096]);
}

/// Whether a seed has active regions, where that is left to it: every other one.
pub(crate) fn has_regions(seed: u64) -> bool {
    mix(seed ^ REGIONS) % 2 == 1
}

/// Small where another bound was drawn as 1 or 2.
fn as_small_as<T>(other: u32, [one, two]: [T; 2], usual: T) -> T {
    match other {
        1 => one,
        2 => two,
        _ => usual,
    }
}

/// Those of requests in all, by another generator. `refuses`: requests may be refused for there are too many.
pub(super) fn draw_many(rng: &mut Rng, bounds: &mut Bounds, refuses: bool) {
    let mut small = |usual: u32, some: &[u32]| if rng.chance(0.5) { usual } else { rng.pick(some) };
    bounds.extra_parts = small(bounds.extra_parts, &[1, 4, 16]);
    bounds.volume_extra_parts = small(bounds.volume_extra_parts, &[1, 2, 8]);
    bounds.volume_late = small(bounds.volume_late, &[1, 2, 8]);
    bounds.late = small(bounds.late, &[1, 3, 10]);
    // Parts alone never fill an engine.
    let parts = bounds.extra_parts as usize;
    if refuses && parts < 100 && rng.chance(0.5) {
        bounds.requests = parts + rng.pick(&[1, 5, 20]);
    }
}
