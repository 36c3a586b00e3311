//! What is refused, with one clear line, and what an error costs.

use crate::client::{Client, EXTENT, created, quick};
use crate::faulty::{Faulty, Plan};
use cinnabar_hybrid::pools::{Op, OpError, Place};
use cinnabar_hybrid::runtime::Kind;
use cinnabar_hybrid::settings::Settings;
use cinnabar_placement::{Geometry, Header, Pool};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn line(result: Result<impl Sized, impl std::fmt::Display>, part: &str) {
    let Err(error) = result else { panic!("it passed; {part}") };
    let line = error.to_string();
    assert!(line.contains(part) && !line.contains('\n'), "{line}");
}

#[test]
fn what_is_written_is_there_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = created(folder.path(), 8, 2);
    let client = Client::open(&mut place, Settings::default()).expect("open");
    assert_eq!(client.0.size_bytes(), 8 * EXTENT);
    // Across the border of two extents.
    client.write(EXTENT - 8192, 4, 7).expect("written");
    let bytes = client.read(EXTENT - 12288, 6).expect("read");
    assert!(bytes[..4096].iter().chain(&bytes[20480..]).all(|b| *b == 0));
    assert!(bytes[4096..20480].iter().all(|b| *b == 7));
    let zero = Kind::Zero { punch: true };
    client.begin(zero, EXTENT, 1, 0).recv().expect("it ends").0.expect("zeroed");
    client.flush().expect("durable");
    // What was never written takes nothing, zeroed or not.
    client.begin(zero, 4 * EXTENT, 16, 0).recv().expect("it ends").0.expect("zeroed");
    drop(client);
    let client = Client::open(&mut place, Settings::default()).expect("again");
    let bytes = client.read(EXTENT - 8192, 4).expect("read");
    assert!(bytes[..8192].iter().all(|b| *b == 7) && bytes[8192..12288].iter().all(|b| *b == 0));
    assert_eq!(place.look().expect("a table").records.len(), 2);
    assert_eq!(client.write(8 * EXTENT, 1, 1), Err(Errno::INVAL), "behind the end");
}

#[test]
fn a_second_opener_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = created(folder.path(), 4, 2);
    let first = Client::open(&mut place, Settings::default()).expect("open");
    let epoch = first.0.epoch();
    line(Client::open(&mut place.clone(), Settings::default()).map(|_| ()), "in use by another");
    first.write(0, 1, 3).expect("still ours");
    drop(first);
    let second = Client::open(&mut place, Settings::default()).expect("free");
    assert_eq!(second.0.epoch(), epoch + 1);
}

#[test]
fn what_is_not_this_volume_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = created(folder.path(), 4, 2);
    let open = |place: &mut dyn Place| Client::open(place, Settings::default()).map(|_| ());
    let geometry = Geometry::new(EXTENT, 16).expect("a size");
    line(place.create(&Header::new([1; 16], geometry, 0)), "fast/table exists");
    let mut other = created(&folder.path().join("other"), 4, 2);
    let mut mixed = place.clone();
    mixed.slow = place.fast.clone();
    line(open(&mut mixed), "is the fast pool of this volume, not the slow one");
    std::fs::write(other.slow.join("cinnabar-hybrid"), "version 2\n").expect("written");
    line(open(&mut other), "newer version");
    std::fs::remove_file(other.slow.join("cinnabar-hybrid")).expect("removed");
    line(open(&mut other), "is its file system mounted?");
    std::fs::remove_dir(&other.slow).expect("removed");
    line(open(&mut other), "slow pool's folder");
    let mut nowhere = place.clone();
    nowhere.table = folder.path().join("none");
    line(open(&mut nowhere), "there is no hybrid volume");
    // A newer table, one that is none, and a damaged one.
    let good = std::fs::read(&place.table).expect("read");
    let mut newer = good.clone();
    newer[8] = 2;
    let crc = crc32c(&newer[4..4096]);
    newer[..4].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&place.table, &newer).expect("written");
    line(open(&mut place), "version 2");
    let mut damaged = good.clone();
    damaged[100] ^= 1;
    std::fs::write(&place.table, &damaged).expect("written");
    line(open(&mut place), "damaged");
    std::fs::write(&place.table, "a text").expect("written");
    line(open(&mut place), "not the table of a hybrid volume");
    std::fs::write(&place.table, &good).expect("written");
    open(&mut place).expect("good again");
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}

#[test]
fn a_lost_object_is_an_error_and_no_zeros() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = created(folder.path(), 4, 2);
    let client = Client::open(&mut place, Settings::default()).expect("open");
    client.write(0, 1, 3).expect("written");
    client.write(EXTENT, 1, 4).expect("written");
    drop(client);
    std::fs::remove_file(place.slow.join("00000000.00000001")).expect("removed");
    let client = Client::open(&mut place, Settings::default()).expect("open");
    assert_eq!(client.read(0, 1), Err(Errno::IO));
    assert_eq!(client.write(0, 1, 5), Err(Errno::IO));
    assert_eq!(client.read(EXTENT, 1).expect("the other one")[0], 4);
    drop(client);
    let checked = place.check().expect("checked");
    assert_eq!((checked.objects, checked.lost_count), (2, 1));
    assert_eq!(checked.lost, ["slow/00000000.00000001"]);
    let short = std::fs::File::options().write(true).open(place.slow.join("00000001.00000001"));
    short.expect("there").set_len(4096).expect("cut off");
    let client = Client::open(&mut place, Settings::default()).expect("open");
    assert_eq!(client.read(EXTENT, 1), Err(Errno::NODATA));
}

