//! The pace of a destage: how many of its requests the engine has at a time.

use crate::memory::Mem;
use crate::rig::Rig;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Op, Payload};
use cinnabar_writeback::bounds::Bounds;
use cinnabar_writeback::{Command, Config, Event, LogVolumeId, Misses, PaceReason};

/// A guest reads a block that the log does not have.
fn miss(rig: &mut Rig, place: LogVolumeId) {
    let span = ByteSpan::new(1000 * 4096, 4096);
    rig.submit(place, Op::Read { span, data: Mem::alloc(1) });
    let disk = rig.disks.get_mut(&place).expect("it was asked");
    let (id, answer) = disk.end(disk.under_way() - 1).expect("nothing overlaps");
    rig.apply(Event::EngineDone(id, Ok(answer)));
}

#[test]
fn the_destage_goes_as_guests_misses_allow() {
    let bounds = Bounds { destage_blocks: 1, ..Bounds::default() };
    let mut rig = Rig::new(Config { bounds, ..Config::default() });
    let place = rig.attach("disk", 1024, 1);
    let misses = |rig: &mut Rig, reads: u64, each_ns: u64| {
        rig.now = rig.now.plus_ns(100_000_000);
        if reads > 0 {
            miss(rig, place);
        }
        rig.apply(Event::Misses(place, Misses { reads, total_ns: reads * each_ns }));
    };
    let pace = |rig: &Rig| rig.log.status(place).expect("it is there").pace;
    misses(&mut rig, 10, 1_000_000);
    assert_eq!(pace(&rig).reason, PaceReason::Begun);
    for block in 0..40 {
        rig.write(place, block, 1, block);
    }
    rig.submit(place, Op::Flush);
    rig.settle_log();
    let under_way = |rig: &Rig| rig.disks[&place].under_way();
    assert_eq!((under_way(&rig), pace(&rig).at_most), (1, Some(1)));
    // Quick ones, and requests that wait.
    for most in 2..6 {
        misses(&mut rig, 10, 1_000_000);
        assert_eq!((under_way(&rig), pace(&rig).reason), (most, PaceReason::Quick));
        assert!(rig.end_engine(), "and one takes the place of each that ends");
        assert_eq!(under_way(&rig), most);
    }
    misses(&mut rig, 10, 1_600_000);
    assert_eq!((pace(&rig).at_most, pace(&rig).reason), (Some(2), PaceReason::Slow));
    assert!(rig.end_engine());
    assert_eq!(under_way(&rig), 4, "what is under way is not called back");
    for _ in 0..6 {
        misses(&mut rig, 0, 0);
    }
    assert_eq!((pace(&rig).at_most, pace(&rig).reason), (Some(32), PaceReason::Idle));
    assert!(under_way(&rig) > 20);
    rig.settle();
    assert_eq!(rig.log.status(place).expect("it is there").dirty_bytes, 0);
}

#[test]
fn a_drain_does_not_wait_for_guests_misses() {
    let bounds = Bounds { destage_blocks: 1, ..Bounds::default() };
    let mut rig = Rig::new(Config { bounds, ..Config::default() });
    let place = rig.attach("disk", 1024, 1);
    rig.now = rig.now.plus_ns(100_000_000);
    miss(&mut rig, place);
    rig.apply(Event::Misses(place, Misses { reads: 10, total_ns: 10_000_000 }));
    for block in 0..40 {
        rig.write(place, block, 1, block);
    }
    rig.submit(place, Op::Flush);
    rig.settle_log();
    assert_eq!(rig.disks[&place].under_way(), 1);
    rig.control(Command::Drain(place));
    assert_eq!(rig.disks[&place].under_way(), 32);
    rig.settle();
    assert_eq!(rig.log.status(place).expect("it is there").dirty_bytes, 0);
}
