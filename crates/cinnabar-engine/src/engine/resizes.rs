//! The log gets larger and smaller, and whatever comes between leaves a device that is warm.

use super::rig::{Nothing, Rig, superblock, volume};
use crate::bounds::Bounds;
use crate::config::Config;
use crate::engine::Engine;
use crate::metadata::MetaPage;
use crate::metadata::superblock::Superblock;
use crate::seam::{Answer, Command, Failure, IoError, Op, Payload, RequestId};
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use crate::volume::VolumeSpec;

/// Segments that the device was made for; each holds 255 blocks.
const ALL: u32 = 64;
const BLOCKS: u32 = 255 * ALL;

fn attach(rig: &mut Rig, spec: VolumeSpec) -> VolumeId {
    let spec = VolumeSpec { size_bytes: 100_000 * BLOCK_BYTES, ..spec };
    let id = rig.ask(vec![Command::Attach(spec)])[0];
    match rig.answer(id) {
        Ok(Answer::Attached { volume, .. }) => volume,
        other => panic!("an attach was answered {other:?}"),
    }
}

fn rig_of(config: Config, superblock: Superblock) -> Rig {
    let mut rig = Rig::new(Engine::new(config, superblock));
    rig.begin();
    attach(&mut rig, volume("v"));
    rig
}

/// Reads blocks twice: they earn flash.
fn read(rig: &mut Rig, first: u64, blocks: u64) {
    read_of(rig, VolumeId(0), first, blocks);
}

fn read_of(rig: &mut Rig, volume: VolumeId, first: u64, blocks: u64) {
    for at in (first..first + blocks).step_by(64) {
        for _ in 0..2 {
            let count = 64.min(first + blocks - at);
            let span = ByteSpan::new(at * BLOCK_BYTES, count * BLOCK_BYTES);
            let data = Nothing::alloc(count as u32);
            let id = rig.submit(volume, Op::Read { span, data });
            rig.answer(id).expect("it is read");
        }
    }
}

fn resize(rig: &mut Rig, segments: u32) -> RequestId {
    let otherwise = rig.engine.superblock().segments_used;
    rig.ask(vec![Command::Resize { segments, otherwise }])[0]
}

fn resized(rig: &mut Rig, segments: u32) {
    let id = resize(rig, segments);
    let answer = rig.answer(id);
    assert!(matches!(answer, Ok(Answer::Done)), "{answer:?}");
    assert_eq!(sizes(rig), (segments, segments));
    assert_eq!(rig.engine.cache_counters().capacity_blocks, 255 * u64::from(segments));
    rig.engine.check_invariants();
}

/// What both copies of the superblock say: segments used, and with room.
fn sizes(rig: &Rig) -> (u32, u32) {
    let say = [0, 1].map(|copy| {
        let copies = [rig.pages[&copy].clone(), MetaPage::zeroed()];
        let superblock = Superblock::decode(&copies).expect("a copy is whole");
        (superblock.segments_used, superblock.segments_room)
    });
    assert_eq!(say[0], say[1], "the two copies");
    say[0]
}

fn cached(rig: &Rig) -> u64 {
    rig.engine.cache_counters().cached_blocks
}

#[test]
fn a_cache_that_shrinks_keeps_what_fits_and_one_that_grows_keeps_all() {
    let mut rig = Rig::new(Engine::new(Config::default(), superblock(BLOCKS)));
    rig.begin();
    // No flush has to cover what it holds.
    attach(&mut rig, VolumeSpec { read_only: true, ..volume("v") });
    read(&mut rig, 0, u64::from(BLOCKS));
    let full = cached(&rig);
    assert!(full > u64::from(BLOCKS) * 8 / 10, "{full} blocks");
    resized(&mut rig, ALL / 4);
    let quarter = cached(&rig);
    let fits = u64::from(BLOCKS / 4);
    assert!((fits * 6 / 10..=fits + 512).contains(&quarter), "{quarter} of {fits} blocks");
    resized(&mut rig, ALL / 2);
    assert_eq!(cached(&rig), quarter, "growing costs nothing");
    read(&mut rig, 20_000, u64::from(BLOCKS / 2));
    let half = cached(&rig);
    assert!(half > fits && half <= 2 * fits + 512, "{half} blocks");
    let mut rig = rig.crash();
    assert_eq!(rig.engine.superblock().segments_used, ALL / 2);
    rig.ask(vec![Command::AwaitLoad]);
    assert!(cached(&rig) >= half * 8 / 10, "{} of {half} blocks come back", cached(&rig));
    resized(&mut rig, ALL);
}

