//! Write-back: a real write log, real files, and what operators do to volumes meanwhile.

use super::client::Client;
use super::rig::{MIB, Rig, SIZE, both, pattern};
use crate::dataplane::plane::DataPlane;
use crate::dataplane::worker::WorkerEvent;
use cinnabar_config::messages::{
    CommandError, DataStatus, IoMode, Message, Share, State, StopReport, VolumeChange,
    VolumeConfig, VolumeMode, WriteBackStatus,
};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A back end that takes its time: nothing reaches it soon.
pub(super) const SLOW: &str = "sim:network,read=1ms,write=400ms,flush=400ms:";

fn own(status: &DataStatus) -> WriteBackStatus {
    status.volumes[0].write_back.clone().expect("in write-back mode")
}

pub(super) fn until(rig: &Rig, what: &str, reached: impl Fn(&DataStatus) -> bool) {
    let since = Instant::now();
    while !reached(&rig.status()) {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}: {:?}", rig.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn set(rig: &Rig, mode: VolumeMode) -> Result<(), CommandError> {
    let change = VolumeChange { mode: Some(mode), ..VolumeChange::default() };
    rig.ask(|answer| Message::SetVolume { name: "vm1".into(), change, answer })
}

pub(super) fn remove(rig: &Rig, discard_dirty: bool) -> Result<(), CommandError> {
    let (name, force) = ("vm1".into(), true);
    rig.ask(|answer| Message::RemoveVolume { name, force, discard_dirty, answer })
}

pub(super) fn flush(rig: &Rig) -> Result<(), CommandError> {
    rig.ask(|answer| Message::FlushVolume { name: "vm1".into(), answer })
}

pub(super) fn on_disk(rig: &Rig) -> Vec<u8> {
    std::fs::read(rig.path("vm1.raw")).expect("the file is there")
}

pub(super) fn has_claim(rig: &Rig) -> bool {
    rig.path("vm1.raw.cinnabar-claim").exists()
}

/// Stops, and leaves in the log what is there.
fn stop_dirty(rig: &mut Rig) -> StopReport {
    rig.stop()
}

#[test]
fn what_is_written_is_read_and_reaches_the_backend_in_the_end() {
    both(|io| {
        let mut rig = Rig::write_back(io, &["vm1"]);
        rig.start();
        assert!(has_claim(&rig), "before anything can be acknowledged");
        let mut client = rig.client("vm1");
        let mut expected = pattern(0, SIZE as usize);
        for (offset, len, fua) in
            [(4096, 4096, false), (512, 1024, true), (2 * MIB - 512, 69_632, false), (1, 7, false)]
        {
            let data = vec![0xab; len];
            assert_eq!(client.write(offset, &data, fua), Ok(()));
            expected[offset as usize..][..len].copy_from_slice(&data);
            let around = offset.saturating_sub(4096) / 512 * 512;
            let expected = &expected[around as usize..][..len + 8192];
            assert!(client.read(around, len as u32 + 8192).as_deref() == Ok(expected));
        }
        assert_eq!(client.zero(5 * MIB, 100 * 512), Ok(()));
        expected[5 * MIB as usize..][..51_200].fill(0);
        assert_eq!(client.trim(7 * MIB, 8192), Ok(()));
        assert_eq!(client.flush(), Ok(()));
        assert!(client.read(0, 7 * MIB as u32).as_deref() == Ok(&expected[..7 * MIB as usize]));
        assert_eq!(flush(&rig), Ok(()));
        assert!(on_disk(&rig)[..7 * MIB as usize] == expected[..7 * MIB as usize]);
        assert!(own(&rig.status()).destaged_bytes > 0);
        assert!(client.read(0, 7 * MIB as u32).as_deref() == Ok(&expected[..7 * MIB as usize]));
        client.leave();
        let report = rig.stop();
        assert!(report.clean && report.cut_off == 0, "{report:?}");
        assert!(on_disk(&rig)[..7 * MIB as usize] == expected[..7 * MIB as usize]);
        assert!(!has_claim(&rig), "nothing is left in the log");
    });
}

