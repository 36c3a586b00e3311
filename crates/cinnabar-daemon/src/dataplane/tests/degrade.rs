//! Without the SSD: lost at start, given up, exchanged. Guests notice nothing but the time.

use super::rig::{MIB, Rig, both, pattern};
use cinnabar_backend::disk::{Disk, OpenOptions};
use cinnabar_config::messages::{
    ByteRange, CommandErrorKind, IoMode, Message, NewCache, StartErrorKind, State,
};
use cinnabar_engine::health::{Health, PassThroughReason};
use cinnabar_engine::volume::{DropReason, Warmth};
use std::path::Path;
use std::time::{Duration, Instant};

const EIO: u32 = 5;

pub(super) fn replace(
    rig: &Rig,
    device: &Path,
    format: bool,
) -> Result<(), (CommandErrorKind, String)> {
    let new = NewCache { device: device.into(), size_bytes: Some(80 * MIB), format };
    rig.ask(|answer| Message::ReplaceCache { new, answer }).map_err(|error| {
        assert!(!error.hint.is_empty(), "{error}");
        (error.kind, error.message)
    })
}

pub(super) fn invalidate(
    rig: &Rig,
    name: &str,
    range: Option<(u64, u64)>,
) -> Result<(), CommandErrorKind> {
    let (name, range) = (name.to_owned(), range.map(|(offset, len)| ByteRange { offset, len }));
    rig.ask(|answer| Message::Invalidate { name, range, answer }).map_err(|error| error.kind)
}

fn is_unlocked(path: &Path) -> bool {
    let free = OpenOptions { lock_wait: Duration::from_mins(1), ..OpenOptions::default() };
    Disk::open(path, &free).is_ok()
}

/// Three reads of the first MiB: enough to be cached.
pub(super) fn warm_up(rig: &Rig) {
    let mut client = rig.client("vm1");
    for _ in 0..3 {
        assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
    }
    client.leave();
}

/// A rig whose cache is on a file system of its own, that may not be there.
fn with_ssd(io: IoMode) -> Rig {
    let mut rig = Rig::new(io, &["vm1"]);
    std::fs::create_dir(rig.path("ssd")).expect("a folder");
    rig.config.cache.device = rig.path("ssd/cache.img");
    rig.config.lock_wait_max = Duration::from_secs(2);
    rig.start();
    warm_up(&rig);
    assert!(rig.stop().clean);
    rig
}

#[test]
fn a_run_without_the_ssd_that_wrote_leaves_nothing_to_believe() {
    both(|io| {
        for writes in [false, true] {
            let mut rig = with_ssd(io);
            std::fs::rename(rig.path("ssd"), rig.path("away")).expect("it goes");
            rig.start();
            let status = rig.status();
            assert_eq!(status.cache.state, State::Degraded);
            assert!(status.cache.reason.contains("folder does not exist"), "{:?}", status.cache);
            assert_eq!(status.cache.health, Health::PassThrough(PassThroughReason::NoDevice));
            assert_eq!((status.cache.loaded, status.cache.counters.capacity_blocks), (None, 0));
            let mut client = rig.client("vm1");
            assert!(client.read(0, 65_536) == Ok(pattern(0, 65_536)));
            if writes {
                assert_eq!(client.write(8192, &[7; 4096], true), Ok(()));
                assert_eq!(client.read(8192, 4096), Ok(vec![7; 4096]));
            }
            client.leave();
            rig.stop();

            std::fs::rename(rig.path("away"), rig.path("ssd")).expect("it comes back");
            rig.start();
            let warmth = rig.loaded().volumes[0].warmth;
            if writes {
                let Warmth::Dropped { reason, .. } = warmth else { panic!("{warmth:?}") };
                assert_eq!(reason, DropReason::WrittenWithoutCache);
            } else {
                assert!(matches!(warmth, Warmth::Warm { blocks: 200.. }), "{warmth:?}");
            }
            let mut client = rig.client("vm1");
            let expected = if writes { vec![7; 4096] } else { pattern(8192, 4096) };
            assert_eq!(client.read(8192, 4096), Ok(expected));
            client.leave();
            assert!(rig.stop().clean);
        }
    });
}

