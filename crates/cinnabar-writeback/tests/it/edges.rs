//! What stands beside the log: back ends that are away for good or full, sectors that can't be read.

use crate::rig::Rig;
use crate::rng::Rng;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Failure, IoError, Op, RequestId};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::{Action, Command, Config, Done, Event, LogVolumeId, Refusal};

/// Ends requests of this volume's back end only, and all I/O of the log.
fn settle_only(rig: &mut Rig, place: LogVolumeId) {
    for _ in 0..20_000 {
        rig.settle_log();
        if rig.disks.get(&place).is_some_and(|disk| disk.under_way() > 0) {
            let ended = rig.disks.get_mut(&place).and_then(|disk| disk.end(0));
            let (id, answer) = ended.expect("the first waits for nothing");
            rig.apply(Event::EngineDone(id, Ok(answer)));
            continue;
        }
        let Some(at) = rig.wake.take().filter(|at| at.0 < 3_600_000_000_000) else { return };
        rig.now = rig.now.max(at);
        rig.apply(Event::Wake);
    }
}

/// Writes that a volume with a living back end has answered, while those of so many others are away for good.
fn answered_beside(dead: u64, config: Config) -> usize {
    let mut rig = Rig::new(config);
    let healthy = rig.attach("healthy", 16_384, 100);
    let away: Vec<_> = (0..dead).map(|n| rig.attach(&format!("dead{n}"), 16_384, n + 1)).collect();
    let first = rig.write(healthy, 1, 1, 1);
    let drained = rig.control(Command::Drain(healthy));
    settle_only(&mut rig, healthy);
    assert!(rig.ok(first) && rig.answers.get(&drained) == Some(&Ok(Done::Nothing)));
    for place in &away {
        for n in 0..80 {
            rig.write(*place, n * 100, 100, n + 1);
            rig.settle_log();
        }
    }
    // More than a segment, in all.
    let mut answered = 0;
    for n in 0..12 {
        let id = rig.write(healthy, n * 100, 100, n + 2);
        settle_only(&mut rig, healthy);
        answered += usize::from(rig.ok(id));
    }
    answered
}

pub(crate) fn living_volumes_go_on(mutants: Mutants) {
    let config = Config { destage_after_ns: 1_000_000, mutants, ..Config::default() };
    // Half of the eight segments is for volumes that have none.
    for dead in 1..4 {
        assert_eq!(answered_beside(dead, config), 12, "with {dead} back ends away");
    }
}

#[test]
fn a_volume_with_a_living_back_end_goes_on_while_others_are_away() {
    living_volumes_go_on(Mutants::default());
}

/// Ends what is under way, as a back end without room does: trims and flushes succeed. Says how many writes failed.
fn end_without_room(rig: &mut Rig, place: LogVolumeId) -> usize {
    let mut failed = 0;
    for _ in 0..100 {
        rig.settle_log();
        if let Some(disk) = rig.disks.get_mut(&place).filter(|disk| disk.under_way() > 0) {
            let (id, result) = if disk.is_write(0) {
                failed += 1;
                (disk.fail(0), Err(Failure::Io(IoError::NoSpace)))
            } else {
                let (id, answer) = disk.end(0).expect("the first waits for nothing");
                (id, Ok(answer))
            };
            rig.apply(Event::EngineDone(id, result));
        } else if let Some(at) = rig.wake.take() {
            rig.now = rig.now.max(at);
            rig.apply(Event::Wake);
        } else {
            break;
        }
    }
    failed
}

