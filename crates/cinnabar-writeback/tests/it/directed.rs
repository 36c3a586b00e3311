//! What happens when two things meet: each of these was wrong once, or could be.

use crate::memory::Mem;
use crate::rig::Rig;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Failure, IoError, Op, Payload};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::{Command, Config, Done, Event, LogVolumeId, Refusal};

fn config(mutants: Mutants) -> Config {
    Config { destage_after_ns: 1_000_000, mutants, ..Config::default() }
}

fn attached(mutants: Mutants, blocks: u64) -> (Rig, LogVolumeId) {
    let mut rig = Rig::new(config(mutants));
    let place = rig.attach("a", blocks, 1);
    (rig, place)
}

/// The record of the new size was under way when the back end had the epoch: nothing recorded that,
/// and no epoch was destaged any more.
pub(crate) fn a_volume_that_grows_while_an_epoch_is_retired_is_destaged_on(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    rig.write(place, 1, 1, 7);
    rig.submit(place, Op::Flush);
    rig.settle_log();
    assert!(rig.disks[&place].under_way() > 0, "the epoch is on its way");
    let grow = Command::Attach {
        name: "a".into(),
        size_bytes: 128 * 4096,
        incarnation: 5,
        group: String::new(),
    };
    let grown = rig.control(grow);
    while rig.end_engine() {}
    rig.settle();
    assert!(matches!(rig.answers[&grown], Ok(Done::Attached(_))), "{:?}", rig.answers[&grown]);
    let drained = rig.control(Command::Drain(place));
    rig.settle();
    assert!(rig.answers.contains_key(&drained), "a drain is answered");
}

pub(crate) fn an_epoch_is_not_recorded_by_a_record_that_is_older(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    for block in 1..3 {
        rig.write(place, block, 1, block);
        rig.submit(place, Op::Flush);
    }
    rig.settle_log();
    let grow = Command::Attach {
        name: "a".into(),
        size_bytes: 128 * 4096,
        incarnation: 5,
        group: String::new(),
    };
    rig.control(grow);
    while rig.end_engine() {}
    assert_eq!(rig.ssd.under_way(), 1, "the record with the new size");
    rig.end_log(0, Ok(()));
    assert_eq!(rig.ssd.under_way(), 1, "the record of the epoch, and no read for the next one");
    rig.settle();
    assert_eq!(rig.disks[&place].writes, 2);
}

pub(crate) fn a_volume_that_grows_is_served_meanwhile(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    rig.write(place, 1, 1, 7);
    rig.settle_log();
    let grow = Command::Attach {
        name: "a".into(),
        size_bytes: 128 * 4096,
        incarnation: 5,
        group: String::new(),
    };
    rig.control(grow);
    let beyond = rig.write(place, 100, 1, 8);
    assert!(matches!(rig.replies.get(&beyond), Some(Err(Failure::Invalid))), "not yet");
    assert_eq!(rig.read(place, 1, 1), [Some(7)]);
    rig.settle_log();
    let beyond = rig.write(place, 100, 1, 8);
    rig.settle_log();
    assert!(rig.ok(beyond));
}

/// A flush of the device that began for the place's former volume made chunks of the next one count
/// as durable.
pub(crate) fn a_flush_does_not_cover_the_next_volume_of_a_place(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    let other = rig.attach("other", 64, 2);
    for value in 0..5 {
        // Written, not durable: the flush covers them.
        rig.write(place, 1, 1, value);
        rig.settle_log();
    }
    // Two chunks and a flush: more than one write with FUA can answer.
    rig.write(other, 1, 1, 1);
    rig.write(other, 2, 1, 1);
    rig.settle_log();
    let flush = rig.submit(other, Op::Flush);
    assert_eq!(rig.ssd.under_way(), 1, "the device is being flushed");
    assert!(!rig.replies.contains_key(&flush));
    let removed = rig.control(Command::Remove { place, discard: true });
    for _ in 0..4 {
        // Records, behind the flush.
        if rig.ssd.under_way() > 1 {
            rig.end_log(1, Ok(()));
        }
    }
    assert_eq!(rig.answers.get(&removed), Some(&Ok(Done::Nothing)));
    let attach = Command::Attach {
        name: "b".into(),
        size_bytes: 64 * 4096,
        incarnation: 3,
        group: String::new(),
    };
    let attach = rig.control(attach);
    for _ in 0..4 {
        if rig.ssd.under_way() > 1 {
            rig.end_log(1, Ok(()));
        }
    }
    assert_eq!(rig.answers.get(&attach), Some(&Ok(Done::Attached(place))));
    rig.write(place, 1, 1, 9);
    rig.end_log(1, Ok(()));
    let flush = rig.submit(place, Op::Flush);
    rig.end_log(0, Ok(()));
    assert!(!rig.replies.contains_key(&flush), "nothing has made this durable");
    rig.settle();
    assert!(rig.ok(flush));
}

