//! Volumes that nothing serves get another size, leave the fast pool, lose garbage and what is lost; also if a command is
//! cut off, or steps fail each time.

use crate::client::{Client, EXTENT, created, quick};
use crate::faulty::{Faulty, Plan};
use cinnabar_hybrid::local::LocalPlace;
use cinnabar_hybrid::pools::{Op, OpError, Place, Wait};
use cinnabar_hybrid::settings::Settings;
use cinnabar_hybrid::upkeep::{self, Lost, Upkeep};
use cinnabar_placement::{Pool, State};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const EXTENTS: u64 = 8;

fn wait(wait: Wait<'_>) -> bool {
    wait == Wait::Lease
}

fn opened(place: &mut dyn Place) -> Upkeep {
    Upkeep::open(place, &mut wait, &mut |_, _| ()).expect("it is free")
}

/// Each extent has its own bytes; the last two are in the fast pool.
fn filled(folder: &std::path::Path) -> LocalPlace {
    let mut place = created(folder, EXTENTS, 2);
    let client = Client::open(&mut place, quick()).expect("open");
    for extent in 0..EXTENTS {
        client.write(extent * EXTENT, 16, extent as u8 + 1).expect("written");
    }
    let until = Instant::now() + Duration::from_secs(20);
    let mut turn = 0;
    while client.0.status().objects[1] < 2 || client.0.status().moving > 0 {
        assert!(Instant::now() < until, "nothing moves: {:?}", client.0.status());
        let extent = EXTENTS - 2 + turn % 2;
        client.write(extent * EXTENT, 1, extent as u8 + 1).expect("written");
        turn += 1;
        std::thread::sleep(Duration::from_micros(300));
    }
    client.flush().expect("durable");
    drop(client);
    place
}

fn still() -> Settings {
    Settings { copy_bytes_per_s: 0, ..Settings::default() }
}

/// Whether an extent holds its own bytes, or zeros.
fn holds(place: &mut LocalPlace, extent: u64, byte: u8) {
    let client = Client::open(place, still()).expect("open");
    let found = client.read(extent * EXTENT, 16).expect("it is there");
    assert!(found.iter().all(|found| *found == byte), "extent {extent}: {}", found[0]);
}

fn fails(place: &LocalPlace, chosen: fn(&Op) -> bool) -> Faulty<LocalPlace> {
    let fails = Some((chosen as crate::faulty::Chosen, OpError::Other(Errno::IO)));
    let steps = Arc::new(AtomicU64::new(0));
    Faulty(
        place.clone(),
        Plan { steps, dies_at: u64::MAX, after: false, fails, silent_until: None },
    )
}

#[test]
fn a_volume_leaves_the_fast_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = filled(folder.path());
    let moved = opened(&mut place).evacuate(&mut |_, _| ()).expect("moved out");
    assert_eq!(moved, 2);
    let contents = place.look().expect("a table");
    assert_eq!(contents.header.budget_bytes, 0);
    assert!(contents.records.iter().all(|(_, record)| record.pool == Pool::Slow));
    for extent in 0..EXTENTS {
        holds(&mut place, extent, extent as u8 + 1);
    }
}

#[test]
fn what_fails_each_time_ends_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = filled(folder.path());
    for chosen in [
        // The first one, for there is a budget to be taken away only once.
        (|op| matches!(op, Op::StoreHeader { .. })) as fn(&Op) -> bool,
        |op| matches!(op, Op::Copy { .. } | Op::Delete { .. }),
        |op| matches!(op, Op::Copy { .. }),
    ] {
        let begun = Instant::now();
        let done = Upkeep::open(&mut fails(&place, chosen), &mut wait, &mut |_, _| ())
            .and_then(|mut upkeep| upkeep.evacuate(&mut |_, _| ()));
        assert!(done.is_err(), "{done:?}");
        assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    }
    let mut place = place;
    for extent in 0..EXTENTS {
        holds(&mut place, extent, extent as u8 + 1);
    }
}