/// A thin back end is full, and the guest trims: what it has no room for any more is not needed.
#[test]
fn a_trim_makes_room_though_it_is_behind_what_has_none() {
    let config = Config { destage_after_ns: 1_000_000, ..Config::default() };
    let mut rig = Rig::new(config);
    let a = rig.attach("a", 1024, 1);
    let trim = |block: u64, blocks: u64| {
        let span = ByteSpan::new(block * 4096, blocks * 4096);
        Op::Trim { span, fua: false }
    };
    rig.write(a, 10, 20, 7);
    rig.submit(a, Op::Flush);
    assert!(end_without_room(&mut rig, a) > 1, "it is tried again");
    let dirty = rig.log.status(a).expect("a place").dirty_bytes;
    // Some of it is needed still.
    let trimmed = rig.submit(a, trim(10, 19));
    let flushed = rig.submit(a, Op::Flush);
    assert!(end_without_room(&mut rig, a) > 1 && rig.ok(trimmed) && rig.ok(flushed));
    assert!(rig.log.status(a).expect("a place").dirty_bytes >= dirty);
    assert_eq!(rig.read(a, 28, 2), [Some(0), Some(7)]);
    // All of it was trimmed. No flush covers that, and none need come.
    rig.submit(a, trim(29, 1));
    end_without_room(&mut rig, a);
    assert_eq!(rig.log.status(a).expect("a place").dirty_bytes, 0);
    rig.write(a, 12, 1, 9);
    rig.submit(a, Op::Flush);
    assert!(end_without_room(&mut rig, a) > 1, "what is new has no room yet");
    assert_eq!(rig.read(a, 12, 1), [Some(9)]);
    let drained = rig.control(Command::Drain(a));
    rig.settle();
    assert_eq!(rig.answers.get(&drained), Some(&Ok(Done::Nothing)));
    assert_eq!(rig.read(a, 10, 4), [Some(0), Some(0), Some(9), Some(0)]);
    assert_eq!(rig.disks[&a].durable[12 * 8], 9);
}

/// A power cut may take a trim back that no flush covers, not what was durable before it.
#[test]
fn what_is_trimmed_is_written_until_the_trim_is_durable() {
    let config = Config { destage_after_ns: u64::MAX / 2, ..Config::default() };
    let mut rig = Rig::new(config);
    let a = rig.attach("a", 1024, 1);
    rig.write(a, 10, 1, 7);
    rig.submit(a, Op::Flush);
    rig.control(Command::Drain(a));
    rig.settle_log();
    assert!(rig.disks[&a].is_write(0));
    let id = rig.disks.get_mut(&a).expect("it has one").fail(0);
    rig.apply(Event::EngineDone(id, Err(Failure::Io(IoError::NoSpace))));
    let trimmed = rig.submit(a, Op::Trim { span: ByteSpan::new(10 * 4096, 4096), fua: false });
    rig.settle_log();
    assert!(rig.ok(trimmed));
    settle_only(&mut rig, a);
    assert_eq!(rig.disks[&a].durable[10 * 8], 7, "a power cut may bring it back");
}

/// Each destage may have a thousand requests, and engines refuse guests' own beyond a number.
#[test]
fn destages_together_leave_the_engines_requests_to_guests() {
    let mut config =
        Config { destage_after_ns: 3_600_000_000_000, pace_ns: 0, ..Config::default() };
    config.bounds.asked = 100;
    let mut rig = Rig::new(config);
    let places: Vec<_> = (0..5).map(|n| rig.attach(&format!("v{n}"), 1024, n + 1)).collect();
    for place in &places {
        for n in 0..60 {
            rig.write(*place, n * 2, 1, n + 1);
        }
        rig.settle_log();
    }
    let drains: Vec<_> = places.iter().map(|place| rig.control(Command::Drain(*place))).collect();
    rig.settle_log();
    let under_way: Vec<_> = places.iter().map(|place| rig.disks[place].under_way()).collect();
    assert!(under_way.iter().sum::<usize>() <= 100 + 5 * 8, "{under_way:?}");
    assert!(under_way.iter().all(|count| *count >= 8), "{under_way:?}");
    rig.settle();
    assert!(drains.iter().all(|drain| rig.answers.get(drain) == Some(&Ok(Done::Nothing))));
}