#[test]
fn requests_are_counted_as_guests_made_them() {
    both(|io| {
        let mut rig = Rig::write_back(io, &["vm1"]);
        rig.start();
        let mut client = rig.client("vm1");
        // The back end was flushed when it joined.
        let before = rig.status().volumes[0].counters;
        for _ in 0..3 {
            assert_eq!(client.write(0, &[1; 8192], false), Ok(()));
        }
        assert!(client.read(0, 8192).is_ok(), "the log has it");
        assert!(client.read(0, 16_384).is_ok(), "the log has half of it");
        assert_eq!(client.flush(), Ok(()));
        flush(&rig).expect("the back end takes it");
        let status = rig.status();
        let counters = status.volumes[0].counters;
        assert_eq!((counters.writes, counters.blocks_written), (3, 6));
        assert_eq!(counters.flushes, before.flushes + 1);
        assert_eq!((counters.reads, counters.blocks_read), (2, 6));
        assert_eq!(counters.read_hits + counters.misses, counters.blocks_read);
        assert_eq!(status.volumes[0].read_hits_log, 2, "the log alone");
        assert!(counters.backend_writes > 0 && own(&status).destaged_writes > 0);
        set(&rig, VolumeMode::WriteThrough).expect("it leaves the log");
        until(&rig, "it has left", |status| status.volumes[0].write_back.is_none());
        let after = rig.status().volumes[0].counters;
        assert_eq!((after.writes, after.reads, after.read_hits), (3, 2, counters.read_hits));
        assert_eq!(client.write(0, &[1; 4096], false), Ok(()));
        assert_eq!(rig.status().volumes[0].counters.writes, 4);
        drop(client);
        rig.stop();
    });
}

#[test]
fn a_slow_backend_is_waited_for_by_nobody() {
    both(|io| {
        let mut rig = Rig::write_back(io, &["vm1"]);
        rig.config.volumes[0].backend.insert_str(0, SLOW);
        rig.config.cache.write_log.as_mut().expect("it is set").drain_on_stop = false;
        rig.start();
        let mut client = rig.client("vm1");
        let since = Instant::now();
        for n in 0..20_u64 {
            assert_eq!(client.write(n * 8192, &[n as u8 + 1; 4096], false), Ok(()));
            assert_eq!(client.flush(), Ok(()));
        }
        assert!(since.elapsed() < Duration::from_secs(4), "one back-end flush each takes 8 s");
        assert!(own(&rig.status()).dirty_bytes > 0);
        client.leave();
        let report = stop_dirty(&mut rig);
        assert!(report.clean, "{report:?}");
        assert!(has_claim(&rig), "the log holds writes");
        let at_backend = on_disk(&rig);
        assert!(at_backend[19 * 8192] != 20, "the last one is not there yet");
        // The next daemon has it, whatever the mode is now, and brings it there.
        rig.config.volumes[0].mode = VolumeMode::WriteThrough;
        rig.start();
        let mut client = rig.client("vm1");
        for n in 0..20_u64 {
            assert_eq!(client.read(n * 8192, 4096), Ok(vec![n as u8 + 1; 4096]));
        }
        until(&rig, "it leaves the log", |status| status.volumes[0].write_back.is_none());
        for n in 0..20_u64 {
            assert_eq!(on_disk(&rig)[n as usize * 8192], n as u8 + 1);
            assert_eq!(client.read(n * 8192, 4096), Ok(vec![n as u8 + 1; 4096]));
        }
        assert!(!has_claim(&rig));
        client.leave();
        rig.stop();
    });
}