/// The destage began while the record was being written, and met an empty place.
pub(crate) fn a_volume_that_is_removed_with_its_dirty_data_is_not_destaged(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    rig.config.destage_after_ns = u64::MAX / 2;
    rig.write(place, 1, 1, 7);
    rig.settle_log();
    rig.now = rig.now.plus_ns(10_000_000_000);
    let removed = rig.control(Command::Remove { place, discard: true });
    let drained = rig.control(Command::Drain(place));
    rig.settle();
    assert_eq!(rig.answers[&removed], Ok(Done::Nothing));
    assert!(rig.answers.contains_key(&drained), "a drain is answered");
    assert!(rig.disks.values().all(|disk| disk.writes == 0), "nothing was destaged");
    // The place is used again.
    let place = rig.attach("b", 64, 2);
    assert_eq!(rig.read(place, 1, 1), [Some(0)]);
}

/// Discarded data came back when the page rotted that says that the place is free.
pub(crate) fn what_was_discarded_does_not_come_back_with_one_page_of_the_directory(
    mutants: Mutants,
) {
    for page in 2..4 {
        let (mut rig, place) = attached(mutants, 64);
        rig.write(place, 1, 1, 7);
        rig.submit(place, Op::Flush);
        rig.end_log(0, Ok(()));
        rig.settle_log();
        while rig.ssd.under_way() > 0 {
            rig.end_log(0, Ok(()));
        }
        // The back end fails: the volume stays dirty.
        rig.fail_engine();
        let removed = rig.control(Command::Remove { place, discard: true });
        rig.settle_log();
        assert_eq!(rig.answers.get(&removed), Some(&Ok(Done::Nothing)));
        rig.ssd.rot_page(page);
        if rig.reopen().is_ok() {
            assert_eq!(rig.log.places().count(), 0, "page {page}: it was given up");
        }
    }
}

/// Writes waited for room that became free with the last thing that happened.
pub(crate) fn a_write_that_waits_goes_on_when_there_is_room(mutants: Mutants) {
    let mut rig = Rig::new(config(mutants));
    let (a, b) = (rig.attach("a", 16_384, 1), rig.attach("b", 16_384, 2));
    let mut all = Vec::new();
    for n in 0..40 {
        all.push(rig.write(a, n * 100, 100, n + 1));
        all.push(rig.write(b, n * 100, 100, n + 1));
    }
    rig.settle();
    let waiting = all.iter().filter(|id| !rig.ok(**id)).count();
    assert_eq!(waiting, 0, "of {} writes", all.len());
}

/// A request may be larger than the whole log.
pub(crate) fn a_write_of_any_size_is_answered(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 16_384);
    let id = rig.write(place, 3, 8192, 5);
    let after = rig.write(place, 1, 1, 6);
    rig.settle();
    assert!(rig.ok(id) && rig.ok(after));
    assert_eq!(rig.read(place, 8194, 2), [Some(5), Some(0)]);
}