#[test]
fn a_smaller_size_cuts_off_and_a_larger_one_reads_zeros() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = filled(folder.path());
    let refused = opened(&mut place).resize(3 * EXTENT, false, &mut |_, _| ());
    assert!(refused.is_err(), "data are not lost without a word");
    let before = place.look().expect("a table").header;
    opened(&mut place).resize(3 * EXTENT, true, &mut |_, _| ()).expect("smaller");
    let after = place.look().expect("a table");
    assert!(after.header.changed > before.epoch, "a cache is told: {:?}", after.header);
    assert_eq!((after.records.len(), after.header.tail), (3, 0));
    opened(&mut place).resize(20 * EXTENT, false, &mut |_, _| ()).expect("larger");
    assert_eq!(place.look().expect("a table").header.geometry.bytes(), 20 * EXTENT);
    holds(&mut place, 2, 3);
    holds(&mut place, 3, 0);
    holds(&mut place, 7, 0);
    let files = |pool: &std::path::Path| std::fs::read_dir(pool).expect("a folder").count();
    // The mark of each, and the table.
    assert_eq!((files(&place.slow), files(&place.fast)), (3 + 1, 2));
}

#[test]
fn a_command_that_dies_while_it_cuts_off_is_ended_by_the_next_owner() {
    for dies_at in 0..12 {
        for after in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let place = filled(folder.path());
            let steps = Arc::new(AtomicU64::new(0));
            let plan =
                Plan { steps: Arc::clone(&steps), dies_at, after, fails: None, silent_until: None };
            let cut = Upkeep::open(&mut Faulty(place.clone(), plan), &mut wait, &mut |_, _| ())
                .and_then(|mut upkeep| upkeep.resize(3 * EXTENT, true, &mut |_, _| ()));
            assert_eq!(cut.is_err(), steps.load(Relaxed) > dies_at, "{cut:?}");
            let mut place = place;
            // Rounds begin while the rest is cut off, and go on behind that.
            let client = Client::open(&mut place, quick()).expect("open");
            let until = Instant::now() + Duration::from_secs(20);
            while place.look().expect("a table").header.tail > 0 {
                assert!(Instant::now() < until, "dies at {dies_at}: never cut off");
                std::thread::sleep(Duration::from_millis(5));
            }
            for turn in 0..50 {
                client.write(turn % 3 * EXTENT, 1, (turn % 3) as u8 + 1).expect("it serves");
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(client);
            for extent in 0..3 {
                holds(&mut place, extent, extent as u8 + 1);
            }
            assert_eq!(place.look().expect("a table").records.len(), 3, "dies at {dies_at}");
        }
    }
}

#[test]
fn what_is_lost_reads_as_zeros_when_that_is_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = filled(folder.path());
    let records = place.look().expect("a table").records;
    let object = |extent: u32| {
        let (_, record) = records.iter().find(|(at, _)| *at == extent).expect("a record");
        assert_eq!(record.state, State::Stable);
        record.truth(extent).expect("an object")
    };
    let (gone, short) = (object(1), object(2));
    let path = |object: cinnabar_placement::Object| {
        let pool = if object.pool == Pool::Fast { &place.fast } else { &place.slow };
        pool.join(object.to_string())
    };
    std::fs::remove_file(path(gone)).expect("it was there");
    std::fs::write(path(short), [0; 512]).expect("it is cut");
    let found = place.check().expect("compared");
    assert_eq!((found.lost_objects.clone(), found.later), (vec![gone, short], None));
    let of_another = cinnabar_placement::Object { generation: 77, ..object(3) };
    let lost = [gone, short, of_another];
    let fates = upkeep::forget(&mut place, &lost, &mut wait, &mut |_, _| ()).expect("done");
    assert_eq!(fates, [Lost::Forgotten, Lost::There, Lost::Other]);
    let header = place.look().expect("a table").header;
    assert!(header.changed == header.epoch && header.floor >= gone.generation, "{header:?}");
    holds(&mut place, 0, 1);
    holds(&mut place, 1, 0);
    holds(&mut place, 3, 4);
    let client = Client::open(&mut place, still()).expect("open");
    client.write(EXTENT, 1, 9).expect("written again");
    drop(client);
    let records = place.look().expect("a table").records;
    let again = records.iter().find(|(at, _)| *at == 1).expect("a record").1;
    assert!(again.generation > gone.generation, "a name comes twice: {again:?}");
}