#[test]
fn modes_change_under_a_guest_that_writes() {
    both(|io| {
        let mut rig = Rig::write_back(io, &["vm1"]);
        rig.config.volumes[0].mode = VolumeMode::WriteThrough;
        rig.start();
        let (sender, done) = std::sync::mpsc::channel::<()>();
        let mut client = rig.client("vm1");
        let guest = std::thread::spawn(move || {
            let mut last = vec![0; 64];
            for n in 1.. {
                let block = n % 64;
                let data = vec![n as u8; 4096];
                assert_eq!(client.write(block * 4096, &data, n % 7 == 0), Ok(()));
                last[block as usize] = n as u8;
                if n % 5 == 0 {
                    assert_eq!(client.flush(), Ok(()));
                }
                let other = n * 13 % 64;
                if last[other as usize] != 0 {
                    let expected = vec![last[other as usize]; 4096];
                    assert_eq!(client.read(other * 4096, 4096), Ok(expected), "write {n}");
                }
                if n > 64 && done.try_recv().is_ok() {
                    client.leave();
                    return last;
                }
            }
            unreachable!("it is told to end")
        });
        for round in 0..6 {
            assert_eq!(set(&rig, VolumeMode::WriteBack), Ok(()), "round {round}");
            until(&rig, "it is there", |status| status.volumes[0].write_back.is_some());
            assert!(has_claim(&rig));
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(set(&rig, VolumeMode::WriteThrough), Ok(()), "round {round}");
            until(&rig, "it leaves", |status| status.volumes[0].write_back.is_none());
            assert!(!has_claim(&rig));
        }
        sender.send(()).expect("it listens");
        let last = guest.join().expect("its reads were right");
        rig.stop();
        let on_disk = on_disk(&rig);
        for (block, value) in last.iter().enumerate() {
            assert_eq!(on_disk[block * 4096], *value, "block {block}");
        }
    });
}

#[test]
fn another_log_has_no_claim() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend.insert_str(0, SLOW);
    rig.config.cache.write_log.as_mut().expect("it is set").drain_on_stop = false;
    rig.start();
    let mut client = rig.client("vm1");
    assert_eq!(client.write(4096, &[9; 4096], true), Ok(()));
    client.leave();
    rig.stop();
    std::fs::rename(rig.path("writes.img"), rig.path("kept.img")).expect("it can be moved");
    for mode in [VolumeMode::WriteBack, VolumeMode::WriteThrough] {
        rig.config.volumes[0].mode = mode;
        rig.start();
        let status = &rig.status().volumes[0];
        assert_eq!(status.state, State::Waiting, "{}", status.reason);
        assert!(status.reason.contains("claimed by the write log"), "{}", status.reason);
        rig.stop();
    }
    std::fs::rename(rig.path("kept.img"), rig.path("writes.img")).expect("it can be moved");
    // Without its claim the log's writes are not believed: others may have written since.
    let claim = rig.path("vm1.raw.cinnabar-claim");
    std::fs::rename(&claim, rig.path("kept.claim")).expect("it is there");
    rig.start();
    let status = rig.status();
    assert_eq!(status.volumes[0].state, State::Waiting);
    assert!(status.volumes[0].reason.contains("is gone"), "{}", status.volumes[0].reason);
    rig.stop();
    std::fs::rename(rig.path("kept.claim"), claim).expect("it is there");
    rig.start();
    assert_eq!(rig.client("vm1").read(4096, 4096), Ok(vec![9; 4096]));
    rig.stop();
}

#[test]
fn without_its_device_others_are_served() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1", "vm2"]);
    rig.config.volumes[1].mode = VolumeMode::WriteThrough;
    rig.config.cache.write_log.as_mut().expect("it is set").path = "/nonexistent/writes".into();
    rig.start();
    let status = rig.status();
    assert_eq!(status.volumes.iter().filter(|one| one.state == State::Waiting).count(), 1);
    assert!(!status.cache.write_log.expect("it is configured").reason.is_empty());
    assert_eq!(rig.client("vm2").read(0, 4096), Ok(pattern(0, 4096)));
    rig.stop();
}