#[test]
fn room_is_made_and_given_back_for_just_the_difference() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS));
    resized(&mut rig, ALL - 1);
    assert_eq!(rig.room, [(false, 63, 64)]);
    rig.room.clear();
    resized(&mut rig, ALL);
    assert_eq!(rig.room, [(true, 63, 64)], "also just below all that there is");
    rig.room.clear();
    resized(&mut rig, ALL - 20);
    let given: u64 = rig.room.iter().map(|(_, from, to)| to - from).sum();
    assert_eq!((given, rig.room.len()), (20, 3), "in parts of an eighth at most: {:?}", rig.room);
    assert!(rig.room.iter().all(|(made, ..)| !made));
    rig.room.clear();
    let rig = rig.crash();
    assert_eq!(rig.room, [], "a start gives nothing back that an earlier session has");
}

#[test]
fn a_start_gives_back_what_a_crash_has_kept() {
    let mut first = superblock(BLOCKS).with_segments(20);
    first.segments_room = 30;
    let rig = rig_of(Config::default(), first);
    let given: Vec<_> = rig.room.iter().map(|(made, from, to)| (*made, to - from)).collect();
    assert_eq!(given.iter().map(|(_, count)| count).sum::<u64>(), 10);
    assert!(given.iter().all(|(made, _)| !made));
    assert_eq!(sizes(&rig), (20, 20));
}

#[test]
fn without_room_a_cache_keeps_its_size() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS).with_segments(20));
    rig.room_end = 20;
    let id = resize(&mut rig, 40);
    assert_eq!(rig.answer(id).err(), Some(Failure::Io(IoError::NoSpace)));
    assert_eq!(sizes(&rig), (20, 20));
    assert!(rig.room.iter().all(|(made, ..)| !made), "what was made in part is given back");
    rig.engine.check_invariants();
    rig.room_end = u64::MAX;
    resized(&mut rig, 40);
}

#[test]
fn nonsense_is_refused_and_the_same_size_is_fine() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS));
    for segments in [0, 3, ALL + 1, u32::MAX] {
        let id = resize(&mut rig, segments);
        assert_eq!(rig.answer(id).err(), Some(Failure::Invalid), "{segments}");
    }
    resized(&mut rig, ALL);
    let abandoned = rig.ask(vec![Command::Abandon])[0];
    rig.answer(abandoned).expect("it is given up");
    let id = resize(&mut rig, 20);
    assert_eq!(rig.answer(id).err(), Some(Failure::Invalid), "without a device");
}

/// A maximum of all there is is none: else each would need a share of its own as soon as the cache
/// becomes larger, and a place for it when it becomes smaller again.
#[test]
fn many_volumes_without_a_share_of_their_own_stand_in_the_way_of_no_size() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS));
    for n in 0..12 {
        attach(&mut rig, VolumeSpec { share_max_blocks: u64::MAX, ..volume(&format!("v{n}")) });
    }
    for segments in [16, ALL, 8, ALL / 2] {
        resized(&mut rig, segments);
        assert_eq!(rig.engine.store.log.groups.len(), 1, "they share what there is");
    }
}

#[test]
fn shares_are_parts_of_the_new_size_and_each_needs_a_place() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS));
    for n in 0..4 {
        attach(&mut rig, VolumeSpec { share_min_blocks: 255 * 10, ..volume(&format!("v{n}")) });
    }
    let minimums = |rig: &Rig| -> Vec<u32> {
        rig.engine.store.log.groups.iter().skip(1).map(|group| group.segments_min).collect()
    };
    assert_eq!(minimums(&rig), [10; 4]);
    resized(&mut rig, 40);
    assert_eq!(minimums(&rig), [8; 4], "cut back to four fifths");
    let id = resize(&mut rig, 39);
    assert_eq!(rig.answer(id).err(), Some(Failure::Limit), "there is no place for five groups");
    assert_eq!(sizes(&rig), (40, 40));
    resized(&mut rig, ALL);
    assert_eq!(minimums(&rig), [10; 4]);
}