#[test]
fn a_damaged_device_is_passed_by_and_a_required_one_is_not() {
    let mut rig = with_ssd(IoMode::Auto);
    let file = std::fs::OpenOptions::new().write(true).open(&rig.config.cache.device);
    // Both copies of the superblock, behind their magic numbers.
    let file = file.expect("it opens");
    for offset in [64, 4096 + 64] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 64], offset)
            .expect("it is written");
    }
    rig.start();
    let status = rig.status();
    assert_eq!(status.cache.state, State::Degraded);
    assert!(status.cache.reason.contains("damaged"), "{}", status.cache.reason);
    assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
    rig.stop();
    rig.config.cache.required = true;
    let error = rig.try_start().expect_err("it is required");
    assert_eq!(error.kind, StartErrorKind::CacheFormat, "{error}");
    rig.config.cache.device = "/dev/cinnabar-none".into();
    let error = rig.try_start().expect_err("it is required");
    assert_eq!(error.kind, StartErrorKind::CacheAccess, "{error}");
    rig.config.cache.required = false;
    rig.start();
    assert_eq!(rig.status().cache.state, State::Degraded);
    rig.stop();
}

/// As after an upgrade, or back to an older program: guests keep their disks.
#[test]
fn a_device_of_another_format_version_is_passed_by_until_it_is_formatted() {
    use std::os::unix::fs::FileExt;
    let mut rig = with_ssd(IoMode::Auto);
    let device = rig.config.cache.device.clone();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&device).expect("it opens");
    for offset in [0, 4096] {
        let mut page = [0; 4096];
        file.read_exact_at(&mut page, offset).expect("it is read");
        page[12] = 9;
        let sum = crc32c::crc32c(&page[4..]).to_le_bytes();
        page[..4].copy_from_slice(&sum);
        file.write_all_at(&page, offset).expect("it is written");
    }
    rig.start();
    let status = rig.status();
    assert_eq!(status.cache.state, State::Degraded);
    assert!(status.cache.reason.contains("version 9"), "{}", status.cache.reason);
    assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
    replace(&rig, &device, false).expect_err("it holds something");
    assert_eq!(replace(&rig, &device, true), Ok(()));
    assert_eq!(rig.status().cache.state, State::Serving);
    rig.stop();
}

/// What overwrote it is not formatted away: it may be somebody's data.
#[test]
fn a_device_whose_superblocks_were_overwritten_is_passed_by_and_kept_as_it_is() {
    for byte in [0x5a, 0] {
        let mut rig = with_ssd(IoMode::Auto);
        let device = rig.config.cache.device.clone();
        let file = std::fs::OpenOptions::new().write(true).open(&device).expect("it opens");
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte; 8192], 0).expect("it is written");
        let before = std::fs::read(&device).expect("it is there");
        rig.start();
        let status = rig.status();
        assert_eq!(status.cache.state, State::Degraded);
        assert!(status.cache.reason.contains("not a Cinnabar cache"), "{}", status.cache.reason);
        assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
        rig.stop();
        rig.config.cache.required = true;
        let error = rig.try_start().expect_err("it is required");
        assert_eq!(error.kind, StartErrorKind::ForeignData);
        assert!(std::fs::read(&device).expect("it is there") == before, "nothing was written");
    }
}

#[test]
fn a_device_is_exchanged_while_guests_read_and_write() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        rig.start();
        warm_up(&rig);
        let mut client = rig.client("vm1");
        let (old, new) = (rig.config.cache.device.clone(), rig.path("new.img"));
        assert_eq!(replace(&rig, &new, false), Ok(()));
        assert!(is_unlocked(&old), "it can be taken away");
        let status = rig.loaded();
        assert_eq!((status.cache.state, &status.cache.device), (State::Serving, &new));
        assert!(status.cache.counters.capacity_blocks > 8000, "{:?}", status.cache.counters);
        assert_eq!(client.write(8192, &[7; 4096], true), Ok(()));
        for _ in 0..3 {
            assert!(client.read(MIB, MIB as u32) == Ok(pattern(MIB, MIB as usize)));
            assert_eq!(client.read(8192, 4096), Ok(vec![7; 4096]));
        }
        assert!(rig.status().volumes[0].counters.cached_blocks >= 256);
        client.leave();
        assert!(rig.stop().clean);

        rig.config.cache.device = new;
        rig.start();
        let warmth = rig.loaded().volumes[0].warmth;
        assert!(matches!(warmth, Warmth::Warm { blocks: 256.. }), "the new one: {warmth:?}");
        assert!(rig.stop().clean);
        rig.config.cache.device = old;
        rig.start();
        let status = rig.loaded();
        let warmth = status.volumes[0].warmth;
        assert!(!matches!(warmth, Warmth::Warm { .. }), "the old one: {warmth:?}");
        assert_eq!(rig.client("vm1").read(8192, 4096), Ok(vec![7; 4096]));
        assert!(rig.stop().clean);
    });
}