pub(crate) fn a_full_log_is_left_by_reads_and_by_commands(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 16_384);
    let all: Vec<_> = (0..20).map(|n| rig.write(place, n * 200, 200, n + 1)).collect();
    rig.settle_log();
    assert!(all.iter().any(|id| !rig.replies.contains_key(id)), "the log is full");
    let closed = rig.control(Command::Close);
    rig.settle_log();
    assert_eq!(rig.answers.get(&closed), Some(&Ok(Done::Nothing)), "closing waits for no back end");
    assert!(all.iter().all(|id| rig.replies.contains_key(id)), "all are answered");
    let late = rig.write(place, 1, 1, 1);
    assert!(matches!(rig.replies.get(&late), Some(Err(Failure::NoVolume))), "refused from now on");
    let refused = rig.control(Command::Drain(place));
    assert!(rig.answers.contains_key(&refused));
    let done: Vec<bool> = all.iter().map(|id| rig.ok(*id)).collect();
    rig.reopen().expect("it is sound");
    let place = rig.attach("a", 16_384, 9);
    for (n, _) in done.iter().enumerate().filter(|(_, done)| **done) {
        assert_eq!(rig.read(place, n as u64 * 200, 1), [Some(n as u64 + 1)], "write {n}");
    }
}

/// The guest's memory may be another request's once it has been answered.
pub(crate) fn a_write_that_waited_too_long_is_answered_and_never_done(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 16_384);
    let all: Vec<_> = (0..20).map(|n| rig.write(place, n * 200, 200, n + 1)).collect();
    rig.settle_log();
    let waits = |rig: &Rig, id| !rig.replies.contains_key(id);
    let waiting: Vec<_> = all.iter().filter(|id| waits(&rig, id)).copied().collect();
    assert!(waiting.len() > 2, "the log is full");
    for id in &waiting[waiting.len() - 2..] {
        let id = *id;
        rig.apply(Event::Late(id));
        let late = Failure::Io(cinnabar_engine::IoError::TimedOut);
        assert!(matches!(rig.replies.get(&id), Some(Err(failure)) if *failure == late));
    }
    // Of one that does not wait nothing is to be said.
    rig.apply(Event::Late(all[0]));
    rig.settle();
    assert!(waiting[..waiting.len() - 2].iter().all(|id| rig.ok(*id)), "the others are done");
    assert_eq!(rig.read(place, 19 * 200, 1), [Some(0)], "never done");
    assert_eq!(rig.read(place, 17 * 200 + 199, 1), [Some(18)]);
}

/// A destage that waits for a silent back end keeps no volume from being given up.
pub(crate) fn a_volume_is_given_up_while_its_back_end_is_silent(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    rig.write(place, 1, 1, 7);
    rig.submit(place, Op::Flush);
    rig.settle_log();
    assert!(rig.disks.values().any(|disk| disk.under_way() > 0), "the back end is asked");
    let removed = rig.control(Command::Remove { place, discard: true });
    rig.settle_log();
    assert_eq!(rig.answers.get(&removed), Some(&Ok(Done::Nothing)));
    let next = rig.attach("b", 64, 2);
    rig.write(next, 2, 1, 9);
    // It answers after all: of no concern to the place's next volume.
    rig.settle();
    assert_eq!(rig.read(next, 2, 1), [Some(9)]);
}

/// One of two reads of a window was under way when the volume was given up for the other one.
pub(crate) fn a_damaged_volume_answers_all_and_can_be_removed(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 16_384);
    rig.write(place, 1, 1, 7);
    rig.write(place, 9, 1, 8);
    rig.settle_log();
    let waiting: Vec<_> = (5..25).map(|n| rig.write(place, n * 200, 200, n + 1)).collect();
    // What is dirty has rotted; the destage reads it twice.
    rig.ssd.rot_page(768 + 1);
    rig.ssd.rot_page(768 + 3);
    for _ in 0..1000 {
        let status = rig.log.status(place).expect("it is there");
        if rig.ssd.under_way() == 0 || status.damaged {
            break;
        }
        rig.end_log(0, Ok(()));
    }
    assert!(rig.log.status(place).expect("it is there").damaged);
    let removed = rig.control(Command::Remove { place, discard: true });
    rig.settle();
    assert!(waiting.iter().all(|id| rig.replies.contains_key(id)), "all are answered");
    if rig.answers.get(&removed) == Some(&Err(Refusal::Busy)) {
        let again = rig.control(Command::Remove { place, discard: true });
        rig.settle();
        assert_eq!(rig.answers.get(&again), Some(&Ok(Done::Nothing)));
    }
}

