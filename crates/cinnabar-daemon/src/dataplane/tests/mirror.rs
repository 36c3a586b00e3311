//! A write log on two devices: halves that are away, lost, empty or another's at a start. Those that fail
//! under guests are in `tests/clients/write_back/mirror.rs`.

use super::rig::{MIB, Rig};
use super::write_back::{SLOW, flush, has_claim, on_disk, until};
use cinnabar_backend::Disk;
use cinnabar_backend::disk::OpenOptions;
use cinnabar_config::messages::{DataStatus, IoMode, LogHalfState, State};
use cinnabar_writeback::mirror::force_alone;
use std::path::Path;

const HALVES: [&str; 2] = ["writes.img", "mirror.img"];

fn mirrored(io: IoMode) -> Rig {
    let mut rig = Rig::write_back(io, &["vm1"]);
    rig.config.volumes[0].backend.insert_str(0, SLOW);
    let mirror = rig.path(HALVES[1]);
    let log = rig.config.cache.write_log.as_mut().expect("it is set");
    (log.mirror, log.drain_on_stop) = (Some(mirror), false);
    rig
}

/// Both halves hold everything, and writes that the back end lacks.
fn dirty(rig: &mut Rig) {
    rig.start();
    until(rig, "the mirror is filled", |status| states(status) == [LogHalfState::Both; 2]);
    write(rig, 1);
    rig.stop();
    assert!(has_claim(rig));
}

fn write(rig: &Rig, value: u8) {
    let mut client = rig.client("vm1");
    for n in 0..8_u64 {
        assert_eq!(client.write(n * 8192, &[value + n as u8; 4096], true), Ok(()));
    }
    client.leave();
}

fn check(rig: &Rig, value: u8) {
    let mut client = rig.client("vm1");
    for n in 0..8_u64 {
        assert_eq!(client.read(n * 8192, 4096), Ok(vec![value + n as u8; 4096]), "{n}");
    }
    client.leave();
}

fn states(status: &DataStatus) -> [LogHalfState; 2] {
    let log = status.cache.write_log.as_ref().expect("it is configured");
    let states: Vec<_> = log.halves.iter().map(|half| half.state).collect();
    states.try_into().unwrap_or_else(|_| panic!("two halves: {log:?}"))
}

fn away(rig: &Rig, half: usize) {
    let name = HALVES[half];
    std::fs::rename(rig.path(name), rig.path(&format!("{name}.away"))).expect("it is there");
    // What is not there is not made, either.
    std::fs::create_dir(rig.path(name)).expect("a folder in its place");
}

fn back(rig: &Rig, half: usize) {
    let name = HALVES[half];
    std::fs::remove_dir(rig.path(name)).expect("a folder is there");
    std::fs::rename(rig.path(&format!("{name}.away")), rig.path(name)).expect("it is kept");
}

fn say_alone(path: &Path) {
    let disk = Disk::open(path, &OpenOptions::default()).expect("it opens");
    force_alone(&disk).expect("it is a half that is complete");
}

/// No volume of the log is served, and one line says why and what helps.
fn refused(rig: &mut Rig, part: &str) {
    rig.start();
    let status = rig.status();
    assert_eq!(status.volumes[0].state, State::Waiting);
    let reason = status.cache.write_log.expect("it is configured").reason;
    assert!(reason.contains(part) && !reason.contains('\n'), "{part}: {reason}");
    assert!(reason.contains("hint: "), "{reason}");
    rig.stop();
}

#[test]
fn a_mirror_is_filled_and_either_half_has_everything() {
    for (lost, io) in [(0, IoMode::Auto), (1, IoMode::Threads)] {
        let mut rig = mirrored(io);
        dirty(&mut rig);
        away(&rig, lost);
        let hint = format!("cache mirror {}", rig.path(HALVES[1 - lost]).display());
        refused(&mut rig, &hint);
        say_alone(&rig.path(HALVES[1 - lost]));
        rig.start();
        check(&rig, 1);
        let status = rig.status();
        assert_eq!(states(&status)[lost], LogHalfState::Missing);
        assert_eq!(states(&status)[1 - lost], LogHalfState::Alone);
        let why = &status.cache.write_log.expect("it is configured").halves[lost].reason;
        assert!(why.contains("directory"), "{why}");
        write(&rig, 50);
        rig.stop();
        // The old half comes back: it is not believed, but filled.
        back(&rig, lost);
        rig.start();
        assert_eq!(states(&rig.status())[lost], LogHalfState::Filling);
        check(&rig, 50);
        assert_eq!(flush(&rig), Ok(()));
        until(&rig, "it is filled", |status| states(status) == [LogHalfState::Both; 2]);
        assert_eq!(on_disk(&rig)[7 * 8192], 57);
        write(&rig, 90);
        rig.stop();
        away(&rig, 1 - lost);
        say_alone(&rig.path(HALVES[lost]));
        rig.start();
        check(&rig, 90);
        rig.stop();
    }
}