/// Guests are served without a device that was replaced, and the reason says where the cache is.
#[test]
fn a_configuration_that_names_the_old_device_starts_without_it() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let folder = rig.path("old");
    std::fs::create_dir(&folder).expect("a folder");
    rig.config.cache.device = folder.join("cache.img");
    rig.start();
    assert_eq!(replace(&rig, &rig.path("new.img"), false), Ok(()));
    assert!(rig.stop().clean);
    std::fs::remove_dir_all(&folder).expect("its SSD is taken out");
    rig.start();
    let cache = rig.status().cache;
    assert_eq!(cache.state, State::Degraded);
    assert!(cache.reason.contains("new.img"), "{}", cache.reason);
    assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
    rig.stop();
    rig.config.cache.device = rig.path("odl/cache.img");
    let error = rig.try_start().expect_err("it was never in use");
    assert!(error.message.contains("folder"), "{error:?}");
}

#[test]
fn what_can_not_take_the_place_leaves_the_old_one_in_it() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.config.lock_wait_max = Duration::from_millis(300);
    let mut other = Rig::new(IoMode::Auto, &[]);
    other.start();
    assert!(other.stop().clean);
    rig.start();
    std::fs::write(rig.path("foreign"), pattern(1, 32 * MIB as usize)).expect("a file");
    let own = rig.config.cache.device.clone();
    for (device, format, kind, part) in [
        (own, true, CommandErrorKind::Busy, "it is the cache device"),
        (rig.path("vm1.raw"), true, CommandErrorKind::Busy, "the backend of volume \"vm1\""),
        (rig.path("foreign"), false, CommandErrorKind::Invalid, "not a Cinnabar cache"),
        (other.config.cache.device.clone(), false, CommandErrorKind::Invalid, "holds a Cinnabar"),
        (rig.path("none/x"), false, CommandErrorKind::Invalid, "folder"),
        (rig.folder.path().into(), false, CommandErrorKind::Invalid, "directory"),
    ] {
        let (got, message) = replace(&rig, &device, format).expect_err(part);
        assert_eq!(got, kind, "{message}");
        assert!(message.contains(part), "{message}");
        assert_eq!(rig.loaded().cache.state, State::Serving);
    }
    // The last one who looked at it did not keep it.
    assert_eq!(replace(&rig, &other.config.cache.device, true), Ok(()));
    assert!(rig.client("vm1").read(0, 4096) == Ok(pattern(0, 4096)));
    assert!(rig.stop().clean);
}

#[test]
fn a_device_is_given_up_and_the_same_one_taken_again() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.start();
    warm_up(&rig);
    let mut client = rig.client("vm1");
    let device = rig.config.cache.device.clone();
    assert_eq!(rig.ask(Message::AbandonCache), Ok(()));
    assert!(is_unlocked(&device));
    let status = rig.status();
    assert_eq!(status.cache.state, State::Degraded);
    assert_eq!(status.cache.health, Health::PassThrough(PassThroughReason::Abandoned));
    let counters = status.cache.counters;
    assert_eq!((counters.cached_blocks, status.volumes[0].counters.cached_blocks), (0, 0));
    assert!(client.read(0, 65_536) == Ok(pattern(0, 65_536)));
    assert_eq!(client.write(8192, &[7; 4096], true), Ok(()));
    assert_eq!(rig.ask(Message::AbandonCache), Ok(()), "once more changes nothing");
    assert_eq!(replace(&rig, &device, true), Ok(()));
    assert_eq!(rig.loaded().cache.state, State::Serving);
    assert_eq!(client.read(8192, 4096), Ok(vec![7; 4096]));
    client.leave();
    assert!(rig.stop().clean);
}