#[test]
fn a_volume_is_removed_with_its_writes_or_without() {
    for discard in [false, true] {
        let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
        rig.config.volumes[0].backend.insert_str(0, SLOW);
        rig.start();
        let mut client = rig.client("vm1");
        for n in 0..4_u64 {
            assert_eq!(client.write(n * 4096, &[7; 4096], true), Ok(()));
        }
        let before = on_disk(&rig);
        assert_eq!(remove(&rig, discard), Ok(()));
        assert!(rig.status().volumes.is_empty() && !has_claim(&rig));
        let after = on_disk(&rig);
        assert_eq!(after[3 * 4096] == 7, !discard, "{discard}");
        assert!(discard || before != after);
        assert_eq!(rig.status().cache.write_log.expect("it is there").used_bytes, 0);
        rig.stop();
    }
}

#[test]
fn a_volume_grows_in_the_log_too() {
    both(|io| {
        let mut rig = Rig::write_back(io, &["vm1"]);
        rig.start();
        // It serves once it has joined.
        let mut client = rig.client("vm1");
        assert!(client.read(0, 4096).is_ok());
        client.leave();
        let file = std::fs::OpenOptions::new().write(true).open(rig.path("vm1.raw"));
        file.expect("it opens").set_len(SIZE + MIB).expect("it grows");
        let name = || "vm1".into();
        let size = rig.ask(|answer| Message::ResizeVolume { name: name(), answer });
        assert_eq!(size, Ok(SIZE + MIB));
        let mut client = rig.client("vm1");
        assert_eq!(client.write(SIZE + MIB - 4096, &[3; 4096], true), Ok(()));
        assert_eq!(client.read(SIZE + MIB - 4096, 4096), Ok(vec![3; 4096]));
        client.leave();
        rig.stop();
        let end = std::fs::File::open(rig.path("vm1.raw")).expect("it is there");
        let mut last = [0; 4096];
        end.read_exact_at(&mut last, SIZE + MIB - 4096).expect("it is that large");
        assert_eq!(last, [3; 4096]);
    });
}

/// One turn of a plane that a test drives, which waits for nothing.
fn turn(plane: &mut DataPlane) {
    plane.look_at = Some(plane.data_thread.clock.now().plus_ns(2_000_000));
    plane.turn().expect("it goes on");
}

pub(super) fn turn_until(
    plane: &mut DataPlane,
    what: &str,
    mut reached: impl FnMut(&mut DataPlane) -> bool,
) {
    let since = Instant::now();
    while !reached(plane) {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        turn(plane);
    }
}

/// The request was in the socket when the volume was removed with its writes: it waited for nothing,
/// and was done on the next volume with the same key.
#[test]
fn a_request_to_a_volume_that_goes_is_not_done_on_the_next_one() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend.insert_str(0, SLOW);
    let next = Box::new(VolumeConfig { mode: VolumeMode::WriteThrough, ..rig.volume("vm2") });
    let (mut plane, commands) = DataPlane::start(&rig.config).expect("it starts");
    let path = rig.path("vm1.sock");
    let (connected, is_connected) = std::sync::mpsc::channel();
    let guest = std::thread::spawn(move || connected.send(Client::connect(&path, "vm1")));
    let mut client = None;
    turn_until(&mut plane, "it is connected", |_| {
        client = is_connected.try_recv().ok();
        client.is_some()
    });
    guest.join().expect("it ends").expect("it was heard");
    let mut client = client.expect("just looked");
    turn_until(&mut plane, "it has joined", |plane| {
        let key = plane.find("vm1").expect("it serves");
        plane.volumes[key].writes.has_joined()
    });
    client.ask_to_write(4096, &[0xee; 4096]);
    let (answer, mut removed) = oneshot::channel();
    let (name, force, discard_dirty) = ("vm1".into(), true, true);
    commands.send(Message::RemoveVolume { name, force, discard_dirty, answer }).expect("room");
    turn_until(&mut plane, "it is removed", |_| removed.try_recv().is_ok());
    assert!(plane.waiting.is_empty(), "nothing waits for a volume that is gone");
    let (answer, mut added) = oneshot::channel();
    commands.send(Message::AddVolume(next, answer)).expect("room");
    turn_until(&mut plane, "another one has come", |_| added.try_recv().is_ok());
    for _ in 0..20 {
        turn(&mut plane);
    }
    plane.end();
    let after = std::fs::read(rig.path("vm2.raw")).expect("it is there");
    assert!(after == pattern(0, SIZE as usize), "it was not written");
}

