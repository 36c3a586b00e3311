//! Disks that change under the daemon: cut short, shrunk, grown, silent.

use super::rig::{MIB, Rig, SIZE, both, pattern};
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, DataStatus, IoMode, Message, NewCache, State,
};
use cinnabar_engine::health::{Health, PassThroughReason};
use cinnabar_engine::volume::{DropReason, Warmth};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const EIO: u32 = 5;

fn set_len(path: &Path, len: u64) {
    let file = File::options().write(true).open(path).expect("it opens");
    file.set_len(len).expect("it has that size");
}

fn once(rig: &Rig, wanted: impl Fn(&DataStatus) -> bool) -> DataStatus {
    loop {
        let status = rig.status();
        if wanted(&status) {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Three reads of the first MiB: enough to be cached.
fn warm_up(rig: &Rig) {
    let mut client = rig.client("vm1");
    for _ in 0..3 {
        assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
    }
    client.leave();
}

fn resize(rig: &Rig) -> Result<u64, CommandError> {
    rig.ask(|answer| Message::ResizeVolume { name: "vm1".into(), answer })
}

#[test]
fn a_cache_file_that_is_cut_short_is_given_up() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        rig.start();
        warm_up(&rig);
        assert_eq!(rig.status().cache.state, State::Serving);
        set_len(&rig.config.cache.device, MIB);
        let status = once(&rig, |status| {
            status.cache.health == Health::PassThrough(PassThroughReason::Abandoned)
        });
        assert_eq!(status.cache.state, State::Degraded);
        assert!(status.cache.reason.contains("cut short to 1048576"), "{}", status.cache.reason);
        assert_eq!((status.cache.losses, status.cache.replacements), (1, 0));
        let mut client = rig.client("vm1");
        assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)), "guests go on");
        assert_eq!(client.write(0, &[7; 4096], true), Ok(()));
        client.leave();
        rig.stop();
    });
}

#[test]
fn a_planned_exchange_is_no_loss() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.start();
    let device = rig.path("other.img");
    let new = NewCache { device, size_bytes: Some(64 * MIB), format: false };
    rig.ask(|answer| Message::ReplaceCache { new, answer }).expect("it is replaced");
    let status = rig.status();
    assert_eq!((status.cache.losses, status.cache.replacements), (0, 1));
    assert!(rig.stop().clean);
}

#[test]
fn a_file_that_is_replaced_while_it_is_served_is_shown() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.start();
    let (path, aside) = (rig.path("vm1.raw"), rig.path("aside.raw"));
    std::fs::rename(&path, &aside).expect("it moves");
    std::fs::write(&path, vec![0; SIZE as usize]).expect("another takes its place");
    let status = once(&rig, |status| status.volumes[0].state == State::Degraded);
    let reason = &status.volumes[0].reason;
    assert!(reason.contains("another file has taken the place"), "{reason}");
    std::fs::rename(&aside, &path).expect("it comes back");
    once(&rig, |status| status.volumes[0].state == State::Serving);
    assert!(rig.stop().clean);
}

#[test]
fn a_back_end_that_shrinks_is_shown_and_fails_only_beyond_its_end() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        rig.start();
        set_len(&rig.path("vm1.raw"), SIZE / 2);
        let status = once(&rig, |status| status.volumes[0].state == State::Degraded);
        let reason = &status.volumes[0].reason;
        assert!(reason.contains("has shrunk to 4194304 bytes, 8388608 are served"), "{reason}");
        let mut client = rig.client("vm1");
        assert!(client.read(0, 65_536) == Ok(pattern(0, 65_536)));
        assert_eq!(client.read(SIZE / 2 + 8192, 4096), Err(EIO));
        let error = resize(&rig).expect_err("a shrunk one is no matter of a command");
        assert_eq!(error.kind, CommandErrorKind::Invalid);
        set_len(&rig.path("vm1.raw"), SIZE);
        once(&rig, |status| status.volumes[0].state == State::Serving);
        assert_eq!(client.read(SIZE / 2 + 8192, 4096), Ok(vec![0; 4096]));
        client.leave();
        rig.stop();
    });
}

