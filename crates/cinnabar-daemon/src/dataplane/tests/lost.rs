//! A cache device that fails or falls silent, and what an operator asks for meanwhile.

use super::degrade::{Frozen, replace, warm_up};
use super::rig::{MIB, Rig, both, pattern};
use cinnabar_backend::disk::{Disk, OpenOptions};
use cinnabar_config::messages::{
    AnswerTo, CommandError, CommandErrorKind, DataStatus, EvictionMode, IoMode, Message, NewCache,
    State,
};
use cinnabar_engine::health::{Health, PassThroughReason};
use cinnabar_engine::volume::{DropReason, Warmth};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A cache device in memory, which can be made to refuse whatever is written to it.
struct Failing(OwnedFd);

impl Failing {
    fn new(size_bytes: u64) -> Self {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let fd = memfd_create("cache", flags).expect("there is memory");
        ftruncate(&fd, size_bytes).expect("it is as large as it is to be");
        Self(fd)
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    fn fail(&self) {
        fcntl_add_seals(&self.0, SealFlags::WRITE).expect("no page of it is mapped");
    }
}

/// Blocks are on flash soon, so that a write needs a record.
fn start_on(rig: &mut Rig, device: PathBuf) {
    rig.config.cache.device = device;
    rig.config.cache.eviction = EvictionMode::Clock;
    rig.start();
    warm_up(rig);
    std::thread::sleep(Duration::from_millis(1500));
}

fn is_unlocked(path: &Path) -> bool {
    Disk::open(path, &OpenOptions::default()).is_ok()
}

/// Sooner than any bound on I/O.
fn soon(wanted: impl Fn() -> bool) -> bool {
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(10) {
        if wanted() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn once(rig: &Rig, wanted: impl Fn(&DataStatus) -> bool) -> DataStatus {
    loop {
        let status = rig.status();
        if wanted(&status) {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn has_failed(rig: &Rig) -> bool {
    matches!(rig.status().cache.health, Health::PassThrough(PassThroughReason::Failed(_)))
}

fn begin(rig: &Rig, device: PathBuf) -> tokio::sync::oneshot::Receiver<Result<(), CommandError>> {
    let size_bytes = rig.config.cache.size_bytes;
    let new = NewCache { device, size_bytes, format: false };
    rig.send(|answer: AnswerTo<()>| Message::ReplaceCache { new, answer })
}

#[test]
fn a_device_that_fails_is_let_go_of_and_counted_once() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        // Its change time would tell of the writes, too.
        rig.config.volumes[0].exclusive = true;
        let failing = Failing::new(rig.config.cache.size_bytes.expect("it is given"));
        start_on(&mut rig, failing.path());
        failing.fail();
        let mut client = rig.client("vm1");
        assert_eq!(client.write(8192, &[7; 4096], true), Ok(()), "guests go on");
        assert!(soon(|| has_failed(&rig)), "{:?}", rig.status().cache);
        assert!(soon(|| is_unlocked(&failing.path())), "its lock goes with it");
        let cache = rig.status().cache;
        assert_eq!((cache.state, cache.losses), (State::Degraded, 1));
        assert!(cache.reason.contains("the cache device failed"), "{}", cache.reason);
        assert_eq!((cache.loaded, cache.counters.capacity_blocks), (None, 0));
        assert_eq!(rig.ask(Message::AbandonCache), Ok(()), "there is none, which is fine");

        let new = rig.path("new.img");
        assert_eq!(replace(&rig, &new, false), Ok(()));
        let cache = rig.loaded().cache;
        assert_eq!((cache.state, &cache.device), (State::Serving, &new));
        assert_eq!((cache.losses, cache.replacements), (1, 1), "the new one was not lost");
        assert_eq!(client.write(12_288, &[8; 4096], true), Ok(()));
        assert_eq!(client.read(8192, 4096), Ok(vec![7; 4096]));
        client.leave();
        warm_up_rest(&rig);
        assert!(rig.stop().clean);

        // The new one is warm, and the old one is not believed, wherever it turns up.
        rig.config.cache.device = new;
        rig.start();
        let warmth = rig.loaded().volumes[0].warmth;
        assert!(matches!(warmth, Warmth::Warm { blocks: 200.. }), "{warmth:?}");
        assert!(rig.stop().clean);
        std::fs::copy(failing.path(), rig.path("old.img")).expect("it is copied");
        rig.config.cache.device = rig.path("old.img");
        rig.start();
        let warmth = rig.loaded().volumes[0].warmth;
        let reason = DropReason::WrittenWithoutCache;
        assert!(matches!(warmth, Warmth::Dropped { reason: r, .. } if r == reason), "{warmth:?}");
        let mut client = rig.client("vm1");
        assert_eq!(client.read(8192, 4096), Ok(vec![7; 4096]));
        assert_eq!(client.read(12_288, 4096), Ok(vec![8; 4096]));
        client.leave();
        assert!(rig.stop().clean);
    });
}

/// What was not written since.
fn warm_up_rest(rig: &Rig) {
    let mut client = rig.client("vm1");
    for _ in 0..3 {
        assert!(client.read(MIB, MIB as u32) == Ok(pattern(MIB, MIB as usize)));
    }
    client.leave();
}

/// With a file system that is frozen, so that a file on it neither opens nor answers.
fn with_frozen(bound: Duration) -> Option<(Rig, Frozen)> {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let Some(ssd) = Frozen::mount(&rig) else {
        eprintln!("skipped: no root, no loop device, or no mkfs.ext4");
        return None;
    };
    rig.config.cache.device_timeout = bound;
    Some((rig, ssd))
}

#[test]
fn a_device_lost_while_another_is_opened_is_let_go_of_at_once() {
    let Some((mut rig, ssd)) = with_frozen(Duration::from_mins(1)) else { return };
    let failing = Failing::new(rig.config.cache.size_bytes.expect("it is given"));
    start_on(&mut rig, failing.path());
    assert!(ssd.switch("-f"), "it can be frozen");
    let new = rig.path("ssd/new.img");
    let mut asked = begin(&rig, new.clone());
    failing.fail();
    let mut client = rig.client("vm1");
    assert_eq!(client.write(8192, &[7; 4096], true), Ok(()), "guests go on");
    assert!(soon(|| is_unlocked(&failing.path())), "nothing waits for the new one");
    assert!(asked.try_recv().is_err(), "which is still being opened");
    assert!(ssd.switch("-u"), "it can be thawed");
    assert_eq!(asked.blocking_recv().expect("it is answered"), Ok(()));
    let cache = rig.loaded().cache;
    assert_eq!((cache.state, cache.device), (State::Serving, new));
    assert_eq!((cache.losses, cache.replacements), (1, 1));
    assert_eq!(client.read(8192, 4096), Ok(vec![7; 4096]));
    client.leave();
    assert!(rig.stop().clean);
}

/// The old device is silent, so that the steps behind its opening wait.
fn with_silent_device(bound: Duration) -> Option<(Rig, Frozen)> {
    let (mut rig, ssd) = with_frozen(bound)?;
    let device = rig.path("ssd/cache.img");
    start_on(&mut rig, device);
    assert!(ssd.switch("-f"), "it can be frozen");
    let mut client = rig.client("vm1");
    std::thread::spawn(move || client.write(8192, &[7; 4096], true));
    once(&rig, |status| status.volumes[0].counters.writes > 0);
    Some((rig, ssd))
}

#[test]
fn a_new_device_that_the_engine_can_not_begin_with_is_let_go_of() {
    let Some((mut rig, ssd)) = with_silent_device(Duration::from_mins(1)) else { return };
    let failing = Failing::new(rig.config.cache.size_bytes.expect("it is given"));
    let asked = begin(&rig, failing.path());
    // It is formatted, and the engine was asked for the old one.
    let abandoned = Health::PassThrough(PassThroughReason::Abandoned);
    once(&rig, |status| status.cache.health == abandoned);
    failing.fail();
    assert!(ssd.switch("-u"), "the old one can be let go of now");
    let error = asked.blocking_recv().expect("it is answered").expect_err("it fails");
    assert_eq!(error.kind, CommandErrorKind::Io, "{error}");
    assert!(is_unlocked(&failing.path()) && is_unlocked(&rig.path("ssd/cache.img")));
    assert_eq!(rig.status().cache.state, State::Degraded);
    assert_eq!(rig.client("vm1").read(8192, 4096), Ok(vec![7; 4096]));
    assert_eq!(replace(&rig, &rig.path("third.img"), false), Ok(()));
    let cache = rig.loaded().cache;
    assert_eq!((cache.state, cache.losses, cache.replacements), (State::Serving, 0, 1));
    assert!(rig.stop().clean);
}

#[test]
fn an_operator_who_abandons_a_device_that_is_given_up_already_is_answered_with_it() {
    // Nothing bounds operations on it, but an operator is answered.
    let Some((mut rig, ssd)) = with_silent_device(Duration::ZERO) else { return };
    let asked = [(); 2].map(|()| rig.send(Message::AbandonCache));
    // Another device may be asked for by then; it waits for the old one to be let go of.
    let new = begin(&rig, rig.path("new.img"));
    let error = rig.ask(Message::AbandonCache).expect_err("it is being replaced");
    assert_eq!(error.kind, CommandErrorKind::Busy);
    for asked in asked {
        assert_eq!(asked.blocking_recv().expect("it is answered"), Ok(()));
    }
    assert_eq!(new.blocking_recv().expect("it is answered"), Ok(()));
    let cache = rig.loaded().cache;
    assert_eq!((cache.state, cache.device), (State::Serving, rig.path("new.img")));
    assert!(ssd.switch("-u"), "it can be thawed");
    assert!(rig.stop().clean);
}

#[test]
fn a_stop_ends_what_waits_for_a_silent_device() {
    for replaces in [false, true] {
        let Some((mut rig, ssd)) = with_silent_device(Duration::from_mins(1)) else { return };
        let asked = if replaces {
            begin(&rig, rig.path("new.img"))
        } else {
            rig.send(Message::AbandonCache)
        };
        std::thread::sleep(Duration::from_millis(300));
        let since = Instant::now();
        rig.stop_within(Duration::from_secs(4));
        assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
        let error = asked.blocking_recv().expect("it is answered").expect_err("it stops");
        assert_eq!(error.kind, CommandErrorKind::Stopping);
        assert!(ssd.switch("-u"), "it can be thawed");
        // What hung stays locked until this process ends.
        std::fs::copy(rig.path("ssd/cache.img"), rig.path("copy.img")).expect("it is copied");
        rig.config.cache.device = rig.path("copy.img");
        rig.start();
        let content = rig.client("vm1").read(8192, 4096).expect("it is read");
        assert!(content == vec![7; 4096] || content == pattern(8192, 4096));
        assert!(rig.stop().clean);
    }
}