/// A shard's answer may be brought by another thread than that whose port has it, and that the server
/// had restarted before was still in the inbox: the epoch counted as flushed.
#[test]
fn a_restart_is_heard_before_the_answers_behind_it() {
    // On a busy machine the flush may end unseen, or the one that is seen is the cache's own of each second.
    let mut tries = (0..20).map(|at| at * Duration::from_millis(130));
    assert!(tries.any(is_flushed_again), "the epoch was repeated");
}

/// Whether the flush of an epoch is repeated if the server has restarted, heard of with its answer.
fn is_flushed_again(delay: Duration) -> bool {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend.insert_str(0, "sim:network,read=1ms,write=1ms,flush=500ms:");
    let (mut plane, _commands) = DataPlane::start(&rig.config).expect("it starts");
    let key = plane.find("vm1").expect("it serves");
    let place = plane.volumes[key].writes.place().expect("it is in the log");
    let path = rig.path("vm1.sock");
    let guest = std::thread::spawn(move || {
        std::thread::sleep(delay);
        let mut client = Client::connect(&path, "vm1");
        for offset in [0, MIB] {
            assert_eq!(client.write(offset, &[7; 4096], false), Ok(()));
        }
        client
    });
    turn_until(&mut plane, "its writes are answered", |_| guest.is_finished());
    let client = guest.join().expect("they are right");
    let writes =
        |plane: &DataPlane| plane.writes.log().and_then(|log| log.status(place)).expect("there");
    let (answer, mut flushed) = oneshot::channel();
    plane.flush_volume(plane.data_thread.clock.now(), "vm1", answer);
    // Everything but the flush has ended: that alone takes so long.
    let (mut turns, mut is_over) = (0, false);
    turn_until(&mut plane, "it was written", |plane| {
        let alone = plane.data_thread.io_table.ios.iter().count() == 1;
        turns = if alone && writes(plane).destaged_writes == 2 { turns + 1 } else { 0 };
        is_over = flushed.try_recv().is_ok();
        turns == 8 || is_over
    });
    if !is_over {
        std::thread::sleep(Duration::from_millis(600));
        let now = plane.data_thread.clock.now();
        plane.data_thread.look_at_time(now);
        plane.heard.push(WorkerEvent::RestartedToo(key));
        plane.apply(now);
        turn_until(&mut plane, "it is flushed", |_| flushed.try_recv().is_ok());
    }
    let count = writes(&plane).destaged_writes;
    drop(client);
    plane.end();
    count == 4
}

#[test]
fn one_that_joins_is_removed_without_a_trace() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].mode = VolumeMode::WriteThrough;
    rig.start();
    let change = VolumeChange { mode: Some(VolumeMode::WriteBack), ..VolumeChange::default() };
    let joined = rig.send(|answer| Message::SetVolume { name: "vm1".into(), change, answer });
    let (name, force, discard_dirty) = ("vm1".into(), true, false);
    let removed = rig.send(|answer| Message::RemoveVolume { name, force, discard_dirty, answer });
    let removed = removed.blocking_recv().expect("it is answered");
    assert!(joined.blocking_recv().is_ok(), "it is answered, too");
    if removed.is_err() {
        assert_eq!(remove(&rig, false), Ok(()));
    }
    std::thread::sleep(Duration::from_millis(200));
    assert!(rig.status().volumes.is_empty() && !has_claim(&rig));
    rig.stop();
}

