//! Cache devices that do not answer: a frozen file system answers no write.
//!
//! Takes root and a loop device; without them these tests are skipped.

use super::device::SILENCE_MAX;
use crate::{Cache, CloseReport, Error, NewDevice, Options, Volume, VolumeOptions};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A folder with a file to be cached, and an SSD that can be frozen; thawed and unmounted at the end.
struct Rig(TempDir);

impl Rig {
    fn new() -> Option<Self> {
        let rig = Self(tempfile::tempdir().expect("a folder"));
        std::fs::write(rig.path("data"), vec![1; 1 << 20]).expect("a file");
        let (image, folder) = (rig.path("ssd.fs"), rig.path("ssd"));
        File::create(&image).and_then(|file| file.set_len(128 * MIB)).expect("a file");
        std::fs::create_dir(&folder).expect("a folder");
        let (image, folder) = (image.to_str()?, folder.to_str()?);
        if run("mkfs.ext4", &["-q", image]) && run("mount", &["-o", "loop", image, folder]) {
            return Some(rig);
        }
        eprintln!("skipped: no root, no loop device, or no mkfs.ext4");
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn switch(&self, flag: &str) -> bool {
        run("fsfreeze", &[flag, self.path("ssd").to_str().expect("made of UTF-8")])
    }

    /// All of the file cached, on flash where that takes no second.
    fn open(&self, device: &str, bound: Duration) -> (Cache, Volume) {
        let options = Options {
            size_bytes: Some(24 * MIB),
            required: true,
            device_timeout: bound,
            ..Options::new(self.path(device), self.path("state"))
        };
        let mut cache = Cache::open(&options).expect("it opens");
        let volume = cache.attach(&self.volume("data")).expect("it is attached");
        cache.wait_loaded().expect("it is loaded");
        cache.read(volume, 0, &mut vec![0; 1 << 20]).expect("it is read");
        idle(&mut cache, Duration::from_millis(1500));
        (cache, volume)
    }

    fn volume(&self, name: &str) -> VolumeOptions {
        let backend = format!("file:{}", self.path(name).display());
        VolumeOptions { bypass_sequential_bytes: 0, ..VolumeOptions::new(name, backend) }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.switch("-u");
        run("umount", &["-l", self.path("ssd").to_str().expect("made of UTF-8")]);
    }
}

fn run(program: &str, args: &[&str]) -> bool {
    let quiet = std::process::Stdio::null();
    let status = std::process::Command::new(program).args(args).stderr(quiet).status();
    status.is_ok_and(|status| status.success())
}

fn idle(cache: &mut Cache, pause: Duration) {
    cache.poll(Some(pause), &mut Vec::new()).expect("it waits");
}

fn new(path: PathBuf) -> NewDevice {
    NewDevice { size_bytes: Some(24 * MIB), ..NewDevice::new(path) }
}

fn is_free(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Within ten seconds.
fn soon(cache: &mut Cache, holds: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        idle(cache, Duration::from_millis(10));
        holds()
    })
}

/// It is served as before, and may be tried again.
#[test]
fn a_size_that_the_engine_refuses_is_not_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, size) = (folder.path().join("data"), 1 << 20);
    std::fs::write(&data, vec![1; size]).expect("a file");
    let options = Options {
        size_bytes: Some(24 * MIB),
        ..Options::new(folder.path().join("cache.img"), folder.path().join("state"))
    };
    let mut cache = Cache::open(&options).expect("it opens");
    let backend = format!("file:{}", data.display());
    let volume = cache.attach(&VolumeOptions::new("data", backend)).expect("it is attached");
    let file = File::options().write(true).open(&data).expect("it is there");
    file.set_len(2 << 20).expect("it grows");
    // Not whole sectors.
    let refused = cache.driver.grow(volume, (2 << 20) - 1, None).expect_err("it is refused");
    assert!(matches!(refused, Error::Failed { .. }), "{refused}");
    assert_eq!(cache.size_bytes(volume).expect("attached"), size as u64);
    let early = cache.write(volume, size as u64, &[7; 4096]);
    assert!(matches!(early, Err(Error::PastEnd { .. })), "{early:?}");
    assert_eq!(cache.resize(volume).expect("it has grown"), 2 << 20);
    cache.write(volume, size as u64, &[7; 4096]).expect("it is served");
    assert!(cache.close().expect("it closes").clean);
}

#[test]
fn a_silent_device_does_not_keep_a_cache_from_closing() {
    let Some(rig) = Rig::new() else { return };
    // Operations have no time-out; the close has.
    let (mut cache, volume) = rig.open("ssd/cache.img", Duration::ZERO);
    cache.write(volume, 0, &[7; 4096]).expect("it is written");
    assert!(rig.switch("-f"), "it can be frozen");
    let since = Instant::now();
    let closed = cache.close();
    let took = since.elapsed();
    // The bound, and what the port waits for what hangs in the kernel.
    assert!(took >= SILENCE_MAX && took < Duration::from_secs(15), "{took:?}");
    let report = closed.expect("the volume is detached, and nothing more can be done");
    assert_eq!(report, CloseReport::default(), "it is not marked as clean");
    assert!(rig.switch("-u"), "it can be thawed");
    // What hung stays locked until this process ends.
    std::fs::copy(rig.path("ssd/cache.img"), rig.path("copy.img")).expect("it is copied");
    let (mut cache, volume) = rig.open("copy.img", Duration::ZERO);
    let mut block = [0; 4096];
    cache.read(volume, 0, &mut block).expect("it is read");
    assert_eq!(block, [7; 4096]);
}