/// Stops cleanly; the next session on the device, not opened yet.
fn stop(mut rig: Rig, volumes: &[VolumeId]) -> Rig {
    for volume in volumes {
        let detach = rig.ask(vec![Command::Detach(*volume)])[0];
        rig.answer(detach).expect("it is detached");
        let seal = rig.ask(vec![Command::Seal(*volume, None)])[0];
        rig.answer(seal).expect("it is sealed");
    }
    rig.next_session(Config::default())
}

/// A device with blocks of five volumes with shares of their own, stopped cleanly.
fn with_shares() -> (Rig, Vec<VolumeSpec>) {
    let mut rig = Rig::new(Engine::new(Config::default(), superblock(BLOCKS)));
    rig.begin();
    let spec = |n| VolumeSpec { share_min_blocks: 255 * 2, ..volume(&format!("v{n}")) };
    let specs: Vec<_> = (0..5).map(spec).collect();
    let volumes: Vec<_> = specs.iter().map(|spec| attach(&mut rig, spec.clone())).collect();
    for volume in &volumes {
        read_of(&mut rig, *volume, 0, 255 * 3);
    }
    (stop(rig, &volumes), specs)
}

/// What is said of a size when it is asked for may not be so any more when the index is loaded.
#[test]
fn volumes_that_come_before_a_resize_can_begin_stand_in_its_way() {
    let (mut rig, specs) = with_shares();
    rig.open_and_hold_the_index();
    let id = resize(&mut rig, 16);
    assert!(!rig.is_answered(id), "the index comes first");
    for spec in specs {
        attach(&mut rig, spec);
    }
    rig.release();
    assert_eq!(rig.answer(id).err(), Some(Failure::Limit), "there is no place for six groups");
    assert_eq!(sizes(&rig), (ALL, ALL));
    assert_eq!(rig.engine.store.log.bound, ALL);
    rig.engine.check_invariants();
    resized(&mut rig, 48);
}

#[test]
fn groups_of_volumes_that_are_not_there_stand_in_the_way_of_no_size() {
    let (mut rig, _) = with_shares();
    rig.begin();
    assert!(rig.engine.store.log.groups.len() > 5, "the index has them");
    resized(&mut rig, 16);
}

#[test]
fn a_volume_keeps_its_group_at_a_size_that_its_maximum_does_not_bind_at() {
    let mut rig = Rig::new(Engine::new(Config::default(), superblock(BLOCKS)));
    rig.begin();
    attach(&mut rig, VolumeSpec { share_max_blocks: 255 * 40, ..volume("v") });
    attach(&mut rig, volume("w"));
    read(&mut rig, 0, 255 * 12);
    let group = |rig: &Rig| rig.engine.volumes[0].as_ref().and_then(|volume| volume.group);
    assert_eq!(group(&rig), Some(1));
    for segments in [32, 36, ALL] {
        resized(&mut rig, segments);
        assert_eq!(group(&rig), Some(1), "at {segments} segments");
    }
    assert_eq!(rig.engine.store.log.groups[1].segments_max, 40);
}

#[test]
fn room_that_was_not_there_for_more_may_be_there_for_less() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS).with_segments(20));
    rig.holds_room = true;
    let first = resize(&mut rig, 60);
    let second = resize(&mut rig, 25);
    assert_eq!(rig.answer(first).err(), Some(Failure::Interrupted));
    rig.room_end = 26;
    rig.release();
    assert!(matches!(rig.answer(second), Ok(Answer::Done)), "28 segments have no room, 25 have");
    assert_eq!(sizes(&rig), (25, 25));
    let given: Vec<_> = rig.room.iter().filter(|(made, ..)| !made).collect();
    assert_eq!(given, [&(false, 25, 28)], "what may have been made in part is given back");
}

