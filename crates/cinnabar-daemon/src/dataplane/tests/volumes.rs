//! Volumes that come, change and go while others serve.

use super::rig::{Rig, SIZE, both, pattern};
use cinnabar_backend::disk::{Disk, OpenOptions};
use cinnabar_config::messages::{
    CommandErrorKind, IoMode, Message, NbdAddress, Share, VolumeChange, VolumeConfig, VolumeMode,
};
use cinnabar_engine::volume::Warmth;
use std::time::Duration;

const EPERM: u32 = 1;

fn add(rig: &Rig, config: VolumeConfig) -> Result<(), CommandErrorKind> {
    rig.ask(|answer| Message::AddVolume(Box::new(config), answer)).map_err(|error| {
        assert!(!error.message.is_empty());
        error.kind
    })
}

fn set(rig: &Rig, name: &str, change: VolumeChange) -> Result<(), CommandErrorKind> {
    let name = name.to_owned();
    rig.ask(|answer| Message::SetVolume { name, change, answer }).map_err(|error| error.kind)
}

#[test]
fn volumes_come_and_go_and_come_back_warm() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        let second = rig.volume("vm2");
        rig.start();
        let mut first = rig.client("vm1");
        assert_eq!(add(&rig, second.clone()), Ok(()));
        assert_eq!(add(&rig, second.clone()), Err(CommandErrorKind::Exists));
        let mut client = rig.client("vm2");
        for _ in 0..3 {
            assert!(client.read(0, 262_144) == Ok(pattern(0, 262_144)));
        }
        assert_eq!(rig.remove("vm2", false), Err(CommandErrorKind::Busy), "a client is there");
        assert_eq!(rig.remove("vm2", true), Ok(()));
        assert!(client.is_closed());
        assert_eq!(rig.remove("vm2", true), Err(CommandErrorKind::NotFound));
        assert!(!rig.path("vm2.sock").exists());
        let free = OpenOptions { lock_wait: Duration::from_secs(5), ..OpenOptions::default() };
        Disk::open(&rig.path("vm2.raw"), &free).expect("its lock is gone");
        assert!(first.read(4096, 4096) == Ok(pattern(4096, 4096)), "others don't notice");
        assert_eq!(add(&rig, second), Ok(()));
        let warmth = rig.loaded().volumes[1].warmth;
        assert!(matches!(warmth, Warmth::Warm { blocks: 64.. }), "{warmth:?}");
        assert!(rig.client("vm2").read(0, 4096) == Ok(pattern(0, 4096)));
        assert!(rig.stop().clean);
    });
}

#[test]
fn what_can_not_be_added_leaves_nothing_behind() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let good = rig.volume("vm2");
    rig.start();
    let with = |change: &dyn Fn(&mut VolumeConfig)| {
        let mut config = good.clone();
        change(&mut config);
        config
    };
    let mut twin = good.clone();
    twin.backend = rig.config.volumes[0].backend.clone();
    for config in [
        with(&|c| c.backend = "file:/nonexistent".into()),
        with(&|c| c.backend = "sim:floppy:file:/x".into()),
        with(&|c| c.nbd = Some(NbdAddress::Unix(rig.path("none/vm2.sock")))),
        with(&|c| c.share_min = Share::Percent(81.0)),
        with(&|c| {
            c.share_min = Share::Percent(20.0);
            c.share_max = Share::Percent(10.0);
        }),
    ] {
        assert_eq!(add(&rig, config.clone()), Err(CommandErrorKind::Invalid), "{config:?}");
    }
    // Sharing a listener and holding nothing are both possible.
    for config in [
        with(&|c| c.nbd = rig.config.volumes[0].nbd.clone()),
        with(&|c| c.share_max = Share::Bytes(0)),
    ] {
        assert_eq!(add(&rig, config), Ok(()));
        assert_eq!(rig.remove("vm2", true), Ok(()));
    }
    assert_eq!(add(&rig, twin), Err(CommandErrorKind::Busy), "one file, two volumes");
    assert_eq!(rig.status().volumes.len(), 1);
    assert_eq!(add(&rig, good), Ok(()));
    assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
    assert!(rig.stop().clean);
}

#[test]
fn settings_change_while_it_serves() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
    rig.start();
    let mode = Some(VolumeMode::PassThrough);
    assert_eq!(set(&rig, "vm1", VolumeChange { mode, ..VolumeChange::default() }), Ok(()));
    let mut client = rig.client("vm1");
    for _ in 0..3 {
        assert!(client.read(0, 65_536) == Ok(pattern(0, 65_536)));
    }
    let status = rig.status();
    assert_eq!(status.volumes[0].config.mode, VolumeMode::PassThrough);
    assert_eq!(status.volumes[0].counters.cached_blocks, 0);
    assert_eq!(status.volumes[0].counters.bypassed.pass_through, 48);

    let share = |percent| VolumeChange {
        share_min: Some(Share::Percent(percent)),
        ..VolumeChange::default()
    };
    assert_eq!(set(&rig, "vm1", share(50.0)), Ok(()));
    assert_eq!(set(&rig, "vm2", share(31.0)), Err(CommandErrorKind::Invalid), "81 % in all");
    assert_eq!(set(&rig, "vm2", share(30.0)), Ok(()));
    assert_eq!(set(&rig, "vm1", share(50.0)), Ok(()), "its own minimum counts once");
    assert_eq!(set(&rig, "none", share(1.0)), Err(CommandErrorKind::NotFound));
    assert!(rig.stop().clean);
}

#[test]
fn read_only_volumes_share_a_file_and_refuse_writes() {
    let mut rig = Rig::new(IoMode::Auto, &["gold1", "gold2"]);
    let backend = rig.config.volumes[0].backend.clone();
    for volume in &mut rig.config.volumes {
        volume.read_only = true;
        volume.backend.clone_from(&backend);
    }
    rig.start();
    let (mut first, mut second) = (rig.client("gold1"), rig.client("gold2"));
    assert!(first.read(0, 4096) == Ok(pattern(0, 4096)));
    assert!(second.read(SIZE - 4096, 4096) == Ok(pattern(SIZE - 4096, 4096)));
    assert_eq!(first.write(0, &[0; 512], false), Err(EPERM));
    assert!(rig.stop().clean);
}
