//! Starts that fail: the right kind, a hint, nothing lost.

use super::rig::{MIB, Rig, pattern};
use cinnabar_config::messages::{IoMode, Share, StartErrorKind, Subject};
use cinnabar_engine::volume::Warmth;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Breaks a working set-up, and looks at the error.
fn fails<T>(
    kind: StartErrorKind,
    subject: &Subject,
    part: &str,
    break_it: impl FnOnce(&mut Rig) -> T,
) {
    let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
    rig.config.lock_wait_max = Duration::from_millis(300);
    let _kept = break_it(&mut rig);
    let error = rig.try_start().expect_err(part);
    assert_eq!((error.kind, &error.subject), (kind, subject), "{error}");
    assert!(error.message.contains(part), "{part}: {error}");
    assert!(!error.hint.is_empty(), "{error}");
}

#[test]
fn bad_caches() {
    let cache = Subject::Cache;
    fails(StartErrorKind::ForeignData, &cache, "not a Cinnabar cache", |rig| {
        std::fs::write(&rig.config.cache.device, pattern(1, 32 * MIB as usize)).expect("a file");
    });
    fails(StartErrorKind::CacheSize, &cache, "at least", |rig| {
        rig.config.cache.size_bytes = Some(MIB);
    });
    fails(StartErrorKind::CacheSize, &cache, "no size is given", |rig| {
        rig.config.cache.size_bytes = None;
    });
    fails(StartErrorKind::CacheAccess, &cache, "folder does not exist", |rig| {
        rig.config.cache.device = rig.path("none/cache.img");
    });
    fails(StartErrorKind::CacheAccess, &cache, "directory", |rig| {
        rig.config.cache.device = rig.folder.path().into();
    });
    fails(StartErrorKind::CacheInUse, &cache, "in use by process", |rig| {
        let mut other = Rig::new(IoMode::Auto, &[]);
        other.config.cache.device = rig.config.cache.device.clone();
        other.start();
        other
    });
    fails(StartErrorKind::Cancelled, &cache, "given up", |rig| {
        let mut other = Rig::new(IoMode::Auto, &[]);
        other.config.cache.device = rig.config.cache.device.clone();
        other.start();
        rig.config.cancel.store(true, Relaxed);
        rig.config.lock_wait_max = Duration::from_mins(10);
        other
    });
}

#[test]
fn bad_volumes() {
    let volume = Subject::Volume("vm2".into());
    fails(StartErrorKind::Settings, &volume, "unknown key \"sped\"", |rig| {
        rig.config.volumes[1].backend = "sim:filer,sped=1:file:/x".into();
    });
    fails(StartErrorKind::BackendTwice, &volume, "the cache device", |rig| {
        let mut other = Rig::new(IoMode::Auto, &[]);
        other.config.cache.device = rig.path("vm2.raw");
        other.config.cache.force = true;
        other.start();
        assert!(other.stop().clean);
        rig.config.cache.device = rig.path("vm2.raw");
    });
    fails(StartErrorKind::BackendTwice, &volume, "the backend of volume \"vm1\"", |rig| {
        rig.config.volumes[1].backend = rig.config.volumes[0].backend.clone();
    });
    fails(StartErrorKind::Settings, &volume, "more than 80 %", |rig| {
        for volume in &mut rig.config.volumes {
            volume.share_min = Share::Percent(41.0);
        }
    });
}

#[test]
fn a_failed_start_costs_no_warmth() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.start();
    let mut client = rig.client("vm1");
    for _ in 0..3 {
        assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
    }
    client.leave();
    let kept = rig.stop().kept_blocks;
    let mut twin = rig.volume("vm2");
    twin.backend = rig.config.volumes[0].backend.clone();
    rig.config.volumes.push(twin);
    rig.try_start().expect_err("one backend is two volumes");
    rig.config.volumes.pop();
    rig.start();
    assert_eq!(rig.loaded().volumes[0].warmth, Warmth::Warm { blocks: kept });
    assert!(rig.stop().clean);
}

#[test]
fn force_formats_what_is_foreign() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    std::fs::write(&rig.config.cache.device, pattern(1, MIB as usize)).expect("a file");
    rig.config.cache.force = true;
    rig.start();
    assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
    assert!(rig.stop().clean);
}
