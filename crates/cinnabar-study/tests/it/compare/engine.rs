//! The production engine under plans: shares are kept, and without shares it is the plain engine.

use super::mixture::{VOLUMES, mixture};
use cinnabar_engine::Config;
use cinnabar_engine::limits::VOLUME_BLOCKS_MAX;
use cinnabar_policy::sizing::WritePolicy;
use cinnabar_study::analysis::Part;
use cinnabar_study::compare::Division;
use cinnabar_study::compare::engine::Replayed;
use cinnabar_study::instant::plain_volume;
use cinnabar_study::{CacheSetup, InstantCache};
use cinnabar_trace::{Op, Record};

const SEGMENT: u64 = 255;
const CAPACITY: u64 = 100 * SEGMENT;
const PACE_NS: u64 = 50_000;

fn play(replayed: &mut Replayed, trace: &[Record]) {
    for record in trace {
        replayed.request(record.volume as usize, record.blocks(), record.op == Op::Write);
    }
}

fn parts(segments: [u64; VOLUMES], policy: WritePolicy) -> Division {
    Division::Divided(segments.map(|n| Part { blocks: n * SEGMENT, policy }).to_vec())
}

/// Each plan's shares sum to the cache, and afterwards each volume holds at most its share.
#[test]
fn nobody_holds_more_than_the_share() {
    let trace = mixture(3, 400_000, 12_000);
    let mut replayed = Replayed::new(CAPACITY, VOLUMES, PACE_NS);
    let plans =
        [[25, 25, 25, 25], [70, 10, 10, 10], [10, 10, 70, 10], [5, 50, 5, 40], [40, 60, 0, 0]];
    let mut most = [0; VOLUMES];
    for (plan, part) in plans.into_iter().zip(trace.chunks(trace.len() / plans.len())) {
        replayed.adopt(&parts(plan, WritePolicy::Through));
        play(&mut replayed, part);
        let held = replayed.cached_blocks();
        let ram = replayed.ram_blocks();
        let on_flash = held.iter().sum::<u64>() - ram;
        assert!(on_flash <= CAPACITY, "{held:?}, {ram} of them in RAM");
        for (volume, (held, share)) in held.iter().zip(plan).enumerate() {
            most[volume] = most[volume].max(*held);
            // The engine leaves a group without room two segments, to be opened and to be closed.
            let allowed = share.max(2) * SEGMENT + ram;
            assert!(
                *held <= allowed,
                "volume {volume} holds {held} of {share} segments, {ram} RAM"
            );
        }
    }
    assert!(most[1] > 30 * SEGMENT && most[0] > 60 * SEGMENT, "shares were used: {most:?}");
}

#[test]
fn shared_is_the_engine_without_shares() {
    let trace = mixture(4, 60_000, 4000);
    let mut replayed = Replayed::new(CAPACITY, VOLUMES, PACE_NS);
    for part in trace.chunks(20_000) {
        replayed.adopt(&Division::Shared);
        play(&mut replayed, part);
    }
    let found = replayed.finish().expect("nothing is refused");

    let mut plain = InstantCache::new(CacheSetup::single(CAPACITY, Config::default()));
    plain.set_request_ns(PACE_NS);
    let attach = |v| plain.attach(plain_volume(&format!("volume{v}"), VOLUME_BLOCKS_MAX));
    let volumes: Vec<_> = (0..VOLUMES).map(attach).collect();
    for (at, record) in trace.iter().enumerate() {
        let (volume, blocks) = (volumes[record.volume as usize], record.blocks());
        let count = blocks.end - blocks.start;
        if record.op == Op::Write {
            plain.write(volume, blocks.start, count);
        } else {
            plain.read(volume, blocks.start, count);
        }
        if (at + 1).is_multiple_of(20_000) {
            plain.settle();
        }
    }
    for (volume, counts) in volumes.into_iter().zip(&found.volumes) {
        let wanted = plain.volume_counters(volume);
        assert_eq!(counts.reads, wanted.blocks_read);
        assert_eq!(counts.read_hits, wanted.read_hits);
        assert_eq!(counts.backend_reads(), wanted.misses);
        assert_eq!(counts.writes, wanted.blocks_written);
        assert!(counts.writes_back <= counts.writes && counts.backend_writes <= counts.writes);
    }
    assert!(found.total().read_hits > 10_000, "there is something to compare");
    assert!(found.total().writes_back > 1000, "and something would be written back");
    assert_eq!(found.ssd_writes, plain.cache_counters().flash_written_bytes.div_ceil(4096));
    assert_eq!(found.ssd_writes_back, found.ssd_writes + found.total().writes_back);
}

#[test]
fn a_volume_without_room_reads_the_backend() {
    let trace = mixture(5, 30_000, 2000);
    for (segments, policy) in
        [([0, 40, 30, 30], WritePolicy::Back), ([100, 0, 0, 0], WritePolicy::Through)]
    {
        let mut replayed = Replayed::new(CAPACITY, VOLUMES, PACE_NS);
        replayed.adopt(&parts(segments, policy));
        play(&mut replayed, &trace);
        let found = replayed.finish().expect("nothing is refused");
        for (counts, segments) in found.volumes.iter().zip(segments) {
            let has_none = counts.read_hits == 0 && counts.writes_back == 0;
            assert!(counts.reads > 50 && (segments > 0 || has_none), "{segments}: {counts:?}");
        }
        assert!(found.total().read_hits > 1000, "the others have hits");
    }
}

/// Write-around keeps the SSD from writes, and what is bypassed writes nothing to it but marks.
#[test]
fn policies_reach_the_engine() {
    let trace = mixture(6, 60_000, 3000);
    let writes = |policy| {
        let mut replayed = Replayed::new(CAPACITY, VOLUMES, PACE_NS);
        replayed.adopt(&parts([25; VOLUMES], policy));
        play(&mut replayed, &trace);
        replayed.finish().expect("nothing is refused")
    };
    let [bypass, around, through, back] = WritePolicy::ALL.map(writes);
    assert_eq!(bypass.total().read_hits, 0);
    assert!(bypass.ssd_writes * 10 < around.ssd_writes, "{} blocks", bypass.ssd_writes);
    assert!(around.ssd_writes < through.ssd_writes);
    assert_eq!((through.ssd_writes, through.volumes.len()), (back.ssd_writes, VOLUMES));
    assert_eq!(through.total().read_hits, back.total().read_hits, "the same blocks are cached");
    assert_eq!((around.total().writes_back, through.total().writes_back), (0, 0));
    assert!(back.total().writes_back > 0);
    assert_eq!(through.total().backend_writes, through.total().writes);
    assert!(back.total().backend_writes < back.total().writes);
}
