//! Writes that are acknowledged from memory: a real file in a tmpfs.

use super::rig::{MIB, Rig, SIZE, both, pattern};
use cinnabar_config::messages::{
    Ack, IoMode, Message, StartErrorKind, VolumeChange, WriteMemoryConfig, WriteMemoryStatus,
};
use std::path::Path;

/// A volume whose writes are acknowledged from memory, and the folder that this is in.
fn rig(io: IoMode) -> (Rig, tempfile::TempDir) {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let mut rig = Rig::write_back(io, &["vm1"]);
    rig.config.volumes[0].ack = Ack::Memory;
    let path = folder.path().join("log.memory");
    let log = rig.config.cache.write_log.as_mut().expect("it is set");
    log.memory = Some(WriteMemoryConfig { path, size_bytes: 8 * MIB });
    (rig, folder)
}

fn memory(rig: &Rig) -> (WriteMemoryStatus, u64) {
    let log = rig.status().cache.write_log.expect("there is one");
    (log.memory.expect("it has a memory"), log.counters.absorbed)
}

#[test]
fn what_is_written_again_never_reaches_the_log() {
    both(|io| {
        let (mut rig, folder) = rig(io);
        rig.start();
        let mut client = rig.client("vm1");
        let mut expected = pattern(0, SIZE as usize);
        for value in 0..50_u8 {
            assert_eq!(client.write(4096, &[value; 8192], false), Ok(()));
        }
        expected[4096..12_288].fill(49);
        assert_eq!(client.write(512, &[9; 1024], false), Ok(()));
        expected[512..1536].fill(9);
        let (status, absorbed) = memory(&rig);
        assert!(absorbed > 50, "{absorbed}");
        assert!(status.used_bytes <= 8 * 4096, "{status:?}");
        assert!(client.read(0, 65_536).as_deref() == Ok(&expected[..65_536]));
        assert_eq!(client.flush(), Ok(()));
        assert_eq!(memory(&rig).0.used_bytes, 0, "a flush goes to the device");
        // More than the memory holds.
        for n in 0..7 {
            assert_eq!(client.write(n * MIB, &vec![n as u8 + 1; MIB as usize], false), Ok(()));
            expected[(n * MIB) as usize..][..MIB as usize].fill(n as u8 + 1);
        }
        assert!(client.read(0, 7 * MIB as u32).as_deref() == Ok(&expected[..7 * MIB as usize]));
        client.leave();
        let report = rig.stop();
        assert!(report.clean, "{report:?}");
        let on_disk = std::fs::read(rig.path("vm1.raw")).expect("the file is there");
        assert!(on_disk == expected);
        assert!(!folder.path().join("log.memory").exists(), "its RAM is the host's again");
        rig.start();
        rig.stop();
    });
}

/// A new folder on a disk, wherever there is one: beside this program, in the sources, in a system's usual
/// place.
fn folder_on_a_disk() -> Option<tempfile::TempDir> {
    const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x9584_58f6, 0x8584_58f6];
    let program = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let places = program.into_iter().chain([env!("CARGO_MANIFEST_DIR").into(), "/var/tmp".into()]);
    places
        .filter(|place| {
            rustix::fs::statfs(place).is_ok_and(|stat| !IN_MEMORY.contains(&stat.f_type))
        })
        .find_map(|place| tempfile::tempdir_in(place).ok())
}

#[test]
fn a_memory_that_would_be_written_to_a_disk_is_a_mistake() {
    let Some(folder) = folder_on_a_disk() else {
        println!("skipped: no folder on a disk can be written here");
        return;
    };
    let (mut rig, _folder) = rig(IoMode::Auto);
    let log = rig.config.cache.write_log.as_mut().expect("it is set");
    log.memory.as_mut().expect("it is set").path = folder.path().join("memory");
    let error = rig.try_start().expect_err("it is on a disk");
    assert!(error.message.contains("neither tmpfs nor hugetlbfs"), "{error:?}");
    assert_eq!(error.kind, StartErrorKind::Resources);
    assert!(!folder.path().join("memory").exists());
}