/// An engine had grown while the volume's place was given up: both are told in one turn.
#[test]
fn a_size_that_comes_with_the_end_of_a_place_makes_no_new_one() {
    let mut rig = Rig::new(Config::default());
    let place = rig.attach("a", 64, 7);
    rig.control(Command::Remove { place, discard: false });
    rig.end_log(0, Ok(()));
    let done = rig.ssd.end(0);
    let grow = Command::Grow { place, size_bytes: 128 * 4096 };
    let mut events = vec![Event::LogDone(done), Event::Control(RequestId(999), grow)];
    let mut actions = Vec::new();
    rig.log.apply(rig.now, &mut events, &mut actions);
    assert_eq!(rig.log.places().count(), 0);
    let is_refused = actions
        .iter()
        .any(|action| matches!(action, Action::Answer(RequestId(999), Err(Refusal::NoVolume))));
    assert!(is_refused, "{actions:?}");
    // One that is there grows.
    let place = rig.attach("b", 64, 8);
    let grown = rig.control(Command::Grow { place, size_bytes: 128 * 4096 });
    rig.settle_log();
    assert_eq!(rig.answers.get(&grown), Some(&Ok(Done::Attached(place))));
    assert_eq!(rig.log.status(place).expect("a place").size_bytes, 128 * 4096);
}

#[test]
fn a_sector_that_can_not_be_read_costs_at_most_what_it_held() {
    for (what, page) in [
        ("the first page of a free segment", 768 + 5 * 256),
        ("a page of data of a write that a power cut interrupted", 768 + 256 + 1),
        ("the header of a chunk of b", 768 + 256),
    ] {
        let config = Config { destage_after_ns: u64::MAX / 2, ..Config::default() };
        let mut rig = Rig::new(config);
        let (a, b) = (rig.attach("a", 64, 1), rig.attach("b", 64, 2));
        rig.write(a, 1, 1, 7);
        let flushed = rig.submit(a, Op::Flush);
        rig.settle_log();
        assert!(rig.ok(flushed), "it is durable");
        rig.write(b, 1, 1, 8);
        rig.settle_log();
        rig.ssd.spoil(page);
        rig.reopen().unwrap_or_else(|error| panic!("{what}: {error}"));
        let a = rig.attach("a", 64, 1);
        assert_eq!(rig.read(a, 1, 1), [Some(7)], "{what}");
    }
}

#[test]
fn a_device_that_fails_is_not_taken_for_an_empty_one() {
    let mut rig = Rig::new(Config::default());
    let a = rig.attach("a", 64, 1);
    rig.write(a, 1, 1, 7);
    rig.settle_log();
    for segment in 0..8 {
        for page in 0..256 {
            rig.ssd.spoil(768 + segment * 256 + page);
        }
    }
    assert!(rig.reopen().is_err(), "no page of it can be read");
}

/// The number of a claim is durable when it is told, and an incarnation that has left is remembered.
#[test]
fn claims_have_numbers_and_volumes_that_have_left_are_known() {
    let mut rig = Rig::new(Config::default());
    for number in 1..4 {
        let place = rig.attach("a", 64, 7);
        let raised = rig.control(Command::Claim(place));
        let busy = rig.control(Command::Claim(place));
        rig.settle_log();
        assert_eq!(rig.answers.get(&raised), Some(&Ok(Done::Nothing)));
        assert_eq!(rig.answers.get(&busy), Some(&Err(Refusal::Busy)));
        rig.ssd.power_cut(&mut Rng::seed_from_u64(number));
        rig.reopen().expect("it opens");
        assert_eq!(rig.log.status(place).expect("a place").claim, number);
        assert!(rig.log.left().is_empty());
    }
    let place = rig.attach("a", 64, 7);
    rig.control(Command::Remove { place, discard: false });
    rig.settle_log();
    let gone = rig.control(Command::Claim(place));
    assert_eq!(rig.answers.get(&gone), Some(&Err(Refusal::NoVolume)));
    rig.reopen().expect("it opens");
    assert_eq!(rig.log.left(), [7]);
}