#[test]
fn the_operator_has_blocks_dropped() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        let second = rig.volume("vm2");
        rig.start();
        warm_up(&rig);
        let hits = |rig: &Rig| {
            let before = rig.status().volumes[0].counters.read_hits;
            let mut client = rig.client("vm1");
            assert!(client.read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
            client.leave();
            rig.status().volumes[0].counters.read_hits - before
        };
        assert_eq!(hits(&rig), 256);
        assert_eq!(invalidate(&rig, "vm1", Some((4096, 8192))), Ok(()));
        assert_eq!(hits(&rig), 254);
        assert_eq!(rig.status().volumes[0].counters.invalidated_blocks, 2);
        // Not on the bounds of blocks.
        assert_eq!(invalidate(&rig, "vm1", Some((65_536 + 4095, 2))), Ok(()));
        assert_eq!(hits(&rig), 254);
        assert_eq!(invalidate(&rig, "vm1", None), Ok(()));
        assert_eq!(hits(&rig), 0);
        for range in [(0, 0), (8 * MIB, 1), (MIB, 8 * MIB), (u64::MAX, u64::MAX)] {
            assert_eq!(invalidate(&rig, "vm1", Some(range)), Err(CommandErrorKind::Invalid));
        }

        // One that is not attached.
        assert_eq!(invalidate(&rig, "vm2", None), Err(CommandErrorKind::NotFound));
        let add = |config| rig.ask(|answer| Message::AddVolume(Box::new(config), answer));
        let remove = || {
            let name = "vm2".to_owned();
            rig.ask(|answer| Message::RemoveVolume {
                name,
                force: true,
                discard_dirty: false,
                answer,
            })
        };
        assert_eq!(add(second.clone()), Ok(()));
        assert!(rig.client("vm2").read(0, MIB as u32) == Ok(pattern(0, MIB as usize)));
        assert_eq!(remove(), Ok(()));
        assert_eq!(invalidate(&rig, "vm2", Some((0, 1))), Err(CommandErrorKind::NotFound));
        assert_eq!(invalidate(&rig, "vm2", None), Ok(()));
        assert_eq!(add(second), Ok(()));
        assert_eq!(rig.status().volumes[1].warmth, Warmth::New);
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_backend_that_hangs_fails_its_guests_in_time() {
    both(|io| {
        let mut rig = Rig::new(io, &["slow", "good"]);
        let file = rig.config.volumes[0].backend.clone();
        rig.config.volumes[0].backend = format!("sim:network,packet=1s:{file}");
        rig.config.volumes[0].backend_timeout = Duration::from_millis(200);
        rig.start();
        let (mut slow, mut good) = (rig.client("slow"), rig.client("good"));
        let since = Instant::now();
        assert_eq!(slow.read(0, 4096), Err(EIO));
        let took = since.elapsed();
        assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(1), "{took:?}");
        // The request's time is over a moment before its operation's.
        while rig.status().volumes[0].counters.backend_overdue == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = &rig.status().volumes[0];
        assert_eq!((status.overdue_now, status.counters.backend_overdue), (1, 1));
        assert_eq!(status.state, State::Degraded);
        assert!(status.reason.contains("0.2 s"), "{}", status.reason);
        assert!(good.read(0, 4096) == Ok(pattern(0, 4096)));
        // The write is still under way when its guest has been answered.
        assert_eq!(slow.write(4096, &[9; 4096], false), Err(EIO));
        while rig.status().volumes[0].overdue_now > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(rig.status().volumes[0].state, State::Serving);
        assert_eq!(rig.status().volumes[1].counters.backend_overdue, 0);
        drop((slow, good));
        rig.stop();
    });
}

/// A file system that is frozen, which hangs whoever writes; thawed and unmounted when dropped.
pub(super) struct Frozen(std::path::PathBuf);

impl Frozen {
    /// Nothing if this machine does not allow it: it takes root and a loop device.
    pub(super) fn mount(rig: &Rig) -> Option<Self> {
        let (image, folder) = (rig.path("ssd.fs"), rig.path("ssd"));
        std::fs::File::create(&image).and_then(|file| file.set_len(96 * MIB)).expect("a file");
        std::fs::create_dir(&folder).expect("a folder");
        let (image, path) = (image.to_str()?, folder.to_str()?);
        let done = run("mkfs.ext4", &["-q", image]) && run("mount", &["-o", "loop", image, path]);
        done.then_some(Self(folder))
    }

    pub(super) fn switch(&self, flag: &str) -> bool {
        run("fsfreeze", &[flag, self.0.to_str().expect("made of UTF-8")])
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.switch("-u");
        run("umount", &["-l", self.0.to_str().expect("made of UTF-8")]);
    }
}