#[test]
fn a_back_end_that_grows_is_served_by_command_and_nothing_is_dropped() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        rig.start();
        warm_up(&rig);
        let cached = rig.status().volumes[0].counters.cached_blocks;
        assert!(cached >= 200, "{cached}");
        assert_eq!(resize(&rig), Ok(SIZE), "as large as it is");
        let file = File::options().write(true).open(rig.path("vm1.raw")).expect("it opens");
        file.write_all_at(&pattern(SIZE, MIB as usize), SIZE).expect("it grows");
        let status = once(&rig, |status| status.volumes[0].backend_size_bytes == SIZE + MIB);
        assert_eq!((status.volumes[0].size_bytes, status.volumes[0].state), (SIZE, State::Serving));
        assert_eq!(resize(&rig), Ok(SIZE + MIB));
        let status = rig.status();
        assert_eq!(status.volumes[0].size_bytes, SIZE + MIB);
        assert_eq!(status.volumes[0].counters.cached_blocks, cached, "nothing is dropped");

        let mut client = rig.client("vm1");
        assert!(client.read(SIZE - 4096, 8192) == Ok(pattern(SIZE - 4096, 8192)));
        for _ in 0..3 {
            assert!(client.read(SIZE, 65_536) == Ok(pattern(SIZE, 65_536)));
        }
        assert_eq!(client.write(SIZE + MIB - 4096, &[7; 4096], true), Ok(()));
        assert!(client.read(SIZE + MIB, 4096).is_err(), "beyond its end");
        client.leave();
        assert!(rig.stop().clean);
        rig.start();
        let warmth = rig.loaded().volumes[0].warmth;
        assert!(matches!(warmth, Warmth::Warm { blocks: 200.. }), "{warmth:?}");
        let mut client = rig.client("vm1");
        assert_eq!(client.read(SIZE + MIB - 4096, 4096), Ok(vec![7; 4096]));
        assert!(client.read(SIZE, 4096) == Ok(pattern(SIZE, 4096)));
        client.leave();
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_disk_that_grew_while_nobody_served_it_is_another_disk_and_what_is_dropped_is_counted() {
    both(|io| {
        for exclusive in [false, true] {
            let mut rig = Rig::new(io, &["vm1"]);
            rig.config.volumes[0].exclusive = exclusive;
            rig.start();
            warm_up(&rig);
            let kept = rig.stop().kept_blocks;
            assert!(kept >= 200, "{kept}");
            set_len(&rig.path("vm1.raw"), 2 * SIZE);
            rig.start();
            let warmth = rig.loaded().volumes[0].warmth;
            let Warmth::Dropped { blocks, reason } = warmth else { panic!("{warmth:?}") };
            assert_eq!((blocks, reason), (kept, DropReason::BackendChanged));
            assert!(rig.client("vm1").read(SIZE, 4096) == Ok(vec![0; 4096]));
            assert!(rig.stop().clean);
        }
    });
}

#[test]
fn blocks_of_a_volume_that_was_removed_are_counted() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
    rig.start();
    warm_up(&rig);
    rig.loaded();
    assert_eq!(rig.status().cache.detached_blocks, 0);
    rig.remove("vm1", true).expect("it goes");
    let status = rig.status();
    assert!(status.cache.detached_blocks >= 200, "{:?}", status.cache);
    assert!(rig.stop().clean);
}

#[test]
fn a_back_end_that_hangs_is_waited_for_and_shown_and_a_stop_ends_all_the_same() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let file = rig.path("vm1.raw");
    rig.config.volumes[0].backend = format!("sim:ssd,read=1000s:file:{}", file.display());
    rig.config.volumes[0].backend_timeout = Duration::ZERO;
    rig.start();
    let mut client = rig.client("vm1");
    client.ask(0, 4096);
    let age = |status: &DataStatus| status.volumes[0].oldest;
    let first = once(&rig, |status| age(status).is_some());
    let later = once(&rig, |status| age(status) > age(&first));
    assert_eq!(later.volumes[0].counters.backend_errors, 0);
    let report = rig.stop_within(Duration::from_secs(1));
    assert_eq!((report.clean, report.cut_off), (false, 1));
}