#[test]
fn a_volume_changes_between_both_ways_while_it_is_written() {
    both(|io| {
        let (mut rig, _folder) = rig(io);
        rig.start();
        let set = |rig: &Rig, ack| {
            let change = VolumeChange { ack: Some(ack), ..VolumeChange::default() };
            rig.ask(|answer| Message::SetVolume { name: "vm1".into(), change, answer })
        };
        let mut client = rig.client("vm1");
        assert_eq!(client.write(4096, &[1; 4096], false), Ok(()));
        assert_eq!(memory(&rig).0.used_bytes, 4096, "acknowledged from memory");
        assert_eq!(client.flush(), Ok(()));
        assert_eq!(set(&rig, Ack::Durable), Ok(()));
        assert_eq!(client.write(8192, &[2; 4096], false), Ok(()));
        assert_eq!(memory(&rig).0.used_bytes, 0, "acknowledged when the log has it");
        assert_eq!(set(&rig, Ack::Memory), Ok(()));
        assert_eq!(client.write(12_288, &[3; 4096], false), Ok(()));
        assert_eq!(memory(&rig).0.used_bytes, 4096, "from memory again");
        client.leave();
        assert!(rig.stop().clean);
        let on_disk = std::fs::read(rig.path("vm1.raw")).expect("the file is there");
        assert_eq!((on_disk[4096], on_disk[8192], on_disk[12_288]), (1, 2, 3));
    });
}

/// A log as after a kill, with an acknowledged write in a memory that is gone.
fn leave_without_memory(rig: &mut Rig) {
    rig.start();
    let (log, kept) = (rig.path("writes.img"), rig.path("kept.img"));
    let mut client = rig.client("vm1");
    assert_eq!(client.write(4096, &[7; 4096], false), Ok(()));
    std::fs::copy(&log, &kept).expect("a copy");
    client.leave();
    rig.stop();
    std::fs::copy(&kept, &log).expect("the log of before");
}

/// The log names its memory until it is closed: without it nothing is served, and nothing is lost in
/// silence.
#[test]
fn a_log_is_not_opened_without_the_memory_that_holds_its_writes() {
    let (mut rig, folder) = rig(IoMode::Auto);
    leave_without_memory(&mut rig);
    let path = folder.path().join("log.memory");
    let reason = |rig: &mut Rig| {
        rig.start();
        let log = rig.status().cache.write_log;
        rig.stop();
        log.map(|log| log.reason).unwrap_or_default()
    };
    let refused = |state: String, path: &Path| {
        assert!(state.contains("the newest acknowledged writes are in"), "{state}");
        assert!(state.contains(&path.display().to_string()), "{state}");
    };
    refused(reason(&mut rig), &path);
    // A new one is not it, wherever it is; an empty one says that it is lost.
    refused(reason(&mut rig), &path);
    std::fs::File::create(&path).expect("an empty file");
    let _gone = std::fs::remove_file(rig.path("vm1.raw.cinnabar-claim"));
    assert_eq!(reason(&mut rig), "");
}

/// It was taken over: acknowledged writes of a log whose daemon had been killed were gone.
#[test]
fn the_memory_of_another_log_is_left_alone() {
    let (mut rig, folder) = rig(IoMode::Auto);
    let path = folder.path().join("log.memory");
    rig.start();
    let mut client = rig.client("vm1");
    assert_eq!(client.write(4096, &[7; 4096], false), Ok(()));
    // As after a kill: what is in memory stays.
    let kept = std::fs::read(&path).expect("it is there");
    client.leave();
    rig.stop();
    let restore = || {
        std::fs::write(&path, &kept).expect("it is written");
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, own).expect("it is ours");
    };
    restore();
    let other = rig.path("other.img");
    rig.config.cache.write_log.as_mut().expect("it is set").path = other;
    rig.start();
    let log = rig.status().cache.write_log.expect("it is configured");
    assert!(log.reason.contains("of another write log"), "{}", log.reason);
    rig.stop();
    assert!(std::fs::read(&path).expect("it is there") == kept, "nothing was stored there");
    std::fs::File::create(&path).expect("an empty file");
    rig.start();
    assert_eq!(rig.status().cache.write_log.expect("it is configured").reason, "");
    rig.stop();
}

/// An empty file elsewhere was taken for the word that writes are lost.
#[test]
fn an_empty_file_that_is_not_the_noted_one_says_nothing() {
    let (mut rig, folder) = rig(IoMode::Auto);
    leave_without_memory(&mut rig);
    let elsewhere = folder.path().join("elsewhere");
    std::fs::File::create(&elsewhere).expect("an empty file");
    let memory = rig.config.cache.write_log.as_mut().and_then(|log| log.memory.as_mut());
    memory.expect("it is set").path = elsewhere;
    rig.start();
    let log = rig.status().cache.write_log.expect("it is configured");
    assert!(log.reason.contains("the newest acknowledged writes are in"), "{}", log.reason);
    rig.stop();
}