#[test]
fn one_that_joins_when_the_daemon_stops_leaves_no_claim() {
    for _ in 0..5 {
        let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
        rig.config.volumes[0].mode = VolumeMode::WriteThrough;
        rig.start();
        let change = VolumeChange { mode: Some(VolumeMode::WriteBack), ..VolumeChange::default() };
        let joined = rig.send(|answer| Message::SetVolume { name: "vm1".into(), change, answer });
        rig.stop();
        assert!(joined.blocking_recv().is_ok(), "it is answered");
        assert!(!has_claim(&rig));
    }
}

/// Of a volume that waited, `volume remove` was answered at once, whatever the log held of it; and it
/// could be added while the log still let go of it: the claim went after it had come again.
#[test]
fn writes_of_a_volume_that_waits_are_not_forgotten_in_silence() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend.insert_str(0, SLOW);
    rig.config.cache.write_log.as_mut().expect("it is set").drain_on_stop = false;
    rig.start();
    let mut client = rig.client("vm1");
    assert_eq!(client.write(4096, &[9; 4096], true), Ok(()));
    client.leave();
    rig.stop();
    std::fs::rename(rig.path("vm1.raw"), rig.path("away.raw")).expect("it can be moved");
    rig.start();
    assert_eq!(rig.status().volumes[0].state, State::Waiting);
    let reason = &rig.status().volumes[0].reason;
    assert!(reason.contains("bytes in the write log"), "{reason}");
    let refused = remove(&rig, false).expect_err("its writes are there only");
    assert!(refused.hint.contains("--discard-dirty"), "{refused:?}");
    assert_eq!(rig.status().volumes[0].state, State::Waiting);
    std::fs::rename(rig.path("away.raw"), rig.path("vm1.raw")).expect("it can be moved");
    let config = Box::new(rig.config.volumes[0].clone());
    let (name, force, discard_dirty) = ("vm1".into(), true, true);
    let removed = rig.send(|answer| Message::RemoveVolume { name, force, discard_dirty, answer });
    let refused = rig.ask(|answer| Message::AddVolume(config.clone(), answer));
    let refused = refused.expect_err("the log lets go of it first");
    assert!(refused.message.contains("being removed"), "{refused:?}");
    assert_eq!(removed.blocking_recv().expect("it is answered"), Ok(()));
    assert!(!has_claim(&rig));
    assert_eq!(rig.ask(|answer| Message::AddVolume(config, answer)), Ok(()));
    assert!(has_claim(&rig));
    rig.stop();
}

/// The back end was away, and the volume could neither be drained nor given up.
#[test]
fn one_that_is_being_drained_can_be_given_up() {
    for leaves in [false, true] {
        let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
        rig.config.volumes[0].backend.insert_str(0, SLOW);
        rig.start();
        let mut client = rig.client("vm1");
        for n in 0..200_u64 {
            assert_eq!(client.write(n * 4096, &[7; 4096], true), Ok(()));
        }
        let (name, force, discard_dirty) = ("vm1".into(), true, false);
        let first = if leaves {
            assert_eq!(set(&rig, VolumeMode::WriteThrough), Ok(()));
            None
        } else {
            Some(rig.send(|answer| Message::RemoveVolume { name, force, discard_dirty, answer }))
        };
        until(&rig, "it leaves", |status| own(status).leaving);
        let since = Instant::now();
        assert_eq!(remove(&rig, true), Ok(()));
        assert!(since.elapsed() < Duration::from_secs(20), "draining takes 160 s");
        assert!(rig.status().volumes.is_empty() && !has_claim(&rig));
        if let Some(first) = first {
            assert!(first.blocking_recv().expect("it is answered").is_err());
        }
        rig.stop();
    }
}

