//! Two disks of one guest: what one flush covers comes to its back end before what is written after it, elsewhere too.

use crate::disk::Disk;
use crate::memory::Mem;
use crate::rig::Rig;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::{Op, RequestId};
use cinnabar_writeback::format::directory::Record;
use cinnabar_writeback::format::directory_offset;
use cinnabar_writeback::recover::Media;
use cinnabar_writeback::{Command, Config, Done, Event, LogVolumeId, Refusal};

fn config() -> Config {
    Config { destage_after_ns: 1_000_000, ..Config::default() }
}

/// The data of a file, and the commit that says that they are there, on another disk. Each is flushed.
fn committed(group: &str) -> (Rig, [LogVolumeId; 2]) {
    let mut rig = Rig::new(config());
    let data = rig.attach_to(group, "vm-data", (64, 1));
    let journal = rig.attach_to(group, "vm-journal", (64, 2));
    for (place, value) in [(data, 7), (journal, 9)] {
        rig.write(place, 1, 1, value);
        let flushed = rig.submit(place, Op::Flush);
        rig.settle_log();
        assert!(rig.ok(flushed));
    }
    (rig, [data, journal])
}

/// Everything ends but what these back ends are asked for.
fn settle_without(rig: &mut Rig, silent: &[LogVolumeId]) {
    loop {
        rig.settle_log();
        let able = |(place, disk): &(&LogVolumeId, &mut Disk)| {
            disk.under_way() > 0 && !silent.contains(place)
        };
        if let Some((_, disk)) = rig.disks.iter_mut().find(able) {
            let (id, answer) = disk.end(0).expect("the first one waits for nothing");
            rig.apply(Event::EngineDone(id, Ok(answer)));
        } else if let Some(at) = rig.wake.take() {
            rig.now = rig.now.max(at);
            rig.apply(Event::Wake);
        } else {
            return;
        }
    }
}

fn newest(rig: &Rig, place: LogVolumeId) -> u64 {
    rig.disks.get(&place).and_then(|disk| disk.candidates(8).last()).unwrap_or(0)
}

#[test]
fn barriers_hold_across_the_disks_of_a_guest() {
    for (group, commit) in [("", 9), ("vm", 0)] {
        let (mut rig, [data, journal]) = committed(group);
        settle_without(&mut rig, &[data]);
        assert_eq!(newest(&rig, data), 0, "its back end is slow for a moment");
        assert_eq!(newest(&rig, journal), commit, "in group {group:?}");
        rig.settle();
        assert_eq!([newest(&rig, data), newest(&rig, journal)], [7, 9]);
    }
}

#[test]
fn a_flush_without_a_write_ends_the_epoch_of_the_others() {
    let mut rig = Rig::new(config());
    let [a, b] = ["a", "b"].map(|name| rig.attach_to("vm", name, (64, 1)));
    rig.write(a, 1, 1, 7);
    rig.submit(b, Op::Flush);
    rig.write(b, 1, 1, 9);
    rig.submit(b, Op::Flush);
    rig.settle_log();
    settle_without(&mut rig, &[a]);
    assert_eq!(newest(&rig, b), 0);
}

#[test]
fn the_order_outlives_the_daemon_and_an_absent_volume_holds_the_others_back() {
    let (mut rig, _) = committed("vm");
    rig.reopen().expect("it is whole");
    // Whatever its configuration says by now.
    let journal = rig.attach("vm-journal", 64, 2);
    rig.settle();
    assert_eq!(newest(&rig, journal), 0, "vm-data is not there");
    let status = rig.log.status(journal).expect("it is there");
    assert_eq!((status.group.as_str(), status.waits_for.as_deref()), ("vm", Some("vm-data")));
    let data = rig.attach("vm-data", 64, 1);
    rig.settle();
    assert_eq!([newest(&rig, data), newest(&rig, journal)], [7, 9]);
    assert_eq!(rig.log.status(journal).expect("it is there").waits_for, None);
}