#[test]
fn what_nothing_needs_is_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = filled(folder.path());
    let records = place.look().expect("a table").records;
    // Those in the fast pool have had an object in the slow one.
    let moved = records.iter().find(|(_, record)| record.pool == Pool::Fast).expect("one moved").0;
    let left = place.slow.join(format!("{moved:08x}.00000001"));
    let later = place.slow.join(format!("{moved:08x}.00000077"));
    for path in [&left, &later] {
        std::fs::write(path, vec![1; EXTENT as usize]).expect("a file");
    }
    assert_eq!(opened(&mut place).collect(&mut |_, _| ()).expect("collected"), 1);
    assert!(!left.exists() && later.exists(), "what the table does not know yet stays");
    assert!(place.check().expect("compared").later.is_some());
    holds(&mut place, moved.into(), moved as u8 + 1);
}

/// More objects than a page of a list has, and than are deleted at a time: by the command, and by an owner's start.
#[test]
fn many_left_objects_are_deleted_page_by_page() {
    const LEFT: u32 = 1500;
    for by_command in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut place = filled(folder.path());
        opened(&mut place).resize(3 * EXTENT, true, &mut |_, _| ()).expect("smaller");
        opened(&mut place).resize(2000 * EXTENT, false, &mut |_, _| ()).expect("larger");
        assert_eq!(place.check().expect("compared").left, 0);
        // Names that extents behind the cut may have had.
        for extent in 3..3 + LEFT {
            let path = place.slow.join(format!("{extent:08x}.00000001"));
            std::fs::write(path, [1; 512]).expect("a file");
        }
        assert_eq!(place.check().expect("compared").left, u64::from(LEFT));
        if by_command {
            assert_eq!(
                opened(&mut place).collect(&mut |_, _| ()).expect("collected"),
                u64::from(LEFT)
            );
        } else {
            let client = Client::open(&mut place, still()).expect("open");
            let until = Instant::now() + Duration::from_secs(20);
            while client.0.status().left_deleted < u64::from(LEFT) {
                assert!(Instant::now() < until, "{:?}", client.0.status());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        assert_eq!(place.check().expect("compared").left, 0);
        holds(&mut place, 2, 3);
    }
}

#[test]
fn an_empty_volume_takes_no_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = created(folder.path(), EXTENTS, 2);
    assert_eq!(place.check().expect("compared").taken_bytes, Some([0; 2]));
}

#[test]
fn a_command_says_what_it_waits_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = created(folder.path(), EXTENTS, 2);
    let silent = || {
        let mut place = fails(&place, |_| false);
        place.1.silent_until = Some(Instant::now() + Duration::from_secs(1));
        place
    };
    let mut told = 0;
    let mut progress = |_: u32, trouble: Option<&str>| told += u32::from(trouble.is_some());
    let mut upkeep = Upkeep::open(&mut silent(), &mut wait, &mut progress).expect("it is free");
    upkeep.resize(20 * EXTENT, false, &mut progress).expect("larger");
    drop(upkeep);
    assert!(told > 0, "by the size");
    told = 0;
    let mut progress = |_: u32, trouble: Option<&str>| told += u32::from(trouble.is_some());
    let mut upkeep = Upkeep::open(&mut silent(), &mut wait, &mut progress).expect("it is free");
    assert_eq!(upkeep.collect(&mut progress).expect("collected"), 0);
    drop(upkeep);
    assert!(told > 0, "by the collection");
    assert_eq!(place.look().expect("a table").header.geometry.bytes(), 20 * EXTENT);
}
