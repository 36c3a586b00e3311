//! `cache resize`, and the size that the configuration says at each start.

use super::rig::{MIB, Rig, SIZE, pattern};
use cinnabar_backend::disk::{DiskError, DiskErrorKind};
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, DataStatus, IoMode, Message, Share, State,
};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// What the file system says, or that it says nothing, as files beside the cache have it.
pub(in crate::dataplane) fn file_system(cache: &Path, bytes: u64) -> Result<(), DiskError> {
    while cache.with_extension("silent").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    if cache.with_extension("full").exists() {
        return Err(DiskError { path: cache.to_owned(), kind: DiskErrorKind::NoSpace(bytes) });
    }
    Ok(())
}

/// A cache of 32 MiB that may be given 64.
fn rig(names: &[&str]) -> Rig {
    let mut rig = Rig::new(IoMode::Auto, names);
    let cache = &mut rig.config.cache;
    cache.shards = Some(1);
    (cache.size_bytes, cache.size_max_bytes) = (Some(32 * MIB), Some(64 * MIB));
    rig
}

fn resize(rig: &Rig, size_bytes: u64) -> Result<(), CommandError> {
    rig.ask(|answer| Message::ResizeCache { size_bytes, answer })
}

/// Waits for the end of a resize, and gives the status then.
fn settled(rig: &Rig) -> DataStatus {
    for _ in 0..3000 {
        let status = rig.status();
        if status.cache.size.resizing_to.is_none() && status.cache.state == State::Serving {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not end: {:?}", rig.status().cache)
}

fn resized(rig: &Rig, size_bytes: u64) -> DataStatus {
    resize(rig, size_bytes).expect("it begins");
    let status = settled(rig);
    let size = &status.cache.size;
    assert_eq!(size.failed, "");
    assert!(size.bytes <= size_bytes && size.bytes > size_bytes - 3 * MIB, "{size:?}");
    let capacity = status.cache.counters.capacity_blocks * 4096;
    assert!(capacity <= size.bytes && capacity > size.bytes - 5 * MIB, "{capacity} of {size:?}");
    status
}

/// Bytes that the file takes on its file system.
fn held(rig: &Rig) -> u64 {
    let file = std::fs::metadata(&rig.config.cache.device).expect("it is there");
    assert!(file.len() > 60 * MIB, "its places are those of the largest size");
    file.blocks() * 512
}

fn read_all(rig: &Rig, name: &str) {
    let mut client = rig.client(name);
    for _ in 0..2 {
        for at in (0..SIZE).step_by(MIB as usize) {
            assert!(client.read(at, MIB as u32) == Ok(pattern(at, MIB as usize)), "at {at}");
        }
    }
    client.leave();
}

#[test]
fn it_grows_and_shrinks_while_it_serves_and_its_file_with_it() {
    let mut rig = rig(&["vm1", "vm2"]);
    rig.start();
    rig.loaded();
    let first = held(&rig);
    assert!((30 * MIB..34 * MIB).contains(&first), "{first} bytes at first");
    read_all(&rig, "vm1");
    read_all(&rig, "vm2");
    let before = rig.status().cache.counters.cached_blocks;
    assert!(before > 3000, "{before} blocks");
    let grown = resized(&rig, 64 * MIB);
    assert!(grown.cache.counters.cached_blocks >= before, "growing costs nothing");
    assert!(held(&rig) > 60 * MIB, "it has its room");
    read_all(&rig, "vm1");
    let shrunk = resized(&rig, 20 * MIB);
    assert!(held(&rig) < 22 * MIB, "it is given back");
    let kept = shrunk.cache.counters.cached_blocks;
    assert!(kept > 2000, "{kept} of {before} blocks");
    read_all(&rig, "vm2");
    assert!(rig.stop().clean);
    // The next start has the size that the configuration says.
    rig.start();
    rig.loaded();
    let status = settled(&rig);
    assert!(status.cache.size.bytes > 30 * MIB, "{:?}", status.cache.size);
    assert!(status.cache.counters.cached_blocks > 1500, "and is warm");
    read_all(&rig, "vm1");
    rig.config.cache.size_bytes = Some(24 * MIB);
    assert!(rig.stop().clean);
    rig.start();
    rig.loaded();
    let status = settled(&rig);
    assert!(status.cache.size.bytes <= 24 * MIB, "{:?}", status.cache.size);
    assert!(held(&rig) < 26 * MIB);
    assert!(rig.stop().clean);
}

#[test]
fn what_it_was_not_made_for_is_refused_with_a_hint() {
    let mut rig = rig(&["vm1"]);
    rig.config.volumes[0].share_min = Share::Bytes(16 * MIB);
    rig.start();
    rig.loaded();
    for (bytes, told) in [
        (1 << 40, "was made for at most"),
        (65 * MIB + 4 * MIB, "was made for at most"),
        (10 * MIB, "too small for this cache"),
        (0, "too small for this cache"),
        (20 * MIB, "minimums of all volumes"),
    ] {
        let error = resize(&rig, bytes).expect_err("it is impossible");
        assert_eq!(error.kind, CommandErrorKind::Invalid, "{error}");
        assert!(error.message.contains(told) && !error.hint.is_empty(), "{bytes}: {error}");
    }
    assert_eq!(rig.status().cache.size.resizing_to, None);
    resized(&rig, 64 * MIB);
    assert!(rig.stop().clean);
}

/// Of a maximum of all there is none is left in the engine, or each of them would have a share of its
/// own at the next size.
#[test]
fn many_ordinary_volumes_stand_in_the_way_of_no_size() {
    let names: Vec<String> = (0..12).map(|n| format!("vm{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut rig = rig(&names);
    rig.start();
    rig.loaded();
    for size in [64 * MIB, 20 * MIB, 40 * MIB] {
        let status = resized(&rig, size);
        let own = status.volumes.iter().filter(|volume| volume.counters.own_shares > 0);
        assert_eq!(own.count(), 0, "at {size}");
    }
    assert!(rig.stop().clean);
}

#[test]
fn a_volume_that_comes_during_a_resize_has_its_part_of_the_new_size() {
    let mut rig = rig(&["vm1"]);
    rig.start();
    rig.loaded();
    read_all(&rig, "vm1");
    resize(&rig, 64 * MIB).expect("it begins");
    let mut volume = rig.volume("vm2");
    // More than four fifths of what it was.
    volume.share_min = Share::Bytes(40 * MIB);
    rig.ask(|answer| Message::AddVolume(Box::new(volume), answer)).expect("it is added");
    let status = settled(&rig);
    let share = status.volumes[1].counters.share_blocks;
    assert!(share * 4096 >= 39 * MIB, "{share} blocks");
    assert!(rig.stop().clean);
}

/// The next start goes on with it, or with what the configuration says by then.
#[test]
fn a_stop_amid_a_resize_is_clean() {
    let mut rig = rig(&["vm1"]);
    rig.start();
    rig.loaded();
    read_all(&rig, "vm1");
    resize(&rig, 64 * MIB).expect("it begins");
    resize(&rig, 20 * MIB).expect("another one takes its place");
    assert!(rig.stop().clean);
    rig.start();
    rig.loaded();
    let status = settled(&rig);
    assert!(status.cache.size.bytes > 30 * MIB, "{:?}", status.cache.size);
    read_all(&rig, "vm1");
    assert!(rig.stop().clean);
}

/// A device of an earlier version, or without `size_max`, is taken over warm.
#[test]
fn a_device_that_can_not_grow_keeps_its_size_and_what_it_holds() {
    let mut rig = rig(&["vm1"]);
    rig.config.cache.size_max_bytes = None;
    rig.start();
    rig.loaded();
    read_all(&rig, "vm1");
    assert!(rig.stop().clean);
    (rig.config.cache.size_bytes, rig.config.cache.size_max_bytes) =
        (Some(64 * MIB), Some(128 * MIB));
    rig.start();
    rig.loaded();
    let status = settled(&rig);
    assert!(status.cache.size.bytes < 33 * MIB, "{:?}", status.cache.size);
    assert!(status.cache.counters.cached_blocks > 1500, "and is warm");
    let error = resize(&rig, 64 * MIB).expect_err("it was made for less");
    assert!(error.hint.contains("size_max"), "{error}");
    assert!(rig.stop().clean);
}

#[test]
fn without_a_device_there_is_nothing_to_resize() {
    let mut rig = rig(&["vm1"]);
    rig.start();
    rig.loaded();
    rig.ask(Message::AbandonCache).expect("it is given up");
    let error = resize(&rig, 40 * MIB).expect_err("there is none");
    assert!(error.message.contains("no cache device"), "{error}");
    rig.stop();
}

/// It would fill the file system first, and nobody else could write there.
#[test]
fn a_start_that_grows_asks_for_room_first() {
    let mut rig = rig(&["vm1"]);
    rig.start();
    rig.loaded();
    read_all(&rig, "vm1");
    assert!(rig.stop().clean);
    let full = rig.config.cache.device.with_extension("full");
    std::fs::write(&full, "").expect("a file");
    rig.config.cache.size_bytes = Some(64 * MIB);
    rig.start();
    rig.loaded();
    let status = settled(&rig);
    let size = &status.cache.size;
    assert!(size.bytes < 33 * MIB && size.failed.contains("room"), "{size:?}");
    assert!(held(&rig) < 34 * MIB, "{} bytes", held(&rig));
    assert!(status.cache.counters.cached_blocks > 1500, "and is warm");
    let share = status.volumes[0].counters.share_blocks;
    assert!(share * 4096 < 34 * MIB, "shares are parts of the size kept: {share}");
    let error = resize(&rig, 64 * MIB).expect_err("there is no room still");
    assert_eq!(error.kind, CommandErrorKind::Limit, "{error}");
    std::fs::remove_file(&full).expect("it was there");
    resized(&rig, 64 * MIB);
    read_all(&rig, "vm1");
    assert!(rig.stop().clean);
}

#[test]
fn one_whose_file_system_answers_late_overtakes_none() {
    let mut rig = rig(&["vm1"]);
    rig.start();
    rig.loaded();
    let silent = rig.config.cache.device.with_extension("silent");
    std::fs::write(&silent, "").expect("a file");
    let ask = |size_bytes| rig.send(|answer| Message::ResizeCache { size_bytes, answer });
    let late = ask(64 * MIB);
    drop((0..7).map(|_| ask(60 * MIB)).collect::<Vec<_>>());
    // Not without end: each keeps a thread.
    let error = resize(&rig, 64 * MIB).expect_err("there are too many");
    assert_eq!(error.kind, CommandErrorKind::Busy, "{error}");
    resized(&rig, 20 * MIB);
    std::fs::remove_file(&silent).expect("it was there");
    let error = late.blocking_recv().expect("it is answered").expect_err("it is too late");
    assert!(error.message.contains("another resize"), "{error}");
    let status = settled(&rig);
    assert!(status.cache.size.bytes <= 20 * MIB, "{:?}", status.cache.size);
    resized(&rig, 64 * MIB);
    assert!(rig.stop().clean);
}

/// The next start would refuse the configuration, and no guest were served.
#[test]
fn a_size_at_which_shares_contradict_each_other_is_refused() {
    let mut rig = rig(&["vm1"]);
    let volume = &mut rig.config.volumes[0];
    (volume.share_min, volume.share_max) = (Share::Bytes(12 * MIB), Share::Percent(50.0));
    rig.start();
    rig.loaded();
    let error = resize(&rig, 20 * MIB).expect_err("its maximum would be less than its minimum");
    assert!(error.message.contains("volume vm1: share_min is more than share_max"), "{error}");
    resized(&rig, 28 * MIB);
    assert!(rig.stop().clean);
    rig.config.cache.size_bytes = Some(28 * MIB);
    rig.start();
    rig.loaded();
    settled(&rig);
    assert!(rig.stop().clean);
}

#[test]
fn of_one_whose_device_is_lost_it_is_said_that_it_failed() {
    let mut rig = rig(&["vm1"]);
    rig.start();
    rig.loaded();
    let full = rig.config.cache.device.with_extension("full");
    std::fs::write(&full, "").expect("a file");
    rig.config.cache.size_bytes = Some(64 * MIB);
    assert!(rig.stop().clean);
    rig.start();
    rig.loaded();
    settled(&rig);
    rig.ask(Message::AbandonCache).expect("it is given up");
    let size = rig.status().cache.size;
    assert!(size.bytes == 0 && !size.failed.is_empty(), "{size:?}");
    rig.stop();
}