fn run(program: &str, args: &[&str]) -> bool {
    let quiet = std::process::Stdio::null;
    let status = std::process::Command::new(program).args(args).stderr(quiet()).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn a_device_that_hangs_is_given_up() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let Some(ssd) = Frozen::mount(&rig) else {
        eprintln!("skipped: no root, no loop device, or no mkfs.ext4");
        return;
    };
    rig.config.cache.device = rig.path("ssd/cache.img");
    rig.config.cache.device_timeout = Duration::from_secs(1);
    rig.config.cache.eviction = cinnabar_config::messages::EvictionMode::Clock;
    rig.start();
    warm_up(&rig);
    // Until the blocks are on flash, so that a write needs a mark.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(ssd.switch("-f"), "it can be frozen");
    let mut client = rig.client("vm1");
    let since = Instant::now();
    assert_eq!(client.write(8192, &[7; 4096], true), Ok(()));
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(10), "{took:?}");
    let status = rig.status();
    assert_eq!(status.cache.state, State::Degraded);
    assert!(status.cache.reason.contains("did not answer"), "{}", status.cache.reason);
    assert_eq!(client.read(8192, 4096), Ok(vec![7; 4096]));
    client.leave();
    assert!(ssd.switch("-u"), "it can be thawed");
    // A stop leaves behind what is still under way, and its lock, until the process ends.
    assert!(is_unlocked(&rig.config.cache.device), "once the last write has ended");
    rig.stop();
    // What it holds is old, and known to be.
    rig.start();
    let warmth = rig.loaded().volumes[0].warmth;
    let reason = DropReason::WrittenWithoutCache;
    assert!(matches!(warmth, Warmth::Dropped { reason: r, .. } if r == reason), "{warmth:?}");
    assert_eq!(rig.client("vm1").read(8192, 4096), Ok(vec![7; 4096]));
    assert!(rig.stop().clean);
}

/// Guests' writes need marks, which the device can't take.
fn on_a_frozen_device(rig: &mut Rig, bound: Duration) -> Option<Frozen> {
    let Some(ssd) = Frozen::mount(rig) else {
        eprintln!("skipped: no root, no loop device, or no mkfs.ext4");
        return None;
    };
    rig.config.cache.device = rig.path("ssd/cache.img");
    rig.config.cache.device_timeout = bound;
    rig.start();
    warm_up(rig);
    assert!(ssd.switch("-f"), "it can be frozen");
    Some(ssd)
}

#[test]
fn another_device_takes_the_place_of_one_that_never_answers() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let second = rig.volume("vm2");
    // With and without a bound: an operator's command is answered in any case.
    let Some(ssd) = on_a_frozen_device(&mut rig, Duration::from_secs(1)) else { return };
    let add = |config| rig.send(|answer| Message::AddVolume(Box::new(config), answer));
    // Its attach waits for the journal.
    let added = add(second);
    assert_eq!(replace(&rig, &rig.path("new.img"), false).map_err(|error| error.0), {
        Err(CommandErrorKind::Busy)
    });
    assert_eq!(added.blocking_recv().expect("it is answered"), Ok(()));
    assert_eq!(rig.status().cache.state, State::Degraded);
    assert_eq!(replace(&rig, &rig.path("new.img"), false), Ok(()));
    assert!(rig.client("vm2").read(0, 4096) == Ok(pattern(0, 4096)));
    // What hangs on the old one has no say in the new one's life.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(rig.loaded().cache.state, State::Serving);
    assert!(ssd.switch("-u"), "it can be thawed");
    assert!(is_unlocked(&rig.path("ssd/cache.img")), "once the last write has ended");
    assert_eq!(rig.loaded().cache.state, State::Serving);
    assert!(rig.stop().clean);
}