/// The header of a flushed chunk rotted, and with it what lies behind it in its segment was out of
/// sight: nothing said that it had been durable.
pub(crate) fn a_rotten_header_loses_nothing_in_silence(mutants: Mutants) {
    // Chunks of one page: headers at 0, 2, 4 and so on.
    for page in [0, 2, 4] {
        let (mut rig, place) = attached(mutants, 64);
        rig.config.destage_after_ns = u64::MAX / 2;
        for value in 1..=4 {
            rig.write(place, value, 1, value);
            rig.settle_log();
        }
        rig.submit(place, Op::Flush);
        rig.settle_log();
        rig.write(place, 5, 1, 5);
        rig.settle_log();
        rig.ssd.rot_page(768 + page);
        rig.reopen().expect("the directory is sound");
        let again = Command::Attach {
            name: "a".into(),
            size_bytes: 64 * 4096,
            incarnation: 1,
            group: String::new(),
        };
        let again = rig.control(again);
        rig.settle_log();
        assert_eq!(rig.answers.get(&again), Some(&Err(Refusal::Damaged)), "page {page}");
    }
}

/// The record of the session that wrote last rotted: its chunks followed from nothing.
pub(crate) fn a_lost_record_of_a_session_loses_nothing_in_silence(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    rig.write(place, 1, 1, 1);
    rig.submit(place, Op::Flush);
    rig.settle_log();
    rig.reopen().expect("it is sound");
    let place = rig.attach("a", 64, 1);
    let span = ByteSpan::new(2 * 4096, 4096);
    rig.submit(place, Op::Write { span, data: Mem::of(0, &[2; 8]), fua: true });
    while rig.ssd.under_way() > 0 && rig.ssd.writes_under_way() > 0 {
        rig.end_log(0, Ok(()));
    }
    // The attach took stamps 1 and 2, in pages 3 and 2; the second session 3, in page 3.
    rig.ssd.rot_page(3);
    rig.reopen().expect("one record is left");
    let again = Command::Attach {
        name: "a".into(),
        size_bytes: 64 * 4096,
        incarnation: 1,
        group: String::new(),
    };
    let again = rig.control(again);
    rig.settle_log();
    assert_eq!(rig.answers.get(&again), Some(&Err(Refusal::Damaged)));
}

pub(crate) fn names_and_sizes_that_do_not_fit_are_refused(mutants: Mutants) {
    let mut rig = Rig::new(config(mutants));
    for (name, size_bytes) in
        [(String::new(), 4096), ("x".repeat(65), 4096), ("x".to_owned(), 1 << 60)]
    {
        let id =
            rig.control(Command::Attach { name, size_bytes, incarnation: 1, group: String::new() });
        rig.settle_log();
        assert!(rig.answers[&id].is_err());
    }
}

/// A read came back when its volume had become smaller, or larger.
pub(crate) fn a_read_under_way_meets_a_volume_of_another_size(mutants: Mutants) {
    let mut rig = Rig::new(config(mutants));
    let grow = |bytes| Command::Attach {
        name: "a".into(),
        size_bytes: bytes,
        incarnation: 1,
        group: String::new(),
    };
    let id = rig.control(grow(4096 + 512));
    rig.settle_log();
    let Some(Ok(Done::Attached(place))) = rig.answers.get(&id).copied() else { panic!("attach") };
    let span = ByteSpan::new(4096, 512);
    rig.submit(place, Op::Write { span, data: Mem::of(0, &[3]), fua: false });
    rig.settle_log();
    // A buffer need not reach behind the volume's end.
    let data = Mem::sectors(1);
    let read = rig.submit(place, Op::Read { span, data: data.clone() });
    rig.control(grow(8192));
    rig.settle_log();
    while !rig.replies.contains_key(&read) {
        assert!(rig.end_engine() || rig.ssd.under_way() > 0);
        rig.settle_log();
    }
    assert!(rig.ok(read));
    assert_eq!(data.value(0), Some(3));
}

