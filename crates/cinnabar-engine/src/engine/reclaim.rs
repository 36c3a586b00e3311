//! Reclaiming comes to rest, and each segment emptied is a gain.

use super::rig::{Nothing, Rig, volume};
use crate::bounds::Bounds;
use crate::config::{Config, Eviction};
use crate::counters::CacheCounters;
use crate::seam::{Command, Op, Payload};
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use crate::volume::VolumeSpec;

const V: VolumeId = VolumeId(0);

fn rig(config: Config, blocks: u32, specs: Vec<VolumeSpec>) -> Rig {
    let mut rig = Rig::open_with(config, blocks);
    for spec in specs {
        let spec = VolumeSpec { size_bytes: 100_000 * BLOCK_BYTES, ..spec };
        let id = rig.ask(vec![Command::Attach(spec)])[0];
        rig.answer(id).expect("it is attached");
    }
    rig
}

fn read(rig: &mut Rig, volume: VolumeId, first: u64, blocks: u64) {
    let span = ByteSpan::new(first * BLOCK_BYTES, blocks * BLOCK_BYTES);
    let id = rig.submit(volume, Op::Read { span, data: Nothing::alloc(blocks as u32) });
    rig.answer(id).expect("it is read");
}

fn admitted(counters: &CacheCounters) -> u64 {
    let by = counters.admitted;
    by.filling + by.referenced + by.ghost + by.all
}

/// Chunks of one block take two slots a block: reinserting as many as a segment has would gain
/// nothing.
#[test]
fn emptying_segments_full_of_small_chunks_comes_to_rest() {
    for eviction in [Eviction::Probation, Eviction::Clock] {
        let bounds = Bounds { clean_slots: (1, 1), ..Bounds::default() };
        let config = Config { eviction, chunk_age_ns_max: 0, bounds, ..Config::default() };
        let mut rig = rig(config, 4080, vec![volume("v")]);
        for block in 0..4000 {
            read(&mut rig, V, block, 1);
        }
        rig.engine.check_invariants();
        let counters = rig.engine.cache_counters();
        let (new, reinserted) = (admitted(&counters), counters.reinserted_blocks);
        assert!(counters.segments_freed > 0, "it was full");
        assert!(reinserted <= 40 * new, "{new} new, {reinserted} reinserted");
    }
}

/// All that is cached is hot, and something new comes in now and then.
#[test]
fn reinserting_is_bounded_where_all_is_hot() {
    for eviction in [Eviction::Probation, Eviction::Clock] {
        let config = Config { eviction, ..Config::default() };
        let mut rig = rig(config, 255 * 64, vec![volume("v")]);
        for round in 0..60 {
            for first in (0..15_360).step_by(256) {
                read(&mut rig, V, first, 256);
            }
            read(&mut rig, V, 20_000 + round * 64, 64);
            read(&mut rig, V, 20_000 + round * 64, 64);
        }
        rig.engine.check_invariants();
        let counters = rig.engine.cache_counters();
        assert!(counters.reinserted_blocks <= 16 * admitted(&counters), "{counters:?}");
    }
}

/// A quiet volume that holds all that it may on the smallest of devices, and a busy one.
#[test]
fn a_minimum_of_four_fifths_leaves_room_to_reclaim() {
    let quiet = VolumeSpec { share_min_blocks: 4080, ..volume("quiet") };
    let mut rig = rig(Config::default(), 4080, vec![quiet, volume("busy")]);
    for _ in 0..4 {
        for first in (0..3000).step_by(60) {
            read(&mut rig, V, first, 60);
        }
    }
    let held = |rig: &Rig| rig.engine.volume_counters(V).expect("attached").cached_blocks;
    let before = held(&rig);
    let new = admitted(&rig.engine.cache_counters());
    for round in 0..200 {
        for _ in 0..3 {
            read(&mut rig, VolumeId(1), round * 50, 50);
        }
    }
    rig.engine.check_invariants();
    let counters = rig.engine.cache_counters();
    let new = admitted(&counters) - new;
    assert!(new > 500, "the busy one is not shut out");
    // Some leave for want of room to reinsert them: four fifths and what is kept free are all.
    assert!(held(&rig) >= before * 9 / 10, "{} of {before} are left", held(&rig));
}