/// The log had been asked for the old size when the volume grew.
#[test]
fn one_that_joins_while_it_grows_is_served_in_its_new_size() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].mode = VolumeMode::WriteThrough;
    let (mut plane, commands) = DataPlane::start(&rig.config).expect("it starts");
    let key = plane.find("vm1").expect("it serves");
    let (answer, mut joined) = oneshot::channel();
    let change = VolumeChange { mode: Some(VolumeMode::WriteBack), ..VolumeChange::default() };
    commands.send(Message::SetVolume { name: "vm1".into(), change, answer }).expect("room");
    let place = |plane: &DataPlane| plane.volumes[key].writes.place();
    turn_until(&mut plane, "the log is asked", |plane| {
        assert!(place(plane).is_none(), "not answered yet");
        plane.writes.place_of("vm1").is_some()
    });
    let file = std::fs::OpenOptions::new().write(true).open(rig.path("vm1.raw")).expect("it opens");
    file.set_len(SIZE + MIB).expect("it grows");
    let (answer, mut grown) = oneshot::channel();
    let attachment = plane.volumes[key].life.attachment();
    plane.grown(key, attachment, Ok((SIZE + MIB, None)), answer);
    turn_until(&mut plane, "it has grown", |_| grown.try_recv().is_ok());
    turn_until(&mut plane, "it has joined", |_| joined.try_recv().is_ok());
    let status = |place| plane.writes.log().and_then(|log| log.status(place));
    assert_eq!(place(&plane).and_then(status).map(|status| status.size_bytes), Some(SIZE + MIB));
    plane.end();
}

/// `volume set` gave the engines the new mode at once: a volume that could not join was served in
/// write-through then, whatever its mode had been, and the status told the old one.
#[test]
fn a_mode_that_can_not_be_had_leaves_the_one_there_was() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].mode = VolumeMode::WriteAround;
    rig.start();
    std::fs::create_dir(rig.path("vm1.raw.cinnabar-claim")).expect("it is free");
    assert!(set(&rig, VolumeMode::WriteBack).is_err(), "a folder is in the claim's place");
    assert_eq!(rig.status().volumes[0].config.mode, VolumeMode::WriteAround);
    let change = VolumeChange { share_max: Some(Share::Percent(90.0)), ..VolumeChange::default() };
    let name = "vm1".into();
    assert_eq!(rig.ask(|answer| Message::SetVolume { name, change, answer }), Ok(()));
    // Write-around: what is written is not kept.
    let mut client = rig.client("vm1");
    for n in 0..64_u64 {
        assert_eq!(client.write(n * 4096, &[3; 4096], false), Ok(()));
    }
    let before = rig.status().volumes[0].counters;
    assert_eq!(client.read(0, 64 * 4096), Ok(vec![3; 64 * 4096]));
    let after = rig.status().volumes[0].counters;
    assert_eq!(after.read_hits, before.read_hits, "nothing was cached");
    client.leave();
    rig.stop();
}

/// `volume set --mode write-back` was answered with OK and did nothing for a volume that has that mode
/// and could not join when it was attached; its status was *serving*.
#[test]
fn one_that_could_not_join_says_so_and_may_try_again() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend.insert_str(0, "sim:network,write_errors=1:");
    rig.start();
    until(&rig, "it is served past the log", |status| {
        status.volumes[0].reason.contains("could not join")
    });
    assert_eq!(rig.status().volumes[0].state, State::Degraded);
    assert!(!has_claim(&rig));
    assert!(rig.client("vm1").read(0, 4096).is_ok());
    let error = set(&rig, VolumeMode::WriteBack).expect_err("flushes fail still");
    assert!(error.message.contains("flush"), "{error:?}");
    assert!(rig.status().volumes[0].reason.contains("could not join"));
    assert_eq!(set(&rig, VolumeMode::WriteThrough), Ok(()));
    assert!(!rig.status().volumes[0].reason.contains("could not join"));
    rig.stop();
}