pub(crate) fn a_volume_becomes_smaller_when_nothing_of_it_is_under_way(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    let shrink = || Command::Attach {
        name: "a".into(),
        size_bytes: 8 * 4096,
        incarnation: 5,
        group: String::new(),
    };
    rig.write(place, 40, 1, 7);
    let dirty = rig.control(shrink());
    assert_eq!(rig.answers.get(&dirty), Some(&Err(Refusal::Smaller)));
    let drained = rig.control(Command::Drain(place));
    rig.settle();
    assert_eq!(rig.answers[&drained], Ok(Done::Nothing));
    let data = Mem::sectors(8);
    let read = rig.submit(place, Op::Read { span: ByteSpan::new(40 * 4096, 4096), data });
    let busy = rig.control(shrink());
    assert_eq!(rig.answers.get(&busy), Some(&Err(Refusal::Busy)));
    rig.settle();
    assert!(rig.ok(read));
    let done = rig.control(shrink());
    let meanwhile = rig.write(place, 1, 1, 1);
    rig.settle();
    assert_eq!(rig.answers[&done], Ok(Done::Attached(place)));
    assert!(!rig.ok(meanwhile), "which size it has is not known yet");
    let beyond = rig.write(place, 8, 1, 1);
    assert!(matches!(rig.replies[&beyond], Err(Failure::Invalid)));
}

/// The segments of a damaged volume were free for others.
pub(crate) fn what_is_left_of_a_damaged_volume_is_not_overwritten(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 16_384);
    let other = rig.attach("other", 16_384, 2);
    for n in 0..6 {
        rig.write(place, n * 100, 100, n + 1);
        rig.settle_log();
    }
    rig.submit(place, Op::Flush);
    rig.settle_log();
    rig.write(place, 5, 1, 5);
    rig.settle_log();
    // The first header; nothing but `other` goes on from here.
    rig.ssd.rot_page(768);
    rig.reopen().expect("the directory is sound");
    let attached = rig.attach("other", 16_384, 2);
    assert_eq!(attached, other);
    for n in 0..30 {
        rig.write(other, n * 100, 100, n + 1);
        rig.settle();
    }
    let left = (768 + 256..768 + 8 * 256).filter(|page| rig.ssd.is_chunk_of(*page, place.0));
    assert!(left.count() > 0, "headers of the damaged volume are still there");
    let removed = rig.control(Command::Remove { place, discard: true });
    rig.settle();
    assert_eq!(rig.answers[&removed], Ok(Done::Nothing));
}

/// Both requests had the same memory, of which the engine uses what lies around the span.
pub(crate) fn parts_of_a_block_do_not_share_their_memory(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    // This chunk is under way when the parts come, so they are kept as one page.
    rig.write(place, 9, 1, 9);
    for (first, count, value) in [(0, 3, 1), (6, 2, 2)] {
        let data = Mem::of(first, &vec![value; count]);
        let span = ByteSpan::new(3 * 4096 + first as u64 * 512, count as u64 * 512);
        rig.submit(place, Op::Write { span, data, fua: false });
    }
    let drained = rig.control(Command::Drain(place));
    rig.settle();
    assert_eq!(rig.answers[&drained], Ok(Done::Nothing));
    let sectors: Vec<u64> =
        (24..32).filter_map(|sector| rig.disks[&place].candidates(sector).last()).collect();
    assert_eq!(sectors, [1, 1, 1, 0, 0, 0, 2, 2]);
}

/// A guest's read hung at the back end, so the volume was busy; each time it was asked again to go, the
/// epoch on its way was given up, and begun once more.
pub(crate) fn a_volume_that_is_given_up_sends_its_back_end_nothing_more(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    let data = Mem::alloc(1);
    let read = rig.submit(place, Op::Read { span: ByteSpan::new(40 * 4096, 4096), data });
    rig.write(place, 1, 1, 7);
    rig.submit(place, Op::Flush);
    rig.settle_log();
    assert_eq!(rig.disks[&place].under_way(), 2, "the read and the epoch");
    let remove = Command::Remove { place, discard: true };
    let mut removed = rig.control(remove.clone());
    for _ in 0..20 {
        rig.settle_log();
        rig.now = rig.now.plus_ns(20_000_000);
        rig.apply(Event::Wake);
        if rig.answers.get(&removed) == Some(&Err(Refusal::Busy)) {
            removed = rig.control(remove.clone());
        }
    }
    assert_eq!(rig.disks[&place].under_way(), 2, "nothing came to it");
    let late = rig.write(place, 2, 1, 8);
    assert!(matches!(rig.replies.get(&late), Some(Err(Failure::NoVolume))));
    while rig.end_engine() {}
    rig.settle();
    assert!(rig.ok(read));
    assert_eq!(rig.answers.get(&removed), Some(&Ok(Done::Nothing)));
}