#[test]
fn a_cache_opens_although_its_device_is_silent() {
    let Some(rig) = Rig::new() else { return };
    assert!(rig.switch("-f"), "it can be frozen");
    let options = Options {
        size_bytes: Some(24 * MIB),
        device_timeout: Duration::ZERO,
        ..Options::new(rig.path("ssd/cache.img"), rig.path("state"))
    };
    let since = Instant::now();
    let mut cache = Cache::open(&options).expect("it goes on uncached");
    assert!(since.elapsed() >= SILENCE_MAX && since.elapsed() < SILENCE_MAX * 3);
    let reason = cache.degraded().expect("there is no device");
    assert!(reason.contains("does not answer"), "{reason}");
    let volume = cache.attach(&rig.volume("data")).expect("it is attached");
    cache.write(volume, 0, &[7; 4096]).expect("it is served");
    assert!(rig.switch("-u"), "it can be thawed");
    let late = rig.path("ssd/cache.img");
    assert!(soon(&mut cache, || !late.exists()), "what was made too late is removed");
    cache.replace(&new(late)).expect("it answers now");
    let mut block = [0; 4096];
    cache.read(volume, 0, &mut block).expect("it is read");
    assert_eq!(block, [7; 4096]);
    assert!(cache.close().expect("it closes").clean);
}

#[test]
fn a_silent_device_is_replaced_and_let_go_of_once_it_answers() {
    let Some(rig) = Rig::new() else { return };
    let (mut cache, volume) = rig.open("ssd/cache.img", Duration::from_secs(1));
    assert!(rig.switch("-f"), "it can be frozen");
    cache.write(volume, 0, &[7; 4096]).expect("the backend has it");
    let reason = cache.degraded().expect("it was given up");
    assert!(reason.contains("did not answer"), "{reason}");
    let old = rig.path("ssd/cache.img");
    assert!(!is_free(&old), "what hangs may still write to it");
    let taken = cache.replace(&new(old.clone())).expect_err("it is still held");
    assert!(taken.to_string().contains("has not answered yet"), "{taken}");
    let taken = cache.attach(&rig.volume("ssd/cache.img")).expect_err("it is still held");
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");

    cache.replace(&new(rig.path("second.img"))).expect("another one can be used");
    assert!(cache.degraded().is_none(), "{:?}", cache.degraded());
    let misses = |cache: &Cache| cache.volume_counters(volume).expect("attached").misses;
    let mut block = [0; 4096];
    cache.read(volume, 0, &mut block).expect("it is read");
    let before = misses(&cache);
    cache.read(volume, 0, &mut block).expect("it is read");
    assert_eq!((block, misses(&cache)), ([7; 4096], before), "the second one caches");
    assert!(rig.switch("-u"), "it can be thawed");
    assert!(soon(&mut cache, || is_free(&old)), "once the last write has ended");
    assert!(cache.close().expect("it closes").clean);
}

#[test]
fn a_silent_device_without_a_time_out_is_abandoned_in_time() {
    let Some(rig) = Rig::new() else { return };
    let (mut cache, volume) = rig.open("ssd/cache.img", Duration::ZERO);
    assert!(rig.switch("-f"), "it can be frozen");
    let data = crate::Buffer::copy_of(0, &[7; 4096]);
    let write = crate::Request::Write { offset: 0, data, durable: false };
    cache.submit(volume, 1, write).expect("it is taken");
    idle(&mut cache, Duration::from_millis(100));
    assert_eq!(cache.under_way(), 1, "it waits for its record");
    let since = Instant::now();
    cache.abandon().expect("it is given up");
    assert!(since.elapsed() < SILENCE_MAX * 3, "{:?}", since.elapsed());
    let mut done = Vec::new();
    while done.is_empty() {
        cache.poll(None, &mut done).expect("it waits");
    }
    assert!(done[0].result.is_ok(), "it goes past the cache: {:?}", done[0].result);
    assert!(rig.switch("-u"), "it can be thawed");
    assert!(soon(&mut cache, || is_free(&rig.path("ssd/cache.img"))));
}

#[test]
fn a_new_device_that_does_not_answer_changes_nothing_now_or_later() {
    let Some(rig) = Rig::new() else { return };
    let (mut cache, volume) = rig.open("cache.img", Duration::ZERO);
    assert!(rig.switch("-f"), "it can be frozen");
    let read = crate::Request::Read { offset: 0, len: 4096 };
    cache.submit(volume, 1, read).expect("it is taken");
    let since = Instant::now();
    let error = cache.replace(&new(rig.path("ssd/first.img"))).expect_err("it hangs");
    assert!(since.elapsed() >= SILENCE_MAX && since.elapsed() < SILENCE_MAX * 3);
    assert!(error.to_string().contains("does not answer"), "{error}");
    let mut done = Vec::new();
    cache.poll(Some(Duration::ZERO), &mut done).expect("it waits");
    assert!(done.len() == 1 && done[0].result.is_ok(), "requests go on: {done:?}");
    assert!(cache.degraded().is_none(), "{:?}", cache.degraded());
    assert!(rig.switch("-u"), "it can be thawed");
    cache.replace(&new(rig.path("ssd/second.img"))).expect("it answers again");
    let first = rig.path("ssd/first.img");
    assert!(soon(&mut cache, || !first.exists()), "the first one was not formatted");
    assert!(cache.degraded().is_none() && !is_free(&rig.path("ssd/second.img")));
    assert!(is_free(&rig.path("cache.img")));
    assert!(cache.close().expect("it closes").clean);
}