#[test]
fn a_half_that_is_lost_is_replaced_by_an_empty_file() {
    for lost in 0..2 {
        let mut rig = mirrored(IoMode::Auto);
        dirty(&mut rig);
        std::fs::remove_file(rig.path(HALVES[lost])).expect("it is there");
        // The file that would be made in its place may stand where a file system was not mounted.
        refused(&mut rig, "its other half");
        assert!(!rig.path(HALVES[lost]).exists(), "nothing is left of it");
        say_alone(&rig.path(HALVES[1 - lost]));
        rig.config.cache.write_log.as_mut().expect("it is set").size_bytes = None;
        rig.start();
        assert_eq!(states(&rig.status())[lost], LogHalfState::Filling);
        check(&rig, 1);
        // The half that is being filled is no copy.
        rig.stop();
        away(&rig, 1 - lost);
        refused(&mut rig, "not complete");
        back(&rig, 1 - lost);
        rig.start();
        assert_eq!(flush(&rig), Ok(()));
        until(&rig, "it is filled", |status| states(status) == [LogHalfState::Both; 2]);
        rig.stop();
    }
}

#[test]
fn a_mirror_is_added_to_a_log_and_taken_away() {
    let mut rig = mirrored(IoMode::Auto);
    let mirror = rig.config.cache.write_log.as_mut().and_then(|log| log.mirror.take());
    rig.start();
    assert!(rig.status().cache.write_log.is_some_and(|log| log.halves.is_empty()));
    write(&rig, 1);
    rig.stop();
    rig.config.cache.write_log.as_mut().expect("it is set").mirror = mirror;
    rig.start();
    assert_eq!(states(&rig.status()), [LogHalfState::Alone, LogHalfState::Filling]);
    check(&rig, 1);
    assert_eq!(flush(&rig), Ok(()));
    until(&rig, "it is filled", |status| states(status) == [LogHalfState::Both; 2]);
    rig.stop();
    // A half is not used alone before the operator says so.
    rig.config.cache.write_log.as_mut().expect("it is set").mirror = None;
    refused(&mut rig, "set write_log_mirror");
    say_alone(&rig.path(HALVES[0]));
    rig.start();
    check(&rig, 1);
    rig.stop();
}

/// Nothing happened in the log, so nobody looked whether the other half lacked anything.
#[test]
fn a_mirror_of_a_log_that_is_idle_is_complete() {
    let mut rig = mirrored(IoMode::Auto);
    rig.config.volumes[0].mode = cinnabar_config::messages::VolumeMode::WriteThrough;
    rig.start();
    until(&rig, "there is nothing to fill", |status| states(status) == [LogHalfState::Both; 2]);
    rig.stop();
    away(&rig, 1);
    rig.start();
    let reason = rig.status().cache.write_log.expect("it is configured").reason;
    assert!(reason.contains("its other half"), "both were marked: {reason}");
    rig.stop();
}

#[test]
fn what_is_no_half_is_not_touched_and_keeps_no_log_from_being_used() {
    let mut rig = mirrored(IoMode::Auto);
    let mut bytes = vec![0; 32 * MIB as usize];
    bytes[0x438..0x43A].copy_from_slice(&[0x53, 0xEF]);
    let mirror = rig.config.cache.write_log.as_mut().and_then(|log| log.mirror.take());
    rig.start();
    write(&rig, 1);
    rig.stop();
    std::fs::write(rig.path(HALVES[1]), &bytes).expect("it is written");
    rig.config.cache.write_log.as_mut().expect("it is set").mirror = mirror;
    rig.start();
    check(&rig, 1);
    let status = rig.status();
    assert_eq!(states(&status), [LogHalfState::Alone, LogHalfState::Missing]);
    let halves = status.cache.write_log.expect("it is configured").halves;
    assert!(halves[1].reason.contains("ext2"), "{}", halves[1].reason);
    rig.stop();
    assert!(std::fs::read(rig.path(HALVES[1])).expect("it is read") == bytes);
    // Two logs are no pair, whichever comes first.
    std::fs::remove_file(rig.path(HALVES[1])).expect("it is there");
    let mut other = mirrored(IoMode::Auto);
    other.config.cache.write_log.as_mut().expect("it is set").mirror = None;
    other.start();
    other.stop();
    std::fs::copy(other.path(HALVES[0]), rig.path(HALVES[1])).expect("it is copied");
    rig.start();
    let status = rig.status();
    assert_eq!(status.volumes[0].state, State::Waiting);
    let reason = status.cache.write_log.expect("it is configured").reason;
    assert!(reason.contains("two different write logs"), "{reason}");
    rig.stop();
}

#[test]
fn without_either_half_others_are_served() {
    let mut rig = mirrored(IoMode::Auto);
    let other = rig.volume("vm2");
    rig.config.volumes.push(other);
    let log = rig.config.cache.write_log.as_mut().expect("it is set");
    (log.path, log.mirror) = ("/nonexistent/a".into(), Some("/nonexistent/b".into()));
    rig.start();
    let status = rig.status();
    assert_eq!(status.volumes.iter().filter(|one| one.state == State::Waiting).count(), 1);
    let reason = status.cache.write_log.expect("it is configured").reason;
    assert!(reason.contains("nonexistent/a") && reason.contains("nonexistent/b"), "{reason}");
    assert!(rig.client("vm2").read(0, 4096).is_ok());
    rig.stop();
}