/// A page was read twice, and a device that is silent took twice its time; the destage took the volume
/// for damaged.
pub(crate) fn a_device_that_is_silent_is_not_read_again(mutants: Mutants) {
    for destages in [false, true] {
        let (mut rig, place) = attached(mutants, 64);
        let written = rig.write(place, 1, 1, 7);
        rig.settle_log();
        assert!(rig.ok(written));
        let data = Mem::alloc(1);
        let waits = if destages {
            rig.control(Command::Drain(place))
        } else {
            rig.submit(place, Op::Read { span: ByteSpan::new(4096, 4096), data })
        };
        if destages {
            // The flush of the device; then the epoch is read.
            rig.end_log(0, Ok(()));
        }
        rig.end_log(0, Err(IoError::TimedOut));
        assert!(rig.log.is_lost());
        if destages {
            assert_eq!(rig.answers.get(&waits), Some(&Err(Refusal::Lost)));
        } else {
            assert!(matches!(rig.replies.get(&waits), Some(Err(Failure::Io(_)))));
        }
        assert_eq!(rig.ssd.under_way(), 0, "it is asked nothing more");
    }
}

/// What an earlier session had left did not age, so writers were not slowed down, and the status said
/// nothing, however long it waited.
pub(crate) fn what_an_earlier_session_has_left_ages(mutants: Mutants) {
    let (mut rig, place) = attached(mutants, 64);
    rig.write(place, 1, 1, 7);
    rig.submit(place, Op::Flush);
    rig.settle_log();
    rig.reopen().expect("it is sound");
    let place = rig.attach("a", 64, 9);
    rig.now = rig.now.plus_ns(90_000_000_000);
    assert_eq!(rig.log.dirty_age_ns(place, rig.now), Some(90_000_000_000));
    rig.write(place, 2, 1, 7);
    rig.settle_log();
    assert_eq!(rig.log.dirty_age_ns(place, rig.now), Some(90_000_000_000));
    rig.settle();
    let drained = rig.control(Command::Drain(place));
    rig.settle();
    assert_eq!(rig.answers[&drained], Ok(Done::Nothing));
    assert_eq!(rig.log.dirty_age_ns(place, rig.now), None);
    rig.write(place, 3, 1, 7);
    rig.settle_log();
    assert!(rig.log.dirty_age_ns(place, rig.now).is_some_and(|age| age <= 100_000_000));
}

macro_rules! tests {
    ($($name:ident,)*) => {
        mod sound {
            $(#[test]
            fn $name() {
                super::$name(super::Mutants::default());
            })*
        }
    };
}

tests! {
    a_volume_that_grows_while_an_epoch_is_retired_is_destaged_on,
    an_epoch_is_not_recorded_by_a_record_that_is_older,
    a_volume_that_grows_is_served_meanwhile,
    a_flush_does_not_cover_the_next_volume_of_a_place,
    a_volume_that_is_removed_with_its_dirty_data_is_not_destaged,
    what_was_discarded_does_not_come_back_with_one_page_of_the_directory,
    a_write_that_waits_goes_on_when_there_is_room,
    a_write_of_any_size_is_answered,
    a_full_log_is_left_by_reads_and_by_commands,
    a_write_that_waited_too_long_is_answered_and_never_done,
    a_volume_is_given_up_while_its_back_end_is_silent,
    a_damaged_volume_answers_all_and_can_be_removed,
    a_rotten_header_loses_nothing_in_silence,
    a_lost_record_of_a_session_loses_nothing_in_silence,
    names_and_sizes_that_do_not_fit_are_refused,
    a_read_under_way_meets_a_volume_of_another_size,
    a_volume_becomes_smaller_when_nothing_of_it_is_under_way,
    what_is_left_of_a_damaged_volume_is_not_overwritten,
    parts_of_a_block_do_not_share_their_memory,
    a_volume_that_is_given_up_sends_its_back_end_nothing_more,
    a_device_that_is_silent_is_not_read_again,
    what_an_earlier_session_has_left_ages,
}