/// The replacement has the engine give up the old device, and so has its silence.
#[test]
fn a_device_that_hangs_while_it_is_replaced_does_not_condemn_the_next() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        let Some(ssd) = Frozen::mount(&rig) else {
            eprintln!("skipped: no root, no loop device, or no mkfs.ext4");
            return;
        };
        rig.config.cache.device = rig.path("ssd/cache.img");
        rig.config.cache.device_timeout = Duration::from_secs(2);
        rig.config.cache.eviction = cinnabar_config::messages::EvictionMode::Clock;
        rig.start();
        warm_up(&rig);
        // Until the blocks are on flash, so that a write needs a mark.
        std::thread::sleep(Duration::from_millis(1500));
        assert!(ssd.switch("-f"), "it can be frozen");
        let mut client = rig.client("vm1");
        let write = std::thread::spawn(move || client.write(8192, &[7; 4096], true));
        while rig.status().volumes[0].counters.writes == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(replace(&rig, &rig.path("new.img"), false), Ok(()));
        assert_eq!(write.join().expect("no panic"), Ok(()));
        let status = rig.loaded();
        assert_eq!((status.cache.state, status.cache.device), {
            (State::Serving, rig.path("new.img"))
        });
        assert!(ssd.switch("-u"), "it can be thawed");
        assert!(is_unlocked(&rig.path("ssd/cache.img")), "once the last write has ended");
        assert_eq!(rig.status().cache.state, State::Serving);
        assert!(rig.stop().clean);
    });
}

/// A stop that begins while a volume is being attached must not forget that one.
#[test]
fn a_stop_takes_a_volume_along_that_was_on_its_way() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let second = rig.volume("vm2");
    let Some(ssd) = on_a_frozen_device(&mut rig, Duration::from_secs(2)) else { return };
    let added = rig.send(|answer| Message::AddVolume(Box::new(second), answer));
    // Opened, and in the engine's hands.
    while rig.status().volumes.len() < 2 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let report = rig.stop_within(Duration::from_secs(20));
    assert!(report.clean, "without a device there is nothing more to do: {report:?}");
    drop((added, ssd));
}

/// It waits for nothing that could be overdue by itself.
#[test]
fn what_waits_for_a_hanging_write_is_answered_in_its_own_time() {
    both(|io| {
        let mut rig = Rig::new(io, &["slow"]);
        let file = rig.config.volumes[0].backend.clone();
        rig.config.volumes[0].backend = format!("sim:network,packet=3s:{file}");
        rig.config.volumes[0].backend_timeout = Duration::from_millis(200);
        rig.start();
        let (mut first, mut second) = (rig.client("slow"), rig.client("slow"));
        assert_eq!(first.write(0, &[9; 4096], false), Err(EIO));
        assert_eq!(second.read(0, 4096), Err(EIO));
        assert_eq!(rig.status().volumes[0].counters.reads, 0, "it never ran");
        drop((first, second));
        rig.stop();
    });
}

/// A device that is away would be believed when it comes back.
#[test]
fn blocks_of_a_volume_are_dropped_on_a_device_that_is_not_there() {
    both(|io| {
        let mut rig = with_ssd(io);
        std::fs::rename(rig.path("ssd"), rig.path("away")).expect("it goes");
        let volumes = std::mem::take(&mut rig.config.volumes);
        rig.start();
        assert_eq!(rig.status().cache.state, State::Degraded);
        assert_eq!(invalidate(&rig, "vm1", None), Ok(()));
        assert_eq!(invalidate(&rig, "vm2", None), Err(CommandErrorKind::NotFound));
        rig.stop();
        std::fs::rename(rig.path("away"), rig.path("ssd")).expect("it comes back");
        rig.config.volumes = volumes;
        rig.start();
        let warmth = rig.loaded().volumes[0].warmth;
        assert!(matches!(warmth, Warmth::Dropped { .. }), "{warmth:?}");
        assert!(rig.stop().clean);
    });
}

/// The attach waits for the device, which guests need not know of.
#[test]
fn a_guest_of_a_volume_that_is_being_attached_is_answered_in_its_own_time() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let mut second = rig.volume("vm2");
    second.backend_timeout = Duration::from_millis(200);
    let Some(ssd) = on_a_frozen_device(&mut rig, Duration::from_secs(8)) else { return };
    let mut added = rig.send(|answer| Message::AddVolume(Box::new(second), answer));
    while rig.status().volumes.len() < 2 {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(rig.client("vm2").read(0, 4096), Err(EIO));
    assert!(added.try_recv().is_err(), "it is still being attached");
    assert!(ssd.switch("-u"), "it can be thawed");
    assert_eq!(added.blocking_recv().expect("it is answered"), Ok(()));
    assert!(rig.client("vm2").read(0, 4096) == Ok(pattern(0, 4096)));
    rig.stop();
}