#[test]
fn foreign_files_stay_and_left_ones_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = created(folder.path(), 4, 2);
    let client = Client::open(&mut place, Settings::default()).expect("open");
    client.write(0, 1, 3).expect("written");
    drop(client);
    let (note, foreign) = (place.slow.join("note"), place.slow.join("00000000.00000009"));
    let many = 1500;
    for i in 0..many {
        std::fs::write(place.fast.join(format!("x{i:04}")), "x").expect("written");
    }
    std::fs::write(&note, "mine").expect("written");
    std::fs::write(&foreign, "of a later time").expect("written");
    let client = Client::open(&mut place, Settings::default()).expect("open");
    let until = Instant::now() + Duration::from_secs(10);
    while client.0.status().foreign < many + 2 {
        assert!(Instant::now() < until, "{:?}", client.0.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.0.status().foreign, many + 2);
    line(place.check(), "in use");
    drop(client);
    assert!(note.exists() && foreign.exists());
    let checked = place.check().expect("checked");
    assert_eq!((checked.foreign_count, checked.lost_count, checked.left), (many + 2, 0, 0));
    assert_eq!(checked.foreign.len(), 100);
    assert_eq!(std::fs::read_dir(&place.fast).expect("a folder").count() as u64, many + 2);
}

#[test]
fn a_full_fast_pool_gives_moves_up_and_costs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = created(folder.path(), 4, 2);
    let fails = |op: &Op| matches!(op, Op::Copy { to, .. } if to.pool == Pool::Fast);
    let plan = Plan {
        steps: Arc::default(),
        dies_at: u64::MAX,
        after: false,
        fails: Some((fails, OpError::NoSpace(Pool::Fast))),
        silent_until: None,
    };
    let client = Client::open(&mut Faulty(place, plan), quick()).expect("open");
    let until = Instant::now() + Duration::from_secs(20);
    while client.0.status().counts.given_up == 0 {
        client.write(0, 1, 9).expect("served");
        assert!(Instant::now() < until, "{:?}", client.0.status());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.read(0, 1).expect("read")[0], 9);
}

#[test]
fn a_write_of_a_full_fast_pool_goes_to_the_slow_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = created(folder.path(), 4, 2);
    let fails = |op: &Op| matches!(op, Op::Write { object, .. } if object.pool == Pool::Fast);
    let plan = Plan {
        steps: Arc::default(),
        dies_at: u64::MAX,
        after: false,
        fails: Some((fails, OpError::NoSpace(Pool::Fast))),
        silent_until: None,
    };
    let client = Client::open(&mut Faulty(place, plan), quick()).expect("open");
    let until = Instant::now() + Duration::from_secs(20);
    let mut written = 0;
    while client.0.status().counts.moved[0] < 2 {
        written = written % 250 + 1;
        client.write(0, 1, written).expect("there is room in the slow pool");
        assert!(Instant::now() < until, "{:?}", client.0.status());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.read(0, 1).expect("read")[0], written);
}

#[test]
fn an_unsure_table_ends_the_service() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = created(folder.path(), 4, 2);
    let fails = |op: &Op| matches!(op, Op::StoreRecord { extent: 1, .. });
    let plan = Plan {
        steps: Arc::default(),
        dies_at: u64::MAX,
        after: false,
        fails: Some((fails, OpError::Unsure(Errno::IO))),
        silent_until: None,
    };
    let client = Client::open(&mut Faulty(place, plan), Settings::default()).expect("open");
    client.write(0, 1, 9).expect("served");
    assert_eq!(client.write(EXTENT, 1, 9), Err(Errno::IO));
    assert_eq!(client.read(0, 1), Err(Errno::IO), "nothing is served any more");
    let status = client.0.status();
    assert!(status.lost && status.trouble.is_some_and(|text| text.contains("not known")));
}

#[test]
fn a_failed_flush_sticks() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = created(folder.path(), 4, 2);
    let plan = Plan {
        steps: Arc::default(),
        dies_at: u64::MAX,
        after: false,
        fails: Some((|op| matches!(op, Op::Flush), OpError::Other(Errno::IO))),
        silent_until: None,
    };
    let client = Client::open(&mut Faulty(place, plan), Settings::default()).expect("open");
    assert_eq!(client.flush(), Err(Errno::IO));
    assert_eq!(client.0.failed_flush(), Some(Errno::IO));
    client.0.forget_failed_flush();
    assert_eq!(client.0.failed_flush(), None);
}

/// More records than the log has room for: the other area takes over, again and again.
#[test]
fn the_table_outlives_its_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = created(folder.path(), 3000, 2);
    let client = Client::open(&mut place, Settings::default()).expect("open");
    for extent in 0..1300 {
        client.write(extent * EXTENT, 1, extent as u8).expect("written");
    }
    drop(client);
    let client = Client::open(&mut place, Settings::default()).expect("again");
    for extent in (0..1300).step_by(7) {
        assert_eq!(client.read(extent * EXTENT, 1).expect("read")[0], extent as u8);
    }
}