#[test]
fn a_drain_is_one_of_the_group_and_others_do_not_wait() {
    let (mut rig, [data, journal]) = committed("vm");
    let other = rig.attach("other", 64, 3);
    rig.write(other, 1, 1, 5);
    let [drained, own] = [data, other].map(|place| rig.control(Command::Drain(place)));
    settle_without(&mut rig, &[journal]);
    assert_eq!((newest(&rig, data), newest(&rig, other)), (7, 5));
    assert!(rig.answers.contains_key(&own) && !rig.answers.contains_key(&drained));
    rig.settle();
    assert_eq!(rig.answers.get(&drained), Some(&Ok(Done::Nothing)));
    // What is no group's any more can be read by a release that knows of none.
    for place in [data, journal] {
        rig.control(Command::Remove { place, discard: false });
        rig.settle();
    }
    let mut pages = vec![MetaPage::zeroed(); 4];
    Media::<Mem>::read_pages(&rig.ssd, directory_offset(0, 0), &mut pages).expect("it is read");
    let records: Vec<_> = pages.iter().filter_map(Record::decode).collect();
    assert!(records.len() == 4 && records.iter().all(|of| !of.in_use && of.group.is_empty()));
}

#[test]
fn a_damaged_volume_holds_its_group_back_until_it_is_given_up() {
    let (mut rig, [data, journal]) = committed("vm");
    // Its page, which the destage reads before it has the epoch.
    rig.reopen().expect("it is whole");
    rig.ssd.rot_page(768 + 1);
    assert_eq!(
        [("vm-data", 1), ("vm-journal", 2)].map(|of| rig.attach(of.0, 64, of.1)),
        [data, journal]
    );
    rig.settle();
    assert!(rig.log.status(data).expect("it is there").damaged);
    assert_eq!(newest(&rig, journal), 0);
    let drained = rig.control(Command::Drain(journal));
    assert_eq!(rig.answers.get(&drained), Some(&Err(Refusal::Damaged)));
    // It goes on while there is room, and fails once there is none: no room will come.
    let writes: Vec<_> = (0..64).map(|n| rig.write(journal, 0, 64, n)).collect();
    rig.settle();
    assert!(rig.ok(writes[0]) && !rig.ok(writes[63]) && rig.replies.contains_key(&writes[63]));
    let given_up =
        [data, journal].map(|place| rig.control(Command::Remove { place, discard: true }));
    rig.settle();
    assert!(given_up.iter().all(|id| rig.answers.get(id) == Some(&Ok(Done::Nothing))));
}

#[test]
fn what_a_group_has_in_the_log_is_given_up_together() {
    let (mut rig, [data, journal]) = committed("vm");
    settle_without(&mut rig, &[data]);
    let discard = |rig: &mut Rig, place| rig.control(Command::Remove { place, discard: true });
    let first = discard(&mut rig, data);
    settle_without(&mut rig, &[data]);
    assert!(!rig.answers.contains_key(&first), "the other one has writes still");
    assert_eq!(newest(&rig, journal), 0, "and they would come without those before");
    let again = discard(&mut rig, data);
    assert_eq!(rig.answers.get(&again), Some(&Err(Refusal::Busy)));
    let second = discard(&mut rig, journal);
    rig.settle();
    let ended = |id: RequestId| rig.answers.get(&id) == Some(&Ok(Done::Nothing));
    assert!(ended(first) && ended(second));
    assert_eq!(rig.log.places().count(), 0);
}

#[test]
fn a_group_takes_no_more_of_the_log_than_one_volume() {
    let mut rig = Rig::new(config());
    let members = ["a", "b", "c", "d"].map(|name| rig.attach_to("vm", name, (16_384, 1)));
    let other = rig.attach("other", 64, 1);
    for round in 0..40 {
        for place in members {
            rig.write(place, round * 64, 64, round + 1);
            rig.submit(place, Op::Flush);
        }
        // No back end of theirs answers.
        rig.settle_log();
    }
    let (all, used) = rig.log.room_bytes();
    assert!(used < all, "{used} of {all}");
    let written = rig.write(other, 1, 1, 3);
    settle_without(&mut rig, &members);
    assert!(rig.ok(written), "another guest goes on");
}

#[test]
fn a_volume_that_comes_counts_on_from_its_group() {
    let (mut rig, [data, _]) = committed("vm");
    let late = rig.attach_to("vm", "vm-late", (64, 4));
    rig.write(late, 1, 1, 11);
    rig.submit(late, Op::Flush);
    rig.settle_log();
    settle_without(&mut rig, &[data]);
    assert_eq!(newest(&rig, late), 0, "earlier epochs of the group come first");
    rig.apply(Event::Wake);
    rig.settle();
    assert_eq!(newest(&rig, late), 11);
}