/// Between two checkpoints not much of the log is written, or a crash would leave little of the first.
#[test]
fn a_small_log_has_checkpoints_as_often_as_one_that_was_made_so_small() {
    let bounds = Bounds { replayed_chunks: 1, opened_segments: 1, ..Bounds::default() };
    let config = Config { bounds, ..Config::default() };
    let mut rig = rig_of(config, superblock(BLOCKS));
    assert_eq!(rig.engine.store.opened_max(), ALL / 8);
    resized(&mut rig, 16);
    assert_eq!(rig.engine.store.opened_max(), 2);
}

#[test]
fn another_resize_takes_the_place_of_one_that_is_under_way() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS));
    read(&mut rig, 0, u64::from(BLOCKS));
    rig.holds = true;
    let first = resize(&mut rig, 16);
    assert!(!rig.is_answered(first), "what is in its way is read first");
    let second = resize(&mut rig, 48);
    assert_eq!(rig.answer(first).err(), Some(Failure::Interrupted));
    rig.release();
    assert!(matches!(rig.answer(second), Ok(Answer::Done)));
    assert_eq!(sizes(&rig), (48, 48));
    rig.engine.check_invariants();
}

#[test]
fn a_clean_stop_does_not_wait_for_a_resize_and_the_next_session_is_warm() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS));
    read(&mut rig, 0, u64::from(BLOCKS));
    let full = cached(&rig);
    rig.holds = true;
    let shrinks = resize(&mut rig, 16);
    let detach = rig.ask(vec![Command::Detach(VolumeId(0))])[0];
    rig.answer(detach).expect("it is detached");
    let ids = rig.ask(vec![Command::Seal(VolumeId(0), None), Command::Close]);
    rig.release();
    assert_eq!(rig.answer(shrinks).err(), Some(Failure::Interrupted));
    for id in ids {
        rig.answer(id).expect("sealed, and closed");
    }
    assert_eq!(sizes(&rig), (ALL, ALL), "it has the old size");
    let mut rig = rig.crash();
    rig.ask(vec![Command::AwaitLoad]);
    assert!(cached(&rig) >= full * 8 / 10, "{} of {full} blocks come back", cached(&rig));
    resized(&mut rig, 16);
}

/// A guest that fills the log all the time leaves no free segments for long.
#[test]
fn whatever_guests_do_a_shrinking_log_gets_on() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS));
    read(&mut rig, 0, u64::from(BLOCKS));
    // The cleaner has no turns of its own.
    rig.holds_wakes = true;
    let id = resize(&mut rig, 16);
    let rounds = (0..400).take_while(|round| {
        read(&mut rig, 20_000 + round * 128, 128);
        !rig.is_answered(id)
    });
    let rounds = rounds.count();
    assert!(rounds < 400, "it did not end");
    assert!(matches!(rig.answer(id), Ok(Answer::Done)));
    rig.engine.check_invariants();
}

/// Segments behind the new size are full of what is worth keeping: not what the cleaner would choose.
#[test]
fn what_is_emptied_to_shrink_says_nothing_of_what_cleaning_costs() {
    let mut rig = rig_of(Config::default(), superblock(BLOCKS));
    read(&mut rig, 0, 255 * 24);
    let span = ByteSpan::new(0, 255 * 14 * BLOCK_BYTES);
    let id = rig.submit(VolumeId(0), Op::Trim { span, fua: false });
    rig.answer(id).expect("it is trimmed");
    let kept = cached(&rig);
    resized(&mut rig, 20);
    let counters = rig.engine.cache_counters();
    assert!(counters.reinserted_blocks > 255, "{counters:?}");
    assert!(cached(&rig) >= kept * 9 / 10, "{} of {kept} blocks", cached(&rig));
    let fresh = rig_of(Config::default(), superblock(BLOCKS).with_segments(20));
    assert_eq!(rig.engine.store.air(), fresh.engine.store.air());
}

#[test]
fn a_device_of_another_version_is_taken_over_at_its_size() {
    let old = superblock(BLOCKS);
    assert!(!old.is_resized(), "it says nothing of sizes");
    let rig = rig_of(Config::default(), old);
    assert_eq!(sizes(&rig), (ALL, ALL));
    assert_eq!(rig.room, []);
}
