//! Write-back: a real write log, real files, and what operators do to volumes meanwhile.

use super::rig::{MIB, Rig, SIZE, both, pattern};
use crate::messages::{
    CommandError, DataStatus, IoMode, Message, State, StopReport, VolumeChange, VolumeMode,
    WriteBackStatus,
};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A back end that takes its time: nothing reaches it soon.
const SLOW: &str = "sim:network,read=1ms,write=400ms,flush=400ms:";

fn own(status: &DataStatus) -> WriteBackStatus {
    status.volumes[0].write_back.clone().expect("in write-back mode")
}

fn until(rig: &Rig, what: &str, reached: impl Fn(&DataStatus) -> bool) {
    let since = Instant::now();
    while !reached(&rig.status()) {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}: {:?}", rig.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn set(rig: &Rig, mode: VolumeMode) -> Result<(), CommandError> {
    let change = VolumeChange { mode: Some(mode), ..VolumeChange::default() };
    rig.ask(|answer| Message::SetVolume { name: "vm1".into(), change, answer })
}

fn remove(rig: &Rig, discard_dirty: bool) -> Result<(), CommandError> {
    let (name, force) = ("vm1".into(), true);
    rig.ask(|answer| Message::RemoveVolume { name, force, discard_dirty, answer })
}

fn flush(rig: &Rig) -> Result<(), CommandError> {
    rig.ask(|answer| Message::FlushVolume { name: "vm1".into(), answer })
}

fn on_disk(rig: &Rig) -> Vec<u8> {
    std::fs::read(rig.path("vm1.raw")).expect("the file is there")
}

fn has_claim(rig: &Rig) -> bool {
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
                if done.try_recv().is_ok() && n > 64 {
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
